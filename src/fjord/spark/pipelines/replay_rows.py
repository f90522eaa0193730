"""What a replay takes of a history, in which batches, and as what it writes it: pure.

    history --selected--> rows --pieces--> how many there are where --batches--> ranges of seqs
                            |
                            +--rewritten--> the columns that a table takes

A batch is a range of seqs that ends where a commit ends, and its number is the seq at its end.  So
the batches of a replay need not be kept anywhere to be the same again: whoever knows how they are
cut, and the number of the last one that was written, knows what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.errors import FjordError
from fjord.kinds import Kind

#: Ops whose rows carry all that is needed to write them again.
OPS: Final = ("ADD", "APPEND", "REPLACE", "SET")
#: These do too: what was written again when the journal was packed.  It is history only where what
#: it says again has gone, as with tables whose history is not kept.
MOVES: Final = ("MOVE", "MOVE_DEAD")
#: The columns of a table's history that are written, by what the table and its target are.
_COLUMNS: Final = ("key", "type", "value")
_JOB_COLUMNS: Final = (*_COLUMNS, "domain", "priority", "process_at", "expires_at")
_DATES: Final = ("process_at", "expires_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of a history are meant."""

    ops: tuple[str, ...] = OPS
    since: datetime | None = None  # committed from here on
    until: datetime | None = None  # up to before here
    key_prefix: bytes = b""

    def __post_init__(self) -> None:
        if unknown := [op for op in self.ops if op not in (*OPS, *MOVES)]:
            raise FjordError(
                f"rows of {', '.join(unknown)} do not have what is needed to write them again; "
                f"a replay takes {', '.join((*OPS, *MOVES))}"
            )


class Cut(NamedTuple):
    """How rows are cut into batches."""

    rows: int  # at most so many, and a commit
    seconds: int  # a batch spans at most so much of history; 0 = any time
    is_paced: bool  # the time between batches matters, so small ones are not joined


class Batch(NamedTuple):
    """A range of seqs: rows behind `after`, up to `last`, where a commit ends."""

    after: int
    last: int
    rows: int  # about, if the clock of the server went back meanwhile
    at_us: int  # when its first row was committed, Unix microseconds


def selected(history: DataFrame, selection: Selection) -> DataFrame:
    """Returns the rows that are meant; one without a type is a tombstone, and none of them."""
    found = history.where(F.col("op").isin(*selection.ops) & F.col("type").isNotNull())
    if selection.since is not None:
        found = found.where(F.col("ts") >= F.lit(selection.since))
    if selection.until is not None:
        found = found.where(F.col("ts") < F.lit(selection.until))
    if selection.key_prefix:
        found = found.where(F.startswith("key", F.lit(selection.key_prefix)))
    return found


def described_last(history: DataFrame, listed: DataFrame) -> DataFrame:
    """Returns for each listed job, by its `row`, the seq of the row that last described it."""
    described = history.where(F.col("op").isin("ADD", "REPLACE", *MOVES))
    rows = listed.select("row").distinct()
    return described.join(rows, "row", "left_semi").groupBy("row").agg(F.max("seq").alias("seq"))


def counted(rows: DataFrame) -> DataFrame:
    """Returns how many rows there are, by hour and op."""
    hour = F.date_trunc("hour", "ts").cast("string")
    return rows.groupBy(hour.alias("hour"), "op").agg(F.count("*").alias("rows"))


def pieces(rows: DataFrame, cut: Cut) -> DataFrame:
    """Returns in pieces how many rows there are, each up to the end of a commit.

    A piece has at most as many rows as a batch, and spans at most as much time.
    """
    # All rows of a commit have the same txn and ts, so no commit is in two pieces.
    places = [F.floor(F.col("txn") / cut.rows).alias("place")]
    if cut.seconds:
        places.append(F.floor(F.unix_seconds("ts") / cut.seconds).alias("time"))
    return (
        rows.groupBy(*places)
        .agg(
            F.max("txn").alias("last"),
            F.count("*").alias("rows"),
            F.min(F.unix_micros("ts")).alias("at_us"),
        )
        .select("last", "rows", "at_us")
    )


def batches(pieces: Iterable[tuple[int, int, int]], after: int, cut: Cut) -> list[Batch]:
    """Returns batches that together have all pieces, in order.

    Pieces that follow each other are one batch while they do not have too many rows, unless the
    time between them matters.  Whoever begins behind one of the batches gets the same ones.
    """
    found: list[Batch] = []
    for last, rows, at_us in sorted(pieces):
        before = found[-1] if found else None
        if before is not None and not cut.is_paced and before.rows + rows <= cut.rows:
            found[-1] = Batch(before.after, last, before.rows + rows, before.at_us)
        else:
            found.append(Batch(before.last if before else after, last, rows, at_us))
    return found


def due_seconds(batches: Sequence[Batch], pace: str | float) -> list[float]:
    """Returns when each batch is written, in seconds from the beginning."""
    if pace == "original":
        return [max(0, one.at_us - batches[0].at_us) / 1_000_000 for one in batches]
    if isinstance(pace, str):
        return [0.0] * len(batches)
    due, rows = [], 0
    for one in batches:
        due.append(rows / pace)
        rows += one.rows
    return due


def columns_for(source: str, target: str) -> tuple[str, ...]:
    """Returns the columns that are written, by the kinds of both tables."""
    return _JOB_COLUMNS if source == target == Kind.JOBS else _COLUMNS


def rewritten(
    rows: DataFrame,
    columns: Sequence[str],
    *,
    suffix: bytes = b"",
    moved_to: datetime | None = None,
) -> DataFrame:
    """Returns rows as a table takes them, in their order.

    Args:
        columns: those that the table takes.
        suffix: what keys get at their end; a row without a key stays without one.
        moved_to: dates are as far from it as they were from the moment at which the row was
            committed, so that what was delayed by an hour is delayed by an hour again.
    """
    key = F.when(F.length("key") > 0, F.concat("key", F.lit(suffix))).otherwise(F.col("key"))
    changed: dict[str, Column] = {"key": key} if suffix else {}
    if moved_to is not None:
        moved_us = F.unix_micros(F.lit(moved_to)) - F.unix_micros("ts")
        changed |= {
            name: F.timestamp_micros(F.unix_micros(name) + moved_us)
            for name in _DATES
            if name in columns
        }
    return rows.orderBy("seq").select(
        *(changed[name].alias(name) if name in changed else F.col(name) for name in columns)
    )
