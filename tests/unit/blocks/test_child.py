"""The child process: the same blocks, and errors that say what they are."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fjord.blocks import child
from fjord.blocks.store import Catalog, Store
from fjord.disk import LocalDisk
from fjord.errors import CorruptionError, FjordError
from fjord.history import Block, SealPlan
from tests.unit.blocks import sealed


@pytest.fixture
def journal(tmp_path: Path) -> sealed.Journal:
    found = sealed.Journal(LocalDisk(), str(tmp_path / "journal"))
    for first in range(0, 30, 10):
        found.commit(sealed.append(sealed.messages(10, first)))
    return found


def plan_of(journal: sealed.Journal) -> SealPlan:
    return SealPlan(sealed.SHARD, [journal.range(block_rows=10)])


def test_a_child_writes_the_same_blocks(journal: sealed.Journal, tmp_path: Path) -> None:
    location = str(tmp_path / "cold")
    blocks = child.run_child(journal.directory, plan_of(journal), location)
    assert blocks == journal.seal(sealed.memory_store(), *plan_of(journal).ranges)
    for block in blocks:
        assert Catalog(Store(location)).verify(block.name).rows == 10


def test_damage_is_told_as_what_it_is(journal: sealed.Journal, tmp_path: Path) -> None:
    segment = Path(journal.directory) / f"{1:010d}.seg"
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError, match="not readable") as found:
        child.run_child(journal.directory, plan_of(journal), str(tmp_path / "cold"))
    assert found.value.path == str(segment)


def test_a_place_that_cannot_be_written_is_told(journal: sealed.Journal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(FjordError, match=r"blocks could not be written: .*Not a directory"):
        child.run_child(journal.directory, plan_of(journal), str(tmp_path / "file" / "cold"))


def test_a_request_that_means_nothing_is_told_on_one_line() -> None:
    done = subprocess.run(child.argv(), input=b"{}", capture_output=True, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    with pytest.raises(FjordError, match="blocks could not be written"):
        child.read_answer([line], done.returncode)


def test_a_request_is_read_back(journal: sealed.Journal) -> None:
    plan = plan_of(journal)
    data = child.request("/data/journal", plan, "memory://x")
    assert child.read_request(data) == ("/data/journal", plan, "memory://x")


def test_a_child_that_dies_is_an_error() -> None:
    block = Block(7, 1, 2, 2, 100, 5, 6, 7, "name")
    lines = [json.dumps({"block": block._asdict()}).encode()]
    with pytest.raises(FjordError, match="ended with exit code -9"):
        child.read_answer(lines, -9)
    with pytest.raises(FjordError, match="ended with exit code 0"):
        child.read_answer(lines, 0)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[]", b"7", b"{}", b'{"block": 7}'])
def test_a_line_that_means_nothing_is_an_error(line: bytes) -> None:
    with pytest.raises(FjordError, match="unexpected output"):
        child.read_answer([line], 0)
