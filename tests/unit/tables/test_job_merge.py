"""A push on a key that waits already: the rule of SJ-16 as a full table, and its edges.

Every number below is in seconds after the first push.  The first push has the priority 100; its
job was taken once and failed, so that it has a timeout and waits for second 600.  The second push
comes at second 10.  What must come of each field stands in the tables, written out by hand.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest

from fjord.jobs import State
from tests.unit.tables.job_world import HOUR, SECOND, Got, JobWorld, New
from tests.unit.tables.world import NOW_US, code_of

pytestmark = pytest.mark.req("SJ-16")

KEY = b"http://example.com/page"
NEVER = 0
SECOND_PUSH = 10


class Expiry(NamedTuple):
    name: str
    old: int
    new: int
    merged: int


class Priority(NamedTuple):
    name: str
    new: int
    merged: int


class Date(NamedTuple):
    name: str
    debounce: int
    new: int
    merged: int


EXPIRIES = [
    Expiry("expiry larger", old=20_000, new=30_000, merged=30_000),
    Expiry("expiry smaller", old=20_000, new=10_000, merged=20_000),
    Expiry("expiry equal", old=20_000, new=20_000, merged=20_000),
    Expiry("expiry becomes never", old=20_000, new=NEVER, merged=NEVER),
    Expiry("expiry stays never", old=NEVER, new=10_000, merged=NEVER),
    Expiry("never and never", old=NEVER, new=NEVER, merged=NEVER),
]
PRIORITIES = [
    Priority("priority smaller", new=50, merged=50),
    Priority("priority larger", new=150, merged=100),
    Priority("priority equal", new=100, merged=100),
    Priority("priority smallest", new=0, merged=0),
    Priority("priority slow", new=255, merged=100),
]
DATES = [
    Date("date later", debounce=3600, new=900, merged=900),
    Date("date earlier", debounce=3600, new=300, merged=600),
    Date("date equal", debounce=3600, new=600, merged=600),
    Date("date at the cap", debounce=3600, new=3600, merged=3600),
    Date("date beyond the cap", debounce=3600, new=7200, merged=3600),
    Date("date just beyond the cap", debounce=3600, new=3601, merged=3600),
    Date("old date at the cap", debounce=600, new=900, merged=600),
    Date("old date beyond the cap", debounce=300, new=900, merged=600),
    Date("no debounce", debounce=0, new=900, merged=600),
    Date("no debounce, earlier", debounce=0, new=300, merged=600),
]


Case = tuple[Expiry, Priority, Date]
CASES = [
    pytest.param(case, id=", ".join(one.name for one in case))
    for case in itertools.product(EXPIRIES, PRIORITIES, DATES)
]


def moment(seconds: int) -> int:
    """Returns a moment of wall time; never stays never."""
    return NOW_US + seconds * SECOND if seconds else NEVER


def first(expiry: int) -> New:
    return New(KEY, b"old", expires_at_us=moment(expiry), domain=b"old.example")


def second(case: Case, *, stamp: int = SECOND_PUSH) -> New:
    expiry, priority, date = case
    return New(
        KEY,
        b"new",
        priority=priority.new,
        process_at_us=moment(date.new),
        expires_at_us=moment(expiry.new),
        stamp_us=NOW_US + stamp * SECOND,
        domain=b"new.example",
        type=2,
    )


def world_of(case: Case) -> JobWorld:
    """Returns a world in which the first job is taken."""
    expiry, _, date = case
    world = JobWorld(debounce_us=date.debounce * SECOND)
    assert code_of(world.push(first(expiry.old))) is None
    world.next(lease_us=24 * HOUR)
    return world


def give_back(world: JobWorld) -> Got:
    """The first job fails, and waits for second 600; it is now second 10."""
    (taken,) = world.peek(State.TAKEN)
    assert world.fail(taken, delay_us=600 * SECOND) == []
    world.wait(SECOND_PUSH)
    return world.waiting(KEY)


def pushed(case: Case, row: int) -> Got:
    """Returns the job that the second push makes where it is merged with nothing."""
    expiry, priority, date = case
    return Got(
        key=KEY,
        value=b"new",
        xid=0,
        row=row,
        priority=priority.new,
        process_at_us=moment(date.new),
        inserted_us=moment(SECOND_PUSH),
        updated_us=moment(SECOND_PUSH),
        expires_at_us=moment(expiry.new),
        timeouts=0,
        type=2,
        domain=b"new.example",
    )


# -- the key waits --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_each_field_follows_its_rule(case: Case) -> None:
    world = world_of(case)
    old = give_back(world)
    assert old.timeouts == 1
    assert code_of(world.push(second(case))) is None
    expiry, priority, date = case
    expected = Got(
        key=KEY,
        value=b"new",
        xid=0,
        row=old.row,
        priority=priority.merged,
        process_at_us=moment(date.merged),
        inserted_us=NOW_US,
        updated_us=moment(SECOND_PUSH),
        expires_at_us=moment(expiry.merged),
        timeouts=0,
        type=2,
        domain=b"new.example",
    )
    assert world.peek() == [expected] == world.find(KEY)
    assert world.totals() == (1, 0, 0)
    world.check()


@pytest.mark.req("SJ-05")
@pytest.mark.parametrize("case", CASES)
def test_an_older_client_date_succeeds_and_changes_nothing(case: Case) -> None:
    world = world_of(case)
    old = give_back(world)
    assert code_of(world.push(second(case, stamp=-1))) is None
    assert world.peek() == [old]
    world.check()


@pytest.mark.parametrize("case", CASES)
def test_the_same_client_date_counts_as_newer(case: Case) -> None:
    world = world_of(case)
    give_back(world)
    assert code_of(world.push(second(case, stamp=0))) is None
    (found,) = world.peek()
    assert (found.value, found.inserted_us, found.updated_us) == (b"new", NOW_US, NOW_US)
    assert found.process_at_us == moment(case[2].merged)
    world.check()


# -- the key is taken, or has expired -------------------------------------------------------------


@pytest.mark.req("FJ-32")
@pytest.mark.parametrize("stamp", [SECOND_PUSH, -1], ids=["newer", "older"])
@pytest.mark.parametrize("case", CASES)
def test_a_key_that_is_taken_gets_a_new_job_beside_it(case: Case, stamp: int) -> None:
    world = world_of(case)
    world.wait(SECOND_PUSH)
    (taken,) = world.peek(State.TAKEN)
    row = world.next_seq
    assert code_of(world.push(second(case, stamp=stamp))) is None
    (found,) = world.peek()
    expected = pushed(case, row)
    if stamp < 0:
        expected = expected._replace(inserted_us=moment(-1), updated_us=moment(-1))
    assert found == expected
    assert world.peek(State.TAKEN) == [taken]
    assert taken.value == b"old"
    world.check()


@pytest.mark.req("SJ-06")
@pytest.mark.parametrize("stamp", [SECOND_PUSH, -1], ids=["newer", "older"])
@pytest.mark.parametrize("priority", PRIORITIES, ids=lambda one: one.name)
@pytest.mark.parametrize("new_expiry", [NEVER, 10_000])
def test_a_key_that_has_expired_is_as_if_it_were_not_there(
    priority: Priority, new_expiry: int, stamp: int
) -> None:
    world = JobWorld(debounce_us=0)
    world.push(New(KEY, b"old", priority=10, expires_at_us=moment(5)))
    world.jump(SECOND_PUSH)
    case = (Expiry("", 5, new_expiry, 0), priority, Date("", 0, 900, 0))
    row = world.next_seq + 1  # the old job is removed first
    assert code_of(world.push(second(case, stamp=stamp))) is None
    expected = pushed(case, row)
    if stamp < 0:
        expected = expected._replace(inserted_us=moment(-1), updated_us=moment(-1))
    assert world.peek() == [expected]
    assert world.totals() == (1, 0, 0)
    world.check()


# -- several pushes of a key in one batch ---------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_pushes_in_one_batch_fold_in_order(case: Case) -> None:
    expiry, priority, date = case
    world = JobWorld(debounce_us=date.debounce * SECOND)
    world.jump(SECOND_PUSH)
    old = first(expiry.old)._replace(stamp_us=NOW_US, process_at_us=moment(600))
    other = New(b"other")
    assert code_of(world.push(old, other, second(case))) is None
    found = world.waiting(KEY)
    assert found._replace(row=0) == pushed(case, 0)._replace(
        priority=priority.merged,
        process_at_us=moment(date.merged),
        inserted_us=NOW_US,
        expires_at_us=moment(expiry.merged),
    )
    assert world.totals() == (2, 0, 0)
    world.check()


def test_a_batch_in_which_the_first_push_is_the_late_one() -> None:
    """What was pushed first gave the insertion date; the newer client date gives the value."""
    world = JobWorld()
    older = New(KEY, b"older", stamp_us=NOW_US - 1, priority=1)
    newer = New(KEY, b"newer", stamp_us=NOW_US)
    world.push(older, newer)
    found = world.waiting(KEY)
    assert (found.value, found.priority) == (b"newer", 1)
    assert (found.inserted_us, found.updated_us) == (NOW_US - 1, NOW_US)


def test_a_batch_folds_onto_the_job_that_waits() -> None:
    world = JobWorld()
    world.push(New(KEY, b"1", priority=30))
    row = world.waiting(KEY).row
    world.push(New(KEY, b"2", priority=20), New(b"x"), New(KEY, b"3", priority=40))
    found = world.waiting(KEY)
    assert (found.row, found.value, found.priority) == (row, b"3", 20)
    assert world.totals() == (2, 0, 0)


def test_a_batch_of_nothing_but_late_pushes_writes_nothing() -> None:
    world = JobWorld()
    world.push(KEY, b"other")
    seq = world.next_seq
    late = [New(key, stamp_us=NOW_US - 1) for key in (KEY, b"other", KEY)]
    assert code_of(world.push(*late)) is None
    assert world.next_seq == seq


# -- more than two pushes -------------------------------------------------------------------------


@pytest.mark.req("SJ-27")
def test_pushing_again_and_again_postpones_up_to_the_cap() -> None:
    world = JobWorld(debounce_us=100 * SECOND)
    dates = []
    for _ in range(8):
        world.push(New(KEY, process_at_us=world.now_us + 30 * SECOND))
        dates.append((world.waiting(KEY).process_at_us - NOW_US) // SECOND)
        world.wait(20)
    assert dates == [30, 50, 70, 90, 100, 100, 100, 100]


def test_updated_is_the_newest_date_and_not_the_last() -> None:
    """A push may be newer than the insertion and still too late (decision 20)."""
    world = JobWorld()
    world.push(New(KEY, b"at 0", stamp_us=NOW_US))
    world.push(New(KEY, b"at 20", stamp_us=NOW_US + 20 * SECOND))
    world.push(New(KEY, b"at 10", stamp_us=NOW_US + 10 * SECOND))
    found = world.waiting(KEY)
    assert found.value == b"at 20"
    assert (found.inserted_us, found.updated_us) == (NOW_US, NOW_US + 20 * SECOND)
