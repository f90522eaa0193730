"""READ: the messages after a seq, in order, up to the end of a snapshot.

A log is answered with its appends as they came; the first and the last one are cut where the
range begins or the answer is full.  A stream that keeps the latest is answered with one op that is
made for it.  There a reader that does not get to the end of its snapshot in one go needs the rest
to stay as it is, so the snapshot is opened, and closed when the reader has come to its end.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from fjord import commands, limits, ops
from fjord.columns import Loose, Strings, repeat
from fjord.commands import InBlock, Messages
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.ops import Op, Opcode
from fjord.tables import snapshots
from fjord.tables.kv import layout
from fjord.tables.kv.layout import KvEntry
from fjord.tables.snapshots import AsOf
from fjord.tables.state import Decision, State, Table, Tree, decides
from fjord.tables.streams import decide, history, rules
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import Append, seq_key

# Appends are looked up in pieces.
_APPENDS: Final = 64
# What a message counts for beside its key and its value, in an answer that is made for it.
_MESSAGE_BYTES: Final = 32


class _Wanted(NamedTuple):
    """What is asked for."""

    after: int
    until: int
    rows_max: int
    bytes_max: int


@decides(commands.Read)
def decide_read(command: commands.Read, state: State, now_us: int) -> Decision:
    table = rules.find(state, command.table)
    if command.subscriber and not decide.is_there(state, table, command.subscriber):
        text = f"stream {table.name} has no subscriber {command.subscriber}"
        raise RefusedError(Code.NOT_FOUND, text)
    last = state.next_seq - 1
    if command.after > last:
        text = f"the last seq is {last}; there is nothing behind seq {command.after} to read yet"
        raise RefusedError(Code.BAD_RANGE, text)
    wanted = _Wanted(
        command.after,
        max(command.after, min(command.until or last, last)),
        rules.count_of(command.count, limits.READ_COUNT_MAX),
        rules.count_of(command.bytes_max, limits.READ_BYTES_MAX),
    )
    if rules.is_latest(table):
        return _read_latest(command, table, wanted, state, now_us)
    return Decision(_read_log(table, wanted, state))


# -- logs -----------------------------------------------------------------------------------------


def _read_log(table: Table, wanted: _Wanted, state: State) -> Messages | InBlock:
    block = history.block_at(state, table, wanted.after + 1)
    if block is not None and block.first <= wanted.until:
        after = max(wanted.after, block.first - 1)
        return decide.in_block(table, block, after, wanted.until)
    answer = _Answer(wanted, state)
    while True:
        following = _appends(table, answer.after, state, _APPENDS if answer.has_room else 1)
        if not following or not answer.has_room:
            break
        answer.add(following)
    is_more = bool(following) and max(following[0].first, answer.after + 1) <= wanted.until
    return answer.messages(is_more=is_more)


def _appends(table: Table, after: int, state: State, limit: int) -> list[Append]:
    """Returns the first appends with messages behind a seq."""
    items = state.scan(
        Tree.STREAM_OPS, seq_key(table.prefix, after + 1), end_of(table.prefix), limit
    )
    return [stream_entry.decode_append(key, data) for key, data in items]


class _Answer:
    """Appends gathered until the answer is full, or the snapshot ends."""

    def __init__(self, wanted: _Wanted, state: State) -> None:
        self._wanted = wanted
        self._state = state
        self._rows = 0
        self._bytes = 0
        self.after = wanted.after
        self._first_seqs = array("Q")
        self._walls_us = array("Q")
        self._ops: list[bytes] = []
        self.has_room = True

    def add(self, appends: list[Append]) -> None:
        """Takes as many as there is room for; the last one perhaps in part."""
        taken: list[tuple[Append, int, int]] = []
        for append in appends:
            first = max(append.first, self.after + 1)
            room = self._room(append)
            self.has_room = room > 0 and first <= self._wanted.until
            if not self.has_room:
                break
            last = min(append.last, self._wanted.until, first + room - 1)
            taken.append((append, first, last))
            self._rows += last - first + 1
            self._bytes += append.size * (last - first + 1) // append.rows
            self.after = last
        data = self._state.payloads([append.pointer for append, _, _ in taken])
        for (append, first, last), one in zip(taken, data, strict=True):
            self._first_seqs.append(first)
            self._walls_us.append(append.wall_us)
            is_whole = last - first + 1 == append.rows
            self._ops.append(one if is_whole else _cut(one, first - append.first, last - first + 1))

    def _room(self, append: Append) -> int:
        """Returns how many messages of an append there is room for.

        The first append is cut to what fits, or else to one message; a later one that does not
        fit is left for the next answer.
        """
        room, left = self._wanted.rows_max - self._rows, self._wanted.bytes_max - self._bytes
        if append.size <= left:
            return room
        return min(room, max(1, left * append.rows // append.size)) if not self._rows else 0

    def messages(self, *, is_more: bool) -> Messages:
        until = self._wanted.until
        return Messages(
            first_seqs=self._first_seqs,
            walls_us=self._walls_us,
            ops=Loose(self._ops),
            after=self.after if is_more else until,
            until=until,
            ended=not is_more,
            rows=self._rows,
        )


def _cut(data: bytes, start: int, count: int) -> bytes:
    """Returns an op with some of its rows only."""
    op, _, _ = ops.decode(memoryview(data), 0)
    return ops.encode(ops.part(op, start, start + count))[0]


# -- streams that keep the latest -----------------------------------------------------------------


def _read_latest(
    command: commands.Read, table: Table, wanted: _Wanted, state: State, now_us: int
) -> Decision:
    """Reads as of the reader's snapshot, or of now if it has none, or its time is over."""
    moment = state.snapshots.get(command.until)
    is_pinned = moment is not None and moment.is_pass and not state.as_of
    view = snapshots.AsOf(state, command.until) if is_pinned else state
    if not is_pinned:
        wanted = wanted._replace(until=state.next_seq - 1)
    found, is_more = _latest_rows(table, wanted, view)
    made: list[Op] = []
    if is_pinned and not is_more:
        made = snapshots.close_ops(state, [command.until])
    elif is_more and not is_pinned and not state.as_of and not command.once:
        made = snapshots.pass_ops(state, now_us)
        wanted = wanted._replace(until=state.next_seq) if made else wanted
    return Decision(_latest_messages(table, wanted, found, view, is_more=is_more), made)


