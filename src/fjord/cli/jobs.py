"""`fjord jobs`, `fjord next` and `fjord done`: jobs from the shell."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from fjord import kinds, limits
from fjord.cli import arguments, output
from fjord.cli.arguments import Node, TableName, noun, option, read_delay, read_lease, verb
from fjord.cli.output import EXIT_ERROR, Bar, tell
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import Code, FjordError, NotFoundError, UsageError
from fjord.sql import writing
from fjord.sql.writing import Dialect
from fjord.text import type_name, value_text

if TYPE_CHECKING:
    from fjord.client.blocking.jobs import Job, Jobs
    from fjord.client.jobs.records import DeadJob, JobBatch, JobInfo
    from fjord.sql.exporter import Exporter
    from fjord.sql.importer import Importer


app = noun("jobs", "Shows and changes jobs.")

Limit = Annotated[int, option("Maximum number.", min=1, max=limits.PAGE_ENTRIES_MAX)]
Reason = Annotated[str, option("The reason, shown in the dead letters.")]


@verb(app, "list")
def list_(node: Node) -> None:
    """Lists all jobs tables: waiting, taken and dead jobs, and when the next one is due.

    Example: fjord jobs list
    """
    with node.open(read_only=True) as db:
        names = (table.name for table in db.tables() if table.kind == kinds.Kind.JOBS)
        tables = ({"table": name, **_counts(db.jobs(name))} for name in names)
        counted = ("table", "waiting", "taken", "dead", "next_at")
        node.print_all(tables, dict, counted, lambda one: tuple(map(_cell, one.values())))


@verb(app)
def count(node: Node, table: TableName, domain: arguments.Domain = "") -> None:
    """Counts waiting, taken and dead jobs, and prints when the next one is due.

    With --domain, prints only when its next job is due: jobs are not counted by domain. Exit code
    1 if there is no such table.

    Example: fjord jobs count pages
    """
    with node.open(read_only=True) as db:
        db.table(table)  # a missing table would look like an empty one
        jobs = db.jobs(table)
        what = {"next_at": output.date(jobs.next_at(domain))} if domain else _counts(jobs)
        if node.as_json:
            output.print_json(what)
        else:
            rows = ((name, _cell(one)) for name, one in what.items())
            output.print_rows(("what", "value"), rows)


def _counts(jobs: Jobs) -> dict[str, object]:
    return {**jobs.count()._asdict(), "next_at": output.date(jobs.next_at())}


def _cell(what: object) -> str:
    return "" if what is None else str(what)


@verb(app)
def peek(node: Node, table: TableName, limit: Limit = 10, domain: arguments.Domain = "") -> None:
    """Shows waiting jobs in order of priority and date, without taking them.

    In a table with fairness they are shown one domain after another. Exit code 1 if there is no
    such table.

    Example: fjord jobs peek pages --limit 20
    """
    with node.open(read_only=True) as db:
        db.table(table)
        found = db.jobs(table).peek(limit, domain=domain or None)
        _print_waiting(node, found)


@verb(app)
def taken(node: Node, table: TableName, limit: Limit = 10) -> None:
    """Shows taken jobs and the ends of their leases; exit code 1 if there is no such table.

    Example: fjord jobs taken pages
    """
    with node.open(read_only=True) as db:
        db.table(table)
        _print_taken(node, db.jobs(table).taken(limit))


@verb(app)
def get(node: Node, table: TableName, key: arguments.Key) -> None:
    """Shows the waiting job of a key; exit code 1 if there is none.

    Example: fjord jobs get pages http://example.com/a --json
    """
    with node.open(read_only=True) as db:
        found = db.jobs(table).get(key)
        if found is None:
            raise NotFoundError(Code.NOT_FOUND, f"no job waits in {table} under {key}")
        _print_waiting(node, [found])


# -- waiting jobs, by key -------------------------------------------------------------------------


@verb(app)
def cancel(node: Node, table: TableName, keys: arguments.Keys) -> None:
    """Removes waiting jobs; exit code 1 if a key had none.

    Example: fjord jobs cancel pages http://example.com/a
    """
    with node.open() as db:
        there = set(db.jobs(table).cancel_many(keys))
        _end_of_keys(node, "cancelled", table, keys, there.__contains__)


@verb(app)
def reschedule(
    node: Node,
    table: TableName,
    keys: arguments.Keys,
    priority: Annotated[str, option("The new priority: a number or a name.")] = "",
    delay: arguments.Delay = None,
    at: arguments.At = "",
) -> None:
    """Changes the priority or the date of waiting jobs; exit code 1 if a key had none.

    Example: fjord jobs reschedule pages http://example.com/a --priority now --delay 0
    """
    when = arguments.one_date(delay, at)
    if not priority and delay is None and not at:
        raise UsageError("give --priority, --delay or --at")
    level = arguments.priority(priority) if priority else None
    with node.open() as db:
        reschedule_one = partial(db.jobs(table).reschedule, priority=level, **when)
        _end_of_keys(node, "rescheduled", table, keys, reschedule_one)


@verb(app)
def kick(node: Node, table: TableName, keys: arguments.Keys) -> None:
    """Makes waiting jobs due now; exit code 1 if a key had none.

    Example: fjord jobs kick pages http://example.com/a
    """
    with node.open() as db:
        _end_of_keys(node, "kicked", table, keys, db.jobs(table).kick)


@verb(app)
def bury(node: Node, table: TableName, keys: arguments.Keys, reason: Reason = "") -> None:
    """Sends waiting jobs to the dead letters; exit code 1 if a key had none.

    Example: fjord jobs bury pages http://example.com/a --reason "waits for the new parser"
    """
    with node.open() as db:
        _end_of_keys(node, "buried", table, keys, partial(db.jobs(table).bury, reason=reason))


def _end_of_keys(
    node: Node, what: str, table: str, keys: list[str], act: Callable[[str], bool]
) -> None:
    acted: list[str] = []
    missing: list[str] = []
    for key in keys:
        (acted if act(key) else missing).append(key)
    told = [f"no job waits in {table} under {key}" for key in missing]
    node.end(told, table=table, **{what: acted}, missing=missing)


# -- taken jobs, by xid ---------------------------------------------------------------------------


@verb(app)
def touch(
    node: Node,
    table: TableName,
    xids: arguments.Xids,
    lease: Annotated[
        float | None,
        option("Seconds from now.", parser=read_lease, shown="the length of the lease"),
    ] = None,
) -> None:
    """Extends leases (a heartbeat); exit code 1 if one had expired.

    Example: fjord jobs touch pages 4711 --lease 600
    """
    with node.open() as db:
        late = db.jobs(table).touch_many(xids, lease=lease)
        _end_of_leases(node, "touched", table, xids, late)


@verb(app)
def fail(
    node: Node,
    table: TableName,
    xids: arguments.Xids,
    delay: Annotated[float, option("Seconds to wait at least.", parser=read_delay)] = 0.0,
    reason: Reason = "",
    count_: Annotated[
        bool, option("Count it as a failure of the job.", "--count/--no-count")
    ] = True,
    bury_: Annotated[bool, option("Send to the dead letters at once.", "--bury")] = False,
) -> None:
    """Gives jobs back, to wait again or, after too many failures, to the dead letters.

    Exit code 1 if a lease had expired.

    Example: fjord jobs fail pages 4711 --delay 30 --reason "the site is down"
    """
    with node.open() as db:
        late = db.jobs(table).fail_many(xids, delay=delay, reason=reason, count=count_, bury=bury_)
        _end_of_leases(node, "failed", table, xids, late)


# -- dead jobs ------------------------------------------------------------------------------------

# Matching jobs that a dry run shows.
_SHOWN: Final = 10

DryRun = Annotated[bool, option("Only count them, and show the first.", "--dry-run")]
All = Annotated[bool, option("All of them; required if nothing else selects some.", "--all")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Options that select dead jobs."""

    key: Annotated[str | None, option("Only those with this key.", shown=False)] = None
    row: Annotated[
        list[int] | None,
        option(
            "This job, by its row in `fjord jobs dead`; may be repeated.",
            metavar="N",
            min=0,
            max=2**64 - 1,
            shown=False,
        ),
    ] = None
    key_prefix: Annotated[str, option("Only those whose key begins with this.")] = ""
    domain: Annotated[str, option("Only those of this domain.")] = ""
    reason: Annotated[str, option("Only those with this in their reason.")] = ""
    before: Annotated[
        str, option("Only those that died before this date, such as 2026-01-31T12:00:00Z.")
    ] = ""
    limit: Annotated[int | None, option("Maximum number.", min=1, shown="all")] = None

    def arguments(self, *, is_all: bool = True) -> dict[str, Any]:
        """Returns the library's arguments.

        Raises:
            UsageError: if options exclude each other, or none is given and `is_all` is not set.
        """
        picked = asdict(self) | {"before": arguments.moment(self.before)}
        picked = {name: given for name, given in picked.items() if given and name != "row"}
        if self.key is not None:
            picked["key"] = self.key  # also an empty one, which is refused
        if self.row and picked:
            raise UsageError("--row names single jobs; give it without other filters")
        if self.row:
            return {"rows": self.row}
        if not is_all and not picked.keys() - {"limit"}:
            raise UsageError(
                "select jobs with --key, --row, --key-prefix, --domain, --reason or --before, "
                "or give --all for all of them"
            )
        return picked


