"""Streams of Spark over a real daemon: batches, restarts, progress, and what a batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fjord
import fjord.spark
from fjord.spark import progress as offsets
from tests.acceptance.daemon import Daemon
from tests.acceptance.test_sealing import until

pytestmark = pytest.mark.spark

SECONDS_MAX = 120


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


class Sink:
    """Takes the rows of batches, once each."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = sorted(row.seq for row in frame.select("seq").collect())

    @property
    def seqs(self) -> list[int]:
        return [seq for batch in sorted(self.batches) for seq in self.batches[batch]]


def start(
    spark: SparkSession, sink: Sink, place: Path, *, now: bool, **options: str
) -> StreamingQuery:
    found = spark.readStream.format("fjord").options(table="events", **options).load()
    writer = found.writeStream.foreachBatch(sink).option("checkpointLocation", str(place))
    return (writer.trigger(availableNow=True) if now else writer).start()


def place_of(query: StreamingQuery, name: str) -> Any:
    """Returns an offset of the last batch."""
    progress = query.lastProgress
    return None if progress is None else progress["sources"][0][name]


def fill(db: fjord.Database) -> fjord.Stream:
    """Writes 2,000 rows to blocks, and 300 behind them."""
    events = db.create_stream("events", block_rows=1000)
    for number in range(4):
        events.append_many([b"%d" % number] * 500, [b"k%d" % key for key in range(500)])
    db.kv("other").set("k", 1)
    db.seal("events")
    for number in range(3):
        events.append_many([b"tail %d" % number] * 100, [b"k%d" % key for key in range(100)])
    return events


def test_a_run_reads_what_there_is_and_the_next_one_goes_on(
    spark: SparkSession, daemon: Daemon, db: fjord.Database, tmp_path: Path
) -> None:
    events = fill(db)
    place, options = tmp_path / "checkpoint", {"server": daemon.url, "subscriber": "spark"}
    first = Sink()
    query = start(spark, first, place, now=True, maxRowsPerTrigger="700", **options)
    query.awaitTermination()
    assert [len(found) for found in first.batches.values()] == [500, 500, 500, 700, 100]
    end, latest = (offsets.decode(place_of(query, name)) for name in ("endOffset", "latestOffset"))
    assert end.seq == latest.seq >= first.seqs[-1]
    # The source is never told of the last batch; the listener of the session is.
    until(db, lambda: events.subscriber("spark").lag == 0)
    again = Sink()
    start(spark, again, place, now=True, **options).awaitTermination()
    assert again.seqs == []
    events.append_many([b"late"] * 10)
    third = Sink()
    start(spark, third, place, now=True, **options).awaitTermination()
    assert len(third.seqs) == 10
    read = [seq for piece in db.scan_arrow("events") for seq in piece["seq"].to_pylist()]
    assert first.seqs + third.seqs == read
    until(db, lambda: events.subscriber("spark").lag == 0)


def test_a_running_query_waits_goes_on_after_a_restart_and_ends_when_another_has_its_name(
    spark: SparkSession, daemon: Daemon, db: fjord.Database, tmp_path: Path
) -> None:
    events = db.create_stream("events")
    events.append(b"before")
    options = {"server": daemon.url, "startingOffsets": "latest", "subscriber": "spark"}
    sink = Sink()
    query = start(spark, sink, tmp_path / "one", now=False, **options)
    query.processAllAvailable()
    assert sink.seqs == []  # a first batch without a row, or none at all
    place = place_of(query, "endOffset")
    db.kv("other").set("k", 1)  # which is none of its business
    seq = events.append(b"now")
    query.processAllAvailable()
    until(db, lambda: sink.seqs == [seq])
    assert place_of(query, "endOffset") != place
    port = daemon.port
    daemon.kill()
    daemon.start(port)
    seq = events.append(b"after a restart")
    until(db, lambda: sink.seqs[-1] == seq)
    other = start(spark, Sink(), tmp_path / "two", now=True, **options)
    other.awaitTermination()
    events.append(b"one more")  # the batch before it is acknowledged now, and refused
    with pytest.raises(StreamingQueryException, match="another query with the same subscriber"):
        query.awaitTermination(SECONDS_MAX)
    assert not query.isActive


def test_one_frame_with_two_filters_has_the_rows_of_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark keeps what a source made of filters with the frame: a source must make nothing."""
    with fjord.open(tmp_path) as database:
        database.kv().set_many({f"{number}": number for number in range(20)})
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = spark.read.format("fjord").load(str(tmp_path))
        seqs = sorted(row.seq for row in found.collect())
        both = found.filter(f"seq < {seqs[5]}").union(found.filter(f"seq > {seqs[15]}"))
        assert both.count() == 5 + 4
        assert found.count() == 20
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
