"""PUSH: what a job is, how its key is found again, and that a batch is all or nothing."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fjord import commands, jobs
from fjord.columns import Strings
from fjord.commands import CreateTable
from fjord.errors import Code
from fjord.jobs import Priority, State
from fjord.kinds import Kind
from fjord.tables.jobs import layout
from fjord.tables.state import Tree
from tests.unit.tables.job_world import HOUR, SECOND, TABLE, Got, JobWorld, New
from tests.unit.tables.world import NOW_US, code_of

TYPES = {
    0: b"",
    1: b"\0\xff",
    2: "text \u00e9".encode(),
    3: (-(2**63)).to_bytes(8, "little", signed=True),
    4: struct.pack("<d", 2.5),
    5: b"\1",
}


@pytest.fixture
def world() -> Iterator[JobWorld]:
    world = JobWorld()
    yield world
    world.check()


# -- what a job is --------------------------------------------------------------------------------


@pytest.mark.req("SJ-01", "FJ-08")
def test_a_job_has_all_columns_and_those_not_given_have_their_usual_values(world: JobWorld) -> None:
    world.push(New(b"key", b"value"))
    assert world.next() == [
        Got(
            key=b"key",
            value=b"value",
            xid=3,
            row=2,
            priority=Priority.DEFAULT,
            process_at_us=NOW_US,
            inserted_us=NOW_US,
            updated_us=NOW_US,
            expires_at_us=0,
            timeouts=0,
            type=1,
            domain=b"",
        )
    ]


@pytest.mark.req("SJ-17")
@pytest.mark.parametrize("type_", TYPES)
def test_a_value_of_each_type_comes_back_as_it_was(world: JobWorld, type_: int) -> None:
    world.push(New(b"key", TYPES[type_], type=type_))
    (got,) = world.next()
    assert (got.type, got.value) == (type_, TYPES[type_])


# -- dates ----------------------------------------------------------------------------------------


@pytest.mark.req("SJ-10")
@pytest.mark.parametrize("date_us", [1, NOW_US - HOUR, NOW_US - SECOND])
def test_a_process_date_is_never_before_the_insertion(world: JobWorld, date_us: int) -> None:
    world.push_one(b"a", process_at_us=date_us, stamp_us=NOW_US - SECOND)
    assert world.waiting(b"a").process_at_us == NOW_US - SECOND


@pytest.mark.req("SJ-10")
def test_a_client_whose_clock_is_ahead_does_not_delay_its_jobs(world: JobWorld) -> None:
    """Its date still counts for which push is the last one, but no insertion is to come."""
    world.push_one(b"a", stamp_us=NOW_US + 30 * SECOND)
    found = world.waiting(b"a")
    assert (found.inserted_us, found.process_at_us) == (NOW_US, NOW_US)
    assert found.updated_us == NOW_US + 30 * SECOND
    world.push_one(b"a", value=b"older", stamp_us=NOW_US + 29 * SECOND)
    assert world.waiting(b"a").value == b""


# -- keys -----------------------------------------------------------------------------------------


@pytest.mark.req("FJ-04")
def test_one_job_waits_for_a_resource_however_often_it_is_pushed(world: JobWorld) -> None:
    for number in range(20):
        world.push_one(b"http://example.com/row", value=b"%d" % number)
    assert world.totals() == (1, 0, 0)
    assert [one.value for one in world.next(10)] == [b"19"]
    assert world.next(10) == []


@pytest.mark.req("FJ-14")
def test_two_jobs_on_one_resource_are_two_keys(world: JobWorld) -> None:
    world.push(b"resize http://example.com/a", b"index http://example.com/a")
    world.push(b"resize http://example.com/a")
    assert world.totals() == (2, 0, 0)
    assert world.find(b"http://example.com/a") == []


@pytest.mark.req("FJ-15")
def test_keys_with_a_long_prefix_in_common_are_told_apart(world: JobWorld) -> None:
    prefix = b"http://example.com/" + b"x" * 1000
    keys = [prefix + b"%03d" % number for number in range(100)]
    world.push(*keys)
    world.push(*keys)
    assert world.totals() == (100, 0, 0)
    assert [one.key for one in world.find(*keys)] == keys
    assert world.cancel(keys[50]) == []
    assert world.find(keys[50]) == []
    assert world.totals() == (99, 0, 0)


@pytest.mark.req("SJ-26")
def test_keys_of_one_hash_are_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A murmur hash can be made to collide; then the probe tells the keys apart."""
    world = JobWorld()
    monkeypatch.setattr(layout, "digest", lambda key: b"the same 16bytes")
    keys = [b"a", b"b", b"c", b"d"]
    world.push(*keys)
    world.push(New(b"b", b"again", priority=1), New(b"c", b"again", priority=2))
    assert world.totals() == (4, 0, 0)
    assert [one.value for one in world.find(*keys)] == [b"", b"again", b"again", b""]
    assert world.keys() == [b"b"]
    world.push(New(b"b", b"once more"))
    world.cancel(b"a")
    assert [one.key for one in world.find(*keys)] == [b"b", b"c", b"d"]
    world.push(b"a")
    assert sorted(one.key for one in world.peek()) == keys
    world.check()


