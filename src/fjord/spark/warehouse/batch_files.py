"""Rows of a batch become Parquet files, with all that a manifest says of them, in one pass.

A task writes one file.  While rows go by, Spark sums up the checksums of their values, by task:
that is an observation, which costs no job of its own.  Everything else stands in the footers of the
files, and these are read afterwards.  Both must agree on the number of rows: if they do not, a file
was lost or is another one, and nothing is committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pyarrow import parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord.blocks.target import Target, stamp
from fjord.errors import FjordError
from fjord.spark.warehouse.manifest import DataFile

# One task writes so many in about a second.
ROWS_PER_FILE: Final = 500_000
# Files of less are slow to read, however many tasks could be at work.
ROWS_PER_FILE_MIN: Final = 100_000
# One sum is observed for each.
FILES_MAX: Final = 64

_PART: Final = re.compile(r"part-([0-9]{5,})-.*\.parquet\Z")
_SETTINGS: Final[dict[str, str]] = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # What is different in each row has no dictionary: looking for one only takes time.
    **{
        f"parquet.enable.dictionary#{name}": "false"
        for name in ("seq", "ts", "txn", "row", "key", "value")
    },
}


def file_count(rows: int, tasks: int) -> int:
    """Returns into how many files a batch of so many rows goes at most.

    Args:
        rows: of a batch, at most.
        tasks: how many Spark runs at a time.
    """
    wanted = max(-(-rows // ROWS_PER_FILE), min(tasks, -(-rows // ROWS_PER_FILE_MIN)))
    return max(1, min(wanted, FILES_MAX))


def write(frame: DataFrame, target: Target, batch: int, *, files_max: int) -> list[DataFile]:
    """Writes rows to a folder that nobody has used; returns its files, none if there are no rows.

    The frame is computed once.

    Raises:
        FjordError: if the files are not what was written.
    """
    folder = f"batch-{batch}-{stamp()}"
    seen = Observation()
    _write(_observed(frame.coalesce(files_max), seen, files_max), target, folder)
    found = _described(target, folder, seen.get)
    target.sync(folder, [one.path.rpartition("/")[2] for one in found])
    return found


def write_folder(frame: DataFrame, target: Target, folder: str) -> dict[str, int]:
    """Writes rows to a folder that nobody has used; returns its files with their rows."""
    _write(frame, target, folder)
    found = {}
    for name in target.names(folder):
        if _PART.match(name):
            with target.open(f"{folder}/{name}") as source, pq.ParquetFile(source) as file:
                found[name] = file.metadata.num_rows
    target.sync(folder, list(found))
    return found


def _write(frame: DataFrame, target: Target, folder: str) -> None:
    """Writes rows; an error of Spark says that the folder is there, if it is."""
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.options(**_SETTINGS).parquet(target.shown(folder))


def _observed(frame: DataFrame, seen: Observation, parts: int) -> DataFrame:
    """Lets rows be counted, and their values be summed up, by task, when they go by.

    It adds no columns: taking them away again would copy every row once more.
    """
    crc = F.crc32("value") if "value" in frame.columns else F.lit(0)
    sums = []
    for part in range(parts):
        is_here = F.spark_partition_id() == part
        sums.append(F.count(F.when(is_here, True)).alias(f"rows_{part}"))
        sums.append(F.sum(F.when(is_here, crc)).alias(f"crc_{part}"))
    return frame.observe(seen, *sums)


def _described(target: Target, folder: str, seen: Mapping[str, Any]) -> list[DataFile]:
    """Returns what the files of a folder are, by their footers and by what was seen.

    Raises:
        FjordError: if these do not agree on how many rows a file has.
    """
    found, rows = [], 0
    for name in target.names(folder):
        part = _PART.match(name)
        if part is None:
            continue
        path = f"{folder}/{name}"
        with target.open(path) as source, pq.ParquetFile(source) as file:
            footer = file.metadata
        if not footer.num_rows:
            continue  # Spark makes a file even if there are no rows at all
        seqs, number = _seqs(footer), int(part[1])
        _check_rows(target.shown(path), footer.num_rows, seen.get(f"rows_{number}"))
        rows += footer.num_rows
        found.append(
            DataFile(
                path=path,
                rows=footer.num_rows,
                bytes=target.size(path),
                min_seq=min(low for low, _ in seqs),
                max_seq=max(high for _, high in seqs),
                value_crc=seen.get(f"crc_{number}") or 0,
            )
        )
    written = sum(count for name, count in seen.items() if name.startswith("rows_"))
    _check_rows(target.shown(folder), rows, written)
    return found


def _check_rows(path: str, rows: int, written: int | None) -> None:
    if rows != written:
        raise FjordError(
            f"{path} has {rows} rows, and Spark wrote {written}; nothing was committed. Run the "
            "batch again"
        )


def _seqs(footer: pq.FileMetaData) -> list[tuple[int, int]]:
    """Returns the smallest and the largest seq of each part of a file."""
    (column,) = [
        number for number in range(footer.num_columns) if footer.schema.column(number).path == "seq"
    ]
    groups = [footer.row_group(number).column(column) for number in range(footer.num_row_groups)]
    return [(one.statistics.min, one.statistics.max) for one in groups if one.num_values]