@verb(app)
def dead(node: Node, table: TableName, which: DeadFilter) -> None:
    """Shows jobs that failed too often or were buried, in the order of their pushes.

    The options select jobs in the same way as those of redrive and discard.

    Example: fjord jobs dead pages --limit 20

    Example: fjord jobs dead pages --reason "exit code 7" --json
    """
    picked = which.arguments()
    with node.open(read_only=True) as db:
        db.table(table)  # a missing table would look like an empty one
        _print_dead(node, _matching(db.jobs(table), picked))


@verb(app)
def redrive(
    node: Node,
    table: TableName,
    which: DeadFilter,
    rate: Annotated[
        float | None, option("Maximum number per second.", min=0.001, shown="no limit")
    ] = None,
    delay: Annotated[float, option("Seconds to wait first.", parser=read_delay)] = 0.0,
    dry_run: DryRun = False,
    all_: All = False,
) -> None:
    """Lets dead jobs wait again, as if they had never failed.

    A job that has expired, or whose key waits again, is dropped. Exit code 1 if a job named by
    --row is not dead.

    Example: fjord jobs redrive pages --reason "exit code 7" --rate 50

    Example: fjord jobs redrive pages --all --dry-run
    """
    picked = which.arguments(is_all=all_)
    with node.open() as db, Bar("redriving") as bar:
        jobs = db.jobs(table)
        if dry_run:
            _preview(node, table, jobs, picked)
            return
        found = jobs.redrive(
            **picked, rate=rate, delay=delay, progress=lambda done: bar.update(done, which.limit)
        )
    acted = {"revived": found.revived, "dropped": found.dropped}
    _tell_acted(node, table, found.matched, acted, is_named=bool(which.row))


