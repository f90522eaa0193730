"""Spark rows as rows of a table: Arrow of any types in, Arrow of fixed types out.

Columns are matched by name, and checked before the first row comes: `plan` refuses a schema that
does not fit its table.  `encode` refuses invalid rows, mostly nulls.  A null value is a void, as
None is elsewhere.

A table with declared columns takes those, and the other columns of its kind; or rows as in its
history, with `type` and `value`.

No Python object is made per row: each column takes one or two Arrow calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from fjord import jobs, kinds, limits, streams
from fjord.declared.schema import Schema
from fjord.errors import FjordError
from fjord.spark import declared_rows
from fjord.spark.declared import NO_COLUMNS
from fjord.spark.declared_rows import WHOLE, as_bytes, filled
from fjord.values import ROW, Type

_TEXT: Final = ("binary", "string")
_REAL: Final = ("float", "double")
_VALUE: Final = (*_TEXT, *WHOLE, *_REAL, "boolean")
# The Spark types that a column may have, by its name, for each kind of table.
ALLOWED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    kinds.Kind.STREAM: {"value": _VALUE, "key": _TEXT, "type": ("tinyint",)},
    kinds.Kind.JOBS: {
        "key": _TEXT,
        "value": _VALUE,
        "type": ("tinyint",),
        "priority": WHOLE,
        "process_at": ("timestamp",),
        "delay": (*WHOLE, *_REAL, "decimal"),
        "expires_at": ("timestamp",),
        "inserted_at": ("timestamp",),
        "domain": _TEXT,
    },
    kinds.Kind.KV: {"key": _TEXT, "value": _VALUE, "type": ("tinyint",)},
}
_TYPES: Final[dict[str, Type]] = {
    "binary": Type.BUFFER,
    "string": Type.STRING,
    **dict.fromkeys(WHOLE, Type.INTEGER),
    **dict.fromkeys(_REAL, Type.FLOAT),
    "boolean": Type.BOOLEAN,
}
# As which numbers values are stored; others are bytes.
_STORED: Final = {Type.INTEGER: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOLEAN: pa.bool_()}
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a table requires of rows."""

    kind: str  # stream, jobs or kv
    needs_key: bool  # a key has at least one byte
    rows_max: int  # of a chunk
    schema: Schema = NO_COLUMNS  # what is declared

    @classmethod
    def of(cls, kind: str, settings: bytes = b"") -> Target:
        """Returns the requirements of a table with these settings."""
        found = kinds.settings_of(kind, settings)
        is_log = isinstance(found, streams.Settings) and found.mode is streams.Mode.LOG
        is_merged = not isinstance(found, jobs.Settings) or found.merge
        return cls(
            kind=kind,
            needs_key=is_merged and not is_log,
            rows_max=limits.BATCH_ROWS_MAX if is_log else limits.SLICE_ROWS_MAX,
            schema=found.declared if found else NO_COLUMNS,
        )

    @property
    def needed(self) -> tuple[str, ...]:
        """The required columns."""
        key = ("key",) if self.needs_key else ()
        return key if self.kind == kinds.Kind.JOBS else (*key, "value")

    def is_typed(self, names: Sequence[str]) -> bool:
        """Says whether rows with these columns are made of declared ones."""
        return bool(self.schema.columns) and "value" not in names

    @property
    def beside(self) -> dict[str, tuple[str, ...]]:
        """The columns allowed in addition to declared ones, with their types."""
        others = dict(ALLOWED[self.kind])
        for name in ("type", "value", *(["key"] if self.schema.key else [])):
            others.pop(name)
        return others


