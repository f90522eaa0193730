"""Ops: every opcode round trips, and nothing else is an op."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import columns, ops
from fjord.columns import Strings
from fjord.ops import Column, Op, Opcode


def numbers(*found: int) -> array[int]:
    return array("Q", found)


def kv_set(rows: list[tuple[bytes, bytes]]) -> Op:
    count = len(rows)
    none = array("Q", [0] * count)
    return Op(
        Opcode.KV_SET,
        7,
        count,
        (
            array("Q", range(100, 100 + count)),
            none,
            none,
            array("Q", range(50, 50 + count)),
            none,
            array("Q", range(count)),
            array("Q", range(count)),
            bytes([1] * count),
            Strings.of([key for key, _ in rows]),
            Strings.of([value for _, value in rows]),
        ),
    )


ONE = numbers(1)
TWO = numbers(5, 6)
KEYS = Strings.of([b"k", b"ll"])
SAMPLES = [
    Op(Opcode.TAKEOVER, 0, 1, (numbers(2**64 - 1), Strings.of([b"u" * 16]))),
    Op(Opcode.CREATE_TABLE, 3, 1, (b"\1", Strings.of([b"name"]), Strings.of([b""]))),
    Op(Opcode.DROP_TABLE, 3, 1, (Strings.of([b"name"]),)),
    Op(Opcode.FORGET_TABLE, 3, 1, (Strings.of([b"name"]),)),
    Op(Opcode.PACKED, 0, 1, (ONE, ONE)),
    Op(Opcode.LOST, 0, 100_000, ()),
    Op(Opcode.ANSWERED, 0, 1, (ONE, ONE, Strings.of([b"c" * 16]), Strings.of([b"answer"]))),
    Op(Opcode.FORGET_CLIENT, 0, 2, (TWO, b"\0\1", Strings.of([b"c" * 16, b"d" * 16]))),
    Op(Opcode.KV_INSERT, 9, 2, (TWO, b"\1\2", KEYS, Strings.of([b"", b"value"]))),
    kv_set([(b"key", b"value")]),
    kv_set([(b"a", b""), (b"bb", b"x" * 9), (b"ccc", b"yy")]),
    Op(Opcode.KV_MOVE, 9, 2, (*[TWO] * 9, b"\1\xff", KEYS, Strings.of([b"value", b""]))),
    Op(Opcode.KV_DELETE, 9, 2, (TWO, TWO, TWO, TWO, KEYS)),
    Op(Opcode.KV_EXPIRE, 9, 2, (*[TWO] * 5, KEYS)),
    Op(Opcode.KV_MARK, 9, 2, (TWO, TWO, TWO, TWO, KEYS)),
    Op(Opcode.KV_UNSCHEDULE, 9, 2, (TWO, KEYS)),
    Op(Opcode.KV_PURGE, 9, 2, (TWO, TWO, KEYS)),
    Op(Opcode.KV_LINK, 9, 2, (TWO, TWO, TWO, KEYS, Strings.of([b"t", b"target"]))),
    Op(Opcode.JOB_ADD, 9, 2, (*[TWO] * 5, *[b"\1\2"] * 3, *[KEYS] * 3)),
    Op(Opcode.JOB_REPLACE, 9, 2, (*[TWO] * 9, *[b"\1\2"] * 3, *[KEYS] * 4)),
    Op(Opcode.JOB_MOVE, 9, 2, (*[TWO] * 2, *[b"\1\2"] * 1, *[KEYS] * 3)),
    Op(Opcode.JOB_TAKE, 9, 2, (*[TWO] * 4, *[KEYS] * 1)),
    Op(Opcode.JOB_DONE, 9, 2, (*[TWO] * 5,)),
    Op(Opcode.JOB_TOUCH, 9, 2, (*[TWO] * 5, *[KEYS] * 1)),
    Op(Opcode.JOB_WAIT, 9, 2, (*[TWO] * 4, *[b"\1\2"] * 4, *[KEYS] * 2)),
    Op(Opcode.JOB_BURY, 9, 2, (*[TWO] * 4, *[b"\1\2"] * 3, *[KEYS] * 2)),
    Op(Opcode.JOB_REMOVE, 9, 2, (*[TWO] * 6, *[b"\1\2"] * 2, *[KEYS] * 2)),
    Op(Opcode.JOB_LEASE, 9, 2, (*[TWO] * 3,)),
    Op(Opcode.JOB_UNLEASE, 9, 2, (*[TWO] * 2,)),
    Op(
        Opcode.STREAM_APPEND,
        9,
        2,
        (
            b"\1\2",
            KEYS,
            KEYS,
        ),
    ),
    Op(
        Opcode.STREAM_PUT,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            b"\1\2",
            KEYS,
            KEYS,
        ),
    ),
    Op(
        Opcode.STREAM_ERASE,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            TWO,
            KEYS,
        ),
    ),
    Op(
        Opcode.STREAM_MOVE,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            TWO,
            b"\1\2",
            KEYS,
            KEYS,
        ),
    ),
    Op(
        Opcode.STREAM_PURGE,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            KEYS,
        ),
    ),
    Op(
        Opcode.STREAM_FORGET,
        9,
        2,
        (
            TWO,
            TWO,
        ),
    ),
    Op(
        Opcode.SUBSCRIBER,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            b"\1\2",
            KEYS,
        ),
    ),
    Op(Opcode.UNSUBSCRIBE, 9, 2, (KEYS,)),
    Op(Opcode.SNAPSHOT, 9, 2, (TWO, TWO, TWO, TWO, b"\1\2")),
    Op(
        Opcode.SNAPSHOT_END,
        9,
        2,
        (
            TWO,
            TWO,
        ),
    ),
    Op(
        Opcode.VERSION,
        9,
        2,
        (
            TWO,
            b"\1\2",
            KEYS,
            KEYS,
        ),
    ),
    Op(
        Opcode.VERSION_DROP,
        9,
        2,
        (
            TWO,
            b"\1\2",
            KEYS,
        ),
    ),
    Op(
        Opcode.HISTORY,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            TWO,
        ),
    ),
    Op(
        Opcode.BLOCK,
        9,
        2,
        (
            TWO,
            TWO,
            TWO,
            TWO,
            TWO,
            TWO,
            TWO,
            b"\1\2",
            KEYS,
        ),
    ),
    Op(Opcode.BLOCK_GONE, 9, 2, (TWO,)),
    Op(Opcode.STAGE, 9, 1, (ONE, Strings.of([b"op"]))),
    Op(Opcode.STAGE_DECIDED, 9, 2, (TWO,) * 7),
    Op(Opcode.STAGE_GONE, 9, 2, (TWO, TWO)),
    Op(Opcode.STREAM_COMMIT, 9, 1, (ONE,) * 6),
    Op(Opcode.STREAM_COMMIT, 9, 100_000, (ONE,) * 6),
    Op(Opcode.WRITER, 9, 2, (TWO, TWO, KEYS, KEYS)),
    Op(Opcode.WRITER_GONE, 9, 2, (KEYS,)),
    Op(Opcode.STREAM_PUT_AT, 9, 2, (*[TWO] * 4, b"\1\2", KEYS, KEYS)),
    Op(Opcode.GENERATION, 9, 2, (TWO,) * 5),
    Op(Opcode.GENERATION_GONE, 9, 2, (TWO,)),
]


@st.composite
def any_op(draw: st.DrawFn) -> Op:
    opcode = draw(st.sampled_from(Opcode))
    rows = draw(st.integers(1, 5))
    strategies: dict[str, st.SearchStrategy[Column]] = {
        ops.U8: st.binary(min_size=rows, max_size=rows),
        ops.U64: st.lists(st.integers(0, 2**64 - 1), min_size=rows, max_size=rows),
        ops.ONCE: st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=1),
        ops.STRINGS: st.lists(st.binary(max_size=12), min_size=rows, max_size=rows).map(Strings.of),
    }
    found = tuple(draw(strategies[kind]) for _, kind in opcode.columns)
    return Op(opcode, draw(st.integers(0, 2**32 - 1)), rows, found)


def plain(op: Op) -> tuple[Opcode, int, int, list[list[int] | list[bytes]]]:
    """An op in types that compare by content."""
    return op.opcode, op.table, op.rows, [list(column) for column in op.columns]


def test_every_opcode_has_columns_and_none_is_0() -> None:
    assert 0 not in set(Opcode)
    for layout in (opcode.columns for opcode in Opcode):
        assert {kind for _, kind in layout} <= {ops.U8, ops.U64, ops.STRINGS, ops.ONCE}


def test_there_is_a_sample_of_every_opcode() -> None:
    assert {op.opcode for op in SAMPLES} == set(Opcode)


def test_opcodes_keep_their_numbers() -> None:
    assert {code.name: code.value for code in Opcode} == {
        "TAKEOVER": 1,
        "CREATE_TABLE": 2,
        "DROP_TABLE": 3,
        "FORGET_TABLE": 4,
        "PACKED": 5,
        "LOST": 6,
        "ANSWERED": 7,
        "FORGET_CLIENT": 8,
        "KV_INSERT": 16,
        "KV_SET": 17,
        "KV_MOVE": 18,
        "KV_DELETE": 19,
        "KV_EXPIRE": 20,
        "KV_MARK": 21,
        "KV_UNSCHEDULE": 22,
        "KV_PURGE": 23,
        "KV_LINK": 24,
        "JOB_ADD": 32,
        "JOB_REPLACE": 33,
        "JOB_MOVE": 34,
        "JOB_TAKE": 35,
        "JOB_DONE": 36,
        "JOB_TOUCH": 37,
        "JOB_WAIT": 38,
        "JOB_BURY": 39,
        "JOB_REMOVE": 40,
        "JOB_LEASE": 41,
        "JOB_UNLEASE": 42,
        "STREAM_APPEND": 48,
        "STREAM_PUT": 49,
        "STREAM_ERASE": 50,
        "STREAM_MOVE": 51,
        "STREAM_PURGE": 52,
        "STREAM_FORGET": 53,
        "SUBSCRIBER": 54,
        "UNSUBSCRIBE": 55,
        "SNAPSHOT": 56,
        "SNAPSHOT_END": 57,
        "VERSION": 58,
        "VERSION_DROP": 59,
        "HISTORY": 60,
        "BLOCK": 61,
        "BLOCK_GONE": 62,
        "STAGE": 64,
        "STAGE_DECIDED": 65,
        "STAGE_GONE": 66,
        "STREAM_COMMIT": 67,
        "WRITER": 68,
        "WRITER_GONE": 69,
        "STREAM_PUT_AT": 70,
        "GENERATION": 71,
        "GENERATION_GONE": 72,
    }


# u = u64, b = u8, s = strings, o = a u64 once.
LAYOUTS = {
    Opcode.TAKEOVER: "u:seq s:uuid",
    Opcode.CREATE_TABLE: "b:kind s:name s:settings",
    Opcode.DROP_TABLE: "s:name",
    Opcode.FORGET_TABLE: "s:name",
    Opcode.PACKED: "u:segment u:seq",
    Opcode.LOST: "",
    Opcode.ANSWERED: "u:at_us u:number s:client s:answer",
    Opcode.FORGET_CLIENT: "u:at_us b:is_gone s:client",
    Opcode.KV_INSERT: "u:timestamp_us b:type s:key s:value",
    Opcode.KV_SET: "u:timestamp_us u:expires_at_us u:ttl_us u:created_us u:links u:previous "
    "u:freed b:type s:key s:value",
    Opcode.KV_MOVE: "u:row u:timestamp_us u:expires_at_us u:ttl_us u:created_us u:links "
    "u:accessed_us u:worked_until_us u:previous b:type s:key s:value",
    Opcode.KV_DELETE: "u:timestamp_us u:buried_us u:previous u:freed s:key",
    Opcode.KV_EXPIRE: "u:timestamp_us u:buried_us u:expires_at_us u:previous u:freed s:key",
    Opcode.KV_MARK: "u:row u:accessed_us u:expires_at_us u:worked_until_us s:key",
    Opcode.KV_UNSCHEDULE: "u:expires_at_us s:key",
    Opcode.KV_PURGE: "u:previous u:freed s:key",
    Opcode.KV_LINK: "u:timestamp_us u:previous u:freed s:key s:target",
    Opcode.JOB_ADD: "u:inserted_us u:updated_us u:process_at_us u:expires_at_us u:lane "
    "b:priority b:probe b:type s:key s:domain s:value",
    Opcode.JOB_REPLACE: "u:row u:inserted_us u:updated_us u:process_at_us u:expires_at_us "
    "u:lane u:was_expires_at_us u:previous u:freed b:priority b:probe "
    "b:type s:was s:key s:domain s:value",
    Opcode.JOB_MOVE: "u:at u:previous b:state s:head s:image s:value",
    Opcode.JOB_TAKE: "u:deadline_us u:lease_us u:started_us u:row s:image",
    Opcode.JOB_DONE: "u:xid u:lease u:row u:previous u:freed",
    Opcode.JOB_TOUCH: "u:xid u:lease u:deadline_us u:lease_us u:started_us s:image",
    Opcode.JOB_WAIT: "u:at u:lease u:row u:process_at_us b:state b:how b:priority b:timeouts "
    "s:was s:image",
    Opcode.JOB_BURY: "u:at u:lease u:row u:died_us b:state b:how b:timeouts s:image s:reason",
    Opcode.JOB_REMOVE: "u:at u:lease u:row u:expires_at_us u:previous u:freed b:state b:how "
    "s:place s:slot",
    Opcode.JOB_LEASE: "u:deadline_us u:xid u:count",
    Opcode.JOB_UNLEASE: "u:deadline_us u:xid",
    Opcode.STREAM_APPEND: "b:type s:key s:value",
    Opcode.STREAM_PUT: "u:was u:previous u:freed b:type s:key s:value",
    Opcode.STREAM_ERASE: "u:buried_us u:was u:previous u:freed s:key",
    Opcode.STREAM_MOVE: "u:row u:at_us u:buried_us u:previous b:type s:key s:value",
    Opcode.STREAM_PURGE: "u:row u:previous u:freed s:key",
    Opcode.STREAM_FORGET: "u:last u:freed",
    Opcode.SUBSCRIBER: "u:position u:epoch u:moved_us b:is_asleep s:name",
    Opcode.UNSUBSCRIBE: "s:name",
    Opcode.SNAPSHOT: "u:snapshot u:deadline_us u:wall_us u:largest b:is_pass",
    Opcode.SNAPSHOT_END: "u:deadline_us u:snapshot",
    Opcode.VERSION: "u:snapshot b:tree s:key s:image",
    Opcode.VERSION_DROP: "u:snapshot b:tree s:key",
    Opcode.HISTORY: "u:sealed u:forgotten u:sealing u:tag",
    Opcode.BLOCK: "u:first u:last u:rows u:bytes u:min_us u:max_us u:crc b:is_retired s:name",
    Opcode.BLOCK_GONE: "u:last",
    Opcode.STAGE: "u:at_us s:op",
    Opcode.STAGE_DECIDED: "u:stage u:at_us u:rows u:segment u:offset u:size u:crc",
    Opcode.STAGE_GONE: "u:stage u:freed",
    Opcode.STREAM_COMMIT: "o:stage o:segment o:offset o:size o:crc o:freed",
    Opcode.WRITER: "u:batch u:at_us s:name s:stages",
    Opcode.WRITER_GONE: "s:name",
    Opcode.STREAM_PUT_AT: "u:timestamp_us u:was u:previous u:freed b:type s:key s:value",
    Opcode.GENERATION: "u:generation u:number u:began_us u:first_row u:schema",
    Opcode.GENERATION_GONE: "u:generation",
}
LETTERS = {ops.U64: "u", ops.U8: "b", ops.STRINGS: "s", ops.ONCE: "o"}


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_opcodes_keep_their_columns(opcode: Opcode) -> None:
    found = [f"{LETTERS[kind]}:{name}" for name, kind in opcode.columns]
    assert found == LAYOUTS[opcode].split()


def test_an_op_is_laid_out_as_its_docstring_says() -> None:
    op = Op(Opcode.TAKEOVER, 0x01020304, 1, ((5,), Strings.of([b"uuid"])))
    data, payload = ops.encode(op)
    assert data == (
        b"\x01\0\0\0"  # opcode, flags, reserved
        b"\x04\x03\x02\x01"  # table
        b"\x01\0\0\0"  # rows
        b"\x28\0\0\0"  # length
        b"\x05\0\0\0\0\0\0\0"  # seq
        b"\0\0\0\0\x04\0\0\0"  # offsets
        b"uuid\0\0\0\0"
    )
    assert payload == 32


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.opcode.name}-{op.rows}")
def test_each_sample_round_trips_and_is_a_multiple_of_8(op: Op) -> None:
    data, payload = ops.encode(op)
    assert len(data) % 8 == 0
    for before, after in ((b"", b""), (b"\xee" * 8, b"\xdd" * 8)):
        view = memoryview(before + data + after)
        decoded, found_payload, end = ops.decode(view, len(before))
        assert plain(decoded) == plain(op)
        assert found_payload == len(before) + payload
        assert end == len(before) + len(data)


@given(any_op())
def test_decode_of_encode_is_the_same_op(op: Op) -> None:
    data, payload = ops.encode(op)
    decoded, found_payload, end = ops.decode(memoryview(data), 0)
    assert plain(decoded) == plain(op)
    assert (found_payload, end) == (payload, len(data))
    assert ops.encode(decoded) == (data, payload)


@given(any_op())
def test_the_payload_is_where_the_last_column_has_its_bytes(op: Op) -> None:
    data, payload = ops.encode(op)
    last = op.columns[-1] if op.columns else None
    if isinstance(last, Strings):
        assert data[payload : payload + len(last.data)] == bytes(last.data)
    else:
        assert payload == len(data)


def test_a_column_is_found_by_its_name() -> None:
    op = kv_set([(b"k", b"v")])
    assert op.column("key") == Strings.of([b"k"])
    assert op.column("type") == b"\1"
    with pytest.raises(KeyError, match="colour"):
        op.column("colour")


def test_an_op_with_a_column_too_few_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="KV_DELETE has 5 columns"):
        ops.encode(Op(Opcode.KV_DELETE, 1, 1, (ONE, ONE)))


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.opcode.name}-{op.rows}")
def test_an_op_that_is_cut_anywhere_is_refused(op: Op) -> None:
    data, _ = ops.encode(op)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"op is cut short|header of an op is wrong"):
            ops.decode(memoryview(data)[:size], 0)


@pytest.mark.parametrize(
    ("offset", "byte", "reason"),
    [
        (0, 0, "0 is not a valid Opcode"),
        (0, 255, "255 is not a valid Opcode"),
        (1, 1, "header of an op is wrong"),  # flags
        (2, 1, "header of an op is wrong"),  # reserved
        (3, 1, "header of an op is wrong"),
        (8, 0, "header of an op is wrong"),  # no rows
        (8, 2, "cut short|ascend"),  # more rows than columns hold
        (11, 255, "cut short"),  # 4 billion rows
        (12, 8, "header of an op is wrong"),  # shorter than its own header
        (12, 255, "header of an op is wrong"),  # longer than the bytes
    ],
)
def test_a_header_that_is_wrong_is_refused(offset: int, byte: int, reason: str) -> None:
    data = bytearray(ops.encode(SAMPLES[0])[0])
    data[offset] = byte
    with pytest.raises(ValueError, match=reason):
        ops.decode(memoryview(bytes(data)), 0)


def test_an_op_longer_than_its_columns_is_refused() -> None:
    data, _ = ops.encode(SAMPLES[0])
    longer = bytearray(data + bytes(8))
    longer[12] += 8
    with pytest.raises(ValueError, match="longer than its columns"):
        ops.decode(memoryview(bytes(longer)), 0)


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_with_a_value_error_or_are_an_op(data: bytes) -> None:
    try:
        op, _, end = ops.decode(memoryview(data), 0)
    except ValueError:
        return
    again, _ = ops.encode(op)
    assert len(again) == end


def test_zeroed_bytes_are_never_an_op() -> None:
    with pytest.raises(ValueError, match="header"):
        ops.decode(memoryview(bytes(64)), 0)


def test_the_header_keeps_columns_aligned() -> None:
    assert ops.HEADER.size == columns.aligned(ops.HEADER.size) == 16
