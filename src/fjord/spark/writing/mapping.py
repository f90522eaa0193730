"""Rows of Spark as rows of a table: Arrow of any types in, Arrow in one fixed form out.

Columns go by their names, and what they may be is known before the first row comes: `plan` refuses
a schema that does not fit its table.  What only rows can tell, nulls above all, `encode` refuses.
A null value is a void, as None is elsewhere.

There is no Python object for a row on this way: each column is one or two calls of Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from fjord import jobs, limits, streams
from fjord.errors import FjordError
from fjord.values import Type

KINDS: Final = ("stream", "jobs", "kv")

_TEXT: Final = ("binary", "string")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_REAL: Final = ("float", "double")
_VALUE: Final = (*_TEXT, *_WHOLE, *_REAL, "boolean")
# The types of Spark that a column may have, by its name, for each kind of table.
ALLOWED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "stream": {"value": _VALUE, "key": _TEXT, "type": ("tinyint",)},
    "jobs": {
        "key": _TEXT,
        "value": _VALUE,
        "type": ("tinyint",),
        "priority": _WHOLE,
        "process_at": ("timestamp",),
        "delay": (*_WHOLE, *_REAL, "decimal"),
        "expires_at": ("timestamp",),
        "domain": _TEXT,
    },
    "kv": {"key": _TEXT, "value": _VALUE, "type": ("tinyint",)},
}
_TYPES: Final[dict[str, Type]] = {
    "binary": Type.BUFFER,
    "string": Type.STRING,
    **dict.fromkeys(_WHOLE, Type.INTEGER),
    **dict.fromkeys(_REAL, Type.FLOAT),
    "boolean": Type.BOOLEAN,
}
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a table wants of rows."""

    kind: str  # one of KINDS
    needs_key: bool  # a key has at least one byte
    rows_max: int  # of a chunk

    @classmethod
    def of(cls, kind: str, settings: bytes = b"") -> Target:
        """Returns what a table with these settings wants."""
        if kind == "stream":
            is_log = streams.decode_settings(settings).mode is streams.Mode.LOG
            rows_max = limits.BATCH_ROWS_MAX if is_log else limits.SLICE_ROWS_MAX
            return cls(kind=kind, needs_key=not is_log, rows_max=rows_max)
        needs_key = kind == "kv" or jobs.decode_settings(settings).merge
        return cls(kind=kind, needs_key=needs_key, rows_max=limits.SLICE_ROWS_MAX)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that have to be there."""
        key = ("key",) if self.needs_key else ()
        return key if self.kind == "jobs" else (*key, "value")


def plan(target: Target, schema: StructType) -> Columns:
    """Returns how rows of a schema become rows of a table.

    Raises:
        FjordError: if a column is unknown, missing, there twice, or of a wrong type.
    """
    allowed = ALLOWED[target.kind]
    names = schema.fieldNames()
    words = {field.name: _word(field.dataType.simpleString()) for field in schema.fields}
    all_of_them = f"a {target.kind} table takes the columns {', '.join(allowed)}"
    for field in schema.fields:
        name = field.name
        if name not in allowed:
            raise FjordError(
                f"there is no column {name!r}: {all_of_them}; "
                "choose and rename columns with select before writing"
            )
        if names.count(name) > 1:
            raise FjordError(f"the column {name} is there {names.count(name)} times; leave one")
        if words[name] not in allowed[name]:
            raise FjordError(
                f"the column {name} is a {field.dataType.simpleString()}, and may be "
                f"{', '.join(allowed[name])}; cast it before writing"
            )
    for name in target.needed:
        if name not in names:
            raise FjordError(f"the column {name} is missing: {all_of_them}; {name} is needed here")
    _check_pairs(words)
    return Columns(target=target, names=tuple(names), words=tuple(words[name] for name in names))


def _check_pairs(words: dict[str, str]) -> None:
    if "type" in words and words.get("value") != "binary":
        raise FjordError(
            "the column type says what the bytes in the column value mean: it needs a column "
            "value that is binary; leave type out, and it follows from the values"
        )
    if "delay" in words and "process_at" in words:
        raise FjordError("a job has either delay or process_at; leave one of the columns out")


def _word(name: str) -> str:
    """Returns the name of a type of Spark without its digits or collation."""
    return name.partition("(")[0].partition(" ")[0]


# -- encoding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """How rows of one schema become rows of one table; checked, and the same in every task."""

    target: Target
    names: tuple[str, ...]  # in the order in which they come
    words: tuple[str, ...]  # the type of each, in the words of Spark

    @property
    def is_relative(self) -> bool:
        """Whether the process dates of jobs are delays from now on."""
        return "process_at" not in self.names

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with the columns of their kind of table, in one form and without nulls.

        Raises:
            FjordError: if a row has a null where none may be, or what no row can have.
        """
        given = dict(zip(self.names, batch.columns, strict=True))
        rows = batch.num_rows
        types, values = self._values(given, rows)
        found = {"key": self._keys(given.get("key"), rows), "type": types, "value": values}
        if self.target.kind == "jobs":
            found |= _job_columns(given, rows)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _keys(self, keys: pa.Array | None, rows: int) -> pa.Array:
        if keys is None:
            return _blank(rows)
        found = _filled(keys.cast(pa.binary()), b"")
        if self.target.needs_key and pc.min(pc.binary_length(found)).as_py() == 0:
            raise FjordError(
                "the column key has a null, or an empty key; each row of this table needs one. "
                "Filter such rows out before writing"
            )
        return found

    def _values(self, given: dict[str, pa.Array], rows: int) -> tuple[pa.Array, pa.Array]:
        """Returns the types of values, and their bytes."""
        values = given.get("value")
        if values is None:
            return pa.repeat(pa.scalar(Type.VOID, pa.uint8()), rows), _blank(rows)
        word = self.words[self.names.index("value")]
        data = _filled(_as_bytes(values, _TYPES[word]), b"")
        if "type" in given:
            return _given_types(given["type"], values), data
        type_ = pa.scalar(_TYPES[word], pa.uint8())
        if not values.null_count:
            return pa.repeat(type_, rows), data
        return pc.if_else(values.is_valid(), type_, pa.scalar(Type.VOID, pa.uint8())), data