def plan(target: Target, schema: StructType) -> Columns:
    """Returns the mapping of a schema's rows to a table's.

    Raises:
        FjordError: if a column is unknown, missing, duplicated, or of a wrong type.
    """
    names = schema.fieldNames()
    is_typed = target.is_typed(names)
    allowed = target.beside if is_typed else ALLOWED[target.kind]
    known = (*target.schema.names, *allowed) if is_typed else tuple(allowed)
    table = "this table" if is_typed else f"a {target.kind} table"
    all_of_them = f"{table} takes the columns {', '.join(known)}"
    # The names of types without their digits or collation.
    words = {one.name: re.split(r"[ (]", one.dataType.simpleString())[0] for one in schema.fields}
    for field in schema.fields:
        name = field.name
        if name not in known:
            raise FjordError(
                f"there is no column {name!r}: {all_of_them}; "
                "choose and rename columns with select before writing"
            )
        if names.count(name) > 1:
            raise FjordError(f"the column {name} occurs {names.count(name)} times; keep one")
        if name in allowed and words[name] not in allowed[name]:
            raise FjordError(
                f"the column {name} is a {field.dataType.simpleString()}, and may be "
                f"{', '.join(allowed[name])}; cast it before writing"
            )
    if is_typed:
        _check_declared(target, schema)
    else:
        for name in target.needed:
            if name not in names:
                raise FjordError(
                    f"the column {name} is missing: {all_of_them}; {name} is needed here"
                )
    _check_pairs(words)
    if target.schema.columns and not is_typed and "type" not in names:
        raise FjordError(
            f"this table has declared columns, {_listed(target.schema)}: write those instead of "
            "value; or rows of its history as they are, with the columns type and value"
        )
    return Columns(target=target, names=tuple(names), words=tuple(words[name] for name in names))


def _check_declared(target: Target, schema: StructType) -> None:
    """Checks that a DataFrame fits the declared columns."""
    found = declared_rows.problem(
        target.schema, {field.name: field.dataType for field in schema.fields}
    )
    if found is not None:
        raise FjordError(f"{found}. This table has the columns {_listed(target.schema)}")
    if target.needs_key and not target.schema.key and "key" not in schema.fieldNames():
        raise FjordError("the column key is missing: no declared column is the key of this table")


def _listed(schema: Schema) -> str:
    return ", ".join(
        f"{one.name} {one.type}{' (required)' if one.required else ''}" for one in schema.columns
    )


def _check_pairs(words: dict[str, str]) -> None:
    if "type" in words and words.get("value") != "binary":
        raise FjordError(
            "the column type says what the bytes in the column value mean: it needs a column "
            "value that is binary; leave type out, and it follows from the values"
        )
    if "delay" in words and "process_at" in words:
        raise FjordError("a job has either delay or process_at; omit one of the columns")


