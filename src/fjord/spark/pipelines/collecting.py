"""How reports get at rows: the history in, kept frames, and small frames out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import TimestampType

from fjord.clock import SystemClock
from fjord.errors import FjordError
from fjord.spark.history import history
from fjord.spark.options import Location


def read(spark: SparkSession, location: Location, table: str, columns: Sequence[str]) -> DataFrame:
    """Returns some columns of the history of a table."""
    return history(spark, location, table).select(*columns)


def before(history: DataFrame, end: datetime | None) -> DataFrame:
    """Returns what happened before a date, or everything.

    Without a date none is made up: the clock of the server may be ahead of this machine's.
    """
    return history if end is None else history.where(F.col("ts") < end)


@contextlib.contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Lets Spark keep a frame: in memory, and on its disks what is too much for that.

    So it is computed once, and all that comes from it is of one moment.
    """
    found = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield found
    finally:
        found.unpersist()


def make_folder(path: str) -> None:
    """Ensures that there is a folder to write to, before anything is computed for it.

    Raises:
        FjordError: if there cannot be one.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise FjordError(f"cannot make the folder {path}: {error.strerror}") from error


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a small frame; dates in UTC, whatever the zone of this machine."""
    dates = {one.name for one in frame.schema if isinstance(one.dataType, TimestampType)}
    plain = frame.select(
        *(
            F.unix_micros(name).alias(name) if name in dates else F.col(name)
            for name in frame.columns
        )
    )
    return [
        {name: date(one) if name in dates else one for name, one in row.asDict().items()}
        for row in plain.collect()
    ]


def date(us: int | None) -> datetime | None:
    """Returns the date of microseconds since 1970."""
    return None if us is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)


def now() -> datetime:
    """Returns the date by this machine's clock."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=SystemClock().wall_us())
