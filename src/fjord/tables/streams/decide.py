"""What changes streams: APPEND and ERASE, and all that subscribers do but READ.

Messages come in as one op each, and one op is all that a log does with them.  In mode latest a
message takes the place of the one with its key, at commit: the index never has more than one
message a key.  What was replaced is still in the op that brought it, and so in the history of the
table.  A message with a date takes no place that has a later one, and is then in no op; ties go to
the later message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add
from typing import Final

from fjord import commands, kinds, layouts, limits, ops
from fjord.columns import Strings, repeat
from fjord.commands import Acted, InBlock, Numbers, Position, Subscribers
from fjord.errors import Code, RefusedError
from fjord.history import Block
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.streams import Start
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, BASE_REPLACED
from fjord.tables.rules import check_keys, check_name
from fjord.tables.state import Decision, State, Table, Tree, decides
from fjord.tables.streams import history, rules
from fjord.tables.streams import layout as stream_entry
from fjord.tables.streams.layout import Subscriber, seq_key


@decides(commands.Append)
def decide_append(command: commands.Append, state: State, now_us: int) -> Decision:
    rules.check_append(command, now_us)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.STREAM)
    rules.check_values(command, table)
    if not rules.is_latest(table):
        columns = (command.types, command.keys, command.values)
        op = Op(Opcode.STREAM_APPEND, table.id, len(command.types), columns)
        return catalog.decision(state, [*creation, op])
    keys = command.keys.rows()  # all that follows is faster once they are there
    check_keys(command.keys)
    prefix, seq = table.prefix, state.next_seq + len(creation)
    stored = state.get_many(Tree.KV, [prefix + key for key in keys])
    put = _put if command.timestamps_us is None else _put_dated
    return catalog.decision(state, [*creation, *put(command, table, stored, seq)])


_Stored = Sequence[bytes | None]  # what the index has of the keys of a command


def _put(command: commands.Append, table: Table, stored: _Stored, seq: int) -> list[Op]:
    """Returns the op of messages that replace what is there; the first one gets this seq."""
    sizes = list(map(len, command.values.rows()))
    replaced = _replaced(command.keys.rows(), stored, seq, sizes)
    columns = (*replaced, command.types, command.keys, command.values)
    return [Op(Opcode.STREAM_PUT, table.id, len(command.types), columns)]


def _put_dated(command: commands.Append, table: Table, stored: _Stored, seq: int) -> list[Op]:
    """Does the same for those that are not older than what is there, if there are any."""
    dates = command.timestamps_us
    assert dates is not None
    rows = _winners(command.keys.rows(), stored, dates)
    if not rows:
        return []
    if len(rows) < len(dates):
        command, stored = _only(command, rows), [stored[row] for row in rows]
        dates = [dates[row] for row in rows]
    (op,) = _put(command, table, stored, seq)
    return [op._replace(opcode=Opcode.STREAM_PUT_AT, columns=(dates, *op.columns))]


def _winners(keys: Sequence[bytes], stored: _Stored, dates: Sequence[int]) -> list[int]:
    """Returns the rows that are not older than the entry of their key, nor than a row before."""
    newest = {
        key: layout.decode(data).timestamp_us if data else 0
        for key, data in zip(keys, stored, strict=True)
    }
    rows = []
    for row, (key, date_us) in enumerate(zip(keys, dates, strict=True)):
        if date_us >= newest[key]:
            newest[key] = date_us
            rows.append(row)
    return rows


def _only(command: commands.Append, rows: Sequence[int]) -> commands.Append:
    keys, values = command.keys.rows(), command.values.rows()
    return commands.Append(
        table=command.table,
        types=bytes([command.types[row] for row in rows]),
        keys=Strings.of([keys[row] for row in rows]),
        values=Strings.of([values[row] for row in rows]),
    )


# Of messages that are replaced: their seqs, the seqs that hold them, and their bytes.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int]]


def _replaced(keys: Sequence[bytes], stored: _Stored, seq: int, sizes: Sequence[int]) -> _Replaced:
    """Returns what messages with these keys replace, the first of which gets this seq."""
    found = _taken_apart(keys, stored)
    if len(set(keys)) == len(keys):
        return found
    was, held, freed = map(list, found)
    last: dict[bytes, int] = {}  # where a key was before, in the same command
    for at, key in enumerate(keys):
        before = last.get(key)
        if before is not None:
            was[at] = held[at] = seq + before
            freed[at] = ops.ROW_BYTES + len(key) + sizes[before]
        last[key] = at
    return was, held, freed


def _taken_apart(keys: Sequence[bytes], stored: _Stored) -> _Replaced:
    """Returns what is known of entries, 0 where there are none."""
    row_bytes = ops.ROW_BYTES
    if not any(stored):
        none = repeat(0, len(keys))
        return none, none, none
    if all(stored) and {len(data) for data in stored if data} == {BASE.size}:
        # All of them are as they were first written, as most are.
        joined = b"".join([data for data in stored if data])
        rows, _, old, _ = zip(*BASE_REPLACED.iter_unpack(joined), strict=True)
        return rows, rows, [row_bytes + size for size in map(add, map(len, keys), old)]
    entries = [layout.decode(data) if data else None for data in stored]
    found = [
        (entry.row, entry.held, row_bytes + len(key) + entry.size) if entry else (0, 0, 0)
        for key, entry in zip(keys, entries, strict=True)
    ]
    was, held, freed = zip(*found, strict=True)
    return was, held, freed


@decides(commands.Erase)
def decide_erase(command: commands.Erase, state: State, now_us: int) -> Decision:
    check_keys(command.keys)
    table = rules.find(state, command.table)
    if not rules.is_latest(table):
        text = f"stream {table.name} keeps every message; only mode latest can lose one"
        raise RefusedError(Code.WRONG_KIND, text)
    keys = [table.prefix + key for key in command.keys.rows()]
    entries: dict[bytes, layout.KvEntry] = {}
    missing = []
    for at, (key, data) in enumerate(zip(keys, state.get_many(Tree.KV, keys), strict=True)):
        entry = layout.decode(data) if data else None
        if entry is None or not entry.is_value or key in entries:
            missing.append(at)
        else:
            entries[key] = entry
    made = _erase(table, entries, state.lease_us)
    seq = state.next_seq - 1 + len(entries)
    return Decision(Acted(master=state.master, seq=seq, missing=missing), made)


def _erase(table: Table, entries: dict[bytes, layout.KvEntry], lease_us: int) -> list[Op]:
    rows = [
        (lease_us, entry.row, entry.held, layout.row_bytes(entry, key), key[PREFIX_BYTES:])
        for key, entry in entries.items()
    ]
    return ops.of_rows(Opcode.STREAM_ERASE, table.id, rows)


# -- subscribers: a name and a mark each.  Everything up to the mark is processed -----------------
#
# A mark only goes forward, unless somebody seeks; that begins a new epoch, and whoever still
# acknowledges what was read in the old one is refused.


_PIECE: Final = 1000
# Where more than this lies ahead in the journal, a lag is at least that much.
_COUNTED_MAX: Final = 200_000


@decides(commands.Subscribe)
def decide_subscribe(command: commands.Subscribe, state: State, now_us: int) -> Decision:
    check_name(command.name)
    rules.check_start(command.start, command.at)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.STREAM)
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
    return Decision(position, [*creation, *_op(table, command.name, made)])


@decides(commands.Unsubscribe)
def decide_unsubscribe(command: commands.Unsubscribe, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, _ = found
    gone = ops.of_rows(Opcode.UNSUBSCRIBE, table.id, [(command.name.encode(),)])
    return catalog.decision(state, gone)


@decides(commands.Rest)
def decide_rest(command: commands.Rest, state: State, now_us: int) -> Decision:
    found = _known(state, command.table, command.name)
    table, known = found
    changed = known._replace(asleep=int(command.asleep))
    made = [] if changed == known else _op(table, command.name, changed)
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
    return Decision(_position(moved), _op(table, command.name, moved))


@decides(commands.Seek)
def decide_seek(command: commands.Seek, state: State, now_us: int) -> Decision:
    rules.check_start(command.start, command.at)
    found = _known(state, command.table, command.name)
    table, known = found
    seq = _start_seq(state, table, command.start, command.at)
    if not isinstance(seq, int):
        return Decision(seq)
    moved = known._replace(seq=seq, epoch=known.epoch + 1, moved_us=now_us)
    return Decision(_position(moved), _op(table, command.name, moved))


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


def _op(table: Table, name: str, found: Subscriber) -> list[Op]:
    row = (found.seq, found.epoch, found.moved_us, found.asleep, name.encode())
    return ops.of_rows(Opcode.SUBSCRIBER, table.id, [row])


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
