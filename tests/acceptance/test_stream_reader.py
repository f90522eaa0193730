"""The stream of Spark against a real daemon, called as Spark calls it, without Spark."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import fjord
from fjord.errors import FjordError
from fjord.spark import progress
from fjord.spark.source import ColdPartition, FjordSource, TailPartition
from fjord.spark.streaming import FjordStreamReader
from tests.acceptance.daemon import Daemon
from tests.acceptance.test_sealing import SMALL_SEGMENTS, fill, until
from tests.unit.spark import structs

ALL = ReadAllAvailable()
Place = dict[str, Any]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", program=SMALL_SEGMENTS) as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


_MADE: list[FjordStreamReader] = []


@pytest.fixture(autouse=True)
def _stop() -> Iterator[None]:
    """Ends the readers of a test, as Spark does at the end of a query."""
    yield
    while _MADE:
        _MADE.pop().stop()


def stream(daemon: Daemon, table: str = "events", **given: str) -> FjordStreamReader:
    wanted = {"server": daemon.url, "table": table, **given}
    found = FjordSource(wanted).streamReader(structs.ALL)
    assert isinstance(found, FjordStreamReader)
    _MADE.append(found)
    return found


def rows(found: FjordStreamReader, start: Place, end: Place) -> list[dict[str, Any]]:
    tasks = pickle.loads(pickle.dumps(found))
    planned = pickle.loads(pickle.dumps(list(found.partitions(start, end))))
    return [row for one in planned for batch in tasks.read(one) for row in batch.to_pylist()]


def run(
    found: FjordStreamReader, start: Place | None = None
) -> list[tuple[Place, Place, list[dict[str, Any]]]]:
    """Runs micro-batches up to what there is now; returns their offsets and rows."""
    found.prepareForTriggerAvailableNow()
    limit, begin, made = found.getDefaultReadLimit(), start or found.initialOffset(), []
    while (end := found.latestOffset(begin, limit)) != begin:
        made.append((begin, end, rows(found, begin, end)))
        found.commit(end)
        begin = end
    return made


def seq_of(place: Place) -> int:
    return progress.decode(place).seq


def test_the_same_range_has_the_same_rows_after_overwrites_packing_and_sealing(
    daemon: Daemon, db: fjord.Database
) -> None:
    users = db.create_stream("users", mode="latest", block_rows=1500)
    pages = db.jobs("pages")
    for number in range(10):
        users.append_many([b"%d" % number * 40] * 200, [b"user:%d" % key for key in range(200)])
        users.delete(b"user:7")
        pages.push_many(keys=[f"{number}-{job}" for job in range(100)])
        pages.done_many(pages.next(count=60))
    before = {
        table: run(stream(daemon, table, maxRowsPerTrigger="450")) for table in ("users", "pages")
    }
    assert sum(len(found) for _, _, found in before["users"]) == 10 * 201
    assert len(before["users"]) >= 5
    for number in range(60):  # everything is written again, so the journal is packed
        users.append_many([b"%d" % number * 100] * 200, [b"user:%d" % key for key in range(200)])
        pages.done_many(pages.next(count=60))
    db.seal()
    until(db, lambda: db.stats()["first_seq"] > seq_of(before["users"][-1][1]))
    for table, made in before.items():
        again = stream(daemon, table)
        for start, end, found in made:
            planned = again.partitions(start, end)
            assert {type(one) for one in planned} == {ColdPartition}
            assert rows(again, start, end) == found
        anew = run(stream(daemon, table, maxRowsPerTrigger="450"))
        ends = [seq_of(end) for _, end, _ in anew]
        assert ends[: len(made) - 1] == [seq_of(end) for _, end, _ in made[:-1]]


def test_the_mark_of_a_subscriber_follows_and_a_second_query_ends_the_first(
    daemon: Daemon, db: fjord.Database
) -> None:
    events = db.create_stream("events")
    for number in range(5):
        events.append_many([b"%d" % number] * 10)
    first = stream(daemon, subscriber="spark", maxRowsPerTrigger="20")
    begin = first.initialOffset()
    end = first.latestOffset(begin, first.getDefaultReadLimit())
    (found,) = events.subscribers()
    assert (found.name, found.position) == ("spark", seq_of(begin))
    assert events.subscriber("spark").lag == 50
    first.commit(end)
    assert events.subscriber("spark").lag == 30
    second = stream(daemon, subscriber="spark", startingSubscriber="spark")
    assert second.initialOffset()["s"] == end["s"]
    (_, last, rest), *_ = run(second)
    assert len(rest) == 30
    assert events.subscriber("spark").lag == 0
    with pytest.raises(FjordError, match="another query with the same subscriber may be running"):
        first.commit(last)
    # A query that begins again at its checkpoint takes its mark with it.
    run(stream(daemon, subscriber="spark", maxRowsPerTrigger="10"), end)
    assert events.subscriber("spark").lag == 0


def test_a_message_wakes_an_idle_query(daemon: Daemon, db: fjord.Database) -> None:
    events = db.create_stream("events")
    events.append(b"x")
    found = stream(daemon)
    (_, end, _), *_ = run(found)
    running = found._running
    assert running is not None
    running.target = None
    assert found.latestOffset(end, ALL) == end
    waiting = threading.Thread(target=lambda: until_parked(daemon, events))
    waiting.start()
    while (after := found.latestOffset(end, ALL)) == end:
        pass
    waiting.join()
    assert [row["value"] for row in rows(found, end, after)] == [b"now"]


def until_parked(daemon: Daemon, events: fjord.Stream) -> None:
    """Appends a message once somebody waits for it."""
    with fjord.connect(daemon.url) as db:
        while not db.stats()["parked_waits"]:
            pass
    events.append(b"now")


def test_a_daemon_that_is_killed_while_a_task_reads_is_asked_again(
    daemon: Daemon, db: fjord.Database
) -> None:
    fill(db.create_stream("events"), 0, 60_000, bytes_each=200)
    source = FjordSource({"server": daemon.url, "table": "events", "partitions": "1"})
    reader = source.reader(structs.struct({"seq": "bigint", "value": "binary"}))
    (partition,) = reader.partitions()
    assert isinstance(partition, TailPartition)
    batches = reader.read(partition)
    found = [next(batches)]
    port = daemon.port
    daemon.kill()
    daemon.start(port)
    found += batches
    seqs = [seq for batch in found for seq in batch["seq"].to_pylist()]
    assert len(found) > 1
    assert len(seqs) == 60_000
    assert seqs == sorted(set(seqs))