@verb(app)
def discard(
    node: Node, table: TableName, which: DeadFilter, dry_run: DryRun = False, all_: All = False
) -> None:
    """Deletes dead jobs for good; exit code 1 if a job named by --row is not dead.

    Example: fjord jobs discard pages --before 2026-01-01T00:00:00Z --dry-run
    """
    picked = which.arguments(is_all=all_)
    with node.open() as db, Bar("discarding") as bar:
        jobs = db.jobs(table)
        if dry_run:
            _preview(node, table, jobs, picked)
            return
        found = jobs.discard(
            **picked, all=all_, progress=lambda done: bar.update(done, which.limit)
        )
    acted = {"discarded": found.discarded}
    _tell_acted(node, table, found.matched, acted, is_named=bool(which.row))


def _matching(jobs: Jobs, picked: dict[str, Any]) -> Iterator[DeadJob]:
    if "rows" not in picked:
        return jobs.dead(**picked)
    rows = set(picked["rows"])
    return (job for job in jobs.dead() if job.row in rows)


def _preview(node: Node, table: str, jobs: Jobs, picked: dict[str, Any]) -> None:
    found = _matching(jobs, picked)
    first = list(itertools.islice(found, _SHOWN))
    matched = len(first) + sum(1 for _ in found)
    if node.as_json:
        shown = list(map(_describe_dead, first))
        node.done(table=table, matched=matched, dry_run=True, first=shown)
        return
    _print_dead(node, first)
    more = f", the first {_SHOWN} are shown" if matched > _SHOWN else ""
    match = "matches" if matched == 1 else "match"
    tell(f"{output.counted(matched, 'dead job')} {match}{more}; nothing was changed")


