"""The types that columns may have, and the Python values that stand for them.

    boolean                          bool
    int8 ... int512, uint8 ... uint512, oid    int
    float32, float64                 float; an int is taken, too
    string, binary                   str, bytes
    time_seconds, time_milliseconds, time_microseconds    datetime with a time zone

A column is converted as a whole.  What `struct` checks by itself (the range of a number) is not
checked here again; types are, since `struct` would take True for 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

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
    code: str  # of `struct`; empty: it has any length, and stands behind the numbers
    python: frozenset[type]  # of its values
    what: str  # its values, in words
    store: Callable[[Sequence[Any]], Stored]  # what is packed for values
    load: Callable[[Stored], Sequence[Any]]  # the values of what was packed
    zero: Any = 0  # a value that stands where there is none
    bounds: tuple[int, int] | None = None  # of what is stored, where less is meant than fits

    @property
    def is_fixed(self) -> bool:
        return bool(self.code)

    @property
    def converts(self) -> bool:
        """Says whether what is packed is something else than the value."""
        return self.load is not _as_it_is

    def takes(self, python: type) -> bool:
        """Says whether values may be of a type, or of one that is derived from it."""
        if python is bool:
            return bool in self.python
        return issubclass(python, tuple(self.python))

    @property
    def can_be_key(self) -> bool:
        """Says whether equal values have one text only."""
        return not self.name.startswith("float")


def words_of(value: object) -> str:
    """Returns what a value is, for one who gave it where something else is meant."""
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
