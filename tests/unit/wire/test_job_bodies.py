"""Bodies of functions 48 to 63, byte by byte."""

from __future__ import annotations

import struct
from array import array

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    Bury,
    Cancel,
    Command,
    CountJobs,
    Discard,
    Extend,
    Fail,
    Find,
    Finish,
    ListenJobs,
    Next,
    Peek,
    Push,
    Refusal,
    Reschedule,
    Revive,
)
from fjord.errors import Code
from fjord.wire import Flag, Function, bodies
from tests.unit.wire.job_samples import push
from tests.unit.wire.streams import NOW_US, plain
from tests.unit.wire.test_body import head

KEYS = Strings.of([b"a", b"bc"])
KEY_COLUMN = bytes(KEYS.encode())
XIDS = struct.pack("<QQ", 7, 9)


def strings(*rows: bytes) -> bytes:
    return bytes(Strings.of(rows).encode())


def text_of(found: Command | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    return found.text


def test_jobs_are_laid_out_column_by_column() -> None:
    command = Push(
        table="tab",
        keys=KEYS,
        domains=Strings.of([b"", b"x.com"]),
        types=b"\2\1",
        values=Strings.of([b"v", b""]),
        priorities=b"\x0a\xff",
        process_at_us=[0, 5],
        expires_at_us=[9, 0],
        timestamps_us=[NOW_US, NOW_US],
    )
    body = (
        b"\0\3" + b"\0\0" + b"\0\0\0\2" + bytes(8) + b"tab" + bytes(5)
        + struct.pack("<QQ", 0, 5)
        + struct.pack("<QQ", 9, 0)
        + b"\x0a\xff" + bytes(6)
        + b"\2\1" + bytes(6)
        + b"\0\0\0\0\1\0\0\0\3\0\0\0" + bytes(4) + b"abc" + bytes(5)
        + b"\0\0\0\0\0\0\0\0\5\0\0\0" + bytes(4) + b"x.com" + bytes(3)
        + b"\0\0\0\0\1\0\0\0\1\0\0\0" + bytes(4) + b"v" + bytes(7)
    )  # fmt: skip
    assert bodies.encode_body(command) == (Function.PUSH_MANY, 0, NOW_US, body)


def test_one_job_is_laid_out_as_many_are() -> None:
    """There is a short way for one row; what it writes is what the long way would."""
    one, two = (push("t", [b"key"] * count, relative=True) for count in (1, 2))
    _, flags, _, body = bodies.encode_body(one)
    assert flags == Flag.TTL
    numbers = struct.pack("<Q", 1_000) + struct.pack("<Q", 2_000) + b"\xff" + bytes(7) + bytes(8)
    assert body == head(b"t", 1) + numbers + strings(b"key") + strings(b"") + strings(b"")
    assert len(bodies.encode_body(two)[3]) > len(body)


@pytest.mark.req("SJ-05")
@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_the_timestamp_of_the_message_is_the_insertion_date_of_all_its_jobs(count: int) -> None:
    command = push("t", [b"k"] * count)
    function, flags, timestamp_us, body = bodies.encode_body(command)
    assert timestamp_us == NOW_US
    found = bodies.decode_body(function, flags, 5, body)
    assert isinstance(found, Push)
    assert list(found.timestamps_us) == [5] * count


def test_a_push_of_many_makes_no_object_for_each_of_them() -> None:
    command = push("t", [b"http://example.com/%d" % row for row in range(10_000)])
    function, flags, timestamp_us, body = bodies.encode_body(command)
    found = bodies.decode_body(function, flags, timestamp_us, body)
    assert isinstance(found, Push)
    assert isinstance(found.process_at_us, memoryview)  # into the message, as are all the others
    assert isinstance(found.expires_at_us, memoryview)
    for column in (found.keys, found.domains, found.values):
        assert isinstance(column.data, memoryview)
        assert isinstance(column.offsets, memoryview)
    assert plain(found) == plain(command)


def test_a_next_says_how_many_for_how_long_and_how_long_it_waits() -> None:
    command = Next(table="t", count=9, domain=b"x.com", lease_us=5, wait_us=6, done=True)
    body = head(b"t", 1, 9) + struct.pack(">QQ", 5, 6) + strings(b"x.com")
    assert bodies.encode_body(command) == (Function.NEXT_MANY, Flag.OVERWRITE, 0, body)


def test_leases_are_named_by_their_xids() -> None:
    for command, function, argument in (
        (Finish(table="t", xids=(7, 9)), Function.FINISH, 0),
        (Extend(table="t", xids=[7, 9], lease_us=5), Function.EXTEND, 5),
    ):
        expected = (function, 0, 0, head(b"t", 2, argument) + XIDS)
        assert bodies.encode_body(command) == expected


def test_dead_jobs_are_named_by_their_rows() -> None:
    for command, function, argument in (
        (Discard(table="t", rows=(7, 9)), Function.DISCARD, 0),
        (Revive(table="t", rows=array("Q", [7, 9]), delay_us=5), Function.REVIVE, 5),
    ):
        expected = (function, 0, 0, head(b"t", 2, argument) + XIDS)
        assert bodies.encode_body(command) == expected


def test_a_reason_stands_before_the_xids_and_before_the_keys() -> None:
    reason = struct.pack(">I4x", 9) + b"it broke!" + bytes(7)
    fail = bodies.encode_body(Fail(table="t", xids=(7, 9), delay_us=5, reason=b"it broke!"))
    assert fail == (Function.FAIL, Flag.COUNT, 0, head(b"t", 2, 5) + reason + XIDS)
    bury = bodies.encode_body(Bury(table="t", keys=KEYS, reason=b"it broke!"))
    assert bury == (Function.BURY, 0, 0, head(b"t", 2) + reason + KEY_COLUMN)


@pytest.mark.parametrize("function", [Function.FAIL, Function.BURY])
def test_a_reason_outside_the_body_is_refused(function: Function) -> None:
    for size in (1, 2**32 - 1):
        body = head(b"t", 0) + struct.pack(">I4x", size)
        assert text_of(bodies.decode_body(function, 0, 0, body)) == "the reason is cut short"


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (push("t", [b"k"]), 0),
        (push("t", [b"k"], relative=True), Flag.TTL),
        (Next(table="t"), 0),
        (Next(table="t", done=True), Flag.OVERWRITE),
        (Fail(table="t", xids=(7,)), Flag.COUNT),
        (Fail(table="t", xids=(7,), counts=False), 0),
        (Fail(table="t", xids=(7,), counts=False, buries=True), Flag.OVERWRITE),
        (Reschedule(table="t", keys=KEYS), 0),
        (Reschedule(table="t", keys=KEYS, priority=0), Flag.OVERWRITE),
        (Reschedule(table="t", keys=KEYS, process_at_us=0), Flag.UPDATE_TIMEOUT),
        (
            Reschedule(table="t", keys=KEYS, process_at_us=0, relative=True),
            Flag.UPDATE_TIMEOUT | Flag.TTL,
        ),
    ],
)
def test_flags_say_the_options(command: Command, flags: int) -> None:
    assert bodies.encode_body(command)[1] == flags


