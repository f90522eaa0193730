"""READ, and the commands of subscribers.

READ returns the messages after a seq, in order, up to the end of a snapshot.  A log answers with
its appends as they came; the first and the last one are cut where the range begins or the answer is
full.  A stream that keeps the latest answers with one op made for this answer.  If such a reader
does not reach the end of its snapshot at once, the rest has to stay as it is, so the snapshot is
opened, and closed when the reader has reached its end.

A subscriber is a name and a mark: everything up to the mark is processed.  A mark only moves
forward, unless somebody seeks.  A seek begins a new epoch, and acknowledging what was read in the
old one is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from fjord import commands, kinds, limits, ops
from fjord.columns import Loose, Strings, repeat
from fjord.commands import InBlock, Messages, Numbers, Position, Subscribers
from fjord.errors import Code, RefusedError
from fjord.history import Block
from fjord.layouts import PREFIX_BYTES, end_of, pages
from fjord.ops import Op, Opcode
from fjord.streams import Start
from fjord.tables import catalog, snapshots
from fjord.tables.kv import layout
from fjord.tables.kv.layout import KvEntry
from fjord.tables.rules import check_name
from fjord.tables.snapshots import AsOf
from fjord.tables.state import Decision, Table, Tree, View, decides
from fjord.tables.streams import history
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import Append, Subscriber, seq_key

# Appends are looked up in pieces.
_APPENDS: Final = 64
# What a message counts in an answer, in addition to its key and its value.
_MESSAGE_BYTES: Final = 32
_PIECE: Final = 1000
# If more bytes than this lie ahead in the journal, the lag is a lower bound.
_COUNTED_MAX: Final = 200_000


class _Wanted(NamedTuple):
    """What a READ asks for."""

    after: int
    until: int
    rows_max: int
    bytes_max: int


@decides(commands.Read)
def decide_read(command: commands.Read, state: View, now_us: int) -> Decision:
    table = catalog.find_stream(state, command.table)
    if command.subscriber and not _find(state, table, command.subscriber):
        text = f"stream {table.name} has no subscriber {command.subscriber}"
        raise RefusedError(Code.NOT_FOUND, text)
    last = state.next_seq - 1
    if command.after > last:
        text = f"the last seq is {last}; there is nothing to read after seq {command.after} yet"
        raise RefusedError(Code.BAD_RANGE, text)
    wanted = _Wanted(
        command.after,
        max(command.after, min(command.until or last, last)),
        min(command.count or limits.READ_COUNT_MAX, limits.READ_COUNT_MAX),
        min(command.bytes_max or limits.READ_BYTES_MAX, limits.READ_BYTES_MAX),
    )
    if table.is_latest:
        return _read_latest(command, table, wanted, state, now_us)
    return Decision(_read_log(table, wanted, state))


# -- logs -----------------------------------------------------------------------------------------


def _read_log(table: Table, wanted: _Wanted, state: View) -> Messages | InBlock:
    block = history.block_at(state, table, wanted.after + 1)
    if block is not None and block.first <= wanted.until:
        after = max(wanted.after, block.first - 1)
        return _in_block(table, block, after, wanted.until)
    taken: list[tuple[Append, int, int]] = []  # with the first and the last seq to read
    after, rows, size, is_more = wanted.after, 0, 0, False
    for append in _appends(table, after, state):
        first, last = max(append.first, after + 1), min(append.last, wanted.until)
        if first > wanted.until:
            break
        room = min(wanted.rows_max - rows, _fitting(append, wanted.bytes_max - size, rows))
        is_more = first + room <= last
        if room > 0:
            after = min(last, first + room - 1)
            taken.append((append, first, after))
            rows += after - first + 1
            size += append.size * (after - first + 1) // append.rows
        if is_more:
            break
    data = state.payloads([append.pointer for append, _, _ in taken])
    return Messages(
        first_seqs=array("Q", [first for _, first, _ in taken]),
        walls_us=array("Q", [append.wall_us for append, _, _ in taken]),
        ops=Loose([_cut(*one, op) for one, op in zip(taken, data, strict=True)]),
        after=after if is_more else wanted.until,
        until=wanted.until,
        ended=not is_more,
        rows=rows,
    )


def _appends(table: Table, after: int, state: View) -> Iterator[Append]:
    """Yields the appends with messages after a seq."""
    start = seq_key(table.prefix, after + 1)
    for items in pages(state.scan, Tree.STREAM_OPS, start, end_of(table.prefix), _APPENDS):
        for key, data in items:
            yield stream_entry.decode_append(key, data)


def _fitting(append: Append, left: int, rows: int) -> int:
    """Returns how many messages of an append fit into the remaining bytes.

    The first append is cut to what fits, or else to one message; a later one that does not fit is
    left for the next answer.
    """
    if append.size <= left:
        return append.rows
    return 0 if rows else max(1, left * append.rows // append.size)


def _cut(append: Append, first: int, last: int, data: bytes) -> bytes:
    """Cuts the op of an append to the messages from one seq to another."""
    if last - first + 1 == append.rows:
        return data
    op, _, _ = ops.decode(memoryview(data), 0)
    return ops.encode(ops.part(op, first - append.first, last - append.first + 1))[0]


# -- streams that keep the latest -----------------------------------------------------------------


def _read_latest(
    command: commands.Read, table: Table, wanted: _Wanted, state: View, now_us: int
) -> Decision:
    """Reads at the reader's snapshot, or at the current state if there is none or it is closed."""
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


