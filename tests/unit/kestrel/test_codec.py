"""The bytes of Kestrel's ops, both ways, and bytes that are no journal."""

from __future__ import annotations

import random
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Broken, Decoder, Dialect, Op, Opcode
from fjord.kestrel.reader import CURRENT, Sum
from tests.unit.kestrel import vectors
from tests.unit.kestrel.vectors import (
    ADD_MS,
    VECTORS,
    copied,
    decode,
    encoded,
    going_on,
    item,
    named,
)

every_vector = pytest.mark.parametrize("name", VECTORS)
steps = pytest.mark.parametrize("step", [0, 1, 2, 7])


def check_broken(data: bytes, offset: int, *, is_torn: bool = False, step: int = 0) -> str:
    """Ensures that bytes are damaged or torn at a place; returns the reason."""
    found, broken = decode(data, step=step)
    assert broken is not None
    assert sum(length for _, _, length in found) == offset
    assert (broken.offset, broken.is_torn) == (offset, is_torn)
    return broken.reason


# -- the vectors ----------------------------------------------------------------------------------


@pytest.mark.req("KJ-02", "KJ-03", "KJ-04", "KJ-05", "KJ-10")
@every_vector
@steps
def test_an_op_is_written_and_read_as_kestrel_has_it(name: str, step: int) -> None:
    op, dialect, text = VECTORS[name]
    data = bytes.fromhex(text)
    assert codec.encode(op, dialect) == data
    assert decode(data, step=step) == ([(op, 0, len(data))], None)
    behind = named(9, b"") if name == "STATE_DUMP" else codec.remove()
    found, broken = decode(b"\x01" + data + encoded(behind), step=step)
    assert found[:2] == [(codec.remove(), 0, 1), (op, 1, len(data))]
    assert (len(found), found[2][:2], broken) == (3, (behind, 1 + len(data)), None)


@every_vector
def test_an_op_that_is_cut_at_any_byte_is_torn(name: str) -> None:
    data = bytes.fromhex(VECTORS[name][2])
    for size in range(1, len(data)):
        check_broken(b"\x01" + data[:size], 1, is_torn=True)


def test_an_op_is_not_torn_before_the_end_is_said() -> None:
    one, data = Decoder(), bytes.fromhex(VECTORS["ADDX"][2])
    one.feed(data[:-1])
    assert (list(one.ops()), one.broken, one.wanted_end) == ([], None, 32)
    one.feed(data[-1:])
    assert [copied(placed)[0] for placed in one.ops()] == [VECTORS["ADDX"][0]]
    assert one.wanted_end == 33


# -- dialects -------------------------------------------------------------------------------------

u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
moments = st.integers(codec.ADD_MS_MIN, codec.ADD_MS_MAX - 1)
xids = i32.filter(bool)
data = st.binary(max_size=60)

OPS: dict[Opcode, st.SearchStrategy[Op]] = {
    Opcode.ADD: st.builds(lambda data, s: vectors.add(data, expiry_ms=s * 1000), data, u32),
    Opcode.REMOVE: st.just(codec.remove()),
    Opcode.ADDX: st.builds(vectors.addx, data, add_ms=i64, expiry_ms=i64),
    Opcode.REMOVE_TENTATIVE: st.just(codec.remove_tentative()),
    Opcode.SAVE_XID: st.builds(codec.save_xid, i32),
    Opcode.UNREMOVE: st.builds(codec.unremove, i32),
    Opcode.CONFIRM_REMOVE: st.builds(codec.confirm_remove, i32),
    Opcode.ADD_XID: st.builds(vectors.add_xid, i32, data, add_ms=i64, expiry_ms=i64),
    Opcode.CONTINUE: st.builds(vectors.proceed, xids, data, add_ms=moments, expiry_ms=i64),
    Opcode.REMOVE_TENTATIVE_XID: st.builds(codec.remove_tentative, xids),
    # Without open items that follow it, it can stand anywhere.
    Opcode.STATE_DUMP: st.builds(vectors.state_dump, i32, st.just(0)),
}