@pytest.mark.req("SJ-26")
def test_too_many_keys_of_one_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = JobWorld()
    monkeypatch.setattr(layout, "digest", lambda key: b"the same 16bytes")
    for number in range(254):
        world.push(b"%d" % number)
    refused = 0
    while code_of(world.push(b"more %d" % refused)) is None:
        refused += 1
        assert refused < 10
    assert world.totals()[0] == 254 + refused
    assert world.waiting(b"17").key == b"17"
    world.check()


# -- a row stays where it is ----------------------------------------------------------------------


@pytest.mark.req("SJ-02")
def test_a_row_keeps_its_number_and_its_payload_through_everything(world: JobWorld) -> None:
    value = b"payload " * 1000
    world.push_one(b"a", value=value)
    row, size = world.waiting(b"a").row, len(world.journal)
    (taken,) = world.next()
    world.extend(taken)
    world.fail(taken)
    world.bury(b"a")
    world.revive(row)
    world.reschedule(b"a", priority=3)
    (again,) = world.next()
    assert (again.row, again.value) == (row, value)
    assert len(world.journal) - size < len(value)  # the payload was not written again
    world.done(again)
    assert sum(world.live.values()) == 0  # and its space may be used again


@pytest.mark.req("SJ-03", "SJ-22")
def test_the_index_of_order_holds_the_row_itself(world: JobWorld) -> None:
    """All that NEXT tells of a job is in one item, whose key is its order; but for the value."""
    world.create(jobs.Settings(fairness=jobs.Fairness.DOMAIN).encode())
    rows = [
        New(b"k%d" % at, b"v", priority=9 - at, expires_at_us=NOW_US + HOUR, domain=b"x")
        for at in range(5)
    ]
    world.push(*rows)
    items = sorted(world.tree(Tree.JOBS_READY).items())
    told = [layout.decode_ready(key, rest) for key, rest in items]
    taken = world.next(5)
    names = ["key", "row", "priority", "process_at_us", "inserted_us", "expires_at_us", "domain"]
    assert [[getattr(one, name) for name in names] for one in told] == [
        [getattr(one, name) for name in names] for one in taken
    ]


# -- tables and batches ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_bad_row_refuses_the_whole_batch(world: JobWorld, bad: int) -> None:
    world.push(b"there")
    rows = [New(b"a"), New(b"there", b"new"), New(b"c")]
    rows[bad] = rows[bad]._replace(key=b"")
    assert code_of(world.push(*rows)) is Code.EMPTY_KEY
    assert [(one.key, one.value) for one in world.peek()] == [(b"there", b"")]


@pytest.mark.parametrize(
    "command",
    [
        commands.Find(table="jobs", keys=Strings.of([b"a"])),
        commands.Cancel(table="jobs", keys=Strings.of([b"a"])),
        commands.Reschedule(table="jobs", keys=Strings.of([b"a"]), priority=1),
        commands.Bury(table="jobs", keys=Strings.of([b"a"])),
    ],
    ids=lambda command: type(command).__name__,
)
def test_without_merging_nobody_is_told_that_a_key_does_not_wait(command: commands.Command) -> None:
    world = JobWorld(merge=False)
    world.push(b"a")
    reply = world.run(command)
    assert isinstance(reply, commands.Refusal)
    assert reply.code is Code.WRONG_KIND
    assert "merge off" in reply.text
    assert world.totals() == (1, 0, 0)


# -- settings of jobs tables ----------------------------------------------------------------------