def _latest_rows(table: Table, wanted: _Wanted, view: View | AsOf) -> tuple[_Rows, bool]:
    """Returns the first messages that fit an answer, and whether there are more."""
    start, stop = (seq_key(table.prefix, seq) for seq in (wanted.after + 1, wanted.until + 1))
    items = view.scan(Tree.STREAM_SEQS, start, stop, wanted.rows_max + 1)
    keys = [table.prefix + key for _, key in items[: wanted.rows_max]]
    found: _Rows = []
    size = 0
    for key, data in zip(keys, view.get_many(Tree.KV, keys), strict=True):
        assert data is not None  # one implies the other
        entry = layout.decode(data)
        found.append((key, entry))
        size += _MESSAGE_BYTES + len(key) + entry.size
        if size >= wanted.bytes_max:
            break
    return found, len(found) < len(items)


def _latest_messages(
    table: Table, wanted: _Wanted, found: _Rows, view: View | AsOf, *, is_more: bool
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


# -- subscribers ----------------------------------------------------------------------------------


@decides(commands.Subscribe)
def decide_subscribe(command: commands.Subscribe, state: View, now_us: int) -> Decision:
    check_name(command.name)
    _check_start(command.start, command.at)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.STREAM)
    known = _find(state, table, command.name)
    if known is not None:
        return Decision(_position(known))
    if state.size_of(Tree.SUBSCRIBERS) >= limits.SUBSCRIBERS_MAX:
        text = f"there are {limits.SUBSCRIBERS_MAX} subscribers; remove those that are not needed"
        raise RefusedError(Code.QUOTA, text)
    seq = _start_seq(state, table, command.start, command.at)
    if not isinstance(seq, int):
        return Decision(seq)
    at_end = len(creation) * (command.start == Start.END)
    # An epoch that no subscriber with this name has ever had.
    epoch = state.next_seq + len(creation)
    made = Subscriber(seq + at_end, epoch, now_us, 0, 0)
    position = _position(made, created=True)
    return Decision(position, [*creation, *_op(table, command.name, made)])


@decides(commands.Unsubscribe)
def decide_unsubscribe(command: commands.Unsubscribe, state: View, now_us: int) -> Decision:
    table, _ = _known(state, command.table, command.name)
    gone = ops.of_rows(Opcode.UNSUBSCRIBE, table.id, [(command.name.encode(),)])
    return catalog.decision(state, gone)


