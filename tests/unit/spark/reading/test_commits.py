"""Ends of commits inside of a block."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fjord import limits
from fjord.client.history import BlockInfo
from fjord.spark import extent
from fjord.spark.extent import CommitEnds, Cut
from tests.unit.spark import parts


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlockInfo:
    """A block of commits with 3, 4, 1 and 5 rows, in parts of 5 rows at most."""
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", 5)
    return parts.one_block(tmp_path, [3, 4, 1, 5])


@pytest.mark.parametrize(
    ("after", "until", "rows_max", "cut"),
    [
        (0, 99, 0, Cut(13, 13)),
        (0, 99, 13, Cut(13, 13)),
        (0, 99, 12, Cut(8, 8)),
        (0, 99, 7, Cut(7, 7)),
        (0, 99, 6, Cut(3, 3)),
        (0, 99, 1, Cut(3, 3)),  # the first one in any case
        (3, 99, 5, Cut(8, 5)),
        (7, 8, 0, Cut(8, 1)),
        (7, 7, 0, Cut(7, 0)),
        (0, 2, 0, Cut(0, 0)),
        (13, 99, 5, Cut(13, 0)),
        (5, 99, 4, Cut(7, 4)),  # inside of a commit: all of that counts again
    ],
)
def test_a_batch_ends_with_a_commit(
    block: BlockInfo, after: int, until: int, rows_max: int, cut: Cut
) -> None:
    assert extent.read_ends(block).cut(after, until, rows_max) == cut


def test_few_blocks_are_kept(tmp_path: Path) -> None:
    blocks = [parts.one_block(tmp_path / str(number), [number + 1]) for number in range(3)]
    ends = CommitEnds("")
    kept = [ends.of(block) for block in blocks]
    assert ends.of(blocks[2]) is kept[2]
    assert ends.of(blocks[1]) is kept[1]
    assert ends.of(blocks[0]) is not kept[0]


def test_a_moment_is_between_two_commits(block: BlockInfo) -> None:
    second = timedelta(seconds=1)
    found = [extent.seq_before(block, block.min_at + number * second) for number in range(5)]
    assert found == [block.first - 1, 3, 7, 8, 13]
    assert extent.seq_before(block, block.min_at + second / 2) == 3
