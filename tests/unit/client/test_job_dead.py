"""Reviving and discarding: which dead jobs are meant, how many at a time, how fast."""

from __future__ import annotations

from dataclasses import replace
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
        ({}, [10, 11, 12, 13]),
        ({"key_prefix": "http://"}, [10, 11]),
        ({"key_prefix": b"x"}, [12]),
        ({"key": "x"}, [12]),
        ({"key": "http://a.example/"}, []),
        ({"key": b"y", "domain": "a.example"}, []),
        ({"domain": "a.example"}, [10, 12]),
        ({"domain": ""}, [13]),
        ({"reason": "Error"}, [10, 12]),
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


def test_a_limit_of_the_dead_counts_those_that_fit() -> None:
    walk = dead.dead(make_calls(), {"reason": "failed", "limit": 3})
    found: list[int] = []
    pages = iter([replace(MIXED, next_start=b"1"), replace(MIXED, next_start=b"2")])
    while (call := walk.next_call()) is not None:
        found += [job.row for job in call.result(next(pages))]
    assert found == [10, 12, 10]


def test_a_dry_run_only_looks() -> None:
    for plan in (
        dead.redrive(make_calls(), {"dry_run": True, "rate": 1}),
        dead.discard(make_calls(), {"dry_run": True}),
    ):
        found = Followed(plan, MIXED)
        assert {type(command) for command in found.sent} == {Peek}
        assert found.pauses == []


def test_at_most_a_thousand_are_revived_at_a_time() -> None:
    found = redriven(*pages_of(2500))
    assert found.chunks == [1000, 1000, 500]
    assert found.result.revived == 2500
    assert list(found.result.rows) == list(range(1, 2501))
    assert found.pauses == []


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


def test_a_rate_below_one_a_second_is_one_at_a_time() -> None:
    found = redriven(*pages_of(3), rate=0.5)
    assert found.chunks == [1, 1, 1]
    assert found.pauses == [2.0, 2.0]


def test_a_limit_ends_the_walk() -> None:
    found = redriven(*pages_of(5000), limit=1200)
    assert found.chunks == [1000, 200]
    assert len([one for one in found.sent if isinstance(one, Peek)]) == 2


def test_progress_is_told_of_those_that_are_done() -> None:
    told: list[int] = []
    redriven(*pages_of(2500), progress=told.append)
    assert told == [1000, 2000, 2500]


def test_those_that_others_took_are_not_counted() -> None:
    plan = dead.discard(make_calls(), {"all": True})
    found = Followed(plan, MIXED, missing=(0, 3))
    assert found.sent[1] == Discard(table="t", rows=[10, 11, 12, 13])
    assert (found.result.matched, found.result.discarded) == (4, 2)


def test_those_that_were_dropped_are_told_apart_from_the_revived() -> None:
    found = Followed(dead.redrive(make_calls(), {}), MIXED, missing=(0,), dropped=(1, 3))
    assert (found.result.matched, found.result.revived, found.result.dropped) == (4, 1, 2)
    wrong: list[Any] = [{"dropped": (4,)}, {"missing": (0, 1, 2), "dropped": (1, 3)}]
    for answer in wrong:
        with pytest.raises(RemoteProtocolError, match="of 4 rows"):
            Followed(dead.redrive(make_calls(), {}), MIXED, **answer)


# -- rows -----------------------------------------------------------------------------------------


def test_rows_are_not_searched() -> None:
    found = redriven(rows=range(5, 1505), rate=600)
    assert {type(command) for command in found.sent} == {Revive}
    assert (found.chunks, found.pauses) == ([600, 600, 300], [1.0, 1.0])
    assert list(found.result.rows) == list(range(5, 1505))
    gone = Followed(dead.discard(make_calls(), {"rows": [7, 7, 5]}), missing=(1,))
    assert gone.sent == [Discard(table="t", rows=[7, 5])]
    assert (gone.result.matched, gone.result.discarded) == (2, 1)


def test_no_rows_are_none_and_not_all() -> None:
    for plan in (
        dead.redrive(make_calls(), {"rows": []}),
        dead.discard(make_calls(), {"rows": []}),
    ):
        found = Followed(plan)
        assert (found.sent, found.result.matched) == ([], 0)


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
    "options",
    [{"key": "y"}, {"key_prefix": "y"}, {"domain": ""}, {"reason": "e"}, {"limit": 1}],
    ids=str,
)
def test_a_filter_is_enough_to_discard(options: Any) -> None:
    found = Followed(dead.discard(make_calls(), options), MIXED)
    assert 0 < found.result.discarded < 4


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


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="dead has no rows"):
        dead.dead(make_calls(), {"rows": [5]})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="redrive has no prefix"):
        redriven(prefix="a")
    unknown: Any = {"delay": 5}
    with pytest.raises(TypeError, match="discard has no delay"):
        Followed(dead.discard(make_calls(), unknown))