@decides(commands.Rest)
def decide_rest(command: commands.Rest, state: View, now_us: int) -> Decision:
    table, known = _known(state, command.table, command.name)
    changed = known._replace(asleep=int(command.asleep))
    made = [] if changed == known else _op(table, command.name, changed)
    return Decision(_position(changed), made)


@decides(commands.Acknowledge)
def decide_acknowledge(command: commands.Acknowledge, state: View, now_us: int) -> Decision:
    table, known = _known(state, command.table, command.name)
    if command.seq >= state.next_seq:
        text = f"the last seq is {state.next_seq - 1}; seq {command.seq} cannot be acknowledged yet"
        raise RefusedError(Code.BAD_RANGE, text)
    if command.epoch != known.epoch or command.expected not in (-1, known.seq):
        text = (
            f"subscriber {command.name} is now at seq {known.seq} of epoch {known.epoch}; "
            "continue from there"
        )
        raise RefusedError(Code.STALE_EPOCH, text)
    if command.seq <= known.seq:
        return Decision(_position(known))
    moved = known._replace(seq=command.seq, moved_us=now_us)
    return Decision(_position(moved), _op(table, command.name, moved))


@decides(commands.Seek)
def decide_seek(command: commands.Seek, state: View, now_us: int) -> Decision:
    _check_start(command.start, command.at)
    table, known = _known(state, command.table, command.name)
    seq = _start_seq(state, table, command.start, command.at)
    if not isinstance(seq, int):
        return Decision(seq)
    moved = known._replace(seq=seq, epoch=known.epoch + 1, moved_us=now_us)
    return Decision(_position(moved), _op(table, command.name, moved))


def _known(state: View, stream: str, name: str) -> tuple[Table, Subscriber]:
    check_name(name)
    table = catalog.find_stream(state, stream)
    found = _find(state, table, name)
    if found is None:
        raise RefusedError(Code.NOT_FOUND, f"stream {stream} has no subscriber {name}")
    return table, found


def _find(state: View, table: Table, name: str) -> Subscriber | None:
    """Returns a subscriber, or None; a name that is not stored is checked."""
    key = name.encode(errors="replace")
    if len(key) > limits.NAME_BYTES_MAX:
        return None
    (data,) = state.get_many(Tree.SUBSCRIBERS, [table.prefix + key])
    return stream_entry.decode_subscriber(data) if data else None


def _op(table: Table, name: str, found: Subscriber) -> list[Op]:
    row = (found.seq, found.epoch, found.moved_us, found.asleep, name.encode())
    return ops.of_rows(Opcode.SUBSCRIBER, table.id, [row])


def _position(found: Subscriber, *, created: bool = False) -> Position:
    return Position(seq=found.seq, epoch=found.epoch, asleep=bool(found.asleep), created=created)


def _in_block(table: Table, block: Block, after: int, until: int) -> InBlock:
    return InBlock(
        table=table.id,
        first=block.first,
        last=block.last,
        name=block.name,
        after=after,
        until=until,
        crc=block.crc,
    )


# -- the start of a reader ------------------------------------------------------------------------


def _check_start(start: int, at: int) -> None:
    if start not in set(Start):
        raise RefusedError(Code.BAD_RANGE, "a start must be beginning, end, a seq or a moment")
    if start == Start.TIME and at < limits.TIMESTAMP_US_MIN:
        raise RefusedError(Code.BAD_TIMESTAMP, "a moment is in Unix microseconds")


def _start_seq(state: View, table: Table, start: int, at: int) -> int | InBlock:
    """Returns the mark of a reader that begins there, or the block that contains it."""
    last = state.next_seq - 1
    if start == Start.BEGINNING:
        return 0
    if start == Start.END:
        return last
    if start == Start.SEQ:
        if at > last + 1:
            text = f"the last seq is {last}; a reader cannot begin after seq {last + 1}"
            raise RefusedError(Code.BAD_RANGE, text)
        return max(at, 1) - 1
    return _seq_at(state, table, at)


