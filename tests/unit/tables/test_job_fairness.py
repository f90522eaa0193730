"""Fairness by domain: each domain that has something ready gets its turn (decision 18)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from fjord.jobs import Fairness
from tests.unit.tables.job_world import SECOND, JobWorld, New
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


def test_inside_a_domain_the_order_is_that_of_the_seed(world: JobWorld) -> None:
    for at, priority in enumerate([50, 10, 30, 20, 40]):
        for domain in DOMAINS[:3]:
            world.push(New(b"%s%d" % (domain, at), priority=priority, domain=domain))
    taken = world.next(15)
    for domain in DOMAINS[:3]:
        mine = [one.priority for one in taken if one.domain == domain]
        assert mine == [10, 20, 30, 40, 50]


def test_a_domain_that_is_not_due_has_no_turn(world: JobWorld) -> None:
    fill(world, {b"a": 4})
    world.push(New(b"later", process_at_us=NOW_US + SECOND, domain=b"b"))
    assert domains_of(world, 1, 2) == [b"a", b"a"]
    world.wait(1)
    assert sorted(domains_of(world, 1, 2)) == [b"a", b"b"]


def test_a_domain_that_comes_back_has_its_turn_again(world: JobWorld) -> None:
    fill(world, {b"a": 50, b"b": 1})
    domains_of(world, 1, 4)
    fill(world, {b"b": 3})
    assert Counter(domains_of(world, 1, 4))[b"b"] == 2


# -- slow jobs ------------------------------------------------------------------------------------


@pytest.mark.req("SJ-09")
def test_slow_jobs_take_turns_among_themselves(world: JobWorld) -> None:
    for domain, at in itertools.product((b"a", b"b"), range(4)):
        world.push(New(b"%s%d" % (domain, at), priority=200 + at, domain=domain))
    assert rounds(domains_of(world, 1, 8), 2) == [{b"a", b"b"}] * 4


# -- what is derived in memory --------------------------------------------------------------------


def test_a_world_that_was_replayed_is_fair_too(world: JobWorld) -> None:
    fill(world, dict.fromkeys(DOMAINS, 4))
    domains_of(world, 3, 1)
    again = world.replayed()
    again.now_us = world.now_us
    served = domains_of(again, 1, 17)
    assert Counter(served) == Counter({**dict.fromkeys(DOMAINS, 3)}) + Counter(
        {one: 1 for one in DOMAINS if served.count(one) == 4}
    )
    assert set(served[:5]) == set(DOMAINS)


def test_jobs_that_are_given_back_or_revived_have_their_turns(world: JobWorld) -> None:
    fill(world, {b"a": 3, b"b": 3})
    taken = world.next(6)
    assert world.next() == []
    world.fail(*taken[:2])
    assert {one.domain for one in world.next(2)} == {b"a", b"b"}
    world.fail(*taken[2:4], buries=True)
    world.revive(*[one.row for one in taken[2:4]])
    assert {one.domain for one in world.next(2)} == {b"a", b"b"}


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
