"""GET and TOUCH: what is known of values, what lets them live longer, and who works on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Entries, Get, Refusal, Touch
from fjord.errors import Code, RefusedError
from fjord.ops import Opcode
from fjord.tables.kv import read
from fjord.tables.kv.lookup import Lookup
from fjord.tables.state import Tree
from tests.unit.tables.world import (
    LEASE_US,
    MISSING,
    NOW_US,
    Entry,
    World,
    code_of,
    decoded,
    entry_of,
)

DAY_US = 86_400_000_000
BOTH = pytest.mark.parametrize("persist", [True, False], ids=["stored", "in-memory"])


@pytest.fixture
def world() -> World:
    made = World()
    made.set({b"there": 1})
    return made


# -- GET ------------------------------------------------------------------------------------------


@pytest.mark.req("FJ-30")
@BOTH
def test_an_answer_says_all_that_is_known(world: World, persist: bool) -> None:
    world.set({b"a": 1}, at=0, persist=persist)
    world.set({b"a": 2}, at=3, expires=100, ttl=50, persist=persist)
    world.now_us += 5
    world.touch(b"a")
    expected = Entry(
        type=3,
        value=(2).to_bytes(8, "little"),
        timestamp_us=NOW_US + 3,
        expires_at_us=NOW_US + 100,
        state=0,
        created_us=NOW_US,
        accessed_us=NOW_US + 5,
        ttl_us=50,
    )
    assert world.entry(b"a") == expected


@pytest.mark.req("FJ-45")
@BOTH
def test_a_probe_says_all_but_the_data(world: World, persist: bool) -> None:
    world.set({b"a": "text"}, expires=10, persist=persist)
    keys = Strings.of([b"a", b"none"])
    whole = world.run(Get(table="t", keys=keys))
    reads = world.payload_reads
    probe = world.run(Get(table="t", keys=keys, with_data=False))
    assert world.payload_reads == reads
    assert isinstance(whole, Entries)
    assert probe == replace(whole, values=Strings.of([b"", b""]))


@pytest.mark.req("FJ-45")
def test_a_probe_is_never_too_large(world: World) -> None:
    world.set({b"a": bytes(limits.VALUE_BYTES_MAX)})
    count = limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX + 1
    keys = Strings.of([b"a"] * count)
    assert code_of(world.run(Get(table="t", keys=keys))) is Code.TOO_LARGE
    assert code_of(world.run(Get(table="t", keys=keys, with_data=False))) is None
    assert code_of(world.run(Touch(table="t", keys=keys))) is Code.TOO_LARGE


# -- TOUCH: expiry --------------------------------------------------------------------------------


@pytest.mark.req("FJ-30", "FJ-47")
@BOTH
def test_a_touch_lets_a_value_live_by_its_ttl(world: World, persist: bool) -> None:
    world.set({b"a": 1}, ttl=100, persist=persist)
    world.now_us += 60
    assert world.touch(b"a", expires=0) == [1]
    assert world.entry(b"a").expires_at_us == NOW_US + 160
    world.check()


@pytest.mark.req("FJ-30", "FJ-47")
@BOTH
def test_a_touch_never_shortens_a_life(world: World, persist: bool) -> None:
    world.set({b"a": 1}, ttl=100, expires=500, persist=persist)
    world.touch(b"a", expires=0)
    world.touch(b"a", expires=200)
    assert world.entry(b"a").expires_at_us == NOW_US + 500


@pytest.mark.req("FJ-33", "FJ-47")
def test_a_touch_moves_the_value_in_the_schedule(world: World) -> None:
    world.set({b"a": 1}, expires=100)
    world.touch(b"a", expires=300)
    assert [op.opcode for op in world.ops()[-2:]] == [Opcode.KV_UNSCHEDULE, Opcode.KV_MARK]
    world.check()
    world.touch(b"a", expires=200)  # no later than it is
    assert world.ops()[-1].opcode is Opcode.KV_MARK
    assert world.ops()[-2].opcode is Opcode.KV_MARK
    world.check()


def test_a_key_that_is_touched_twice_in_a_batch_is_marked_once(world: World) -> None:
    world.set({b"a": 1}, ttl=100)
    world.now_us += 5
    assert world.touch(b"a", b"a", expires=0) == [1, 1]
    unscheduled, marked = world.ops()[-2:]
    assert (unscheduled.rows, marked.rows) == (1, 1)
    world.check()


def test_a_touch_that_is_too_large_to_answer_marks_nothing(world: World) -> None:
    world.set({b"a": bytes(limits.VALUE_BYTES_MAX)})
    keys = Strings.of([b"a"] * (limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX + 1))
    decision = world.decide(Touch(table="t", keys=keys))
    assert code_of(decision.reply) is Code.TOO_LARGE
    assert decision.ops == ()


# -- TOUCH: work ----------------------------------------------------------------------------------


@pytest.mark.req("FJ-46")
@BOTH
def test_a_value_that_is_worked_on_is_given_to_nobody_else(world: World, persist: bool) -> None:
    world.set({b"a": 1, b"b": 2}, persist=persist)
    assert world.touch(b"a", worked=10) == [1]
    assert world.touch(b"a", b"b", worked=10, client=2) == [MISSING, 2]
    assert world.entry(b"a").state == Entries.WORKED_ON
    assert world.get(b"a") == [1]  # whoever only looks may see it


@pytest.mark.req("FJ-46")
@BOTH
def test_what_is_worked_on_is_left_out_when_asked(world: World, persist: bool) -> None:
    world.set({b"a": 1, b"b": 2}, persist=persist)
    world.touch(b"a", worked=10)
    reply = world.run(Get(table="t", keys=Strings.of([b"a", b"b"]), skip_worked=True))
    assert decoded(reply) == [MISSING, 2]


@pytest.mark.req("FJ-46")
@BOTH
def test_the_status_clears_after_the_deadline(world: World, persist: bool) -> None:
    world.set({b"a": 1}, persist=persist)
    world.touch(b"a", worked=10)
    world.lease_us += 9
    assert world.touch(b"a", worked=10) == [MISSING]
    world.lease_us += 1
    assert world.entry(b"a").state == 0
    assert world.touch(b"a", worked=10) == [1]


@pytest.mark.req("FJ-46")
def test_a_deadline_is_kept_in_lease_time(world: World) -> None:
    """A wall clock that jumps gives nothing free, and keeps nothing longer."""
    world.set({b"a": 1})
    world.touch(b"a", worked=10)
    assert list(world.ops()[-1].column("worked_until_us")) == [LEASE_US + 10]
    world.now_us += DAY_US
    assert world.touch(b"a", worked=10) == [MISSING]
    world.now_us -= 2 * DAY_US
    world.lease_us += 10
    assert world.touch(b"a", worked=10) == [1]


@pytest.mark.req("FJ-32")
@BOTH
def test_a_new_value_is_not_worked_on(world: World, persist: bool) -> None:
    world.set({b"a": "old"}, persist=persist)
    world.touch(b"a", worked=1000)
    world.set({b"a": "new"}, at=1, persist=persist)
    entry = world.entry(b"a")
    assert (entry.state, entry.accessed_us) == (0, 0)
    assert world.touch(b"a", worked=10, client=2) == ["new"]


def test_of_a_key_twice_in_a_batch_only_the_first_is_given_out(world: World) -> None:
    world.set({b"a": 1}, also=[b"alias"])
    assert world.touch(b"a", b"a", b"alias", worked=10) == [1, MISSING, MISSING]
    assert world.ops()[-1].rows == 1


# -- what can be wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [NOW_US, NOW_US - 1, NOW_US + 30 * DAY_US + 1, -1, 2**64 - 1])
def test_a_moment_is_from_now_to_30_days_ahead(world: World, moment: int) -> None:
    good = Touch(table="t", keys=Strings.of([b"there"]), extend=True)
    assert code_of(world.run(replace(good, expires_at_us=moment))) is Code.BAD_TIMEOUT
    assert code_of(world.run(replace(good, worked_until_us=moment))) is Code.BAD_TIMEOUT
    for last in (NOW_US + 1, NOW_US + 30 * DAY_US):
        assert code_of(world.decide(replace(good, expires_at_us=last)).reply) is None
        assert code_of(world.decide(replace(good, worked_until_us=last)).reply) is None


# -- answers --------------------------------------------------------------------------------------

PREFIX = b"\0\0\0\1"


@pytest.fixture
def mixed() -> World:
    made = World()
    made.set({b"plain": 1, b"void": None, b"empty": b"", b"text": "text"})
    made.set({b"twice": 1}, at=0)
    made.set({b"twice": 2}, at=1)
    made.set({b"moved": 1})
    made.delete(b"deleted", at=3)
    made.pack(len(made.ops()))
    made.set({b"plain": 5, b"void": None, b"empty": b"", b"text": "text"}, at=4)
    made.delete(b"deleted later", at=3)
    return made


def both(mixed: World, keys: list[bytes]) -> tuple[object, object]:
    given_keys = [PREFIX + key for key in keys]
    stored = mixed.get_many(Tree.KV, given_keys)
    lookup = Lookup(mixed, given_keys, stored, mixed.now_us, all_marks=True)
    rows = [row if lookup.is_live(row) else None for row in range(len(keys))]
    return (
        answer(lambda: read.plain_entries(stored, mixed)),
        answer(lambda: read.entries(lookup, rows, mixed, with_data=True)),
    )


def answer(made: Callable[[], object]) -> object:
    try:
        return made()
    except RefusedError as error:
        return Refusal.of(error)


known = st.sampled_from(
    [b"plain", b"void", b"empty", b"text", b"twice", b"moved", b"deleted", b"deleted later", b"-"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(known, min_size=1, max_size=8))
def test_plain_answers_say_the_same_as_others(keys: list[bytes]) -> None:
    made = World()
    made.set({b"moved": 1, b"deleted": 1})
    made.delete(b"deleted", at=3)
    made.pack(len(made.ops()))
    made.set({b"plain": 1, b"void": None, b"empty": b"", b"text": "text", b"twice": 1})
    made.set({b"twice": 2}, at=1)
    made.delete(b"deleted later", at=3)
    plain, other = both(made, keys)
    assert isinstance(plain, Entries)
    assert isinstance(other, Entries)
    for row in range(len(keys)):
        assert entry_of(plain, row) == entry_of(other, row)


def test_what_is_special_is_not_answered_as_plain(mixed: World) -> None:
    mixed.set({b"expires": 1}, expires=10)
    mixed.set({b"target": 1}, also=[b"alias", b"a" * 32])
    mixed.delete(b"target", at=1)
    for key in (b"expires", b"alias", b"a" * 32):  # the last looks as long as a full entry
        assert both(mixed, [key])[0] is None
        assert both(mixed, [b"plain", key, b"twice"])[0] is None


def test_a_later_touch_does_not_end_the_work(world: World) -> None:
    world.set({b"a": 1}, ttl=100)
    world.touch(b"a", worked=1000)
    world.touch(b"a", expires=0)
    assert world.entry(b"a").state == Entries.WORKED_ON


def test_a_mark_anywhere_in_the_table_changes_no_other_answer(world: World) -> None:
    world.set({b"%d" % row: row for row in range(10)})
    keys = Strings.of([b"%d" % row for row in range(12)])
    before = world.run(Get(table="t", keys=keys))
    world.touch(b"there")
    assert world.run(Get(table="t", keys=keys)) == before