def check_refused(command: object, code: Code, world: JobWorld | None = None) -> None:
    """Asserts that a command is refused with this code, and that nothing comes of it."""
    world = world or JobWorld()
    before, seq = world.trees(), world.next_seq
    assert code_of(world.run(command)) is code
    assert (world.trees(), world.next_seq) == (before, seq)


def test_settings_that_are_too_large_are_refused() -> None:
    command = CreateTable(name="new", kind=Kind.JOBS.number, settings=b" " * 33_000)
    check_refused(command, Code.TOO_LARGE)


def test_a_table_with_other_settings_is_refused_and_with_the_same_is_no_error() -> None:
    world = JobWorld(merge=False)
    check_refused(CreateTable(name=TABLE, kind=Kind.JOBS.number), Code.EXISTS, world)
    assert code_of(world.create(jobs.Settings(merge=False).encode())) is None


# -- all jobs tables are one tree of the index ----------------------------------------------------


@pytest.mark.req("SJ-24", "SJ-22")
def test_the_jobs_of_all_tables_stand_in_one_order() -> None:
    world = JobWorld()
    for table in ("first", "second"):
        world.push(New(b"late", priority=20), New(b"soon", priority=10), table=table)
    ready = world.tree(Tree.JOBS_READY)
    keys = sorted(ready)
    names = {table.prefix: name for name, table in world.tables.items()}
    rows = [(names[key[:4]], layout.decode_ready(key, ready[key])) for key in keys]
    assert [(name, row.priority, row.key) for name, row in rows] == [
        ("first", 10, b"soon"),
        ("first", 20, b"late"),
        ("second", 10, b"soon"),
        ("second", 20, b"late"),
    ]


@pytest.mark.req("SJ-23")
def test_only_jobs_that_wait_stand_in_the_order_of_handing_out() -> None:
    """Their state is no part of the key: taken and dead jobs have trees of their own."""
    world = JobWorld()
    world.push(b"a", b"b", b"c")
    first, _ = world.next(2)
    world.run(commands.Fail(table="jobs", xids=[first.xid], buries=True))
    sizes = [len(world.tree(tree)) for tree in (Tree.JOBS_READY, Tree.JOBS_TAKEN, Tree.JOBS_DEAD)]
    assert sizes == [1, 1, 1]
    (key,) = world.tree(Tree.JOBS_READY)
    assert key[4:] == layout.PLACE.pack(0, 100, world.now_us, world.peek()[0].row)


def test_a_revival_tells_who_came_too_late() -> None:
    world = JobWorld()
    world.push(b"a", b"b", New(b"c", expires_at_us=world.now_us + 1_000_000))
    keys = Strings.of([b"a", b"b", b"c"])
    world.run(commands.Bury(table="jobs", keys=keys))
    rows = [job.row for job in world.peek(State.DEAD)]
    world.push(b"a")
    world.jump(5)
    reply = world.run(commands.Revive(table="jobs", rows=[*rows, rows[1], 10**9]))
    assert isinstance(reply, commands.Acted)
    assert list(reply.dropped) == [0, 2]
    assert list(reply.missing) == [3, 4]
    assert world.totals() == (2, 0, 0)


# -- a push on a key that waits already -----------------------------------------------------------

pytestmark = pytest.mark.req("SJ-16")

# -- a key that waits already ---------------------------------------------------------------------

KEY = b"http://example.com/page"
NEVER = 0
SECOND_PUSH = 10


# Every number below is in seconds after the first push.  The first push has the priority 100; its
# job was taken once and failed, so that it has a timeout and waits for second 600.  The second push
# comes at second 10.  What must come of each field stands in the tables, written out by hand.
class Expiry(NamedTuple):
    name: str
    old: int
    new: int
    merged: int


class Order(NamedTuple):
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
    Order("priority smaller", new=50, merged=50),
    Order("priority larger", new=150, merged=100),
    Order("priority equal", new=100, merged=100),
    Order("priority smallest", new=0, merged=0),
    Order("priority slow", new=255, merged=100),
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


Case = tuple[Expiry, Order, Date]
CASES = [
    pytest.param(case, id=", ".join(one.name for one in case))
    for case in itertools.product(EXPIRIES, PRIORITIES, DATES)
]


def moment_at(seconds: int) -> int:
    """Returns a moment of wall time; never stays never."""
    return NOW_US + seconds * SECOND if seconds else NEVER