def _as_bytes(values: pa.Array, type_: Type) -> pa.Array:
    """Returns values as their bytes; nulls stay nulls."""
    if type_ is Type.INTEGER:
        return values.cast(pa.int64()).view(pa.binary(8)).cast(pa.binary())
    if type_ is Type.FLOAT:
        return values.cast(pa.float64()).view(pa.binary(8)).cast(pa.binary())
    if type_ is Type.BOOLEAN:
        return values.cast(pa.uint8()).view(pa.binary(1)).cast(pa.binary())
    return values.cast(pa.binary())


def _given_types(types: pa.Array, values: pa.Array) -> pa.Array:
    bounds = pc.min_max(types)
    if types.null_count or bounds["min"].as_py() < Type.VOID or bounds["max"].as_py() > max(Type):
        raise FjordError(
            f"the column type has a null, or a number that is none of 0 to {max(Type):d}; "
            "rows of deletions have no type, filter them out before writing"
        )
    has_nothing = pc.and_(values.is_null(), pc.not_equal(types, pa.scalar(Type.VOID, pa.int8())))
    if values.null_count and pc.any(has_nothing).as_py():
        raise FjordError("the column value has a null where the column type is not 0 (void)")
    return types.cast(pa.uint8())


def _job_columns(given: dict[str, pa.Array], rows: int) -> dict[str, pa.Array]:
    """Returns what only jobs have."""
    domains = given.get("domain")
    due = _dates("process_at", given.get("process_at"), rows)
    return {
        "domain": _blank(rows) if domains is None else _filled(domains.cast(pa.binary()), b""),
        "priority": _priorities(given.get("priority"), rows),
        "process_at": _delays(given["delay"]) if "delay" in given else due,
        "expires_at": _dates("expires_at", given.get("expires_at"), rows),
    }


def _priorities(given: pa.Array | None, rows: int) -> pa.Array:
    usual = pa.scalar(jobs.Priority.DEFAULT, pa.uint8())
    if given is None:
        return pa.repeat(usual, rows)
    try:
        return _filled(given.cast(pa.uint8()), usual)
    except pa.ArrowInvalid as error:
        raise FjordError(
            f"the column priority has numbers from 0 to {jobs.PRIORITY_MAX}: {error}"
        ) from error


def _dates(name: str, given: pa.Array | None, rows: int) -> pa.Array:
    """Returns dates in microseconds; 0 for nulls."""
    if given is None:
        return pa.repeat(pa.scalar(0, pa.int64()), rows)
    found = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
    first = pc.min(found).as_py()
    if first is not None and first <= 0:
        raise FjordError(f"the column {name} has a date before 1970; null means that there is none")
    return _filled(found, 0)


def _delays(given: pa.Array) -> pa.Array:
    """Returns seconds as microseconds; 0 for nulls."""
    try:
        seconds = given.cast(pa.float64())
        found = pc.round(pc.multiply(seconds, pa.scalar(float(_SECOND_US)))).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise FjordError(f"the column delay has seconds: {error}") from error
    first = pc.min(found).as_py()
    if first is not None and first < 0:
        raise FjordError("the column delay has a negative number; it has seconds from now on")
    return _filled(found, 0)


def _filled(column: pa.Array, filling: object) -> pa.Array:
    return pc.fill_null(column, filling) if column.null_count else column


def _blank(rows: int) -> pa.Array:
    """Returns a column of empty strings."""
    return pa.repeat(pa.scalar(b"", pa.binary()), rows)
