"""`reconcile`: do all copies of a table have the same rows?

    server  --by block-->  metadata  --by block-->  cold      what has left the journal
    cold + tail            --by hour, or by block-->          warehouse

First line: the node reports the number of rows and the file checksum of each block, the metadata
beside the block has the same and the checksum of the values, and the file itself is read.  Second
line, with a warehouse: all rows are read on both sides, and count, seqs, duplicates and two
checksums must agree in every bucket.  If they do not, rows are compared one by one, and files with
the manifest, to report what is missing where.

A warehouse may be behind.  Rows that it does not have yet are its lag, not a difference: rows are
compared from its first seq up to the seq up to which it is complete.

A table may have dropped its beginning, which a warehouse still has.  With retention, or without
history, that is no difference; otherwise it is reported as a loss.

Invariants: everything is fixed at the beginning, so that later writes do not look like differences.
The warehouse is read first: a row that it has and the server lacks was lost by the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.errors import UsageError
from fjord.spark.options import Location
from fjord.spark.pipelines import report, sides
from fjord.spark.pipelines.report import Figure, Progress, Report, silent
from fjord.spark.pipelines.sides import Scope, Stock

BUCKETS: Final = ("hour", "block")
# Maximum number of lines; more differences than this have a common cause.
LINES_MAX: Final = 200


def reconcile(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location,
    table: str,
    warehouse: str | None = None,
    *,
    start: int = 1,
    end: int = 0,
    bucket: str = "hour",
    deep: bool = False,
    ops: Sequence[str] = (),
    blocks: str = "",
    progress: Progress = silent,
) -> Report:
    """Compares the rows of a table on the server, in its cold blocks and in a warehouse.

    Args:
        spark: the session.
        location: where the table is.
        table: its name.
        warehouse: the folder or URL that `ingest` writes to; without one only server and blocks
            are compared.
        start: the first seq to compare.
        end: the exclusive end; 0: everything that is durable.
        bucket: "hour" or "block": how rows are compared with the warehouse.
        deep: also compares the checksums of whole block files.
        ops: compares only rows of these; none: of all that the warehouse has.
        blocks: where the blocks are, if not where the node says.
        progress: receives the progress.

    Returns:
        A report that is not ok if anything differs, with a line for each side of each bucket that
        does.

    Raises:
        FjordError: if there is no such table, range or warehouse.
    """
    if bucket not in BUCKETS:
        raise UsageError(f"a bucket is an {' or a '.join(BUCKETS)}, not {bucket!r}")
    steps = count()

    def tell(what: str) -> None:
        progress(what, next(steps), 4 if warehouse else 2)

    stock = sides.stock(warehouse, table) if warehouse else None
    scope = sides.scope(location, table, start, end, blocks=blocks)
    with report.explained():
        tell("reading cold blocks")
        cold = _cold(spark, scope, deep=deep)
        if stock is None:
            tell("reading the tail")
            rest = _tail(spark, scope)
        else:
            stock = sides.within(stock, scope.start, end)
            compared = _Compared(spark, scope, stock, ops=ops or stock.ops, is_open=not end)
            rest = compared.run(tell, is_by_block=bucket == "block")
    tell("done")
    return _report(table, scope, [cold, rest])


class Comparison(NamedTuple):
    """The result of one comparison."""

    figures: Mapping[str, Figure]
    lines: Sequence[Mapping[str, Figure]]  # of buckets that differ
    buckets: int  # how many of them there are


def _report(table: str, scope: Scope, found: Sequence[Comparison]) -> Report:
    figures: dict[str, Figure] = {
        "table": table,
        "from_seq": scope.start,
        "to_seq": scope.end - 1,
        "blocks": len(scope.blocks),
    }
    for one in found:
        figures.update(one.figures)
    figures["differing_buckets"] = sum(one.buckets for one in found)
    lines = [line for one in found for line in one.lines]
    return Report(
        job="reconcile",
        figures=figures,
        rows=lines[:LINES_MAX],
        ok=not figures["differing_buckets"],
    )


# -- blocks: server, metadata and files -----------------------------------------------------------


def _cold(spark: SparkSession, scope: Scope, *, deep: bool) -> Comparison:
    """Compares each block as a whole: node, metadata and file."""
    metadata, described = sides.described(scope)
    needed = sides.cold(spark, scope).select("block", *sides.COLUMNS)
    rows = sides.summarise(needed, F.col("block"))
    compared = {
        "server": sides.lines_frame(
            spark, [(one.name, one.rows, None, None, None, None, None) for one in scope.blocks]
        ),
        "metadata": sides.lines_frame(
            spark, [sides.line(name, one) for name, one in metadata.items()]
        ),
        "cold": rows,
    }
    with report.kept(rows):
        cold_rows = _count(rows)
        every = sides.compare(compared)
        lines = _first_lines(every)
        told = _buckets(every, lines)
    suspects = told | described.keys()
    names = [one.name for one in scope.blocks if deep or one.name in suspects]
    problems = {**sides.damages(spark, scope, names), **described}
    shown = [
        _line(line, problems.get(line["bucket"], "") if line["side"] == "cold" else "")
        for line in lines
    ]
    # Damage that affects no figure is found only by the checksum of the file.
    shown += [
        _line({"bucket": name, "side": "cold"}, problem)
        for name, problem in sorted(problems.items())
        if name not in told
    ]
    return Comparison({"cold_rows": cold_rows}, shown, len(told | problems.keys()))


def _first_lines(compared: DataFrame) -> list[Row]:
    return compared.orderBy("bucket", "side").limit(LINES_MAX).collect()


def _buckets(compared: DataFrame, lines: Sequence[Row]) -> set[str]:
    """Returns all buckets that differ; lines may show only the first ones."""
    if len(lines) < LINES_MAX:
        return {line["bucket"] for line in lines}
    return {row["bucket"] for row in compared.select("bucket").distinct().collect()}


def _tail(spark: SparkSession, scope: Scope) -> Comparison:
    """Looks for duplicates in the node's tail, which cannot be compared with anything."""
    needed = sides.tail(spark, scope).select(*sides.COLUMNS)
    rows = sides.summarise(needed, F.lit(sides.TAIL))
    with report.kept(rows):
        tail_rows = _count(rows)
        shown = [_line(line, "") for line in sides.compare({"server": rows}).collect()]
    return Comparison({"tail_rows": tail_rows}, shown, len(shown))


