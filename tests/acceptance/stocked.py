"""A table with blocks and a tail, and a warehouse of it that was written without Spark."""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

import fjord
from fjord.spark.warehouse import DataFile, QueryBatch, warehouse_at

TABLE = "events"


class Expected(NamedTuple):
    """What all sides must have, found out without Spark."""

    seqs: Sequence[int]
    value_crc: int
    commits: Sequence[tuple[int, datetime]]  # the last seq of each, and when it was written


def message(number: int) -> bytes:
    return b"message %d" % number


def key(number: int) -> bytes:
    return b"page %d" % (number % 997)


def fill(data: Path, *, rows: int, commit_rows: int, block_rows: int, blocks: int) -> Expected:
    """Writes messages, in commits of one size, of which the first are in so many blocks."""
    seqs: list[int] = []
    value_crc = 0
    commits: list[tuple[int, datetime]] = []
    with fjord.open(data) as database:
        stream = database.stream(TABLE)
        for start in range(0, rows, commit_rows):
            numbers = range(start, start + commit_rows)
            values = [message(number) for number in numbers]
            last = stream.append_many(values, keys=[key(number) for number in numbers])
            seqs += range(last - commit_rows + 1, last + 1)
            value_crc += sum(map(zlib.crc32, values))
            (one,) = stream.read(1, after=last - 1).messages
            commits.append((last, one.at))
            done = start + commit_rows
            if done % block_rows == 0 and done <= blocks * block_rows:
                database.seal(TABLE)
    return Expected(seqs, value_crc, commits)


def history(
    numbers: range, seqs: Sequence[int], commits: Sequence[tuple[int, datetime]] = ()
) -> pa.Table:
    """Returns messages as rows of a warehouse, made of nothing but what was appended."""
    from fjord.blocks import rows

    columns: dict[str, Any] = {name: [None] * len(numbers) for name in rows.SCHEMA.names}
    columns["seq"] = columns["row"] = seqs
    columns["op"] = ["APPEND"] * len(numbers)
    columns["key"] = [key(number) for number in numbers]
    columns["type"] = [1] * len(numbers)
    columns["value"] = [message(number) for number in numbers]
    ends = [last for last, _ in commits]
    found = [bisect.bisect_left(ends, seq) for seq in seqs]
    whole = [*commits, (0, datetime.fromtimestamp(0, UTC))]  # of rows that are in no commit
    columns["txn"] = [whole[number][0] for number in found]
    columns["ts"] = [whole[number][1] for number in found]
    return pa.table(columns, schema=rows.SCHEMA)


class Stocked:
    """A warehouse to which files are added, each by a commit of its own."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._batches = 0

    def add(self, table: pa.Table, *, start: int, end: int, described: pa.Table = None) -> Path:
        """Adds a file; the manifest says of it what holds for `described`, if that is given."""
        folder = f"batch-{self._batches}-{self._batches:032x}"
        path = self.target / folder / f"part-{self._batches}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path, compression="zstd")
        told = table if described is None else described
        seqs = told["seq"].to_pylist()
        file = DataFile(
            path=f"{folder}/{path.name}",
            rows=len(seqs),
            bytes=path.stat().st_size,
            min_seq=min(seqs),
            max_seq=max(seqs),
            value_crc=sum(zlib.crc32(value) for value in told["value"].to_pylist()),
        )
        batch = QueryBatch(query="q", number=self._batches, table=TABLE, start=start, end=end)
        assert warehouse_at(str(self.target), "parquet").add(batch, [file])
        self._batches += 1
        return path
