"""Cold blocks of a real daemon: they are written by themselves, read in order, lost by nobody."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import Daemon

SECONDS_MAX = 60.0


def program(first: str) -> tuple[str, ...]:
    """A daemon that runs a statement before it begins."""
    return sys.executable, "-c", f"import sys; from fjord import cli, limits; {first}; cli.main()"


# Segments so small that some thousand messages fill several.
SMALL_SEGMENTS = program("limits.SEGMENT_BYTES = 256 * 1024")
# Room for four parts of a million bytes.
LITTLE_MEMORY = program("limits.COLD_BYTES_MAX = 5_000_000")
WITHOUT_ARROW = program("sys.modules['pyarrow'] = None")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", program=SMALL_SEGMENTS) as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


def until(db: fjord.Database, condition: Callable[[], object]) -> None:
    """Returns when something is so.

    Between two looks it waits for a message that never comes: blocks are written by a child of
    low priority, which would have few turns beside who looks all the time.
    """
    quiet = db.create_stream("quiet").reader()
    begun = time.monotonic()
    while not condition():
        assert len(quiet.read(wait=0.05)) == 0
        assert time.monotonic() - begun < SECONDS_MAX


def seal(db: fjord.Database) -> None:
    """Returns when everything is in blocks, and is read from there."""
    db.seal()
    until(db, lambda: db.stats()["appends"] == 0)


def fill(events: fjord.Stream, first: int, end: int, *, bytes_each: int = 100) -> None:
    """Appends messages that say their numbers."""
    for start in range(first, end, 1000):
        numbers = range(start, min(end, start + 1000))
        events.append_many([b"%d " % number + bytes(bytes_each) for number in numbers])


def number_of(message: fjord.Message) -> int:
    assert isinstance(message.value, bytes)
    return int(message.value.split()[0])


def numbers_of(batch: fjord.MessageBatch) -> list[int]:
    return list(map(number_of, batch))


def read_all(events: fjord.Stream, name: str, count: int = 700) -> list[int]:
    """Reads and acknowledges everything from the beginning."""
    subscriber = events.subscriber(name)
    found: list[int] = []
    for batch in subscriber.batches(count):
        found += numbers_of(batch)
        subscriber.ack(batch)
    return found


def files(path: Path, suffix: str = ".parquet") -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob(f"*{suffix}"))


# -- by itself ------------------------------------------------------------------------------------


@pytest.mark.req("JQ-06", "JQ-10", "JQ-11", "JQ-18")
def test_full_blocks_go_to_cold_storage_and_are_read_with_the_rest_in_order(
    daemon: Daemon, db: fjord.Database
) -> None:
    events = db.create_stream("events", block_rows=2000)
    fill(events, 0, 10_000)
    assert len(events.reader().read(10)) == 10  # it is there all the time
    until(db, lambda: len(db.blocks("events")) >= 5)
    until(db, lambda: db.stats()["first_seq"] > 1)  # segments go
    fill(events, 10_000, 10_500)
    blocks = db.blocks("events")
    assert blocks[0].first == 1
    assert all(one.last + 1 == two.first for one, two in itertools.pairwise(blocks))
    assert all(block.rows <= 2000 for block in blocks)
    assert files(daemon.path / "blocks") == [f"{block.name}.parquet" for block in blocks]
    assert read_all(events, "reader") == list(range(10_500))
    stats = db.stats()
    assert (stats["blocks"], stats["seal_failures"]) == (len(blocks), 0)
    assert stats["cold_parts"] == 0  # nothing stays in memory behind the last reader


@pytest.mark.req("JQ-12")
def test_what_fills_no_block_yet_is_read_without_one_though_nobody_had_subscribed(
    db: fjord.Database,
) -> None:
    events = db.create_stream("events", block_rows=1000)
    fill(events, 0, 1000)
    seal(db)
    fill(events, 1000, 1100)
    fill(db.create_stream("other", block_rows=1000), 0, 1000)
    until(db, lambda: db.blocks("other"))  # so whoever writes blocks has had its turn
    (block,) = db.blocks("events")
    for name in ("late", "later"):
        subscriber = events.subscriber(name, start=block.last + 1)
        assert numbers_of(subscriber.read(1000)) == list(range(1000, 1100))
        subscriber.delete()  # and nobody is there again
    assert db.stats()["cold_loads"] == 0
    assert read_all(events, "all") == list(range(1100))
    assert db.stats()["cold_loads"] == 1  # the block itself, which shows that loads are counted


@pytest.mark.req("JQ-05", "JQ-06", "JQ-42")
def test_subscribers_that_are_gone_hold_no_memory_that_others_need(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data", program=LITTLE_MEMORY) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        events = db.create_stream("events", block_rows=1000)
        fill(events, 0, 8_000, bytes_each=1000)
        seal(db)
        with fjord.connect(daemon.url) as other:
            for number, block in enumerate(db.blocks("events")):
                gone = other.stream("events").subscriber(f"gone-{number}", start=block.first)
                assert numbers_of(gone.read(10))[0] == number * 1000
            assert db.stats()["cold_bytes"] > 2_000_000
        until(db, lambda: db.stats()["cold_bytes"] == 0)
        before = db.stats()
        assert (before["cold_loads"], before["cold_prefetches"]) == (8, 0)
        assert read_all(events, "reader", 100) == list(range(8_000))
        assert db.stats()["cold_prefetches"] >= 4  # most of them, but for the first


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.req("JQ-10", "JQ-11")
def test_nothing_is_lost_or_doubled_when_the_daemon_is_killed_while_it_seals(
    daemon: Daemon,
) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_stream("events", block_rows=1000)
    for round_ in range(3):
        with fjord.connect(daemon.url) as db:
            fill(db.stream("events"), round_ * 2000, (round_ + 1) * 2000)
            if round_ % 2:
                until(db, lambda: db.stats()["sealed_blocks"])
        daemon.kill()
        daemon.start()
    with fjord.connect(daemon.url) as db:
        seal(db)
        events = db.stream("events")
        assert read_all(events, "reader") == list(range(6_000))
        blocks = db.blocks("events")
        assert sum(block.rows for block in blocks) == 6_000
        assert files(daemon.path / "blocks") == [f"{block.name}.parquet" for block in blocks]


def test_a_damaged_block_is_refused_by_its_name_and_the_rest_goes_on(
    daemon: Daemon, db: fjord.Database
) -> None:
    events = db.create_stream("events", block_rows=1000)
    fill(events, 0, 3000)
    seal(db)
    first, second, third = db.blocks("events")
    path = daemon.path / "blocks" / f"{second.name}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    reader = events.reader()
    assert numbers_of(reader.read(1000)) == list(range(1000))
    with pytest.raises(fjord.RefusedError, match="CORRUPT") as refused:
        reader.read(1000)
    assert second.name in str(refused.value)
    behind = events.reader(start=third.first)
    assert numbers_of(behind.read(1000)) == list(range(2000, 3000))
    events.append(b"3000 ")
    assert first.rows == 1000
    assert "the requested data is damaged" in daemon.log()


def test_without_the_libraries_a_daemon_works_and_seals_nothing(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", program=WITHOUT_ARROW) as daemon:
        with fjord.connect(daemon.url) as db:
            events = db.create_stream("events")
            fill(events, 0, 100)
            with pytest.raises(fjord.RefusedError, match="cannot seal"):
                db.seal()
            assert read_all(events, "reader") == list(range(100))
        (line,) = [
            line for line in daemon.log().splitlines() if "cold blocks are not available" in line
        ]
        assert "pyarrow" in line
