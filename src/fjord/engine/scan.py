"""Answering SPAN: where a batch of a table's history ends, from the headers of ops alone.

A frame is one commit.  It is taken as a whole or not at all, so that a batch never splits a commit;
rows that a reader already has of a commit are not counted again.

Epochs.  Every writer begins with a takeover: its UUID, and the high seq at that moment.  The next
seq is the first one that this writer assigns, so a seq belongs to the last takeover whose high seq
is below it:

    takeover   A at 0    B at 40     C at 75
    seqs       1 .. 40   41 .. 75    76 ..

A journal that was restored to an earlier state, or lost its end, continues with a new takeover, at
a high seq below what readers have seen.  Their seqs then belong to another epoch than they expect,
whether or not these were assigned again.  Nothing was written at seq 0, so it has no epoch.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fjord import kinds, limits, ops
from fjord.commands import Refusal, Reply, Scan, Scanned, Span, Spanned
from fjord.errors import Code, CorruptionError, RefusedError
from fjord.history import HISTORIC
from fjord.journal import reader
from fjord.journal.reader import Journal, Located
from fjord.ops import Opcode
from fjord.tables import catalog
from fjord.tables.state import Table
from fjord.tables.streams import history

# Ops whose rows are shown; for sealed tables only the HISTORIC ones.
SHOWN: Final = frozenset(opcode for opcode in Opcode if opcode.shown is not None)
NO_EPOCH: Final = bytes(16)
# A segment that is packed away meanwhile is no longer listed at the next attempt.
_TRIES: Final = 3


class Past(NamedTuple):
    """The parts of the state that a scan needs."""

    journal: Journal
    tables: Mapping[str, Table]
    durable_seq: int
    cold_seqs: Mapping[int, int]  # the first seq that is in a cold block, for tables with blocks
    cold_lasts: Mapping[int, int]  # the last one, by table; the blocks may be gone
    takeovers: Sequence[tuple[bytes, int]]  # UUID and high seq, oldest first
    seals: bool = True  # what leaves the journal goes to blocks


def look(past: Past, command: Scan | Span) -> Reply:
    """Answers from the journal alone."""
    try:
        table = catalog.find_any(past.tables, command.table)
        if isinstance(command, Span):
            return span_journal(past, table, command)
        return scan_journal(past, table, command)
    except RefusedError as error:
        return Refusal.of(error)
    except CorruptionError as error:
        return Refusal(code=Code.CORRUPT, text=str(error))


def span_journal(past: Past, table: Table, command: Span) -> Spanned:
    """Returns where a batch that begins after `after` ends; examines a bounded part."""
    for _ in range(_TRIES):
        _check_epoch(past, command)
        _check_range(past, table, command)
        try:
            return _walk(past, table, command)
        except FileNotFoundError as error:
            gone = error
    raise gone


def epoch_of(takeovers: Sequence[tuple[bytes, int]], seq: int) -> bytes:
    """Returns the takeover to which a seq belongs, or would belong; NO_EPOCH if none."""
    at = bisect.bisect_left(takeovers, seq, key=lambda one: one[1]) - 1
    return takeovers[at][0] if at >= 0 else NO_EPOCH


def _check_epoch(past: Past, command: Span) -> None:
    if not command.epoch or command.epoch == NO_EPOCH or not command.after:
        return
    found = epoch_of(past.takeovers, command.after)
    if found == command.epoch:
        return
    text = (
        f"seq {command.after} was written in epoch {command.epoch.hex()} when it was read, but in "
        f"{found.hex()} here: this journal was restored to an earlier state, or is another one; "
        "what was read from that seq's epoch on is no longer valid, so start again"
    )
    raise RefusedError(Code.FORKED, text)


def _check_range(past: Past, table: Table, command: Span) -> None:
    first_seq, after = past.journal.first_seq, command.after
    if after > past.durable_seq:
        text = f"seq {after} is not written yet; the last one is {past.durable_seq}"
        raise RefusedError(Code.BAD_RANGE, text)
    # A request for nothing after a seq asks for its epoch, wherever its rows are.
    if after + 1 >= first_seq or 0 < command.until <= after:
        return
    missing = f"the rows of table {table.name} from seq {after + 1}"
    cold_last = past.cold_lasts.get(table.id, 0)
    # Seqs after the last block that are no longer in the journal had no rows; and a reader that
    # begins at the beginning misses nothing that is gone.
    if after < cold_last and (after or table.id in past.cold_seqs):
        text = (
            f"{missing} to {cold_last} are in cold blocks, see `fjord blocks list`, or were "
            f"removed by retention; read them there, and continue after seq {cold_last}"
        )
        raise RefusedError(Code.BAD_RANGE, text)
    if after and not history.has_history(table, jobs_too=past.seals):
        text = f"{missing} to {first_seq - 1} are gone: the journal now begins at seq {first_seq}"
        raise RefusedError(Code.BAD_RANGE, text)


def _walk(past: Past, table: Table, command: Span) -> Spanned:
    end_seq = min(command.until or past.durable_seq, past.durable_seq)
    batch = _Span(table, command)
    start_seq = max(command.after + 1, past.journal.first_seq)
    if start_seq <= end_seq:
        for located in past.journal.frames(start_seq, durable_seq=past.durable_seq):
            if located.frame.last_seq > end_seq or not batch.add(located):
                break
            if batch.examined_bytes >= limits.SCAN_EXAMINED_BYTES_MAX:
                batch.is_more = batch.examined < end_seq
                break
    return batch.answer(past)


class _Span:
    """The commits taken so far."""

    def __init__(self, table: Table, command: Span) -> None:
        self._table = table.id
        self._opcodes = SHOWN if table.kind is kinds.Kind.KV else HISTORIC
        self._command = command
        self._rows_max = command.rows_max or math.inf
        self._bytes_max = command.bytes_max or math.inf
        self._seq = self.examined = command.after
        self._rows = self._size = self._wall_us = 0
        self.examined_bytes = 0
        self.is_more = False

    def add(self, located: Located) -> bool:
        """Takes a commit; False if the batch ends before it."""
        command, frame = self._command, located.frame
        if command.before_us and frame.wall_us >= command.before_us:
            return False
        if self._rows >= self._rows_max or self._size >= self._bytes_max:
            return False
        rows, size = self._count(located.body, frame.first_seq)
        is_more = self._rows + rows > self._rows_max or self._size + size > self._bytes_max
        if rows and self._rows and is_more:
            return False
        self.examined_bytes += frame.length
        self.examined = frame.last_seq
        if rows:
            self._rows += rows
            self._size += size
            self._seq, self._wall_us = frame.last_seq, frame.wall_us
        return True

    def _count(self, body: bytes, seq: int) -> tuple[int, int]:
        """Returns how many rows of the table a commit has after `after`, and their ops' bytes."""
        count = size = position = 0
        after = self._command.after
        while position < len(body):
            opcode, _, _, table, rows, length = ops.HEADER.unpack_from(body, position)
            if table == self._table and opcode in self._opcodes and seq + rows > after + 1:
                count += seq + rows - max(seq, after + 1)
                size += reader.size_of(body, position) if opcode == reader.COMMIT else length
            position += length
            seq += rows
        return count, size

    def answer(self, past: Past) -> Spanned:
        return Spanned(
            seq=self._seq,
            rows=self._rows,
            size=self._size,
            wall_us=self._wall_us,
            examined=self.examined,
            is_more=self.is_more,
            durable_seq=past.durable_seq,
            first_seq=past.journal.first_seq,
            epoch=epoch_of(past.takeovers, self._seq),
        )


