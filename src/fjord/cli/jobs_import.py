"""`fjord jobs import`: pushes the rows of a journal table in SQL as jobs."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Annotated, Final

from fjord import limits
from fjord.cli import lines, output
from fjord.cli.arguments import Node, TableName, option
from fjord.cli.lines import Bad, Row
from fjord.cli.output import Bar, tell
from fjord.client.calls import Call, done
from fjord.clock import SystemClock
from fjord.errors import FjordError, UsageError
from fjord.sql import dump, shape
from fjord.sql.live import Address, Live, parse
from fjord.sql.shape import Found, Job, Rules

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database

BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = limits.BATCH_BYTES_MAX // 2
_TABLE: Final = "journal"


def import_(
    node: Node,
    table: TableName,
    mysql_dump: Annotated[
        str, option("A mysqldump; .gz is unpacked, - reads standard input.", metavar="FILE")
    ] = "",
    sql: Annotated[
        str,
        option(
            "A database: mysql://, mariadb:// or postgresql://user:pass@host/db.", metavar="URL"
        ),
    ] = "",
    sql_table: Annotated[
        str,
        option(
            "The table in SQL.",
            metavar="NAME",
            shown="journal, or the first table of a dump with its columns",
        ),
    ] = "",
    now: Annotated[
        bool, option("Do not wait 24 hours for rows that somebody has begun with.", "--now")
    ] = False,
    with_value: Annotated[
        bool, option("Read a column `value` with JSON in it.", "--with-value")
    ] = False,
) -> None:
    """Pushes the rows of a journal table of MySQL, MariaDB or PostgreSQL as jobs.

    The table has the columns domain, priority, key_start_date, uri and status; others are left
    out. Bad rows are reported with their lines or ids, the rest is imported, and the exit code is
    1. Jobs merge with waiting ones, so an import can be repeated.

    Example: fjord jobs import pages --mysql-dump snaplist.sql.gz

    Example: fjord jobs import pages --sql mysql://snap:secret@127.0.0.1/snaplist
    """
    if bool(mysql_dump) == bool(sql):
        raise UsageError("give either --mysql-dump with a file, or --sql with an address")
    rules = Rules(
        now_us=SystemClock().wall_us(), is_now=now, read_value=lines.value if with_value else None
    )
    address = parse(sql) if sql else None
    with node.open() as db, Bar("importing") as bar:
        if lines.schema_of(db, table).columns:
            raise FjordError(
                f"table {table} has declared columns, which differ from those of a journal "
                "table; import into a table without columns"
            )
        importing = _Importing(db, table, rules, bar)
        try:
            if address is None:
                importing.run_dump(mysql_dump, sql_table)
            else:
                importing.run_live(address, sql_table or _TABLE)
        finally:
            bar.stop()
            importing.report(node)
    output.exit_if(importing.bad)


class _Importing:
    """Pushes rows, and counts them."""

    def __init__(self, db: Database, table: str, rules: Rules, bar: Bar) -> None:
        self._db = db
        self._table = table
        self._rules = rules
        self._bar = bar
        self._rows: list[Row[Job]] = []
        self._bytes = 0  # of these
        self._bytes_read = 0  # of a dump
        self._found = ""  # the table in SQL
        self.imported = 0
        self.bad = 0

    def run_dump(self, path: str, sql_table: str) -> None:
        with lines.opened(path) as (file, size):
            source = gzip.open(file) if path.endswith(".gz") else file  # noqa: SIM115

            def read(count: int) -> bytes:
                data = _read(path, source, count)
                self._bytes_read += len(data)
                self._bar.update(self._bytes_read if size is None else file.tell(), size)
                return data

            found = dump.Dump(read, table=sql_table, columns=self._rules.columns)
            try:
                self._run(found.rows(), "line", lambda _: self._note(found.table, found.left_out))
            finally:
                self._note(found.table, found.left_out)
            for other in sorted(found.others):
                tell(
                    f"table {other} has the same columns and is left out; import it with "
                    f"--sql-table {other}",
                    style="yellow",
                )
        if not found.table:
            raise FjordError(_nothing(path, sql_table, self._rules.columns))

    def run_live(self, address: Address, sql_table: str) -> None:
        with Live(address, sql_table, self._rules.columns).opened() as found:
            self._note(found.table, found.left_out)

            def show(number: int) -> None:
                if found.extent is not None:
                    first, last = found.extent
                    self._bar.update(number - first, last - first)

            self._run(found.rows(), "id", show)

    def _run(
        self, rows: Iterable[Found | dump.Bad], noun: str, on_batch: Callable[[int], None]
    ) -> None:
        try:
            for row in rows:
                if isinstance(row, dump.Bad):
                    self._tell(noun, [Bad(*row)])
                    continue
                self._add(row, noun)
                if len(self._rows) >= BATCH_ROWS or self._bytes > BATCH_BYTES:
                    self._push(noun)
                    on_batch(row.number)
        except FjordError:
            self._push(noun)  # the rows before the error are good
            raise
        self._push(noun)

    def _add(self, row: Found, noun: str) -> None:
        try:
            job = self._rules.job(row.cells)
        except UsageError as error:
            self._tell(noun, [Bad(row.number, str(error))])
            return
        self._rows.append(Row(row.number, job))
        self._bytes += len(job.key) + len(job.domain) + len(job.data)

    def _push(self, noun: str) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        self._tell(noun, lines.in_halves(rows, self._push_rows))

    def _push_rows(self, rows: list[Row[Job]]) -> None:
        self._db.runner.run(Call(shape.push(self._table, [row.what for row in rows]), done))
        self.imported += len(rows)

    def _tell(self, noun: str, found: Iterable[Bad]) -> None:
        for bad in found:
            self.bad += 1
            tell(f"{noun} {bad.number}: {bad.reason}", style="yellow")

    def _note(self, sql_table: str, left_out: list[str]) -> None:
        if sql_table and not self._found:
            self._found = sql_table
            if left_out:
                tell(f"columns of {sql_table} that are left out: {', '.join(left_out)}")

    def report(self, node: Node) -> None:
        if self._found:
            imported = output.counted(self.imported, "row")
            node.done(
                f"{imported} of {self._found} imported, {output.counted(self.bad, 'bad row')}",
                table=self._table,
                sql_table=self._found,
                imported=self.imported,
                bad=self.bad,
            )


def _nothing(path: str, sql_table: str, columns: tuple[str, ...]) -> str:
    name = _name(path)
    if sql_table:
        return f"{name} has no table {sql_table}"
    return (
        f"{name} has no table with the columns {', '.join(columns)}; if the dump does not list "
        "the columns of its table, name it with --sql-table"
    )


def _name(path: str) -> str:
    return "standard input" if path == lines.STDIN else path


def _read(path: str, file: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    try:
        return file.read(count)
    except EOFError as error:
        raise FjordError(f"{_name(path)} is truncated; make the dump again") from error
    except (OSError, zlib.error) as error:
        raise FjordError(f"{_name(path)} cannot be read: {error}") from error
