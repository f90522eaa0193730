"""The copies of a table's rows that `reconcile` compares.

    server      the node's list of its blocks, and the rows that it serves itself: the tail
    metadata    the JSON file beside each block
    cold        the Parquet files of the blocks
    manifest    the warehouse's list of its files
    warehouse   its Parquet files

A damaged file does not end the comparison: rows that cannot be read are missing, so the figures
differ.  The checksums of pages are verified on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema
from fjord.blocks.store import Catalog, Metadata, Store
from fjord.client.history import BlockInfo
from fjord.errors import CorruptionError, FjordError
from fjord.kinds import Kind
from fjord.spark import source, warehouse
from fjord.spark.extent import Nature, extent_of
from fjord.spark.options import MOVES, Location
from fjord.spark.warehouse import DataFile, TableState

# An object store answers slowly, and many at once.
_THREADS: Final = 16
# Tasks that each verify some blocks; more do not help a disk or a network.
_TASKS_MAX: Final = 64
_CAREFUL: Final = {
    "ignoreCorruptFiles": "true",
    "ignoreMissingFiles": "true",
    "parquet.page.verify-checksum.enabled": "true",
}

Line = tuple[str, int | None, int | None, int | None, int | None, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which rows are compared; fixed once, so that all sides use the same."""

    location: Location
    table: str
    start: int  # the first seq
    end: int  # exclusive
    tail_start: int  # from here on rows are in the journal only
    blocks: Sequence[BlockInfo]  # that have seqs of the range, in order
    store: str  # where they are, empty if there are none
    is_kept: bool = False  # the table forgets nothing, from its first row on


def scope(location: Location, table: str, start: int, end: int, *, blocks: str = "") -> Scope:
    """Returns the extent of a table.

    Args:
        start: the first seq to compare.
        end: the exclusive end; 0 = everything that is durable.
        blocks: where the blocks are, if not where the node says.

    Raises:
        FjordError: if there is no such table, or no such range.
    """
    with extent_of(location, table) as extent:
        durable_end = extent.tail(0).durable_seq + 1
    found = extent.blocks
    is_kept = _is_kept(extent.nature, found)
    cold_end = found[-1].last if found else extent.first_seq - 1
    tail_start = max(cold_end + 1, start)
    stop = min(end, durable_end) if end else durable_end
    if 0 < end < start:
        raise FjordError(f"the range ends at seq {end}, before it begins at {start}")
    wanted = [one for one in found if one.last >= start and one.first < stop]
    if wanted and not (blocks or wanted[0].location):
        raise FjordError("this node does not report where its blocks are; give blocks")
    return Scope(
        location=location,
        table=table,
        # If the table never drops rows, those before the first block are lost.
        start=start if is_kept else max(start, extent.earliest() + 1),
        end=stop,
        is_kept=is_kept,
        tail_start=tail_start,
        blocks=wanted,
        store=(blocks or wanted[0].location) if wanted else "",
    )


def _is_kept(nature: Nature, blocks: Sequence[BlockInfo]) -> bool:
    """Returns whether every row that a table ever had must still exist.

    The journal of a node without blocks keeps the messages of a log; of other tables, live rows.
    """
    is_sealed = bool(blocks) or (nature.kind == Kind.STREAM and not nature.is_latest)
    return nature.has_history and not nature.forgets and is_sealed


# -- server and cold ------------------------------------------------------------------------------


def line(name: str, found: Metadata | DataFile) -> Line:
    """Returns the figures in a description of a block or a file."""
    return (name, found.rows, found.min_seq, found.max_seq, None, found.value_crc, None)


def described(scope: Scope) -> tuple[dict[str, Metadata], dict[str, str]]:
    """Reads the metadata of all blocks, and compares it with the node's list.

    Returns:
        the metadata, and its problems, by the name of the block.
    """
    if not scope.blocks:
        return {}, {}
    catalog = Catalog(Store(scope.store))
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda one: _described(catalog, one), scope.blocks))
    problems = {
        one.name: problem for one, (_, problem) in zip(scope.blocks, found, strict=True) if problem
    }
    for before, one in zip(scope.blocks, scope.blocks[1:], strict=False):
        if one.first != before.last + 1:
            problems.setdefault(one.name, f"the block before it ends at seq {before.last}")
    metadata = {one.name: read for one, (read, _) in zip(scope.blocks, found, strict=True) if read}
    first = scope.blocks[0]
    previous = metadata[first.name].previous if first.name in metadata else ""
    if scope.is_kept and scope.start < first.first and previous:
        problems.setdefault(
            first.name,
            f"the block before it, {previous}, is missing, and the table has no retention; if "
            f"it had one when that block was removed, give the start {first.first}",
        )
    return metadata, problems


