"""The life of a table's history in cold blocks: sealing, retention and replacement.

    HISTORY (sealing = last)  -> blocks are written elsewhere -> BLOCK*, HISTORY (sealed = last)
      -> STREAM_FORGET*, HISTORY (forgotten)                     bit by bit, see `sweep`
    BLOCK (retired)           -> its files are removed        -> BLOCK_GONE
    BLOCK_GONE*, BLOCK (replaced)*, BLOCK (live)              one block replaces some
      -> after a while their files are removed                -> BLOCK (removed)*

The range comes first, so that after a crash the same blocks are written again, under the same
names.  Messages up to `forgotten` are read from blocks, later ones from the journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Final

from fjord import commands, jobs, kinds, limits, ops, streams
from fjord.columns import Strings
from fjord.commands import BlockList, ReplaceBlocks
from fjord.commands.layout import Command, internal
from fjord.errors import Code, RefusedError
from fjord.history import Block, SealPlan
from fjord.layouts import PREFIX_BYTES, Scan, end_of, firsts, pages, prefix_of
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.state import Decision, Table, Tree, View, decides
from fjord.tables.streams import layout
from fjord.tables.streams.layout import History, Use, seq_key

_PIECE: Final = 256


@internal(frees=True)
class BeginSeal(Command):
    """Fixes the ranges of tables to be written to blocks."""

    lasts: Sequence[tuple[int, int]]  # table, seq
    tag: int


@internal(frees=True)
class EndSeal(Command):
    """Records blocks that are written; their ranges are the fixed ones."""

    plan: SealPlan
    blocks: Sequence[Block]


@internal(frees=True)
class Retire(Command):
    """Takes blocks out of use; their files can then be removed."""

    blocks: Sequence[Block]


@internal(frees=True)
class Gone(Command):
    """Records that the files of blocks are removed."""

    blocks: Sequence[Block]


def has_history(table: Table, *, jobs_too: bool) -> bool:
    """Returns whether segments must stay until the rows of this table are in blocks."""
    if table.kind is kinds.Kind.STREAM:
        has_blocks = streams.decode_settings(table.settings).history
        return has_blocks and (jobs_too or not table.is_latest)
    if table.kind is kinds.Kind.JOBS:
        return jobs_too and jobs.decode_settings(table.settings).history
    return False


def history_of(state: View, table_id: int) -> History:
    (data,) = state.get_many(Tree.HISTORY, [prefix_of(table_id)])
    return layout.decode_history(data)


# -- sealing --------------------------------------------------------------------------------------


@decides(BeginSeal)
def decide_begin_seal(command: BeginSeal, state: View, now_us: int) -> Decision:
    made: list[Op] = []
    for table_id, last in command.lasts:
        found = history_of(state, table_id)
        if not found.sealing and last > found.sealed:
            made += _history_op(table_id, found._replace(sealing=last, tag=command.tag))
    return catalog.decision(state, made)


@decides(EndSeal)
def decide_end_seal(command: EndSeal, state: View, now_us: int) -> Decision:
    made: list[Op] = []
    for where in command.plan.ranges:
        blocks = [block for block in command.blocks if block.table == where.table]
        if not catalog.is_there(state, where.table):
            made += block_ops(blocks, Use.RETIRED)  # the table was dropped meanwhile
            continue
        found = history_of(state, where.table)
        if (found.sealing, found.tag) == (where.last, where.tag):  # else it was recorded before
            done = found._replace(sealed=where.last, sealing=0, tag=0)
            made += (*block_ops(blocks, Use.LIVE), *_history_op(where.table, done))
    return catalog.decision(state, made)


def _history_op(table_id: int, found: History) -> list[Op]:
    row = (found.sealed, found.forgotten, found.sealing, found.tag)
    return ops.of_rows(Opcode.HISTORY, table_id, [row])


def block_ops(blocks: Sequence[Block], use: Use) -> list[Op]:
    """Returns the ops that record blocks, one per table."""
    rows = [(block.table, (*block[1:-1], use, block.name.encode())) for block in blocks]
    return _by_table(Opcode.BLOCK, rows)


# -- retention ------------------------------------------------------------------------------------


@decides(Retire)
def decide_retire(command: Retire, state: View, now_us: int) -> Decision:
    return catalog.decision(state, block_ops(command.blocks, Use.RETIRED))


@decides(Gone)
def decide_gone(command: Gone, state: View, now_us: int) -> Decision:
    keys = [layout.replaced_key(block) for block in command.blocks]
    known = zip(command.blocks, state.get_many(Tree.REPLACED, keys), strict=True)
    replaced = {block: None for block, data in known if data is not None}
    others = [block for block in command.blocks if block not in replaced]
    return catalog.decision(state, [*gone_ops(others), *block_ops(list(replaced), Use.REMOVED)])


def gone_ops(blocks: Sequence[Block]) -> list[Op]:
    return _by_table(Opcode.BLOCK_GONE, [(block.table, (block.last,)) for block in blocks])


def _by_table(opcode: Opcode, rows: Iterable[tuple[int, tuple[Any, ...]]]) -> list[Op]:
    """Returns one op per table of these rows."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for table_id, row in rows:
        found.setdefault(table_id, []).append(row)
    return [op for id_, listed in found.items() for op in ops.of_rows(opcode, id_, listed)]


