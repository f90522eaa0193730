"""The data source `kestrel` of Spark: `spark.read.format("kestrel").load(DIR)`.

One task reads one queue, since only the whole journal, from its first op on, says what is in it.
The largest ones begin first.  Tasks look at the files themselves, when they run: a queue is read
as of one moment, two queues perhaps not.

Importing this module opens nothing, and does not import pyarrow, as with the source `fjord`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fjord import disk as disks
from fjord.errors import FjordError
from fjord.kestrel import reading
from fjord.kestrel.reading import QueueSurvey
from fjord.spark.kestrel import options
from fjord.spark.kestrel.options import COLUMNS, Options

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_QUEUES: int = 10


class KestrelSource(DataSource):
    """The queues of a directory: what is in them, or the ops of their journals."""

    @classmethod
    def name(cls) -> str:
        return "kestrel"

    def schema(self) -> str:
        return options.ddl(options.parse(self.options))

    def reader(self, schema: StructType) -> KestrelReader:
        parsed = options.parse(self.options)
        return KestrelReader(parsed, wanted_columns(schema, parsed.mode))


class KestrelReader(DataSourceReader):
    """Plans and reads."""

    def __init__(self, parsed: Options, columns: tuple[str, ...]) -> None:
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
    for field in wanted.fields:
        stored = COLUMNS[mode].get(field.name)
        if stored != field.dataType.simpleString() or not field.nullable:
            all_of_them = ", ".join(f"`{name}` {word}" for name, word in COLUMNS[mode].items())
            raise FjordError(
                f"there is no column `{field.name}` {field.dataType.simpleString()}"
                f"{'' if field.nullable else ' NOT NULL'} with mode={mode}; "
                f"a schema is some of: {all_of_them}"
            )
    return tuple(wanted.fieldNames())
