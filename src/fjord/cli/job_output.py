"""How jobs are shown: those that were taken, and those that are only looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from fjord.cli import output
from fjord.client.job_pages import JobWalk

if TYPE_CHECKING:
    from fjord.client.database import Database
    from fjord.client.job_entries import DeadJob, JobInfo
    from fjord.client.jobs import Job
    from fjord.commands import JobPage
    from fjord.jobs import State


def describe(job: Job | JobInfo) -> dict[str, object]:
    """Returns what is known of any job, for `print_json`."""
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
        "type": output.type_name(job.value),
        "value": job.value,
    }


def describe_taken(job: Job | JobInfo) -> dict[str, object]:
    return {"xid": job.xid, "lease_until": output.date(job.lease_until), **describe(job)}


def describe_dead(job: DeadJob) -> dict[str, object]:
    return {**describe(job), "reason": job.reason, "died_at": output.date(job.died_at)}


def print_taken(jobs: Iterable[Job | JobInfo], *, as_json: bool) -> None:
    if as_json:
        for job in jobs:
            output.print_json(describe_taken(job))
        return
    rows = ((str(job.xid), _until(job.lease_until), *_cells(job)) for job in jobs)
    output.print_rows(("xid", "until", *_NAMES), rows, as_json=False)


def print_waiting(jobs: Iterable[JobInfo], *, as_json: bool) -> None:
    if as_json:
        for job in jobs:
            output.print_json({"state": job.state.name.lower(), **describe(job)})
        return
    rows = ((_until(job.process_at), *_cells(job)) for job in jobs)
    output.print_rows(("due", *_NAMES), rows, as_json=False)


def print_dead(jobs: Iterable[DeadJob], *, as_json: bool) -> None:
    if as_json:
        for job in jobs:
            output.print_json(describe_dead(job))
        return
    rows = ((str(job.row), _until(job.died_at), job.reason, *_cells(job)) for job in jobs)
    output.print_rows(("row", "died", "reason", *_NAMES), rows, as_json=False)


_NAMES = ("key", "priority", "timeouts", "value")


def _cells(job: Job | JobInfo) -> tuple[str, ...]:
    return job.key, str(job.priority), str(job.timeouts), output.shown(job.value)


def _until(moment: datetime | None) -> str:
    return output.date(moment) or ""


# -- all jobs of a table, read as columns, and none taken; and whether any changed meanwhile ------


def pages(db: Database, table: str, state: State) -> Iterator[JobPage]:
    """Yields the jobs of one state, a bounded page at a time."""
    walk = JobWalk(table, state, lambda page: [page])
    while (call := walk.next_call()) is not None:
        yield from db.run(call)


def moment(db: Database) -> int:
    """Returns a moment that `has_changed` understands."""
    return db.stats()["applied_seq"]


def has_changed(db: Database, table: str, since: int) -> bool:
    """Says whether anything was done to the jobs of a table since then.

    Nothing shows a jobs table as of one moment, but its history tells this afterwards.
    """
    return any(len(piece.first_seqs) for piece in db.scan(table, since + 1))
