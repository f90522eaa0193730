"""The sink without Spark: who writes, in which order, and what Spark may do with its objects."""

from __future__ import annotations

import inspect
import json
import pickle
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import fjord
from fjord import commands
from fjord.commands import Committed
from fjord.errors import Code, FjordError, NotFoundError, RefusedError, StaleSchemaError
from fjord.spark import sink
from fjord.spark.sink import Staged
from fjord.spark.source import FjordSource

SERVER = "fjord://127.0.0.1:17994"
SCHEMA = StructType([StructField("key", StringType()), StructField("value", IntegerType())])


class FakeDatabase:
    """Tables, stages and what was committed, as far as a sink sees them."""

    def __init__(self, **kinds: str) -> None:
        self.kinds = kinds
        self.staged: list[dict[str, Any]] = []
        self.commits: list[tuple[str, int, list[int]]] = []
        self.connected = 0
        self.refusal: FjordError | None = None

    def __enter__(self) -> Self:
        self.connected += 1
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def table(self, name: str) -> fjord.TableInfo:
        if name not in self.kinds:
            raise NotFoundError(Code.NOT_FOUND, name)
        return fjord.TableInfo(name=name, kind=self.kinds[name], id=1)

    def staging(self, table: str) -> FakeDatabase:
        return self

    def append(self, **columns: Any) -> int:
        if self.refusal:
            raise self.refusal
        self.staged.append(columns)
        return 100 + len(self.staged)

    push = set = append

    def commit(self, writer: str, batch: int, stages: list[int]) -> Committed:
        if self.refusal:
            raise self.refusal
        last = max((one[1] for one in self.commits if one[0] == writer), default=-1)
        self.commits.append((writer, batch, stages))
        return Committed(batch=max(batch, last), is_new=batch > last, left=0, rows=0, seq=0)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakeDatabase:
    fake = FakeDatabase(events="stream", pages="jobs", settings="kv")
    monkeypatch.setattr(fjord, "connect", lambda address: fake)
    return fake


def writer_of(**options: str) -> sink.FjordWriter:
    options = {"server": SERVER, "table": "events", **options}
    return sink.writer(options, SCHEMA, overwrite=False)


def stream_writer_of(**options: str) -> sink.FjordStreamWriter:
    options = {"server": SERVER, "table": "events", **options}
    return sink.stream_writer(options, SCHEMA, overwrite=False)


def batch_of(*numbers: int) -> pa.RecordBatch:
    keys = [f"k{number}" for number in numbers]
    return pa.record_batch({"key": keys, "value": pa.array(numbers, pa.int32())})


def staged(*stages: int, partition: int = 0, query: str = "") -> Staged:
    return Staged(partition=partition, query=query, stages=stages, rows=len(stages))


# -- planning -------------------------------------------------------------------------------------


def test_spark_finds_the_parameters_that_it_names() -> None:
    for name in ("writer", "streamWriter"):
        own, spark = (getattr(kind, name) for kind in (FjordSource, DataSource))
        assert list(inspect.signature(own).parameters) == list(inspect.signature(spark).parameters)
    assert list(inspect.signature(sink.FjordStreamWriter.commit).parameters)[1:] == [
        "messages",
        "batchId",
    ]


def test_a_table_that_is_not_there_needs_a_kind(database: FakeDatabase) -> None:
    with pytest.raises(
        FjordError, match=r"no table 'new' in fjord.*create one with the option kind: stream"
    ):
        writer_of(table="new")
    assert writer_of(table="new", kind="jobs").write(iter([])).stages == ()
    assert (database.staged, database.commits) == ([], [])


def test_a_table_that_is_there_decides(database: FakeDatabase) -> None:
    with pytest.raises(FjordError, match="table pages is jobs, not kv"):
        writer_of(table="pages", kind="kv")
    with pytest.raises(FjordError, match="ttl is for kv tables; events is stream"):
        writer_of(ttl="5")
    schema = StructType([*SCHEMA.fields, StructField("priority", IntegerType())])
    with pytest.raises(FjordError, match="no column 'priority'"):
        sink.writer({"server": SERVER, "table": "events"}, schema, overwrite=False)
    writer = sink.writer({"server": SERVER, "table": "pages"}, schema, overwrite=False)
    assert writer.write(iter([])).stages == ()


# -- tasks ----------------------------------------------------------------------------------------


@pytest.mark.req("SJ-30")
def test_columns_that_were_changed_meanwhile_are_told(database: FakeDatabase) -> None:
    writer = writer_of()
    database.refusal = StaleSchemaError(Code.STALE_SCHEMA, "a row has schema 1")
    with pytest.raises(FjordError, match=r"columns of table events are not those.*schema 1.*again"):
        writer.write(iter([batch_of(1)]))


