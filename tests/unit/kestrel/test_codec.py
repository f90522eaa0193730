"""The bytes of Kestrel's ops, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import codec
from fjord.kestrel.codec import Dialect, Op, Opcode
from tests.unit.kestrel.vectors import ADD_MS, VECTORS, copied, decode, encoded

every_vector = pytest.mark.parametrize("name", VECTORS)


def trailing(name: str) -> bytes:
    """Returns an op that may follow."""
    return encoded(codec.add_xid(9, b"", add_ms=ADD_MS) if name == "STATE_DUMP" else codec.remove())


# -- the vectors ----------------------------------------------------------------------------------


@pytest.mark.req("KJ-02", "KJ-04", "KJ-05")
@every_vector
def test_an_op_is_written_as_kestrel_writes_it(name: str) -> None:
    op, dialect, text = VECTORS[name]
    assert codec.encode(op, dialect).hex() == text


@pytest.mark.req("KJ-02", "KJ-03", "KJ-04", "KJ-05", "KJ-10")
@every_vector
@pytest.mark.parametrize("step", [0, 1, 2, 7])
def test_an_op_is_read_in_one_piece_and_byte_by_byte(name: str, step: int) -> None:
    op, _, text = VECTORS[name]
    data = bytes.fromhex(text)
    assert decode(data, step=step) == ([(op, 0, len(data))], None)


@every_vector
@pytest.mark.parametrize("step", [0, 1])
def test_an_op_is_read_with_others_around_it(name: str, step: int) -> None:
    op, _, text = VECTORS[name]
    data = bytes.fromhex(text)
    found, broken = decode(b"\x01" + data + trailing(name), step=step)
    assert [found[0], found[1]] == [(codec.remove(), 0, 1), (op, 1, len(data))]
    assert (len(found), broken) == (3, None)
    assert found[2][1] == 1 + len(data)


@every_vector
def test_an_op_that_is_cut_at_any_byte_is_torn(name: str) -> None:
    _, _, text = VECTORS[name]
    data = bytes.fromhex(text)
    for size in range(1, len(data)):
        found, broken = decode(b"\x01" + data[:size])
        assert len(found) == 1
        assert broken is not None
        assert (broken.offset, broken.is_torn) == (1, True)


def test_an_op_is_not_torn_before_the_end_is_said() -> None:
    one = codec.Decoder()
    one.feed(bytes.fromhex(VECTORS["ADDX"][2])[:-1])
    assert list(one.ops()) == []
    assert one.broken is None
    assert one.wanted_end == 32
    one.feed(b"y")
    assert [copied(placed)[0] for placed in one.ops()] == [VECTORS["ADDX"][0]]
    assert one.wanted_end == 33


def test_who_stops_in_the_middle_can_go_on() -> None:
    one = codec.Decoder()
    one.feed(
        encoded(codec.remove(), codec.addx(b"a", add_ms=ADD_MS), codec.save_xid(3), codec.remove())
    )
    assert [next(one.ops())[1] for _ in range(4)] == [0, 1, 23, 28]
    assert next(one.ops(), None) is None


@pytest.mark.req("KJ-02")
def test_sizes_are_those_that_kestrel_has() -> None:
    """What Kestrel's own tests expect of files, in bytes."""
    kitty = codec.encode(codec.addx(b"hello kitty", add_ms=ADD_MS), Dialect.V24)
    assert (len(kitty), len(kitty + b"\x01")) == (32, 33)
    whole = encoded(
        codec.addx(b"first", add_ms=ADD_MS),
        codec.addx(b"second", add_ms=ADD_MS),
        codec.remove(),
    )
    assert len(whole) == 5 + 6 + 16 + 16 + 5 + 5 + 1 == 54
    assert len(whole + encoded(codec.remove())) == 55


# -- dialects -------------------------------------------------------------------------------------

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
moments = st.integers(codec.ADD_MS_MIN, codec.ADD_MS_MAX - 1)
xids = i32.filter(bool)
data = st.binary(max_size=60)

