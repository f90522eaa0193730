"""Ops as rows of a table's history, in Arrow: one batch for each piece of a scan.

A piece has some MiB, a good size for a batch of Spark, however small its ops are.  Seqs ascend in a
batch and from batch to batch.  An op that crosses an end of the range is cut there, so adjoining
ranges have every row once.

Messages returned to a reader of a stream become rows too, with the columns that they have.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from struct import calcsize
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from pyarrow import compute

from fjord import jobs, limits, ops
from fjord.blocks import schema
from fjord.columns import Strings
from fjord.commands import Messages, Scanned
from fjord.errors import Code, FjordError, RefusedError
from fjord.jobs import How, State
from fjord.layouts import JOB_IMAGE, JOB_PLACE
from fjord.ops import Opcode
from fjord.values import Type

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, Any]] = {
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": _MOMENT,
}
SCHEMA: Final = pa.schema([(name, _TYPES[type_]) for name, type_ in schema.COLUMNS.items()])

# The names of ops in the column `op`.  A MOVE is a row that packing has written again, unchanged:
# `row` identifies it; it is a tombstone if it has no type.
NAMES: Final = {opcode: opcode.shown for opcode in Opcode if opcode.shown is not None}
# A walk over the journal replaces such an op by the appends that it stands for.
RESOLVED: Final = Opcode.STREAM_COMMIT

# Which column of an op is which column of a row; the others are not shown.
_SHOWN: Final[dict[str, str]] = {
    **{name: name for name in schema.COLUMNS if name not in ("seq", "ts", "txn", "producer")},
    "process_at_us": "process_at",
    "expires_at_us": "expires_at",
}


_KNOWN: Final = frozenset(Opcode) - {RESOLVED}


def record_batches(
    pieces: Iterable[Scanned], start_seq: int, end_seq: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows from `start_seq` up to before `end_seq`.

    Assumes that `pieces` are those of a scan of this range.

    Raises:
        FjordError: if they do not contain ops, or ops unknown to this version.
    """
    for piece in pieces:
        for batch in _batches(piece):
            yield between(batch, start_seq, end_seq)


def to_ipc(
    scanned: Scanned,
    start_seq: int,
    end_seq: int,
    *,
    columns: Sequence[str] = (),
    key_prefix: bytes = b"",
) -> bytes:
    """Returns the rows of a piece as an Arrow IPC stream, perhaps without a row.

    Args:
        columns: the names of the wanted columns, in order; all if empty.
        key_prefix: only rows whose keys begin with it.

    Raises:
        RefusedError: if there is no such column.
        FjordError: if the piece does not contain ops, or ops unknown to this version.
    """
    wanted = list(columns) or SCHEMA.names
    for name in wanted:
        if name not in schema.COLUMNS:
            text = f"there is no column {name[:40]!r}; there are {', '.join(schema.COLUMNS)}"
            raise RefusedError(Code.BAD_NAME, text)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([SCHEMA.field(name) for name in wanted])) as stream:
        for batch in record_batches([scanned], start_seq, end_seq):
            found = with_prefix(batch, key_prefix)
            if found.num_rows:
                stream.write_batch(found.select(wanted))
    return bytes(sink.getvalue())


def with_prefix(batch: Any, prefix: bytes) -> Any:
    """Returns the rows of a batch, or of a table, whose keys have this prefix."""
    if not prefix:
        return batch
    start = compute.binary_slice(batch["key"], 0, len(prefix))
    return batch.filter(compute.equal(start, pa.scalar(prefix, pa.binary())))


# -- messages -------------------------------------------------------------------------------------

MESSAGE_SCHEMA: Final = pa.schema(
    [SCHEMA.field(name) for name in ("seq", "ts", "key", "type", "value")]
)
# Smaller ops are combined, which copies them; a Python step for each would cost more.
_WRAPPED_ROWS_MIN: Final = 512