# -- encoding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The checked mapping of one schema's rows to a table, the same in every task."""

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
            FjordError: if a row has a null where none is allowed, or an invalid value.
        """
        given = dict(zip(self.names, batch.columns, strict=True))
        rows = batch.num_rows
        if self.target.is_typed(self.names):
            found = self._typed(given, rows)
        else:
            types, data = self._values(given, rows)
            found = {"key": self._keys(given.get("key"), rows), "type": types, "value": data}
        if self.target.kind == kinds.Kind.JOBS:
            found |= _job_columns(given, rows)
        return pa.RecordBatch.from_pydict(found)

    def _typed(self, given: dict[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        """Returns keys, types and values of rows that have declared columns."""
        data, keys = declared_rows.encode(self.target.schema, given, rows)
        types = pa.repeat(pa.scalar(ROW, pa.uint8()), rows)
        found = self._keys(given.get("key") if keys is None else keys, rows)
        return {"key": found, "type": types, "value": data}

    def _keys(self, keys: pa.Array | None, rows: int) -> pa.Array:
        if keys is None:
            return _blank(rows)
        found = filled(keys.cast(pa.binary()), b"")
        if self.target.needs_key and pc.min(pc.binary_length(found)).as_py() == 0:
            raise FjordError(
                f"{self._key_shown} a null, or an empty key; each row of this table needs one. "
                "Filter such rows out before writing"
            )
        return found

    @property
    def _key_shown(self) -> str:
        key = self.target.schema.key
        if key and self.target.is_typed(self.names):
            return f"the key, of {', '.join(key)}, has"
        return "the column key has"

    def _values(self, given: dict[str, pa.Array], rows: int) -> tuple[pa.Array, pa.Array]:
        """Returns the types of values, and their bytes."""
        column = given.get("value")
        if column is None:
            return pa.repeat(pa.scalar(Type.VOID, pa.uint8()), rows), _blank(rows)
        word = self.words[self.names.index("value")]
        stored = column.cast(_STORED.get(_TYPES[word], pa.binary()))
        data = filled(as_bytes(stored), b"")
        if "type" in given:
            return _given_types(given["type"], column, self.target.schema), data
        type_ = pa.scalar(_TYPES[word], pa.uint8())
        if not column.null_count:
            return pa.repeat(type_, rows), data
        return pc.if_else(column.is_valid(), type_, pa.scalar(Type.VOID, pa.uint8())), data


def _given_types(types: pa.Array, values: pa.Array, schema: Schema) -> pa.Array:
    bounds = pc.min_max(types)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if schema.columns:
        if types.null_count or values.null_count or not low == high == ROW:
            raise FjordError(
                f"this table has declared columns, and takes only rows of them, whose type is {ROW}"
                ": the column type has another number, or value a null; filter out such rows"
            )
        return types.cast(pa.uint8())
    if high == ROW:
        raise FjordError(
            f"the column type has {ROW}, a row of declared columns, and this table has none: "
            "declare columns, or write another type"
        )
    if types.null_count or low < Type.VOID or high > max(Type):
        raise FjordError(
            f"the column type has a null, or a number outside of 0 to {max(Type):d}; "
            "deletions have no type, filter them out before writing"
        )
    has_nothing = pc.and_(values.is_null(), pc.not_equal(types, pa.scalar(Type.VOID, pa.int8())))
    if values.null_count and pc.any(has_nothing).as_py():
        raise FjordError("the column value has a null where the column type is not 0 (void)")
    return types.cast(pa.uint8())


def _job_columns(given: dict[str, pa.Array], rows: int) -> dict[str, pa.Array]:
    """Returns the columns of jobs."""
    domains = given.get("domain")
    due = _dates("process_at", given.get("process_at"), rows)
    return {
        "domain": _blank(rows) if domains is None else filled(domains.cast(pa.binary()), b""),
        "priority": _priorities(given.get("priority"), rows),
        "process_at": _delays(given["delay"]) if "delay" in given else due,
        "expires_at": _dates("expires_at", given.get("expires_at"), rows),
        "inserted_at": _dates("inserted_at", given.get("inserted_at"), rows),
    }


def _priorities(given: pa.Array | None, rows: int) -> pa.Array:
    usual = pa.scalar(jobs.Priority.DEFAULT, pa.uint8())
    if given is None:
        return pa.repeat(usual, rows)
    try:
        return filled(given.cast(pa.uint8()), usual)
    except pa.ArrowInvalid as error:
        raise FjordError(
            f"the column priority must have numbers from 0 to {jobs.PRIORITY_MAX}: {error}"
        ) from error


def _dates(name: str, given: pa.Array | None, rows: int) -> pa.Array:
    """Returns dates in microseconds; 0 for nulls."""
    if given is None:
        return pa.repeat(pa.scalar(0, pa.int64()), rows)
    found = given.cast(pa.timestamp("us", given.type.tz)).cast(pa.int64())
    first = pc.min(found).as_py()
    if first is not None and first <= 0:
        raise FjordError(f"the column {name} has a date before 1970; use null for none")
    return filled(found, 0)


def _delays(given: pa.Array) -> pa.Array:
    """Returns seconds as microseconds; 0 for nulls."""
    try:
        seconds = given.cast(pa.float64())
        found = pc.round(pc.multiply(seconds, pa.scalar(float(_SECOND_US)))).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise FjordError(f"the column delay must have seconds: {error}") from error
    first = pc.min(found).as_py()
    if first is not None and first < 0:
        raise FjordError("the column delay has a negative number; it must have seconds from now")
    return filled(found, 0)


def _blank(rows: int) -> pa.Array:
    """Returns a column of empty strings."""
    return pa.repeat(pa.scalar(b"", pa.binary()), rows)
