"""Key/value tables: the largest timestamp wins, batches are all or nothing, replay is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Entries, Get
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.tables import kv
from fjord.tables.state import Tree
from fjord.values import Value
from tests.unit.tables.world import MISSING, NOW_US, World, code_of, done, set_command

ONE_OF_EACH: dict[bytes, Value] = {
    b"void": None,
    b"buffer": b"\0\xff",
    b"empty": b"",
    b"string": "text \u00e9",
    b"integer": -(2**63),
    b"float": 2.5,
    b"yes": True,
    b"no": False,
}


@pytest.fixture
def world() -> World:
    return World()


# -- SET, GET, DELETE -----------------------------------------------------------------------------


@pytest.mark.req("FJ-41")
def test_get_returns_what_set_gave_with_its_type(world: World) -> None:
    world.set(ONE_OF_EACH)
    found = world.get(*ONE_OF_EACH)
    assert found == list(ONE_OF_EACH.values())
    assert [type(value) for value in found] == [type(value) for value in ONE_OF_EACH.values()]


def test_a_token_counts_every_row_and_the_new_table(world: World) -> None:
    assert world.set({b"a": 1, b"b": 2, b"c": 3}) == done(4)
    assert world.set({b"a": 1}, at=1) == done(5)
    assert world.delete(b"a", b"b", at=2) == done(7)


def test_an_answer_is_aligned_with_the_keys_asked_for(world: World) -> None:
    world.set({b"a": 1, b"b": "two"})
    assert world.get(b"b", b"x", b"a", b"b", b"y") == ["two", MISSING, 1, "two", MISSING]


def test_an_entry_comes_with_its_dates(world: World) -> None:
    world.set({b"a": 1}, at=-5, expires=1000)
    world.set({b"b": 1}, at=-4)
    reply = world.run(Get(table="t", keys=Strings.of([b"a", b"b", b"c"])))
    assert isinstance(reply, Entries)
    assert list(reply.timestamps_us) == [NOW_US - 5, NOW_US - 4, 0]
    assert list(reply.expires_at_us) == [NOW_US + 1000, 0, 0]


def test_nothing_is_read_from_the_journal_for_what_has_no_bytes(world: World) -> None:
    world.set({b"void": None, b"empty": b""})
    assert world.get(b"void", b"empty", b"none") == [None, b"", MISSING]
    assert world.payload_reads == 0


def test_keys_of_any_bytes_are_told_apart(world: World) -> None:
    keys = [b"\0", b"\0\0", b"\xff", b"a\0b", b"a", b"k" * limits.KV_KEY_BYTES_MAX]
    world.set({key: key for key in keys})
    assert world.get(*keys) == keys


def test_a_deleted_key_is_missing(world: World) -> None:
    world.set({b"a": 1, b"b": 2})
    world.delete(b"a", at=1)
    assert world.get(b"a", b"b") == [MISSING, 2]


def test_deleting_a_missing_key_is_no_error(world: World) -> None:
    assert code_of(world.delete(b"none", b"none either")) is None
    assert world.get(b"none") == [MISSING]


def test_a_deleted_key_can_be_set_again(world: World) -> None:
    world.set({b"a": 1})
    world.delete(b"a", at=1)
    world.set({b"a": 2}, at=2)
    assert world.get(b"a") == [2]


def test_an_answer_that_is_too_large_is_refused(world: World) -> None:
    world.set({b"a": bytes(limits.VALUE_BYTES_MAX)})
    count = limits.ANSWER_BYTES_MAX // limits.VALUE_BYTES_MAX
    within = world.run(Get(table="t", keys=Strings.of([b"a"] * count)))
    assert code_of(within) is None
    above = world.run(Get(table="t", keys=Strings.of([b"a"] * (count + 1))))
    assert code_of(above) is Code.TOO_LARGE


# -- the last write wins --------------------------------------------------------------------------


@pytest.mark.req("FJ-42")
@pytest.mark.parametrize("later", [1, 1000, 60_000_000])
def test_the_largest_timestamp_wins_whatever_the_order(later: int) -> None:
    for first, second in ((0, later), (later, 0)):
        world = World()
        world.set({b"a": first}, at=first)
        assert code_of(world.set({b"a": second}, at=second)) is None
        assert world.get(b"a") == [later]


@pytest.mark.req("FJ-42")
def test_an_older_write_succeeds_and_changes_nothing(world: World) -> None:
    world.set({b"a": "new"}, at=10)
    before, trees = world.journal, world.trees()
    assert world.set({b"a": "old"}, at=9) == done(2)
    assert world.delete(b"a", at=9) == done(2)
    assert (world.journal, world.trees()) == (before, trees)
    assert world.get(b"a") == ["new"]


@pytest.mark.req("FJ-42")
def test_a_tie_goes_to_the_write_that_came_last(world: World) -> None:
    world.set({b"a": 1})
    world.set({b"a": 2})
    assert world.get(b"a") == [2]
    world.delete(b"a")
    assert world.get(b"a") == [MISSING]
    world.set({b"a": 3})
    assert world.get(b"a") == [3]


@pytest.mark.req("FJ-42")
def test_a_deletion_beats_an_older_set_that_comes_late(world: World) -> None:
    world.set({b"a": 1}, at=0)
    world.delete(b"a", at=10)
    world.set({b"a": "late"}, at=9)
    assert world.get(b"a") == [MISSING]
    world.set({b"a": "newer"}, at=11)
    assert world.get(b"a") == ["newer"]


@pytest.mark.req("FJ-42")
def test_a_deletion_that_comes_late_does_not_touch_a_newer_value(world: World) -> None:
    world.set({b"a": 1}, at=10)
    world.delete(b"a", at=9)
    assert world.get(b"a") == [1]


def test_a_tombstone_is_kept_even_where_nothing_was(world: World) -> None:
    world.delete(b"a", at=10)
    world.set({b"a": "late"}, at=9)
    assert world.get(b"a") == [MISSING]


def test_only_the_newer_rows_of_a_batch_are_written(world: World) -> None:
    world.set({b"b": "newer"}, at=10)
    world.set({b"a": 1, b"b": 2, b"c": 3}, at=5)
    assert world.get(b"a", b"b", b"c") == [1, "newer", 3]
    op = world.ops()[-1]
    assert op.column("key") == Strings.of([b"a", b"c"])
    assert op.column("value") == Strings.of([(1).to_bytes(8, "little"), (3).to_bytes(8, "little")])
    assert list(op.column("timestamp_us")) == [NOW_US + 5] * 2


def test_each_row_of_a_batch_may_have_its_own_timestamp(world: World) -> None:
    command = set_command([(b"a", 1), (b"b", 2), (b"c", 3)])
    stamps = [NOW_US + 3, NOW_US + 1, NOW_US + 2]
    world.set({b"b": "newer"}, at=2)
    world.run(replace(command, timestamps_us=stamps))
    assert world.get(b"a", b"b", b"c") == [1, "newer", 3]
    assert list(world.ops()[-1].column("timestamp_us")) == [NOW_US + 3, NOW_US + 2]


def test_of_a_key_that_is_twice_in_a_batch_the_last_row_counts(world: World) -> None:
    items: list[tuple[bytes, Value]] = [(b"a", 1), (b"b", 2), (b"a", 3), (b"a", 4)]
    world.run(set_command(items))
    assert world.get(b"a", b"b") == [4, 2]
    assert world.ops()[-1].rows == 2
    world.delete(b"a", b"a", b"a", at=1)
    assert world.ops()[-1].rows == 1


def test_of_a_key_that_is_twice_in_a_batch_the_largest_timestamp_counts(world: World) -> None:
    command = set_command([(b"a", 1), (b"a", 2), (b"a", 3)])
    stamps = [NOW_US, NOW_US + 2, NOW_US + 1]
    world.run(replace(command, timestamps_us=stamps))
    assert world.get(b"a") == [2]
    assert world.ops()[-1].rows == 1


def test_every_row_names_the_one_that_it_replaces(world: World) -> None:
    world.set({b"a": 1, b"b": 2})  # seqs 2 and 3
    world.set({b"b": 3, b"new": 4}, at=1)  # 4 and 5
    assert list(world.ops()[-1].column("previous")) == [3, 0]
    world.delete(b"a", b"b", b"none", at=2)  # 6, 7 and 8
    assert list(world.ops()[-1].column("previous")) == [2, 4, 0]
    world.set({b"a": 5}, at=3)
    assert list(world.ops()[-1].column("previous")) == [6]


# -- overwrite=False ------------------------------------------------------------------------------


def test_without_overwrite_any_live_key_refuses_all(world: World) -> None:
    world.set({b"b": 1})
    before = world.journal
    refused = world.set({b"a": 1, b"b": 2, b"c": 3}, at=1, overwrite=False)
    assert code_of(refused) is Code.EXISTS
    assert world.journal == before
    assert world.get(b"a", b"b", b"c") == [MISSING, 1, MISSING]


def test_without_overwrite_new_keys_are_written(world: World) -> None:
    assert code_of(world.set({b"a": 1, b"b": 2}, overwrite=False)) is None
    assert world.get(b"a", b"b") == [1, 2]


def test_without_overwrite_deleted_keys_do_not_count(world: World) -> None:
    world.set({b"a": 1})
    world.delete(b"a", at=1)
    assert code_of(world.set({b"a": 2}, at=2, overwrite=False)) is None
    assert world.get(b"a") == [2]


def test_without_overwrite_expired_keys_do_not_count(world: World) -> None:
    world.set({b"a": 1}, expires=1000)
    world.now_us += 999
    assert code_of(world.set({b"a": 2}, at=1, overwrite=False)) is Code.EXISTS
    world.now_us += 1
    assert code_of(world.set({b"a": 2}, at=1, overwrite=False)) is None
    assert world.get(b"a") == [2]


def test_without_overwrite_an_older_write_is_refused_as_well(world: World) -> None:
    world.set({b"a": 1}, at=10)
    assert code_of(world.set({b"a": 2}, at=5, overwrite=False)) is Code.EXISTS


# -- expiry ---------------------------------------------------------------------------------------


def test_a_value_is_gone_from_its_expiry_on(world: World) -> None:
    world.set({b"a": 1, b"b": b""}, expires=1000)
    world.now_us = NOW_US + 999
    assert world.get(b"a", b"b") == [1, b""]
    world.now_us = NOW_US + 1000
    assert world.get(b"a", b"b") == [MISSING, MISSING]


def test_a_new_value_has_a_new_expiry(world: World) -> None:
    world.set({b"a": 1}, expires=1000)
    world.set({b"a": 2}, at=1)
    world.now_us += 10_000
    assert world.get(b"a") == [2]


def test_an_expired_value_still_beats_older_writes(world: World) -> None:
    world.set({b"a": 1}, at=10, expires=1000)
    world.now_us += 2000
    world.set({b"a": "late"}, at=9)
    assert world.get(b"a") == [MISSING]
    world.set({b"a": "newer"}, at=11)
    assert world.get(b"a") == ["newer"]


# -- apply ----------------------------------------------------------------------------------------


def test_an_entry_of_the_index_points_to_the_value(world: World) -> None:
    world.set({b"a": b"first", b"b": b"second"}, expires=9)
    items = dict(world.trees()[Tree.KV])
    entry = kv.decode_entry(items[b"\0\0\0\1b"])
    assert (entry.seq, entry.timestamp_us, entry.expires_at_us) == (3, NOW_US, NOW_US + 9)
    assert world.payloads([entry.pointer]) == [b"second"]
    assert entry.is_live(NOW_US)
    assert not entry.is_live(NOW_US + 9)


def test_a_tombstone_keeps_seq_and_timestamp(world: World) -> None:
    world.delete(b"a", at=5)
    (data,) = dict(world.trees()[Tree.KV]).values()
    entry = kv.decode_entry(data)
    assert (entry.seq, entry.timestamp_us, entry.size) == (2, NOW_US + 5, 0)
    assert not entry.is_live(NOW_US)


def test_applying_never_looks_at_what_is_there(world: World) -> None:
    """Ops are resolved: applied out of any context they only write."""
    world.set({b"a": "newer"}, at=10)
    other = World()
    other.set({b"a": "older"}, at=1)
    world.apply(other.ops()[-1])
    assert world.get(b"a") == ["older"]


# -- against a plain model ------------------------------------------------------------------------


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.lists(st.tuples(keys, st.integers(0, 99)), min_size=1),
                  st.integers(-5, 5), st.booleans()),
        st.tuples(st.just("delete"), st.lists(st.tuples(keys, st.just(0)), min_size=1),
                  st.integers(-5, 5), st.just(True)),
    ),
    max_size=20,
)  # fmt: skip


@pytest.mark.req("FJ-42")
@settings(max_examples=100, deadline=None)
@given(steps)
def test_any_history_comes_to_the_state_of_a_plain_model_and_replays_to_the_same(
    history: list[tuple[str, list[tuple[bytes, int]], int, bool]],
) -> None:
    world = World()
    model: dict[bytes, tuple[int, int | None]] = {}
    for verb, rows, at, overwrite in history:
        if verb == "delete":
            world.delete(*[key for key, _ in rows], at=at)
            winners = {key: None for key, _ in rows}
        else:
            reply = world.run(set_command(rows, at=at, overwrite=overwrite))
            live = any(model.get(key, (0, None))[1] is not None for key, _ in rows)
            assert (code_of(reply) is Code.EXISTS) is (live and not overwrite)
            if live and not overwrite:
                continue
            winners = dict(rows)  # type: ignore[arg-type]
        for key, value in winners.items():
            if key not in model or model[key][0] <= at:
                model[key] = (at, value)
        expected = [model.get(key, (0, None))[1] for key in (b"a", b"b", b"c", b"d")]
        found = world.get(b"a", b"b", b"c", b"d")
        assert [None if value is MISSING else value for value in found] == expected
    again = world.replayed()
    assert (again.trees(), again.next_seq, again.tables) == (
        world.trees(),
        world.next_seq,
        world.tables,
    )


def test_replay_gives_values_deletions_and_tables_again(world: World) -> None:
    world.set(ONE_OF_EACH)
    world.set({b"x": "in another table"}, table="u", expires=5)
    world.delete(b"void", b"none", at=1)
    world.set({b"integer": 5}, at=1)
    again = world.replayed()
    assert again.trees() == world.trees()
    assert again.get(*ONE_OF_EACH) == world.get(*ONE_OF_EACH)
    assert {op.opcode for op in again.ops()} == {
        Opcode.CREATE_TABLE,
        Opcode.KV_SET,
        Opcode.KV_DELETE,
    }


def test_the_rows_that_win_beside_one_that_loses_keep_their_expiry(world: World) -> None:
    """A batch loses single rows, never what was said of all of them."""
    world.set({b"a": "newer"}, at=5)
    world.set({b"a": "late", b"b": 1}, at=1, expires=1000)
    entries = world.run(Get(table="t", keys=Strings.of([b"a", b"b"])))
    assert isinstance(entries, Entries)
    assert list(entries.expires_at_us) == [0, NOW_US + 1000]
