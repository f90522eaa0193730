"""Queues of a Kestrel on disk, and what a daemon has of them, for tests of import and export."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from fjord.disk import LocalDisk
from fjord.kestrel import codec, inspect, reader
from fjord.kestrel.codec import Dialect, Item, Op
from tests.acceptance.daemon import FJORD
from tests.unit.kestrel import vectors

ADD_MS = 1_700_000_000_000


def run(*words: str | Path) -> Result:
    """Runs `fjord kestrel` to its end, in this process."""
    result = CliRunner().invoke(app, ["kestrel", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def command(*words: str | Path) -> list[str]:
    """Returns what runs it in a process of its own."""
    return [*FJORD, "kestrel", *map(str, words)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def written(*made: Op) -> bytes:
    return b"".join(codec.encode(op, Dialect.V24) for op in made)


def item(data: bytes, *, at: int = 0, expiry_ms: int = 0) -> Op:
    return vectors.addx(data, add_ms=ADD_MS + at, expiry_ms=expiry_ms)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def fill(path: Path, data: Sequence[bytes]) -> None:
    """Writes a file of a queue that has these items."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(written(*(item(one, at=at) for at, one in enumerate(data))))


def in_queue(directory: Path, queue: str) -> list[Item]:
    """Returns what a queue has, what is open first."""
    found = inspect.Contents(reader.survey(LocalDisk(), str(directory), queue))
    with contextlib.closing(found):
        return list(found.items())


def take_all(url: str, table: str) -> list[object]:
    """Takes all jobs of a table, in the order in which they are handed out."""
    found: list[object] = []
    with fjord.connect(url) as db:
        jobs = db.jobs(table)
        while taken := jobs.next(10_000, done=True):
            found += [job.value for job in taken]
    return found


def read_all(url: str, table: str) -> list[object]:
    """Returns all messages of a stream."""
    with fjord.connect(url) as db:
        return [value for batch in db.stream(table).reader().batches() for value in batch.values]
