"""Numbers, flags and headers of FJ version 1."""

from __future__ import annotations

import pytest

from fjord.wire.functions import (
    BODY_LENGTH,
    FLAG_NAMES,
    FLAGS,
    FUNCTIONS,
    LAST_SEED_FUNCTION,
    MAGIC_REPLY,
    MAGIC_REQUEST,
    QUERY_BITS,
    REPLY,
    REQUEST,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
    flag_names,
    refused_flag,
    unknown_flag,
)


@pytest.mark.req("FJ-34", "FJ-35")
def test_the_seeds_functions_have_the_seeds_numbers() -> None:
    assert {function.name: function.value for function in Function if function <= 16} == {
        "NOP": 0,
        "QUIT": 1,
        "SET": 2,
        "GET": 3,
        "DELETE": 4,
        "ADD": 5,
        "NOT": 6,
        "TRUNCATE": 7,
        "LOCK": 8,
        "UNLOCK": 9,
        "RENAME": 10,
        "NEXT": 11,
        "DONE": 12,
        "TOUCH": 13,
        "PING": 14,
        "LISTEN": 15,
        "CHANGE": 16,
    }


def test_functions_with_a_body_come_after_the_seeds() -> None:
    assert LAST_SEED_FUNCTION == 16
    assert {function.name: function.value for function in Function if function > 16} == {
        "HELLO": 17,
        "USE": 18,
        "BATCH": 19,
        "TABLES": 20,
        "CREATE_TABLE": 21,
        "DROP_TABLE": 22,
        "STATS": 23,
        "SET_MANY": 32,
        "GET_MANY": 33,
        "DELETE_MANY": 34,
        "TOUCH_MANY": 35,
        "MODIFY": 36,
        "RENAME_KEY": 37,
        "LOCK_MANY": 38,
        "UNLOCK_MANY": 39,
        "RANGE": 40,
        "LISTEN_MANY": 41,
        "UNLISTEN": 42,
        "PUSH_MANY": 48,
        "NEXT_MANY": 49,
        "FINISH": 50,
        "EXTEND": 51,
        "FAIL": 52,
        "CANCEL": 53,
        "RESCHEDULE": 54,
        "BURY": 55,
        "REVIVE": 56,
        "DISCARD": 57,
        "PEEK": 58,
        "FIND": 59,
        "COUNT_JOBS": 60,
        "LISTEN_JOBS": 61,
        "SCAN": 64,
        "APPEND": 65,
        "ERASE": 66,
        "READ": 67,
        "SUBSCRIBE": 68,
        "ACKNOWLEDGE": 69,
        "SEEK": 70,
        "REST": 71,
        "UNSUBSCRIBE": 72,
        "SUBSCRIBERS": 73,
        "LAG": 74,
        "OPEN_SNAPSHOT": 75,
        "CLOSE_SNAPSHOT": 76,
        "AS_OF": 77,
        "BLOCKS": 78,
        "SEAL": 79,
        "SPAN": 80,
        "STAGE": 81,
        "COMMIT": 82,
        "WRITER": 83,
        "REPLACE_BLOCKS": 84,
        "ADVANCE": 85,
    }


@pytest.mark.req("FJ-37")
def test_the_flags_have_the_seeds_bits() -> None:
    expected = {
        0: Flag.KEY_16,
        1: Flag.VALUE_8,
        2: Flag.VALUE_16,
        3: Flag.TIMEOUT,
        4: Flag.UPDATE_TIMEOUT,
        5: Flag.OVERWRITE,
        6: Flag.WORKED_ON,
        7: Flag.QUERY_RANGE,
        8: Flag.QUERY_REGEX,
        9: Flag.PERSIST,
        10: Flag.DATA,
        11: Flag.LISTEN,
        12: Flag.PERSIST_SYNONYM,
        13: Flag.COUNT,
        14: Flag.TTL,
        15: Flag.BODY,
    }
    assert {bit: 1 << bit for bit in expected} == expected
    assert VALUE_BITS == 0b110


def test_every_bit_has_one_name() -> None:
    assert sorted(FLAG_NAMES) == [1 << bit for bit in range(16)]
    assert len(set(FLAG_NAMES.values())) == 16


def test_every_function_says_which_flags_it_knows() -> None:
    assert set(FLAGS) == set(Function)
    assert set(FUNCTIONS) == set(Function)
    assert all(FUNCTIONS[function] is function for function in Function)
    assert not any(known & Flag.BODY for known in FLAGS.values())  # replies only


@pytest.mark.parametrize("function", Function)
def test_the_lowest_flag_that_a_function_does_not_know_is_named(function: Function) -> None:
    assert unknown_flag(function, FLAGS[function]) == ""
    unknown = ~FLAGS[function] & ~VALUE_BITS & 0xFFFF
    bit = (unknown & -unknown).bit_length() - 1
    assert unknown_flag(function, unknown) == (
        f"bit {bit} ({FLAG_NAMES[1 << bit]}) is not known to {function.name}"
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (0, []),
        (Flag.VALUE_8, ["VALUE_8"]),
        (Flag.VALUE_16, ["VALUE_16"]),
        (VALUE_BITS, ["VALUE_32"]),
        (Flag.QUERY_RANGE, ["QUERY_RANGE"]),
        (Flag.QUERY_REGEX, ["QUERY_REGEX"]),
        (QUERY_BITS, ["QUERY_CURSOR"]),
        (
            Flag.KEY_16 | VALUE_BITS | Flag.TIMEOUT | QUERY_BITS | Flag.PERSIST | Flag.BODY,
            ["KEY_16", "VALUE_32", "TIMEOUT", "QUERY_CURSOR", "PERSIST", "BODY"],
        ),
    ],
)
def test_two_bits_that_are_one_number_have_one_name(flags: int, expected: list[str]) -> None:
    assert flag_names(flags) == expected


def test_two_bits_that_are_one_number_are_refused_together() -> None:
    expected = "bits 1-2 (VALUE_32) are not known to GET"
    assert unknown_flag(Function.GET, VALUE_BITS | Flag.BODY) == expected
    expected = "bits 7-8 (QUERY_CURSOR) are not known to SET"
    assert unknown_flag(Function.SET, QUERY_BITS) == expected
    assert unknown_flag(Function.SET, Flag.QUERY_REGEX) == (
        "bit 8 (QUERY_REGEX) is not known to SET"
    )
    assert refused_flag(Flag.LISTEN | Flag.TTL, "it") == "bit 11 (LISTEN) is not known to it"


@pytest.mark.req("FJ-36")
def test_a_request_header_has_18_big_endian_bytes() -> None:
    assert (MAGIC_REQUEST, VERSION) == (b"FJ", 1)
    header = REQUEST.pack(MAGIC_REQUEST, VERSION, 2, 0x0304, 0x0506, 0x0708090A0B0C0D0E)
    assert header == bytes.fromhex("464a 0001 0002 0304 0506 0708090a0b0c0d0e")


def test_a_reply_header_has_16_big_endian_bytes() -> None:
    header = REPLY.pack(MAGIC_REPLY, VERSION, 0x0304, 0x0506, 0x0708090A0B0C0D0E)
    assert header == bytes.fromhex("4a52 0001 0304 0506 0708090a0b0c0d0e")


def test_a_body_length_has_4_big_endian_bytes() -> None:
    assert BODY_LENGTH.pack(0x01020304) == bytes.fromhex("01020304")
