"""The data source `kestrel` of Spark: `spark.read.format("kestrel").load(DIR)`.

One task reads one queue, since only the whole journal, from its first op on, says what is in it.
The largest ones begin first.  Tasks look at the files themselves, when they run: a queue is read
as of one moment, two queues perhaps not.

Importing this module opens nothing, and does not import pyarrow, as with the source `fjord`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fjord import disk as disks
from fjord.errors import FjordError
from fjord.kestrel import reading
from fjord.kestrel.reading import QueueSurvey
from fjord.spark.options import check_schema, known_options, number_option, word_option

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_QUEUES: int = 10


class KestrelSource(DataSource):
    """The queues of a directory: what is in them, or the ops of their journals."""

    @classmethod
    def name(cls) -> str:
        return "kestrel"

    def schema(self) -> str:
        return ddl(parse(self.options))

    def reader(self, schema: StructType) -> KestrelReader:
        parsed = parse(self.options)
        return KestrelReader(parsed, wanted_columns(schema, parsed.mode))


class KestrelReader(DataSourceReader):
    """Plans and reads."""

    def __init__(self, parsed: KestrelOptions, columns: tuple[str, ...]) -> None:
        self._options = parsed
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        from fjord.spark.kestrel.tasks import QueuePartition  # noqa: PLC0415 - pyarrow

        return [
            QueuePartition(options=self._options, queue=one.queue, columns=self._columns)
            for one in surveys(self._options.directory, self._options.queue)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from fjord.spark.kestrel import tasks  # noqa: PLC0415 - pyarrow

        if isinstance(partition, tasks.QueuePartition):
            return tasks.read(partition)
        return iter(())  # that of an empty plan, which Spark makes itself


def surveys(directory: str, queue: str = "") -> list[QueueSurvey]:
    """Returns the files of all queues, or of one; the largest first.

    Raises:
        FjordError: if there is no such directory or queue.
    """
    disk = disks.LocalDisk()
    if not disk.exists(directory):
        raise FjordError(
            f"there is no directory {directory}; check the option path. "
            "Every machine that runs tasks of Spark must see it there"
        )
    names = reading.queues(disk, directory)
    if queue and queue not in names:
        some = f"it has {', '.join(names[:_SHOWN_QUEUES]) or 'none'}"
        more = " and others" if len(names) > _SHOWN_QUEUES else ""
        raise FjordError(
            f"there is no queue {queue!r} in {directory}; check the option queue: {some}{more}"
        )
    found = [reading.survey(disk, directory, name) for name in ([queue] if queue else names)]
    # What is named like a queue and is no file has no files.
    return sorted((one for one in found if one.files), key=lambda one: -one.size)


def wanted_columns(wanted: StructType, mode: str) -> tuple[str, ...]:
    """Returns the names of the columns that `.schema(...)` asks for; all if it was not called.

    Raises:
        FjordError: if one of them does not exist, or not with this type.
    """
    check_schema(wanted, COLUMNS[mode], where=f" with mode={mode}")
    return tuple(wanted.fieldNames())


# -- the options of the source `kestrel`: text from a user in, a checked record out ---------------


# Spark hands options over with their names in lower case; these are the names to show.
NAMES: Final = ("path", "mode", "queue", "columns", "batchRows", "damaged", "aliveFor", "crc")
MODES: Final = ("state", "ops")

#: The columns of each mode, and their types in the words of Spark.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "state": {
        "queue": "string",
        "position": "bigint",
        "xid": "int",
        "added": "timestamp",
        "dated": "timestamp",
        "expires": "timestamp",
        "data": "binary",
    },
    "ops": {
        "queue": "string",
        "file": "string",
        "position": "bigint",
        "offset": "bigint",
        "op": "string",
        "xid": "int",
        "added": "timestamp",
        "expires": "timestamp",
        "size": "bigint",
        "data": "binary",
    },
}

# More rows a batch do not pay, see docs/spark.md; large items end a batch before.
BATCH_ROWS: Final = 10_000
BATCH_ROWS_MAX: Final = 1_000_000
_ALIVE_SECONDS_MAX: Final = 366 * 24 * 3600
_CRC_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KestrelOptions:
    """What a user wants to read."""

    directory: str  # absolute
    mode: str = "state"
    queue: str = ""  # empty: all
    columns: tuple[str, ...] = ()  # empty: all
    batch_rows: int = BATCH_ROWS
    fails_on_damage: bool = True
    alive_seconds: int | None = None  # items live longer than this; None = expired ones, too
    crc: int | None = None  # that the files have to have


def parse(options: Mapping[str, str]) -> KestrelOptions:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing, wrong, or of no use here.
    """
    given = known_options(options, NAMES)
    if not given.get("path"):
        raise FjordError("give the option path: a directory of queues, also as load(path)")
    mode = word_option(given, "mode", MODES)
    _refuse_useless(given, mode)
    return KestrelOptions(
        directory=os.path.abspath(given["path"]),
        mode=mode,
        queue=given.get("queue", ""),
        columns=_columns(given.get("columns", ""), mode),
        batch_rows=number_option(given, "batchRows", BATCH_ROWS, largest=BATCH_ROWS_MAX),
        fails_on_damage=word_option(given, "damaged", ("fail", "skip")) == "fail",
        alive_seconds=number_option(given, "aliveFor", None, least=0, largest=_ALIVE_SECONDS_MAX),
        crc=number_option(given, "crc", None, least=0, largest=_CRC_MAX),
    )


def ddl(parsed: KestrelOptions) -> str:
    """Returns the schema that options ask for."""
    types = COLUMNS[parsed.mode]
    return ", ".join(f"`{name}` {types[name]}" for name in parsed.columns or types)


def _refuse_useless(given: Mapping[str, str], mode: str) -> None:
    if mode == "ops":
        for name in ("aliveFor", "crc"):
            if name.lower() in given:
                raise FjordError(f"the option {name} is of no use with mode=ops; leave it out")
    if "crc" in given and not given.get("queue"):
        raise FjordError("the option crc is that of one queue; give the option queue, too")


def _columns(text: str, mode: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if name not in COLUMNS[mode] or names.count(name) > 1:
            problem = "is there twice" if names.count(name) > 1 else "does not exist"
            raise FjordError(
                f"the option columns: {name!r} {problem}; "
                f"columns of mode={mode} are some of {', '.join(COLUMNS[mode])}"
            )
    return names