_Rows = list[tuple[bytes, KvEntry]]  # keys of the index and their entries


def _latest_rows(table: Table, wanted: _Wanted, view: State | AsOf) -> tuple[_Rows, bool]:
    """Returns the first messages that fit an answer, and whether there are more."""
    start, stop = (seq_key(table.prefix, seq) for seq in (wanted.after + 1, wanted.until + 1))
    items = view.scan(Tree.STREAM_SEQS, start, stop, wanted.rows_max + 1)
    keys = [table.prefix + key for _, key in items[: wanted.rows_max]]
    found: _Rows = []
    size = 0
    for key, data in zip(keys, view.get_many(Tree.KV, keys), strict=True):
        assert data is not None  # both go together
        entry = layout.decode(data)
        found.append((key, entry))
        size += _MESSAGE_BYTES + len(key) + entry.size
        if size >= wanted.bytes_max:
            break
    return found, len(found) < len(items)


def _latest_messages(
    table: Table, wanted: _Wanted, found: _Rows, view: State | AsOf, *, is_more: bool
) -> Messages:
    entries = [entry for _, entry in found]
    stored = iter(view.payloads([entry.pointer for entry in entries if entry.size]))
    data = []
    if found:
        none = repeat(0, len(found))
        columns = (
            [entry.row for entry in entries],
            list(map(stream_entry.moment_of, entries)),
            none,
            none,
            bytes([entry.type for entry in entries]),
            Strings.of([key[PREFIX_BYTES:] for key, _ in found]),
            Strings.of([next(stored) if entry.size else b"" for entry in entries]),
        )
        data = [ops.encode(Op(Opcode.STREAM_MOVE, table.id, len(found), columns))[0]]
    return Messages(
        first_seqs=[entries[0].row] if data else [],
        walls_us=[stream_entry.moment_of(entries[0])] if data else [],
        ops=Strings.of(data),
        after=entries[-1].row if is_more else wanted.until,
        until=wanted.until,
        ended=not is_more,
        rows=len(found),
    )