OPS: dict[Opcode, st.SearchStrategy[Op]] = {
    Opcode.ADD: st.builds(
        lambda data, seconds: codec.add(data, expiry_ms=seconds * 1000),
        data,
        st.integers(0, 2**32 - 1),
    ),
    Opcode.REMOVE: st.just(codec.remove()),
    Opcode.ADDX: st.builds(codec.addx, data, add_ms=i64, expiry_ms=i64),
    Opcode.REMOVE_TENTATIVE: st.just(codec.remove_tentative()),
    Opcode.SAVE_XID: st.builds(codec.save_xid, i32),
    Opcode.UNREMOVE: st.builds(codec.unremove, i32),
    Opcode.CONFIRM_REMOVE: st.builds(codec.confirm_remove, i32),
    Opcode.ADD_XID: st.builds(codec.add_xid, i32, data, add_ms=i64, expiry_ms=i64),
    Opcode.CONTINUE: st.builds(codec.proceed, xids, data, add_ms=moments, expiry_ms=i64),
    Opcode.REMOVE_TENTATIVE_XID: st.builds(codec.remove_tentative, xids),
    # Without open items that follow it, it can stand anywhere.
    Opcode.STATE_DUMP: st.builds(codec.state_dump, i32, st.just(0)),
}


def ops_of(dialect: Dialect) -> st.SearchStrategy[list[Op]]:
    made = st.one_of([OPS[opcode] for opcode in sorted(codec.WRITTEN[dialect])])
    return st.lists(made, max_size=12)


def test_every_op_is_written_by_some_dialect_and_made_by_these_tests() -> None:
    assert {opcode for written in codec.WRITTEN.values() for opcode in written} == set(Opcode)
    assert OPS.keys() == set(Opcode)


@pytest.mark.parametrize("dialect", Dialect)
@given(data=st.data(), step=st.integers(1, 100))
def test_ops_round_trip_in_each_dialect(dialect: Dialect, data: st.DataObject, step: int) -> None:
    made = data.draw(ops_of(dialect))
    pieces = [codec.encode(op, dialect) for op in made]
    found, broken = decode(b"".join(pieces), step=step)
    assert broken is None
    assert [op for op, _, _ in found] == made
    assert [length for _, _, length in found] == [len(piece) for piece in pieces]
    assert [offset for _, offset, _ in found] == [
        sum(map(len, pieces[:count])) for count in range(len(pieces))
    ]


@pytest.mark.parametrize("dialect", Dialect)
def test_a_dialect_refuses_the_ops_of_the_other(dialect: Dialect) -> None:
    for op, _, _ in VECTORS.values():
        if op.opcode not in codec.WRITTEN[dialect]:
            with pytest.raises(ValueError, match=rf"{dialect} has no {op.opcode.name}"):
                codec.encode(op, dialect)


def test_kestrel_24_writes_what_kestrel_24_reads() -> None:
    numbers = {opcode.number for opcode in codec.WRITTEN[Dialect.V24]}
    assert numbers == {1, 2, 5, 6, 8, 9}
    assert {opcode.number for opcode in codec.WRITTEN[Dialect.DOC]} == set(range(9))


@pytest.mark.parametrize(
    "op",
    [
        codec.save_xid(2**31),
        codec.unremove(-(2**31) - 1),
        codec.add(b"", expiry_ms=2**32 * 1000),
        codec.addx(b"", add_ms=2**63),
        codec.state_dump(1, -1),
        codec.state_dump(1, 2**31),
        Op(Opcode.ADDX),
        Op(Opcode.ADD),
        Op(Opcode.ADD_XID, 3),
    ],
)
def test_what_does_not_fit_is_refused(op: Op) -> None:
    with pytest.raises(ValueError, match=r"cannot|needs an item"):
        codec.encode(op, Dialect.DOC)


# -- what the oldest files have -------------------------------------------------------------------


@pytest.mark.req("KJ-03", "KJ-12")
def test_the_add_of_starling_gets_the_time_of_reading() -> None:
    data = bytes.fromhex("0007000000") + (1_700_000_000).to_bytes(4, "little") + b"abc" + b"\x01"
    found, broken = decode(data, now_ms=1_600_000_000_123)
    added = codec.add(b"abc", expiry_ms=1_700_000_000_000, add_ms=1_600_000_000_123)
    assert (found, broken) == ([(added, 0, 12), (codec.remove(), 12, 1)], None)


def test_what_expires_within_a_second_does_not_become_eternal() -> None:
    written = codec.encode(codec.add(b"", expiry_ms=1), Dialect.DOC)
    assert decode(written)[0][0][0] == codec.add(b"", expiry_ms=1000)


# -- the two meanings of 8 ------------------------------------------------------------------------

CONTINUE = VECTORS["CONTINUE"][0]
DUMPED = codec.add_xid(5, b"", add_ms=ADD_MS)


@pytest.mark.req("KJ-11")
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("count", [1, 16, 19, 2**31 - 1])
def test_an_8_before_an_add_xid_is_a_state_dump(step: int, count: int) -> None:
    made = [codec.state_dump(1, count), DUMPED]
    found, broken = decode(encoded(*made), step=step)
    assert ([op for op, _, _ in found], broken) == (made, None)


