"""Running the verbs of journal tables in SQL, and the jobs that come of it."""

from __future__ import annotations

from typing import Final

import fjord
from fjord.clock import SystemClock

HOUR_US: Final = 3600 * 1_000_000
NOW_US: Final = SystemClock().wall_us()
COLUMNS: Final = "domain, priority, key_start_date, uri, status"


def jobs(db: fjord.Database, table: str = "pages") -> list[tuple[str, str, int, int]]:
    """Returns the jobs that wait, in their order: key, domain, priority and process date."""
    return [
        (job.key, job.domain, job.priority, round(job.process_at.timestamp() * 1_000_000))
        for job in db.jobs(table).peek(10_000)
    ]
