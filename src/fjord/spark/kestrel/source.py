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
from fjord.kestrel import reader
from fjord.spark.options import check_schema, known_options, word_option

if TYPE_CHECKING:
    import pyarrow as pa


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

        options = self._options
        surveys = reader.surveys(disks.LocalDisk(), options.directory, options.queue)
        # A directory that is named like a queue has no files.
        found = sorted((one for one in surveys if one.files), key=lambda one: -one.size)
        return [
            QueuePartition(options=options, queue=one.queue, columns=self._columns) for one in found
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from fjord.spark.kestrel import tasks  # noqa: PLC0415 - pyarrow

        if isinstance(partition, tasks.QueuePartition):
            return tasks.read(partition)
        return iter(())  # that of an empty plan, which Spark makes itself


def wanted_columns(wanted: StructType, mode: str) -> tuple[str, ...]:
    """Returns the names of the columns that `.schema(...)` asks for; all if it was not called.

    Raises:
        FjordError: if one of them does not exist, or not with this type.
    """
    check_schema(wanted, COLUMNS[mode], where=f" with mode={mode}")
    return tuple(wanted.fieldNames())


# -- the options of the source `kestrel`: text from a user in, a checked record out ---------------


# Spark hands options over with their names in lower case; these are the names to show.
NAMES: Final = ("path", "mode", "queue", "damaged")
MODES: Final = ("state", "ops")

#: The columns of each mode, and their types in the words of Spark.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "state": {
        "queue": "string",
        "position": "bigint",
        "xid": "int",
        "added": "timestamp",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KestrelOptions:
    """What a user wants to read."""

    directory: str  # absolute
    mode: str = "state"
    queue: str = ""  # empty: all
    fails_on_damage: bool = True


def parse(options: Mapping[str, str]) -> KestrelOptions:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing or wrong.
    """
    given = known_options(options, NAMES)
    if not given.get("path"):
        raise FjordError("give the option path: a directory of queues, also as load(path)")
    return KestrelOptions(
        directory=os.path.abspath(given["path"]),
        mode=word_option(given, "mode", MODES),
        queue=given.get("queue", ""),
        fails_on_damage=word_option(given, "damaged", ("fail", "skip")) == "fail",
    )


def ddl(parsed: KestrelOptions) -> str:
    """Returns the schema of a mode."""
    return ", ".join(f"`{name}` {word}" for name, word in COLUMNS[parsed.mode].items())
