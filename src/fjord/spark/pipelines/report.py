"""The progress of a pipeline while it runs, and its report at the end."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import TimestampType

from fjord.clock import SystemClock
from fjord.errors import FjordError, NotFoundError, UsageError
from fjord.spark.options import Location

#: The current step, how much of it is done, and of how much; None: unknown.
Progress = Callable[[str, int, int | None], None]
Figure = int | float | str | bool | None


def silent(what: str, done: int, total: int | None) -> None:
    """Takes progress, and shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a job has done: a summary for people, JSON for programs."""

    job: str
    figures: Mapping[str, Figure]  # in the order in which they are shown
    rows: Sequence[Mapping[str, Figure]] = ()  # a table, if the job has one to show
    ok: bool = True  # False: what was looked at is not as it should be; exit code 1


# -- errors of Spark, as one sentence --------------------------------------------------------------
#
# A failed task sends its error to the driver as text, inside the text of others.  The last Python
# error in it is the cause; without one the first line is used.


_MISSING: Final = re.compile(
    r"^ModuleNotFoundError: No module named '(fjord|pyarrow)\b", re.MULTILINE
)
_CAUSE: Final = re.compile(r"^(?:[\w.]*\.)?\w*Error: (.+)$", re.MULTILINE)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns an error of Spark into a FjordError with its cause."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise FjordError(cause(str(error))) from error


def cause(text: str) -> str:
    """Returns the relevant sentence of an error text of Spark."""
    if missing := _MISSING.search(text):
        return (
            f"the Python of Spark's workers has no {missing[1]}: install 'fjord-journal[spark]' on "
            "every machine of the cluster, or name a Python that has it with PYSPARK_PYTHON"
        )
    found = _CAUSE.findall(text)
    return str(found[-1]) if found else text.strip().partition("\n")[0] or "Spark failed"


# -- the rows of reports: the history in, kept frames, and small frames out ------------------------


def before(history: DataFrame, end: datetime | None) -> DataFrame:
    """Returns what happened before a date, or everything.

    There is no default date: the clock of the server may be ahead of this machine's.
    """
    return history if end is None else history.where(F.col("ts") < end)


@contextlib.contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Lets Spark keep a frame in memory, and what does not fit on its disks.

    So it is computed once, and everything derived from it is of one moment.
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
    plain = frame.withColumns({name: F.unix_micros(name) for name in dates})
    found = [row.asDict() for row in plain.collect()]
    for row in found:
        row.update({name: date(row[name]) for name in dates if row[name] is not None})
    return found


def date(us: int) -> datetime:
    """Returns the date of microseconds since 1970."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)


def now() -> datetime:
    """Returns the date by this machine's clock."""
    return date(SystemClock().wall_us())


def check_zones(*moments: datetime | None) -> None:
    """Ensures that dates have a time zone.

    Raises:
        UsageError: if one has no time zone.
    """
    for moment in moments:
        if moment is not None and moment.tzinfo is None:
            raise UsageError(f"{moment} has no time zone; give one, such as datetime.UTC")


def write_table(frame: DataFrame, target: str, name: str) -> None:
    """Writes a small table of a report, in place of what was there."""
    frame.coalesce(1).write.mode("overwrite").parquet(os.path.join(target, name))


def kind_of(location: Location, table: str) -> str:
    """Returns what kind of table it is.

    Raises:
        FjordError: if there is none.
    """
    with location.open() as database:
        try:
            return database.table(table).kind
        except NotFoundError as error:
            raise FjordError(f"there is no table {table!r} in {location}") from error
