"""Fairness by domain: each domain that has something ready gets its turn (decision 18)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from fjord.jobs import Fairness
from tests.unit.tables.job_world import HOUR, MINUTE, SECOND, JobWorld, New
from tests.unit.tables.world import NOW_US

DOMAINS = [b"a", b"b", b"c", b"d", b"e"]


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld(fairness=Fairness.DOMAIN)
    yield world
    world.check()


def fill(world: JobWorld, jobs: dict[bytes, int]) -> None:
    """Pushes so many jobs of each domain, one domain after the other."""
    for domain, count in jobs.items():
        world.push(*[New(b"%s%d" % (domain, at), domain=domain) for at in range(count)])


def rounds(served: Sequence[bytes], domains: int) -> list[set[bytes]]:
    return [set(served[at : at + domains]) for at in range(0, len(served), domains)]


def domains_of(world: JobWorld, count: int, times: int) -> list[bytes]:
    """Takes so many jobs so many times; returns the domains in the order they were served."""
    return [one.domain for _ in range(times) for one in world.next(count)]


@pytest.mark.req("FJ-09")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 10])
def test_every_domain_is_served_once_in_each_round(
    world: JobWorld, number: int, count: int
) -> None:
    domains = DOMAINS[:number]
    fill(world, dict.fromkeys(domains, 20))
    served = domains_of(world, count, -(-20 * number // count))
    assert len(served) == 20 * number
    assert rounds(served, number) == [set(domains)] * 20


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
def test_a_flood_does_not_hold_up_a_single_job(world: JobWorld, count: int) -> None:
    """At most one job of the flood is served before it, whatever was served before."""
    fill(world, {b"flood": 1000})
    world.next(count)
    world.push(New(b"single", domain=b"z"))
    served = domains_of(world, count, 2)
    assert served.index(b"z") <= 1


def test_a_domain_that_is_not_due_has_no_turn(world: JobWorld) -> None:
    fill(world, {b"a": 4})
    world.push(New(b"later", process_at_us=NOW_US + SECOND, domain=b"b"))
    assert domains_of(world, 1, 2) == [b"a", b"a"]
    world.wait(1)
    assert sorted(domains_of(world, 1, 2)) == [b"a", b"b"]


# -- slow jobs ------------------------------------------------------------------------------------


@pytest.mark.req("SJ-09")
def test_slow_jobs_take_turns_among_themselves(world: JobWorld) -> None:
    for domain, at in itertools.product((b"a", b"b"), range(4)):
        world.push(New(b"%s%d" % (domain, at), priority=200 + at, domain=domain))
    assert rounds(domains_of(world, 1, 8), 2) == [{b"a", b"b"}] * 4


# -- what is derived in memory --------------------------------------------------------------------


def test_looking_changes_no_turns(world: JobWorld) -> None:
    world.push(New(b"a1", domain=b"a"), New(b"b1", domain=b"b"))
    (first,) = world.next()
    other = {b"a": b"b", b"b": b"a"}[first.domain]
    world.wait(1)
    world.push(New(first.key, domain=first.domain), New(b"c1", domain=b"c"))
    assert [one.domain for one in world.next()] == [other]
    world.count()
    world.peek()
    world.find(b"c1")
    assert [one.domain for one in world.next()] == [first.domain]


def test_looking_takes_no_turn_from_a_job_that_was_kicked(world: JobWorld) -> None:
    """It was due, and is due: only its date is another one."""
    world.push(New(b"a1", domain=b"a"), New(b"b1", domain=b"b"))
    (first,) = world.next()
    other = {b"a": b"b", b"b": b"a"}[first.domain]
    world.wait(1)
    world.push(New(first.key, domain=first.domain))
    assert world.reschedule(other + b"1", process_at_us=0) == []
    world.count()
    assert [one.domain for one in world.next()] == [other]


# -- the domain of a key --------------------------------------------------------------------------


@pytest.mark.req("FJ-07")
def test_a_domain_that_is_given_stands_over_that_of_the_key(world: JobWorld) -> None:
    world.push(New(b"http://a.example/1", domain=b"tenant 7"), New(b"k", domain=b"tenant 7"))
    assert world.keys(10, domain=b"a.example") == []
    taken = world.next(10, domain=b"tenant 7")
    assert [(one.key, one.domain) for one in taken] == [
        (b"http://a.example/1", b"tenant 7"),
        (b"k", b"tenant 7"),
    ]


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


@pytest.mark.req("FJ-07")
def test_jobs_are_asked_for_by_the_domain_of_their_keys(world: JobWorld) -> None:
    world.push(b"http://a.example/1", b"http://b.example/1", b"http://A.example/2", b"42")
    assert world.keys(10, domain=b"a.example") == [b"http://a.example/1", b"http://A.example/2"]
    assert world.keys(10, domain=b"b.example") == [b"http://b.example/1"]
    assert world.keys(10, domain=b"c.example") == []
    assert world.keys(10) == [b"42"]


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
