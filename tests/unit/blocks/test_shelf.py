"""A node's own blocks: written by a child that ends when it is told to, or with its parent."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fjord import disk as disks
from fjord.blocks import child
from fjord.blocks.child import NodeBlocks
from fjord.blocks.store import Catalog, Store
from fjord.commands import InBlock, Read
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
    first = blocks[0]
    where = InBlock(
        table=first.table,
        first=first.first,
        last=first.last,
        name=first.name,
        after=0,
        until=first.last,
        crc=first.crc,
    )
    cold = one.make_cold()
    assert cold.read(where, Read(table="t", after=0)).rows == 10
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


def test_a_stop_ends_the_child(
    plan: SealPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(
        monkeypatch,
        "import sys; sys.stdin.readline(); print('{}', flush=True); sys.stdin.readline()",
    )
    begun = threading.Event()
    begin = NodeBlocks._begin

    def note(blocks: NodeBlocks, process: subprocess.Popen[bytes]) -> None:
        begin(blocks, process)
        begun.set()

    monkeypatch.setattr(NodeBlocks, "_begin", note)
    one = NodeBlocks(str(tmp_path))
    found: list[list[Block] | FjordError] = []

    def write() -> None:
        try:
            found.append(one.write("journal", plan))
        except FjordError as error:
            found.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    assert begun.wait(SECONDS_MAX)
    one.stop()
    thread.join(SECONDS_MAX)
    assert isinstance(found[0], ClosedError)
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


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert child.missing_libraries() == []
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "fsspec" else find(name)
    )
    assert child.missing_libraries() == ["fsspec"]