@pytest.mark.parametrize("dialect", Dialect)
@given(data=st.data(), step=st.integers(1, 100))
def test_ops_round_trip_in_each_dialect(dialect: Dialect, data: st.DataObject, step: int) -> None:
    kinds = st.one_of([OPS[opcode] for opcode in sorted(codec.WRITTEN[dialect])])
    made = data.draw(st.lists(kinds, max_size=12))
    pieces = [codec.encode(op, dialect) for op in made]
    found, broken = decode(b"".join(pieces), step=step)
    assert broken is None
    assert [op for op, _, _ in found] == made
    assert [length for _, _, length in found] == [len(piece) for piece in pieces]


def test_each_dialect_has_ops_of_its_own_and_refuses_those_of_the_other() -> None:
    numbers = {one: {opcode.number for opcode in codec.WRITTEN[one]} for one in Dialect}
    assert numbers == {Dialect.V24: {1, 2, 5, 6, 8, 9}, Dialect.DOC: set(range(9))}
    assert {one for written in codec.WRITTEN.values() for one in written} == set(Opcode)
    for dialect in Dialect:
        for op, _, _ in VECTORS.values():
            if op.opcode not in codec.WRITTEN[dialect]:
                with pytest.raises(ValueError, match=rf"{dialect} has no {op.opcode.name}"):
                    codec.encode(op, dialect)


TOO_LARGE = [
    *(codec.save_xid(2**31), codec.unremove(-(2**31) - 1), vectors.addx(b"", add_ms=2**63)),
    *(
        vectors.add(b"", expiry_ms=2**32 * 1000),
        vectors.state_dump(1, -1),
        vectors.state_dump(1, 2**31),
    ),
]


@pytest.mark.parametrize("op", [*TOO_LARGE, Op(Opcode.ADDX), Op(Opcode.ADD), Op(Opcode.ADD_XID, 3)])
def test_what_does_not_fit_is_refused(op: Op) -> None:
    with pytest.raises(ValueError, match=r"cannot|needs an item"):
        codec.encode(op, Dialect.DOC)


@pytest.mark.req("KJ-03", "KJ-12")
def test_the_add_of_starling_gets_the_time_of_reading() -> None:
    data = bytes.fromhex("0007000000") + (1_700_000_000).to_bytes(4, "little") + b"abc" + b"\x01"
    added = vectors.add(b"abc", expiry_ms=1_700_000_000_000, add_ms=1_600_000_000_123)
    expected = [(added, 0, 12), (codec.remove(), 12, 1)]
    assert decode(data, now_ms=1_600_000_000_123) == (expected, None)


def test_what_expires_within_a_second_does_not_become_eternal() -> None:
    written = codec.encode(vectors.add(b"", expiry_ms=1), Dialect.DOC)
    assert decode(written)[0][0][0] == vectors.add(b"", expiry_ms=1000)


# -- the two meanings of 8 ------------------------------------------------------------------------


@pytest.mark.req("KJ-11")
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "made",
    [
        *([vectors.state_dump(1, count), named(5, b"")] for count in (1, 16, 19, 2**31 - 1)),
        [vectors.state_dump(1, 0), going_on(1, b"two"), codec.remove()],
        [vectors.state_dump(1, 15)],
        # Its date begins as an ADD_XID does.
        [vectors.proceed(1, b"two", add_ms=(ADD_MS & ~0xFF) | 7), codec.remove()],
    ],
)
def test_an_8_is_told_by_what_follows_it(made: list[Op], step: int) -> None:
    found, broken = decode(encoded(*made), step=step)
    assert ([op for op, _, _ in found], broken) == (made, None)


def test_a_state_dump_at_the_end_may_as_well_be_a_torn_continue() -> None:
    check_broken(encoded(vectors.state_dump(1, 16)), 0, is_torn=True)