# -------------------------------------------------------------------------------------------------
#
# Answering SCAN: the ops of one table as stored in the journal, a bounded piece at a time.


def scan_journal(past: Past, table: Table, command: Scan) -> Scanned:
    """Returns ops from `start_seq` on, a bounded piece: few returned, and few examined."""
    journal, durable_seq = past.journal, past.durable_seq
    end_seq = min(command.end_seq or durable_seq + 1, durable_seq + 1)
    first_seq = journal.first_seq
    if command.start_seq < first_seq and past.cold_seqs.get(table.id, first_seq) < first_seq:
        text = (
            f"the rows of table {table.name} before seq {first_seq} are in cold blocks, see `fjord "
            f"blocks list`; read them there, and scan from seq {first_seq} on"
        )
        raise RefusedError(Code.BAD_RANGE, text)
    # The beginning means the first seq that is left.
    start_seq = min(first_seq, end_seq) if command.start_seq == 1 else command.start_seq
    if not first_seq <= start_seq <= end_seq and start_seq != end_seq:
        text = f"a scan starts between seq {first_seq}, the first one left, and seq {end_seq}"
        raise RefusedError(Code.BAD_RANGE, text)
    piece = _Piece(journal, table.id, command, start_seq, end_seq)
    bytes_max = min(command.bytes_max or limits.SCAN_BYTES_MAX, limits.SCAN_BYTES_MAX)
    if start_seq < end_seq:
        for located in journal.frames(start_seq, durable_seq=durable_seq):
            if located.frame.first_seq >= end_seq or not piece.add(located, bytes_max):
                break
            if piece.examined_bytes >= limits.SCAN_EXAMINED_BYTES_MAX:
                break
    return piece.answer()


