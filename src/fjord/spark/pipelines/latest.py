"""`fjord pipeline latest`: the current value of every key, as a table that is kept up to date.

    <target>/_latest.json                            names the current snapshot
    <target>/snapshot-<end>-<stamp>/part-*.parquet   one row for each key that has a value

A run takes the previous snapshot and the rows since then, and keeps for each key the row with the
largest seq.  It writes a new folder, and then replaces the file that names it; a crash before that
leaves the previous snapshot.  Old ones are removed after a grace period, for their readers.

Values never go back: a run is refused if another one, which has read more, was faster.  Only a
rebuild may replace the snapshot that it has seen with one of an earlier end.

A key that was deleted or has expired has no row.  It needs none: seqs only grow, so no row comes
later that is older than the deletion.

On values that expire: a touch makes no row in the history.  So a value disappears here at the
expiry with which it was last written, however often it was touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks import schema
from fjord.blocks.files import Target, stamp, stamped_us, target_at
from fjord.clock import Clock, SystemClock
from fjord.errors import Code, CorruptionError, FjordError, RefusedError
from fjord.kinds import Kind
from fjord.spark import warehouse
from fjord.spark.extent import extent_of
from fjord.spark.options import OPS, Location
from fjord.spark.pipelines import report
from fjord.spark.pipelines.report import Progress, Report, silent
from fjord.spark.source import FIRST_ROW, history
from fjord.spark.warehouse import TableState

__all__ = ["Snapshot", "latest", "latest_of", "merge_latest", "read", "snapshot"]

COLUMNS: Final = ("key", "seq", "ts", "expires_at", "type", "value")
DDL: Final = ", ".join(f"`{name}` {schema.COLUMNS[name]}" for name in COLUMNS)
POINTER: Final = "_latest.json"
VERSION: Final = 1
# Queries over a snapshot take less time than this.
GRACE: Final = timedelta(days=1)

# Ops that give a key a value; a MOVE without a type is a tombstone.
_GIVING: Final = ("SET", "APPEND", "MOVE")
_NEWEST: Final = ("seq", "ts", "op", "expires_at", "type", "value")
# Ops that remove it, and those that only jobs tables have.
_TAKING: Final = ("DELETE", "PURGE", "EXPIRE")
_OF_JOBS: Final = sorted(OPS - {*_GIVING, *_TAKING})


_NO_VALUES: Final = (
    "{} is a jobs table, and jobs have no current value. docs/spark.md shows how "
    "to find what waits, is taken and is dead"
)


# -- pure: from frames to frames -----------------------------------------------------------------


def latest_of(frame: DataFrame, at: datetime | None = None) -> DataFrame:
    """Returns the value of each key that has one, from the whole history of a table.

    Args:
        at: values that have expired by then are left out; None: keep all.
    """
    return _alive(_newest_of(frame), at)


def merge_latest(previous: DataFrame, fresh: DataFrame, at: datetime | None = None) -> DataFrame:
    """Returns the same from the previous values and the history since then."""
    before = previous.withColumn("op", F.lit("SET"))
    old = before.select("key", F.struct(*_NEWEST).alias("old"))
    new = _newest_of(fresh).select("key", F.struct(*_NEWEST).alias("new"))
    is_old = F.col("new").isNull() | (F.col("old.seq") > F.col("new.seq"))
    chosen = F.when(is_old, F.col("old")).otherwise(F.col("new")).alias("one")
    joined = old.join(new, "key", "full_outer").select("key", chosen)
    return _alive(joined.select("key", "one.*"), at)


def _newest_of(frame: DataFrame) -> DataFrame:
    """Returns the last row of each key, including keys without a value."""
    keyed = frame.where(F.length("key") > 0)  # messages of a log may have none
    last = F.max_by(F.struct(*_NEWEST), "seq").alias("last")
    return keyed.groupBy("key").agg(last).select("key", "last.*")


def _alive(newest: DataFrame, at: datetime | None) -> DataFrame:
    has_value = F.col("op").isin(*_GIVING) & F.col("type").isNotNull()
    return newest.where(has_value & _unexpired(at)).select(*COLUMNS)


def _unexpired(at: datetime | None) -> Column:
    if at is None:
        return F.lit(True)
    return F.col("expires_at").isNull() | (F.col("expires_at") > F.lit(at))


# -- snapshots -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The snapshot that the pointer names."""

    folder: str  # below the target
    table: str
    end: int  # everything up to this seq is in it
    epoch: str  # in whose time that was written; empty = unknown
    keys: int
    at_us: int  # values that had expired by then are left out
    replaced: Mapping[str, int] = field(default_factory=dict)  # folders before it, and since when


