"""`reconcile`: server, cold blocks and warehouse agree, or what does not is named."""

from __future__ import annotations

import shutil
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyspark.sql import SparkSession

import fjord
from fjord.errors import FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines import sides
from fjord.spark.pipelines.reconcile import reconcile
from fjord.spark.pipelines.report import Report
from tests.acceptance import stocked
from tests.acceptance.stocked import TABLE, Expected, Stocked, history

pytestmark = pytest.mark.spark

# Of the small table: four blocks of 100 rows, and 100 rows in the tail.
ROWS, BLOCK = 500, 100
EPOCH = datetime.fromtimestamp(0, UTC)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Expected]:
    data = tmp_path_factory.mktemp("small") / "data"
    return data, stocked.fill(data, rows=ROWS, commit_rows=BLOCK // 2, block_rows=BLOCK, blocks=4)


def blocks_of(data: Path) -> list[Path]:
    with fjord.open(data, read_only=True) as database:
        return [data / "blocks" / f"{one.name}.parquet" for one in database.blocks(TABLE)]


def piece(expected: Expected, number: int) -> pa.Table:
    rows = range(number * BLOCK, (number + 1) * BLOCK)
    return history(rows, expected.seqs[rows.start : rows.stop], expected.commits)


def told(report: Report) -> set[tuple[str, str, Any]]:
    """Returns side, problem and rows of all lines that say what is wrong."""
    return {
        (str(line["side"]), str(line["problem"]), line["rows"])
        for line in report.rows
        if line["problem"]
    }


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_all_rows_agree_with_what_was_appended(
    spark: SparkSession, tmp_path: Path, count: int
) -> None:
    data, target = tmp_path / "data", tmp_path / "warehouse"
    commit, block = count // 100, count * 3 // 10
    expected = stocked.fill(data, rows=count, commit_rows=commit, block_rows=block, blocks=3)
    assert len(set(expected.seqs)) == count
    half = count // 2
    store = Stocked(target)
    store.add(
        history(range(half), expected.seqs[:half], expected.commits),
        start=1,
        end=expected.seqs[half - 1],
    )
    seen: list[tuple[str, int, int | None]] = []
    report = reconcile(
        spark,
        Location.of_path(str(data)),
        TABLE,
        str(target),
        bucket="block",
        progress=lambda what, done, total: seen.append((what, done, total)),
    )
    assert (report.ok, report.rows) == (True, [])
    figures = dict(report.figures)
    assert figures["blocks"] == 3
    assert figures["cold_rows"] == 3 * block
    assert figures["history_rows"] == figures["warehouse_rows"] == half
    assert (figures["watermark"], figures["lag_rows"]) == (expected.seqs[half - 1], half)
    assert [done for _, done, _ in seen] == list(range(len(seen)))
    # The sums are those that anyone can compute.
    from pyspark.sql import functions as F  # noqa: N812

    scope = sides.scope(Location.of_path(str(data)), TABLE, 1, 0)
    both = sides.cold(spark, scope).drop("block").unionByName(sides.tail(spark, scope))
    (line,) = sides.summarise(both, F.lit("all")).collect()
    row_crc = sum(
        zlib.crc32(
            b"%d:%d:%d:APPEND:%d::::::::1:%d:%s"
            % (seq, micros, last, seq, zlib.crc32(stocked.message(number)), stocked.key(number))
        )
        for nth, (last, at) in enumerate(expected.commits)
        for micros in [(at - EPOCH) // timedelta(microseconds=1)]
        for number in range(nth * commit, (nth + 1) * commit)
        for seq in [expected.seqs[number]]
    )
    assert line.asDict() == {
        "bucket": "all",
        "rows": count,
        "min_seq": expected.seqs[0],
        "max_seq": expected.seqs[-1],
        "duplicates": 0,
        "value_crc": expected.value_crc,
        "row_crc": row_crc,
    }


def test_what_is_wrong_with_a_warehouse_is_named(
    spark: SparkSession, tmp_path: Path, small: tuple[Path, Expected]
) -> None:
    data, expected = small
    store = Stocked(tmp_path / "warehouse")
    pieces = [piece(expected, number) for number in range(5)]
    ends = [one["seq"][-1].as_py() for one in pieces]
    starts = [1, *(end + 1 for end in ends)]
    lost = store.add(pieces[0], start=starts[0], end=ends[0])
    store.add(pieces[1], start=starts[1], end=ends[1])
    lacking = pieces[2].filter(pa.compute.not_equal(pieces[2]["seq"], expected.seqs[222]))
    store.add(lacking, start=starts[2], end=ends[2])
    swapped = pieces[3].to_pylist()
    swapped[0]["value"], swapped[1]["value"] = swapped[1]["value"], swapped[0]["value"]
    store.add(pa.Table.from_pylist(swapped, pieces[3].schema), start=starts[3], end=ends[3])
    # The last one comes with rows that are there already.
    store.add(pa.concat_tables([pieces[4], pieces[1]]), start=starts[4], end=ends[4])
    lost.unlink()
    where = Location.of_path(str(data))
    report = reconcile(spark, where, TABLE, str(store.target), bucket="block")
    assert not report.ok
    assert report.figures["differing_buckets"] == 4
    assert report.figures["lag_rows"] == 0
    assert told(report) == {
        ("warehouse", f"100 rows are missing, the first is seq {expected.seqs[0]}", 0),
        ("warehouse", "100 rows are duplicates", 200),
        ("warehouse", f"1 rows are missing, the first is seq {expected.seqs[222]}", 99),
        ("warehouse", "2 rows differ", 100),
        ("warehouse", "the file is not there", 0),
    }
    # What lies outside of the range is not looked at.
    fine = reconcile(
        spark, where, TABLE, str(store.target), bucket="block", start=starts[4], end=ends[4] + 1
    )
    assert (fine.ok, fine.figures["history_rows"]) == (True, 100)


def test_damaged_and_lost_blocks_are_named(
    spark: SparkSession, tmp_path: Path, small: tuple[Path, Expected]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small[0], data)
    where = Location.of_path(str(data))
    blocks = [data / one.relative_to(small[0]) for one in blocks_of(small[0])]
    flip(blocks[0], "value")
    blocks[1].unlink()
    flip(blocks[2], "txn")  # a column that no figure is taken from
    found = reconcile(spark, where, TABLE, blocks=str(data / "blocks"))
    assert not found.ok
    assert found.figures["differing_buckets"] == 2
    lines = {(line["bucket"], line["side"]): line for line in found.rows}
    names = [str(one.relative_to(data / "blocks")).removesuffix(".parquet") for one in blocks]
    assert {bucket for bucket, _ in lines} == set(names[:2])
    assert lines[names[0], "server"]["rows"] == lines[names[0], "metadata"]["rows"] == 100
    assert "its checksum is" in str(lines[names[0], "cold"]["problem"])
    assert lines[names[1], "cold"]["rows"] == 0
    assert "the file does not" in str(lines[names[1], "cold"]["problem"])
    deep = reconcile(spark, where, TABLE, deep=True, blocks=str(data / "blocks"))
    assert deep.figures["differing_buckets"] == 3
    assert {line["bucket"] for line in deep.rows} == set(names[:3])


def flip(path: Path, column: str) -> None:
    """Changes one bit of the first page of a column."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(
        group.column(number)
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == column
    )
    data = bytearray(path.read_bytes())
    # The middle of the column: behind the header of its page.
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    path.write_bytes(data)


def test_metadata_that_says_something_else_is_named(
    spark: SparkSession, tmp_path: Path, small: tuple[Path, Expected]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(small[0], data)
    blocks = [data / one.relative_to(small[0]) for one in blocks_of(small[0])]
    first, second = (one.with_name(f"_{one.stem}.json") for one in blocks[:2])
    first.write_text(first.read_text().replace('"rows": 100', '"rows": 99'))
    second.unlink()
    where = Location.of_path(str(data))
    report = reconcile(spark, where, TABLE, blocks=str(data / "blocks"))
    assert not report.ok
    lines = {(line["side"], line["rows"]) for line in report.rows}
    assert lines == {("server", 100), ("metadata", 99), ("metadata", 0), ("cold", 100)}
    assert ("cold", "its metadata is missing", 100) in told(report)


def test_what_cannot_be_meant_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with fjord.open(tmp_path / "data") as database:
        database.stream(TABLE).append(b"one")
    where = Location.of_path(str(tmp_path / "data"))
    with pytest.raises(FjordError, match="a bucket is an hour or a block, not 'day'"):
        reconcile(spark, where, TABLE, bucket="day")
    with pytest.raises(FjordError, match="ends at seq 2, before it begins at 5"):
        reconcile(spark, where, TABLE, start=5, end=2)
    with pytest.raises(FjordError, match="there is no table in"):
        reconcile(spark, where, TABLE, str(tmp_path / "nothing"))
    other = Stocked(tmp_path / "warehouse")
    other.add(history(range(1), [5]), start=1, end=5)
    with fjord.open(tmp_path / "data") as database:
        database.stream("other").append(b"one")
    with pytest.raises(FjordError, match="has rows of the table 'events', not of 'other'"):
        reconcile(spark, where, "other", str(other.target))
