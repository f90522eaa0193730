"""Reading the columns of many ops at once, without a step in Python for each op or row.

A piece of a scan is a run of ops as they rest in the journal (see `fjord.ops` for their layout),
and all in it is aligned to 8 bytes.  So its memory is wrapped as Arrow arrays of bytes, of halves
(u32) and of words (64 bits), and the rest is arithmetic on columns of positions:

    position of a column in op k     follows from the rows of op k and the column before it
    position of row i of op k        position[k] + i, where both are columns with one entry a row

The ops of a batch of large ones are often alone in their piece; they are wrapped, not copied.
Positions are checked before memory is read through them, since a peer may have sent anything.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from fjord import ops
from fjord.commands import Scanned
from fjord.errors import FjordError
from fjord.ops import Opcode

_HEADER_WORDS: Final = ops.HEADER.size // 8
_HALF_MASK: Final = 0xFFFFFFFF


@functools.cache
def number(value: int) -> Any:
    """Returns a number for Arrow to count with; making one costs more than adding it."""
    return pa.scalar(value, pa.int64())


class Memory:
    """Bytes of a piece, as numbers of every width."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.buffer = pa.py_buffer(data)
        size = self.buffer.size
        self.bytes = pa.Array.from_buffers(pa.uint8(), size, [None, self.buffer])
        self.halves = pa.Array.from_buffers(pa.uint32(), size // 4, [None, self.buffer])
        self.words = pa.Array.from_buffers(pa.int64(), size // 8, [None, self.buffer])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Some ops of a piece; every column has one entry an op."""

    memory: Memory
    starts: Any  # in words
    ends: Any
    first_seqs: Any
    walls_us: Any
    last_seqs: Any

    @classmethod
    def of(cls, piece: Scanned) -> Ops:
        edges = compute.shift_right(pa.array(piece.ops.offsets, pa.int64()), number(3))
        return cls(
            memory=Memory(piece.ops.data),
            starts=edges.slice(0, len(piece.ops)),
            ends=edges.slice(1),
            first_seqs=pa.array(piece.first_seqs, pa.int64()),
            walls_us=pa.array(piece.walls_us, pa.int64()),
            last_seqs=pa.array(piece.last_seqs, pa.int64()),
        )

    def opcodes(self) -> Any:
        """Returns the opcodes; flags, which do not exist yet, make one that is unknown."""
        return compute.bit_wise_and(take(self.memory.words, self.starts), number(_HALF_MASK))

    def only(self, opcode: Opcode) -> Ops:
        """Returns the ops that have this opcode."""
        wanted = compute.equal(self.opcodes(), number(int(opcode)))
        return Ops(
            memory=self.memory,
            starts=self.starts.filter(wanted),
            ends=self.ends.filter(wanted),
            first_seqs=self.first_seqs.filter(wanted),
            walls_us=self.walls_us.filter(wanted),
            last_seqs=self.last_seqs.filter(wanted),
        )

    def rows(self) -> Any:
        """Returns how many rows each op has."""
        word = take(self.memory.words, compute.add(self.starts, number(1)))
        return compute.bit_wise_and(word, number(_HALF_MASK))


class Spread:
    """What is known of each op, spread over its rows."""

    def __init__(self, rows: Any) -> None:
        ends = compute.cumulative_sum(rows)
        self.count: int = ends[-1].as_py()
        self._starts = compute.subtract(ends, rows)
        # The lists of a list array stand for the ops, so the parent of a row is its op.
        edges = pa.concat_arrays([self._starts, ends.slice(len(ends) - 1)]).cast(pa.int32())
        lists = pa.ListArray.from_arrays(edges, pa.nulls(self.count))
        self._parents = compute.list_parent_indices(lists)
        self._numbers = compute.subtract(_ones_summed(self.count), number(1))

    def repeat(self, entries: Any) -> Any:
        """Returns the entry of its op for each row."""
        return entries.take(self._parents)

    def counted(self, starts: Any) -> Any:
        """Returns for each row the entry of its op plus its place in the op."""
        shifts = compute.subtract(starts, self._starts)
        return compute.add(self.repeat(shifts), self._numbers)


class _Place(NamedTuple):
    """Where a column lies in each op."""

    kind: str
    start: Any  # in words; of the offsets, if the column is one of strings
    data: Any  # in words; of the bytes of strings
    size: Any  # how many of these bytes there are


def read_columns(found: Ops, opcode: Opcode) -> tuple[Spread, dict[str, Any]]:
    """Returns the columns of ops that all have this opcode, by name, with one entry a row.

    Raises:
        FjordError: if the memory does not hold ops.
    """
    # Nothing is allocated by what an op says of itself before that is checked.
    places = _places(found, opcode)
    spread = Spread(found.rows())
    readers = {ops.U64: _read_words, ops.U8: _read_bytes, ops.STRINGS: _read_strings}
    return spread, {
        name: readers[place.kind](found.memory, place, spread) for name, place in places.items()
    }


def _places(found: Ops, opcode: Opcode) -> dict[str, _Place]:
    rows, halves = found.rows(), found.memory.halves
    places = {}
    position = compute.add(found.starts, number(_HEADER_WORDS))
    for name, kind in opcode.columns:
        data = size = None
        start = position
        if kind == ops.U64:
            position = compute.add(start, rows)
        elif kind == ops.U8:
            position = compute.add(start, _words(rows))
        else:
            data = compute.add(
                start, _words(compute.multiply(compute.add(rows, number(1)), number(4)))
            )
            last = compute.add(compute.multiply(start, number(2)), rows)
            size = take(halves, last).cast(pa.int64())
            position = compute.add(data, _words(size))
        places[name] = _Place(kind, start, data, size)
    if not compute.all(compute.equal(position, found.ends)).as_py():
        raise damaged()
    return places


def _words(sizes: Any) -> Any:
    """Returns how many words sizes in bytes take."""
    return compute.shift_right(compute.add(sizes, number(7)), number(3))


def _read_words(memory: Memory, place: _Place, spread: Spread) -> Any:
    return _read_numbers(memory.words, place.start, spread)


def _read_bytes(memory: Memory, place: _Place, spread: Spread) -> Any:
    return _read_numbers(memory.bytes, compute.multiply(place.start, number(8)), spread)


def _read_numbers(numbers: Any, starts: Any, spread: Spread) -> Any:
    if len(starts) == 1:
        return numbers.slice(starts[0].as_py(), spread.count)
    return numbers.take(spread.counted(starts))


def _read_strings(memory: Memory, place: _Place, spread: Spread) -> Any:
    try:
        if len(place.start) == 1:
            start, data, size = (column[0].as_py() for column in place[1:])
            offsets = memory.buffer.slice(8 * start, 4 * (spread.count + 1))
            joined = memory.buffer.slice(8 * data, size)
        else:
            offsets = _joined_offsets(memory, place, spread)
            joined = _joined_data(memory, place)
        strings = pa.Array.from_buffers(pa.binary(), spread.count, [None, offsets, joined])
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged() from error
    return strings


def _joined_offsets(memory: Memory, place: _Place, spread: Spread) -> Any:
    """Returns offsets into the joined data: each op's own, moved by what lies before it."""
    ends = compute.cumulative_sum(place.size)
    own = memory.halves.take(spread.counted(compute.multiply(place.start, number(2))))
    moved = compute.add(own.cast(pa.int64()), spread.repeat(compute.subtract(ends, place.size)))
    return pa.concat_arrays([moved, ends.slice(len(ends) - 1)]).cast(pa.int32()).buffers()[1]


def _joined_data(memory: Memory, place: _Place) -> Any:
    """Returns the bytes of all ops, one after the other."""
    return _run_together(memory.bytes, compute.multiply(place.data, number(8)), place.size)


def join(data: Any, starts: Any, sizes: Any) -> Any:
    """Returns strings that are parts of a column of bytes.

    Assumes that they lie inside of it.
    """
    ends = compute.cumulative_sum(sizes)
    edges = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    joined = _run_together(data, starts, sizes)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, edges.buffers()[1], joined])


def _run_together(data: Any, starts: Any, sizes: Any) -> Any:
    runs = pa.ListViewArray.from_arrays(starts.cast(pa.int32()), sizes.cast(pa.int32()), data)
    # Where the runs lie side by side they are not copied, and begin somewhere in the buffer.
    flat = runs.flatten()
    return flat.buffers()[1].slice(flat.offset, len(flat))


def take(values: Any, positions: Any) -> Any:
    """Reads at positions that are not checked yet.

    Raises:
        FjordError: if one of them is outside.
    """
    try:
        return values.take(positions)
    except pa.ArrowIndexError as error:
        raise damaged() from error


def _ones_summed(count: int) -> Any:
    return compute.cumulative_sum(pa.repeat(number(1), count))


def damaged() -> FjordError:
    """Returns the error of bytes that cannot be what they should be."""
    return FjordError("a scan was answered with bytes that are not ops; check both versions")
