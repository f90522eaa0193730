"""Names of spool files come round once a day: what is still there from the last time goes first."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord import limits
from fjord.client.spool import files
from fjord.client.spool.files import SpoolFile
from fjord.forwarder import Forwarder
from tests.acceptance.daemon import Daemon
from tests.crash.spool_world import forward, spool_files, stream_values

DAY_US = 24 * 3600 * 1_000_000


def let_a_day_pass(directory: Path) -> None:
    for path in spool_files(directory):
        file = SpoolFile(str(directory), path.name)
        assert file.header is not None
        created_us = file.header.created_us - DAY_US
        file.put_header(dataclasses.replace(file.header, created_us=created_us))
        file.close()


@pytest.mark.req("FJ-26", "FJ-27")
def test_days_without_a_forwarder_arrive_in_order(daemon: Daemon, tmp_path: Path) -> None:
    written = []
    for day in range(4):
        with fjord.spool(tmp_path) as spool:
            for number in range(50):
                spool.stream("days").append(f"{day} {number}")
                written.append(f"{day} {number}")
        let_a_day_pass(tmp_path)
    assert len(spool_files(tmp_path)) == 4
    forward(tmp_path, daemon.url)
    with fjord.connect(daemon.url) as db:
        assert list(stream_values(db, "days")) == written
    # The name of this hour was used again, and its file stays; the others are gone.
    assert [path.name[:4] for path in spool_files(tmp_path)] != ["old-"]
    assert len(spool_files(tmp_path)) == 1


@pytest.mark.req("FJ-26")
def test_a_file_that_somebody_has_open_goes_before_newer_ones(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Else what is written to it now would be sent before what was written in between."""
    idle = fjord.spool(tmp_path)
    idle.stream("idle").append("first")
    let_a_day_pass(tmp_path)
    with fjord.spool(tmp_path) as other:
        other.stream("idle").append("second")
    assert len(spool_files(tmp_path)) == 2
    forward(tmp_path, daemon.url)
    assert len(spool_files(tmp_path)) == 2  # it is sent, and stays while it is open
    idle.close()
    forward(tmp_path, daemon.url)
    assert len(spool_files(tmp_path)) == 1
    with fjord.connect(daemon.url) as db:
        assert list(stream_values(db, "idle")) == ["first", "second"]


@pytest.mark.req("FJ-27")
def test_many_more_files_than_a_forwarder_has_open_arrive_in_order(
    daemon: Daemon, tmp_path: Path
) -> None:
    written = []
    holders = []
    for number in range(3 * limits.SPOOL_FILES_OPEN_MAX):
        spool = fjord.spool(tmp_path)
        spool.stream("many").append(str(number))
        written.append(str(number))
        # Some are open for good, so that their files cannot be deleted.
        if number % 2:
            spool.close()
        else:
            holders.append(spool)
        let_a_day_pass(tmp_path)
    before = descriptors()
    progress = forward(tmp_path, daemon.url)
    assert (progress.records, progress.unopened) == (len(written), [])
    assert descriptors() == before
    with fjord.connect(daemon.url) as db:
        assert list(stream_values(db, "many")) == written
    for spool in holders:
        spool.close()
    forward(tmp_path, daemon.url)
    assert len(spool_files(tmp_path)) <= 1


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_forwarder_follows_a_file_to_its_new_name(daemon: Daemon, tmp_path: Path) -> None:
    """It runs while the name comes round, and has the file open."""
    with fjord.connect(daemon.url) as db:
        db.create_stream("follow")
    with fjord.spool(tmp_path) as spool:
        spool.stream("follow").append("first")

    async def run() -> None:
        forwarder = Forwarder(str(tmp_path), daemon.url)
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            running = tasks.create_task(forwarder.run())
            await arrived(1)
            let_a_day_pass(tmp_path)
            with fjord.spool(tmp_path) as spool:
                spool.stream("follow").append("second")
            await arrived(2)
            forwarder.stop()
            await running

    async def arrived(count: int) -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            found = await db.stream("follow").read(after=0, wait=30)
            while len(found) < count:
                more = await db.stream("follow").read(after=found, wait=30)
                assert len(more)
                found = await db.stream("follow").read(after=0)

    asyncio.run(run())
    with fjord.connect(daemon.url) as db:
        assert list(stream_values(db, "follow")) == ["first", "second"]
    (left,) = spool_files(tmp_path)
    assert not left.name.startswith("old-")
    assert left.name == files.name_of(int(left.name[:2]))
