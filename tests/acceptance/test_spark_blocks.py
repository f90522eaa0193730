"""Spark reads blocks as they are: Parquet files with the schema of every history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema
from fjord.blocks.store import Store
from fjord.ops import Opcode
from tests.unit.blocks import scans, sealed

pytestmark = pytest.mark.spark


@pytest.mark.req("JQ-17")
def test_blocks_are_rows_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    journal = sealed.journal_of([10, 10])
    job: dict[str, Any] = {
        "key": [b"k"],
        "domain": [b"here"],
        "value": [b"job"],
        "priority": b"\7",
        "process_at_us": [sealed.WALL_US],
    }
    journal.commit(scans.op(Opcode.JOB_ADD, 1, job))
    store = Store(str(tmp_path / "cold"))
    blocks = journal.seal(store, journal.range(block_rows=10))
    paths = [store.path(block.name) for block in blocks]
    found = spark.read.schema(schema.DDL).parquet(*paths)
    rows = found.orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(1, 22))
    assert [bytes(row.value) for row in rows] == [*sealed.messages(20), b"job"]
    assert {row.op for row in rows[:20]} == {"APPEND"}
    last = rows[-1]
    assert (last.op, last.domain, last.priority, bytes(last.key)) == ("ADD", "here", 7, b"k")
    assert found.where("ts = process_at").count() == 0
    assert found.where(F.col("ts") >= F.lit(rows[10].ts)).count() == 11