def _described(catalog: Catalog, block: BlockInfo) -> tuple[Metadata | None, str]:
    try:
        found = catalog.read(block.name)
    except FileNotFoundError:
        return None, "its metadata is missing"
    except CorruptionError as error:
        return None, f"its metadata is damaged: {error.reason}"
    if (found.bytes, found.crc32c) != (block.bytes, block.crc):
        return found, (
            f"its metadata says {found.bytes} bytes with the checksum {found.crc32c:08x}, "
            f"the node {block.bytes} and {block.crc:08x}"
        )
    return found, ""


def cold(spark: SparkSession, scope: Scope) -> DataFrame:
    """Returns the rows of the blocks, as far as they can be read; with the column `block`."""
    if not scope.blocks:
        return spark.createDataFrame([], f"{schema.DDL}, block string")
    store = Store(scope.store)
    with ThreadPoolExecutor(_THREADS) as pool:
        is_there = list(pool.map(lambda one: store.has_data(one.name), scope.blocks))
    present = [one.name for one, there in zip(scope.blocks, is_there, strict=True) if there]
    frame = careful(spark, [store.path(name) for name in present])
    folder = scope.blocks[0].name.rpartition("/")[0]
    return frame.selectExpr(
        *schema.COLUMNS, f"concat('{folder}/', replace(_metadata.file_name, '.parquet')) AS block"
    )


