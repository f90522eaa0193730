"""What a table's rows are made of: columns with names and types, and which of them are its key."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fjord.declared.types import TYPES, ColumnType

COLUMNS_MAX: Final = 256
KEY_COLUMNS_MAX: Final = 16
FIRST: Final = 1
NUMBER_MAX: Final = 2**16 - 1
# Numbers of tables begin at multiples of one of these, modulo the other, a prime: far apart.
_STRIDE, _NUMBERS = 40503, 65521
# What every table has of its own, in Spark and in blocks: a column cannot be called so.
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


# As users give them: a name and a type, or a type and whether a value is required.
Columns = Mapping[str, str | tuple[str, bool]] | Sequence["Column | Sequence[str | bool]"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table; none if its values are free."""

    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()  # columns whose values are the key; none: it is said apart
    number: int = 1  # stands in every row: which of the schemas that the table has had

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
        ValueError: if it is none; the text says why.
    """
    found = tuple(map(_column, _listed(columns)))
    names = [column.name for column in found]
    if len(found) > COLUMNS_MAX:
        raise ValueError(f"a table has at most {COLUMNS_MAX} columns, not {len(found)}")
    folded = [name.lower() for name in names]
    twice = [name for at, name in enumerate(names) if name.lower() in folded[:at]]
    if twice:
        raise ValueError(f"there are two columns {twice[0]}; large and small letters are the same")
    if type(number) is not int or not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"the number of a schema is 1 to {NUMBER_MAX}")
    return Schema(found, _key(key, found), number)


@functools.lru_cache(maxsize=1024)
def of(columns: tuple[tuple[str, str, bool], ...], key: tuple[str, ...], number: int) -> Schema:
    """Returns the schema of settings that were checked."""
    return Schema(tuple(Column(*column) for column in columns), key, number)


def first_number(table_id: int) -> int:
    """Returns the number of the first schema of a table.

    A table that was dropped and made anew has another id, and so its rows have another number:
    who still knows the old columns finds out, instead of reading, or writing, one for another.
    """
    return FIRST + table_id * _STRIDE % _NUMBERS


def next_number(number: int, taken: Collection[int]) -> int:
    """Returns the number of the schema that follows; one that none of some others has."""
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
    """Says why no column can have this name, or None."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is no name of a column: 1 to 64 letters, digits and _, and no digit first"
    if name.lower() in RESERVED:
        return f"every table has a column {name.lower()} of its own; choose another name"
    return None


def type_problem(type_: object) -> str | None:
    """Says why no column can have this type, or None."""
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
            raise ValueError(f"column {name} is a {known[name].type}, which is no key")
    if len(names) > KEY_COLUMNS_MAX or len(set(names)) < len(names):
        raise ValueError(f"a key has at most {KEY_COLUMNS_MAX} columns, each once")
    return tuple(names)
