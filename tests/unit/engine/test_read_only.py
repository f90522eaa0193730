"""Readers beside a writer, without one, and on directories whose index is no good."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import fjord
from fjord.disk import LocalDisk
from fjord.engine import Engine, ReadOnlyEngine
from fjord.engine.layout import Layout, read_published
from fjord.errors import Code, DurabilityError, RefusedError
from fjord.testing import SimClock
from tests.unit.engine.world import INDEX_STEP_BYTES, open_at, read, set_command, settings, write
from tests.unit.tables.world import code_of

# Writes what it is told, one `key value` a line, and says when it is durable.
WRITER = """
import sys, fjord
db = fjord.open(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    key, value = line.split()
    db.kv().set(key, value)
    print("durable", flush=True)
db.close()
"""


class Writer:
    """Another process that writes to a directory."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def write(self, key: str, value: str) -> None:
        self._pipe(self.process.stdin).write(f"{key} {value}\n")
        self._pipe(self.process.stdin).flush()
        self._expect("durable")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def _expect(self, word: str) -> None:
        assert self._pipe(self.process.stdout).readline().strip() == word

    @staticmethod
    def _pipe(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    one = Writer(tmp_path)
    yield one
    one.kill()


def test_a_reader_follows_an_index_that_grows_and_a_writer_that_restarts(
    tmp_path: Path, writer: Writer
) -> None:
    writer.write("key", "one")
    with fjord.open(tmp_path, read_only=True) as db:
        assert db.kv().get("key") == "one"
        writer.kill()
        shutil.rmtree(tmp_path / "index")
        again = Writer(tmp_path)
        again.write("key", "two")
        assert db.kv().get("key") == "two"
        again.kill()


def test_a_reader_of_a_directory_whose_writer_was_killed_sees_all(
    tmp_path: Path, writer: Writer
) -> None:
    for number in range(20):
        writer.write(f"key-{number}", str(number))
    writer.kill()
    with fjord.open(tmp_path, read_only=True) as db:
        assert db.kv().get("key-19") == "19"
        assert sum(len(piece.ops) for piece in db.scan("default")) == 21


def test_a_reader_refuses_to_write(tmp_path: Path, writer: Writer) -> None:
    writer.write("key", "one")
    with (
        fjord.open(tmp_path, read_only=True) as db,
        pytest.raises(RefusedError, match="read_only") as caught,
    ):
        db.kv().set("key", "two")
    assert caught.value.code is Code.READ_ONLY


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_a_copied_directory_is_read_without_its_index(
    clock: SimClock, tmp_path: Path, clean: bool
) -> None:
    engine = open_at(tmp_path / "old", clock)
    write(engine, clock, {b"key": b"value"})
    if clean:
        engine.close()
    else:
        engine.abandon()
    shutil.copytree(tmp_path / "old", tmp_path / "copy")
    before = sorted(os.listdir(tmp_path / "copy"))
    reader = ReadOnlyEngine(str(tmp_path / "copy"), settings(clock))
    assert read(reader, b"key") == [b"value"]
    reader.close()
    assert sorted(os.listdir(tmp_path / "copy")) == before


def test_a_reader_does_not_serve_what_a_failed_disk_may_have_lost(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    write(engine, clock, {b"key": b"value"})
    engine._fail()
    engine.abandon()
    reader = ReadOnlyEngine(str(tmp_path), settings(clock))
    with pytest.raises(DurabilityError):
        read(reader, b"key")


# Opens a view of the index and never closes it; killed, it leaves its place in the reader table.
STUCK_READER = """
import sys
from fjord.engine import ReadOnlyEngine
reader = ReadOnlyEngine(sys.argv[1])
view = reader._index.view()
print("reading", flush=True)
sys.stdin.read()
"""


def test_a_killed_reader_does_not_hold_pages_for_ever(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    items = {b"key-%04d" % number: b"v" for number in range(1000)}
    write(engine, clock, items)
    reader = subprocess.Popen(
        [sys.executable, "-c", STUCK_READER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline().strip() == "reading"
    reader.kill()
    reader.communicate()
    for _ in range(100):
        write(engine, clock, items)
    assert (tmp_path / "index" / "data.mdb").stat().st_size <= 4 * INDEX_STEP_BYTES


def test_readers_go_on_when_a_rotation_met_a_full_disk(
    engine: Engine, clock: SimClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = clock.wall_us()
    engine.run([set_command({b"key": b"one"}, timestamp_us=now_us)])  # not synced yet
    monkeypatch.setattr(engine.writer, "_could_rotate", lambda *_: False)
    (reply,) = engine.run([set_command({b"key": b"x" * 100_000}, timestamp_us=now_us + 1)])
    assert code_of(reply) is Code.DISK_FULL
    assert engine.durable_seq == engine.applied_seq
    assert read_published(LocalDisk(), Layout(str(tmp_path))) == (engine.durable_seq, False)
    engine.abandon()