def test_keys_alone_stand_behind_the_head() -> None:
    for command, function in (
        (Cancel(table="t", keys=KEYS), Function.CANCEL),
        (Find(table="t", keys=KEYS), Function.FIND),
    ):
        assert bodies.encode_body(command) == (function, 0, 0, head(b"t", 2) + KEY_COLUMN)


def test_a_new_date_is_the_argument_and_a_new_priority_a_field() -> None:
    command = Reschedule(table="t", keys=KEYS, priority=200, process_at_us=5)
    body = head(b"t", 2, 5) + struct.pack(">I4x", 200) + KEY_COLUMN
    flags = Flag.OVERWRITE | Flag.UPDATE_TIMEOUT
    assert bodies.encode_body(command) == (Function.RESCHEDULE, flags, 0, body)


@pytest.mark.parametrize(
    ("argument", "priority", "flags", "text"),
    [
        (5, 0, Flag.OVERWRITE, "set bit 4"),
        (0, 5, Flag.UPDATE_TIMEOUT, "set bit 5"),
        (5, 5, 0, "set bit 4"),
    ],
)
def test_a_change_that_is_not_announced_is_refused(
    argument: int, priority: int, flags: int, text: str
) -> None:
    body = head(b"t", 2, argument) + struct.pack(">I4x", priority) + KEY_COLUMN
    assert text in text_of(bodies.decode_body(Function.RESCHEDULE, flags, 0, body))


def test_a_look_names_a_state_and_where_to_begin() -> None:
    command = Peek(table="t", state=2, start=b"from", count=9, domain=b"x.com")
    body = head(b"t", 1, 9) + struct.pack(">I4x", 2) + strings(b"from") + strings(b"x.com")
    assert bodies.encode_body(command) == (Function.PEEK, 0, 0, body)


@pytest.mark.parametrize(
    "command",
    [
        Peek(table="t", state=0),
        Peek(table="t", state=2**32 - 1),
        Reschedule(table="t", keys=KEYS, priority=256),
        Reschedule(table="t", keys=KEYS, priority=2**32 - 1),
    ],
)
def test_a_state_or_a_priority_that_is_none_is_left_to_the_table_to_refuse(
    command: Command,
) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    assert plain(bodies.decode_body(function, flags, timestamp_us, body)) == plain(command)


def test_a_count_names_a_domain_and_a_listening_only_its_table() -> None:
    count = bodies.encode_body(CountJobs(table="t", domain=b"x.com"))
    assert count == (Function.COUNT_JOBS, 0, 0, head(b"t", 1) + strings(b"x.com"))
    more = bodies.encode_body(CountJobs(table="t", generations=True))
    assert more == (Function.COUNT_JOBS, 0, 0, head(b"t", 1, 1) + strings(b""))
    assert bodies.encode_body(ListenJobs(table="t")) == (Function.LISTEN_JOBS, 0, 0, head(b"t", 0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 100])
def test_one_domain_is_asked_for_and_no_more(size: int) -> None:
    column = strings(*[b"d"] * size)
    for function, fields in (
        (Function.NEXT_MANY, bytes(16)),
        (Function.COUNT_JOBS, b""),
    ):
        found = bodies.decode_body(function, 0, 0, head(b"t", size) + fields + column)
        assert isinstance(found, Refusal) is (size != 1)


def test_rows_of_numbers_are_bounded() -> None:
    most = array("Q", range(limits.BATCH_ROWS_MAX))
    function, flags, timestamp_us, body = bodies.encode_body(Finish(table="t", xids=most))
    found = bodies.decode_body(function, flags, timestamp_us, body)
    assert isinstance(found, Finish)
    assert len(found.xids) == limits.BATCH_ROWS_MAX
    more = bodies.encode_body(Finish(table="t", xids=[*most, 1]))[3]
    assert str(limits.BATCH_ROWS_MAX) in text_of(bodies.decode_body(function, 0, 0, more))