def messages_to_arrow(messages: Messages) -> pa.Table:
    """Returns messages as rows: seq, ts, key, type, value, named and typed as in the history.

    A tombstone has neither type nor value.  Large ops are wrapped, not copied.

    Raises:
        FjordError: if these are not messages.
    """
    found = Scanned(
        first_seqs=messages.first_seqs,
        walls_us=messages.walls_us,
        last_seqs=messages.first_seqs,  # commits are not shown
        ops=messages.ops,
        next_seq=0,
        end_seq=0,
    )
    pieces = [found]
    if len(messages.ops) > 1 and messages.rows >= _WRAPPED_ROWS_MIN * len(messages.ops):
        pieces = [_piece_of_one(found, at, op) for at, op in enumerate(messages.ops.views())]
    batches = [batch for piece in pieces for batch in _message_batches(piece)]
    return pa.Table.from_batches(batches, MESSAGE_SCHEMA)


def _piece_of_one(piece: Scanned, number: int, op: memoryview) -> Scanned:
    return replace(
        piece,
        first_seqs=array("Q", [piece.first_seqs[number]]),
        walls_us=array("Q", [piece.walls_us[number]]),
        last_seqs=array("Q", [piece.last_seqs[number]]),
        ops=Strings((0, len(op)), op),
    )


def _message_batches(piece: Scanned) -> list[pa.RecordBatch]:
    """Returns the messages of ops, in order, as one batch; none if there are none."""
    found = Ops.of(piece)
    opcodes = compute.unique(found.opcodes()).to_pylist()
    kinds = [kind for kind in (Opcode.STREAM_APPEND, Opcode.STREAM_MOVE) if kind in opcodes]
    if len(kinds) < len(opcodes):
        raise damaged()
    return _merged([_message_part(found.only(kind), kind) for kind in kinds])