def outdated(table: Table, blocks: Sequence[Block], now_us: int) -> list[Block]:
    """Returns the blocks that retention removes, the oldest first."""
    settings = streams.decode_settings(table.settings)
    size = sum(block.bytes for block in blocks)
    gone = []
    for block in blocks:
        is_old = settings.retention_us and block.max_us + settings.retention_us < now_us
        is_too_much = 0 < settings.retention_bytes < size and block is not blocks[-1]
        if not is_old and not is_too_much:
            break
        gone.append(block)
        size -= block.bytes
    return gone


# -- looking blocks up ----------------------------------------------------------------------------


def block_at(state: View, table: Table, seq: int) -> Block | None:
    """Returns the block with the first message from a seq on; None: it is in the journal."""
    if seq > history_of(state, table.id).forgotten:
        return None
    return next(live_blocks(state, table.prefix, seq), None)


def live_blocks(state: View, prefix: bytes, seq: int = 0) -> Iterator[Block]:
    """Yields the blocks in use of a table that end at a seq or after it, in order."""
    return (block for block, is_retired in all_items(state.scan, prefix, seq) if not is_retired)


def all_items(
    scan: Scan, prefix: bytes = b"", seq: int = 0, tree: Tree = Tree.BLOCKS
) -> Iterator[tuple[Block, bool]]:
    """Yields the blocks of one table from a seq on, or all, each with whether it is retired."""
    start, stop = (seq_key(prefix, seq), end_of(prefix)) if prefix else (b"", None)
    for items in pages(scan, tree, start, stop, _PIECE):
        yield from (layout.decode_block(key, data) for key, data in items)


def replaced_blocks(scan: Scan) -> Iterator[Block]:
    """Yields all replaced blocks; the max time of each is when it was replaced."""
    return (block for block, _ in all_items(scan, tree=Tree.REPLACED))


def first_blocks(scan: Scan) -> list[tuple[Block, bool]]:
    """Returns the first block of each table that has blocks, and whether it is retired."""
    return [layout.decode_block(*item) for item in firsts(scan, Tree.BLOCKS)]


@decides(commands.ListBlocks)
def decide_list_blocks(command: commands.ListBlocks, state: View, now_us: int) -> Decision:
    table = _find(state, command.table)
    count = min(command.count or limits.BLOCKS_LISTED_MAX, limits.BLOCKS_LISTED_MAX)
    found = list(islice(live_blocks(state, table.prefix, command.after + 1), count + 1))
    return Decision(_block_list(state.location, found[:count], is_more=len(found) > count))


def _find(state: View, name: str) -> Table:
    """Returns a table that may have blocks."""
    table = catalog.find_any(state.tables, name)
    if table.kind is kinds.Kind.KV:
        text = f"table {name} is a kv table; kv tables have no blocks"
        raise RefusedError(Code.WRONG_KIND, text)
    return table


def _block_list(location: str, blocks: Sequence[Block], *, is_more: bool) -> BlockList:
    return BlockList(
        location=location,
        firsts=[block.first for block in blocks],
        lasts=[block.last for block in blocks],
        rows=[block.rows for block in blocks],
        sizes=[block.bytes for block in blocks],
        min_us=[block.min_us for block in blocks],
        max_us=[block.max_us for block in blocks],
        crcs=[block.crc for block in blocks],
        names=Strings.of([block.name.encode() for block in blocks]),
        next_after=blocks[-1].last if is_more else 0,
    )


# -- forgetting rows that are in blocks -----------------------------------------------------------


def sweep(state: View, limit: int) -> list[Op]:
    """Returns the ops that forget appends that are in blocks; none if nothing is left."""
    for key, data in state.scan(Tree.HISTORY, b"", None, limits.TABLES_MAX):
        found = layout.decode_history(data)
        if found.forgotten < found.sealed:
            table_id = int.from_bytes(key, "big")
            items = state.scan(
                Tree.STREAM_OPS, seq_key(key, 0), seq_key(key, found.sealed + 1), limit
            )
            up_to = layout.seq_of(items[-1][0]) if len(items) == limit else found.sealed
            changed = _history_op(table_id, found._replace(forgotten=up_to))
            return [*_forget(table_id, items), *changed]
    return []


def sweep_dropped(state: View, table_id: int, limit: int) -> list[Op]:
    """Returns the ops that forget appends and subscribers of a dropped table."""
    prefix = prefix_of(table_id)
    items = state.scan(Tree.STREAM_OPS, prefix, end_of(prefix), limit)
    if items:
        return _forget(table_id, items)
    retired = [block for block, gone in all_items(state.scan, prefix) if not gone][:limit]
    if retired:
        return block_ops(retired, Use.RETIRED)
    left = state.scan(Tree.SUBSCRIBERS, prefix, end_of(prefix), limit)
    return ops.of_rows(Opcode.UNSUBSCRIBE, table_id, [(key[PREFIX_BYTES:],) for key, _ in left])


