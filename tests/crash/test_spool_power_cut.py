"""A power cut on the machine of the writers: a spool that is not synced loses its end.

What the daemon has of it stays there once, what was written and not sent is lost as the setting
says, and above all: what is written afterwards arrives, though its offsets were used before.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
from fjord.client.spool import files
from fjord.client.spool.files import SpoolFile
from tests.acceptance.daemon import Daemon
from tests.crash import spool_world

EARLIER: Final = range(200)
LATER: Final = range(200, 320)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        yield running


def cut_power(path: Path, size: int) -> None:
    """Shortens a file, and lets the machine have been started since."""
    file = SpoolFile(str(path.parent), path.name)
    assert file.header is not None
    file.put_header(dataclasses.replace(file.header, boot=b"the last"))
    file.close()
    with path.open("r+b") as raw:
        raw.truncate(size)


def headers(directory: Path) -> set[bytes]:
    found = set()
    for path in spool_world.spool_files(directory):
        file = SpoolFile(str(directory), path.name, is_writable=False)
        assert file.header is not None
        found.add(file.header.identity)
        file.close()
    return found


@pytest.mark.req("FJ-16", "FJ-26")
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 1.0])
def test_what_is_written_after_a_power_cut_arrives(
    daemon: Daemon, tmp_path: Path, kept: float
) -> None:
    tables, spool = spool_world.Tables(f"cut{round(100 * kept)}"), tmp_path / "spool"
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, EARLIER)
    (path,) = spool_world.spool_files(spool)
    before = path.read_bytes()
    spool_world.forward(spool, daemon.url)
    # Neither the end of the file nor what was erased of it was on the disk.
    path.write_bytes(before)
    cut_power(path, files.HEADER_BYTES + round(kept * (len(before) - files.HEADER_BYTES)))

    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, LATER)
    assert len(headers(spool)) == 2
    spool_world.forward(spool, daemon.url)
    with fjord.connect(daemon.url) as db:
        spool_world.check(db, tables, [*EARLIER, *LATER])


def test_writers_that_come_at_once_put_an_old_file_away_once(
    daemon: Daemon, tmp_path: Path
) -> None:
    tables, spool = spool_world.Tables("race"), tmp_path / "spool"
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, EARLIER)
    (path,) = spool_world.spool_files(spool)
    cut_power(path, path.stat().st_size)
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(8)
    writers = [
        context.Process(target=_write_at_once, args=(begin, spool, tables, LATER[at::8]))
        for at in range(8)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join(60)
        assert process.exitcode == 0
    assert len(headers(spool)) == 2
    spool_world.forward(spool, daemon.url)
    with fjord.connect(daemon.url) as db:
        spool_world.check(db, tables, [*EARLIER, *LATER])


def _write_at_once(begin: object, spool: Path, tables: spool_world.Tables, numbers: range) -> None:
    begin.wait(60)  # type: ignore[attr-defined]
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, numbers)


def test_a_file_that_was_put_back_is_sent_again_as_another_one(
    daemon: Daemon, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rather twice than never: nobody can tell what was written since."""
    tables, spool = spool_world.Tables("back"), tmp_path / "spool"
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, EARLIER)
    (path,) = spool_world.spool_files(spool)
    put_back = path.read_bytes()[: files.HEADER_BYTES]
    spool_world.forward(spool, daemon.url)
    path.write_bytes(put_back)
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, LATER[:2])
    spool_world.forward(spool, daemon.url)
    with fjord.connect(daemon.url) as db:
        spool_world.check(db, tables, [*EARLIER, *LATER[:2]])
    assert "was cut, or put back to what it was" in caplog.text


def test_an_old_file_that_is_sent_goes_away(daemon: Daemon, tmp_path: Path) -> None:
    tables, spool = spool_world.Tables("old"), tmp_path / "spool"
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, EARLIER)
    (path,) = spool_world.spool_files(spool)
    cut_power(path, path.stat().st_size)
    with spool_world.opened(spool) as writer:
        spool_world.write_all(writer, tables, LATER)
    put_away = [path for path in spool_world.spool_files(spool) if path.name.startswith("old-")]
    assert len(put_away) == 1
    spool_world.forward(spool, daemon.url)
    assert not put_away[0].exists()
    spool_world.put_in_the_past(spool)
    spool_world.forward(spool, daemon.url)
    assert not spool_world.spool_files(spool)
    with fjord.connect(daemon.url) as db:
        spool_world.check(db, tables, [*EARLIER, *LATER])