def snapshot(target: str) -> Snapshot | None:
    """Returns the current snapshot, None if there is none.

    Raises:
        CorruptionError: if the pointer is damaged.
    """
    return _pointed(target_at(target))


def read(spark: SparkSession, target: str, *, at: datetime | None = None) -> DataFrame:
    """Returns the current values: key, seq, ts, expires_at, type and value.

    Args:
        at: values that have expired by then are left out; None: now.

    Raises:
        FjordError: if there is no snapshot.
    """
    place = target_at(target)
    found = _pointed(place)
    if found is None:
        raise FjordError(f"there are no values in {target} yet; `fjord pipeline latest` makes them")
    return _rows(spark, place, found).where(_unexpired(at or report.now()))


def _rows(spark: SparkSession, place: Target, found: Snapshot) -> DataFrame:
    if not found.keys:
        return spark.createDataFrame([], DDL)
    return spark.read.schema(DDL).parquet(place.shown(found.folder))


def _pointed(place: Target) -> Snapshot | None:
    try:
        data = place.read(POINTER)
    except FileNotFoundError:
        return None
    try:
        found: Any = json.loads(data)
        if found["version"] > VERSION:
            raise FjordError(f"{place.shown(POINTER)} is of a later version; install a newer Fjord")
        return Snapshot(**{name: found[name] for name in Snapshot.__dataclass_fields__})
    except (ValueError, KeyError, TypeError) as error:
        reason = f"it does not name a snapshot ({error!r})"
        raise CorruptionError(place.shown(POINTER), 0, reason) from error


# -- the job -------------------------------------------------------------------------------------


class Fresh(NamedTuple):
    """The rows since a snapshot, and their end."""

    frame: DataFrame
    rows: int  # of it, about
    end: int
    epoch: str
    is_whole: bool  # it is the whole history, so nothing of before counts


