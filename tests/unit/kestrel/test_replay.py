"""What a journal means: the queue, its open items and the last xid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import codec
from fjord.kestrel import items as checkpoints
from fjord.kestrel.codec import XID_MAX, XID_MIN, Dialect, Item, Op, Opcode
from fjord.kestrel.items import Entry
from tests.unit.kestrel.vectors import ADD_MS, Replayed, added

A, B, C = (codec.addx(one, add_ms=ADD_MS) for one in (b"a", b"b", b"c"))


def replayed(*made: Op) -> Replayed:
    state = Replayed()
    for op in made:
        state.apply(op)
    check(state)
    return state


def check(state: Replayed) -> None:
    assert state.queue_bytes == sum(item.size for item in state.queue)
    assert state.open_bytes == sum(len(item.data) for item in state.open.values())


def waiting(state: Replayed) -> list[bytes]:
    return [bytes(item.data) for item in state.queue]


def reserved(state: Replayed) -> dict[int, bytes]:
    return {xid: bytes(item.data) for xid, item in state.open.items()}


@pytest.mark.req("KJ-01")
def test_a_journal_begins_with_an_empty_queue_and_adds_at_the_end() -> None:
    state = replayed()
    assert (waiting(state), reserved(state), state.last_xid) == ([], {}, 0)
    assert waiting(replayed(A, B, codec.add(b"old"))) == [b"a", b"b", b"old"]


@pytest.mark.req("KJ-04")
def test_remove_takes_the_head() -> None:
    assert waiting(replayed(A, B, codec.remove())) == [b"b"]


@pytest.mark.req("KJ-06")
def test_remove_tentative_opens_the_head_under_the_next_xid() -> None:
    state = replayed(A, B, C, codec.remove_tentative(), codec.remove_tentative())
    assert (waiting(state), reserved(state)) == ([b"c"], {1: b"a", 2: b"b"})
    assert (state.last_xid, state.reserved_xid) == (2, 2)


@pytest.mark.req("KJ-07")
def test_save_xid_sets_the_last_xid() -> None:
    state = replayed(codec.save_xid(7), A, codec.remove_tentative())
    assert reserved(state) == {8: b"a"}


@pytest.mark.req("KJ-08")
def test_unremove_puts_an_open_item_back_at_the_head() -> None:
    state = replayed(A, B, codec.remove_tentative(9), codec.unremove(9))
    assert (waiting(state), reserved(state)) == ([b"a", b"b"], {})


@pytest.mark.req("KJ-09")
def test_confirm_remove_ends_an_open_item() -> None:
    state = replayed(
        A, B, codec.remove_tentative(), codec.remove_tentative(), codec.confirm_remove(1)
    )
    assert (waiting(state), reserved(state)) == ([], {2: b"b"})


def test_a_reserve_with_its_xid_sets_the_last_xid() -> None:
    state = replayed(A, B, codec.remove_tentative(41), codec.remove_tentative())
    assert reserved(state) == {41: b"a", 42: b"b"}


def test_continue_ends_one_item_and_adds_another() -> None:
    going_on = codec.proceed(5, b"next", add_ms=ADD_MS)
    state = replayed(A, B, codec.remove_tentative(5), going_on)
    assert (waiting(state), reserved(state)) == ([b"b", b"next"], {})


def test_ops_on_what_is_not_there_change_nothing_and_are_counted() -> None:
    nothing = [
        codec.remove(),
        codec.remove_tentative(),
        codec.remove_tentative(6),
        codec.unremove(3),
        codec.confirm_remove(4),
    ]
    state = replayed(*nothing, A)
    assert (waiting(state), reserved(state), state.last_xid) == ([b"a"], {}, 0)
    assert state.missed == len(nothing)


def test_continue_of_what_is_not_open_adds_its_item_all_the_same() -> None:
    state = replayed(codec.proceed(5, b"next", add_ms=ADD_MS))
    assert (waiting(state), state.missed) == ([b"next"], 1)


# -- xids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "following"), [(0, 1), (6, 7), (XID_MAX, XID_MIN), (-2, -1), (-1, 1)]
)
def test_the_next_xid_wraps_and_is_never_0(last: int, following: int) -> None:
    assert replayed(codec.save_xid(last)).next_xid() == following


def test_the_next_xid_skips_open_ones() -> None:
    state = replayed(
        A, B, C, codec.remove_tentative(1), codec.remove_tentative(2), codec.save_xid(0)
    )
    assert state.next_xid() == 3


def test_no_item_is_lost_when_an_xid_is_given_twice() -> None:
    """Kestrel forgets the first one."""
    state = replayed(A, B, codec.remove_tentative(4), codec.remove_tentative(4))
    assert reserved(state) == {4: b"b", 5: b"a"}
    assert (state.displaced, state.reserved_xid) == (1, 4)


def test_a_reserve_under_the_xid_0_gets_the_next() -> None:
    state = replayed(A, Op(Opcode.REMOVE_TENTATIVE_XID, 0))
    assert reserved(state) == {1: b"a"}


# -- open items in a rewritten file ---------------------------------------------------------------


def named(xid: int, data: bytes) -> Op:
    return codec.add_xid(xid, data, add_ms=ADD_MS)


@pytest.mark.req("KJ-10")
def test_an_item_that_brings_its_xid_along_is_reserved_under_it() -> None:
    """Kestrel 1.2 gave it the next one, and 2.x gave all of them the xid 0."""
    state = replayed(
        named(7, b"x"), codec.remove_tentative(), named(3, b"y"), codec.remove_tentative(), A
    )
    assert (waiting(state), reserved(state)) == ([b"a"], {7: b"x", 3: b"y"})
    assert state.last_xid == 0


@pytest.mark.req("KJ-10")
def test_it_waits_like_any_other_until_then() -> None:
    state = replayed(A, named(7, b"x"), B)
    assert waiting(state) == [b"a", b"x", b"b"]
    state = replayed(A, named(7, b"x"), B, codec.remove(), codec.remove_tentative())
    assert (waiting(state), reserved(state)) == ([b"b"], {7: b"x"})


@pytest.mark.req("KJ-10")
def test_a_reserve_right_behind_it_means_it_and_not_the_head() -> None:
    state = replayed(A, named(7, b"x"), codec.remove_tentative(), B)
    assert (waiting(state), reserved(state)) == ([b"a", b"b"], {7: b"x"})


def test_it_has_its_xid_for_the_first_reserve_only() -> None:
    state = replayed(
        named(7, b"x"),
        codec.remove_tentative(),
        codec.unremove(7),
        codec.save_xid(20),
        codec.remove_tentative(),
    )
    assert reserved(state) == {21: b"x"}


@pytest.mark.req("KJ-13")
@pytest.mark.parametrize("saved_at", [0, 2, 4, 5])
def test_a_prologue_may_save_its_xid_anywhere(saved_at: int) -> None:
    prologue = [
        named(7, b"x"),
        codec.remove_tentative(),
        named(5, b"y"),
        codec.remove_tentative(),
        A,
    ]
    prologue.insert(saved_at, codec.save_xid(9))
    state = replayed(*prologue, codec.remove_tentative())
    assert (waiting(state), reserved(state)) == ([], {7: b"x", 5: b"y", 10: b"a"})


@pytest.mark.req("KJ-13")
def test_open_items_of_a_prologue_may_stand_behind_waiting_ones() -> None:
    state = replayed(A, B, named(7, b"x"), codec.remove_tentative(), codec.save_xid(9))
    assert (waiting(state), reserved(state)) == ([b"a", b"b"], {7: b"x"})


# -- STATE_DUMP -----------------------------------------------------------------------------------


@pytest.mark.req("KJ-11")
@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_state_dump_opens_what_follows_it(has_pairs: bool) -> None:
    told: list[Op] = []
    for xid, data in ((7, b"x"), (5, b"y")):
        told += [named(xid, data), *([codec.remove_tentative()] if has_pairs else [])]
    state = replayed(A, codec.state_dump(9, 2), *told, B, codec.remove_tentative())
    assert (waiting(state), reserved(state)) == ([b"b"], {7: b"x", 5: b"y", 10: b"a"})


@pytest.mark.req("KJ-11")
@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_state_dump_tells_again_what_is_open(has_pairs: bool) -> None:
    again = [named(1, b"a"), *([codec.remove_tentative()] if has_pairs else [])]
    state = replayed(A, B, codec.remove_tentative(1), codec.state_dump(1, 1), *again, C)
    assert (waiting(state), reserved(state)) == ([b"b", b"c"], {1: b"a"})
    assert state.displaced == 0


def test_a_state_dump_ends_with_the_first_op_that_is_not_of_it() -> None:
    state = replayed(codec.state_dump(1, 5), named(7, b"x"), A, named(8, b"y"))
    assert (waiting(state), reserved(state)) == ([b"a", b"y"], {7: b"x"})
    state = replayed(
        A, codec.state_dump(1, 5), named(7, b"x"), *[codec.remove_tentative()] * 2, named(8, b"y")
    )
    assert (waiting(state), reserved(state)) == ([b"y"], {7: b"x", 2: b"a"})


# -- as a whole -----------------------------------------------------------------------------------

small_xids = st.integers(-3, 5)
any_op = st.one_of(
    st.just(codec.remove()),
    st.just(codec.remove_tentative()),
    st.builds(codec.remove_tentative, small_xids),
    st.builds(codec.save_xid, small_xids),
    st.builds(codec.unremove, small_xids),
    st.builds(codec.confirm_remove, small_xids),
    st.builds(codec.addx, st.binary(max_size=3), add_ms=st.just(ADD_MS)),
    st.builds(codec.add, st.binary(max_size=3), add_ms=st.just(ADD_MS)),
    st.builds(codec.add_xid, small_xids, st.binary(max_size=3), add_ms=st.just(ADD_MS)),
    st.builds(codec.proceed, small_xids, st.binary(max_size=3), add_ms=st.just(ADD_MS)),
    st.builds(codec.state_dump, small_xids, st.integers(0, 3)),
)
any_ops = st.lists(any_op, max_size=40)


@given(any_ops)
def test_no_op_is_refused(made: list[Op]) -> None:
    state = replayed(*made)
    assert 0 not in state.open


@given(any_ops)
def test_items_are_never_lost_but_by_an_op_that_says_so(made: list[Op]) -> None:
    state = replayed(*made)
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
    state = replayed(*made)
    data = b"".join(codec.encode(op, dialect) for op in rewritten(state, dialect))
    again = Replayed()
    decoder = codec.Decoder()
    decoder.feed(data)
    decoder.end()
    for op, _, _ in decoder.ops():
        again.apply(op)
    assert decoder.broken is None
    assert waiting(again) == waiting(state)
    assert reserved(again) == reserved(state)
    if dialect is Dialect.DOC:
        assert again.last_xid == state.last_xid


def test_open_items_are_rewritten_with_the_highest_xid_first() -> None:
    state = replayed(A, B, codec.remove_tentative(3), codec.remove_tentative(8), C)
    assert list(rewritten(state, Dialect.V24)) == [
        B,
        codec.remove_tentative(8),
        A,
        codec.remove_tentative(3),
        C,
    ]
    assert list(rewritten(state, Dialect.DOC)) == [
        codec.save_xid(8),
        named(8, b"b"),
        codec.remove_tentative(),
        named(3, b"a"),
        codec.remove_tentative(),
        C,
    ]


@pytest.mark.req("KJ-06", "KJ-08", "KJ-09")
@given(st.lists(st.sampled_from("arcu"), max_size=60))
def test_replay_equals_a_plain_model(steps: Iterable[str]) -> None:
    """Adds, reserves, confirms and gives back, always of what was reserved first."""
    queue: list[bytes] = []
    held: list[tuple[int, bytes]] = []
    state, last = Replayed(), 0
    for number, step in enumerate(steps):
        if step == "a":
            queue.append(b"%d" % number)
            state.apply(codec.addx(queue[-1], add_ms=ADD_MS))
        elif step == "r" and queue:
            last += 1
            held.append((last, queue.pop(0)))
            state.apply(codec.remove_tentative())
        elif step == "c" and held:
            state.apply(codec.confirm_remove(held.pop(0)[0]))
        elif step == "u" and held:
            xid, data = held.pop(0)
            queue.insert(0, data)
            state.apply(codec.unremove(xid))
    assert (waiting(state), reserved(state)) == (queue, dict(held))


def test_what_is_kept_is_a_copy() -> None:
    data = bytearray(b"item")
    state = Replayed()
    state.apply(Op(Opcode.ADDX, 0, Item(memoryview(data), ADD_MS)))
    data[:] = b"gone"
    assert state.queue[0] == added(b"item")
    assert isinstance(state.queue[0].data, bytes)
