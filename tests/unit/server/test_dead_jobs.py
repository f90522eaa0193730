"""When jobs have died, the log and the counters say so."""

from __future__ import annotations

import pytest

from fjord.server.counters import Counters
from fjord.server.dead_jobs import DeadJobs
from fjord.testing import SimClock
from tests.unit.server.sim_loop import SimLoop


class World:
    """Tables with as many dead jobs as the test says."""

    def __init__(self, **dead: int) -> None:
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.counters = Counters()
        self.dead = dead
        self.looks = 0
        self.alerts = DeadJobs(self._counts, self.loop.as_loop, self.clock, self.counters)

    def _counts(self) -> dict[str, tuple[int, int, int]]:
        self.looks += 1
        return {table: (5, 5, dead) for table, dead in self.dead.items()}

    def write(self, **dead: int) -> None:
        """Something is written, and time passes."""
        self.dead = dead
        self.alerts.note_writes()
        self.loop.pass_time(5)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    found = [(record.getMessage(), vars(record)["fields"]) for record in caplog.records]
    caplog.clear()
    return found


def test_a_table_with_more_dead_jobs_is_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World(pages=2, mails=0)
    world.write(pages=5, mails=0)
    assert said(caplog) == [("jobs are dead", {"table": "pages", "dead": 5, "new": 3})]
    world.write(pages=5, mails=1)
    assert said(caplog) == [("jobs are dead", {"table": "mails", "dead": 1, "new": 1})]
    assert world.counters.jobs_died == 4
    assert world.counters.jobs_died_by_table == {"pages": 3, "mails": 1}


def test_those_that_were_dead_before_the_start_are_not_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(pages=2)
    world.write(pages=2)
    assert said(caplog) == []
    assert world.counters.jobs_died == 0


def test_fewer_are_no_alert_and_more_after_that_are(caplog: pytest.LogCaptureFixture) -> None:
    world = World(pages=7)
    world.write(pages=0)
    assert said(caplog) == []
    world.write(pages=1)
    assert said(caplog) == [("jobs are dead", {"table": "pages", "dead": 1, "new": 1})]


def test_a_table_that_is_dropped_takes_its_counter_with_it() -> None:
    world = World()
    world.write(pages=3)
    world.write()
    assert world.counters.jobs_died_by_table == {}
    assert world.counters.jobs_died == 3


def test_many_writes_are_one_look_and_none_is_none() -> None:
    world = World(pages=0)
    world.loop.pass_time(3600)
    assert world.looks == 1  # at the start
    for _ in range(100):
        world.alerts.note_writes()
        world.loop.pass_time(0.001)
    world.loop.pass_time(3600)
    assert world.looks == 2


def test_a_stop_looks_for_the_last_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World(pages=0)
    world.dead = {"pages": 1}
    world.alerts.note_writes()
    world.alerts.stop()
    assert len(said(caplog)) == 1
    assert world.loop.waits() == []
