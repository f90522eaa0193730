"""Reviving and discarding: which dead jobs are meant, how many at a time, how fast."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fjord.client.calls import Call, PacedSteps, Result
from fjord.client.jobs import dead
from fjord.commands import Command, Discard, JobPage, Peek, Revive
from fjord.errors import RemoteProtocolError
from fjord.jobs import State
from tests.unit.client.job_samples import NOW, Dead, acted, dead_page, make_calls, page_of
from tests.unit.client.scripted import NOW_US

MIXED = dead_page(
    Dead(b"http://a.example/1", b"failed 6 times: ValueError()", died_us=NOW_US),
    Dead(b"http://b.example/1", b"timed out 6 times", died_us=NOW_US + 1),
    Dead(b"x", b"failed 6 times: KeyError()", b"a.example", died_us=NOW_US + 2),
    Dead(b"y", b"", died_us=NOW_US + 3),
)


class Followed:
    """What a plan did, over these pages of dead jobs."""

    def __init__(
        self,
        plan: PacedSteps[Result],
        *pages: JobPage,
        missing: tuple[int, ...] = (),
        dropped: tuple[int, ...] = (),
    ) -> None:
        self.sent: list[Command] = []
        self.pauses: list[float] = []
        self._pages = iter(pages)
        self._acted = acted(*missing, dropped=dropped)
        self.result: Any = self._follow(plan)

    @property
    def chunks(self) -> list[int]:
        return [len(one.rows) for one in self.sent if isinstance(one, Revive | Discard)]

    def _follow(self, plan: PacedSteps[Result]) -> Result:
        found: Any = None
        while True:
            try:
                step = plan.send(found)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            found = None
            if isinstance(step, Call):
                found = self._answer(step)
            else:
                self.pauses.append(step)

    def _answer(self, call: Call[Any]) -> object:
        self.sent.append(call.command)
        if isinstance(call.command, Peek):
            return call.result(next(self._pages))
        return call.result(self._acted)


def redriven(*pages: JobPage, **options: Any) -> Followed:
    return Followed(dead.redrive(make_calls(), options), *pages)  # type: ignore[arg-type]


def pages_of(count: int) -> list[JobPage]:
    """Returns dead jobs, a thousand a page."""
    starts = range(0, count, 1000)
    return [
        page_of(
            *[b"k"] * min(1000, count - start),
            state=State.DEAD,
            first_row=start + 1,
            next_start=b"%d" % start + b"." if start + 1000 < count else b"",
        )
        for start in starts
    ]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        *(({}, [10, 11, 12, 13]), ({"key_prefix": "http://"}, [10, 11])),
        *(({"key_prefix": b"x"}, [12]), ({"key": "x"}, [12]), ({"key": "http://a.example/"}, [])),
        *(({"key": b"y", "domain": "a.example"}, []), ({"domain": "a.example"}, [10, 12])),
        *(({"domain": ""}, [13]), ({"reason": "Error"}, [10, 12])),
        ({"before": NOW + timedelta(microseconds=2)}, [10, 11]),
        ({"limit": 3}, [10, 11, 12]),
        ({"reason": "failed", "domain": "a.example", "key_prefix": "http://a"}, [10]),
        ({"reason": "nobody"}, []),
    ],
    ids=str,
)
def test_those_are_meant_that_fit_all_that_is_given(options: Any, rows: list[int]) -> None:
    for dry_run in (True, False):
        found = redriven(MIXED, **options, dry_run=dry_run)
        assert list(found.result.rows) == rows
        assert found.result.matched == len(rows)
        assert found.result.revived == (0 if dry_run else len(rows))
        assert len(found.sent) == (1 if dry_run or not rows else 2)
    call = dead.dead(make_calls(), options).next_call()
    assert call is not None
    assert [job.row for job in call.result(MIXED)] == rows


@pytest.mark.parametrize(
    ("rate", "chunks", "pauses"),
    [
        (5000, [1000, 500], [0.2]),
        (600, [600, 400, 500], [1.0, 400 / 600]),
        (1000.5, [1000, 500], [1000 / 1000.5]),
    ],
)
def test_a_rate_is_not_passed(rate: float, chunks: list[int], pauses: list[float]) -> None:
    found = redriven(*pages_of(1500), rate=rate)
    assert found.chunks == chunks
    assert found.pauses == pauses


def test_progress_is_told_of_those_that_are_done() -> None:
    told: list[int] = []
    redriven(*pages_of(2500), progress=told.append)
    assert told == [1000, 2000, 2500]


def test_those_that_were_dropped_are_told_apart_from_the_revived() -> None:
    found = Followed(dead.redrive(make_calls(), {}), MIXED, missing=(0,), dropped=(1, 3))
    assert (found.result.matched, found.result.revived, found.result.dropped) == (4, 1, 2)
    wrong: list[Any] = [{"dropped": (4,)}, {"missing": (0, 1, 2), "dropped": (1, 3)}]
    for answer in wrong:
        with pytest.raises(RemoteProtocolError, match="of 4 rows"):
            Followed(dead.redrive(make_calls(), {}), MIXED, **answer)


def test_no_rows_are_none_and_not_all() -> None:
    for plan in (
        dead.redrive(make_calls(), {"rows": []}),
        dead.discard(make_calls(), {"rows": []}),
    ):
        found = Followed(plan)
        assert (found.sent, found.result.matched) == ([], 0)


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows": [5], "key": "k", "limit": 3}, "either rows or key, limit"),
        ({"rows": [-1]}, "64 bits"),
        ({"rows": [2**64]}, "64 bits"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        redriven(**options)


# -- all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"all": False}, {"rate": 5}, {"key": None}, {"key_prefix": "", "reason": ""}]
)
def test_all_are_discarded_only_if_that_is_said(options: Any) -> None:
    with pytest.raises(ValueError, match="all=True to delete all dead jobs"):
        Followed(dead.discard(make_calls(), options))
    found = Followed(dead.discard(make_calls(), options | {"all": True}), MIXED)
    assert found.result.discarded == 4
    assert redriven(MIXED, **{name: options[name] for name in options if name != "all"}).chunks


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limit": 0}, "limit must be 1 or more"),
        ({"rate": 0}, "rate must be more than 0"),
        ({"rate": float("nan")}, "rate must be more than 0"),
        ({"rate": float("inf")}, "rate must be more than 0 jobs a second, not inf"),
        ({"delay": -1}, "delay"),
        ({"before": NOW.replace(tzinfo=None)}, "time zone"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        redriven(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": "5"}, "rate is a number of jobs a second, not str"),
        ({"rate": True}, "rate is a number of jobs a second, not bool"),
        ({"limit": 1.5}, "limit is a whole number, not float"),
        ({"before": 5}, "before is a datetime with a time zone, not int"),
        ({"reason": b"x"}, "reason is text, not bytes"),
        ({"rows": 5}, "rows is a list of numbers, not int"),
        ({"rows": "5"}, "rows is a list of numbers, not str"),
        ({"rows": ["5"]}, "each of rows is a whole number, not str"),
    ],
)
def test_what_is_of_another_type_is_named(options: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        redriven(**options)
