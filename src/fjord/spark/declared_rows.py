"""Rows of declared tables as typed Arrow columns, converted by whole columns.

    type   6        6        null     2             6: a row
    value  row 1    row 2             a reason
    uri    'a'      'b'      null     null

Values that are not rows give nulls.  Columns of a fixed size are cut out of all rows by one Arrow
call each; strings and binary are a gather over the bytes of the value column, with computed
offsets.  No Python runs per row, except for whole numbers beyond 128 bits (256 with a sign), and
for large ones of an earlier schema that are converted to smaller types.

Rows of several schemas are decoded one schema after the other, and put back in order.  A column
that a schema lacks is null in its rows.  A column of another type keeps its value where the wanted
type can hold it, and is null elsewhere.

Rows were checked when they were written.  If one is damaged all the same, the error names its seq.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, DecimalType

from fjord import values
from fjord.columns import Strings
from fjord.declared import rows as declared_rows
from fjord.declared.rows import NUMBER
from fjord.declared.schema import Column, Schema
from fjord.errors import FjordError, LocalProtocolError
from fjord.spark.declared import LARGE, SPARK_TYPES, TIME_UNITS_US
from fjord.spark.options import SourceOptions, Typed

# The columns that are needed to make others of them; the last one is for what is said of damage.
NEEDED: Final = ("type", "value", "seq")
# As which numbers columns are stored.
_STORED_WHOLE: Final[dict[str, Any]] = {
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    "oid": pa.uint64(),
}
_STORED_FLOATS: Final[dict[str, Any]] = {"float32": pa.float32(), "float64": pa.float64()}
_STORED: Final[dict[str, Any]] = {
    **_STORED_WHOLE,
    **_STORED_FLOATS,
    "boolean": pa.uint8(),
    **dict.fromkeys(TIME_UNITS_US, pa.int64()),
}
_DECIMAL_SIZE: Final = 32


def shown(batch: pa.RecordBatch, wanted: SourceOptions) -> pa.RecordBatch:
    """Returns the wanted columns in order, decoding declared ones from values.

    Raises:
        FjordError: if a row is damaged, or of a schema that is not known here.
    """
    if wanted.typed.columns:
        batch = with_declared(batch, wanted.typed, wanted.table)
    names = list(wanted.columns)
    return batch if batch.schema.names == names else batch.select(names)


def with_declared(batch: pa.RecordBatch, typed: Typed, table: str) -> pa.RecordBatch:
    """Returns a batch with the declared columns after the others."""
    fields = [pa.field(one.name, ARROW[one.type]) for one in typed.columns]
    arrays = [*batch.columns, *decode(batch, typed, table)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *fields]))


def decode(batch: pa.RecordBatch, typed: Typed, table: str) -> list[pa.Array]:
    """Returns the wanted columns of a batch that has `type` and `value`, and perhaps `seq`.

    Raises:
        FjordError: if a row is damaged, or of a schema that is not known here.
    """
    found = batch["value"]
    found = found if pa.types.is_binary(found.type) else found.cast(pa.binary())
    is_row = pc.equal(batch["type"], pa.scalar(values.ROW, batch["type"].type))
    is_row = pc.fill_null(pc.and_(is_row, found.is_valid()), False)
    seqs = batch["seq"] if "seq" in batch.schema.names else None
    count = pc.sum(is_row).as_py() or 0
    if not count:
        return [pa.nulls(batch.num_rows, ARROW[one.type]) for one in typed.columns]
    if count == batch.num_rows:
        return _decoded(_Rows(found, seqs, table), typed)
    rows = _Rows(found, seqs, table).take(pc.indices_nonzero(is_row))
    # Where each row of the batch is among those that are rows; nowhere, for the others.
    nth = pc.subtract(pc.cumulative_sum(is_row.cast(pa.int64())), 1)
    spread = pc.if_else(is_row, nth, pa.scalar(None, pa.int64()))
    return [column.take(spread) for column in _decoded(rows, typed)]


class _Rows(NamedTuple):
    """Some rows, all of them valid."""

    data: pa.Array
    seqs: pa.Array | None
    table: str

    def take(self, places: pa.Array) -> _Rows:
        seqs = None if self.seqs is None else self.seqs.take(places)
        return _Rows(self.data.take(places), seqs, self.table)

    def numbers(self, type_: Any, start: int) -> pa.Array:
        """Returns the numbers at a position of each row."""
        cut = pc.binary_slice(self.data, start, start + type_.bit_width // 8)
        return pa.Array.from_buffers(type_, len(cut), [None, cut.buffers()[2]])

    def refused(self, at: int, problem: str) -> FjordError:
        seq = None if self.seqs is None else self.seqs[at].as_py()
        which = "a row" if seq is None else f"the row with seq {seq}"
        return FjordError(f"{which} of table {self.table} cannot be read: {problem}")


def _decoded(rows: _Rows, typed: Typed) -> list[pa.Array]:
    lengths = pc.binary_length(rows.data)
    if pc.min(lengths).as_py() < NUMBER.size:
        at = pc.index(pc.less(lengths, NUMBER.size), value=True).as_py()
        raise rows.refused(at, "a row is too short")
    numbers = rows.numbers(pa.uint16(), 0)
    there = pc.unique(numbers).to_pylist()
    known = {schema.number: schema for schema in typed.schemas}
    for number in there:
        if number not in known:
            at = pc.index(numbers, value=pa.scalar(number, pa.uint16())).as_py()
            raise rows.refused(at, _unknown(number, known))
    if len(there) == 1:
        return _Part(rows, known[there[0]]).columns(typed.columns)
    places = [
        pc.indices_nonzero(pc.equal(numbers, pa.scalar(number, pa.uint16()))) for number in there
    ]
    parts = [
        _Part(rows.take(place), known[number]).columns(typed.columns)
        for number, place in zip(there, places, strict=True)
    ]
    # To sort a permutation is to invert it.
    order = pc.sort_indices(pa.concat_arrays(places))
    return [pa.concat_arrays(arrays).take(order) for arrays in zip(*parts, strict=True)]


def _unknown(number: int, known: dict[int, Schema]) -> str:
    return (
        f"it has schema {number}, and only {', '.join(map(str, sorted(known)))} are known here. "
        "If the columns of the table were changed, create the frame again; rows of any schema are "
        "read with the option columns=plain"
    )


class _Part:
    """Rows of one schema."""

    def __init__(self, rows: _Rows, schema: Schema) -> None:
        self._rows = rows
        self._schema = schema
        self._layout = declared_rows.of(schema)
        lengths = pc.binary_length(rows.data).cast(pa.int64())
        self._require(pc.greater_equal(lengths, self._layout.size))
        self._nulls = [
            rows.numbers(pa.uint8(), NUMBER.size + at) for at in range(self._layout.null_bytes)
        ]
        # By the places of columns that have no size; `ends` are u32.
        self._ends = {
            place: rows.numbers(pa.uint32(), self._layout.ends_place + 4 * nth).cast(pa.int64())
            for nth, place in enumerate(self._layout.loose)
        }
        self._check(lengths)

    def columns(self, wanted: Sequence[Column]) -> list[pa.Array]:
        """Returns some columns with their wanted types."""
        own = {one.name: (place, one) for place, one in enumerate(self._schema.columns)}
        found = []
        for column in wanted:
            if column.name not in own:
                found.append(pa.nulls(len(self._rows.data), ARROW[column.type]))
                continue
            place, stored = own[column.name]
            array = self._without_nulls(place, self._array(place, stored))
            found.append(fitted(array, stored.type, column.type))
        return found

    # -- checks -----------------------------------------------------------------------------------

    def _check(self, lengths: pa.Array) -> None:
        count, size = len(self._schema.columns), self._layout.null_bytes
        # Bits that no row has among its nulls: of required columns, and of none.
        required = sum(1 << at for at, one in enumerate(self._schema.columns) if one.required)
        forbidden = (required | (1 << 8 * size) - (1 << count)).to_bytes(size, "little")
        for byte, bits in zip(self._nulls, forbidden, strict=True):
            self._require(_has_none(byte, bits))
        before: Any = pa.scalar(0, pa.int64())
        for ends in self._ends.values():
            self._require(pc.less_equal(before, ends))
            before = ends
        self._require(pc.equal(pc.add(before, self._layout.size), lengths))

    def _require(self, is_fine: Any) -> None:
        if not pc.all(is_fine).as_py():
            raise self._damaged()

    def _damaged(self) -> FjordError:
        """Returns the problem of the first damaged row."""
        reader = declared_rows.of(self._schema)
        for at, row in enumerate(self._rows.data):
            problem = reader.problem(Strings.of([row.as_py()]))
            if problem is not None:
                return self._rows.refused(at, problem)
        raise AssertionError("one of them is damaged")

    # -- columns ----------------------------------------------------------------------------------

    def _array(self, place: int, column: Column) -> pa.Array:
        """Returns a column with its own type; anything where there is no value."""
        if not column.kind.is_fixed:
            return self._strings(place, column)
        at = self._layout.places[place]
        if column.type not in _STORED:
            size = struct.calcsize("<" + column.kind.code)
            data = pc.binary_slice(self._rows.data, at, at + size)
            return _digits(data, size, signed=column.type.startswith("int"))
        found = self._rows.numbers(_STORED[column.type], at)
        if column.type == "boolean":
            return pc.not_equal(found, pa.scalar(0, pa.uint8()))
        if column.type in TIME_UNITS_US:
            assert column.kind.bounds is not None
            low, high = column.kind.bounds
            self._require(pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high)))
            found = pc.multiply(found, TIME_UNITS_US[column.type])
            return found.view(ARROW[column.type])
        return found

    def _without_nulls(self, place: int, array: pa.Array) -> pa.Array:
        """Returns a column with nulls where rows have no value."""
        byte, bit = self._nulls[place // 8], 1 << place % 8
        if pc.max(byte).as_py() == 0:
            return array
        return pc.if_else(_has_none(byte, bit), array, pa.scalar(None, array.type))

    def _strings(self, place: int, column: Column) -> pa.Array:
        """Returns a column of strings or binary.

        The bytes of all rows are one buffer.  With offsets for the beginning and the end of each
        string, it becomes an array that has the strings, and everything else between them.
        """
        nth = self._layout.loose.index(place)
        stops = self._ends[place]
        starts: Any = pa.scalar(0, pa.int64())
        if nth:
            starts = self._ends[self._layout.loose[nth - 1]]
        data, count = self._rows.data, len(self._rows.data)
        _, offsets, buffer = data.buffers()
        begins = pa.Array.from_buffers(pa.int32(), count, [None, offsets], offset=data.offset)
        begins = pc.add(begins.cast(pa.int64()), self._layout.size)
        pairs = pc.bit_wise_or(
            pc.shift_left(pc.add(begins, stops), pa.scalar(32, pa.int64())), pc.add(begins, starts)
        )
        mixed = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pairs.buffers()[1], buffer]
        )
        found = mixed.take(_even(count))
        if column.type == "binary":
            return found
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise self._damaged() from error


def _has_none(byte: pa.Array, bits: int) -> pa.Array:
    found = pc.bit_wise_and(byte, pa.scalar(bits, pa.uint8()))
    return pc.equal(found, pa.scalar(0, pa.uint8()))


def _even(count: int) -> pa.Array:
    """Returns 0, 2, 4 and so on."""
    twos = pa.repeat(pa.scalar(2, pa.int64()), count)
    return pc.subtract(pc.cumulative_sum(twos), 2)


def _digits(data: pa.Array, size: int, *, signed: bool) -> pa.Array:
    """Returns large numbers as text.

    Those that fit into 256 bits with a sign become Arrow decimals, which Arrow can print.
    """
    if size > _DECIMAL_SIZE or (size == _DECIMAL_SIZE and not signed):
        numbers = [int.from_bytes(one, "little", signed=signed) for one in data.to_pylist()]
        return pa.array(map(str, numbers), pa.string(), size=len(data))
    rest = _DECIMAL_SIZE - size
    if rest:
        last = pc.binary_slice(data, size - 1, size)
        is_negative = pc.greater_equal(last, b"\x80") if signed else False
        more = pc.if_else(is_negative, b"\xff" * rest, bytes(rest))
        data = pc.binary_join_element_wise(data, more, b"")
    # More digits than a decimal should have are printed, too.
    decimals = pa.Array.from_buffers(pa.decimal256(76, 0), len(data), [None, data.buffers()[2]])
    return decimals.cast(pa.string())


# -- columns of one declared type as columns of another one, in Arrow: pure -----------------------
#
#     whole numbers -> whole numbers      if the new type has the number
#     numbers       -> float32, float64   the nearest there is
#     times         -> times
#     string        -> binary             its UTF-8
#     else                                null
#
# Large whole numbers, of 128 bits and more, are text here.


# What a column of a type is for Spark, which has no unsigned numbers.
ARROW: Final[dict[str, Any]] = {
    name: to_arrow_type(type_, timezone="UTC") for name, type_ in SPARK_TYPES.items()
}


def fitted(array: pa.Array, was: str, now: str) -> pa.Array:
    """Converts values to another type; null where they do not fit.

    Args:
        array: with the numbers as they are stored, unsigned ones too.
        was: the declared type that they have.
        now: the declared type that they are to have.
    """
    target = ARROW[now]
    if _is_whole(was) and _is_whole(now):
        return _whole_within(array, was, now)
    if was in LARGE and now in _STORED_FLOATS:
        array, was = array.cast(pa.float64()), "float64"
    if was in {**_STORED_WHOLE, **_STORED_FLOATS} and now in _STORED_FLOATS:
        return array.cast(target, safe=False)
    are_times = was in TIME_UNITS_US and now in TIME_UNITS_US
    if was == now or are_times or (was, now) == ("string", "binary"):
        return array.cast(target)
    return pa.nulls(len(array), target)


def _is_whole(name: str) -> bool:
    return name in _STORED_WHOLE or name in LARGE


def bounds(name: str) -> tuple[int, int]:
    """Returns the smallest and the largest number of a type."""
    bits = 64 if name == "oid" else int(name.partition("int")[2])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name[0] == "i" else (0, 2**bits - 1)


def _whole_within(array: pa.Array, was: str, now: str) -> pa.Array:
    """Converts whole numbers to another type that can hold them."""
    target = ARROW[now]
    (least, most), (lowest, highest) = bounds(was), bounds(now)
    low, high = max(least, lowest), min(most, highest)
    if (low, high) == (least, most):
        return array.cast(target)
    if was in _STORED_WHOLE:
        fits = pc.and_(
            pc.greater_equal(array, pa.scalar(low, array.type)),
            pc.less_equal(array, pa.scalar(high, array.type)),
        )
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(target)
    numbers = [None if text is None else int(text) for text in array.to_pylist()]
    fitting = [None if one is None or not low <= one <= high else one for one in numbers]
    if now in _STORED_WHOLE:
        return pa.array(fitting, pa.int64() if lowest else pa.uint64()).cast(target)
    return pa.array([None if one is None else str(one) for one in fitting], target)


# -- rows of Spark as rows of a declared table: Arrow columns in, rows as bytes out ---------------
#
# The format is that of `fjord.declared.rows`, made by Arrow: each column becomes its bytes in each
# row, and one call joins those of all columns.  No Python runs per row, except for whole numbers of
# 128 bits and more.
#
# Names and types of columns are checked before the first row comes.  Errors of single rows, such as
# a number that is too large or a null where a value is required, name the row.


WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_ESCAPED: Final = ((b"%", b"%25"), (b"|", b"%7C"))
_NOTHING: Final = pa.scalar(b"", pa.binary())
_SHOWN_MAX: Final = 200  # characters of a row in an error


def allowed(type_: str) -> tuple[str, ...]:
    """Returns the Spark types that a column of a declared type may have."""
    if type_ in _STORED_FLOATS:
        return ("float", "double", *WHOLE)
    if type_ in TIME_UNITS_US:
        return ("timestamp",)
    if not _is_whole(type_):
        return (type_,)
    return (*WHOLE, "decimal(_,0)", *(["string"] if type_ in LARGE else []))


def problem(schema: Schema, fields: Mapping[str, DataType]) -> str | None:
    """Returns why columns of these types do not fit a schema, or None."""
    for column in schema.columns:
        found = fields.get(column.name)
        if found is None:
            if column.required:
                return f"the column {column.name} is missing, and it is required"
            continue
        whole = isinstance(found, DecimalType) and found.scale == 0
        word = "decimal(_,0)" if whole else found.simpleString().partition(" ")[0]
        if word not in allowed(column.type):
            return (
                f"the column {column.name} is a {found.simpleString()}, and may be "
                f"{', '.join(allowed(column.type))}, since it is declared as {column.type}; "
                "cast it before writing"
            )
    return None


def encode(schema: Schema, given: Mapping[str, pa.Array], count: int) -> tuple[pa.Array, Any]:
    """Returns rows as bytes, and their keys if the schema has key columns, else None.

    Assumes that `problem` found none in the columns.

    Raises:
        FjordError: if a row does not fit the schema.
    """
    columns = {
        one.name: given[one.name] if one.name in given else pa.nulls(count)
        for one in schema.columns
    }
    try:
        stored = {one.name: _stored(one, columns[one.name]) for one in schema.columns}
    except (ValueError, OverflowError) as error:  # Arrow's own is a ValueError
        raise _explained(schema, columns, count, error) from error
    fixed = [as_bytes(stored[one.name]) for one in schema.columns if one.kind.is_fixed]
    loose = [stored[one.name] for one in schema.columns if not one.kind.is_fixed]
    head = [pa.scalar(NUMBER.pack(schema.number), pa.binary()), *_nulls(schema, columns)]
    rows = pc.binary_join_element_wise(*head, *fixed, *_ends(loose), *loose, _NOTHING)
    return rows, _keys(schema, stored) if schema.key else None


def _stored(column: Column, values: pa.Array) -> pa.Array:
    """Returns a column as it is stored: numbers, or bytes; anything where there is no value.

    Raises:
        ValueError, OverflowError: if a value does not fit its column.
    """
    if values.null_count and column.required:
        raise ValueError
    if column.type in _STORED_WHOLE:
        return filled(values.cast(_STORED_WHOLE[column.type]), 0)
    if column.type in _STORED_FLOATS:
        found = values.cast(_STORED_FLOATS[column.type], safe=False)
        if values.type == pa.float64():
            is_overflown = pc.and_(pc.is_inf(found), pc.is_finite(values))
            if pc.any(is_overflown).as_py():
                raise ValueError
        return filled(found, 0.0)
    if column.type in TIME_UNITS_US:
        return _moments(column, values)
    if column.type == "boolean":
        return filled(values.cast(pa.bool_()), False)
    if not column.kind.is_fixed:
        return filled(values.cast(pa.binary()), b"")
    numbers = [0 if one is None else whole(one) for one in values.to_pylist()]
    return pa.array(column.kind.store(numbers), pa.binary())


def _moments(column: Column, values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    given, unit = values.cast(pa.int64()), TIME_UNITS_US[column.type]
    found = pc.divide(given, unit)
    is_above = pc.greater(pc.multiply(found, unit), given)  # division goes to zero, not down
    found = filled(pc.subtract(found, is_above.cast(pa.int64())), 0)
    assert column.kind.bounds is not None
    low, high = column.kind.bounds
    if not pc.all(pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high))).as_py():
        raise ValueError
    return found


def whole(given: Any) -> int:
    """Returns a number from Spark, or its digits, as a Python number.

    Raises:
        ValueError: if it is not a number.
    """
    if isinstance(given, str) and not (given.isascii() and given.removeprefix("-").isdigit()):
        raise ValueError(f"{given!r} has not only digits")
    return int(given)


def as_bytes(stored: pa.Array) -> pa.Array:
    """Returns numbers as their bytes; nulls stay nulls."""
    if pa.types.is_binary(stored.type):
        return stored
    if pa.types.is_boolean(stored.type):
        stored = stored.cast(pa.uint8())
    return stored.view(pa.binary(stored.type.bit_width // 8)).cast(pa.binary())


def _nulls(schema: Schema, columns: Mapping[str, pa.Array]) -> list[Any]:
    """Returns the null bits of rows."""
    found = []
    for start in range(0, len(schema.columns), 8):
        byte: Any = pa.scalar(0, pa.uint8())
        for place, column in enumerate(schema.columns[start : start + 8]):
            if columns[column.name].null_count:
                is_null = columns[column.name].is_null().cast(pa.uint8())
                byte = pc.bit_wise_or(byte, pc.multiply(is_null, pa.scalar(1 << place, pa.uint8())))
        is_column = isinstance(byte, pa.Array)
        found.append(as_bytes(byte) if is_column else pa.scalar(b"\0", pa.binary()))
    return found


def _ends(loose: list[pa.Array]) -> list[pa.Array]:
    found: list[pa.Array] = []
    before: Any = pa.scalar(0, pa.int64())
    for column in loose:
        before = pc.add(before, pc.binary_length(column).cast(pa.int64()))
        found.append(as_bytes(before.cast(pa.uint32())))
    return found


def _keys(schema: Schema, stored: Mapping[str, pa.Array]) -> pa.Array:
    kinds = {one.name: one.kind for one in schema.columns}
    parts = []
    for name in schema.key:
        part = stored[name]
        if kinds[name].is_fixed and pa.types.is_binary(part.type):  # a large number
            part = pa.array([str(one) for one in kinds[name].load(part.to_pylist())], pa.string())
        parts.append(part.cast(pa.string()) if not pa.types.is_binary(part.type) else part)
    parts = [part.cast(pa.binary()) for part in parts]
    if len(parts) == 1:
        return parts[0]
    for plain, escape in _ESCAPED:
        parts = [pc.replace_substring(one, pattern=plain, replacement=escape) for one in parts]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"|", pa.binary()))


def filled(column: pa.Array, filling: Any) -> pa.Array:
    """Returns a column with nulls filled."""
    return pc.fill_null(column, filling) if column.null_count else column


# -- errors ---------------------------------------------------------------------------------------


def _explained(
    schema: Schema, columns: Mapping[str, pa.Array], count: int, error: Exception
) -> FjordError:
    """Returns the error of the first invalid row."""
    reader = declared_rows.of(schema)
    for at in range(count):
        row = {one.name: _python(one, columns[one.name][at]) for one in schema.columns}
        try:
            reader.encode([row])
        except LocalProtocolError as found:
            shown = repr(row)
            shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
            return FjordError(f"{found.text}; in the row {shown}. Nothing of the batch was written")
    return FjordError(f"rows cannot be made of these columns: {error}")


def _python(column: Column, value: Any) -> Any:
    """Returns a value as `fjord.declared` expects it; an invalid one as something else."""
    try:
        found = value.as_py()
    except (ValueError, OverflowError):  # Python has no year 10000
        return f"{value.value} microseconds since 1970"
    is_number = "int" in column.type or column.type == "oid"
    try:
        return whole(found) if found is not None and is_number else found
    except ValueError:
        return found
