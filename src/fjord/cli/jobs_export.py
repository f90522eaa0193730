"""What `fjord jobs export` does: jobs become the rows of a journal table in SQL."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from fjord.cli import jobs, output
from fjord.cli.output import Bar, tell
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import FjordError, UsageError
from fjord.jobs import State
from fjord.sql import shape, writing
from fjord.sql.writing import Dialect
from fjord.values import Value

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is exported, and how."""

    table: str
    is_csv: bool
    out: str  # empty: standard output
    sql_table: str
    dialect: Dialect | None  # for whom the table is made; None: it is not
    has_value: bool


def run(options: Options, connect: Callable[[], Database], *, as_json: bool) -> bool:
    """Exports jobs, and tells what was done; says whether all of them are there.

    Raises:
        UsageError: if the name or the file cannot be meant.
        NotFoundError: if there is no such table.
        FjordError: if it fails; a file that was begun is gone then.
    """
    name, has_value = writing.check_name(options.sql_table), options.has_value
    with connect() as db, Bar("exporting") as bar:
        db.table(options.table)
        counts = db.jobs(options.table).count()  # a table of another kind is refused here
        total = counts.waiting + counts.taken
        exporting = _Exporting(db, options.table, total, bar, has_value=has_value)
        rows = exporting.rows()
        if options.is_csv:
            text = writing.lines(rows, has_value=has_value)
        else:
            dialect = options.dialect
            made = writing.create(name, dialect, has_value=has_value) if dialect else ""
            text = writing.inserts(rows, name, creation=made, has_value=has_value)
        _write(options.out, text)
    exporting.report(as_json=as_json)
    return not exporting.left_out and not exporting.has_changed


class _Exporting:
    """Reads all jobs of a table as rows, and counts."""

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
        begun = jobs.moment(self._db)
        for state in (State.TAKEN, State.WAITING):
            for page in jobs.pages(self._db, self._table, state):
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
        self.has_changed = jobs.has_changed(self._db, self._table, begun)

    def report(self, *, as_json: bool) -> None:
        if self.has_changed:
            tell(
                f"fjord: table {self._table} changed while it was read, so some jobs may be there "
                "twice or not at all; stop who pushes and takes its jobs, and export it again",
                style="yellow",
            )
        if as_json:
            what = {"table": self._table, "exported": self.exported, "expired": self.expired}
            output.print_json({**what, "left_out": self.left_out, "changed": self.has_changed})
        else:
            expired = f", {self.expired} expired" if self.expired else ""
            left_out = f", {self.left_out} left out" if self.left_out else ""
            tell(f"{output.counted(self.exported, 'job')} exported{expired}{left_out}")


def _shown(value: Value) -> str:
    """Returns a value as JSON that `fjord jobs import --with-value` reads."""
    if isinstance(value, bytes):
        return json.dumps({"base64": base64.b64encode(value).decode()})
    return json.dumps(value)


def _write(path: str, text: Iterable[str]) -> None:
    with _target(path) as file:
        for piece in text:
            file.write(piece.encode())
        file.flush()


@contextlib.contextmanager
def _target(path: str) -> Iterator[IO[bytes]]:
    """Opens the file to write to, which is not there yet; standard output if none is named."""
    if not path:
        yield sys.stdout.buffer
        return
    try:
        file = open(path, "xb")  # noqa: SIM115 - it is closed below
    except FileExistsError as error:
        raise UsageError(f"{path} is there already; give another name") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException as error:
        LocalDisk().remove(path)  # a part of it would look like all
        if isinstance(error, OSError):
            raise FjordError(f"{path} cannot be written: {error.strerror}") from error
        raise