def latest(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location | None,
    table: str,
    target: str,
    *,
    from_warehouse: str = "",
    rebuild: bool = False,
    grace: timedelta = GRACE,
    clock: Clock | None = None,
    progress: Progress = silent,
) -> Report:
    """Brings the current values in the target up to date.

    Args:
        location: where the table is; None if it is read `from_warehouse`.
        from_warehouse: a target of ingest, read instead of the table itself.
        rebuild: reads the whole history, whatever the target has.
        grace: how long older snapshots stay.

    Raises:
        FjordError: if it fails; the previous snapshot stays.
    """
    if bool(from_warehouse) == bool(location):
        raise FjordError("give either the location of the table, or a warehouse")
    clock = clock or SystemClock()
    begun_us = clock.monotonic_us()
    place = target_at(target)
    known = _pointed(place)
    if known is not None and known.table != table:
        raise FjordError(
            f"{target} has the values of {known.table!r}, not of {table!r}; give each its own"
        )
    before = None if rebuild else known
    progress(f"looking at {table}", 0, None)
    fresh: Fresh | None
    if location is None:
        fresh = _from_warehouse(spark, from_warehouse, table, before)
    else:
        fresh = _from_history(spark, location, table, before)
    if before is not None and not fresh.is_whole and not fresh.rows:
        fresh = None  # nothing has happened since
    found = known
    if fresh is not None:
        progress(f"merging {fresh.rows:,} rows of {table}", 0, None)
        with report.explained():
            found = _write(spark, place, table, known, fresh, clock)
        _point(place, found, instead_of=known if rebuild else None)
        _sweep(place, found, clock.wall_us() - grace // timedelta(microseconds=1))
    return _report(target, table, found, fresh, (clock.monotonic_us() - begun_us) / 1e6)


def check_stock(source: str, state: TableState) -> None:
    """Ensures that a warehouse has everything that determines the value of a key.

    Raises:
        FjordError: if ingest has left out columns or ops.
    """
    columns = state.columns.split(",") if state.columns else schema.COLUMNS
    ops = state.ops.split(",") if state.ops else OPS
    missing = [name for name in ("key", *_NEWEST) if name not in columns]
    unknown = [name for name in (*_GIVING, *_TAKING) if name not in ops]
    if missing or unknown:
        what = f"the column {', '.join(missing)}" if missing else f"rows of {', '.join(unknown)}"
        raise FjordError(
            f"{source} lacks {what}, so the value of a key cannot be determined from it: read the "
            "table itself, or ingest all of it into another folder"
        )


def _from_warehouse(spark: SparkSession, source: str, table: str, before: Snapshot | None) -> Fresh:
    after = before.end if before else 0
    state = warehouse.warehouse_at(source).state()
    if state.table and state.table != table:
        raise FjordError(f"{source} holds the table {state.table!r}, not {table!r}")
    if after and not state.start <= after + 1 <= state.end + 1:
        raise FjordError(
            f"{source} has the seqs from {state.start} to {state.end}, and the values go up to "
            f"{after}: it is another history. Use rebuild to start over"
        )
    check_stock(source, state)
    rows = warehouse.read(spark, source, after=after).where(F.col("seq") <= state.end)
    with report.explained():
        # Footers and dictionaries of the files show whether there is one: few rows are read.
        if not rows.where(F.col("op").isin(*_OF_JOBS)).isEmpty():
            raise FjordError(_NO_VALUES.format(table))
    count = sum(one.rows for one in warehouse.files(source) if one.max_seq > after)
    return Fresh(rows, count, state.end, state.epoch, is_whole=not after)


def _from_history(
    spark: SparkSession, location: Location, table: str, before: Snapshot | None
) -> Fresh:
    with extent_of(location, table) as extent:
        if extent.nature.kind == Kind.JOBS:
            raise FjordError(_NO_VALUES.format(table))
        is_whole = before is None
        after, epoch = (before.end, before.epoch) if before else (extent.earliest(), "")
        lost = extent.lost(after)
        if lost and extent.nature.kind != Kind.KV:
            raise FjordError(
                f"the rows of {table} from seq {lost[0]} to {lost[1]} are gone, and the values in "
                "the target are older. Use rebuild to start over with the remaining rows"
            )
        if lost:  # the journal of a key/value table has every value that there is
            after, epoch, is_whole = extent.earliest(), "", True
        try:
            batch = extent.advance(after, epoch=epoch)
        except RefusedError as error:
            if error.code not in (Code.FORKED, Code.BAD_RANGE):
                raise
            raise FjordError(
                f"the values in the target go up to seq {after} of another history than that of "
                f"{location}: {error.text}. Use rebuild to start over"
            ) from error
    # From exactly there on: if the journal is packed before it is read, that fails.
    start = max(after + 1, FIRST_ROW)
    rows = history(spark, location, table, start=start, end=batch.seq + 1)
    return Fresh(rows, batch.rows, batch.seq, batch.epoch, is_whole=is_whole)


def _write(
    spark: SparkSession,
    place: Target,
    table: str,
    known: Snapshot | None,
    fresh: Fresh,
    clock: Clock,
) -> Snapshot:
    """Writes a snapshot, which is not current yet."""
    at_us = clock.wall_us()
    at = report.date(at_us)
    if fresh.is_whole or known is None:
        frame = latest_of(fresh.frame, at)
    else:
        frame = merge_latest(_rows(spark, place, known), fresh.frame, at)
    folder = f"snapshot-{fresh.end}-{stamp(clock)}"
    written = warehouse.write_folder(frame, place, folder)
    replaced = {**known.replaced, known.folder: at_us} if known else {}
    return Snapshot(
        folder=folder,
        table=table,
        end=fresh.end,
        epoch=fresh.epoch,
        keys=sum(written.values()),
        at_us=at_us,
        replaced=replaced,
    )


def _point(place: Target, found: Snapshot, *, instead_of: Snapshot | None = None) -> None:
    """Lets a snapshot count.

    Args:
        instead_of: the one that it may take the place of even if that goes further.

    Raises:
        FjordError: if another one counts that goes further; that stays.
    """
    now = _pointed(place)
    if now is not None and now.end > found.end and now != instead_of:
        raise FjordError(
            f"{place.location} has the values up to seq {now.end}, and this run has read up to "
            f"{found.end} only: another run was faster, and its values stay. Run one at a time, "
            "or use rebuild to start over"
        )
    data = json.dumps({"version": VERSION, **asdict(found)}, indent=1)
    place.replace(POINTER, data.encode() + b"\n")


def _sweep(place: Target, found: Snapshot, before_us: int) -> None:
    """Removes snapshots that were replaced before a moment, and what crashes left before it."""
    kept = set()
    for name in place.names():
        since_us = found.replaced.get(name, stamped_us(name))
        is_one = name.startswith("snapshot-") and name != found.folder
        if is_one and since_us is not None and since_us < before_us:
            place.remove(name)
        else:
            kept.add(name)
    left = {name: us for name, us in found.replaced.items() if name in kept}
    # A run that has pointed elsewhere meanwhile remembers what it has replaced itself.
    if left != found.replaced and _pointed(place) == found:
        _point(place, replace(found, replaced=left))


def _report(
    target: str, table: str, found: Snapshot | None, fresh: Fresh | None, seconds: float
) -> Report:
    return Report(
        job="latest",
        figures={
            "table": table,
            "target": target,
            "snapshot": found.folder if found else None,
            "keys": found.keys if found else 0,
            "end_seq": found.end if found else 0,
            "rows_read": fresh.rows if fresh else 0,
            "changed": fresh is not None,
            "incremental": fresh is not None and not fresh.is_whole,
            "seconds": round(seconds, 3),
        },
    )
