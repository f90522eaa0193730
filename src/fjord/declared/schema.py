"""Schemas: columns with names and types, and the key."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

COLUMNS_MAX: Final = 256
KEY_COLUMNS_MAX: Final = 16
FIRST: Final = 1
NUMBER_MAX: Final = 2**16 - 1
# Numbers of tables begin at multiples of one of these, modulo the other, a prime: far apart.
_STRIDE, _NUMBERS = 40503, 65521
# Built-in columns of every table in Spark and in blocks, which cannot be declared.
RESERVED: Final = frozenset(
    {
        "seq", "ts", "txn", "op", "row", "xid", "key", "domain", "priority", "process_at",
        "expires_at", "timeouts", "producer", "type", "value",
    }
)  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: str
    required: bool = False  # it has a value in every row

    @property
    def kind(self) -> ColumnType:
        return TYPES[self.type]


# Columns as users give them: a name and a type, or a type and whether a value is required.
Columns = Mapping[str, str | tuple[str, bool]] | Sequence["Column | Sequence[str | bool]"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table; none if its values are free."""

    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()  # the key columns; none: keys are given separately
    number: int = 1  # in every row: which of the table's schemas it has

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def read(columns: object, key: object = (), number: object = 1) -> Schema:
    """Reads a schema as users and settings give it.

    Args:
        columns: `{"uri": "string", "depth": ("uint8", True)}`, or a list of columns, each a
            `Column`, or its name, its type and whether it is required.
        key: names of columns, or one name.
        number: of the schema.

    Raises:
        ValueError: if it is invalid; the text says why.
    """
    found = tuple(map(_column, _listed(columns)))
    names = [column.name for column in found]
    if len(found) > COLUMNS_MAX:
        raise ValueError(f"a table has at most {COLUMNS_MAX} columns, not {len(found)}")
    folded = [name.lower() for name in names]
    twice = [name for at, name in enumerate(names) if name.lower() in folded[:at]]
    if twice:
        raise ValueError(f"there are two columns {twice[0]}; names are case-insensitive")
    if type(number) is not int or not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"the number of a schema is 1 to {NUMBER_MAX}")
    return Schema(found, _key(key, found), number)


@functools.lru_cache(maxsize=1024)
def of(columns: tuple[tuple[str, str, bool], ...], key: tuple[str, ...], number: int) -> Schema:
    """Returns the schema of checked settings."""
    return Schema(tuple(Column(*column) for column in columns), key, number)


def first_number(table_id: int) -> int:
    """Returns the number of the first schema of a table.

    A table that was dropped and created again has another id, and so its rows have another number:
    a client with the old columns notices, instead of confusing one column with another.
    """
    return FIRST + table_id * _STRIDE % _NUMBERS


def next_number(number: int, taken: Collection[int]) -> int:
    """Returns the next unused schema number."""
    number = number % NUMBER_MAX + 1
    while number in taken:
        number = number % NUMBER_MAX + 1
    return number


def _listed(columns: object) -> Iterable[Any]:
    if isinstance(columns, Mapping):
        return [
            (name, *given) if isinstance(given, list | tuple) else (name, given)
            for name, given in columns.items()
        ]
    if isinstance(columns, Sequence) and not isinstance(columns, str | bytes):
        return columns
    raise ValueError("columns are a dict or a list")


def _column(given: Any) -> Column:
    if isinstance(given, Column):
        given = (given.name, given.type, given.required)
    if not isinstance(given, Sequence) or isinstance(given, str) or not 2 <= len(given) <= 3:
        raise ValueError(f"a column is a name, a type and whether it is required, not {given!r}")
    name, type_, required = (*given, False)[:3]
    problem = name_problem(name) or type_problem(type_)
    if problem is not None:
        raise ValueError(problem)
    if not isinstance(required, bool):
        raise ValueError(f"whether column {name} is required is true or false, not {required!r}")
    return Column(name, type_, required)


