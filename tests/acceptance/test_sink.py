"""The sink against a real daemon, in the hands of a Spark that fails where it can: tasks that run
twice, commits whose answers are lost, a daemon that is killed in between."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import fjord
from fjord import limits
from fjord.spark import sink
from fjord.spark.sink import FjordStreamWriter
from tests.acceptance.daemon import Daemon

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as daemon:
        yield daemon


def stream_writer(daemon: Daemon, table: str, kind: str) -> FjordStreamWriter:
    """Returns a writer as the tasks and the end of a batch have it."""
    options = {"server": daemon.url, "table": table, "kind": kind, "txnId": "query"}
    made = sink.stream_writer(options, SCHEMA, overwrite=False)
    copy: FjordStreamWriter = pickle.loads(pickle.dumps(made))
    return copy


def rows_of(*keys: str, value: bytes = b"x") -> Iterator[pa.RecordBatch]:
    """Yields rows, a batch each."""
    for key in keys:
        yield pa.record_batch({"key": [key], "value": pa.array([value], pa.binary())})


def keys_of(database: fjord.Database, table: str, kind: str) -> list[str]:
    """Returns what everyone sees, in the order in which it was written."""
    if kind == "stream":
        return [message.key for message in database.stream(table).read()]
    if kind == "jobs":
        return [job.key for job in database.jobs(table).peek(count=1_000)]
    return sorted(database.kv(table).keys())


KINDS = ("stream", "jobs", "kv")


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_seen_once_whatever_happens(daemon: Daemon, kind: str) -> None:
    writer = stream_writer(daemon, "t", kind)
    with fjord.connect(daemon.url) as database:
        lost = writer.write(rows_of("lost"))  # of a task that ran again, and another one won
        messages = [writer.write(rows_of("c")), writer.write(rows_of("a", "b"))]
        assert lost.stages
        assert database.table("t").kind == kind
        assert keys_of(database, "t", kind) == []
        writer.commit(messages, 0)
        seen = keys_of(database, "t", kind)
        assert seen == (["a", "b", "c"] if kind == "kv" else ["c", "a", "b"])
        # Spark did not hear of it: it aborts, and runs the same batch again.
        writer.abort(messages, 0)
        writer.commit(messages, 0)
        again = [writer.write(rows_of("c")), writer.write(rows_of("a", "b"))]
        writer.commit(again, 0)
        writer.abort([None, *again], 0)
        assert keys_of(database, "t", kind) == seen
        writer.commit([], 1)
        writer.commit([writer.write(rows_of("d"))], 1)  # this number was used
        writer.commit([writer.write(rows_of("e"))], 2)
        assert keys_of(database, "t", kind) == [*seen, "e"]
        assert database.staging("t").last_batch("query") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_attempts_at_one_partition_one_counts(daemon: Daemon, kind: str) -> None:
    """As Spark does it with a task that it finds slow: the other one is stopped, or too late."""
    writer, both_began = stream_writer(daemon, "t", kind), threading.Barrier(2, timeout=60)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from rows_of("a")
        both_began.wait()
        yield from rows_of("b")

    def stopped() -> Iterator[pa.RecordBatch]:
        yield from rows_of("c")
        raise InterruptedError

    with ThreadPoolExecutor(max_workers=2) as tasks, fjord.connect(daemon.url) as database:
        late, won = [one.result(60) for one in [tasks.submit(writer.write, rows()) for _ in "ab"]]
        assert late.partition == won.partition
        assert not set(late.stages) & set(won.stages)
        with pytest.raises(InterruptedError):
            writer.write(stopped())
        writer.commit([won], 0)
        assert keys_of(database, "t", kind) == ["a", "b"]
        # One that ends after the commit changes nothing either, and neither does the next batch.
        assert writer.write(rows_of("a", "b")).stages
        writer.commit([writer.write(rows_of("d"))], 1)
        assert keys_of(database, "t", kind) == ["a", "b", "d"]


def test_a_daemon_is_killed_between_write_and_commit(daemon: Daemon) -> None:
    writers = {kind: stream_writer(daemon, kind, kind) for kind in KINDS}
    messages = {kind: [writers[kind].write(rows_of("a", "b"))] for kind in KINDS}
    port = daemon.port
    for _ in range(2):
        daemon.kill()
        daemon.start(port)
        for kind in KINDS:
            writers[kind].commit(messages[kind], 0)
    with fjord.connect(daemon.url) as database:
        for kind in KINDS:
            assert keys_of(database, kind, kind) == ["a", "b"]


def test_a_daemon_is_killed_while_a_task_writes(daemon: Daemon) -> None:
    port, chunks = daemon.port, 4

    def batches() -> Iterator[pa.RecordBatch]:
        for chunk in range(chunks):
            keys = [f"{chunk}-{row}" for row in range(limits.SLICE_ROWS_MAX)]
            yield pa.record_batch({"key": keys, "value": [b"x"] * len(keys)})
            if chunk == 1:
                daemon.kill()
                daemon.start(port)

    writer = stream_writer(daemon, "t", "jobs")
    message = writer.write(batches())
    assert (message.rows, len(message.stages)) == (chunks * limits.SLICE_ROWS_MAX, chunks)
    writer.commit([message], 0)
    with fjord.connect(daemon.url) as database:
        assert database.jobs("t").count().waiting == message.rows
