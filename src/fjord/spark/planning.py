"""How a range of seqs is cut into tasks of Spark: pure.

    blocks   |-- 1 --|---- 2 ----|-- 3 --|            cold: files that tasks read themselves
    journal                          |---------->     tail: what only the daemon has
    range         [start .......................end)
    tasks         |  a  |  b  |  c  |   d   |   e  |

Everything up to the end of the last block is read from blocks, the rest from the tail.  Rows are
what makes tasks even: those of blocks are known, those of the tail are counted by the node.  Tail
tasks are ranges of seqs of one length, since nobody knows more of them.

A cold task has some blocks, or a share of one.  A file is made of parts (row groups), and which of
them belong to a share is decided where the file is opened: those whose first row is in it.  So
every part is read by one task, although nobody looks into a file to plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from fjord.client.history import BlockInfo
from fjord.spark.declared import NOT_TYPED, Typed
from fjord.spark.options import PARTITIONS_MAX, ROWS_PER_PARTITION, Location

# No row has a smaller seq: seq 1 is the note of the first writer that it has begun.  Where a
# beginning is given, seq 1 means that of what is left; this one means just itself.
FIRST_ROW: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of the rows of a range, the same for all of its tasks."""

    location: Location
    table: str
    columns: tuple[str, ...]  # in order
    typed: Typed = NOT_TYPED  # those of them that are declared
    blocks: str = ""  # where blocks are, if not where the node says
    has_history: bool = False  # only rows that blocks have too
    ops: frozenset[str] = frozenset()  # empty: all
    key_prefix: bytes = b""
    fails_on_loss: bool = True


class Share(NamedTuple):
    """Some rows of one block."""

    block: BlockInfo
    start_row: int  # parts that begin from here on
    end_row: int  # up to before here


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPartition(InputPartition):
    """A task that reads blocks."""

    wanted: Wanted
    shares: tuple[Share, ...]
    start_seq: int
    end_seq: int  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPartition(InputPartition):
    """A task that asks the daemon, or reads the journal of a directory."""

    wanted: Wanted
    start_seq: int
    end_seq: int  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestPartition(InputPartition):
    """The task that reads the current value of each key."""

    wanted: Wanted


class Sizes(NamedTuple):
    """How large tasks should be."""

    tail_rows: int  # how many rows there are behind the last block, about
    partitions: int = 0  # how many tasks; 0 = as many as `partition_rows` makes
    partition_rows: int = ROWS_PER_PARTITION


def plan(
    wanted: Wanted,
    start_seq: int,
    end_seq: int,
    blocks: Sequence[BlockInfo],
    sizes: Sizes,
) -> list[InputPartition]:
    """Returns the tasks that read the rows from `start_seq` up to before `end_seq`.

    Assumes that `blocks` are all of the table, in order.
    """
    tail_start = max(start_seq, cold_end(blocks) + 1)
    cold = [block for block in blocks if block.last >= start_seq and block.first < end_seq]
    cold_rows = sum(block.rows for block in cold)
    tail_rows = sizes.tail_rows if tail_start < end_seq else 0
    rows = cold_rows + tail_rows
    count = min(sizes.partitions or -(-rows // sizes.partition_rows), PARTITIONS_MAX)
    tail_count = max(1, round(count * tail_rows / rows)) if tail_rows else 0
    cold_count = max(1, count - tail_count)
    made: list[InputPartition] = [
        ColdPartition(wanted=wanted, shares=shares, start_seq=start_seq, end_seq=end_seq)
        for shares in shared(cold, cold_count)
    ]
    bounds = edges(tail_start, end_seq, min(tail_count, end_seq - tail_start))
    made += [
        TailPartition(wanted=wanted, start_seq=start, end_seq=end)
        for start, end in pairwise(bounds)
    ]
    return made


def cold_end(blocks: Sequence[BlockInfo]) -> int:
    """Returns the last seq that is in a block, 0 if there are none."""
    return blocks[-1].last if blocks else 0


def shared(blocks: Sequence[BlockInfo], count: int) -> list[tuple[Share, ...]]:
    """Returns the rows of blocks in `count` shares, as even as can be; fewer if rows are few."""
    total = sum(block.rows for block in blocks)
    made: list[tuple[Share, ...]] = []
    bounds = edges(0, total, min(count, total))
    for start, end in pairwise(bounds):
        shares, position = [], 0
        for block in blocks:
            low, high = max(start - position, 0), min(end - position, block.rows)
            if low < high:
                shares.append(Share(block, low, high))
            position += block.rows
        made.append(tuple(shares))
    return made


def edges(start: int, end: int, count: int) -> list[int]:
    """Returns the bounds of `count` ranges, as even as can be, that together are the range."""
    if count < 1:
        return []
    length = end - start
    return [start + length * number // count for number in range(count + 1)]
