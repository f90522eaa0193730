"""A million ops through `compact`, `replay` and `dead-letters`, against plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset
from pyarrow import parquet as pq
from pyspark.sql import SparkSession

import fjord
from fjord.spark.options import Location
from fjord.spark.pipelines import dead_letters
from fjord.spark.pipelines.compact import compact
from fjord.spark.pipelines.replay import replay
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark

OPS, COMMIT, BLOCK, HOT = 1_000_000, 10_000, 100_000, 100_000


@pytest.mark.soak
def test_a_million_messages_are_compacted_and_replayed(spark: SparkSession, tmp_path: Path) -> None:
    keys = [f"key-{number * 7 % 50_000}" for number in range(OPS)]
    values = [b"value %d" % number for number in range(OPS)]
    where = Location.of_path(str(tmp_path / "data"))
    with fjord.open(where.path) as database:
        events = database.stream("events")
        for start in range(0, OPS, COMMIT):
            if start and start % BLOCK == 0:
                database.seal("events")
            events.append_many(values[start : start + COMMIT], keys=keys[start : start + COMMIT])
        assert len(database.blocks("events")) == (OPS - HOT) // BLOCK
    report = compact(spark, where, "events")
    assert (report.ok, report.figures["blocks_before"]) == (True, 9)
    with fjord.open(where.path, read_only=True) as database:
        blocks = database.blocks("events")
        assert len(blocks) == report.figures["blocks_after"] == 1
        files = [str(Path(one.location) / f"{one.name}.parquet") for one in blocks]
    cold = dataset.dataset(files).to_table(columns=["key", "value"])  # in the order of the file
    assert cold["value"].to_pylist() == values[:-HOT]
    assert cold["key"].to_pylist() == [key.encode() for key in keys[:-HOT]]
    with Daemon(tmp_path / "other") as daemon:
        done = replay(spark, where, "events", "again", to=daemon.url, batch_rows=500_000)
        assert (done.figures["complete"], done.figures["written_rows"]) == (True, OPS)
        with fjord.connect(daemon.url) as database:
            again = pa.concat_tables(database.scan_arrow("again", columns=["key", "value"]))
    assert again["value"].to_pylist() == values
    assert again["key"].to_pylist() == [key.encode() for key in keys]


# -- dead letters ---------------------------------------------------------------------------------

JOBS, DOMAINS = 222_000, 20
START = datetime(2026, 10, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "seq": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "op": pa.string(),
        "row": pa.int64(),
        "key": pa.binary(),
        "domain": pa.string(),
        "priority": pa.int16(),
        "timeouts": pa.int16(),
        "type": pa.int16(),
        "value": pa.binary(),
        "size": pa.int32(),
    }
)
# What jobs do, one after the other; most of them die, and some come back.
LIVES = (
    ("ADD", "TAKE", "FAIL", "TAKE", "DONE"),
    ("ADD", "TAKE", "FAIL", "TAKE", "DEAD"),
    ("ADD", "TAKE", "DEAD", "REVIVE", "TAKE"),
    ("ADD", "TAKE", "DEAD", "DISCARD"),
    ("ADD", "REPLACE", "DEAD", "REVIVE", "DEAD"),
    ("ADD", "DEAD", "MOVE_DEAD"),
)


class Letters:
    """A history that is made up, and what Python knows of it."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self.ops: Counter[str] = Counter()
        self.dead: dict[int, tuple[bytes, int, str]] = {}  # by row: key, microseconds, reason
        self.seq = 0
        for number in range(JOBS):
            self.live(number, LIVES[number * 7919 % 31 % len(LIVES)])

    def live(self, number: int, ops: tuple[str, ...]) -> None:
        row, key, died = self.seq + 1, b"key %d" % number, 0
        for op in ops:
            self.seq += 1
            us = self.seq * 1_000_000  # one op a second
            reason = b"exit code %d: user %d is away" % (number % 3, 10_000 + number)
            if op == "DEAD":
                died = us
            value = reason if op == "DEAD" else b"payload" if op in ("ADD", "REPLACE") else None
            given = (
                *(self.seq, us, op, row, key if value or op == "MOVE_DEAD" else None),
                *(f"site{number % DOMAINS}.example" if value else None, 100, 0),
                *(2 if value else None, value, len(value or b"")),
            )
            for column, one in zip(self.columns.values(), given, strict=True):
                column.append(one)
        self.ops.update(ops)
        if ops[-1] in ("DEAD", "MOVE_DEAD"):
            self.dead[row] = (key, died, reason.decode())

    def write(self, path: Path) -> None:
        start = int(START.timestamp() * 1_000_000)
        self.columns["ts"] = [start + us for us in self.columns["ts"]]
        pq.write_table(pa.table(self.columns, schema=SCHEMA), path)


@pytest.mark.soak
def test_a_million_ops_of_jobs_have_the_dead_that_python_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    letters = Letters()
    assert letters.seq >= OPS
    letters.write(tmp_path / "history.parquet")
    history = spark.read.parquet(str(tmp_path / "history.parquet"))
    found = dead_letters.dead(history).persist()
    rows = found.select("row", "key", "died_at", "reason").toArrow().to_pydict()
    moments = [int((at - START) / timedelta(microseconds=1)) for at in rows["died_at"]]
    known = zip(rows["key"], moments, rows["reason"], strict=True)
    assert dict(zip(rows["row"], known, strict=True)) == letters.dead
    until = START + timedelta(seconds=letters.seq + 1)
    groups = dead_letters.groups(found, until).collect()
    kinds = Counter(reason.partition(":")[0] for _, _, reason in letters.dead.values())
    assert {group["kind"] for group in groups} == {f"{kind}: user … is away" for kind in kinds}
    for kind, count in kinds.items():
        assert sum(one["jobs"] for one in groups if one["kind"].startswith(kind)) == count
    recent = sum(letters.seq + 1 - us // 1_000_000 < 3600 for _, us, _ in letters.dead.values())
    assert sum(group["last_hour"] for group in groups) == recent
    (fates,) = dead_letters.fates(history).collect()
    assert (fates["died"], fates["revived"], fates["discarded"]) == tuple(
        letters.ops[op] for op in ("DEAD", "REVIVE", "DISCARD")
    )
    found.unpersist()
