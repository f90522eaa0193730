"""Domains: how they are taken from keys, and what a table with fairness knows of each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import jobs, limits
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
@pytest.mark.parametrize(
    ("key", "domain"),
    [
        (b"http://example.com/", b"example.com"),
        (b"http://example.com", b"example.com"),
        (b"https://www.Example.COM/Path?q#f", b"www.example.com"),
        (b"http://example.com:8080/a", b"example.com"),
        (b"http://user:secret@example.com/a", b"example.com"),
        (b"http://example.com?next=http://other.example/", b"example.com"),
        (b"http://example.com#http://other.example/", b"example.com"),
        (b"snap+v1.0://a-b.example/x", b"a-b.example"),
        (b"resize http://example.com/a", b"example.com"),
        (b"resize:http://example.com/a", b"example.com"),
        (b"http://[2001:db8::1]:80/a", b"[2001:db8::1]"),
        (b"http://192.0.2.7/a", b"192.0.2.7"),
        (b"http:///nothing", b""),
        (b"file:///etc/passwd", b""),
        (b"mailto:somebody@example.com", b""),
        (b"//example.com/a", b""),
        (b"example.com/a", b""),
        (b"42", b""),
        (b"\xff\0\xfe", b""),
        (b"", b""),
        (b"http://" + b"x" * 300 + b"/", b"x" * limits.DOMAIN_BYTES_MAX),
    ],
)
def test_the_host_of_the_first_uri_is_the_domain(key: bytes, domain: bytes) -> None:
    assert jobs.domain_of(key) == domain


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


def test_a_domain_of_255_bytes_of_any_kind_is_taken(world: JobWorld) -> None:
    domain = bytes(range(1, 256))
    world.push(New(b"a", domain=domain))
    assert [one.domain for one in world.next(domain=domain)] == [domain]


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


@pytest.mark.req("FJ-10")
def test_in_a_domain_a_job_that_is_not_due_is_passed_over(world: JobWorld) -> None:
    world.push(
        New(b"1", priority=1, process_at_us=NOW_US + 10 * MINUTE, domain=b"example.com"),
        New(b"2", priority=2, domain=b"example.com"),
    )
    assert world.keys(10, domain=b"example.com") == [b"2"]


@pytest.mark.req("SJ-09")
def test_in_a_domain_slow_jobs_wait_for_the_others(world: JobWorld) -> None:
    world.push(New(b"slow", priority=200, domain=b"x"), New(b"fast", domain=b"x"))
    assert world.keys(10, domain=b"x") == [b"fast"]
    assert world.keys(10, domain=b"x") == [b"slow"]


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


@pytest.mark.req("FJ-12")
def test_when_the_last_job_has_gone_there_is_no_next_moment(world: JobWorld) -> None:
    world.push(New(b"a", process_at_us=NOW_US + 10 * SECOND, domain=b"x"))
    world.take()
    world.cancel(b"a")
    assert world.take().next_at_us == 0
    assert world.count()["next_at_us"] == 0


@pytest.mark.req("FJ-12")
def test_the_next_moment_after_some_are_taken_is_that_of_the_rest(world: JobWorld) -> None:
    world.push(
        New(b"now", domain=b"x"),
        New(b"later", process_at_us=NOW_US + 7 * SECOND, domain=b"x"),
        New(b"latest", process_at_us=NOW_US + 9 * SECOND, domain=b"y"),
    )
    assert world.keys(10) == [b"now"]
    assert world.count()["next_at_us"] == NOW_US + 7 * SECOND
    assert world.take().next_at_us == NOW_US + 7 * SECOND
    world.wait(7)
    assert world.keys(10) == [b"later"]
    assert world.take().next_at_us == NOW_US + 9 * SECOND


def test_counts_are_those_of_the_whole_table(world: JobWorld) -> None:
    world.push(New(b"a", domain=b"x"), New(b"b", domain=b"y"))
    found = world.count(domain=b"x")
    assert (found["waiting"], found["taken"], found["dead"]) == (2, 0, 0)


def test_a_page_may_be_of_one_domain(world: JobWorld) -> None:
    world.push(*[New(b"%d" % at, domain=b"xyz"[at % 3 : at % 3 + 1]) for at in range(9)])
    assert [one.key for one in world.peek(domain=b"y")] == [b"1", b"4", b"7"]
    assert sorted(one.key for one in world.peek()) == [b"%d" % at for at in range(9)]
