"""The stream of Spark against a real daemon, called as Spark calls it, without Spark."""

from __future__ import annotations

import pickle
import shutil
import threading
import time
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


def test_retention_that_overtakes_a_query_is_said_with_the_missing_range(
    daemon: Daemon, db: fjord.Database
) -> None:
    events = db.create_stream("events", block_rows=1000, retention_bytes=1)
    fill(events, 0, 2000)
    slow = stream(daemon, maxRowsPerTrigger="1000")
    start = slow.initialOffset()
    middle = slow.latestOffset(start, slow.getDefaultReadLimit())
    assert len(rows(slow, start, middle)) == 1000
    fill(events, 2000, 12_000)
    db.seal()
    until(db, lambda: len(db.blocks("events")) == 1 and db.stats()["first_seq"] > 5000)
    first = db.blocks("events")[0].first
    gone = f"what events had from seq {seq_of(middle) + 1} to {first - 1} is gone and was not read"
    for late in (slow, stream(daemon)):
        with pytest.raises(FjordError, match=gone):
            late.partitions(middle, late.latestOffset(middle, ALL))
    lossy = stream(daemon, failOnDataLoss="false")
    ((_, _, found),) = run(lossy, middle)
    assert found[0]["seq"] >= first
    anew = stream(daemon)
    assert anew.initialOffset()["s"] == {"0": first - 1}
    ((_, _, rest),) = run(anew)
    assert rest == found


def test_a_table_that_others_have_outgrown_has_lost_nothing(
    daemon: Daemon, db: fjord.Database
) -> None:
    quiet = db.create_stream("quiet-one", block_rows=1000)
    quiet.append_many([b"x"] * 100)
    found = stream(daemon, "quiet-one")
    ((start, end, read),) = run(found)
    assert len(read) == 100
    fill(db.create_stream("events", block_rows=2000), 0, 10_000)
    db.seal()
    until(db, lambda: db.stats()["first_seq"] > seq_of(end) + 1000)
    for one in (found, stream(daemon, "quiet-one")):
        assert run(one, end) == []
        assert rows(one, start, end) == read
    quiet.append(b"late")
    assert [
        row["value"] for _, _, part in run(stream(daemon, "quiet-one"), end) for row in part
    ] == [b"late"]


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


def test_a_journal_that_was_put_back_is_noticed(daemon: Daemon, tmp_path: Path) -> None:
    with fjord.connect(daemon.url) as db:
        db.create_stream("events").append_many([b"kept"] * 10)
    port = daemon.port
    daemon.stop()
    shutil.copytree(daemon.path, tmp_path / "backup")
    daemon.start(port)
    with fjord.connect(daemon.url) as db:
        kept_end = run(stream(daemon))[-1][1]
        db.stream("events").append_many([b"lost"] * 10)
    found = stream(daemon)
    end = run(found)[-1][1]
    found.stop()
    daemon.stop()
    shutil.rmtree(daemon.path)
    shutil.copytree(tmp_path / "backup", daemon.path)
    daemon.start(port)
    with fjord.connect(daemon.url) as db:
        db.stream("events").append_many([b"other"] * 30)
    with pytest.raises(FjordError, match=r"is not the history of .*Begin anew with a new check"):
        stream(daemon).latestOffset(end, ALL)
    ((_, _, rest),) = run(stream(daemon), kept_end)  # up to there it is the same history
    assert [row["value"] for row in rest] == [b"other"] * 30
    ((_, _, rest),) = run(stream(daemon, failOnDataLoss="false"), end)
    # Nobody here knows the writer of what was lost, so it is all that there is.
    assert [row["value"] for row in rest] == [b"kept"] * 10 + [b"other"] * 30


@pytest.mark.parametrize("table", ["events", "pages"])
def test_an_idle_query_asks_seldom_and_does_not_move(
    daemon: Daemon, db: fjord.Database, table: str
) -> None:
    db.create_stream("events").append(b"x")
    db.jobs("pages").push("a")
    found = stream(daemon, table)
    (_, end, _), *_ = run(found)
    running = found._running
    assert running is not None
    running.target = None
    assert found.latestOffset(end, ALL) == end  # from now on it is idle
    begun, requests = time.monotonic(), db.stats()["requests"]
    for number in range(4):
        db.kv("other").set("k", number)  # which is none of its business
        assert found.latestOffset(end, ALL) == end
        assert found.reportLatestOffset() is not None
    seconds = time.monotonic() - begun
    asked = db.stats()["requests"] - requests - 4 - 1
    assert seconds >= 2.0
    assert asked / seconds <= 3


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


def test_the_latest_values_are_those_of_one_moment(daemon: Daemon, db: fjord.Database) -> None:
    users = db.create_stream("users", mode="latest")
    users.append_many([b"old"] * 3, [b"1", b"2", b"3"])
    users.append(b"new", b"1")
    users.delete(b"2")
    db.kv("settings").set_many({"a": 1, "b": "two"}, ttl=60)
    for table, keys in (("users", {b"1": b"new", b"3": b"old"}), ("settings", None)):
        wanted = {"server": daemon.url, "table": table, "view": "latest"}
        reader = FjordSource(wanted).reader(structs.ALL)
        found = [r for p in reader.partitions() for b in reader.read(p) for r in b.to_pylist()]
        assert {row["op"] for row in found} == {"SET"}
        if keys is not None:
            assert {row["key"]: row["value"] for row in found} == keys
        else:
            assert [(row["key"], row["type"]) for row in found] == [(b"a", 3), (b"b", 2)]
            assert all(row["expires_at"] > row["ts"] for row in found)
    assert db.stats()["snapshots"] == 0