def has_blocks(state: View, table_id: int) -> bool:
    """Returns whether a table has blocks, retired ones included."""
    prefix = prefix_of(table_id)
    trees = (Tree.BLOCKS, Tree.REPLACED)
    return any(state.scan(tree, prefix, end_of(prefix), 1) for tree in trees)


def _forget(table_id: int, items: Iterable[tuple[bytes, bytes]]) -> list[Op]:
    appends = [layout.decode_append(key, data) for key, data in items]
    # Stages hold nothing any more; their contents were counted with the appends.
    stages = [(one.stage, 0) for one in appends if one.stage]
    return [
        *ops.of_rows(Opcode.STREAM_FORGET, table_id, [(one.last, one.size) for one in appends]),
        *ops.of_rows(Opcode.STAGE_GONE, table_id, stages),
    ]


# -- what is still live, for packing --------------------------------------------------------------


def keep_history(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    return [op] if history_of(state, op.table).held == place.seq else ()


def keep_block(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Rewrites blocks in their current state."""
    prefix = prefix_of(op.table)
    columns: Any = [op.column(name) for name in ("last", "is_retired", "name")]
    made: list[Op] = []
    for last, use, name in zip(*columns, strict=True):
        tree, key = Tree.BLOCKS, seq_key(prefix, last)
        if use in (Use.REPLACED, Use.REMOVED):
            tree, key = Tree.REPLACED, key + name
        (data,) = state.get_many(tree, [key])
        if data is not None:
            block, is_retired = layout.decode_block(key, data)
            now = Use.REPLACED if tree is Tree.REPLACED else Use(is_retired)
            made += block_ops([block], now)
    return made


# -------------------------------------------------------------------------------------------------
#
# One cold block replaces some that follow each other: all at once, or not at all.
#
# The client has written the new block; this only compares what is known of it.  The old blocks are
# kept in a tree of their own until their files are removed, which is later: somebody may have begun
# to read them.  A block that is already in its place is left unchanged, so the command can be
# repeated.


# The part of a block's name after the folder of its table; see `history.block_name`.
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})-[0-9a-f]{16}\Z")


@decides(commands.ReplaceBlocks)
def decide_replace_blocks(command: ReplaceBlocks, state: View, now_us: int) -> Decision:
    table = _find(state, command.table)
    if not 1 <= len(command.names) <= limits.BLOCKS_REPLACED_MAX:
        text = f"one block can replace 1 to {limits.BLOCKS_REPLACED_MAX} blocks"
        raise RefusedError(Code.BAD_RANGE, text)
    new = _new_block(table, command)
    if new is None:
        text = f"{command.name[:120]!r} is not the name of a block of table {table.name}"
        raise RefusedError(Code.BAD_NAME, text)
    old = _blocks_inside(state, table, new)
    if old == [new]:
        return catalog.decision(state, ())  # already done
    wrong = _difference(command, new, old)
    if wrong:
        raise RefusedError(Code.BAD_RANGE, f"{wrong}; list the blocks of table {table.name} again")
    replaced = [block._replace(max_us=now_us) for block in old]
    made = [*gone_ops(old), *block_ops(replaced, Use.REPLACED), *block_ops([new], Use.LIVE)]
    return catalog.decision(state, made)


def _new_block(table: Table, command: ReplaceBlocks) -> Block | None:
    """Returns the new block; None if its name is invalid."""
    folder, _, rest = command.name.partition("/")
    edges = _NAME.match(rest)
    if edges is None or folder != f"{table.name}-{table.id}":
        return None
    return Block(
        table=table.id,
        first=int(edges[1]),
        last=int(edges[2]),
        rows=command.rows,
        bytes=command.size,
        min_us=command.min_us,
        max_us=command.max_us,
        crc=command.crc,
        name=command.name,
    )


def _blocks_inside(state: View, table: Table, new: Block) -> list[Block]:
    """Returns the blocks in use that end within the range of another one."""
    found = islice(live_blocks(state, table.prefix, new.first), limits.BLOCKS_REPLACED_MAX + 1)
    return list(takewhile(lambda block: block.last <= new.last, found))


def _difference(command: ReplaceBlocks, new: Block, old: Sequence[Block]) -> str:
    """Returns why a block cannot replace others; empty if it can."""
    if [block.name for block in old] != list(command.names):
        return "these are not the current blocks, in order and without a gap"
    if new.name in command.names:
        return "a block cannot replace itself"
    if (old[0].first, old[-1].last) != (new.first, new.last):
        return f"the new block does not cover seqs {old[0].first} to {old[-1].last}"
    rows = sum(block.rows for block in old)
    if rows != new.rows:
        return f"the new block has {new.rows} rows, the old ones have {rows}"
    moments = min(block.min_us for block in old), max(block.max_us for block in old)
    if moments != (new.min_us, new.max_us):
        return "the rows of the new block have other times"
    return ""
