"""`fjord jobs export`: writes jobs as rows of a journal table in SQL."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Annotated

from fjord.cli import output
from fjord.cli.arguments import Node, TableName, option
from fjord.cli.output import Bar, tell
from fjord.client.jobs.records import JobWalk
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import FjordError, UsageError
from fjord.jobs import State
from fjord.sql import shape, writing
from fjord.sql.writing import Dialect
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database
    from fjord.commands import JobPage


def export(
    node: Node,
    table: TableName,
    as_csv: Annotated[bool, option("Write CSV (RFC 4180).", "--csv")] = False,
    as_sql: Annotated[bool, option("Write INSERT statements (the default).", "--sql")] = False,
    out: Annotated[
        str, option("A new file to write to.", metavar="FILE", shown="standard output")
    ] = "",
    sql_table: Annotated[str, option("The table in SQL.", metavar="NAME")] = "journal",
    with_create: Annotated[
        Dialect | None, option("Also create the table, for this database.", "--with-create")
    ] = None,
    with_value: Annotated[
        bool, option("Add a column `value` with JSON in it.", "--with-value")
    ] = False,
) -> None:
    """Writes all waiting and taken jobs of a table as rows of a journal table in SQL.

    The INSERT statements are for MySQL, MariaDB and PostgreSQL. The jobs stay. Exit code 1 if
    some jobs cannot be rows, or if jobs are pushed or taken meanwhile.

    Example: fjord jobs export pages --with-create mysql --out pages.sql

    Example: fjord jobs export pages --csv > pages.csv
    """
    if as_csv and (as_sql or with_create):
        raise UsageError("--csv writes only rows; give it without --sql and --with-create")
    if node.as_json and not out:
        raise UsageError("--json prints a summary; give --out FILE for the rows")
    name = writing.check_name(sql_table)
    with node.open(read_only=True) as db, Bar("exporting") as bar:
        db.table(table)
        counts = db.jobs(table).count()  # a table of another kind is refused here
        total = counts.waiting + counts.taken
        exporting = _Exporting(db, table, total, bar, has_value=with_value)
        rows = exporting.rows()
        if as_csv:
            text = writing.lines(rows, has_value=with_value)
        else:
            made = writing.create(name, with_create, has_value=with_value) if with_create else ""
            text = writing.inserts(rows, name, creation=made, has_value=with_value)
        with _target(out) as file:
            for piece in text:
                file.write(piece.encode())
            file.flush()
    exporting.report(node)
    output.exit_if(exporting.left_out or exporting.has_changed)


class _Exporting:
    """Reads all jobs of a table as rows, and counts them."""

    def __init__(self, db: Database, table: str, total: int, bar: Bar, *, has_value: bool) -> None:
        self._db = db
        self._table = table
        self._total = total
        self._bar = bar
        self._show = _shown if has_value else None
        self._now_us = SystemClock().wall_us()
        self.exported = 0
        self.expired = 0
        self.left_out = 0
        self.has_changed = False

    def rows(self) -> Iterator[shape.JournalRow]:
        begun_seq = self._db.stats()["applied_seq"]
        for state in (State.TAKEN, State.WAITING):
            for page in pages(self._db, self._table, state):
                expiries_us = page.expires_at_us
                live = [at for at, us in enumerate(expiries_us) if not 0 < us <= self._now_us]
                self.expired += len(expiries_us) - len(live)
                for row in shape.rows(page, live, self._show):
                    if isinstance(row, str):
                        self.left_out += 1
                        tell(row, style="yellow")
                    else:
                        self.exported += 1
                        yield row
                self._bar.update(self.exported, self._total)
        # Snapshots do not cover jobs tables, but the history shows afterwards whether the table
        # has changed.
        changes = self._db.scan(self._table, begun_seq + 1)
        self.has_changed = any(len(piece.first_seqs) for piece in changes)

    def report(self, node: Node) -> None:
        if self.has_changed:
            tell(
                f"fjord: table {self._table} changed while it was read, so some jobs may be "
                "missing or duplicated; stop its clients and workers, and export it again",
                style="yellow",
            )
        expired = f", {self.expired} expired" if self.expired else ""
        left_out = f", {self.left_out} left out" if self.left_out else ""
        node.done(
            f"{output.counted(self.exported, 'job')} exported{expired}{left_out}",
            table=self._table,
            exported=self.exported,
            expired=self.expired,
            left_out=self.left_out,
            changed=self.has_changed,
        )


def pages(db: Database, table: str, state: State) -> Iterator[JobPage]:
    """Yields the jobs of one state in pages, without taking them."""
    walk = JobWalk(table, state, lambda page: [page])
    while (call := walk.next_call()) is not None:
        yield from db.runner.run(call)


def _shown(value: Value) -> str:
    """Returns a value as JSON, for `fjord jobs import --with-value`."""
    if isinstance(value, bytes):
        return json.dumps({"base64": base64.b64encode(value).decode()})
    return json.dumps(value)


@contextlib.contextmanager
def _target(path: str) -> Iterator[IO[bytes]]:
    """Creates the file to write to; standard output if none is named."""
    if not path:
        yield sys.stdout.buffer
        return
    try:
        file = open(path, "xb")  # noqa: SIM115 - it is closed below
    except FileExistsError as error:
        raise UsageError(f"{path} already exists; give another name") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException as error:
        LocalDisk().remove(path)  # a partial file would look complete
        if isinstance(error, OSError):
            raise FjordError(f"{path} cannot be written: {error.strerror}") from error
        raise
