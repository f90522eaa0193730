"""Rows of the journal table as text: INSERT statements, or CSV.  Pure.

The INSERT statements are for MySQL, MariaDB and PostgreSQL alike: strings have single quotes and
nothing is escaped in them but the quote, which is doubled.  A comment that only MySQL and MariaDB
read makes their backslashes plain letters, as they are in PostgreSQL.  The id is left to the table.
What makes the table differs between them: see `creating`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Final

from fjord import limits
from fjord.errors import UsageError
from fjord.sql import shape
from fjord.sql.shape import Row

# Of one statement; a row that is larger goes alone.  Servers take 1 MiB at least.
_ROWS_MAX: Final = 500
_CHARACTERS_MAX: Final = 256 * limits.KIB
# Names that need no quotes, which differ: letters, and perhaps a schema before.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

_BEGIN: Final = """\
-- For mysql --binary-mode, mariadb --binary-mode and psql.
/*!40101 SET NAMES utf8mb4 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, \
SQL_MODE=CONCAT(@@SQL_MODE, ',NO_BACKSLASH_ESCAPES') */;
"""
_START: Final = "START TRANSACTION;\n"
_END: Final = """\
COMMIT;
/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
"""


def check_name(table: str) -> str:
    """Returns the name of a table that needs no quotes.

    Raises:
        UsageError: if it is none.
    """
    if not _NAME.fullmatch(table):
        raise UsageError(f"{table} is no plain name of a table, such as journal or db.journal")
    return table


def inserts(
    rows: Iterable[Row], table: str, *, creation: str = "", has_value: bool = False
) -> Iterator[str]:
    """Yields a file of statements that insert rows, all or none, piece by piece."""
    columns = (*shape.COLUMNS, shape.VALUE) if has_value else shape.COLUMNS
    head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES\n"
    yield _BEGIN + creation + _START
    batch: list[str] = []
    size = 0
    for row in rows:
        line = _values(row, has_value=has_value)
        if batch and (len(batch) >= _ROWS_MAX or size + len(line) > _CHARACTERS_MAX):
            yield head + ",\n".join(batch) + ";\n"
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield head + ",\n".join(batch) + ";\n"
    yield _END


def lines(rows: Iterable[Row], *, has_value: bool = False) -> Iterator[str]:
    """Yields a file of CSV, as RFC 4180 has it, row by row; NULL is an empty field."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow((*shape.ORDER, shape.VALUE) if has_value else shape.ORDER)
    for number, row in enumerate(rows, start=1):
        yield _taken(text)
        writer.writerow((number, *(row if has_value else row[:-1])))
    yield _taken(text)


def _taken(text: io.StringIO) -> str:
    found = text.getvalue()
    text.seek(0)
    text.truncate()
    return found


def _values(row: Row, *, has_value: bool) -> str:
    domain, priority, start, uri, status, value = row
    known = "NULL" if status is None else str(status)
    rest = f", {'NULL' if value is None else _quoted(value)}" if has_value else ""
    return f"({_quoted(domain)}, {priority}, {start}, {_quoted(uri)}, {known}{rest})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
