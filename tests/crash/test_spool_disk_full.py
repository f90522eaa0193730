"""A full disk, met by writers of a spool: they are told, and what was written before arrives.

The disks here are small ones of their own.  A disk of a spool gets empty again when its records
are sent, since what is erased gives its space back.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
from fjord import limits
from fjord.client.spool.files import Fate
from fjord.client.spool.writer import Spool, Sync
from fjord.errors import DiskFullError
from tests.crash.ext4 import small_disk
from tests.crash.spool_processes import REFUSED, TracedWriter, Writing, folder_of
from tests.crash.spool_world import Tables, check, forward, opened, spool_files, write
from tests.crash.tracing import noted

COUNT: Final = 4
ROOM_BYTES: Final = 64 * limits.KIB
LATER: Final = 1000  # the number of a record that is written when there is space again


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.loop)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small_disk(request.param, tmp_path, kib=256) as path:
        yield path


def fill(disk: Path, *, room_bytes: int) -> Path:
    """Takes all but so much of a disk; returns the ballast."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(limits.KIB)):
                pass
        file.truncate(file.tell() - room_bytes)
    return ballast


def write_until_full(spool: Spool, tables: Tables, numbers: Iterator[int]) -> list[int]:
    """Returns what was written before there was no space."""
    told = []
    with pytest.raises(DiskFullError, match=r"the disk of the spool .* is full"):
        for number in numbers:
            write(spool, tables, number)
            told.append(number)
    return told


@pytest.mark.root
@pytest.mark.req("FJ-27")
@pytest.mark.parametrize("sync", list(Sync))
def test_a_writer_is_told_that_the_disk_is_full_and_goes_on_when_it_is_not(
    sync: str, disk: Path, daemon: str
) -> None:
    directory, tables = disk / "spool", Tables()
    numbers = itertools.count()
    told: list[int] = []
    fill(disk, room_bytes=ROOM_BYTES)
    with opened(directory, sync) as spool:
        for _ in range(3):
            told += write_until_full(spool, tables, numbers)
            told += write_until_full(spool, tables, numbers)  # there may be room for a small one
            with pytest.raises(DiskFullError):
                spool.kv(tables.kv).set("no number", bytes(limits.KIB))
            assert forward(directory, daemon).records > 100  # it starts on a full disk
    (path,) = spool_files(directory)
    assert path.stat().st_blocks < 64  # the space of what was sent is free
    with fjord.connect(daemon) as db:
        check(db, tables, told)


@pytest.mark.root
def test_a_spool_on_a_full_disk_can_be_opened_or_says_why_not(disk: Path, daemon: str) -> None:
    directory, tables = disk / "spool", Tables()
    directory.mkdir()
    ballast = fill(disk, room_bytes=0)
    with pytest.raises(DiskFullError), opened(directory) as spool:
        write(spool, tables, 0)
    ballast.unlink()
    with opened(directory) as spool:
        write(spool, tables, 1)
    assert not [path for path in directory.iterdir() if path.name.startswith(".new-")]
    forward(directory, daemon)
    with fjord.connect(daemon) as db:
        check(db, tables, [1])


def test_a_file_that_may_not_grow_tears_a_record_and_loses_none(
    daemon: str, tmp_path: Path
) -> None:
    tables = Tables()
    life = Writing(
        data=tmp_path / "spool",
        log=tmp_path / "log",
        tables=tables,
        count=200,
        file_bytes_max=2 * mmap.PAGESIZE + 100,
    )
    with TracedWriter(life) as traced:
        told = traced.told()
        assert traced.wait() == 0, traced.log()
    written = [number for number in told if number != REFUSED]
    assert 20 < len(written) < 100
    (path,) = spool_files(life.data)
    assert path.stat().st_size == life.file_bytes_max  # half a line is at its end
    with opened(life.data) as spool:
        write(spool, tables, LATER)
    assert forward(life.data, daemon).set_aside == {Fate.TORN: 1}
    with fjord.connect(daemon) as db:
        check(db, tables, [*written, LATER])


@pytest.mark.strace
@pytest.mark.parametrize("name", ["openat", "write", "fsync", "linkat"])
def test_any_call_that_finds_no_space_is_an_error_of_that_record_alone(
    name: str, daemon: str, tmp_path: Path
) -> None:
    seen = 0
    for number in itertools.count(1):
        folder, tables = folder_of(tmp_path, str(number)), Tables()
        life = Writing(data=folder / "spool", log=folder / "log", tables=tables, count=COUNT)
        with noted(f"no space at {name} number {number}"):
            inject = f"inject={name}:error=ENOSPC:when={number}"
            with TracedWriter(life, "-e", f"trace={name}", "-e", inject) as traced:
                told = traced.told()
                traced.wait()
            found = [call for call in traced.calls() if call.is_injected]
            if not found:
                break  # that was all there is
            if str(life.data) not in f"{found[0].path} {found[0].rest}":
                continue  # it is the rig's
            seen += 1
            check_refused(life, told, traced.log(), daemon)
    assert seen > 0


def check_refused(life: Writing, told: list[int], log: str, url: str) -> None:
    """One record was refused at most, or the spool could not be opened; nothing else is missing."""
    written = [number for number in told if number != REFUSED]
    if told:
        assert len(told) == COUNT, log
        assert len(written) >= COUNT - 1
    else:
        assert "No space left" in log
    with opened(life.data) as spool:
        write(spool, life.tables, LATER)
    forward(life.data, url)
    with fjord.connect(url) as db:
        check(db, life.tables, [*written, LATER])