@pytest.mark.req("KJ-11")
def test_an_8_without_open_items_is_a_state_dump_whatever_follows() -> None:
    made = [codec.state_dump(1, 0), CONTINUE._replace(xid=1), codec.remove()]
    found, broken = decode(encoded(*made))
    assert ([op for op, _, _ in found], broken) == (made, None)


def test_a_state_dump_may_be_the_last_op_of_a_file() -> None:
    assert decode(encoded(codec.state_dump(1, 15)))[1] is None
    # That of more open items may as well be what is left of a CONTINUE.
    broken = decode(encoded(codec.state_dump(1, 16)))[1]
    assert broken is not None
    assert broken.is_torn


@pytest.mark.parametrize("step", [0, 1])
def test_an_8_with_a_date_is_a_continue_even_if_that_begins_as_an_add_xid(step: int) -> None:
    made = [codec.proceed(1, b"two", add_ms=(ADD_MS & ~0xFF) | 7), codec.remove()]
    found, broken = decode(encoded(*made), step=step)
    assert ([op for op, _, _ in found], broken) == (made, None)


@pytest.mark.parametrize("add_ms", [codec.ADD_MS_MIN - 1, codec.ADD_MS_MAX, 0, -1, 2**62 + 1])
def test_an_8_with_an_impossible_date_is_damage(add_ms: int) -> None:
    made = codec.proceed(1, b"two", add_ms=add_ms)
    found, broken = decode(encoded(codec.remove(), made))
    assert len(found) == 1
    assert broken is not None
    assert (broken.offset, broken.is_torn) == (1, False)


@pytest.mark.parametrize(
    "text", ["0801000000ffffffff", "08010000000f00000001", "080100000000000080"]
)
def test_an_8_with_an_impossible_size_is_damage(text: str) -> None:
    broken = decode(bytes.fromhex(text))[1]
    assert broken is not None
    assert (broken.offset, broken.is_torn) == (0, False)


def test_a_batch_says_where_ops_stand() -> None:
    """The last ops of what was fed have no room for an ADDX behind them, and come by themselves."""
    item = encoded(codec.addx(b"abc", add_ms=ADD_MS))
    one = codec.Decoder()
    one.feed(encoded(codec.save_xid(9)) + item + b"\x01\x01\x01" + b"\x03" + item + b"\x01\x01")
    scanned, alone = one.batches()
    assert (scanned.base, scanned.borders, scanned.op_count) == (0, [0, 5, 29, 32, 33, 57], 7)
    assert codec.unpack_xid(scanned.data, 0) == (9,)
    assert scanned.alone == []
    assert (alone.borders, alone.alone) == ([57, 58, 59], [codec.remove(), codec.remove()])
    assert [offset for _, offset, _ in scanned.ops()] == [0, 5, 29, 30, 31, 32, 33]
    assert [offset for _, offset, _ in alone.ops()] == [57, 58]


@pytest.mark.parametrize(
    "rare",
    [
        codec.add(b"x"),
        codec.add_xid(1, b"x", add_ms=ADD_MS),
        codec.proceed(1, b"x", add_ms=ADD_MS),
        codec.state_dump(1, 0),
    ],
)
def test_a_rare_op_ends_a_batch_and_comes_as_an_object(rare: Op) -> None:
    item = codec.addx(bytes(30), add_ms=ADD_MS)
    one = codec.Decoder()
    one.feed(encoded(item, item, rare) + encoded(item) * 100)
    first, mixed, *others = one.batches()
    assert (first.op_count, first.alone) == (2, [])
    assert copied((mixed.alone[0], 0, 0))[0] == rare
    assert mixed.op_count == len(mixed.alone) < 100
    assert others[0].alone == []
    assert sum(batch.op_count for batch in (mixed, *others)) == 101


def test_damage_is_told_when_all_before_it_was_given() -> None:
    one = codec.Decoder()
    one.feed(encoded(codec.add(b"a"), codec.add(b"b")) + b"\x63")
    taken = one.ops()
    for _ in range(2):
        next(taken)
        assert one.broken is None
    assert list(taken) == []
    assert one.broken == codec.Broken(20, "99 is no opcode", is_torn=False)


def test_an_addx_is_split_into_what_it_was_made_of() -> None:
    assert codec.split_addx(codec.encode_addx(b"data", ADD_MS, -1)) == (b"data", ADD_MS, -1)
