"""The places that have the rows of a table, and that `reconcile` compares.

    server      what the node says of its blocks, and what it serves itself: the tail
    metadata    what the JSON file beside each block says
    cold        the Parquet files of the blocks
    manifest    what the warehouse says of its files
    warehouse   its Parquet files

Files are read so that a damaged one does not end everything: the rows that cannot be read are not
there, and so the figures differ.  The checksums of pages are compared on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import fjord
from fjord.blocks import schema
from fjord.blocks.catalog import Catalog, Metadata
from fjord.blocks.store import Store
from fjord.client.stream_calls import BlockInfo
from fjord.errors import Code, CorruptionError, FjordError, RefusedError
from fjord.kinds import Kind
from fjord.spark import warehouse
from fjord.spark.options import Location
from fjord.spark.pipelines import summaries
from fjord.spark.reading.extent import Nature
from fjord.spark.warehouse.manifest import DataFile, State

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
    """Which rows are looked at; fixed once, so that all sides speak of the same."""

    location: Location
    table: str
    start: int  # the first seq
    end: int  # exclusive
    tail_start: int  # from here on rows are in the journal only
    blocks: Sequence[BlockInfo]  # that have seqs of the range, in order
    store: str  # where they are, empty if there are none
    is_kept: bool = False  # the table forgets nothing, from its first row on


def scope(location: Location, table: str, start: int, end: int, *, blocks: str = "") -> Scope:
    """Finds out what there is of a table.

    Args:
        start: the first seq that counts.
        end: the first one that no longer counts; 0 = everything that is durable.
        blocks: where the blocks are, if not where the node says.

    Raises:
        FjordError: if there is no such table, or no such range.
    """
    with location.open() as database:
        first_seq = database.stats()["first_seq"]
        found = _blocks(database, table)
        is_kept = _is_kept(Nature.of(database.table(table)), found)
        begin = found[0].first if found else first_seq
        cold_end = found[-1].last if found else first_seq - 1
        durable_end = database.span(table, cold_end, rows_max=1).durable_seq + 1
    tail_start = max(cold_end + 1, start)
    stop = min(end, durable_end) if end else durable_end
    if 0 < end < start:
        raise FjordError(f"the range ends at seq {end}, before it begins at {start}")
    wanted = [one for one in found if one.last >= start and one.first < stop]
    if wanted and not (blocks or wanted[0].location):
        raise FjordError("this node does not say where its blocks are; say it with blocks")
    return Scope(
        location=location,
        table=table,
        # Where nothing is ever forgotten, rows of before the first block are lost ones.
        start=start if is_kept else max(start, begin),
        end=stop,
        is_kept=is_kept,
        tail_start=tail_start,
        blocks=wanted,
        store=(blocks or wanted[0].location) if wanted else "",
    )


def _is_kept(nature: Nature, blocks: Sequence[BlockInfo]) -> bool:
    """Says whether everything that a table ever had must still be there.

    The journal of a node without blocks keeps the messages of a log, and of others what counts.
    """
    is_sealed = bool(blocks) or (nature.kind == Kind.STREAM and not nature.is_latest)
    return nature.has_history and not nature.forgets and is_sealed


def _blocks(database: fjord.Database, table: str) -> list[BlockInfo]:
    try:
        return database.blocks(table)
    except RefusedError as error:
        if error.code is not Code.WRONG_KIND:
            raise
        return []  # a key/value table has none


# -- server and cold ------------------------------------------------------------------------------


def server_lines(scope: Scope) -> list[Line]:
    """Returns what the node says of each block."""
    return [(one.name, one.rows, None, None, None, None, None) for one in scope.blocks]


def metadata_lines(read: Mapping[str, Metadata]) -> list[Line]:
    """Returns what the metadata of each block says."""
    return [
        (name, one.rows, one.min_seq, one.max_seq, None, one.value_crc, None)
        for name, one in read.items()
    ]


class Described(NamedTuple):
    """The metadata of blocks, and what is wrong with it, by the name of the block."""

    metadata: dict[str, Metadata]
    problems: dict[str, str]


def described(scope: Scope) -> Described:
    """Reads the metadata of all blocks, and compares it with what the node says."""
    if not scope.blocks:
        return Described({}, {})
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
            f"the block before it, {previous}, is not there, and the table has no retention; if "
            f"it had one when that went, give the start {first.first}",
        )
    return Described(metadata, problems)


def _described(catalog: Catalog, block: BlockInfo) -> tuple[Metadata | None, str]:
    try:
        found = catalog.read(block.name)
    except FileNotFoundError:
        return None, "its metadata is not there"
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
    range_ = {"startingSeq": scope.tail_start, "endingSeq": scope.end}
    source = spark.read.format("fjord").options(table=scope.table, columns="plain", **range_)
    return summaries.historic(source.options(**scope.location.options).load())


def damages(spark: SparkSession, scope: Scope, names: Sequence[str]) -> dict[str, str]:
    """Compares the checksums of whole files, by tasks of Spark; returns what is wrong."""
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
        return "its metadata is not there"
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
    state: State = found.state()  # before its files: what is added meanwhile is in them only
    named = warehouse.files(target)
    if state.table not in ("", table):
        raise FjordError(f"{target} has rows of the table {state.table!r}, not of {table!r}")
    columns = state.columns.split(",") if state.columns else tuple(schema.COLUMNS)
    if missing := [name for name in summaries.COLUMNS if name not in columns]:
        raise FjordError(
            f"{target} has not the column {', '.join(missing)}, so its rows cannot be compared; "
            f"ingest {', '.join(summaries.COLUMNS)} at least, into another folder"
        )
    paths = [one.path for one in found.files()]
    folders = {path.rpartition("/")[0] for path in paths}
    present = {_joined(folder, name) for folder in folders for name in found.target.names(folder)}
    return Stock(
        files=named,
        missing=[found.target.shown(path) for path in paths if path not in present],
        start=state.start,
        watermark=max(state.end, max((one.max_seq for one in named), default=0)),
        columns=columns,
        ops=state.ops.split(",") if state.ops else (),
    )


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def within(stock: Stock, start: int, end: int) -> Stock:
    """Returns a warehouse without the files that have no rows of a range; `end` 0 = none."""
    files = [one for one in stock.files if one.max_seq >= start and (not end or one.min_seq < end)]
    paths = {one.path for one in files}
    missing = [path for path in stock.missing if path in paths]
    return replace(stock, files=files, missing=missing)


def manifest_lines(stock: Stock) -> list[Line]:
    """Returns what the warehouse says of each of its files."""
    return [
        (short(one.path), one.rows, one.min_seq, one.max_seq, None, one.value_crc, None)
        for one in stock.files
    ]


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
    return spark.createDataFrame(rows, summaries.DDL)