# -- the end --------------------------------------------------------------------------------------


def test_messages_and_writers_travel(database: FakeDatabase) -> None:
    message = staged(1, 2, partition=3, query="q")
    assert pickle.loads(pickle.dumps(message)) == message
    writer = writer_of()
    copies = [pickle.loads(pickle.dumps(writer)) for _ in range(2)]
    for copy in copies:
        copy.commit([message])
    (first, batch, stages), second = database.commits
    assert (first, batch, stages) == second  # a name is made once, on the driver
    assert first.startswith(commands.WRITER_ONCE)
    assert (len(first), batch, stages) == (41, 0, [1, 2])
    writer_of().commit([message])
    assert database.commits[-1][0] != first


def test_a_write_is_committed_in_the_order_of_partitions(database: FakeDatabase) -> None:
    writer = writer_of(txnId="me", txnVersion="7")
    writer.commit([staged(9, partition=2), staged(3, 4), staged(partition=1)])
    assert database.commits == [("me", 7, [3, 4, 9])]


def test_an_empty_write_is_committed_if_it_has_a_name(database: FakeDatabase) -> None:
    writer_of().commit([staged()])
    assert database.commits == []
    writer_of(txnId="me", txnVersion="0").commit([])
    assert database.commits == [("me", 0, [])]


def test_what_is_there_already_is_said(
    database: FakeDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    writer_of(txnId="me", txnVersion="7").commit([staged(1, 2)])
    assert caplog.messages == []
    writer_of(txnId="me", txnVersion="6").commit([staged(3, 4), staged(5, partition=1)])
    stream_writer_of(txnId="me").commit([staged(6, query="q")], batchId=7)
    told = "batch {} of me is already in the table events, which has its batches up to 7: "
    assert caplog.messages == [
        told.format(6) + "3 rows were not written again",
        told.format(7) + "1 rows were not written again",
    ]


def test_a_stream_is_named_by_its_query(database: FakeDatabase) -> None:
    writer = stream_writer_of()
    writer.commit([staged(2, partition=1, query="q"), staged(1, query="q")], 5)
    stream_writer_of(txnId="me").commit([staged(3, query="q")], batchId=6)
    assert database.commits == [("q", 5, [1, 2]), ("me", 6, [3])]


def test_an_empty_batch_has_the_name_of_the_others(database: FakeDatabase, tmp_path: Path) -> None:
    checkpoint = tmp_path / "a checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    for place in (str(checkpoint), checkpoint.as_uri(), f"file:{checkpoint}"):
        stream_writer_of(checkpointLocation=place).commit([], 0)
    assert database.commits == [("q", 0, [])] * 3


@pytest.mark.parametrize("place", ["", "/nowhere", "hdfs://node/checkpoint"])
def test_an_empty_batch_without_a_name_is_left_out(database: FakeDatabase, place: str) -> None:
    stream_writer_of(checkpointLocation=place).commit([], 0)
    assert database.commits == []


def test_rows_without_a_query_are_refused(database: FakeDatabase) -> None:
    for messages in ([staged(1)], [staged(1, query="a"), staged(2, query="b")]):
        with pytest.raises(FjordError, match="give the option txnId"):
            stream_writer_of().commit(messages, 0)
    assert database.commits == []


def test_a_task_that_says_nothing_is_refused(database: FakeDatabase) -> None:
    with pytest.raises(FjordError, match="1 of 2 tasks did not report"):
        writer_of().commit([staged(1), None])
    with pytest.raises(FjordError, match="1 of 1 tasks did not report"):
        stream_writer_of().commit([None], 0)
    assert database.commits == []


def test_a_stage_that_is_gone_says_why(database: FakeDatabase) -> None:
    writer = writer_of()
    database.refusal = RefusedError(Code.STAGE_GONE, "stage 5 is not there")
    with pytest.raises(FjordError, match=r"took longer than the 6 hours.*stage 5"):
        writer.commit([staged(5)])
    database.refusal = RefusedError(Code.QUOTA, "full")
    with pytest.raises(RefusedError, match="full"):
        writer.commit([staged(5)])


def test_nothing_is_overwritten() -> None:
    with pytest.raises(FjordError, match=r"omit mode\('overwrite'\)"):
        sink.writer({"server": SERVER}, SCHEMA, overwrite=True)
    with pytest.raises(FjordError, match="output mode complete"):
        sink.stream_writer({"server": SERVER}, SCHEMA, overwrite=True)
