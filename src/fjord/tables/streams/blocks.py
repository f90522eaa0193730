"""One cold block takes the place of some that follow each other: all at once, or not at all.

Whoever has written the new block says so; this only compares what is known of it.  The old ones
are kept in a tree of their own until their files are gone, which is later: somebody may have begun
to read them.  A block that is in its place already is left as it is, so asking twice is the same as
asking once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fjord import commands, kinds, limits
from fjord.commands import Refusal, ReplaceBlocks
from fjord.errors import Code
from fjord.history import Block
from fjord.tables import catalog
from fjord.tables.state import Decision, State, Table, decides
from fjord.tables.streams import history
from fjord.tables.streams.layout import Use

# The part of a block's name behind the folder of its table; see `history.block_name`.
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})-[0-9a-f]{16}\Z")


@decides(commands.ReplaceBlocks)
def decide_replace_blocks(command: ReplaceBlocks, state: State, now_us: int) -> Decision:
    problem = commands.name_problem(command.table)
    if problem is not None:
        return Decision(problem)
    table = state.tables.get(command.table)
    if table is None:
        return _refused(Code.NOT_FOUND, f"there is no table {command.table}")
    if table.kind is kinds.Kind.KV:
        text = f"table {command.table} is a kv table; such have no history in blocks"
        return _refused(Code.WRONG_KIND, text)
    if not 1 <= len(command.names) <= limits.BLOCKS_REPLACED_MAX:
        text = f"1 to {limits.BLOCKS_REPLACED_MAX} blocks are replaced by one"
        return _refused(Code.BAD_RANGE, text)
    new = _new_block(table, command)
    if new is None:
        text = f"{command.name[:120]!r} is no name of a block of table {table.name}"
        return _refused(Code.BAD_NAME, text)
    old = _blocks_inside(state, table, new)
    if old == [new]:
        return catalog.decision(state, ())  # that was done before
    wrong = _difference(command, new, old)
    if wrong:
        return _refused(Code.BAD_RANGE, f"{wrong}; list the blocks of table {table.name} again")
    replaced = [block._replace(max_us=now_us) for block in old]
    made = [
        *history.gone_ops(old),
        *history.block_ops(replaced, Use.REPLACED),
        *history.block_ops([new], Use.LIVE),
    ]
    return catalog.decision(state, made)


def _new_block(table: Table, command: ReplaceBlocks) -> Block | None:
    """Returns the block that is to be there from now on; None if it has no name of one."""
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


def _blocks_inside(state: State, table: Table, new: Block) -> list[Block]:
    """Returns the blocks in use that end between the edges of another one."""
    found: list[Block] = []
    for block in history.live_blocks(state, table.prefix, new.first):
        if block.last > new.last or len(found) > limits.BLOCKS_REPLACED_MAX:
            break
        found.append(block)
    return found


def _difference(command: ReplaceBlocks, new: Block, old: Sequence[Block]) -> str:
    """Says why a block cannot take the place of others; nothing if it can."""
    if [block.name for block in old] != list(command.names):
        return "these are not the blocks that are there now, in their order and without a gap"
    if new.name in command.names:
        return "a block does not take its own place"
    if (old[0].first, old[-1].last) != (new.first, new.last):
        return f"the new block does not cover seqs {old[0].first} to {old[-1].last}"
    rows = sum(block.rows for block in old)
    if rows != new.rows:
        return f"the new block has {new.rows} rows, the old ones have {rows}"
    moments = min(block.min_us for block in old), max(block.max_us for block in old)
    if moments != (new.min_us, new.max_us):
        return "the rows of the new block are of another time"
    return ""


def _refused(code: Code, text: str) -> Decision:
    return Decision(Refusal(code=code, text=text))
