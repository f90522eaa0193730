"""Spool files that somebody has cut, as `> 07.spool` does: what is written afterwards arrives."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord.client.spool.files import HEADER_BYTES
from fjord.forwarder import Forwarder
from tests.acceptance.daemon import Daemon
from tests.crash.spool_world import forward, spool_files, stream_values


@pytest.mark.parametrize("size", [0, 10, HEADER_BYTES])
def test_what_is_written_after_a_cut_arrives(daemon: Daemon, tmp_path: Path, size: int) -> None:
    table = f"cut{size}"
    with fjord.spool(tmp_path) as spool:
        for number in range(50):
            spool.stream(table).append(f"before {number}")
        forward(tmp_path, daemon.url)
        (path,) = spool_files(tmp_path)
        os.truncate(path, size)
        for number in range(5):
            spool.stream(table).append(f"after {number}")
        forward(tmp_path, daemon.url)
        spool.stream(table).append("later")
        forward(tmp_path, daemon.url)
    with fjord.connect(daemon.url) as db:
        found = list(stream_values(db, table))
    assert found[:50] == [f"before {number}" for number in range(50)]
    assert sorted(found[50:]) == sorted([*(f"after {number}" for number in range(5)), "later"])


@pytest.mark.parametrize("size", [0, HEADER_BYTES])
def test_a_cut_under_a_forwarder_that_runs_is_seen(
    daemon: Daemon, tmp_path: Path, size: int
) -> None:
    table = f"running{size}"
    with fjord.connect(daemon.url) as db:
        db.create_stream(table)

    async def run(spool: fjord.Spool) -> None:
        forwarder = Forwarder(str(tmp_path), daemon.url, poll=0.05)
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            running = tasks.create_task(forwarder.run())
            spool.stream(table).append_many([f"before {number}" for number in range(50)])
            await arrived(50)
            (path,) = spool_files(tmp_path)
            os.truncate(path, size)
            for number in range(5):
                spool.stream(table).append(f"after {number}")
            await arrived(55)
            forwarder.stop()
            await running

    async def arrived(count: int) -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            seen, last = 0, 0
            while seen < count:
                found = await db.stream(table).read(after=last, wait=30)
                assert len(found), f"{seen} of {count}"
                seen += len(found)
                last = max(message.seq for message in found)

    with fjord.spool(tmp_path) as spool:
        asyncio.run(run(spool))
    with fjord.connect(daemon.url) as db:
        found = list(stream_values(db, table))
    assert sorted(set(found[50:])) == [f"after {number}" for number in range(5)]
