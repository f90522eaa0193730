"""`fjord jobs`: jobs tables from the shell; what is in them, and changing it by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from fjord import kinds, limits
from fjord.cli import arguments, dead_jobs, job_output, jobs_sql, output
from fjord.cli.arguments import (
    DAEMON,
    At,
    Data,
    Delay,
    Domain,
    JobKeys,
    Json,
    Lease,
    TableName,
    To,
    Xids,
    database,
)
from fjord.cli.output import EXIT_ERROR, explained, tell
from fjord.errors import Code, NotFoundError, UsageError
from fjord.jobs import Fairness

if TYPE_CHECKING:
    from fjord.client.job_entries import JobBatch
    from fjord.client.jobs import Job, Jobs


app = typer.Typer(
    name="jobs", help="Makes, shows and changes jobs tables and their jobs.", no_args_is_help=True
)

Limit = Annotated[int, typer.Option(help="At most so many.", min=1, max=limits.PAGE_ENTRIES_MAX)]
Reason = Annotated[str, typer.Option(help="Why; it stands in the dead letters.")]


@app.command()
def create(
    table: TableName,
    merge: Annotated[
        bool, typer.Option(help="Merge a job with the one that waits under its key.")
    ] = True,
    fairness: Annotated[
        Fairness, typer.Option(help="One order over all, or one domain after the other.")
    ] = Fairness.NONE,
    lease: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(arguments.SOME, arguments.LEASE_MAX),
            help="Seconds that a worker may take, unless it says otherwise.",
        ),
    ] = 3600.0,
    timeouts_max: Annotated[
        int,
        typer.Option(
            help="A job that times out or fails more often is dead.", min=0, max=limits.TIMEOUTS_MAX
        ),
    ] = 5,
    debounce: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(), help="Seconds by which pushing again may postpone a job."
        ),
    ] = 3600.0,
    history: Annotated[
        bool, typer.Option(help="What happened to jobs goes to cold blocks.")
    ] = True,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Makes a jobs table with settings of its own; without, the first push makes it.

    A table that is there with the same settings is no error; exit code 1 if it has others.

    Example: fjord jobs create mails --no-merge --timeouts-max 10

    Example: fjord jobs create pages --fairness domain --lease 60
    """
    with explained(), database(to, data) as db:
        try:
            db.create_jobs(
                table,
                merge=merge,
                fairness=fairness,
                lease=lease,
                timeouts_max=timeouts_max,
                debounce=debounce,
                history=history,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        if as_json:
            output.print_json({"table": table})


@app.command("list")
def list_(to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Lists all jobs tables: how many jobs wait, are taken and are dead, and when the next is due.

    Example: fjord jobs list
    """
    with explained(), database(to, data, read_only=True) as db:
        names = (table.name for table in db.tables() if table.kind == kinds.Kind.JOBS)
        tables = ({"table": name, **_counts(db.jobs(name))} for name in names)
        if as_json:
            for one in tables:
                output.print_json(one)
            return
        rows = (tuple(map(_cell, one.values())) for one in tables)
        output.print_rows(("table", *_COUNTED), rows, as_json=False)


@app.command()
def count(
    table: TableName, domain: Domain = "", to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Prints how many jobs wait, are taken and are dead, and when the next one is due.

    With --domain, only when its next one is due: jobs are not counted by domain. Exit code 1 if
    there is no such table.

    Example: fjord jobs count pages
    """
    with explained(), database(to, data, read_only=True) as db:
        db.table(table)  # one that is not there would look like an empty one
        jobs = db.jobs(table)
        what = {"next_at": output.date(jobs.next_at(domain))} if domain else _counts(jobs)
        if as_json:
            output.print_json(what)
        else:
            rows = ((name, _cell(one)) for name, one in what.items())
            output.print_rows(("what", "value"), rows, as_json=False)


_COUNTED = ("waiting", "taken", "dead", "next_at")


def _counts(jobs: Jobs) -> dict[str, object]:
    return {**jobs.count()._asdict(), "next_at": output.date(jobs.next_at())}


def _cell(what: object) -> str:
    return "" if what is None else str(what)


@app.command()
def peek(
    table: TableName,
    limit: Limit = 10,
    domain: Domain = "",
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Shows jobs that wait, in order of priority and date, and takes none.

    Of a table with fairness they come by domain: all of one, then all of the next. Exit code 1 if
    there is no such table.

    Example: fjord jobs peek pages --limit 20
    """
    with explained(), database(to, data, read_only=True) as db:
        db.table(table)
        found = db.jobs(table).peek(limit, domain=domain or None)
        job_output.print_waiting(found, as_json=as_json)


@app.command()
def taken(
    table: TableName, limit: Limit = 10, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Shows jobs that workers have now, and until when; exit code 1 if there is no such table.

    Example: fjord jobs taken pages
    """
    with explained(), database(to, data, read_only=True) as db:
        db.table(table)
        job_output.print_taken(db.jobs(table).taken(limit), as_json=as_json)


@app.command()
def get(
    table: TableName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its key.", show_default=False)],
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Shows the job that waits under a key; exit code 1 if there is none.

    Example: fjord jobs get pages http://example.com/a --json
    """
    with explained(), database(to, data, read_only=True) as db:
        found = db.jobs(table).get(key)
        if found is None:
            raise NotFoundError(Code.NOT_FOUND, f"no job waits in {table} under {key}")
        job_output.print_waiting([found], as_json=as_json)


# -- waiting jobs, by key -------------------------------------------------------------------------


@app.command()
def cancel(
    table: TableName, keys: JobKeys, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Takes waiting jobs away; exit code 1 if one of the keys had none.

    Example: fjord jobs cancel pages http://example.com/a
    """
    with explained(), database(to, data) as db:
        there = set(db.jobs(table).cancel_many(keys))
        _end_of_keys("cancelled", table, keys, there.__contains__, as_json=as_json)


@app.command()
def reschedule(
    table: TableName,
    keys: JobKeys,
    priority: Annotated[str, typer.Option(help="Its new priority: a number or a name.")] = "",
    delay: Delay = None,
    at: At = "",
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Changes the priority or the date of waiting jobs; exit code 1 if one of the keys had none.

    Example: fjord jobs reschedule pages http://example.com/a --priority now --delay 0
    """
    with explained():
        when = arguments.one_date(delay, at)
        if not priority and delay is None and not at:
            raise UsageError("give --priority, --delay or --at")
        level = arguments.priority(priority) if priority else None
        with database(to, data) as db:
            jobs = db.jobs(table)
            _end_of_keys(
                "rescheduled",
                table,
                keys,
                lambda key: jobs.reschedule(key, priority=level, **when),
                as_json=as_json,
            )


@app.command()
def kick(
    table: TableName, keys: JobKeys, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Makes waiting jobs due now; exit code 1 if one of the keys had none.

    Example: fjord jobs kick pages http://example.com/a
    """
    with explained(), database(to, data) as db:
        _end_of_keys("kicked", table, keys, db.jobs(table).kick, as_json=as_json)


@app.command()
def bury(
    table: TableName,
    keys: JobKeys,
    reason: Reason = "",
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Sends waiting jobs to the dead letters; exit code 1 if one of the keys had none.

    Example: fjord jobs bury pages http://example.com/a --reason "waits for the new parser"
    """
    with explained(), database(to, data) as db:
        jobs = db.jobs(table)
        _end_of_keys(
            "buried", table, keys, lambda key: jobs.bury(key, reason=reason), as_json=as_json
        )


def _end_of_keys(
    what: str, table: str, keys: list[str], act: Callable[[str], bool], *, as_json: bool
) -> None:
    """Acts on one key after the other, and ends with 1 if some had no waiting job."""
    acted: list[str] = []
    missing: list[str] = []
    for key in keys:
        (acted if act(key) else missing).append(key)
    if as_json:
        output.print_json({"table": table, what: acted, "missing": missing})
    else:
        for key in missing:
            tell(f"fjord: no job waits in {table} under {key}")
    if missing:
        raise typer.Exit(EXIT_ERROR)


# -- taken jobs, by xid ---------------------------------------------------------------------------


@app.command()
def touch(
    table: TableName,
    xids: Xids,
    lease: Annotated[
        float | None,
        typer.Option(
            parser=arguments.seconds(arguments.SOME, arguments.LEASE_MAX),
            help="Seconds from now on.",
            show_default="as long as it was taken for",
        ),
    ] = None,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Lets leases last longer: a heartbeat; exit code 1 if one was over already.

    Example: fjord jobs touch pages 4711 --lease 600
    """
    with explained(), database(to, data) as db:
        late = db.jobs(table).touch_many(xids, lease=lease)
        end_of_leases("touched", table, xids, late, as_json=as_json)


@app.command()
def fail(
    table: TableName,
    xids: Xids,
    delay: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(high=arguments.DELAY_MAX),
            help="Wait at least so many seconds.",
        ),
    ] = 0.0,
    reason: Reason = "",
    count_: Annotated[
        bool, typer.Option("--count/--no-count", help="Count it as a failure of the job.")
    ] = True,
    bury_: Annotated[bool, typer.Option("--bury", help="To the dead letters at once.")] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Gives jobs back, to wait again or to die if that was too often.

    Exit code 1 if the lease of one was over already.

    Example: fjord jobs fail pages 4711 --delay 30 --reason "the site is down"
    """
    with explained(), database(to, data) as db:
        late = db.jobs(table).fail_many(xids, delay=delay, reason=reason, count=count_, bury=bury_)
        end_of_leases("failed", table, xids, late, as_json=as_json)


# -- the dead -------------------------------------------------------------------------------------

for verb in (dead_jobs.dead, dead_jobs.redrive, dead_jobs.discard):
    app.command()(verb)


# -- from and to SQL ------------------------------------------------------------------------------

app.command("import")(jobs_sql.import_)
app.command()(jobs_sql.export)

# -- being told -----------------------------------------------------------------------------------


@app.command()
def listen(table: TableName, to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Prints a line whenever jobs arrive or become due, until Ctrl-C.

    Example: fjord jobs listen pages
    """
    with explained(), database(to, data) as db:
        try:
            with db.jobs(table).listen() as moments:
                tell("listening; Ctrl-C ends it", style="dim")
                for moment in moments:
                    at = moment.at.isoformat()
                    if as_json:
                        output.print_json({"kind": moment.kind, "at": at})
                    else:
                        output.print_line(at, moment.kind)
        except KeyboardInterrupt:
            return


# -- `fjord next` and `fjord done`: a worker's two steps, from the shell --------------------------


def next_(
    table: TableName,
    count: Annotated[
        int, typer.Option(help="At most so many.", min=1, max=limits.NEXT_COUNT_MAX)
    ] = 1,
    domain: Domain = "",
    lease: Lease = None,
    wait: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(high=limits.WAIT_US_MAX / 1_000_000),
            help="Seconds to wait for the first one.",
        ),
    ] = 0.0,
    done: Annotated[
        bool, typer.Option("--done", help="They are done at once, and never come again.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Takes the next jobs that are due, most important first, and prints them.

    They are yours until their leases are over; say `fjord done` with their xids before. Exit code
    1 if nothing is due: with --json the one object then has next_at, which is null if nothing
    waits.

    Example: fjord next pages --lease 60 --wait 30

    Example: fjord next pages --count 100 --done --json
    """
    with explained(), database(to, data) as db:
        found = db.jobs(table).next(
            count=count, domain=domain or None, lease=lease, wait=wait or None, done=done
        )
        if found:
            job_output.print_taken(found, as_json=as_json)
            return
    _tell_nothing(found, as_json=as_json)
    raise typer.Exit(EXIT_ERROR)


def done(
    table: TableName, xids: Xids, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Says that jobs are done; they are gone then.

    Exit code 1 if the lease of one was over before: somebody else may have it. The others are
    done all the same.

    Example: fjord done pages 4711 4712
    """
    with explained(), database(to, data) as db:
        late = db.jobs(table).done_many(xids)
        end_of_leases("done", table, xids, late, as_json=as_json)


def end_of_leases(
    what: str, table: str, xids: list[int], late: list[int], *, as_json: bool
) -> None:
    """Says what was done for the jobs of some leases, and ends with 1 if some came too late."""
    acted = [xid for xid in xids if xid not in set(late)]
    if as_json:
        output.print_json({"table": table, what: acted, "stale": late})
    else:
        for xid in late:
            tell(f"fjord: {xid} is stale: its lease was over, or it is done already")
    if late:
        raise typer.Exit(EXIT_ERROR)


def _tell_nothing(found: JobBatch[Job], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"next_at": output.date(found.next_at)})
    elif found.next_at is None:
        tell("nothing waits")
    else:
        tell(f"nothing is due before {output.date(found.next_at)}")