def careful(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Returns the rows of Parquet files, without those that are damaged."""
    if not paths:
        empty = spark.createDataFrame([], schema.DDL)
        return empty.selectExpr("*", "named_struct('file_name', '', 'file_path', '') AS _metadata")
    return spark.read.schema(schema.DDL).options(**_CAREFUL).parquet(*paths)


def tail(spark: SparkSession, scope: Scope) -> DataFrame:
    """Returns the rows that are in the journal only."""
    if scope.tail_start >= scope.end:
        return spark.createDataFrame([], schema.DDL)
    rows = source.between(spark, scope.location, scope.table, scope.tail_start, scope.end)
    return historic(rows)


def damages(spark: SparkSession, scope: Scope, names: Sequence[str]) -> dict[str, str]:
    """Compares the checksums of whole files, by tasks of Spark; returns problems."""
    if not names:
        return {}
    location = scope.store

    def verify(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        catalog = Catalog(Store(location))
        for batch in batches:
            problems = [_damage(catalog, name.as_py()) for name in batch["name"]]
            yield pa.record_batch([batch["name"], pa.array(problems)], ["name", "problem"])

    frame = spark.createDataFrame([(name,) for name in names], "name string")
    tasks = frame.repartition(min(len(names), _TASKS_MAX))
    found = tasks.mapInArrow(verify, "name string, problem string").where("problem <> ''")
    return {row["name"]: row["problem"] for row in found.collect()}


def _damage(catalog: Catalog, name: str) -> str:
    try:
        catalog.verify(name)
    except FileNotFoundError:
        return "its metadata is missing"
    except CorruptionError as error:
        return error.reason
    return ""


# -- warehouse ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A warehouse as it is now."""

    files: Sequence[DataFile]  # with paths as Spark calls them
    missing: Sequence[str]  # paths of files that are not there
    start: int  # the first seq that it covers, 0 = nobody knows
    watermark: int  # everything up to here is in it
    columns: Sequence[str] = tuple(schema.COLUMNS)  # that it has
    ops: Sequence[str] = ()  # that it has rows of; empty: of all


def stock(target: str, table: str) -> Stock:
    """Looks at a warehouse.

    Raises:
        FjordError: if there is none, or one of another table.
    """
    found = warehouse.warehouse_at(target)
    state: TableState = found.state()  # before its files: what is added meanwhile is in them only
    named = warehouse.files(target)
    if state.table not in ("", table):
        raise FjordError(f"{target} has rows of the table {state.table!r}, not of {table!r}")
    columns = state.columns.split(",") if state.columns else tuple(schema.COLUMNS)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise FjordError(
            f"{target} lacks the column {', '.join(missing)}, so its rows cannot be compared; "
            f"ingest at least {', '.join(COLUMNS)} into another folder"
        )
    paths = [one.path for one in found.files()]
    folders = {path.rpartition("/")[0] for path in paths}
    present = {
        f"{folder}/{name}" if folder else name
        for folder in folders
        for name in found.target.names(folder)
    }
    return Stock(
        files=named,
        missing=[found.target.shown(path) for path in paths if path not in present],
        start=state.start,
        watermark=max(state.end, max((one.max_seq for one in named), default=0)),
        columns=columns,
        ops=state.ops.split(",") if state.ops else (),
    )


def within(stock: Stock, start: int, end: int) -> Stock:
    """Returns a warehouse without the files that have no rows of a range; `end` 0 = none."""
    files = [one for one in stock.files if one.max_seq >= start and (not end or one.min_seq < end)]
    paths = {one.path for one in files}
    missing = [path for path in stock.missing if path in paths]
    return replace(stock, files=files, missing=missing)


def stocked(spark: SparkSession, stock: Stock) -> DataFrame:
    """Returns the rows of a warehouse, as far as they can be read."""
    gone = set(stock.missing)
    return careful(spark, [one.path for one in stock.files if one.path not in gone])


def short(path: str) -> str:
    """Returns the end of a file's path, which no other file of a table has."""
    return "/".join(path.rsplit("/", 2)[-2:])


def by_file() -> Column:
    """The bucket of a row by the file that it is in; the same as `short` says."""
    return F.regexp_extract(F.col("_metadata.file_path"), "[^/]+/[^/]+$", 0)


def lines_frame(spark: SparkSession, lines: Sequence[Line]) -> DataFrame:
    """Returns lines as a frame that can be compared."""
    rows: list[Any] = list(lines)
    return spark.createDataFrame(rows, DDL)


# -- summaries of rows, to compare copies that should have the same rows ---------------------------
#
#     frame --summarise--> a line for each bucket --compare--> the lines of buckets that differ
#     two frames --differences--> how many rows of a bucket one of them lacks, or has otherwise
#
# A bucket is a part of a table: an hour, a block, a file.  Its figures do not depend on the order
# of its rows, so it does not matter how they are spread over files and tasks:
#
#     rows        how many there are
#     min_seq, max_seq
#     duplicates  rows beyond the first of each seq
#     value_crc   sum of the CRC32 of all values, as the metadata of blocks has it
#     row_crc     sum of the CRC32 of all rows, each as a text of all columns (see `row_crc`);
#                 two rows that have exchanged their keys, values or dates change it
#
# A null figure is unknown to a copy, and agrees with every other.  The seqs of one table always
# have gaps, since all tables share one order: missing rows show only when copies are compared.
#
# All functions are pure: frames in, a frame out, and no action of Spark runs.


#: The columns that the functions here need.
COLUMNS: Final = ("seq", "ts", "op", "key", "value")
FIGURES: Final = ("rows", "min_seq", "max_seq", "duplicates", "value_crc", "row_crc")
#: A line of a summary, as Spark declares it.
DDL: Final = ", ".join(("bucket string", *(f"{name} bigint" for name in FIGURES)))

#: The bucket of rows that are in no block.
TAIL: Final = "tail"

_BINS_PER_BLOCK: Final = 4
# The line of a bucket of which a copy has no rows.
_NOTHING: Final = {"rows": 0, "duplicates": 0, "value_crc": 0, "row_crc": 0}


def historic(frame: DataFrame) -> DataFrame:
    """Returns the rows that are history, as blocks have them: without moves."""
    return frame.where(~F.col("op").isin(*MOVES))


def hour() -> Column:
    """The bucket of a row: the hour in which it was committed, in the session's time zone."""
    return F.date_trunc("hour", "ts")


def by_block(frame: DataFrame, edges: Sequence[BlockInfo]) -> DataFrame:
    """Returns the rows with the name of the block that covers their seqs, in the column `block`.

    Rows that no block covers are in the bucket `tail`.
    """
    # Seqs are cut into bins of one width, of which most blocks touch a few: a row then meets the
    # blocks of its bin only, however many there are.
    first = edges[0].first if edges else 0
    covered = edges[-1].last - first + 1 if edges else 1
    width = max(1, covered // (_BINS_PER_BLOCK * max(1, len(edges))))
    places = [
        (place, edge.first, edge.last, edge.name)
        for edge in edges
        for place in range((edge.first - first) // width, (edge.last - first) // width + 1)
    ]
    blocks = frame.sparkSession.createDataFrame(
        places, "place bigint, first_seq bigint, last_seq bigint, block string"
    )
    place = F.floor((F.col("seq") - first) / width).cast("bigint")
    is_inside = F.col("seq").between(F.col("first_seq"), F.col("last_seq"))
    joined = frame.join(F.broadcast(blocks), (place == F.col("place")) & is_inside, "left")
    return joined.drop("place", "first_seq", "last_seq").fillna(TAIL, ["block"])


def row_crc(columns: Collection[str] = tuple(schema.COLUMNS)) -> Column:
    """The CRC32 of one row: `seq:ts:txn:op:...:CRC32 of its value:` and its key.

    Columns are in their usual order, with nothing for null; dates as Unix microseconds, so that
    the time zone of the session does not matter.  The key is at the end since it may be anything.
    """
    shown = [_shown(name) for name in schema.COLUMNS if name in columns and name != "key"]
    head = F.concat_ws(":", *(F.coalesce(one.cast("string"), F.lit("")) for one in shown))
    key = F.coalesce(F.col("key"), F.lit(b"")) if "key" in columns else F.lit(b"")
    return F.crc32(F.concat(F.encode(head, "UTF-8"), F.lit(b":"), key))


def _shown(name: str) -> Column:
    if name == "value":
        return F.crc32(name)
    return F.unix_micros(name) if schema.COLUMNS[name] == "timestamp" else F.col(name)


def summarise(frame: DataFrame, bucket: Column) -> DataFrame:
    """Returns a line for each bucket that has rows; checksums are of the columns that it has."""
    # Distinct seqs are kept as bitmaps of 32,768 each: exact, and three times as fast as counting
    # them with a hash table.
    parts = frame.groupBy(bucket.alias("of"), F.bitmap_bucket_number("seq").alias("part")).agg(
        F.count("*").alias("rows"),
        F.min("seq").alias("min_seq"),
        F.max("seq").alias("max_seq"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("seq"))).alias("seqs"),
        F.sum(F.crc32("value")).alias("value_crc"),
        F.sum(row_crc(frame.columns)).alias("row_crc"),
    )
    return parts.groupBy(F.col("of").cast("string").alias("bucket")).agg(
        F.sum("rows").alias("rows"),
        F.min("min_seq").alias("min_seq"),
        F.max("max_seq").alias("max_seq"),
        (F.sum("rows") - F.sum("seqs")).alias("duplicates"),
        F.coalesce(F.sum("value_crc"), F.lit(0)).alias("value_crc"),
        F.sum("row_crc").alias("row_crc"),
    )


def compare(sides: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the lines of all sides for each bucket in which two of them differ.

    A side that has no line for a bucket has no rows of it.  A bucket with duplicates is never as it
    should be, even if all sides have them.
    """
    lines = reduce(
        DataFrame.unionByName,
        (lines.withColumn("side", F.lit(side)) for side, lines in sides.items()),
    )
    known = F.map_from_entries(F.collect_list(F.struct("side", F.struct(*FIGURES))))
    nothing = F.struct(*(F.lit(_NOTHING.get(name)).cast("bigint").alias(name) for name in FIGURES))
    whole = (
        lines.groupBy("bucket")
        .agg(known.alias("known"))
        .withColumn("side", F.explode(F.array(*map(F.lit, sides))))
        .withColumn("figures", F.coalesce(F.col("known")[F.col("side")], nothing))
        .select("bucket", "side", "figures.*")
    )
    by_bucket = Window.partitionBy("bucket")
    differs = reduce(Column.__or__, (_differs(name, by_bucket) for name in FIGURES))
    return whole.withColumn("differs", differs).where("differs").drop("differs")


def _differs(name: str, by_bucket: WindowSpec) -> Column:
    # A side without a figure is left out by min and max.
    lowest, highest = F.min(name).over(by_bucket), F.max(name).over(by_bucket)
    differs = highest > 0 if name == "duplicates" else lowest != highest
    return F.coalesce(differs, F.lit(False))


def differences(left: DataFrame, right: DataFrame, bucket: Column) -> DataFrame:
    """Returns by bucket what each of two frames lacks, and what differs.

    `*_missing` is how many seqs the frame lacks, `*_missing_from` the first of them; `changed` is
    how many seqs both have, and not with the same in all columns.  Only buckets with any have a
    line.
    """
    first, second = (_rows(frame, bucket, crc) for frame, crc in ((left, "left"), (right, "right")))
    found = first.join(second, ["bucket", "seq"], "full_outer")
    seq, no_left, no_right = F.col("seq"), F.col("left").isNull(), F.col("right").isNull()
    is_changed = F.col("left") != F.col("right")
    return (
        found.where(no_left | no_right | is_changed)
        .groupBy("bucket")
        .agg(
            F.count_if(no_left).alias("left_missing"),
            F.min(F.when(no_left, seq)).alias("left_missing_from"),
            F.count_if(no_right).alias("right_missing"),
            F.min(F.when(no_right, seq)).alias("right_missing_from"),
            F.count_if(is_changed).alias("changed"),
        )
    )


def _rows(frame: DataFrame, bucket: Column, name: str) -> DataFrame:
    """Returns one row for each seq; of several with the same one any, since they are counted."""
    return (
        frame.select(
            bucket.cast("string").alias("bucket"), "seq", row_crc(frame.columns).alias(name)
        )
        .groupBy("bucket", "seq")
        .agg(F.max(name).alias(name))
    )