def _tell_acted(
    node: Node, table: str, matched: int, acted: dict[str, int], *, is_named: bool
) -> None:
    what = ", ".join(f"{count} {done}" for done, count in acted.items())
    text = f"{output.counted(matched, 'dead job')} matched: {what}"
    node.done(text, table=table, matched=matched, **acted, dry_run=False)
    missing = matched - sum(acted.values())
    if is_named and missing:
        tell(f"fjord: {missing} of the rows are not those of dead jobs")
        raise typer.Exit(EXIT_ERROR)


# -- from and to SQL ------------------------------------------------------------------------------


@verb(app, "import")
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
    from fjord.cli import lines
    from fjord.sql import live
    from fjord.sql.importer import Importer
    from fjord.sql.shape import Rules

    now_us = SystemClock().wall_us()
    rules = Rules(now_us=now_us, is_now=now, read_value=lines.value if with_value else None)
    address = live.parse(sql) if sql else None
    with node.open() as db, Bar("importing") as bar:
        if lines.schema_of(db, table).columns:
            raise FjordError(
                f"table {table} has declared columns, which differ from those of a journal "
                "table; import into a table without columns"
            )
        importer = Importer(
            db.jobs(table),
            rules,
            on_bad=partial(lines.tell_bad, "id" if address else "line"),
            on_found=_tell_left_out,
            on_progress=bar.update,
        )
        try:
            if address is None:
                with lines.opened(mysql_dump) as (file, size):
                    importer.import_dump(file, size, sql_table)
            else:
                importer.import_live(address, sql_table or "journal")
        finally:
            bar.stop()
            _tell_imported(node, table, importer)
    output.exit_if(importer.writer.bad)


def _tell_left_out(sql_table: str, columns: list[str]) -> None:
    if columns:
        tell(f"columns of {sql_table} that are left out: {', '.join(columns)}")


def _tell_imported(node: Node, table: str, importer: Importer) -> None:
    for other in importer.others:
        tell(
            f"table {other} has the same columns and is left out; import it with "
            f"--sql-table {other}",
            style="yellow",
        )
    if found := importer.table:
        imported, bad = importer.writer.written, importer.writer.bad
        rows, bad_rows = output.counted(imported, "row"), output.counted(bad, "bad row")
        text = f"{rows} of {found} imported, {bad_rows}"
        node.done(text, table=table, sql_table=found, imported=imported, bad=bad)


@verb(app)
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
    from fjord.sql.exporter import Exporter

    name = writing.check_name(sql_table)
    with node.open(read_only=True) as db, Bar("exporting") as bar:
        exporter = Exporter(
            db,
            table,
            has_value=with_value,
            on_left_out=partial(tell, style="yellow"),
            on_progress=bar.update,
        )
        if as_csv:
            text = writing.lines(exporter.rows(), has_value=with_value)
        else:
            made = writing.create(name, with_create, has_value=with_value) if with_create else ""
            text = writing.inserts(exporter.rows(), name, creation=made, has_value=with_value)
        with _target(out) as file:
            for piece in text:
                file.write(piece.encode())
            file.flush()
    _tell_exported(node, table, exporter)
    output.exit_if(exporter.left_out or exporter.has_changed)


def _tell_exported(node: Node, table: str, exporter: Exporter) -> None:
    if exporter.has_changed:
        tell(
            f"fjord: table {table} changed while it was read, so some jobs may be missing or "
            "duplicated; stop its clients and workers, and export it again",
            style="yellow",
        )
    expired = f", {exporter.expired} expired" if exporter.expired else ""
    left_out = f", {exporter.left_out} left out" if exporter.left_out else ""
    node.done(
        f"{output.counted(exporter.exported, 'job')} exported{expired}{left_out}",
        table=table,
        exported=exporter.exported,
        expired=exporter.expired,
        left_out=exporter.left_out,
        changed=exporter.has_changed,
    )


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


# -- listening ------------------------------------------------------------------------------------


