"""Which blocks become one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord import limits
from fjord.errors import FjordError, NotFoundError
from fjord.spark.options import Location
from fjord.spark.pipelines.compact import compact, plan, tag_of

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def block(number: int, size: int) -> fjord.BlockInfo:
    return fjord.BlockInfo(f"t-1/{number}", "/cold", number, number, 5, size, MOMENT, MOMENT, 7)


def sizes_of(sizes: list[int], *, target_bytes: int = 10, min_blocks: int = 2) -> list[list[int]]:
    blocks = [block(number, size) for number, size in enumerate(sizes)]
    groups = plan(blocks, target_bytes=target_bytes, min_blocks=min_blocks)
    for group in groups:
        assert [one.first for one in group] == list(range(group[0].first, group[-1].last + 1))
    return [[one.bytes for one in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([5, 5], [[5, 5]]),
        ([5, 6], []),
        ([1, 2, 3, 4, 5, 6], [[1, 2, 3, 4]]),
        ([4, 4, 4, 4, 4], [[4, 4], [4, 4]]),
        ([1, 1, 50, 1, 1], [[1, 1], [1, 1]]),  # a large one is left alone, and divides
        ([50, 50], []),
        ([10, 1, 1], [[1, 1]]),
    ],
)
def test_neighbours_are_put_together_while_there_is_room(
    sizes: list[int], expected: list[list[int]]
) -> None:
    assert sizes_of(sizes) == expected


def test_few_blocks_may_not_be_worth_it() -> None:
    assert sizes_of([1, 1, 50, 1, 1, 1], min_blocks=3) == [[1, 1, 1]]


def test_a_group_has_no_more_than_the_node_replaces_at_once() -> None:
    most = limits.BLOCKS_REPLACED_MAX
    found = sizes_of([1] * (2 * most + 1), target_bytes=10**9)
    assert list(map(len, found)) == [most, most]


def test_what_is_put_together_is_planned_no_more() -> None:
    assert sizes_of([6, 6, 6, 6], target_bytes=12) == [[6, 6], [6, 6]]
    assert sizes_of([12, 12], target_bytes=12) == []


def test_a_tag_is_that_of_the_blocks_and_of_no_others() -> None:
    assert tag_of(["a", "b"]) == tag_of(["a", "b"])
    assert len({tag_of(names) for names in (["a", "b"], ["b", "a"], ["ab"], ["a"])}) == 4
    assert 0 <= tag_of(["a"]) < 2**64


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    spark: Any = None  # nothing comes so far
    here = Location.of_path(str(tmp_path / "data"))
    with pytest.raises(FjordError, match="at least 1 byte"):
        compact(spark, here, "t", target_bytes=0)
    with pytest.raises(FjordError, match="2 blocks or more"):
        compact(spark, here, "t", min_blocks=1)
    with fjord.open(here.path) as db:
        db.stream("events").append(b"v")
        db.kv("kv").set("k", 1)
    with pytest.raises(NotFoundError):
        compact(spark, here, "none", dry_run=True)
    with pytest.raises(FjordError, match="kv table"):
        compact(spark, here, "kv", dry_run=True)
    assert compact(spark, here, "events").figures["new_blocks"] == 0
