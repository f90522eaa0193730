"""Running the verbs of journal tables in SQL, and the jobs that come of it."""

from __future__ import annotations

import json
from typing import Any, Final

from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from fjord.clock import SystemClock

HOUR_US: Final = 3600 * 1_000_000
NOW_US: Final = SystemClock().wall_us()
COLUMNS: Final = "domain, priority, key_start_date, uri, status"


def run(*words: str, text: bytes = b"") -> Result:
    result = CliRunner().invoke(app, list(words), input=text)
    raised = result.exception
    assert raised is None or isinstance(raised, SystemExit), repr(raised)
    return result


def imported(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def jobs(db: fjord.Database, table: str = "pages") -> list[tuple[str, str, int, int]]:
    """Returns the jobs that wait, in their order: key, domain, priority and process date."""
    return [
        (job.key, job.domain, job.priority, round(job.process_at.timestamp() * 1_000_000))
        for job in db.jobs(table).peek(10_000)
    ]