def _seq_at(state: View, table: Table, wall_us: int) -> int | InBlock:
    """Returns the seq before the first message from a moment on."""
    forgotten = history.history_of(state, table.id).forgotten
    for block in history.live_blocks(state, table.prefix):
        if block.first <= forgotten and block.max_us >= wall_us:
            return _in_block(table, block, block.first - 1, state.next_seq - 1)

    def is_late(seq: int) -> bool:
        moment_us = _moment_from(state, table, seq)
        return moment_us is None or moment_us >= wall_us

    first = 1 if table.is_latest else forgotten + 1
    return first + bisect_left(range(first, state.next_seq), True, key=is_late) - 1


def _moment_from(state: View, table: Table, seq: int) -> int | None:
    """Returns the moment of the first op with messages from a seq on."""
    tree = Tree.STREAM_SEQS if table.is_latest else Tree.STREAM_OPS
    items = state.scan(tree, seq_key(table.prefix, seq), end_of(table.prefix), 1)
    if not items:
        return None
    key, found = items[0]
    if not table.is_latest:
        return stream_entry.decode_append(key, found).wall_us
    (data,) = state.get_many(Tree.KV, [table.prefix + found])
    assert data is not None  # one implies the other
    return stream_entry.moment_of(layout.decode(data))


# -- reading --------------------------------------------------------------------------------------


@decides(commands.ListSubscribers)
def decide_list(command: commands.ListSubscribers, state: View, now_us: int) -> Decision:
    table = catalog.find_stream(state, command.table)
    count = min(command.count or limits.PAGE_ENTRIES_MAX, limits.PAGE_ENTRIES_MAX)
    start = table.prefix + command.start.encode()
    items = state.scan(Tree.SUBSCRIBERS, start, end_of(table.prefix), count + 1)
    names = [key[len(table.prefix) :] for key, _ in items]
    found = [stream_entry.decode_subscriber(data) for _, data in items[:count]]
    return Decision(
        Subscribers(
            names=Strings.of(names[:count]),
            seqs=[one.seq for one in found],
            epochs=[one.epoch for one in found],
            moved_us=[one.moved_us for one in found],
            asleep=bytes([one.asleep for one in found]),
            next_name=names[count].decode() if len(names) > count else "",
        )
    )


@decides(commands.Lag)
def decide_lag(command: commands.Lag, state: View, now_us: int) -> Decision:
    table, known = _known(state, command.table, command.name)
    after = known.seq if command.after < 0 else command.after
    block = None if table.is_latest else history.block_at(state, table, after + 1)
    if block is not None and block.first <= after:
        return Decision(_in_block(table, block, after, state.next_seq - 1))
    messages = _ahead(state, table, after)
    names = Strings.of([b"messages", b"seqs"])
    return Decision(Numbers(names=names, values=[messages, state.next_seq - 1 - after]))


def _ahead(state: View, table: Table, after: int) -> int:
    """Returns how many messages follow a seq that is not in the middle of a block."""
    if table.is_latest:
        return _count(state, Tree.STREAM_SEQS, table, after, lambda key, data: 1)
    cold, found = 0, history.history_of(state, table.id)
    if after < found.forgotten:
        blocks = history.live_blocks(state, table.prefix, after + 1)
        cold = sum(block.rows for block in blocks)
        after = found.sealed

    def rows(key: bytes, data: bytes) -> int:
        append = stream_entry.decode_append(key, data)
        return append.last - max(append.first - 1, after)

    return cold + _count(state, Tree.STREAM_OPS, table, after, rows)


def _count(
    state: View, tree: Tree, table: Table, after: int, rows: Callable[[bytes, bytes], int]
) -> int:
    start, stop = seq_key(table.prefix, after + 1), end_of(table.prefix)
    found = pages(state.scan, tree, start, stop, _PIECE)
    return sum(rows(*item) for items in islice(found, _COUNTED_MAX // _PIECE) for item in items)