def name_problem(name: object) -> str | None:
    """Returns why a name is invalid, or None."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not a column name: use 1 to 64 letters, digits and _, no digit first"
    if name.lower() in RESERVED:
        return f"every table has a built-in column {name.lower()}; choose another name"
    return None


def type_problem(type_: object) -> str | None:
    """Returns why a type is invalid, or None."""
    if isinstance(type_, str) and type_ in TYPES:
        return None
    return f"there is no type {type_!r}; there are {', '.join(TYPES)}"


def _key(given: object, columns: Sequence[Column]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence):
        raise ValueError("a key is a list of columns")
    known = {column.name: column for column in columns}
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"the key has a column {name!r}, which is not declared")
        if not known[name].required:
            raise ValueError(f"column {name} belongs to the key, so it must be required")
        if not known[name].kind.can_be_key:
            raise ValueError(f"column {name} is a {known[name].type}, which cannot be a key")
    if len(names) > KEY_COLUMNS_MAX or len(set(names)) < len(names):
        raise ValueError(f"a key has at most {KEY_COLUMNS_MAX} columns, each once")
    return tuple(names)


# -- column types, and their Python values --------------------------------------------------------
#
#     boolean                          bool
#     int8 ... int512, uint8 ... uint512, oid    int
#     float32, float64                 float; an int is taken, too
#     string, binary                   str, bytes
#     time_seconds, time_milliseconds, time_microseconds    datetime with a time zone
#
# A column is converted as a whole.  What `struct` checks itself (the range of a number) is not
# checked here again; types are, since `struct` would take True for 1.


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

# Types of values in words that hold for Python and for JSON.
_WORDS: Final[dict[type, str]] = {
    bool: "a boolean",
    int: "a whole number",
    float: "a float",
    str: "text",
    bytes: "bytes",
    datetime: "a datetime",
}

Stored = Sequence[Any]


class ColumnType(NamedTuple):
    """One type of columns."""

    name: str
    code: str  # of `struct`; empty: it has any length, and follows the numbers
    python: frozenset[type]  # of its values
    what: str  # its values, in words
    store: Callable[[Sequence[Any]], Stored]  # what is packed for values
    load: Callable[[Stored], Sequence[Any]]  # the values of what was packed
    zero: Any = 0  # stored where there is no value
    bounds: tuple[int, int] | None = None  # of stored values, if narrower than the stored type

    @property
    def is_fixed(self) -> bool:
        return bool(self.code)

    @property
    def converts(self) -> bool:
        """Returns whether the packed value differs from the Python value."""
        return self.load is not _as_it_is

    def takes(self, python: type) -> bool:
        """Returns whether a Python type, or its base, is accepted."""
        if python is bool:
            return bool in self.python
        return issubclass(python, tuple(self.python))

    @property
    def can_be_key(self) -> bool:
        """Returns whether equal values have one text only."""
        return not self.name.startswith("float")


def words_of(value: object) -> str:
    """Describes a value of a wrong type."""
    return _WORDS.get(type(value), f"a value of type {type(value).__name__}")


def _as_it_is(column: Sequence[Any]) -> Sequence[Any]:
    return column


def _integer(bits: int, code: str, *, signed: bool) -> ColumnType:
    what = f"a whole number from {-(2 ** (bits - 1)) if signed else 0} to "
    what += str(2 ** (bits - 1) - 1 if signed else 2**bits - 1)
    name = f"{'' if signed else 'u'}int{bits}"
    return ColumnType(name, code, frozenset({int}), what, _as_it_is, _as_it_is)


def _large(bits: int, *, signed: bool) -> ColumnType:
    size = bits // 8
    name = f"{'' if signed else 'u'}int{bits}"
    what = f"a whole number of {bits} bits{'' if signed else ', 0 or larger'}"
    return ColumnType(
        name,
        f"{size}s",
        frozenset({int}),
        what,
        lambda column: [one.to_bytes(size, "little", signed=signed) for one in column],
        lambda column: [int.from_bytes(one, "little", signed=signed) for one in column],
    )


def _float(bits: int, code: str) -> ColumnType:
    python = frozenset({float, int})
    return ColumnType(f"float{bits}", code, python, "a number", _as_it_is, _as_it_is, zero=0.0)


def _time(name: str, unit: timedelta) -> ColumnType:
    return ColumnType(
        f"time_{name}",
        "q",
        frozenset({datetime}),
        f"a datetime with a time zone, in {name}",
        lambda column: [(moment - _EPOCH) // unit for moment in column],
        lambda column: [_EPOCH + number * unit for number in column],
        zero=_EPOCH,
        bounds=((_FIRST - _EPOCH) // unit, (_LAST - _EPOCH) // unit),
    )


_ALL: Final = (
    ColumnType("boolean", "?", frozenset({bool}), "true or false", _as_it_is, _as_it_is, False),
    *(_integer(8 * 2**power, code, signed=True) for power, code in enumerate("bhiq")),
    *(_integer(8 * 2**power, code, signed=False) for power, code in enumerate("BHIQ")),
    *(_large(bits, signed=signed) for bits in (128, 256, 512) for signed in (True, False)),
    _integer(64, "Q", signed=False)._replace(name="oid"),
    _float(32, "f"),
    _float(64, "d"),
    ColumnType(
        "string",
        "",
        frozenset({str}),
        "text",
        lambda column: list(map(str.encode, column)),
        lambda column: list(map(bytes.decode, column)),
        zero="",
    ),
    ColumnType("binary", "", frozenset({bytes}), "bytes", _as_it_is, _as_it_is, zero=b""),
    _time("seconds", timedelta(seconds=1)),
    _time("milliseconds", timedelta(milliseconds=1)),
    _time("microseconds", timedelta(microseconds=1)),
)
TYPES: Final = {one.name: one for one in _ALL}
