"""How jobs are shown: those that were taken, and those that are only looked at."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from fjord.cli import output

if TYPE_CHECKING:
    from fjord.client.job_entries import DeadJob, JobInfo
    from fjord.client.jobs import Job


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