# -- history and warehouse ------------------------------------------------------------------------


class _Compared:
    """The rows of a table on one side, those of its warehouse on the other."""

    def __init__(
        self, spark: SparkSession, scope: Scope, stock: Stock, *, ops: Sequence[str], is_open: bool
    ) -> None:
        self._spark = spark
        self._scope = scope
        self._stock = stock
        is_meant = F.col("op").isin(*ops) if ops else F.lit(True)
        is_inside = F.col("seq").between(scope.start, scope.end - 1)
        cold = sides.cold(spark, scope).drop("block").where(is_inside)
        self._history = cold.unionByName(sides.tail(spark, scope)).where(is_meant)
        kept = sides.historic(sides.stocked(spark, stock)).where(is_meant)
        # Without an end, rows beyond the durable seq count too: the server lacks them.
        is_late = F.lit(is_open) & (F.col("seq") >= scope.end)
        self._warehouse = kept.where(is_inside | is_late)

    def run(self, tell: Callable[[str], None], *, is_by_block: bool) -> Comparison:
        bucket = F.col("block") if is_by_block else sides.hour()
        covered = self._history.where(
            F.col("seq").between(self._stock.start, self._stock.watermark)
        )
        frames = [frame.select(*self._stock.columns) for frame in (covered, self._warehouse)]
        if is_by_block:
            frames = [sides.by_block(frame, self._scope.blocks) for frame in frames]
        history, warehouse = (sides.summarise(frame, bucket) for frame in frames)
        with report.kept(history), report.kept(warehouse):
            tell("reading all history")
            rows = _count(history)
            tell("reading the warehouse")
            stocked = _count(warehouse)
            compared = sides.compare({"history": history, "warehouse": warehouse})
            lines = _first_lines(compared)
            buckets = len(_buckets(compared, lines))
        lag = self._history.where(F.col("seq") > self._stock.watermark).count()
        figures: dict[str, Figure] = {
            "history_rows": rows,
            "warehouse_rows": stocked,
            "warehouse_files": len(self._stock.files),
            "warehouse_from_seq": self._stock.start,
            "watermark": self._stock.watermark,
            "lag_rows": lag,
        }
        files = self._files() if lines or self._stock.missing else []
        shown = [*_explained(frames, bucket, lines), *files]
        return Comparison(figures, shown, buckets or bool(files))

    def _files(self) -> list[dict[str, Any]]:
        """Compares the files of the warehouse with its manifest."""
        frame = sides.stocked(self._spark, self._stock)
        compared = {
            "manifest": sides.lines_frame(
                self._spark, [sides.line(sides.short(one.path), one) for one in self._stock.files]
            ),
            "warehouse": sides.summarise(frame, sides.by_file()),
        }
        missing = {sides.short(path) for path in self._stock.missing}
        return [
            _line(line, _file_problem(line, missing))
            for line in _first_lines(sides.compare(compared))
        ]


def _explained(
    frames: Sequence[DataFrame], bucket: Column, lines: Sequence[Row]
) -> list[dict[str, Any]]:
    """Compares the rows of the buckets that differ one by one."""
    names = sorted({line["bucket"] for line in lines})
    if not names:
        return []
    left, right = (frame.where(bucket.cast("string").isin(*names)) for frame in frames)
    found = {row["bucket"]: row for row in sides.differences(left, right, bucket).collect()}
    return [_line(line, _row_problem(line, found.get(line["bucket"]))) for line in lines]


def _file_problem(line: Row, missing: Iterable[str]) -> str:
    if line["side"] == "manifest":
        return ""
    return "the file is not there" if line["bucket"] in missing else "it cannot be read as written"


def _row_problem(line: Row, found: Row | None) -> str:
    side = "left" if line["side"] == "history" else "right"
    words = [f"{line['duplicates']} rows are duplicates"] if line["duplicates"] else []
    if found is not None and found[f"{side}_missing"]:
        count, first = found[f"{side}_missing"], found[f"{side}_missing_from"]
        words.append(f"{count} rows are missing, the first is seq {first}")
    if found is not None and found["changed"] and side == "right":
        words.append(f"{found['changed']} rows differ")
    return "; ".join(words)


# -- lines ----------------------------------------------------------------------------------------


def _count(lines: DataFrame) -> int:
    return int(lines.agg(F.coalesce(F.sum("rows"), F.lit(0))).collect()[0][0])


def _line(line: Row | Mapping[str, Any], problem: str) -> dict[str, Figure]:
    known = line.asDict() if isinstance(line, Row) else dict(line)
    figures = {name: known.get(name) for name in sides.FIGURES}
    for name in ("value_crc", "row_crc"):
        figures[name] = None if figures[name] is None else f"{figures[name]:x}"
    return {"bucket": known["bucket"], "side": known["side"], **figures, "problem": problem}