class _Piece:
    """The ops collected so far."""

    def __init__(
        self, journal: Journal, table: int, command: Scan, start_seq: int, end_seq: int
    ) -> None:
        self._journal = journal
        self._table = table
        self._opcodes = command.opcodes
        self._key_prefix = command.key_prefix
        self._end_seq = end_seq
        self._next_seq = start_seq
        self._found = reader.ScannedOps()
        self.examined_bytes = 0
        self.is_cold = False  # it ends before messages that are in blocks only

    def add(self, located: Located, bytes_max: int) -> bool:
        """Takes the ops of a frame that belong to the table; False if there is no more room."""
        frame, body = located.frame, located.body
        self.examined_bytes += len(body)
        position, seq = 0, frame.first_seq
        while position < len(body) and seq < self._end_seq:
            opcode, _, _, table, rows, length = ops.HEADER.unpack_from(body, position)
            if table == self._table and seq + rows > self._next_seq:
                data = body[position : position + length]
                if opcode == reader.COMMIT:
                    try:
                        data = reader.messages_of(self._journal, data)
                    except FileNotFoundError:
                        self.is_cold = True  # their old place was packed: they are in a block
                        return False
                    self.examined_bytes += len(data)
                if self._is_wanted(data):
                    if self._found.ops and self._found.bytes + len(data) > bytes_max:
                        return False
                    self._found.add(frame, seq, data)
            position += length
            seq += rows
            self._next_seq = max(self._next_seq, min(seq, self._end_seq))
        return True

    def _is_wanted(self, data: bytes) -> bool:
        if self._opcodes and data[0] not in self._opcodes:
            return False
        if not self._key_prefix:
            return True
        op, _, _ = ops.decode(memoryview(data), 0)
        names = [name for name, _ in op.opcode.columns]
        keys = op.columns[names.index("key")] if "key" in names else ()
        return any(key.startswith(self._key_prefix) for key in keys if isinstance(key, bytes))

    def answer(self) -> Scanned:
        if self.is_cold and not self._found.ops:
            text = (
                f"the messages from seq {self._next_seq} on are in cold blocks, see `fjord blocks "
                "list`; read them there, and scan on after the last block"
            )
            raise RefusedError(Code.BAD_RANGE, text)
        return self._found.scanned(self._next_seq, self._end_seq)
