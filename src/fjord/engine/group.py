"""State for decide, from an index transaction: read-only, or a group on its way to one frame."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fjord import limits, ops, tables
from fjord.index import Transaction
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Writer
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.state import Pointer, Table, Tree, VolatileValue, volatile_bytes

_APPLIED = b"applied"


def read_applied(transaction: Transaction) -> int:
    """Returns the seq up to which the index holds everything."""
    return int.from_bytes(transaction.get(Tree.META, _APPLIED) or b"", "big")


def write_applied(transaction: Transaction, seq: int) -> None:
    transaction.put_many(Tree.META, [(_APPLIED, seq.to_bytes(8, "big"))])


def read_tables(transaction: Transaction) -> dict[str, Table]:
    return catalog.tables(transaction.scan(Tree.TABLES, b"", None, limits.TABLES_MAX))


class Volatile:
    """Values with persist=0, with an undo log for the group that is under way."""

    def __init__(self) -> None:
        self.values: dict[bytes, VolatileValue] = {}
        self.bytes = 0
        self._undo: list[tuple[bytes, VolatileValue | None]] = []

    def change(self, changes: Mapping[bytes, VolatileValue | None]) -> None:
        for key, value in changes.items():
            self._undo.append((key, self._put(key, value)))

    def keep(self) -> None:
        self._undo.clear()

    def undo(self) -> None:
        while self._undo:
            self._put(*self._undo.pop())

    def _put(self, key: bytes, value: VolatileValue | None) -> VolatileValue | None:
        old = self.values.pop(key, None)
        if value is not None:
            self.values[key] = value
            self.bytes += volatile_bytes(key, value)
        if old is not None:
            self.bytes -= volatile_bytes(key, old)
        return old


class Known(NamedTuple):
    """What a state is made of, beside the index transaction."""

    journal: Journal
    volatile: Volatile
    tables: Mapping[str, Table]
    master: bytes
    next_seq: int


class Snapshot:
    """State as of one index transaction; nothing in it changes."""

    def __init__(self, transaction: Transaction, known: Known) -> None:
        self.transaction = transaction
        self._journal, self._volatile, self.tables, self.master, self.next_seq = known
        self.get_many = transaction.get_many

    @property
    def volatile(self) -> Mapping[bytes, VolatileValue]:
        return self._volatile.values

    @property
    def volatile_bytes(self) -> int:
        return self._volatile.bytes

    def payloads(self, pointers: Sequence[Pointer]) -> list[bytes]:
        read = self._journal.payload
        return [read(*pointer) for pointer in pointers]


class Group(Snapshot):
    """Commands whose ops become one frame: applied to the index as they come, then written."""

    def __init__(self, transaction: Transaction, known: Known, writer: Writer) -> None:
        super().__init__(transaction, known)
        self._writer = writer
        self._starts: list[int] = []  # where in the body each op begins
        self.ops: list[bytes] = []
        self.body_bytes = 0
        self.rows = 0

    @property
    def _base(self) -> int:
        return self._writer.position + frames.FRAME_HEADER_BYTES

    def fits(self, encoded: Sequence[tuple[bytes, int]]) -> bool:
        """Says whether these ops still fit into the frame and into the segment."""
        size = self.body_bytes + encoded_bytes(encoded)
        frame_bytes = frames.FRAME_HEADER_BYTES + size
        return frame_bytes <= limits.FRAME_BYTES_MAX and self._writer.has_room(size)

    def add(self, decided: Sequence[Op], encoded: Sequence[tuple[bytes, int]]) -> None:
        """Applies ops that fit."""
        for op, (data, payload) in zip(decided, encoded, strict=True):
            payload += self._base + self.body_bytes
            place = Place(self.next_seq, self._writer.header.segment, payload)
            tables.APPLY[op.opcode](self.transaction, op, place)
            self._starts.append(self.body_bytes)
            self.ops.append(data)
            self.body_bytes += len(data)
            self.rows += op.rows
            self.next_seq += op.rows
            if op.opcode == Opcode.CREATE_TABLE:
                self.tables = read_tables(self.transaction)

    def change_volatile(self, changes: Mapping[bytes, VolatileValue | None]) -> None:
        self._volatile.change(changes)

    def payloads(self, pointers: Sequence[Pointer]) -> list[bytes]:
        return [self._payload(pointer) for pointer in pointers]

    def _payload(self, pointer: Pointer) -> bytes:
        """Reads from the journal, or from the frame that is not written yet."""
        start = pointer.offset - self._base
        if pointer.segment != self._writer.segment or start < 0:
            return self._journal.payload(*pointer)
        position = bisect.bisect_right(self._starts, start) - 1
        start -= self._starts[position]
        return self.ops[position][start : start + pointer.size]


def encode_all(decided: Sequence[Op]) -> list[tuple[bytes, int]]:
    return [ops.encode(op) for op in decided]


def encoded_bytes(encoded: Sequence[tuple[bytes, int]]) -> int:
    return sum([len(data) for data, _ in encoded])