def first_push(expiry: int) -> New:
    return New(KEY, b"old", expires_at_us=moment_at(expiry), domain=b"old.example")


def second_push(case: Case, *, stamp: int = SECOND_PUSH) -> New:
    expiry, priority, date = case
    return New(
        KEY,
        b"new",
        priority=priority.new,
        process_at_us=moment_at(date.new),
        expires_at_us=moment_at(expiry.new),
        stamp_us=NOW_US + stamp * SECOND,
        domain=b"new.example",
        type=2,
    )


def world_of(case: Case) -> JobWorld:
    """Returns a world in which the first job is taken."""
    expiry, _, date = case
    world = JobWorld(debounce_us=date.debounce * SECOND)
    assert code_of(world.push(first_push(expiry.old))) is None
    world.next(lease_us=24 * HOUR)
    return world


def give_back(world: JobWorld) -> Got:
    """The first job fails, and waits for second 600; it is now second 10."""
    (taken,) = world.peek(State.TAKEN)
    assert world.fail(taken, delay_us=600 * SECOND) == []
    world.wait(SECOND_PUSH)
    return world.waiting(KEY)


def unmerged(case: Case, row: int) -> Got:
    """Returns the job that the second push makes where it is merged with nothing."""
    expiry, priority, date = case
    return Got(
        key=KEY,
        value=b"new",
        xid=0,
        row=row,
        priority=priority.new,
        process_at_us=moment_at(date.new),
        inserted_us=moment_at(SECOND_PUSH),
        updated_us=moment_at(SECOND_PUSH),
        expires_at_us=moment_at(expiry.new),
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
    assert code_of(world.push(second_push(case))) is None
    expiry, priority, date = case
    expected = unmerged(case, old.row)._replace(
        priority=priority.merged,
        process_at_us=moment_at(date.merged),
        inserted_us=NOW_US,
        expires_at_us=moment_at(expiry.merged),
    )
    assert world.peek() == [expected] == world.find(KEY)
    assert world.totals() == (1, 0, 0)
    world.check()


@pytest.mark.req("SJ-05")
@pytest.mark.parametrize("case", CASES)
def test_an_older_client_date_succeeds_and_changes_nothing(case: Case) -> None:
    world = world_of(case)
    old = give_back(world)
    assert code_of(world.push(second_push(case, stamp=-1))) is None
    assert world.peek() == [old]
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
    assert code_of(world.push(second_push(case, stamp=stamp))) is None
    (found,) = world.peek()
    expected = unmerged(case, row)
    if stamp < 0:
        expected = expected._replace(inserted_us=moment_at(-1), updated_us=moment_at(-1))
    assert found == expected
    assert world.peek(State.TAKEN) == [taken]
    assert taken.value == b"old"
    world.check()


# -- several pushes of a key in one batch ---------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_pushes_in_one_batch_fold_in_order(case: Case) -> None:
    expiry, priority, date = case
    world = JobWorld(debounce_us=date.debounce * SECOND)
    world.jump(SECOND_PUSH)
    old = first_push(expiry.old)._replace(stamp_us=NOW_US, process_at_us=moment_at(600))
    other = New(b"other")
    assert code_of(world.push(old, other, second_push(case))) is None
    found = world.waiting(KEY)
    assert found._replace(row=0) == unmerged(case, 0)._replace(
        priority=priority.merged,
        process_at_us=moment_at(date.merged),
        inserted_us=NOW_US,
        expires_at_us=moment_at(expiry.merged),
    )
    assert world.totals() == (2, 0, 0)
    world.check()


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


@pytest.mark.req("FJ-15", "SJ-26")
def test_the_index_of_keys_has_a_hash_of_16_bytes(world: JobWorld) -> None:
    world.push(b"k" * 1024, b"x")
    sizes = {len(key) for key in world.tree(Tree.JOBS_KEYS)}
    assert sizes == {4 + 16 + 1}  # table, hash, probe


@pytest.mark.req("SJ-02")
def test_a_push_on_a_waiting_job_replaces_its_payload_as_a_whole(world: JobWorld) -> None:
    world.push_one(b"a", value=b"a long value")
    row = world.waiting(b"a").row
    before = world.journal
    world.push_one(b"a", value=b"short")
    assert world.journal.startswith(before)
    assert (world.waiting(b"a").row, world.waiting(b"a").value) == (row, b"short")