@verb(app)
def listen(node: Node, table: TableName) -> None:
    """Prints a line whenever jobs arrive or become due, until Ctrl-C.

    Example: fjord jobs listen pages
    """
    with (
        node.open() as db,
        contextlib.suppress(KeyboardInterrupt),
        db.jobs(table).listen() as moments,
    ):
        tell("listening; press Ctrl-C to stop", style="dim")
        for moment in moments:
            at = moment.at.isoformat()
            what = {"kind": moment.kind, "at": at}
            output.print_one(what, at, moment.kind, as_json=node.as_json)


# -- `fjord next` and `fjord done`: a worker's two steps, from the shell --------------------------


def next_(
    node: Node,
    table: TableName,
    count: Annotated[int, option("Maximum number.", min=1, max=limits.NEXT_COUNT_MAX)] = 1,
    domain: arguments.Domain = "",
    lease: arguments.Lease = None,
    wait: arguments.Wait = 0.0,
    done: Annotated[bool, option("Take them for good: they are done at once.", "--done")] = False,
) -> None:
    """Takes the next due jobs, most important first, and prints them.

    They are yours until their leases expire; run `fjord done` with their xids before that. Exit
    code 1 if no job is due: with --json, next_at is then the date of the next one, or null.

    Example: fjord next pages --lease 60 --wait 30

    Example: fjord next pages --count 100 --done --json
    """
    with node.open() as db:
        found = db.jobs(table).next(
            count=count, domain=domain or None, lease=lease, wait=wait or None, done=done
        )
        if found:
            _print_taken(node, found)
            return
    _tell_nothing(node, found)
    raise typer.Exit(EXIT_ERROR)


def done(node: Node, table: TableName, xids: arguments.Xids) -> None:
    """Marks jobs as done and removes them.

    Exit code 1 if a lease had expired: somebody else may have that job. The others are done.

    Example: fjord done pages 4711 4712
    """
    with node.open() as db:
        late = db.jobs(table).done_many(xids)
        _end_of_leases(node, "done", table, xids, late)


def _end_of_leases(node: Node, what: str, table: str, xids: list[int], late: list[int]) -> None:
    acted = [xid for xid in xids if xid not in set(late)]
    told = [f"{xid} is stale: its lease expired, or the job is already done" for xid in late]
    node.end(told, table=table, **{what: acted}, stale=late)


def _tell_nothing(node: Node, found: JobBatch[Job]) -> None:
    if node.as_json:
        output.print_json({"next_at": output.date(found.next_at)})
    elif found.next_at is None:
        tell("no job is waiting")
    else:
        tell(f"no job is due before {output.date(found.next_at)}")


# -- how jobs are shown ---------------------------------------------------------------------------

_NAMES: Final = ("key", "priority", "timeouts", "value")


def _print_taken(node: Node, jobs: Iterable[Job | JobInfo]) -> None:
    node.print_all(
        jobs,
        lambda job: {"xid": job.xid, "lease_until": output.date(job.lease_until), **_describe(job)},
        ("xid", "until", *_NAMES),
        lambda job: (str(job.xid), output.date(job.lease_until) or "", *_cells(job)),
    )


def _print_waiting(node: Node, jobs: Iterable[JobInfo]) -> None:
    node.print_all(
        jobs,
        lambda job: {"state": job.state.name.lower(), **_describe(job)},
        ("due", *_NAMES),
        lambda job: (output.date(job.process_at) or "", *_cells(job)),
    )


def _print_dead(node: Node, jobs: Iterable[DeadJob]) -> None:
    node.print_all(
        jobs,
        _describe_dead,
        ("row", "died", "reason", *_NAMES),
        lambda job: (str(job.row), output.date(job.died_at) or "", job.reason, *_cells(job)),
    )


def _describe_dead(job: DeadJob) -> dict[str, object]:
    return {**_describe(job), "reason": job.reason, "died_at": output.date(job.died_at)}


def _describe(job: Job | JobInfo) -> dict[str, object]:
    return {
        "key": job.key,
        "domain": job.domain,
        "priority": job.priority,
        "timeouts": job.timeouts,
        "process_at": output.date(job.process_at),
        "inserted_at": output.date(job.inserted_at),
        "updated_at": output.date(job.updated_at),
        "expires_at": output.date(job.expires_at),
        "row": job.row,
        "type": type_name(job.value),
        "value": job.value,
    }


def _cells(job: Job | JobInfo) -> tuple[str, ...]:
    return job.key, str(job.priority), str(job.timeouts), value_text(job.value)
