"""What a journal means: the queue, its open items and the last xid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import codec
from fjord.kestrel import items as checkpoints
from fjord.kestrel.codec import XID_MAX, XID_MIN, Dialect, Item, Op, Opcode
from fjord.kestrel.items import Entry
from tests.unit.kestrel import vectors
from tests.unit.kestrel.directory import meaning
from tests.unit.kestrel.vectors import ADD_MS, Replayed, added, going_on, item, named

A, B, C = map(item, (b"a", b"b", b"c"))
REMOVE, RESERVE = codec.remove(), codec.remove_tentative()
reserve, unremove, confirm = codec.remove_tentative, codec.unremove, codec.confirm_remove


def replayed(*made: Op) -> Replayed:
    state = Replayed()
    for op in made:
        state.apply(op)
    assert state.queue_bytes == sum(item.size for item in state.queue)
    assert state.open_bytes == sum(len(item.data) for item in state.open.values())
    return state


OPEN = [named(7, b"x"), RESERVE, named(5, b"y"), RESERVE]
EXPECTED = {7: b"x", 5: b"y", 10: b"a"}


@pytest.mark.req("KJ-01", "KJ-04", "KJ-06", "KJ-07", "KJ-08", "KJ-09", "KJ-10", "KJ-11", "KJ-13")
@pytest.mark.parametrize(
    ("made", "waiting", "open_items"),
    [
        ([], "", {}),
        ([A, B, vectors.add(b"o")], "abo", {}),
        ([A, B, REMOVE], "b", {}),
        ([A, B, C, RESERVE, RESERVE], "c", {1: b"a", 2: b"b"}),
        ([codec.save_xid(7), A, RESERVE], "", {8: b"a"}),
        ([A, B, reserve(9), unremove(9)], "ab", {}),
        ([A, B, RESERVE, RESERVE, confirm(1)], "", {2: b"b"}),
        ([A, B, reserve(41), RESERVE], "", {41: b"a", 42: b"b"}),
        ([A, B, reserve(5), going_on(5, b"n")], "bn", {}),
        ([A, Op(Opcode.REMOVE_TENTATIVE_XID, 0)], "", {1: b"a"}),
        # An item that brings its xid along.  Kestrel 1.2 gave it the next one, and 2.x gave all of
        # them the xid 0.  A reserve right behind it means it and not the head.
        ([*OPEN, A], "a", {7: b"x", 5: b"y"}),
        ([A, named(7, b"x"), B], "axb", {}),
        ([A, named(7, b"x"), B, REMOVE, RESERVE], "b", {7: b"x"}),
        ([A, named(7, b"x"), RESERVE, B], "ab", {7: b"x"}),
        ([named(7, b"x"), RESERVE, unremove(7), codec.save_xid(20), RESERVE], "", {21: b"x"}),
        # A rewritten file may save its xid anywhere, and have open items behind waiting ones.
        *(
            ([*OPEN[:at], codec.save_xid(9), *OPEN[at:], A, RESERVE], "", EXPECTED)
            for at in (0, 2, 4)
        ),
        ([A, B, named(7, b"x"), RESERVE, codec.save_xid(9)], "ab", {7: b"x"}),
        # A state dump opens what follows it, and tells again what is open.
        ([A, vectors.state_dump(9, 2), *OPEN, B, RESERVE], "b", EXPECTED),
        ([A, vectors.state_dump(9, 2), OPEN[0], OPEN[2], B, RESERVE], "b", EXPECTED),
        ([A, reserve(1), vectors.state_dump(1, 1), named(1, b"a"), RESERVE, C], "c", {1: b"a"}),
        ([A, reserve(1), vectors.state_dump(1, 1), named(1, b"a"), C], "c", {1: b"a"}),
        ([vectors.state_dump(1, 5), named(7, b"x"), A, named(8, b"y")], "ay", {7: b"x"}),
        (
            [A, vectors.state_dump(1, 5), named(7, b"x"), RESERVE, RESERVE, named(8, b"y")],
            "y",
            {7: b"x", 2: b"a"},
        ),
    ],
)
def test_ops_mean_what_they_say(made: list[Op], waiting: str, open_items: dict[int, bytes]) -> None:
    state = replayed(*made)
    assert meaning(state) == ([one.encode() for one in waiting], open_items)
    assert (state.missed, state.displaced) == (0, 0)


def test_ops_on_what_is_not_there_change_nothing_and_are_counted() -> None:
    state = replayed(REMOVE, RESERVE, reserve(6), unremove(3), confirm(4), A)
    assert (meaning(state), state.last_xid, state.missed) == (([b"a"], {}), 0, 5)
    state = replayed(going_on(5, b"next"))  # which adds its item all the same
    assert (meaning(state), state.missed) == (([b"next"], {}), 1)


def test_a_reserve_is_told_with_its_xid() -> None:
    state = replayed(A, B, RESERVE, RESERVE)
    assert (state.last_xid, state.reserved_xid) == (2, 2)
    assert replayed(*OPEN).last_xid == 0


# -- xids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "following"), [(0, 1), (6, 7), (XID_MAX, XID_MIN), (-2, -1), (-1, 1)]
)
def test_the_next_xid_wraps_and_is_never_0(last: int, following: int) -> None:
    assert replayed(codec.save_xid(last)).next_xid() == following


def test_the_next_xid_skips_open_ones() -> None:
    assert replayed(A, B, C, reserve(1), reserve(2), codec.save_xid(0)).next_xid() == 3


def test_no_item_is_lost_when_an_xid_is_given_twice() -> None:
    """Kestrel forgets the first one."""
    state = replayed(A, B, reserve(4), reserve(4))
    assert meaning(state) == ([], {4: b"b", 5: b"a"})
    assert (state.displaced, state.reserved_xid) == (1, 4)


# -- as a whole -----------------------------------------------------------------------------------

xids = st.integers(-3, 5)
data = st.binary(max_size=3)
any_op = st.one_of(
    st.sampled_from([REMOVE, RESERVE]),
    *(st.builds(make, xids) for make in (reserve, codec.save_xid, unremove, confirm)),
    *(st.builds(make, data) for make in (item, vectors.add)),
    *(st.builds(make, xids, data) for make in (named, going_on)),
    st.builds(vectors.state_dump, xids, st.integers(0, 3)),
)
any_ops = st.lists(any_op, max_size=40)


@given(any_ops)
def test_no_op_is_refused_and_no_item_lost_but_by_an_op_that_says_so(made: list[Op]) -> None:
    state = replayed(*made)
    assert 0 not in state.open
    taking = {Opcode.REMOVE, Opcode.CONFIRM_REMOVE, Opcode.CONTINUE, Opcode.STATE_DUMP}
    if not taking & {op.opcode for op in made}:
        adding = [op.item.data for op in made if op.item is not None]
        kept = [item.data for item in state.queue] + [one.data for one in state.open.values()]
        assert sorted(map(bytes, kept)) == sorted(map(bytes, adding))


def rewritten(state: Replayed, dialect: Dialect) -> Iterator[Op]:
    """Yields what a queue in this state writes when its files are rewritten."""
    entries = state.open
    waits = map(entry, state.queue)
    return checkpoints.made(entries, (), waits, last_xid=state.last_xid, dialect=dialect)


def entry(item: Item) -> Entry:
    return Entry(bytes(item.data), item.add_ms, item.expiry_ms, item.xid, 0)


@pytest.mark.req("KJ-01", "KJ-13")
@pytest.mark.parametrize("dialect", Dialect)
@given(made=any_ops)
def test_a_rewritten_journal_means_the_same(dialect: Dialect, made: list[Op]) -> None:
    state, again = replayed(*made), Replayed()
    decoder = codec.Decoder()
    decoder.feed(b"".join(codec.encode(op, dialect) for op in rewritten(state, dialect)))
    decoder.end()
    for op, _, _ in decoder.ops():
        again.apply(op)
    assert decoder.broken is None
    assert meaning(again) == meaning(state)
    assert dialect is Dialect.V24 or again.last_xid == state.last_xid


def test_open_items_are_rewritten_with_the_highest_xid_first() -> None:
    state = replayed(A, B, reserve(3), reserve(8), C)
    assert list(rewritten(state, Dialect.V24)) == [B, reserve(8), A, reserve(3), C]
    expected = [codec.save_xid(8), named(8, b"b"), RESERVE, named(3, b"a"), RESERVE, C]
    assert list(rewritten(state, Dialect.DOC)) == expected


def test_what_is_kept_is_a_copy() -> None:
    data = bytearray(b"item")
    state = Replayed()
    state.apply(Op(Opcode.ADDX, 0, Item(memoryview(data), ADD_MS)))
    data[:] = b"gone"
    assert state.queue[0] == added(b"item")
    assert isinstance(state.queue[0].data, bytes)
