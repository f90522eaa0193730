"""Exactly once under kills: of the driver of Spark at each step of a batch, and of the daemon.

Two queries read one table: to a warehouse, and into another table of Fjord.  Meanwhile keys are
overwritten and blocks are sealed, and in the long campaign compacted, too.  In the end count and
checksum of both sides are those of all that was acknowledged.
"""

from __future__ import annotations

import collections
import json
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fjord
from fjord.spark.options import Location
from fjord.spark.pipelines.ingest import ingest
from tests.acceptance.daemon import Daemon
from tests.acceptance.killed_driver import INGEST_POINTS, POINTS, Kill, copy, summary

pytestmark = pytest.mark.spark

TABLE = "pages"
KEYS = 50
# Segments so small that there are several, and a longer campaign packs them.
SMALL = "from fjord import limits; limits.SEGMENT_BYTES = 64 * limits.KIB\n"
PROGRAM = [sys.executable, "-c", f"{SMALL}from fjord.cli import main; main()"]


class Campaign:
    """A table that is written to, and drivers that read it until they are killed."""

    def __init__(self, folder: Path, daemon: Daemon, *, format_: str, max_rows: int) -> None:
        self.daemon = daemon
        self.output = folder / "output"
        self.written: list[bytes] = []  # acknowledged
        self.crashes = 0
        self.task: dict[str, Any] = {
            "server": daemon.url,
            "table": TABLE,
            "target": str(folder / "warehouse"),
            "checkpoint": str(folder / "checkpoint"),
            "format": format_,
            "max_rows": max_rows,
        }

    def append(self, batches: int, rows: int) -> None:
        """Appends messages to a few keys, again and again."""
        with fjord.connect(self.daemon.url) as db:
            stream = db.stream(TABLE, mode="latest", block_rows=200)
            for _ in range(batches):
                first = len(self.written)
                values = [b"%d " % number + b"." * 50 for number in range(first, first + rows)]
                stream.append_many(values, keys=[b"k%d" % (n % KEYS) for n in range(rows)])
                self.written += values
            db.seal()

    def start(self, point: str = "", batch: int = -1) -> subprocess.Popen[bytes]:
        kill = {"point": point, "batch": batch} if point else {}
        task = json.dumps({**self.task, "kill": kill})
        # Workers of a driver that is killed may live on for a moment, and would keep pipes open.
        with self.output.open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.killed_driver", task],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self, point: str, ahead: int = 1) -> None:
        """Runs a driver that is killed at a point of a batch which is not done yet."""
        folder = self.task["checkpoint"]
        if point in INGEST_POINTS:
            folder = f"{self.task['target']}/_checkpoint"
        done = [path for path in Path(folder).glob("commits/*") if path.name.isdigit()]
        assert self.end_of(self.start(point, len(done) + ahead)) == -9
        self.crashes += 1

    def run(self) -> dict[str, int]:
        """Runs a driver to its end; returns what it says of the warehouse."""
        assert self.end_of(self.start()) == 0
        found: dict[str, int] = json.loads(self.output.read_text().splitlines()[-1])
        return found

    def end_of(self, driver: subprocess.Popen[bytes]) -> int:
        code = driver.wait(timeout=200)
        assert code in (0, -9), self.output.read_text()[-3000:]
        return code

    def finish_here(self, spark: SparkSession) -> dict[str, int]:
        """Does the same in this process: nobody kills this driver, so it needs none of its own."""
        where, table = Location(server=self.daemon.url), self.task["table"]
        given = {"format": self.task["format"], "max_rows": self.task["max_rows"]}
        ingest(spark, where, table, self.task["target"], subscriber="warehouse", **given)
        with fjord.connect(self.daemon.url) as db:
            copied = db.stream("copy").subscriber("watch", start="end")
            query = copy(spark, self.task, Kill(), "fjord")
            assert copied.read(1, wait=120)  # it has begun to write
        port = self.daemon.port
        self.daemon.kill()
        assert query.isActive  # and it is not done
        self.daemon.start(port)
        query.awaitTermination()
        return summary(spark, self.task["target"])

    def batches(self) -> int:
        """Returns how many batches the query into the other table has done."""
        return len(list(Path(self.task["checkpoint"]).glob("commits/[0-9]*")))

    def forget_last_commit(self) -> None:
        """Lets Spark believe that neither query has finished its last batch."""
        for name in (self.task["checkpoint"], f"{self.task['target']}/_checkpoint"):
            folder = Path(name, "commits")
            numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
            (folder / str(max(numbers))).unlink()
            (folder / f".{max(numbers)}.crc").unlink(missing_ok=True)

    def check(self, found: dict[str, int]) -> None:
        """Asserts that both sides have just what was acknowledged."""
        count, crc = len(self.written), sum(map(zlib.crc32, self.written))
        assert (found["rows"], found["seqs"], found["crc"]) == (count, count, crc)
        with fjord.connect(self.daemon.url) as db:
            batches = db.stream("copy").subscriber("check").batches()
            copied = [message.value for batch in batches for message in batch]
            lag = db.stream(TABLE).subscriber("warehouse").lag
        assert collections.Counter(copied) == collections.Counter(self.written)
        assert lag == 0


def test_kills_of_driver_and_daemon_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Daemon(tmp_path / "data", program=PROGRAM) as daemon:
        campaign = Campaign(tmp_path, daemon, format_="parquet", max_rows=250)
        campaign.append(batches=7, rows=100)
        campaign.kill("after the sink's commit")
        campaign.append(batches=5, rows=100)
        campaign.check(campaign.finish_here(spark))


@pytest.mark.soak
@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_sixty_batches_under_kills(
    spark: SparkSession, tmp_path: Path, format_: str, soak_seconds: float
) -> None:
    """At least 60 batches, each point of a kill at least once; goes on as long as it may."""
    dice = random.Random(format_)
    deadline = time.monotonic() + soak_seconds
    points = list(POINTS)
    with Daemon(tmp_path / "data", program=PROGRAM) as daemon:
        campaign = Campaign(tmp_path, daemon, format_=format_, max_rows=100)
        while campaign.batches() < 60 or points or time.monotonic() < deadline:
            campaign.append(batches=dice.randint(4, 8), rows=100)
            point = points.pop() if points else dice.choice(POINTS)
            campaign.kill(point, dice.randint(0, 2))
            if dice.random() < 0.3:
                campaign.finish_here(spark)
            if dice.random() < 0.3:
                compact(daemon.url)
            print(f"{format_}: {campaign.batches()} batches, {len(campaign.written)} rows, {point}")
        assert campaign.crashes >= len(POINTS)
        campaign.check(campaign.run())
        campaign.forget_last_commit()
        campaign.check(campaign.run())


def compact(url: str) -> None:
    program = "from fjord.cli import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "compact", TABLE, "--to", url]
    subprocess.run(command, check=True, timeout=200, capture_output=True)
