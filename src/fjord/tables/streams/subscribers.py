"""Subscribers: a name and a mark each.  Everything up to the mark is processed.

A mark only goes forward, unless somebody seeks; that begins a new epoch, and whoever still
acknowledges what was read in the old one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fjord import commands, kinds, layouts, limits
from fjord.columns import Strings
from fjord.commands import InBlock, Numbers, Position, Subscribers
from fjord.errors import Code, RefusedError
from fjord.history import Block
from fjord.ops import Op, Opcode
from fjord.streams import Start
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.rules import check_name
from fjord.tables.state import Decision, State, Table, Tree, decides
from fjord.tables.streams import history, rules
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import Subscriber, seq_key

_PIECE: Final = 1000
# Where more than this lies ahead in the journal, a lag is at least that much.
_COUNTED_MAX: Final = 200_000


# -- being there ----------------------------------------------------------------------------------


@decides(commands.Subscribe)
def decide_subscribe(command: commands.Subscribe, state: State, now_us: int) -> Decision:
    check_name(command.name)
    rules.check_start(command.start, command.at)
    found = catalog.find_or_create(state, command.table, kinds.Kind.STREAM)
    table, creation = found
    known = _find(state, table, command.name)
    if known is not None:
        return Decision(_position(known))
    _check_quota(state)
    seq = _start_seq(state, table, command.start, command.at)
    if not isinstance(seq, int):
        return Decision(seq)
    at_end = len(creation) * (command.start == Start.END)
    # An epoch that no subscriber of this name has ever had.
    epoch = state.next_seq + len(creation)
    made = Subscriber(seq + at_end, epoch, now_us, 0, 0)
    position = _position(made, created=True)
    return Decision(position, [*creation, _op(table, command.name, made)])


@decides(commands.Unsubscribe)
def decide_unsubscribe(command: commands.Unsubscribe, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, _ = found
    names = Strings.of([command.name.encode()])
    return catalog.decision(state, [Op(Opcode.UNSUBSCRIBE, table.id, 1, (names,))])


@decides(commands.Rest)
def decide_rest(command: commands.Rest, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, known = found
    changed = known._replace(asleep=int(command.asleep))
    made = [] if changed == known else [_op(table, command.name, changed)]
    return Decision(_position(changed), made)


# -- moving ---------------------------------------------------------------------------------------


@decides(commands.Acknowledge)
def decide_acknowledge(command: commands.Acknowledge, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, known = found
    if command.seq >= state.next_seq:
        text = f"the last seq is {state.next_seq - 1}; seq {command.seq} cannot be processed yet"
        raise RefusedError(Code.BAD_RANGE, text)
    if command.epoch != known.epoch or command.expected not in (-1, known.seq):
        text = (
            f"subscriber {command.name} is at seq {known.seq} of epoch {known.epoch} by now; "
            "read on from there"
        )
        raise RefusedError(Code.STALE_EPOCH, text)
    if command.seq <= known.seq:
        return Decision(_position(known))
    moved = known._replace(seq=command.seq, moved_us=now_us)
    return Decision(_position(moved), [_op(table, command.name, moved)])


@decides(commands.Seek)
def decide_seek(command: commands.Seek, state: State, now_us: int) -> Decision:
    rules.check_start(command.start, command.at)
    found = _known(state, command.table, command.name)
    table, known = found
    seq = _start_seq(state, table, command.start, command.at)
    if not isinstance(seq, int):
        return Decision(seq)
    moved = known._replace(seq=seq, epoch=known.epoch + 1, moved_us=now_us)
    return Decision(_position(moved), [_op(table, command.name, moved)])


def _start_seq(state: State, table: Table, start: int, at: int) -> int | InBlock:
    """Returns the mark of a reader that begins there, or the block that knows it."""
    last = state.next_seq - 1
    if start == Start.BEGINNING:
        return 0
    if start == Start.END:
        return last
    if start == Start.SEQ:
        if at > last + 1:
            text = f"the last seq is {last}; a reader begins at seq {last + 1} at the latest"
            raise RefusedError(Code.BAD_RANGE, text)
        return max(at, 1) - 1
    return _seq_at(state, table, at)


def _seq_at(state: State, table: Table, wall_us: int) -> int | InBlock:
    """Returns the seq before the first message from a moment on."""
    forgotten = history.history_of(state, table.id).forgotten
    for block in history.live_blocks(state, table.prefix):
        if block.first <= forgotten and block.max_us >= wall_us:
            return in_block(table, block, block.first - 1, state.next_seq - 1)
    is_latest = rules.is_latest(table)
    look = _latest_moment if is_latest else _log_moment
    low, high = (1 if is_latest else forgotten + 1), state.next_seq
    # Seqs from `high` on begin too late, or are the ones that are sought.
    while low < high:
        middle = (low + high) // 2
        found = look(state, table, middle)
        if found is None or found[1] >= wall_us:
            high = middle
        else:
            low = found[0] + 1
    return low - 1


def _log_moment(state: State, table: Table, seq: int) -> tuple[int, int] | None:
    """Returns the last seq and the moment of the first append with a seq, or behind it."""
    start = seq_key(table.prefix, seq)
    items = state.scan(Tree.STREAM_OPS, start, layouts.end_of(table.prefix), 1)
    if not items:
        return None
    append = stream_entry.decode_append(*items[0])
    return append.last, append.wall_us


def _latest_moment(state: State, table: Table, seq: int) -> tuple[int, int] | None:
    start = seq_key(table.prefix, seq)
    items = state.scan(Tree.STREAM_SEQS, start, layouts.end_of(table.prefix), 1)
    if not items:
        return None
    (data,) = state.get_many(Tree.KV, [table.prefix + items[0][1]])
    assert data is not None  # both go together
    return stream_entry.seq_of(items[0][0]), stream_entry.moment_of(layout.decode(data))


# -- looking --------------------------------------------------------------------------------------


@decides(commands.ListSubscribers)
def decide_list(command: commands.ListSubscribers, state: State, now_us: int) -> Decision:
    table = rules.find(state, command.table)
    count = rules.count_of(command.count, limits.PAGE_ENTRIES_MAX)
    start = table.prefix + command.start.encode()
    items = state.scan(Tree.SUBSCRIBERS, start, layouts.end_of(table.prefix), count + 1)
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
def decide_lag(command: commands.Lag, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, known = found
    after = known.seq if command.after < 0 else command.after
    block = None
    if not rules.is_latest(table):
        block = history.block_at(state, table, after + 1)
    if block is not None and block.first <= after:
        return Decision(in_block(table, block, after, state.next_seq - 1))
    messages = _ahead(state, table, after)
    names = Strings.of([b"messages", b"seqs"])
    return Decision(Numbers(names=names, values=[messages, state.next_seq - 1 - after]))


def _ahead(state: State, table: Table, after: int) -> int:
    """Returns how many messages there are behind a seq which no block has in its middle."""
    if rules.is_latest(table):
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
    state: State, tree: Tree, table: Table, after: int, rows: Callable[[bytes, bytes], int]
) -> int:
    start, found, examined = seq_key(table.prefix, after + 1), 0, 0
    while examined < _COUNTED_MAX:
        items = state.scan(tree, start, layouts.end_of(table.prefix), _PIECE)
        found += sum(rows(key, data) for key, data in items)
        examined += len(items)
        if len(items) < _PIECE:
            break
        start = items[-1][0] + b"\0"
    return found


# -- one subscriber -------------------------------------------------------------------------------


def _known(state: State, stream: str, name: str) -> tuple[Table, Subscriber]:
    check_name(name)
    table = rules.find(state, stream)
    found = _find(state, table, name)
    if found is None:
        raise RefusedError(Code.NOT_FOUND, f"stream {stream} has no subscriber {name}")
    return table, found


def _find(state: State, table: Table, name: str) -> Subscriber | None:
    (data,) = state.get_many(Tree.SUBSCRIBERS, [table.prefix + name.encode()])
    return stream_entry.decode_subscriber(data) if data else None


def is_there(state: State, table: Table, name: str) -> bool:
    """Says whether a stream has a subscriber of this name."""
    return commands.name_problem(name) is None and _find(state, table, name) is not None


def _check_quota(state: State) -> None:
    if state.size_of(Tree.SUBSCRIBERS) >= limits.SUBSCRIBERS_MAX:
        text = f"there are {limits.SUBSCRIBERS_MAX} subscribers; take some away that nobody needs"
        raise RefusedError(Code.QUOTA, text)


def _op(table: Table, name: str, found: Subscriber) -> Op:
    columns = (
        (found.seq,),
        (found.epoch,),
        (found.moved_us,),
        bytes([found.asleep]),
        Strings.of([name.encode()]),
    )
    return Op(Opcode.SUBSCRIBER, table.id, 1, columns)


def _position(found: Subscriber, *, created: bool = False) -> Position:
    return Position(seq=found.seq, epoch=found.epoch, asleep=bool(found.asleep), created=created)


def in_block(table: Table, block: Block, after: int, until: int) -> InBlock:
    return InBlock(
        table=table.id,
        first=block.first,
        last=block.last,
        name=block.name,
        after=after,
        until=until,
        crc=block.crc,
    )
