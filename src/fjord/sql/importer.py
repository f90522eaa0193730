"""Pushes the rows of a journal table as jobs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from typing import IO, Final

from fjord.client.blocking.jobs import Jobs
from fjord.client.bulk import BulkWriter, OnBad, name_of
from fjord.errors import FjordError, UsageError
from fjord.sql import dump, shape
from fjord.sql.live import Address, Live
from fjord.sql.shape import Found, Job, Rules

BATCH_ROWS: Final = 5_000


class Importer:
    """Pushes rows, and counts them."""

    def __init__(
        self,
        jobs: Jobs,
        rules: Rules,
        *,
        on_bad: OnBad,
        on_found: Callable[[str, list[str]], None],
        on_progress: Callable[[int, int | None], None],
    ) -> None:
        """Makes an importer.

        Args:
            jobs: the table to push to.
            rules: how rows become jobs.
            on_bad: called with the line or id of a bad row, and the reason.
            on_found: called with the name of the table in SQL, and the columns that are left out.
            on_progress: called with what is done, and the total if that is known.
        """
        self._rules = rules
        self._on_found = on_found
        self._on_progress = on_progress
        self.writer: BulkWriter[Job] = BulkWriter(
            lambda rows: jobs._push_columns(**shape.columns(rows)), on_bad, rows_max=BATCH_ROWS
        )
        self.table = ""  # in SQL, once it is found
        self.others: list[str] = []  # tables of a dump that have the columns, too

    def import_dump(self, file: IO[bytes], size: int | None, table: str) -> None:
        """Imports a table of a mysqldump; by default the first one that has the columns.

        Raises:
            FjordError: if there is none, or the file cannot be read to its end.
        """
        name = name_of(file)
        source = gzip.open(file) if name.endswith(".gz") else file  # noqa: SIM115
        bytes_read = 0

        def read(count: int) -> bytes:
            nonlocal bytes_read
            data = _read(name, source, count)
            bytes_read += len(data)
            self._on_progress(bytes_read if size is None else file.tell(), size)
            return data

        found = dump.Dump(read, table=table, columns=self._rules.columns)
        try:
            self._import(found.rows(), lambda _: self._note(found.table, found.left_out))
        finally:
            self._note(found.table, found.left_out)
        self.others = sorted(found.others)
        if not found.table:
            raise FjordError(_nothing(name, table, self._rules.columns))

    def import_live(self, address: Address, table: str) -> None:
        """Imports a table of a database.

        Raises:
            FjordError: if the database fails, or there is no such table.
        """
        with Live(address, table, self._rules.columns).opened() as found:
            self._note(found.table, found.left_out)

            def show(number: int) -> None:
                if found.extent is not None:
                    first, last = found.extent
                    self._on_progress(number - first, last - first)

            self._import(found.rows(), show)

    def _import(self, rows: Iterable[Found | dump.Bad], on_batch: Callable[[int], None]) -> None:
        try:
            for row in rows:
                if isinstance(row, dump.Bad):
                    self.writer.refuse(*row)
                elif self._add(row):
                    on_batch(row.number)
        except FjordError:
            self.writer.flush()  # the rows before the error are good
            raise
        self.writer.flush()

    def _add(self, row: Found) -> bool:
        try:
            job = self._rules.job(row.cells)
        except UsageError as error:
            self.writer.refuse(row.number, str(error))
            return False
        return self.writer.add(row.number, job, len(job.key) + len(job.domain) + len(job.data))

    def _note(self, table: str, left_out: list[str]) -> None:
        if table and not self.table:
            self.table = table
            self._on_found(table, left_out)


def _nothing(name: str, table: str, columns: tuple[str, ...]) -> str:
    if table:
        return f"{name} has no table {table}"
    return (
        f"{name} has no table with the columns {', '.join(columns)}; if the dump does not list "
        "the columns of its table, name it with --sql-table"
    )


def _read(name: str, file: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    try:
        return file.read(count)
    except EOFError as error:
        raise FjordError(f"{name} is truncated; make the dump again") from error
    except (OSError, zlib.error) as error:
        raise FjordError(f"{name} cannot be read: {error}") from error
