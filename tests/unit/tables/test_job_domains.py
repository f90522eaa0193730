"""Domains: how they are taken from keys, and what a table with fairness knows of each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord.jobs import Fairness
from tests.unit.tables.job_world import HOUR, MINUTE, SECOND, JobWorld, New
from tests.unit.tables.world import NOW_US


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld(fairness=Fairness.DOMAIN)
    yield world
    world.check()


# -- the domain of a key --------------------------------------------------------------------------


@pytest.mark.req("FJ-07")
def test_jobs_are_asked_for_by_the_domain_of_their_keys(world: JobWorld) -> None:
    world.push(b"http://a.example/1", b"http://b.example/1", b"http://A.example/2", b"42")
    assert world.keys(10, domain=b"a.example") == [b"http://a.example/1", b"http://A.example/2"]
    assert world.keys(10, domain=b"b.example") == [b"http://b.example/1"]
    assert world.keys(10, domain=b"c.example") == []
    assert world.keys(10) == [b"42"]


@pytest.mark.req("FJ-07")
def test_a_domain_that_is_given_stands_over_that_of_the_key(world: JobWorld) -> None:
    world.push(New(b"http://a.example/1", domain=b"tenant 7"), New(b"k", domain=b"tenant 7"))
    assert world.keys(10, domain=b"a.example") == []
    taken = world.next(10, domain=b"tenant 7")
    assert [(one.key, one.domain) for one in taken] == [
        (b"http://a.example/1", b"tenant 7"),
        (b"k", b"tenant 7"),
    ]


def test_a_push_moves_its_job_to_the_new_domain(world: JobWorld) -> None:
    world.push(New(b"a", domain=b"old"))
    world.push(New(b"a", domain=b"new"))
    assert world.keys(10, domain=b"old") == []
    assert world.keys(10, domain=b"new") == [b"a"]


# -- the order inside a domain --------------------------------------------------------------------


@pytest.mark.req("FJ-09")
def test_a_domain_has_the_order_of_priority_moment_and_row(world: JobWorld) -> None:
    rows = [
        New(b"e", priority=2, domain=b"x"),
        New(b"c", priority=1, process_at_us=NOW_US + SECOND, domain=b"x"),
        New(b"a", priority=0, process_at_us=NOW_US + 2 * SECOND, domain=b"x"),
        New(b"b", priority=1, domain=b"x"),
        New(b"d", priority=1, process_at_us=NOW_US + SECOND, domain=b"x"),
        New(b"other", domain=b"y"),
    ]
    world.push(*rows)
    world.wait(5)
    assert world.keys(10, domain=b"x") == [b"a", b"b", b"c", b"d", b"e"]


# -- when the next one is due ---------------------------------------------------------------------


@pytest.mark.req("FJ-12")
def test_each_domain_has_a_next_moment_of_its_own(world: JobWorld) -> None:
    world.push(
        New(b"a", process_at_us=NOW_US + 10 * SECOND, domain=b"x"),
        New(b"b", process_at_us=NOW_US + 20 * SECOND, domain=b"y"),
        New(b"c", process_at_us=NOW_US + 5 * SECOND, priority=250, domain=b"y"),
    )
    for domain, seconds in ((b"x", 10), (b"y", 5), (b"", 5)):
        assert world.take(domain=domain).next_at_us == NOW_US + seconds * SECOND
        assert world.count(domain=domain)["next_at_us"] == NOW_US + seconds * SECOND
    assert world.take(domain=b"z").next_at_us == 0
    assert world.count(domain=b"z")["next_at_us"] == 0
    assert world.totals() == (3, 0, 0)


@pytest.mark.req("FJ-12")
@pytest.mark.parametrize("how", ["cancelled", "buried", "rescheduled", "moved"])
@pytest.mark.parametrize("domain", [b"x", b""])
def test_the_next_moment_is_exact_also_when_its_job_has_gone(
    world: JobWorld, how: str, domain: bytes
) -> None:
    """A worker that was told a moment too early would wake up for nothing."""
    world.push(
        New(b"first", process_at_us=NOW_US + 10 * SECOND, domain=b"x"),
        New(b"second", process_at_us=NOW_US + 20 * SECOND, domain=b"x"),
    )
    assert world.take(domain=domain).next_at_us == NOW_US + 10 * SECOND
    if how == "cancelled":
        world.cancel(b"first")
    elif how == "buried":
        world.bury(b"first")
    elif how == "rescheduled":
        world.reschedule(b"first", process_at_us=NOW_US + HOUR)
    else:
        world.push(New(b"first", process_at_us=NOW_US + 30 * MINUTE, domain=b"y"))
    assert world.take(domain=domain).next_at_us == NOW_US + 20 * SECOND
    assert world.count(domain=domain)["next_at_us"] == NOW_US + 20 * SECOND


def test_a_page_may_be_of_one_domain(world: JobWorld) -> None:
    world.push(*[New(b"%d" % at, domain=b"xyz"[at % 3 : at % 3 + 1]) for at in range(9)])
    assert [one.key for one in world.peek(domain=b"y")] == [b"1", b"4", b"7"]
    assert sorted(one.key for one in world.peek()) == [b"%d" % at for at in range(9)]
