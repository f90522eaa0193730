"""A node's own blocks: written by a child that ends when it is told to, or with its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fjord import disk as disks
from fjord.blocks import child
from fjord.blocks.child import NodeBlocks
from fjord.blocks.store import Catalog, Store
from fjord.disk import LocalDisk
from fjord.errors import ClosedError, CorruptionError, FjordError
from fjord.history import Block, SealPlan
from tests.unit.blocks import sealed

SECONDS_MAX = 20.0


@pytest.fixture
def journal(tmp_path: Path) -> sealed.Journal:
    found = sealed.Journal(LocalDisk(), str(tmp_path / "journal"))
    for first in range(0, 30, 10):
        found.commit(sealed.append(sealed.messages(10, first)))
    return found


@pytest.fixture
def plan(journal: sealed.Journal) -> SealPlan:
    return SealPlan(sealed.SHARD, [journal.range(block_rows=10)])


def become(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Lets children run another program."""
    monkeypatch.setattr(child, "argv", lambda: [sys.executable, "-c", program])


def test_blocks_are_written_read_and_removed(
    journal: sealed.Journal, plan: SealPlan, tmp_path: Path
) -> None:
    one = NodeBlocks(str(tmp_path / "cold"))
    blocks = one.write(journal.directory, plan)
    assert blocks == journal.seal(sealed.memory_store(), *plan.ranges)
    assert one.write(journal.directory, plan) == blocks  # and again
    assert one.missing(blocks) == []
    cold = one.make_cold()
    assert cold.read(sealed.where(blocks[0]), sealed.read()).rows == 10
    cold.close()
    one.remove(blocks[:2])
    one.remove(blocks[:2])  # after a crash
    assert one.missing(blocks) == [block.name for block in blocks[:2]]


@pytest.mark.req("SJ-19")
@pytest.mark.parametrize("wipes", [True, False])
def test_files_are_overwritten_before_they_go_if_that_is_wanted(
    journal: sealed.Journal, plan: SealPlan, tmp_path: Path, *, wipes: bool
) -> None:
    one = NodeBlocks(str(tmp_path / "cold"))
    blocks = one.write(journal.directory, plan)
    files = list((tmp_path / "cold").rglob(f"*{blocks[0].name.rpartition('/')[2]}*"))
    assert len(files) == 2
    for file in files:
        (tmp_path / f"twin{file.suffix}").hardlink_to(file)
    one.remove(blocks[:1], wipes=wipes)
    one.remove(blocks[:1], wipes=wipes)  # after a crash
    assert not any(file.exists() for file in files)
    left = [path.read_bytes() for path in tmp_path.glob("twin*")]
    assert [not data.strip(b"\0") for data in left] == [wipes, wipes]
    assert all(left)


@pytest.mark.req("SJ-19")
def test_nobody_finds_a_block_that_is_overwritten_and_a_crash_leaves_nothing(
    journal: sealed.Journal, plan: SealPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = NodeBlocks(str(tmp_path / "cold"))
    blocks = one.write(journal.directory, plan)
    catalog = Catalog(Store(str(tmp_path / "cold")))
    found: list[int] = []
    overwrite = disks.overwrite

    def crash(disk: disks.Disk, path: str) -> None:
        overwrite(disk, path)
        found.append(len(catalog.list()))  # which raises if one is damaged
        raise OSError("power is gone")

    monkeypatch.setattr(disks, "overwrite", crash)
    for _ in range(2):
        with pytest.raises(OSError, match="power"):
            one.remove(blocks[:1], wipes=True)
    monkeypatch.setattr(disks, "overwrite", overwrite)
    one.remove(blocks[:1], wipes=True)
    assert found == [len(blocks) - 1] * 2
    assert not list((tmp_path / "cold").rglob(f"*{blocks[0].name.rpartition('/')[2]}*"))


def test_what_only_this_process_sees_is_written_here(
    journal: sealed.Journal, plan: SealPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, "raise SystemExit(1)")
    location = "memory://shelf"
    blocks = NodeBlocks(location).write(journal.directory, plan)
    assert len(blocks) == 3
    assert all(Store(location).exists(block.name) for block in blocks)


def test_damage_is_told_as_what_it_is(
    journal: sealed.Journal, plan: SealPlan, tmp_path: Path
) -> None:
    segment = Path(journal.directory) / f"{1:010d}.seg"
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError) as found:
        NodeBlocks(str(tmp_path / "cold")).write(journal.directory, plan)
    assert found.value.path == str(segment)


def test_the_last_complaint_of_a_child_is_told(
    plan: SealPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(
        monkeypatch,
        "import sys; sys.stderr.write('noise\\n' * 100_000 + 'no memory left\\n'); sys.exit(3)",
    )
    with pytest.raises(FjordError, match=r"exit code 3 .*: no memory left"):
        NodeBlocks(str(tmp_path)).write("journal", plan)


def test_a_child_that_dies_before_it_reads_is_an_error(
    journal: sealed.Journal, plan: SealPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, "import sys; sys.stdin.close(); sys.exit(7)")
    with pytest.raises(FjordError, match="7"):
        child.run_child(journal.directory, plan, "x" * 1_000_000)  # more than a pipe holds


def test_a_stop_ends_the_child(
    plan: SealPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, one = tmp_path / "begun", NodeBlocks(str(tmp_path))
    os.mkfifo(begun)
    read = "sys.stdin.readline()"
    become(monkeypatch, f"import sys; {read}; open({str(begun)!r}, 'w').close(); {read}")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(one.write, "journal", plan)
        assert begun.read_text() == ""  # the child has its request, and waits
        one.stop()
        with pytest.raises(ClosedError):
            writing.result(SECONDS_MAX)
    become(monkeypatch, "pass")
    with pytest.raises(ClosedError):
        one.write("journal", plan)


def test_a_child_ends_with_its_parent() -> None:
    program = (
        "import threading; from fjord.blocks.child import _end_with_parent as watch\n"
        "threading.Thread(target=watch).start(); print('begun', flush=True)\n"
        "threading.Event().wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 1


# -- what a child is told, and tells --------------------------------------------------------------


def test_a_place_that_cannot_be_written_is_told(
    journal: sealed.Journal, plan: SealPlan, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(FjordError, match=r"blocks could not be written: .*Not a directory"):
        child.run_child(journal.directory, plan, str(tmp_path / "file" / "cold"))


def test_a_request_that_means_nothing_is_told_on_one_line() -> None:
    done = subprocess.run(child.argv(), input=b"{}", capture_output=True, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    with pytest.raises(FjordError, match="blocks could not be written"):
        child.read_answer([line], done.returncode)


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
