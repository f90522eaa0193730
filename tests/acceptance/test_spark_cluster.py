"""A real cluster of Spark reads and writes: master and two workers on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.standalone import SHORT_LIVED, cluster

pytestmark = pytest.mark.spark

ROWS, COLD = 3000, 2000
EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SHORT_LIVED}

PROGRAM = """
import json
import sys
import fjord.spark
from fjord.cli.commands import app
from pyspark import TaskContext
from pyspark.sql import functions as F

server, master, executors, target = sys.argv[1:]
spark = fjord.spark.session(**{"spark.master": master, **json.loads(executors)})
frame = spark.read.format("fjord").options(server=server, table="visits", partitions=4).load()
print(frame.rdd.getNumPartitions())
row = frame.agg(F.count("*"), F.sum(F.crc32("value")), F.countDistinct("seq")).first()
print(*row)
whole = fjord.spark.history(spark, server, "visits")
print(*whole.agg(F.count("*"), F.sum(F.crc32("value")), F.countDistinct("seq")).first())
print(spark.sparkContext.master)


def dying(batches):
    yield from batches
    task = TaskContext.get()
    if (task.partitionId(), task.attemptNumber()) == (1, 0):
        raise RuntimeError("this attempt ends when all of its rows are on their way")


copied = whole.repartition(3).select("key", "type", "value")
copied = copied.mapInArrow(dying, copied.schema)
options = {"server": server, "table": "copies", "kind": "stream"}
copied.write.format("fjord").options(**options).mode("append").save()

# The command takes the session that is there.
app([
    *("pipeline", "ingest", "visits", target, "--to", server, "--master", master, "--json"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
])
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a stream that is partly in blocks."""
    with Daemon(tmp_path_factory.mktemp("served") / "data") as daemon:
        with fjord.connect(daemon.url) as db:
            visits = db.stream("visits")
            visits.append_many([b"visit %d" % number for number in range(COLD)])
            db.seal("visits")
            visits.append_many([b"visit %d" % number for number in range(COLD, ROWS)])
            assert sum(block.rows for block in db.blocks("visits")) == COLD
        yield daemon


@pytest.mark.soak
def test_a_cluster_reads_and_writes_and_tries_again_and_runs_jobs(
    master: str, daemon: Daemon, tmp_path: Path
) -> None:
    target = tmp_path / "warehouse"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, daemon.url, master, json.dumps(EXECUTORS), str(target)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    crc = sum(zlib.crc32(b"visit %d" % number) for number in range(ROWS))
    partitions, read, whole, used, told = done.stdout.splitlines()
    assert int(partitions) >= 2
    assert read == whole == f"{ROWS} {crc} {ROWS}"
    assert used == master
    # A task failed and ran again; what the first attempt had staged is seen by nobody.
    with fjord.connect(daemon.url) as db:
        copies = Counter(one.value for one in db.stream("copies").read(2 * ROWS).messages)
    assert copies == Counter(b"visit %d" % number for number in range(ROWS))

    report = json.loads(told)
    assert (report["ok"], report["rows"]) == (True, ROWS)
    values = [
        value
        for path in target.rglob("*.parquet")
        for value in pq.read_table(path).column("value").to_pylist()
    ]
    assert sorted(values) == sorted(b"visit %d" % number for number in range(ROWS))
