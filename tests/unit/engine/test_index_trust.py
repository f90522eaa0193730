"""An index that is gone, copied, of another boot, behind or damaged never changes an answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.engine.layout import Layout, Owner, read_mark, write_mark
from fjord.engine.opening import open_engine
from fjord.testing import SimClock
from tests.unit.engine.world import delete, open_at, read, settings, write

ROWS = {b"key-%04d" % number: b"value-%04d" % number for number in range(3000)}


def filled(path: Path, *, clean: bool) -> None:
    """Leaves a directory with some overwritten and deleted keys, after a stop or a crash."""
    clock = SimClock()
    engine = open_at(path, clock)
    write(engine, clock, ROWS)
    write(engine, clock, {b"key-0001": b"newer"})
    delete(engine, clock, b"key-0002")
    if clean:
        engine.close()
    else:
        engine.abandon()


def check(path: Path) -> int:
    """Asserts that all answers are right; returns how many rows the start had to replay."""
    replayed: list[int] = []
    opened = settings()
    engine = open_engine(
        str(path),
        type(opened)(
            segment_bytes=opened.segment_bytes,
            index_step_bytes=opened.index_step_bytes,
            rebuild_rows=opened.rebuild_rows,
            clock=opened.clock,
            progress=lambda done, total: replayed.append(total),
        ),
    )
    assert read(engine, b"key-0000", b"key-0001", b"key-0002") == [b"value-0000", b"newer", None]
    assert read(engine, *ROWS)[3:] == list(ROWS.values())[3:]
    engine.close()
    return max(replayed, default=0)


CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])


@CLEAN
def test_an_index_that_is_there_is_used(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, clean=clean)
    assert check(tmp_path) == 0


@CLEAN
def test_a_deleted_index_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, clean=clean)
    shutil.rmtree(tmp_path / "index")
    assert check(tmp_path) > len(ROWS)


@CLEAN
def test_an_index_copied_with_its_directory_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path / "old", clean=clean)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    assert check(tmp_path / "new") > len(ROWS)
    assert check(tmp_path / "old") == 0


def test_an_index_of_another_boot_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    filled(tmp_path, clean=False)
    change_boot(tmp_path)
    assert check(tmp_path) > len(ROWS)


def test_a_clean_stop_counts_once(tmp_path: Path) -> None:
    filled(tmp_path, clean=True)
    open_at(tmp_path).abandon()
    change_boot(tmp_path)
    assert check(tmp_path) > len(ROWS)


def test_an_index_behind_the_journal_catches_up(tmp_path: Path) -> None:
    filled(tmp_path, clean=True)
    old = tmp_path / "old.mdb"
    data = tmp_path / "index" / "data.mdb"
    shutil.copy(data, old)
    clock = SimClock()
    clock.advance(60)
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key-0001": b"newer"})
    engine.abandon()
    data.write_bytes(old.read_bytes())  # the same file, with what it held before
    assert 0 < check(tmp_path) < len(ROWS)


def test_an_index_ahead_of_the_journal_is_rebuilt(tmp_path: Path) -> None:
    filled(tmp_path, clean=False)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "journal", before)
    clock = SimClock()
    clock.advance(60)
    engine = open_at(tmp_path, clock)
    write(engine, clock, {b"key-0001": b"never seen"})
    engine.abandon()
    shutil.rmtree(tmp_path / "journal")
    before.rename(tmp_path / "journal")
    (tmp_path / "published").unlink()
    assert check(tmp_path) > len(ROWS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.write_bytes(b"not an index"),
        lambda data: data.write_bytes(b""),
        lambda data: data.write_bytes(bytes(1024 * 1024)),
    ],
    ids=["foreign", "empty", "zeroed"],
)
def test_a_damaged_index_file_is_rebuilt(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    filled(tmp_path, clean=False)
    damage(tmp_path / "index" / "data.mdb")
    assert check(tmp_path) > len(ROWS)


def test_an_index_whose_disk_failed_is_rebuilt(tmp_path: Path) -> None:
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    write(engine, clock, ROWS)
    write(engine, clock, {b"key-0001": b"newer"})
    delete(engine, clock, b"key-0002")
    engine._fail()
    engine.abandon()
    assert check(tmp_path) > len(ROWS)


def change_boot(path: Path) -> None:
    """Makes the owner file speak of a boot that is not this one."""
    disk, layout = LocalDisk(), Layout(str(path))
    owner = read_mark(disk, layout.owner, Owner)
    assert owner is not None
    write_mark(disk, layout.owner, Owner(boot="another boot", index=owner.index))
