"""`fjord next` and `fjord done`: a worker's two steps, from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fjord import limits
from fjord.cli import arguments, job_output, output
from fjord.cli.arguments import Domain, Lease, TableName, Xids
from fjord.cli.failing import EXIT_ERROR, explained, tell
from fjord.cli.where import DAEMON, Data, Json, To, database

if TYPE_CHECKING:
    from fjord.client.job_entries import JobBatch
    from fjord.client.jobs import Job


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
