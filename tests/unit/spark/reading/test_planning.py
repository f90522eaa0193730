"""Planning: every row is in one task, and tasks are even."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

from fjord.client.history import BlockInfo
from fjord.spark import source
from fjord.spark.options import PARTITIONS_MAX
from fjord.spark.source import ColdPartition, Share, TailPartition
from tests.unit.spark import parts

BLOCKS = [parts.block(1, 1000, 600), parts.block(1001, 1500, 300), parts.block(1501, 4000, 2100)]


def plan(
    start: int, end: int, blocks: list[BlockInfo], tail_rows: int, **sizes: int
) -> tuple[list[ColdPartition], list[TailPartition]]:
    found = source.plan(parts.wanted(**sizes), start, end, blocks, tail_rows)
    cold = [one for one in found if isinstance(one, ColdPartition)]
    tail = [one for one in found if isinstance(one, TailPartition)]
    assert len(cold) + len(tail) == len(found)
    assert pickle.loads(pickle.dumps(found)) == found
    return cold, tail


def rows_of(found: ColdPartition) -> int:
    return sum(share.end_row - share.start_row for share in found.shares)


def test_small_blocks_share_a_task_and_large_ones_are_split() -> None:
    cold, tail = plan(1, 4001, BLOCKS, 0, partition_rows=1000)
    assert tail == []
    assert [rows_of(one) for one in cold] == [1000, 1000, 1000]
    assert cold[0].shares == (
        Share(BLOCKS[0], 0, 600),
        Share(BLOCKS[1], 0, 300),
        Share(BLOCKS[2], 0, 100),
    )
    assert [one.shares for one in cold[1:]] == [
        (Share(BLOCKS[2], 100, 1100),),
        (Share(BLOCKS[2], 1100, 2100),),
    ]


def test_what_is_behind_the_last_block_is_the_tail() -> None:
    cold, tail = plan(3900, 9001, BLOCKS, 2100, partition_rows=700)
    assert [rows_of(one) for one in cold] == [700, 700, 700]
    assert [(one.start_seq, one.end_seq) for one in tail] == [
        (4001, 5667),
        (5667, 7334),
        (7334, 9001),
    ]


@pytest.mark.parametrize(
    ("wanted", "tail_rows", "counts"),
    [(8, 3000, (4, 4)), (1, 3000, (1, 1)), (6, 1, (5, 1)), (5, 0, (5, 0))],
)
def test_a_wanted_number_is_shared_by_rows(
    wanted: int, tail_rows: int, counts: tuple[int, int]
) -> None:
    cold, tail = plan(1, 9001, BLOCKS, tail_rows, partitions=wanted)
    assert (len(cold), len(tail)) == counts


def test_nothing_is_no_task() -> None:
    assert plan(5, 5, [], 0) == ([], [])
    assert plan(5, 9, [], 0) == ([], [])
    assert plan(5000, 5000, BLOCKS, 7) == ([], [])


def test_there_are_never_more_tasks_than_seqs_or_than_the_bound() -> None:
    assert len(plan(1, 4, [], 3, partitions=9)[1]) == 3
    assert len(plan(1, 10**9, [], 10**9, partition_rows=1)[1]) == PARTITIONS_MAX


@pytest.mark.parametrize(("start", "end", "count"), [(1, 2, 1), (1, 11, 3), (5, 1005, 32)])
def test_edges_are_even_and_meet(start: int, end: int, count: int) -> None:
    found = source.edges(start, end, count)
    lengths = [after - before for before, after in pairwise(found)]
    assert (found[0], found[-1], len(lengths)) == (start, end, count)
    assert max(lengths) - min(lengths) <= 1


def test_only_blocks_of_the_range_are_read() -> None:
    cold, tail = plan(1001, 1501, BLOCKS, 0)
    assert [one.shares for one in cold] == [(Share(BLOCKS[1], 0, 300),)]
    assert (cold[0].start_seq, cold[0].end_seq, tail) == (1001, 1501, [])
    assert [one.shares for one in plan(1500, 1501, BLOCKS, 0)[0]] == [(Share(BLOCKS[1], 0, 300),)]
