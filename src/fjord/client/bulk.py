"""Bulk writes: rows go in batches, and bad ones do not keep out the others.

A batch is all or nothing, so one that is refused because of a row is halved until that row is
alone: it is reported with its number, and all others are written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, Generic, TypeVar

from fjord import limits
from fjord.client.blocking.jobs import Jobs
from fjord.client.blocking.streams import Stream
from fjord.client.entries import Key
from fjord.declared import rows as declared_rows
from fjord.declared.schema import Schema
from fjord.errors import Code, LocalProtocolError, RefusedError, UsageError

Row = TypeVar("Row")
OnBad = Callable[[int, str], None]  # called with the number of a bad row, and the reason

BATCH_BYTES: Final = limits.BATCH_BYTES_MAX // 2
JOBS_MAX: Final = 1_000  # of a batch
MESSAGES_MAX: Final = 10_000
# Refusals caused by one row; all others concern the whole table, or the node.
ROW_CODES: Final = frozenset(
    {
        Code.EMPTY_KEY,
        Code.KEY_TOO_LONG,
        Code.BAD_DOMAIN,
        Code.BAD_TYPE,
        Code.BAD_VALUE,
        Code.VALUE_TOO_LARGE,
        Code.BAD_TIMESTAMP,
        Code.BAD_TIMEOUT,
    }
)


class BulkWriter(Generic[Row]):
    """Writes numbered rows, in order."""

    def __init__(
        self, write: Callable[[list[Row]], object], on_bad: OnBad, *, rows_max: int
    ) -> None:
        self._write = write
        self._on_bad = on_bad
        self._rows_max = rows_max  # of a batch
        self._rows: list[tuple[int, Row]] = []
        self._bytes = 0  # of these
        self.written = 0
        self.bad = 0
        self.result: object = None  # of the last write

    def add(self, number: int, row: Row, size: int) -> bool:
        """Adds a row of so many bytes; True if the batch was full and is written.

        Raises:
            RefusedError: if it is not because of a row.
        """
        self._rows.append((number, row))
        self._bytes += size
        if len(self._rows) < self._rows_max and self._bytes <= BATCH_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Writes the rows that wait for their batch to be full."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            self._write_all(rows)

    def refuse(self, number: int, reason: str) -> None:
        """Reports a bad row."""
        self.bad += 1
        self._on_bad(number, reason)

    def _write_all(self, rows: list[tuple[int, Row]]) -> None:
        try:
            self.result = self._write([row for _, row in rows])
        except (RefusedError, LocalProtocolError, ValueError) as error:
            if not isinstance(error, ValueError) and error.code not in ROW_CODES:
                raise
            if len(rows) == 1:
                self.refuse(rows[0][0], str(error))
                return
            half = len(rows) // 2
            self._write_all(rows[:half])
            self._write_all(rows[half:])
        else:
            self.written += len(rows)


def job_writer(jobs: Jobs, schema: Schema, on_bad: OnBad) -> BulkWriter[dict[str, Any]]:
    """Returns a writer of jobs, as `Jobs.push_many` takes them."""
    # Columns that a line does not have take room in its row.
    rows_max = min(JOBS_MAX, BATCH_BYTES // declared_rows.of(schema).size)
    return BulkWriter(jobs.push_many, on_bad, rows_max=rows_max)


def message_writer(stream: Stream, on_bad: OnBad) -> BulkWriter[tuple[Key, Any]]:
    """Returns a writer of messages with their keys; its result is the seq of the last one."""

    def append(rows: list[tuple[Key, Any]]) -> int | None:
        keys, values = zip(*rows, strict=True)
        return stream.append_many(values, keys=keys if any(keys) else None)

    return BulkWriter(append, on_bad, rows_max=MESSAGES_MAX)


# -- lines ----------------------------------------------------------------------------------------


# Base64 turns three bytes into four, JSON one into up to six.
LINE_BYTES_MAX: Final = 8 * limits.VALUE_BYTES_MAX
# Bytes asked for at a time; a pipe returns what it has.
READ_BYTES: Final = limits.MIB


def write_lines(
    file: IO[bytes],
    read: Callable[[bytes], Row | None],
    writer: BulkWriter[Row],
    on_progress: Callable[[int], None],
    *,
    as_they_come: bool = False,
) -> None:
    """Writes the lines of a file.

    Args:
        file: is read to its end.
        read: parses a line; None if there is nothing in it, a UsageError if it is bad.
        writer: the number of a row is that of its line.
        on_progress: called with the bytes read so far.
        as_they_come: lines do not wait until a batch is full.

    Raises:
        UsageError: if the file cannot be read.
    """
    number = read_bytes = 0
    for come in lines_of(file):
        for line in come:
            number += 1
            if len(line) > LINE_BYTES_MAX:
                writer.refuse(number, f"it has more than {LINE_BYTES_MAX} bytes")
                continue
            try:
                row = read(line)
            except UsageError as error:
                writer.refuse(number, str(error))
                continue
            if row is not None:
                writer.add(number, row, len(line))
        if as_they_come:
            writer.flush()
        read_bytes += sum(map(len, come)) + len(come)
        on_progress(read_bytes)
    writer.flush()


def lines_of(file: Any) -> Iterator[list[bytes]]:
    """Yields lists of lines without their newlines, as soon as they arrive.

    A line that is too long is cut just past the limit.
    """
    rest = b""
    try:
        while data := file.read1(READ_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            rest = rest[: LINE_BYTES_MAX + 1]
            if whole:
                yield whole
    except OSError as error:
        raise UsageError(f"{name_of(file)} cannot be read: {error.strerror}") from error
    if rest:
        yield [rest]


def name_of(file: IO[bytes]) -> str:
    return "standard input" if file is sys.stdin.buffer else file.name
