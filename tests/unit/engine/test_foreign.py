"""A directory that is not empty and not Fjord's is refused, and nothing in it is touched."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from pathlib import Path

import pytest

from fjord.engine import EngineSettings, open_engine
from fjord.engine.backup import back_up, restore
from fjord.engine.memory import TREE_COUNT
from fjord.engine.read_only import ReadOnlyEngine
from fjord.errors import DirectoryError, DiskFullError, DurabilityError
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimCrash, SimDisk
from tests.unit.engine.world import SEGMENT_BYTES, settings

FOREIGN: list[dict[str, bytes]] = [
    {"lock": b"somebody else's"},
    {"lock": b"123\n"},
    {"lock": b"", "journal/a.md": b"dear diary"},
    {"notes.txt": b""},
    {"journal": b"dear diary"},
    {"index": b"of a book"},
    {"lock": b"", "journal": b"dear diary"},
    {"journal/2024.md": b"dear diary"},
    {"index/owner": b"somebody"},
    {"clean": b"x"},
    {"published": bytes(4096)},
    {"ballast": bytes(10)},
    {"data.mdb": b"x", "lock.mdb": b"x"},
]


def look(root: Path) -> dict[str, tuple[int, bytes]]:
    """Returns all that is there, with its time of change."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [root, *root.rglob("*")]
    }


@pytest.fixture(params=FOREIGN, ids=lambda files: " ".join(files))
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name, data in request.param.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def test_a_foreign_directory_is_refused_untouched(foreign: Path) -> None:
    before = look(foreign)
    with pytest.raises(DirectoryError, match="not Fjord's; choose an empty or a new directory"):
        open_engine(str(foreign), settings(SimClock()))
    with pytest.raises(DirectoryError, match="is not a Fjord data directory"):
        ReadOnlyEngine(str(foreign), settings(SimClock()))
    with pytest.raises(DirectoryError, match="is not a Fjord data directory"):
        back_up(str(foreign), str(foreign.parent / "backup"))
    assert look(foreign) == before
    assert os.listdir(foreign.parent) == ["data"]


def test_a_new_file_system_is_empty(tmp_path: Path) -> None:
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    for path in (data, backup, restored):
        (path / "lost+found").mkdir(parents=True)
    open_engine(str(data), settings(SimClock())).close()
    back_up(str(data), str(backup))
    manifest = restore(str(backup), str(restored))
    engine = open_engine(str(restored), settings(SimClock()))
    assert engine.applied_seq > manifest.seq
    engine.close()


def test_a_first_start_that_crashed_is_gone_on_with() -> None:
    for number in range(1, 100):
        for power in (False, True):
            disk = SimDisk(number, crash_at=number)
            where = EngineSettings(
                segment_bytes=SEGMENT_BYTES,
                disk=disk,
                clock=SimClock(),
                indexes=MemoryIndexes(TREE_COUNT),
            )
            with contextlib.suppress(SimCrash):
                open_engine("/srv/data", where).close()
                assert number > 10
                return
            if power:
                disk.power_cut()
            else:
                disk.process_crash()
            open_engine("/srv/data", where).close()


def test_too_little_space_is_said_and_nothing_is_left() -> None:
    for room in range(0, SEGMENT_BYTES, SEGMENT_BYTES // 8):
        disk = SimDisk(1, capacity=room)
        where = EngineSettings(
            segment_bytes=SEGMENT_BYTES,
            disk=disk,
            clock=SimClock(),
            indexes=MemoryIndexes(TREE_COUNT),
        )
        needed = SEGMENT_BYTES + where.index_step_bytes + 2**20
        with pytest.raises(DiskFullError, match=f"{needed} bytes are needed"):
            open_engine("/srv/data", where)
        assert disk.names("/") == []


def test_too_few_files_are_said_and_nothing_is_left() -> None:
    """Each directory and each file takes a place that a file system may not have."""
    for number in itertools.count(1):
        disk = SimDisk(1, errors={number: errno.ENOSPC})
        where = EngineSettings(
            segment_bytes=SEGMENT_BYTES,
            disk=disk,
            clock=SimClock(),
            indexes=MemoryIndexes(TREE_COUNT),
        )
        try:
            open_engine("/srv/data", where).close()
        except (DiskFullError, DurabilityError):
            if disk.calls[number - 1] in ("make_directory", "create"):
                assert disk.names("/") == []
        else:
            if number > len(disk.calls):
                break
    assert number > 10
