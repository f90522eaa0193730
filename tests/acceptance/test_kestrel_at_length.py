"""A queue that is much larger than its memory: filled, drained while more comes, killed meanwhile.

Items say their numbers.  Each of them comes once and in order, the server stays small, and its
files go with what was taken.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.kestrel_server import Serving, expect, raw, serving

ITEM_BYTES = 1000
ITEM_OVERHEAD_BYTES = 21  # in a journal
# Of an item that is gone, until the files behind it are packed, too; files are packed only if that
# leaves half of them, so twice.
PLACE_BYTES = 2 * 21
BATCH = 250
QUEUE = b"cars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How much there is of everything."""

    filled: int  # items, before any is taken
    added: int  # items, while they are taken
    memory_bytes: int  # maxMemorySize
    anonymous_bytes_max: int

    @property
    def items(self) -> int:
        return self.filled + self.added


SHORT = Length(filled=48_000, added=16_000, memory_bytes=2**20, anonymous_bytes_max=100_000_000)
LONG = Length(
    filled=2_000_000, added=500_000, memory_bytes=16 * 2**20, anonymous_bytes_max=150_000_000
)


@dataclass(slots=True)
class Most:
    """The largest that was seen."""

    anonymous_bytes: int = 0
    disk_bytes: int = 0
    spare_bytes: int = 0  # on disk, beside what waits and the places of what is gone

    def look(self, server: Serving, path: Path, waiting: int, taken: int) -> None:
        held = disk_bytes(path)
        wanted = waiting * (ITEM_BYTES + ITEM_OVERHEAD_BYTES) + taken * PLACE_BYTES
        self.disk_bytes = max(self.disk_bytes, held)
        self.spare_bytes = max(self.spare_bytes, held - wanted)
        self.anonymous_bytes = max(self.anonymous_bytes, anonymous_bytes(server))


def anonymous_bytes(server: Serving) -> int:
    """Returns the memory of a server that is its own, without what is mapped from files."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def disk_bytes(path: Path) -> int:
    """Returns how much the files of the queue have, whatever else is there."""
    return sum(one.stat().st_size for one in path.glob(f"{QUEUE.decode()}*"))


def item(number: int) -> bytes:
    return b"%0*d" % (ITEM_BYTES, number)


def add(client: socket.socket, first: int) -> None:
    head = b"set %b 0 0 %d\r\n" % (QUEUE, ITEM_BYTES)
    sets = [b"%b%b\r\n" % (head, item(number)) for number in range(first, first + BATCH)]
    expect(client, b"".join(sets), b"STORED\r\n" * BATCH)


def take(client: socket.socket, first: int) -> None:
    head = b"VALUE %b 0 %d\r\n" % (QUEUE, ITEM_BYTES)
    items = [b"%b%b\r\nEND\r\n" % (head, item(number)) for number in range(first, first + BATCH)]
    expect(client, b"get %b\r\n" % QUEUE * BATCH, b"".join(items))


def work(length: Length) -> Iterator[tuple[int, int]]:
    """Yields what to do in order: how many items were added and taken before each batch.

    One of the two is larger by a batch at the next; first all adds, then three takes for each add,
    then the takes that are left.
    """
    added, taken = 0, 0
    while taken < length.items:
        yield added, taken
        if added < length.filled or (added < length.items and taken > 3 * (added - length.filled)):
            added += BATCH
        else:
            taken += BATCH
    yield added, taken


def run(path: Path, length: Length) -> Most:
    """Fills and drains a queue; the server is killed after a third and ended after two thirds."""
    config = path.parent / "config.json"
    # The journals of an empty queue are erased from this size on, as they are from 16 MiB.
    sizes = {"maxMemorySize": length.memory_bytes, "defaultJournalSize": length.memory_bytes}
    config.write_text(json.dumps({"default": sizes}))
    steps = list(work(length))
    most = Most()
    third = len(steps) // 3
    cuts = [(0, third, signal.SIGKILL), (third, 2 * third, signal.SIGTERM)]
    for start, end, how in [*cuts, (2 * third, len(steps) - 1, signal.SIGTERM)]:
        with serving(path, "--config", str(config)) as server, raw(server.port) as client:
            for (added, taken), (more, _) in zip(
                steps[start:end], steps[start + 1 : end + 1], strict=True
            ):
                if more > added:
                    add(client, added)
                else:
                    take(client, taken)
                if (added + taken) // BATCH % 20 == 0:
                    most.look(server, path, added - taken, taken)
            if end == len(steps) - 1:
                expect(client, b"get %b\r\n" % QUEUE, b"END\r\n")
            server.end(how)
    return most


def check(path: Path, length: Length) -> Most:
    path.mkdir()
    most = run(path, length)
    print(
        f"at most {most.anonymous_bytes:,} anonymous bytes, {most.disk_bytes:,} on disk, of which "
        f"{most.spare_bytes:,} beside what waited and the places of what was gone"
    )
    assert most.anonymous_bytes < length.anonymous_bytes_max
    assert most.disk_bytes > 10 * length.memory_bytes  # else it has shown nothing
    assert most.spare_bytes < 4 * length.memory_bytes
    assert disk_bytes(path) < length.memory_bytes  # the files of an empty queue are erased
    return most


@pytest.mark.req("KJ-17", "KJ-18", "KJ-19", "KJ-20")
def test_a_queue_of_many_times_its_memory_is_drained_in_order(tmp_path: Path) -> None:
    check(tmp_path / "queues", SHORT)


@pytest.mark.soak
@pytest.mark.req("KJ-18", "KJ-19", "KJ-20")
def test_two_gigabytes_in_a_small_server(tmp_path: Path) -> None:
    """It takes as long as it takes, whatever is said of the time for a long test."""
    check(tmp_path / "queues", LONG)
