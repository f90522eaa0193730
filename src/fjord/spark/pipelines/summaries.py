"""Rows in a few figures, so that two places that should have the same rows can be compared.

    frame --summarise--> a line for each bucket --compare--> the lines of buckets that differ
    two frames --differences--> how many rows of a bucket one of them lacks, or has otherwise

A bucket is a part of a table: an hour, a block, a file.  Its figures do not depend on the order of
its rows, so it does not matter how they are spread over files and tasks:

    rows        how many there are
    min_seq, max_seq
    duplicates  rows beyond the first of each seq
    value_crc   sum of the CRC32 of all values, as the metadata of blocks has it
    row_crc     sum of the CRC32 of all rows, each as a text of all of its columns (see `row_crc`);
                two rows that have exchanged their keys, values or dates change it

A figure that is null is one that a place does not know; it agrees with every other.  Seqs of one
table have gaps by nature, since all tables share one order: what is missing shows only when places
are compared.

All functions are pure: frames in, a frame out, and no action of Spark runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema

#: What the functions here need of a history.
COLUMNS: Final = ("seq", "ts", "op", "key", "value")
FIGURES: Final = ("rows", "min_seq", "max_seq", "duplicates", "value_crc", "row_crc")
#: A line of a summary, as Spark declares it.
DDL: Final = ", ".join(("bucket string", *(f"{name} bigint" for name in FIGURES)))

#: The bucket of rows that are in no block.
TAIL: Final = "tail"

_BINS_PER_BLOCK: Final = 4
# These only write again what holds already, when the journal is packed; blocks have none.
_MOVES: Final = ("MOVE", "MOVE_DEAD")
# Of a bucket that a place has no rows of.
_NOTHING: Final = {"rows": 0, "duplicates": 0, "value_crc": 0, "row_crc": 0}


class Edge(Protocol):
    """A block: which seqs it covers, both included."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


def historic(frame: DataFrame) -> DataFrame:
    """Returns the rows that are history; what packing the journal only says again is not."""
    return frame.where(~F.col("op").isin(*_MOVES))


def hour() -> Column:
    """The bucket of a row: the hour in which it was committed, in the session's time zone."""
    return F.date_trunc("hour", "ts")


def by_block(frame: DataFrame, edges: Sequence[Edge]) -> DataFrame:
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
    # Which seqs there are is kept as bitmaps of 32,768 each: exact, and three times as fast as to
    # count them by a hash table.
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
    """Returns by bucket what each of two frames lacks of the other, and what is not the same.

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
