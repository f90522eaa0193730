"""PUSH: what a job is, how its key is found again, and that a batch is all or nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from fjord import commands, jobs
from fjord.columns import Strings
from fjord.commands import ListTables, TableList
from fjord.errors import Code
from fjord.jobs import Priority
from fjord.kinds import Kind
from fjord.tables.jobs import layout
from fjord.tables.state import Tree
from tests.unit.tables.job_world import HOUR, SECOND, Got, JobWorld, New
from tests.unit.tables.world import NOW_US, code_of, done

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


@pytest.mark.req("SJ-01")
def test_a_job_has_what_it_was_pushed_with(world: JobWorld) -> None:
    job = New(
        b"key",
        b"text",
        priority=7,
        process_at_us=NOW_US + SECOND,
        expires_at_us=NOW_US + HOUR,
        stamp_us=NOW_US - SECOND,
        domain=b"example.com",
        type=2,
    )
    world.push(job)
    world.wait(1)
    (got,) = world.next()
    assert (got.key, got.value, got.priority, got.type) == (b"key", b"text", 7, 2)
    assert (got.process_at_us, got.expires_at_us) == (NOW_US + SECOND, NOW_US + HOUR)
    assert (got.inserted_us, got.updated_us) == (NOW_US - SECOND, NOW_US - SECOND)
    assert got.domain == b"example.com"


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


def test_delays_are_counted_from_the_servers_clock(world: JobWorld) -> None:
    late = New(b"a", process_at_us=5 * SECOND, stamp_us=NOW_US - HOUR)
    world.push(late, New(b"b", process_at_us=0), relative=True)
    assert world.waiting(b"a").process_at_us == NOW_US + 5 * SECOND
    assert world.waiting(b"b").process_at_us == NOW_US


# -- keys -----------------------------------------------------------------------------------------


@pytest.mark.req("FJ-04")
def test_one_job_waits_for_a_resource_however_often_it_is_pushed(world: JobWorld) -> None:
    for number in range(20):
        world.push_one(b"http://example.com/row", value=b"%d" % number)
    assert world.totals() == (1, 0, 0)
    assert [one.value for one in world.next(10)] == [b"19"]
    assert world.next(10) == []


@pytest.mark.req("FJ-07")
def test_a_key_may_be_any_bytes(world: JobWorld) -> None:
    keys = [b"\0", b"\0\0", b"\xff" * 9, b" ", b"a\nb", bytes(range(256)), b"k" * 1024]
    world.push(*keys)
    assert {one.key for one in world.peek()} == set(keys)
    for key in keys:
        assert world.waiting(key).key == key


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


@pytest.mark.req("FJ-15", "SJ-26")
def test_the_index_of_keys_has_a_hash_of_16_bytes(world: JobWorld) -> None:
    world.push(b"k" * 1024, b"x")
    sizes = {len(key) for key in world.tree(Tree.JOBS_KEYS)}
    assert sizes == {4 + 16 + 1}  # table, hash, probe


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


def test_the_first_push_makes_the_table(world: JobWorld) -> None:
    assert world.push(b"a", b"b") == done(3)
    assert world.push(b"c") == done(4)
    reply = world.run(ListTables())
    assert isinstance(reply, TableList)
    assert (reply.names.rows(), list(reply.kinds)) == ([b"jobs"], [Kind.JOBS.number])
    assert reply.settings.rows() == [b""]


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
