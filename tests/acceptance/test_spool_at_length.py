"""Many writers at once, and a forwarder that is killed again and again: each record counts once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.forwarding import Forward
from tests.crash.spool_world import MANY, Tables, check, forward, mostly_single, spool_files

ROOT: Final = Path(__file__).resolve().parents[2]
WRITERS: Final = 8
EACH: Final = 25_000  # records
KILLS: Final = 5
PERIOD: Final = "1"  # seconds, so that files are finished, removed and made again meanwhile
APART: Final = 100_000  # the numbers of two writers


def started_writers(directory: Path, tables: Tables) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.acceptance.spool_writer", str(directory), tables.name]
    return [
        subprocess.Popen([*command, str(number * APART), str(EACH), PERIOD], cwd=ROOT)
        for number in range(WRITERS)
    ]


def followed(db: fjord.Database, table: str) -> Iterator[list[int]]:
    """Yields the numbers of messages as they come."""
    last: int | fjord.MessageBatch = 0
    while True:
        batch = db.stream(table).read(5000, after=last, wait=60)
        assert len(batch), "nothing comes any more"
        yield [int(str(message.value)) for message in batch]
        last = batch


@pytest.mark.req("FJ-16", "FJ-24", "FJ-26", "FJ-27")
def test_many_writers_and_a_forwarder_that_is_killed_five_times(tmp_path: Path) -> None:
    directory, tables = tmp_path / "spool", Tables("all")
    directory.mkdir()
    numbers = [mostly_single(number * APART, EACH) for number in range(WRITERS)]
    wanted = Counter(
        {one: MANY if one % 4 else 1 for own in numbers for one in own if one % 4 in (0, 3)}
    )
    seen: list[int] = []
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as db:
        db.create_stream(tables.stream)
        db.create_jobs(tables.jobs, merge=False)  # so that none could hide another one
        writers = started_writers(directory, tables)
        with Forward(directory, daemon.url, "--period", PERIOD) as forwarder:
            messages = followed(db, tables.stream)
            for part in range(1, KILLS + 2):
                while len(seen) < part * wanted.total() // (KILLS + 1):
                    seen += next(messages)
                if part <= KILLS:
                    forwarder.kill()
                    forwarder.start()
            assert [writer.wait(timeout=120) for writer in writers] == [0] * WRITERS
            assert forwarder.stop() == 0, forwarder.log()
        for hours in (1, 2):  # one of them may be the period whose name a file has
            forward(directory, daemon.url, hours=hours)
        assert not spool_files(directory)
        check(db, tables, [one for own in numbers for one in own])
    assert Counter(seen) == wanted
    for number in range(WRITERS):
        own = [one for one in seen if one // APART == number]
        assert own == sorted(own), "records of one process are in another order"
    assert "set aside" not in forwarder.log()
