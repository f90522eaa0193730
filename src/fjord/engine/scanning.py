"""Answering SCAN: the ops of one table as they rest in the journal, a bounded piece at a time."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from fjord import commands, limits, ops
from fjord.columns import Strings
from fjord.commands import Refusal, Reply, Scan, Scanned
from fjord.errors import Code, CorruptionError
from fjord.journal import staged
from fjord.journal.reader import Journal, Located
from fjord.tables.state import Table


def scan_journal(
    journal: Journal,
    tables: Mapping[str, Table],
    command: Scan,
    durable_seq: int,
    *,
    cold_seqs: Mapping[int, int],
) -> Reply:
    """Returns ops from `start_seq` on, a bounded piece: little returned, and little looked at.

    Args:
        cold_seqs: the first seq that is in a cold block, of tables that have blocks.
    """
    problem = commands.name_problem(command.table)
    if problem is not None:
        return problem
    table = tables.get(command.table)
    if table is None:
        return Refusal(code=Code.NOT_FOUND, text=f"there is no table {command.table}")
    end_seq = min(command.end_seq or durable_seq + 1, durable_seq + 1)
    first_seq = journal.first_seq
    if command.start_seq < first_seq and cold_seqs.get(table.id, first_seq) < first_seq:
        text = (
            f"what table {table.name} has before seq {first_seq} is in cold blocks, see `fjord "
            f"blocks list`; read it there, and scan from seq {first_seq} on"
        )
        return Refusal(code=Code.BAD_RANGE, text=text)
    # From the beginning means from the first seq that is left.
    start_seq = min(first_seq, end_seq) if command.start_seq == 1 else command.start_seq
    if not first_seq <= start_seq <= end_seq and start_seq != end_seq:
        text = f"a scan starts between seq {first_seq}, the first that is left, and seq {end_seq}"
        return Refusal(code=Code.BAD_RANGE, text=text)
    piece = _Piece(journal, table.id, command, start_seq, end_seq)
    bytes_max = min(command.bytes_max or limits.SCAN_BYTES_MAX, limits.SCAN_BYTES_MAX)
    try:
        if start_seq < end_seq:
            for located in journal.frames(start_seq, durable_seq=durable_seq):
                if located.frame.first_seq >= end_seq or not piece.add(located, bytes_max):
                    break
                if piece.examined_bytes >= limits.SCAN_EXAMINED_BYTES_MAX:
                    break
    except CorruptionError as error:
        return Refusal(code=Code.CORRUPT, text=str(error))
    return piece.answer()


class _Piece:
    """Ops gathered so far."""

    def __init__(
        self, journal: Journal, table: int, command: Scan, start_seq: int, end_seq: int
    ) -> None:
        self._journal = journal
        self._table = table
        self._opcodes = command.opcodes
        self._key_prefix = command.key_prefix
        self._end_seq = end_seq
        self._next_seq = start_seq
        self._first_seqs = array("Q")
        self._walls_us = array("Q")
        self._last_seqs = array("Q")
        self._ops: list[bytes] = []
        self._bytes = 0
        self.examined_bytes = 0
        self.is_cold = False  # it ends before messages that are in blocks only

    def add(self, located: Located, bytes_max: int) -> bool:
        """Takes the ops of a frame that belong to the table; False when there is no more room."""
        frame, body = located.frame, located.body
        self.examined_bytes += len(body)
        position, seq = 0, frame.first_seq
        while position < len(body) and seq < self._end_seq:
            opcode, _, _, table, rows, length = ops.HEADER.unpack_from(body, position)
            if table == self._table and seq + rows > self._next_seq:
                data = body[position : position + length]
                if opcode == staged.COMMIT:
                    try:
                        data = staged.messages_of(self._journal, data)
                    except FileNotFoundError:
                        self.is_cold = True  # where they rested was packed: they are in a block
                        return False
                    self.examined_bytes += len(data)
                if self._is_asked_for(data):
                    if self._ops and self._bytes + len(data) > bytes_max:
                        return False
                    self._first_seqs.append(seq)
                    self._walls_us.append(frame.wall_us)
                    self._last_seqs.append(frame.last_seq)
                    self._ops.append(data)
                    self._bytes += len(data)
            position += length
            seq += rows
            self._next_seq = max(self._next_seq, min(seq, self._end_seq))
        return True

    def _is_asked_for(self, data: bytes) -> bool:
        """Says whether an op is of a kind that is wanted, and about a key that is."""
        if self._opcodes and data[0] not in self._opcodes:
            return False
        if not self._key_prefix:
            return True
        op, _, _ = ops.decode(memoryview(data), 0)
        names = [name for name, _ in op.opcode.columns]
        keys = op.columns[names.index("key")] if "key" in names else ()
        return any(key.startswith(self._key_prefix) for key in keys if isinstance(key, bytes))

    def answer(self) -> Scanned | Refusal:
        if self.is_cold and not self._ops:
            text = (
                f"the messages from seq {self._next_seq} on are in cold blocks, see `fjord blocks "
                "list`; read them there, and scan from behind the last block on"
            )
            return Refusal(code=Code.BAD_RANGE, text=text)
        return Scanned(
            first_seqs=self._first_seqs,
            walls_us=self._walls_us,
            last_seqs=self._last_seqs,
            ops=Strings.of(self._ops),
            next_seq=self._next_seq,
            end_seq=self._end_seq,
        )
