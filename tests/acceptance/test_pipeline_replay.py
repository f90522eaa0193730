"""`replay`: rows of history are written again, each of them once, however often it is started."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fjord
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines.replay import REPLAYS, replay
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark

COMMITS, COMMIT = 6, 100


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("replay") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def events(daemon: Daemon) -> list[tuple[str, bytes]]:
    """What the stream has, in order; half of it is in a block."""
    messages = [(f"k{number % 7}", b"%d" % number) for number in range(COMMITS * COMMIT)]
    with fjord.connect(daemon.url) as database:
        stream = database.stream("events")
        for start in range(0, len(messages), COMMIT):
            part = messages[start : start + COMMIT]
            stream.append_many([value for _, value in part], keys=[key for key, _ in part])
            if start == len(messages) // 2:
                database.seal("events")
    return messages


def read(daemon: Daemon, table: str) -> list[tuple[str, bytes]]:
    with fjord.connect(daemon.url) as database:
        found = database.stream(table).read(10_000)
        return [(message.key, message.value) for message in found.messages]


def test_a_replay_that_was_stopped_goes_on_and_a_complete_one_does_nothing(
    spark: SparkSession, daemon: Daemon, events: list[tuple[str, bytes]]
) -> None:
    where, stop = Location(server=daemon.url), threading.Event()

    def stop_after_one(_what: str, done: int, _total: int | None) -> None:
        if done:
            stop.set()

    first = replay(
        spark,
        where,
        "events",
        "again",
        replay_id="one",
        batch_rows=150,
        stop=stop,
        progress=stop_after_one,
    )
    written = int(first.figures["written_rows"] or 0)
    assert (first.figures["complete"], first.figures["batches"]) == (False, 2)
    assert 0 < written < len(events)
    assert read(daemon, "again") == events[:written]  # in order, and whole commits
    assert written % COMMIT == 0
    with fjord.connect(daemon.url) as database:
        database.stream("events").append(b"later, and not meant", key="k")
        meant = json.loads(str(database.kv(REPLAYS).get("one")))
    second = replay(spark, where, "events", "again", replay_id="one", batch_rows=10_000)
    # It is cut as it was when it was begun.
    assert second.figures["complete"]
    assert int(second.figures["batches"] or 0) > 1
    assert second.figures["written_rows"] == len(events) - written
    assert read(daemon, "again") == events
    third = replay(spark, where, "events", "again", replay_id="one")
    assert (third.figures["complete"], third.figures["written_rows"]) == (True, 0)
    assert third.figures["to_seq"] == meant["end"] - 1 == second.figures["to_seq"]
    assert read(daemon, "again") == events
    with pytest.raises(FjordError, match="was begun with keys 'same', not 'fresh'"):
        replay(spark, where, "events", "again", replay_id="one", keys="fresh")


def test_some_rows_to_another_daemon_with_fresh_keys(
    spark: SparkSession, daemon: Daemon, events: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    where = Location(server=daemon.url)
    with Daemon(tmp_path / "other") as other:
        report = replay(
            spark,
            where,
            "events",
            "copy",
            to=other.url,
            key_prefix="k3",
            keys="fresh",
            replay_id="two",
            pace=1e6,
        )
        expected = [(f"{key}#two", value) for key, value in events if key == "k3"]
        assert report.figures["written_rows"] == len(expected)
        assert read(other, "copy") == expected
    dry = replay(spark, where, "events", "copy", key_prefix="k3", dry_run=True)
    assert (
        dry.figures["selected_rows"]
        == sum(int(line["rows"] or 0) for line in dry.rows)
        == len(expected)
    )
    assert {line["op"] for line in dry.rows} == {"APPEND"}
    with fjord.connect(daemon.url) as database:
        assert database.kv(REPLAYS).get("two") is None  # it is known where its target is
        assert "copy" not in [table.name for table in database.tables()]


def test_jobs_of_a_list_are_pushed_again_as_they_were_last(
    spark: SparkSession, daemon: Daemon, tmp_path: Path
) -> None:
    listed = tmp_path / "dead.jsonl"
    expires_at = datetime.now(tz=UTC) + timedelta(hours=2)
    with fjord.connect(daemon.url) as database:
        jobs = database.jobs("pages")
        jobs.push("http://a.example/1", b"first", priority=3)
        jobs.push("http://a.example/1", b"second", priority=2)
        jobs.push("http://b.example/2", b"other", delay=1000, expires_at=expires_at)
        jobs.push("http://c.example/3", b"not listed")
        found = list(database.scan_arrow("pages", columns=["row", "op", "key"]))
        rows = {
            bytes(line["key"]): line["row"]
            for table in found
            for line in table.to_pylist()
            if line["op"] == "ADD"
        }
    lines = [rows[b"http://a.example/1"], rows[b"http://b.example/2"]]
    listed.write_text("".join(f'{{"row": {row}, "reason": "tired"}}\n' for row in lines))
    report = replay(
        spark,
        Location(server=daemon.url),
        "pages",
        "pages-again",
        redrive=str(listed),
        replay_id="redrive",
    )
    assert report.figures["written_rows"] == 2
    with fjord.connect(daemon.url) as database:
        again = database.jobs("pages-again")
        first, second = again.get("http://a.example/1"), again.get("http://b.example/2")
        assert first is not None
        assert second is not None
        assert again.get("http://c.example/3") is None
        assert (first.priority, first.domain) == (2, "a.example")
        # It waits as long as it did, and lives as long.
        assert 900 < (second.process_at - datetime.now(tz=UTC)).total_seconds() <= 1000
        assert second.expires_at is not None
        assert second.expires_at >= expires_at
        assert [job.value for job in again.next(count=5)] == [b"second"]
    listed = tmp_path / "dead"  # as `fjord jobs redrive` takes it
    listed.write_text(f"--row={lines[0]}\n")
    with pytest.raises(FjordError, match="was begun with redrive '2 jobs"):
        replay(
            spark,
            Location(server=daemon.url),
            "pages",
            "pages-again",
            redrive=str(listed),
            replay_id="redrive",
        )
