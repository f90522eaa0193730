"""When jobs have died, the log and the counters say so."""

from __future__ import annotations

from typing import cast

import pytest

from fjord.engine import Engine
from fjord.server.counters import Counters, count_deaths


class World:
    """Tables in which as many jobs have died as the test says; one of each is dead no more."""

    def __init__(self, **died: int) -> None:
        self.counters = Counters()
        self.died = died

    def job_counts(self) -> dict[str, tuple[int, int, int]]:
        return {table: (5, 5, died - 1) for table, died in self.died.items()}

    def job_deaths(self) -> dict[str, int]:
        return dict(self.died)

    def write(self, **died: int) -> None:
        """Something is written, and looked at a moment later."""
        self.died = died
        count_deaths(cast(Engine, self), self.counters)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    found = [(record.getMessage(), vars(record)["fields"]) for record in caplog.records]
    caplog.clear()
    return found


def test_jobs_that_died_are_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.write(pages=5)
    assert said(caplog) == [("jobs are dead", {"table": "pages", "dead": 4, "new": 5})]
    world.write(pages=5, mails=1)
    assert said(caplog) == [("jobs are dead", {"table": "mails", "dead": 0, "new": 1})]
    world.write(pages=7, mails=1)
    assert said(caplog) == [("jobs are dead", {"table": "pages", "dead": 6, "new": 2})]
    assert world.counters.jobs_died == 8
    assert world.counters.jobs_died_by_table == {"pages": 7, "mails": 1}