def _message_part(found: Ops, opcode: Opcode) -> pa.RecordBatch:
    spread, columns = read_columns(found, opcode)
    if opcode is Opcode.STREAM_MOVE:
        columns["seq"], columns["ts"] = columns["row"], columns["at_us"]
        _drop_values_of_marks(columns)
    else:
        columns["seq"] = spread.counted(found.first_seqs)
        columns["ts"] = spread.repeat(found.walls_us)
    arrays = [columns[field.name].cast(field.type) for field in MESSAGE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


# -- pieces ---------------------------------------------------------------------------------------


def _batches(piece: Scanned) -> list[pa.RecordBatch]:
    """Returns the rows of a piece, in order, as one batch; none if it has no rows."""
    found = Ops.of(piece)
    opcodes = set(compute.unique(found.opcodes()).to_pylist())
    if unknown := opcodes - _KNOWN:
        raise FjordError(
            f"ops of the kinds {sorted(unknown)} are unknown to this version of Fjord; "
            "use the version that wrote them"
        )
    parts = [_part(found.only(opcode), opcode) for opcode in NAMES if opcode in opcodes]
    return _merged([part for part in parts if part.num_rows])


def _merged(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combines the rows of several batches, in the order of their seqs."""
    if len(parts) < 2:
        return parts
    merged: list[pa.RecordBatch] = (
        pa.Table.from_batches(parts).sort_by("seq").combine_chunks().to_batches()
    )
    return merged


def _part(found: Ops, opcode: Opcode) -> pa.RecordBatch:
    """Returns the rows of ops that all have this opcode."""
    spread, stored = read_columns(found, opcode)
    seqs = spread.counted(found.first_seqs)
    if opcode in OPCODES:
        stored = complete(opcode, stored, seqs)
    columns = {
        "seq": seqs,
        "ts": spread.repeat(found.walls_us),
        "txn": spread.repeat(found.last_seqs),
        "op": pa.repeat(NAMES[opcode], spread.count),
        "row": seqs,
        **{_SHOWN[name]: column for name, column in stored.items() if name in _SHOWN},
    }
    if "expires_at" in columns:
        never = compute.equal(columns["expires_at"], number(0))
        columns["expires_at"] = compute.if_else(never, None, columns["expires_at"])
    is_alias = None
    if opcode.shown == "MOVE":
        is_alias = compute.equal(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
        _drop_values_of_marks(columns)
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(spread.count, field.type)
        for field in SCHEMA
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return batch if is_alias is None else batch.filter(compute.invert(is_alias))


def _drop_values_of_marks(columns: dict[str, Any]) -> None:
    """Clears type and value of rows that are not values, such as tombstones."""
    is_value = compute.less(columns["type"], pa.scalar(ops.ALIAS, pa.uint8()))
    if compute.all(is_value).as_py():
        return
    for name in ("type", "value"):
        columns[name] = compute.if_else(is_value, columns[name], None)


def between(batch: pa.RecordBatch, start_seq: int, end_seq: int) -> pa.RecordBatch:
    """Returns the rows from `start_seq` up to before `end_seq`, without copying them.

    Assumes that seqs ascend.
    """
    seqs = batch["seq"]
    if not len(seqs) or (start_seq <= seqs[0].as_py() and seqs[-1].as_py() < end_seq):
        return batch
    numbers = numbers_of(seqs, "q")
    start, end = bisect_left(numbers, start_seq), bisect_left(numbers, end_seq)
    return batch.slice(start, max(0, end - start))


# -- reading the columns of many ops at once, without a Python step per op or row -----------------
#
# A piece of a scan is a run of ops as stored in the journal (see `fjord.ops` for their layout),
# all aligned to 8 bytes.  So its memory is wrapped as Arrow arrays of bytes, of halves
# (u32) and of words (64 bits), and the rest is arithmetic on columns of positions:
#
#     position of a column in op k     follows from the rows of op k and the column before it
#     position of row i of op k        position[k] + i, where both are columns with one entry a row
#
# Large ops of a batch are often alone in their piece; they are wrapped, not copied.  Positions are
# checked before memory is read through them, since a peer may have sent anything.


_HEADER_WORDS: Final = ops.HEADER.size // 8
_HALF_MASK: Final = 0xFFFFFFFF


@functools.cache
def number(value: int) -> Any:
    """Returns an Arrow number; making one costs more than adding it."""
    return pa.scalar(value, pa.int64())


class PieceMemory:
    """The bytes of a piece, as numbers of every width."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.buffer = pa.py_buffer(data)
        size = self.buffer.size
        self.bytes = pa.Array.from_buffers(pa.uint8(), size, [None, self.buffer])
        self.halves = pa.Array.from_buffers(pa.uint32(), size // 4, [None, self.buffer])
        self.words = pa.Array.from_buffers(pa.int64(), size // 8, [None, self.buffer])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Some ops of a piece; every column has one entry per op."""

    memory: PieceMemory
    starts: Any  # in words
    ends: Any
    first_seqs: Any
    walls_us: Any
    last_seqs: Any

    @classmethod
    def of(cls, piece: Scanned) -> Ops:
        edges = compute.shift_right(pa.array(piece.ops.offsets, pa.int64()), number(3))
        return cls(
            memory=PieceMemory(piece.ops.data),
            starts=edges.slice(0, len(piece.ops)),
            ends=edges.slice(1),
            first_seqs=pa.array(piece.first_seqs, pa.int64()),
            walls_us=pa.array(piece.walls_us, pa.int64()),
            last_seqs=pa.array(piece.last_seqs, pa.int64()),
        )

    def opcodes(self) -> Any:
        """Returns the opcodes; flags, which do not exist yet, make them unknown ones."""
        return compute.bit_wise_and(take(self.memory.words, self.starts), number(_HALF_MASK))

    def only(self, opcode: Opcode) -> Ops:
        """Returns the ops that have this opcode."""
        wanted = compute.equal(self.opcodes(), number(int(opcode)))
        names = [one.name for one in fields(self) if one.name != "memory"]
        return replace(self, **{name: getattr(self, name).filter(wanted) for name in names})

    def rows(self) -> Any:
        """Returns how many rows each op has."""
        word = take(self.memory.words, compute.add(self.starts, number(1)))
        return compute.bit_wise_and(word, number(_HALF_MASK))


class Spread:
    """Expands entries per op to entries per row."""

    def __init__(self, rows: Any) -> None:
        ends = compute.cumulative_sum(rows)
        self.count: int = ends[-1].as_py()
        self._starts = compute.subtract(ends, rows)
        # The lists of a list array represent the ops, so the parent of a row is its op.
        edges = pa.concat_arrays([self._starts, ends.slice(len(ends) - 1)]).cast(pa.int32())
        lists = pa.ListArray.from_arrays(edges, pa.nulls(self.count))
        self._parents = compute.list_parent_indices(lists)
        ones = pa.repeat(number(1), self.count)
        self._numbers = compute.subtract(compute.cumulative_sum(ones), number(1))

    def repeat(self, entries: Any) -> Any:
        """Returns the entry of its op for each row."""
        return entries.take(self._parents)

    def counted(self, starts: Any) -> Any:
        """Returns for each row the entry of its op plus its position in the op."""
        shifts = compute.subtract(starts, self._starts)
        return compute.add(self.repeat(shifts), self._numbers)


class _ColumnPlace(NamedTuple):
    """The position of a column in each op."""

    kind: str
    start: Any  # in words; of the offsets, if the column is one of strings
    data: Any  # in words; of the bytes of strings
    size: Any  # the number of these bytes


def read_columns(found: Ops, opcode: Opcode) -> tuple[Spread, dict[str, Any]]:
    """Returns the columns of ops that all have this opcode, by name, with one entry a row.

    Raises:
        FjordError: if the memory does not hold ops.
    """
    # The sizes in an op are checked before anything is allocated for them.
    places = _places(found, opcode)
    spread = Spread(found.rows())
    return spread, {name: _read(found.memory, place, spread) for name, place in places.items()}


def _read(memory: PieceMemory, place: _ColumnPlace, spread: Spread) -> Any:
    if place.kind == ops.STRINGS:
        return _read_strings(memory, place, spread)
    if place.kind == ops.U64:
        return _read_numbers(memory.words, place.start, spread)
    return _read_numbers(memory.bytes, compute.multiply(place.start, number(8)), spread)


def _places(found: Ops, opcode: Opcode) -> dict[str, _ColumnPlace]:
    rows, halves = found.rows(), found.memory.halves
    places = {}
    position = compute.add(found.starts, number(_HEADER_WORDS))
    for name, kind in opcode.columns:
        data = size = None
        start = position
        if kind == ops.U64:
            position = compute.add(start, rows)
        elif kind == ops.U8:
            position = compute.add(start, _in_words(rows))
        else:
            data = compute.add(
                start, _in_words(compute.multiply(compute.add(rows, number(1)), number(4)))
            )
            last = compute.add(compute.multiply(start, number(2)), rows)
            size = take(halves, last).cast(pa.int64())
            position = compute.add(data, _in_words(size))
        places[name] = _ColumnPlace(kind, start, data, size)
    if not compute.all(compute.equal(position, found.ends)).as_py():
        raise damaged()
    return places


def _in_words(sizes: Any) -> Any:
    return compute.shift_right(compute.add(sizes, number(7)), number(3))


def _read_numbers(numbers: Any, starts: Any, spread: Spread) -> Any:
    if len(starts) == 1:
        return numbers.slice(starts[0].as_py(), spread.count)
    return numbers.take(spread.counted(starts))


def _read_strings(memory: PieceMemory, place: _ColumnPlace, spread: Spread) -> Any:
    try:
        if len(place.start) == 1:
            start, data, size = (column[0].as_py() for column in place[1:])
            offsets = memory.buffer.slice(8 * start, 4 * (spread.count + 1))
            joined = memory.buffer.slice(8 * data, size)
        else:
            offsets = _joined_offsets(memory, place, spread)
            starts = compute.multiply(place.data, number(8))
            joined = _run_together(memory.bytes, starts, place.size)
        strings = pa.Array.from_buffers(pa.binary(), spread.count, [None, offsets, joined])
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged() from error
    return strings


def _joined_offsets(memory: PieceMemory, place: _ColumnPlace, spread: Spread) -> Any:
    """Returns offsets into the joined data: each op's own, shifted by what precedes it."""
    ends = compute.cumulative_sum(place.size)
    own = memory.halves.take(spread.counted(compute.multiply(place.start, number(2))))
    moved = compute.add(own.cast(pa.int64()), spread.repeat(compute.subtract(ends, place.size)))
    return pa.concat_arrays([moved, ends.slice(len(ends) - 1)]).cast(pa.int32()).buffers()[1]


def join(data: Any, starts: Any, sizes: Any) -> Any:
    """Returns strings that are parts of a column of bytes.

    Assumes that they are within it.
    """
    ends = compute.cumulative_sum(sizes)
    edges = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    joined = _run_together(data, starts, sizes)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, edges.buffers()[1], joined])


def _run_together(data: Any, starts: Any, sizes: Any) -> Any:
    runs = pa.ListViewArray.from_arrays(starts.cast(pa.int32()), sizes.cast(pa.int32()), data)
    # Adjacent runs are not copied, and begin somewhere in the buffer.
    flat = runs.flatten()
    return flat.buffers()[1].slice(flat.offset, len(flat))


def take(values: Any, positions: Any) -> Any:
    """Reads at positions that are not checked yet.

    Raises:
        FjordError: if one of them is out of range.
    """
    try:
        return values.take(positions)
    except pa.ArrowIndexError as error:
        raise damaged() from error


def damaged() -> FjordError:
    """Returns the error for invalid bytes."""
    return FjordError("the answer of a scan contains bytes that are not ops; check both versions")


# -- columns of jobs, from their images, places and domains ---------------------------------------
#
# Like everywhere in this package there is no Python step per row, and nothing is read before it is
# checked.  `fjord.layouts` knows the positions of fields.


OPCODES: Final = frozenset(
    opcode for opcode in Opcode if opcode.shown is not None and opcode.name.startswith("JOB_")
)
# The names of ops that have a reason; the first has the number 1.
HOW_NAMES: Final = [how.name for how in How]

_NUMBERS: Final = {"B": pa.uint8(), "Q": pa.int64()}


def complete(opcode: Opcode, stored: Mapping[str, Any], seqs: Any) -> dict[str, Any]:
    """Returns the columns of ops on jobs, with those derived from them.

    Raises:
        FjordError: if these are not ops on jobs.
    """
    found = dict(stored)
    if "image" in stored:
        found = {**read_images(stored["image"]), **stored}
    elif "place" in stored:
        found = {**read_places(stored["place"]), **stored}
    if "key" in found:
        found["domain"] = domains(found["domain"], found["key"])
    if "domain" in stored:  # just pushed
        found["timeouts"] = pa.repeat(pa.scalar(0, pa.uint8()), len(seqs))
    elif opcode is Opcode.JOB_BURY:
        found["type"] = pa.repeat(pa.scalar(int(Type.STRING), pa.uint8()), len(seqs))
        found["value"] = stored["reason"]
    elif "value" not in stored:
        found.pop("type", None)
    if not opcode.shown and "how" in stored:  # each row has its own name
        # 0 becomes the largest number, which has no name either.
        positions = compute.subtract(stored["how"], pa.scalar(1, pa.uint8()))
        found["op"] = take(pa.array(HOW_NAMES), positions)
    if opcode is Opcode.JOB_MOVE:
        found["op"] = compute.if_else(_is_in(State.DEAD, stored), "MOVE_DEAD", "MOVE")
    if opcode is Opcode.JOB_TAKE:
        found["xid"] = seqs
    elif "at" in stored:  # xid of a taken job, row of a dead one
        found["xid"] = compute.if_else(_is_in(State.TAKEN, stored), stored["at"], None)
    return found


def _is_in(state: State, stored: Mapping[str, Any]) -> Any:
    return compute.equal(stored["state"], pa.scalar(int(state), pa.uint8()))


def read_places(places: Any) -> dict[str, Any]:
    """Returns the fields of a column of places, by the column names of ops.

    Raises:
        FjordError: if these are not places.
    """
    if compute.min(compute.binary_length(places)).as_py() < JOB_PLACE.size:
        raise damaged()
    return {name: _numbers(places, name) for name in ("priority", "process_at_us", "row")}


def read_images(images: Any) -> dict[str, Any]:
    """Returns the fields of a column of images, by the column names of ops.

    Raises:
        FjordError: if these are not images.
    """
    lengths = compute.binary_length(images).cast(pa.int64())
    if compute.min(lengths).as_py() < JOB_IMAGE.size:
        raise damaged()
    domain, key = _domains_and_keys(images, lengths)
    return {
        **read_places(images),
        **{name: _numbers(images, name) for name in ("expires_at_us", "timeouts", "type")},
        "domain": domain,
        "key": key,
    }


def _domains_and_keys(images: Any, lengths: Any) -> tuple[Any, Any]:
    sizes = _numbers(images, "domain_bytes").cast(pa.int64())
    if compute.max(sizes).as_py() == 0:  # most jobs have none, and this is five times as fast
        none = pa.repeat(pa.scalar(b"", pa.binary()), len(images))
        return none, compute.binary_slice(images, JOB_IMAGE.size, compute.max(lengths).as_py())
    ends = compute.add(sizes, number(JOB_IMAGE.size))
    if not compute.all(compute.less_equal(ends, lengths)).as_py():
        raise damaged()
    data, starts = _bytes(images), compute.add(_starts(images), number(JOB_IMAGE.size))
    return (
        join(data, starts, sizes),
        join(data, compute.add(starts, sizes), compute.subtract(lengths, ends)),
    )


def domains(given: Any, keys: Any) -> Any:
    """Returns the domain of each job as text: as given, or that of its key, or null."""
    own = compute.ascii_lower(_text(compute.binary_slice(_hosts(keys), 0, limits.DOMAIN_BYTES_MAX)))
    named = compute.if_else(_is_empty(given), own, _text(given))
    return compute.if_else(_is_empty(named), None, named)


def _hosts(keys: Any) -> Any:
    """Returns the host of the first URI in each key, null or empty if there is none."""
    hosts = compute.struct_field(compute.extract_regex(keys, jobs.PLAIN_HOST), "host")
    is_other = compute.is_null(hosts)
    if not compute.any(is_other).as_py():
        return hosts
    others = compute.extract_regex(keys.filter(is_other), jobs.HOST)
    return compute.replace_with_mask(hosts, is_other, compute.struct_field(others, "host"))


def _is_empty(strings: Any) -> Any:
    return compute.equal(compute.binary_length(strings), pa.scalar(0, pa.int32()))


def _text(strings: Any) -> Any:
    """Decodes bytes as text; invalid UTF-8 is replaced."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        given = strings.to_pylist()
        found = [None if one is None else one.decode(errors="replace") for one in given]
        return pa.array(found, pa.string())


# -- fields of strings ----------------------------------------------------------------------------


def _numbers(images: Any, name: str) -> Any:
    """Returns a field of each image or place; an image begins with a place."""
    where = JOB_IMAGE.span(name)
    cut = compute.binary_slice(images, where.start, where.stop)
    if name in JOB_PLACE.codes:
        cut = compute.binary_reverse(cut)
    assert cut.offset == 0  # so they are adjacent
    return pa.Array.from_buffers(
        _NUMBERS[JOB_IMAGE.codes[name]], len(cut), [None, cut.buffers()[2]]
    )


def _starts(strings: Any) -> Any:
    """Returns the offset of each string in the joined bytes."""
    offsets = strings.buffers()[1]
    edges = pa.Array.from_buffers(pa.int32(), strings.offset + len(strings), [None, offsets])
    return edges.slice(strings.offset).cast(pa.int64())


def _bytes(strings: Any) -> Any:
    data = strings.buffers()[2]
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, data])


# -- Arrow columns as memory, without copying -----------------------------------------------------


def numbers_of(column: Any, kind: Literal["B", "q", "Q"]) -> memoryview:
    """Returns the numbers of a column without nulls, in a format that `struct` knows."""
    size = calcsize(kind)
    start = size * column.offset
    return memoryview(column.buffers()[1]).cast("B")[start : start + size * len(column)].cast(kind)


def offsets_of(column: Any) -> memoryview:
    """Returns the offset of each string of a column, and the end."""
    start = 4 * column.offset
    data = memoryview(column.buffers()[1]).cast("B")
    return data[start : start + 4 * (len(column) + 1)].cast("I")


def strings_of(column: Any) -> Strings:
    """Returns a column of strings without nulls; its bytes are not copied."""
    offsets, data = offsets_of(column), column.buffers()[2]
    first, last = offsets[0], offsets[-1]
    if first:
        whole = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
        moved = compute.subtract(whole, pa.scalar(first, pa.int32()))
        offsets = memoryview(moved.buffers()[1]).cast("B")[: 4 * len(offsets)].cast("I")
    return Strings(offsets, b"" if data is None else memoryview(data).cast("B")[first:last])
