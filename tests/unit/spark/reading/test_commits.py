"""Ends of commits inside of a block."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fjord import limits
from fjord.client.history import BlockInfo
from fjord.spark import extent
from tests.unit.spark import parts


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlockInfo:
    """A block of commits with 3, 4, 1 and 5 rows, in parts of 5 rows at most."""
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", 5)
    return parts.one_block(tmp_path, [3, 4, 1, 5])


@pytest.mark.parametrize(
    ("after", "until", "rows_max", "cut"),
    [
        (0, 99, 0, (13, 13)),
        (0, 99, 13, (13, 13)),
        (0, 99, 12, (8, 8)),
        (0, 99, 7, (7, 7)),
        (0, 99, 6, (3, 3)),
        (0, 99, 1, (3, 3)),  # the first one in any case
        (3, 99, 5, (8, 5)),
        (7, 8, 0, (8, 1)),
        (7, 7, 0, (7, 0)),
        (0, 2, 0, (0, 0)),
        (13, 99, 5, (13, 0)),
        (5, 99, 4, (7, 4)),  # inside of a commit: all of that counts again
    ],
)
def test_a_batch_ends_with_a_commit(
    block: BlockInfo, after: int, until: int, rows_max: int, cut: tuple[int, int]
) -> None:
    assert extent.read_ends(block).cut(after, until, rows_max) == cut


def test_few_blocks_are_kept(tmp_path: Path) -> None:
    blocks = [parts.one_block(tmp_path / str(number), [number + 1]) for number in range(3)]
    ends = extent.read_ends
    kept = [ends(block) for block in blocks]
    assert ends(blocks[2]) is kept[2]
    assert ends(blocks[1]) is kept[1]
    assert ends(blocks[0]) is not kept[0]


def test_a_moment_is_between_two_commits(block: BlockInfo) -> None:
    second = timedelta(seconds=1)
    found = [extent.seq_before(block, block.min_at + number * second) for number in range(5)]
    assert found == [block.first - 1, 3, 7, 8, 13]
    assert extent.seq_before(block, block.min_at + second / 2) == 3