@pytest.mark.parametrize("add_ms", [codec.ADD_MS_MIN - 1, codec.ADD_MS_MAX, 0, -1, 2**62 + 1])
def test_an_8_with_an_impossible_date_is_damage(add_ms: int) -> None:
    check_broken(encoded(codec.remove(), vectors.proceed(1, b"two", add_ms=add_ms)), 1)


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [10, 11, 0x42, 0xFF])
def test_a_byte_that_is_no_opcode_is_damage_behind_which_nothing_is_read(number: int) -> None:
    one = Decoder()
    one.feed(bytes((0, 5, *bytes(7), 1, 1, number)))
    taken = one.ops()
    assert (len([next(taken), next(taken)]), one.broken) == (2, None)
    for _ in range(2):
        assert list(taken) == list(one.ops()) == []
        assert one.broken == Broken(11, f"{number} is no opcode", is_torn=False)
        one.feed(b"\x01\x01")
        one.end()


@pytest.mark.parametrize(
    ("head", "size"),
    [
        *(("00", size) for size in (-(2**31), -1, 0, 3)),
        *((head, size) for head in ("02", "0701000000") for size in (-(2**31), -16, 15)),
        *(("0801000000", size) for size in (-(2**31), -1, -16)),
    ],
)
def test_an_item_that_is_smaller_than_its_fields_is_damage(head: str, size: int) -> None:
    data = bytes.fromhex(head) + size.to_bytes(4, "little", signed=True)
    assert "0801" in head or str(size) in check_broken(data + bytes(100), 0)
    check_broken(data + b"\x01", 0)


@pytest.mark.parametrize("step", [0, 1, 100])
def test_the_largest_item_is_read_and_a_larger_one_is_damage(step: int) -> None:
    data = encoded(item(bytes(1000)))
    assert decode(data, item_bytes_max=1000, step=step)[1] is None
    told = Broken(0, "the size 1016 is more than an item may have", is_torn=False)
    assert decode(data, item_bytes_max=999, step=step) == ([], told)


def test_a_size_without_bytes_allocates_nothing() -> None:
    size = 60 * limits.MIB
    one = Decoder()
    one.feed(b"\x02" + size.to_bytes(4, "little"))
    tracemalloc.start()
    try:
        assert (list(one.ops()), one.wanted_end) == ([], size + 5)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_item_that_comes_in_many_pieces_is_put_together_once() -> None:
    size = 4 * limits.MIB
    data = encoded(item(bytes(size)))
    one = Decoder()
    tracemalloc.start()
    try:
        for at in range(0, len(data), 4096):
            one.feed(memoryview(data)[at : at + 4096])
            assert bool(list(one.ops())) == (at + 4096 >= len(data))
        assert tracemalloc.get_traced_memory()[1] < 2 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("op", [item(b"item"), named(3, b"item"), going_on(3, b"item")])
def test_an_item_is_found_between_other_bytes(op: Op) -> None:
    noise, data = random.Random(8).randbytes(300), encoded(op)
    assert codec.find_item(noise) is None
    assert codec.find_item(noise + data + noise) == codec.find_item(noise + data) == 300
    assert codec.find_item(noise + data + noise, 301) is None
    assert codec.find_item(noise + data[:-1]) is None


# -- the page --------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "kestrel.md").read_text()


def test_the_example_has_every_op_as_it_is_written() -> None:
    found = re.search(r"```hex\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    shown = dict(line.split(maxsplit=1) for line in found[1].splitlines())
    assert shown.keys() == {opcode.name for opcode in Opcode}
    for name, text in shown.items():
        op, dialect, known = VECTORS[name]
        assert bytes.fromhex(text) == bytes.fromhex(known) == codec.encode(op, dialect)


def test_the_page_has_the_number_of_every_op() -> None:
    rows = re.findall(r"^\| (\d) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {
        (opcode.number, opcode.name) for opcode in Opcode
    }


def test_the_page_has_sums_as_they_are_written() -> None:
    found = re.search(r"```sums\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    older = bytes.fromhex(VECTORS["ADDX"][2])
    current = older + bytes.fromhex(VECTORS["REMOVE"][2])
    known = {
        904: Sum(len(older), reader.add_to_crc(0, older)),
        CURRENT: Sum(len(current), reader.add_to_crc(0, current), "2049:1311", 10**9),
    }
    assert found[1].encode() == reader.encode_sums(known)
