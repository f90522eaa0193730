"""A history that is much longer than what is kept at hand, read from its beginning to its end.

Messages say their numbers, and are sealed while they are written: when reading begins most of them
are in cold blocks, and the segments that had them are gone.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

import fjord
from tests.acceptance.daemon import Daemon

BATCH = 10_000
PADDING = bytes(range(92))  # a message has 100 bytes
NUMBER = struct.Struct(">Q92x")
LOOK_SECONDS, LOOKS_MAX = 0.1, 600
ANONYMOUS_BYTES_MAX = 300_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How much there is of everything."""

    messages: int
    block_rows: int
    segment_bytes: int
    read_count: int
    seal_seconds_max: float  # for what was not sealed while it was written


SHORT = Length(
    messages=300_000,
    block_rows=50_000,
    segment_bytes=4 * 2**20,
    read_count=10_000,
    seal_seconds_max=60,
)
LONG = Length(
    messages=20_000_000,
    block_rows=1_000_000,
    segment_bytes=64 * 2**20,
    read_count=100_000,
    seal_seconds_max=1800,
)


class Seen(NamedTuple):
    """What a daemon has in memory."""

    anonymous_bytes: int
    cold_parts: int  # of blocks


def serve(path: Path, length: Length) -> Daemon:
    lines = [
        "from fjord import limits",
        f"limits.SEGMENT_BYTES = {length.segment_bytes}",
        "from fjord.cli import main",
        "main()",
    ]
    return Daemon(path / "data", program=[sys.executable, "-c", "\n".join(lines)])


def connect(daemon: Daemon, length: Length) -> fjord.Database:
    return fjord.connect(daemon.url, timeout=length.seal_seconds_max)


def anonymous_bytes(daemon: Daemon) -> int:
    """Returns the memory of a daemon that is its own, without what is mapped from files."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def message(number: int) -> bytes:
    return number.to_bytes(8, "big") + PADDING


def write(db: fjord.Database, length: Length) -> fjord.Stream:
    """Appends all messages; only the last ones are not in blocks when it returns."""
    events = db.create_stream("events", block_rows=length.block_rows)
    last = length.messages - BATCH
    append(events, 0, length.messages // 2)
    wait_until(events.blocks, events)  # they are written without being asked for
    append(events, length.messages // 2, last)
    db.seal("events")
    append(events, last, length.messages)
    wait_until(lambda: db.stats()["first_seq"] > 1, events)  # the first segments go
    return events


def append(events: fjord.Stream, first: int, end: int) -> None:
    for start in range(first, end, BATCH):
        events.append_many(list(map(message, range(start, start + BATCH))))


def wait_until(condition: Callable[[], object], events: fjord.Stream) -> None:
    """Looks again and again; what is waited for gets the processor between two looks."""
    end = events.reader(start="end")
    for _ in range(LOOKS_MAX):
        if condition():
            return
        assert not end.read(wait=LOOK_SECONDS)
    pytest.fail("it did not come to that")


def numbers_of(batch: fjord.MessageBatch) -> Iterator[int]:
    """Returns what the messages say, a column at a time."""
    return chain.from_iterable(
        number for part in batch.columns for number in NUMBER.iter_unpack(part.values.data)
    )


def read_all(
    daemon: Daemon, db: fjord.Database, subscriber: fjord.Subscriber, length: Length
) -> Seen:
    """Reads and acknowledges everything, in order; returns the most that was in memory."""
    following = 0
    seen = []
    for batch in subscriber.batches(length.read_count):
        first, following = following, following + len(batch)
        assert list(numbers_of(batch)) == list(range(first, following))
        subscriber.ack(batch)
        seen.append(Seen(anonymous_bytes(daemon), db.stats()["cold_parts"]))
    assert following == length.messages
    assert subscriber.lag == 0
    return most_of(seen)


def read_together(daemon: Daemon, db: fjord.Database, events: fjord.Stream, length: Length) -> Seen:
    """Reads from the beginning of each block to the end, all of them in turn."""
    following: dict[str, int] = {}  # number of the next message, by subscriber
    readers = []
    number = 0
    for block in db.blocks("events"):
        reader = events.subscriber(f"from-{number}", start=block.first)
        following[reader.name] = number
        readers.append(reader)
        number += block.rows
    seen = []
    while readers:
        for reader in readers:
            batch = reader.read(length.read_count)
            first = following[reader.name]
            following[reader.name] += len(batch)
            assert list(numbers_of(batch)) == list(range(first, following[reader.name]))
            reader.ack(batch)
            seen.append(Seen(anonymous_bytes(daemon), db.stats()["cold_parts"]))
        readers = [reader for reader in readers if following[reader.name] < length.messages]
    return most_of(seen)


def most_of(seen: list[Seen]) -> Seen:
    return Seen(max(one.anonymous_bytes for one in seen), max(one.cold_parts for one in seen))


@pytest.mark.req("JQ-01", "JQ-06", "JQ-42")
def test_a_long_history_is_read_in_order_and_blocks_leave_memory_behind_the_readers(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, SHORT) as daemon, connect(daemon, SHORT) as db:
        events = write(db, SHORT)
        blocks = len(db.blocks("events"))
        slow = events.subscriber("slow")
        assert list(numbers_of(slow.read(10))) == list(range(10))
        most = read_all(daemon, db, events.subscriber("fast"), SHORT)
        assert most.anonymous_bytes < ANONYMOUS_BYTES_MAX
        assert most.cold_parts <= 3  # the one of the slow reader, the one that is read, the next
        stats = db.stats()
        assert stats["cold_parts"] == 1  # of the one who is still there
        assert blocks <= stats["cold_loads"] <= len(db.blocks("events"))  # each of them once
        assert stats["cold_prefetches"] >= blocks // 2  # mostly before anybody had to wait
        together = read_together(daemon, db, events, SHORT)
        assert together.anonymous_bytes < ANONYMOUS_BYTES_MAX
        assert blocks // 2 <= together.cold_parts <= blocks + 1  # they were in all of them at once
        assert list(numbers_of(slow.read(10))) == list(range(10, 20))
        slow.sleep()
        assert db.stats()["cold_parts"] == 0


@pytest.mark.soak
@pytest.mark.req("JQ-01")
def test_twenty_million_messages_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """It takes as long as it takes, whatever is said of the time for a long test."""
    with serve(tmp_path, LONG) as daemon, connect(daemon, LONG) as db:
        events = write(db, LONG)
        written_bytes = anonymous_bytes(daemon)
        most = read_all(daemon, db, events.subscriber("reader"), LONG)
        print(f"anonymous bytes: {written_bytes:,} written, {most.anonymous_bytes:,} at most")
        assert max(written_bytes, most.anonymous_bytes) < ANONYMOUS_BYTES_MAX
        assert db.stats()["cold_parts"] == 0
