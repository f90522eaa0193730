"""What tests of the spool share: a script of writes, and how what has arrived is held against it.

Record n of a script is one call.  Which one follows from n, so that whoever finds traces of it in
a daemon knows what it must have been, and whether it is there once, and whole:

    n % 4 = 0    append              one message
            1    push                a job under the key n
            2    set                 a value under the key n
            3    append_many         three messages, all or none
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import fjord
from fjord.client.blocking.database import Database
from fjord.client.spool import files
from fjord.client.spool.files import line_of
from fjord.client.spool.writer import Spool, SpoolJobs, SpoolKv, SpoolStream
from fjord.clock import Stamps, SystemClock
from fjord.forwarder import Forwarder, Progress

MANY: Final = 3  # messages of one append_many
# A load of a forwarder where that is wanted, so that a short script takes many.
LOAD_ROWS: Final = 5
# Nothing here takes as long; whoever waits longer than this waits for ever.
DEADLINE_SECONDS: Final = 60.0
PERIOD_US: Final = files.PERIOD_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of one case, each with a name of its own."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def stream(self) -> str:
        return f"{self.name}-events"

    @property
    def jobs(self) -> str:
        return f"{self.name}-pages"

    @property
    def kv(self) -> str:
        return f"{self.name}-values"


class SpoolInMemory:
    """A spool without files: the lines that a writer would write."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self._stamps = Stamps(SystemClock())

    def jobs(self, table: str) -> SpoolJobs:
        return SpoolJobs(self._write, self._stamps, table)

    def stream(self, table: str) -> SpoolStream:
        return SpoolStream(self._write, self._stamps, table)

    def kv(self, table: str) -> SpoolKv:
        return SpoolKv(self._write, self._stamps, table)

    def _write(self, record: bytes, stamp_us: int) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[bytes]:
        return [line_of(record) for record in self.records]


def write(spool: Spool | SpoolInMemory, tables: Tables, number: int) -> None:
    """Writes record n."""
    text = str(number)
    if number % 4 == 0:
        spool.stream(tables.stream).append(text, key=text)
    elif number % 4 == 1:
        spool.jobs(tables.jobs).push(text, number)
    elif number % 4 == 2:
        spool.kv(tables.kv).set(text, number)
    else:
        spool.stream(tables.stream).append_many([text] * MANY)


def write_all(spool: Spool | SpoolInMemory, tables: Tables, numbers: Iterable[int]) -> None:
    for number in numbers:
        write(spool, tables, number)


def mostly_single(first: int, count: int) -> list[int]:
    """Returns numbers of so many records, nearly all of one row: many of those are quick."""
    found = (number for number in itertools.count(first) if number % 4 != 3 or number % 100 == 3)
    return list(itertools.islice(found, count))


class HeldFile:
    """A file that a writer has open, which the test writes byte by byte as it likes."""

    def __init__(self, path: Path, data: bytes = b"") -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        self.write(data or files.encode_header(files.new_header(SystemClock().wall_us())))

    def write(self, data: bytes) -> None:
        assert os.write(self._fd, data) == len(data)

    def close(self) -> None:
        os.close(self._fd)


# -- what has arrived -----------------------------------------------------------------------------


def arrived(db: Database, tables: Tables) -> list[int]:
    """Returns the numbers that are there, messages in their order; asserts that each is whole."""
    messages = [int(value) for value in stream_values(db, tables.stream)]
    counts = Counter(messages)
    wrong = {
        number: count
        for number, count in counts.items()
        if count != (1 if number % 4 == 0 else MANY)
    }
    some = list(wrong.items())[:10]
    assert not wrong, f"messages that are there too often, or not all of them: {some}"
    jobs = list(job_values(db, tables.jobs))
    values = list(db.kv(tables.kv).range("", None))
    for remainder, pairs in ((1, jobs), (2, values)):
        assert all(int(key) == value and value % 4 == remainder for key, value in pairs)
    return [*counts, *(int(key) for key, _ in (*jobs, *values))]


def stream_values(db: Database, table: str) -> Iterator[str]:
    """Yields what is in a log, from its beginning; nothing if there is none."""
    if table not in table_names(db):
        return
    batch = db.stream(table).read()
    while len(batch):
        for message in batch:
            assert isinstance(message.value, str)
            yield message.value
        batch = db.stream(table).read(after=batch)


def job_values(db: Database, table: str) -> Iterator[tuple[str, object]]:
    """Takes all jobs that there are."""
    if table not in table_names(db):
        return
    while batch := list(db.jobs(table).next(count=1000, lease=3600)):
        yield from ((str(job.key), job.value) for job in batch)


def table_names(db: Database) -> set[str]:
    return {info.name for info in db.tables()}


def check(
    db: Database, tables: Tables, told: Collection[int], attempted: Collection[int] = ()
) -> None:
    """Asserts that all that was told is there, once, and nothing that was not attempted."""
    found = arrived(db, tables)
    lost = sorted(set(told) - set(found))
    assert not lost, f"lost: {lost[:20]} of {len(told)}"
    strange = sorted(set(found) - set(told) - set(attempted))
    assert not strange, f"never written: {strange[:20]}"
    assert len(found) == len(set(found))


# -- a spool and its forwarder --------------------------------------------------------------------


class ShiftedClock(SystemClock):
    """The clock of the machine, some hours ahead."""

    def __init__(self, hours: int) -> None:
        self._ahead_us = hours * PERIOD_US

    def wall_us(self) -> int:
        return super().wall_us() + self._ahead_us


def forward(directory: Path, url: str, *, hours: int = 0) -> Progress:
    """Forwards until nothing is left, with a clock that is so many hours ahead."""

    async def main() -> Progress:
        forwarder = Forwarder(str(directory), url, clock=ShiftedClock(hours))
        await asyncio.wait_for(forwarder.run(until_empty=True), DEADLINE_SECONDS)
        return forwarder.progress

    return asyncio.run(main())


def spool_files(directory: Path) -> list[Path]:
    return [directory / name for name in files.waiting_names(str(directory))]


def put_in_the_past(directory: Path) -> None:
    """Gives the file of the moment the name of a period that is over."""
    (path,) = spool_files(directory)
    slot = int(path.name.partition(".")[0]) + files.SLOTS // 2
    path.rename(directory / files.name_of(slot))


def opened(directory: Path, sync: str = "none") -> Spool:
    return fjord.spool(directory, sync=sync)
