"""Bodies of commands and replies: every one there and back, and refused when it is broken."""

from __future__ import annotations

import struct
import subprocess
import sys
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings, repeat
from fjord.commands import (
    FUNCTIONS,
    KINDS,
    REVISION,
    Acknowledge,
    Acted,
    Append,
    AsOf,
    Batch,
    Change,
    Command,
    Delete,
    Done,
    Fail,
    Finish,
    Flag,
    Get,
    Hello,
    InBatch,
    Lag,
    Messages,
    Modify,
    Next,
    Nop,
    Push,
    Read,
    Refusal,
    Replies,
    Reply,
    Reschedule,
    Rest,
    Row,
    Scan,
    Set,
    Span,
    Stage,
    Taken,
    Touch,
    codec,
)
from fjord.commands.layout import NAME
from fjord.errors import Code
from fjord.wire.explain import explain
from tests.unit.wire.history_samples import replacing
from tests.unit.wire.job_samples import ACTED_ON_SOME, LATER, NOTHING, REVIVED_SOME, push, taken
from tests.unit.wire.samples import (
    COMMANDS,
    INNER,
    LONG,
    ONE_ENTRY,
    REPLIES,
    SHORT,
    TOKEN,
    modify,
    names_of,
)
from tests.unit.wire.stream_samples import LARGEST, append, messages
from tests.unit.wire.streams import (
    MASTER,
    NOW_US,
    blob,
    body_of,
    delete_many,
    get_many,
    head,
    inner,
    plain,
    reply_bytes,
    set_many,
    strings,
)

ROOT = Path(__file__).parents[3]
ALL = [Nop(), *COMMANDS]
SINGLE = [one for one in ALL if type(one).row.holds is None]
each_command = pytest.mark.parametrize("command", ALL, ids=names_of(ALL))
each_single = pytest.mark.parametrize("command", SINGLE, ids=names_of(SINGLE))
each_reply = pytest.mark.parametrize("reply", REPLIES)
KEYS = Strings.of([b"a", b"bc"])
HALF = limits.BATCH_ROWS_MAX // 2


def decoded(command: Command, body: bytes, flags: int | None = None) -> Command | Refusal:
    """What a body is that stands where that of a command would."""
    row, own, timestamp_us, _ = codec.encode(command)
    return codec.decode(row, own if flags is None else flags, timestamp_us, body)


def there_and_back(command: Command) -> Command | Refusal:
    return decoded(command, body_of(command))


def text_of(found: Command | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    assert len(found.text) < 256
    return found.text


# -- all of them ----------------------------------------------------------------------------------


def test_the_compiled_module_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "codec"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_command_and_every_kind_of_reply_has_a_sample() -> None:
    assert {type(one).row.number for one in ALL} == set(FUNCTIONS)
    assert {type(one).row.number for one in REPLIES} == set(KINDS)


@each_command
def test_each_command_is_there_and_back(command: Command) -> None:
    row, flags, timestamp_us, parts = codec.encode(command)
    body = b"".join(parts)
    assert len(body) % 8 == 0
    assert flags & ~row.flags == 0
    for data in (body, memoryview(body)):
        found = codec.decode(row, flags, timestamp_us, data)
        assert plain(found) == plain(command)
        assert not isinstance(found, Refusal)
        again = codec.encode(found)
        assert (*again[:3], b"".join(again[3])) == (row, flags, timestamp_us, body)


@each_command
def test_a_body_that_is_cut_short_is_refused(command: Command) -> None:
    body = body_of(command)
    # Each command of a large batch is cut at every byte elsewhere.
    for size in range(0, len(body), 1 if len(body) < 4_000 else 7):
        text_of(decoded(command, body[:size]))


@each_command
def test_a_body_that_is_longer_than_its_fields_is_refused(command: Command) -> None:
    for more in (b"x", bytes(8)):
        assert "longer than its fields" in text_of(decoded(command, body_of(command) + more))


@each_command
def test_more_rows_than_there_are_are_refused(command: Command) -> None:
    body = body_of(command)
    for wrong in (limits.BATCH_ROWS_MAX, limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        text_of(decoded(command, body[:4] + wrong.to_bytes(4, "big") + body[8:]))


@each_command
def test_the_reserved_bytes_of_a_head_are_0(command: Command) -> None:
    body = body_of(command)
    assert "bytes 2 and 3" in text_of(decoded(command, body[:3] + b"\1" + body[4:]))


@each_command
def test_a_name_that_ends_outside_the_body_is_refused(command: Command) -> None:
    assert "cut short" in text_of(decoded(command, b"\xff\xff" + body_of(command)[2:]))


@each_single
def test_an_argument_that_means_nothing_is_refused(command: Command) -> None:
    row, flags, _, _ = codec.encode(command)
    argument = next((one for one in row.fields if one.argument), None)
    if argument is None or flags & argument.bit != argument.bit:
        body = body_of(command)
        assert "argument" in text_of(decoded(command, body[:8] + b"\xff" * 8 + body[16:]))


@each_single
def test_a_table_where_none_belongs_is_refused(command: Command) -> None:
    if not any(one.kind is NAME for one in type(command).row.fields):
        _, _, rows, argument = struct.unpack_from(">HHIQ", body_of(command))
        body = head(b"t", rows, argument) + body_of(command)[16:]
        assert text_of(decoded(command, body)) == codec.NO_TABLE


@each_command
def test_each_flag_that_a_command_does_not_know_is_refused_by_its_name(command: Command) -> None:
    row = type(command).row
    for bit in range(16):
        if not row.flags & 1 << bit:
            found = text_of(decoded(command, body_of(command), 1 << bit))
            name = codec.FLAG_NAMES[1 << bit]
            assert found == f"bit {bit} ({name}) is not known to {row.name}"


@each_reply
def test_each_reply_is_there_and_back(reply: Reply) -> None:
    body = body_of(reply)
    assert len(body) % 8 == 0
    for data in (body, memoryview(body)):
        found = codec.decode_reply(data)
        assert plain(found) == plain(reply)
        assert body_of(found) == body


@each_reply
def test_a_broken_reply_is_refused(reply: Reply) -> None:
    body = body_of(reply)
    wrong = [body[:size] for size in range(0, len(body), 1 if len(body) < 4_000 else 7)]
    wrong += [body + b"x", body + bytes(8)]
    wrong += [body[:3] + b"\1" + body[4:], b"\0\x63" + body[2:]]
    wrong += [body[:4] + rows.to_bytes(4, "big") + body[8:] for rows in (100_000, 100_001)]
    for data in wrong:
        with pytest.raises((ValueError, struct.error)):
            codec.decode_reply(data)


def test_a_kind_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="kind 99"):
        codec.decode_reply(struct.pack(">HHI", 99, 0, 0))


def test_names_are_for_people() -> None:
    rows = [*FUNCTIONS.values(), *KINDS.values()]
    shown = [one.shown for row in rows for one in row.fields]
    assert all(name and name == name.lower() and "_" not in name for name in shown)


def test_a_record_says_how_many_bytes_its_strings_have() -> None:
    assert codec.data_bytes(set_many("t", [(b"key", 1, b"value"), (b"k", 1, b"")])) == 9
    assert codec.data_bytes(ONE_ENTRY) == 8
    assert codec.data_bytes(Finish(table="t", xids=(7, 8))) == 16


# -- the layout, byte by byte ---------------------------------------------------------------------


def row_of(command: Command) -> tuple[int, int, int, bytes]:
    row, flags, timestamp_us, _ = codec.encode(command)
    return row.number, flags, timestamp_us, body_of(command)


def test_columns_stand_behind_the_head() -> None:
    command = set_many("tab", [(b"k", 2, b"v"), (b"key", 1, b"")], expires_at_us=9, persist=False)
    body = (
        b"\0\3" + b"\0\0" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x09" + b"tab" + bytes(5)
        + b"\2\1" + bytes(6)
        + b"\0\0\0\0\1\0\0\0\4\0\0\0" + bytes(4) + b"kkey" + bytes(4)
        + b"\0\0\0\0\1\0\0\0\1\0\0\0" + bytes(4) + b"v" + bytes(7)
    )  # fmt: skip
    assert row_of(command) == (32, Flag.OVERWRITE, NOW_US, body)


def test_fields_stand_before_columns_and_a_blob_says_its_size() -> None:
    fail = Fail(table="t", xids=(7, 9), delay_us=5, reason=b"it broke!")
    body = head(b"t", 2, 5) + b"\0\0\0\x09" + bytes(4) + b"it broke!" + bytes(7)
    assert row_of(fail) == (52, Flag.COUNT, 0, body + struct.pack("<QQ", 7, 9))
    following = Next(table="t", count=9, domain=b"x.com", lease_us=5, wait_us=6, done=True)
    body = head(b"t", 0, 9) + struct.pack(">QQ", 5, 6) + blob(b"x.com")
    assert row_of(following) == (49, Flag.OVERWRITE, 0, body)


def test_every_number_of_a_field_is_padded_to_8_bytes() -> None:
    body = head(b"t", 0, 5) + struct.pack(">QI4x", 9, 77) + blob(b"\x30") + blob(b"k")
    command = Scan(
        table="t", start_seq=5, end_seq=9, bytes_max=77, opcodes=b"\x30", key_prefix=b"k"
    )
    assert row_of(command) == (64, 0, 0, body + strings())
    span = Span(table="t", after=5, until=9, rows_max=2, bytes_max=3, before_us=4, epoch=MASTER)
    body = head(b"t", 0, 5) + struct.pack(">QQQQ", 9, 2, 3, 4) + MASTER
    assert row_of(span) == (80, 0, 0, body)


def test_one_row_is_laid_out_as_many_are() -> None:
    """There is a short way for one row; what it writes is what the long way would."""
    body = body_of(push("t", [b"key"], relative=True))
    numbers = struct.pack("<Q", 1_000) + struct.pack("<Q", 2_000) + b"\xff" + bytes(7) + bytes(8)
    assert body == head(b"t", 1) + numbers + strings(b"key") + strings(b"") + strings(b"")


@pytest.mark.req("FJ-30", "FJ-31")
def test_a_ttl_stands_before_the_columns_and_further_keys_behind_them() -> None:
    command = set_many("t", [(b"k", 2, b"v")], ttl_us=7, also=KEYS)
    body = head(b"t", 1) + bytes(7) + b"\7" + b"\2" + bytes(7) + strings(b"k") + strings(b"v")
    flags = Flag.OVERWRITE | Flag.PERSIST | Flag.TTL | Flag.COUNT
    assert row_of(command) == (32, flags, NOW_US, body + b"\0\0\0\2" + bytes(4) + strings(*KEYS))


def test_no_further_keys_at_all_are_another_thing_than_none_named() -> None:
    for also in (None, Strings.of([])):
        command = set_many("t", [(b"k", 2, b"v")], also=also)
        assert bool(codec.encode(command)[1] & Flag.COUNT) is (also is not None)
        assert plain(there_and_back(command)) == plain(command)


def test_a_ttl_of_0_is_refused() -> None:
    command = set_many("t", [(b"k", 2, b"v")], ttl_us=1)
    body = body_of(command).replace(bytes(7) + b"\1", bytes(8), 1)
    assert text_of(decoded(command, body)) == "ttl is 0, which means none: clear its bit"


@pytest.mark.req("FJ-46", "FJ-47")
def test_a_touch_has_two_dates() -> None:
    command = Touch(table="t", keys=KEYS, extend=True, expires_at_us=5, worked_until_us=6)
    body = head(b"t", 2, 5) + struct.pack(">Q", 6) + strings(*KEYS)
    assert row_of(command) == (35, Flag.DATA | Flag.UPDATE_TIMEOUT, 0, body)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (set_many("t", [(b"k", 0, b"")]), Flag.OVERWRITE | Flag.PERSIST),
        (set_many("t", [(b"k", 0, b"")], overwrite=False, persist=False), 0),
        (get_many("t", [b"k"], with_data=False), 0),
        (get_many("t", [b"k"], skip_worked=True), Flag.DATA | Flag.WORKED_ON),
        (delete_many("t", [b"k"], purge=True), Flag.OVERWRITE),
        (push("t", [b"k"], relative=True), Flag.TTL),
        (Fail(table="t", xids=(7,)), Flag.COUNT),
        (Fail(table="t", xids=(7,), counts=False, buries=True), Flag.OVERWRITE),
        (Reschedule(table="t", keys=KEYS), 0),
        (Reschedule(table="t", keys=KEYS, priority=0), Flag.OVERWRITE),
        (Reschedule(table="t", keys=KEYS, process_at_us=0), Flag.UPDATE_TIMEOUT),
        (Scan(table="t", start_seq=1, end_seq=0, arrow=True), Flag.DATA),
    ],
)
def test_flags_say_the_options(command: Command, flags: int) -> None:
    assert codec.encode(command)[1] == flags
    assert plain(there_and_back(command)) == plain(command)


def test_what_is_not_announced_is_not_there() -> None:
    command = Reschedule(table="t", keys=KEYS, priority=200, process_at_us=5)
    body = head(b"t", 2, 5) + struct.pack(">I4x", 200) + strings(*KEYS)
    flags = Flag.OVERWRITE | Flag.UPDATE_TIMEOUT
    assert row_of(command) == (54, flags, 0, body)
    assert text_of(decoded(command, body, Flag.OVERWRITE)) == codec.NO_ARGUMENT
    text_of(decoded(command, body, Flag.UPDATE_TIMEOUT))


@pytest.mark.parametrize(("expected", "sent"), [(-1, LARGEST), (0, 0), (9, 9)])
def test_the_largest_seq_is_none(expected: int, sent: int) -> None:
    command = Acknowledge(table="t", name="b", seq=7, epoch=2, expected=expected)
    assert body_of(command) == head(b"t", 0, 7) + struct.pack(">QQ", 2, sent) + blob(b"b")
    assert there_and_back(command) == command
    assert body_of(Lag(table="t", name="b", after=expected)) == head(b"t", 0, sent) + blob(b"b")


def test_what_is_so_or_not_is_0_or_1() -> None:
    command = Rest(table="t", name="n", asleep=True)
    assert body_of(command) == head(b"t", 0, 1) + blob(b"n")
    for argument in (2, LARGEST):
        text = text_of(decoded(command, head(b"t", 0, argument) + blob(b"n")))
        assert text == "a boolean is 0 or 1"


def test_a_hello_says_the_revision_and_the_clients_name() -> None:
    assert row_of(Hello(client=MASTER)) == (17, 0, 0, head(b"", 0, REVISION) + MASTER)
    assert body_of(Hello(client=b"")) == head(b"", 0, REVISION) + bytes(16)
    found = decoded(Hello(client=b""), head(b"", 0, 1) + MASTER)
    assert found == Hello(revision=1, client=MASTER)  # who serves refuses it, and says which it has
    for wrong in (bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="16 bytes"):
            codec.encode(Hello(client=wrong))


def test_old_blocks_are_rows_and_the_new_one_is_a_field() -> None:
    body = head(b"t", 2) + struct.pack(">QQQQQ", 7, 900, 5, 6, 77) + blob(b"t-7/a-c")
    command = replacing("old", "older", max_us=6)
    assert row_of(command) == (84, 0, 0, body + strings(b"old", b"older"))


def test_a_reply_begins_with_its_kind() -> None:
    assert body_of(Done(master=MASTER, seq=0x0102)) == (
        b"\0\1" + bytes(6) + MASTER + b"\0\0\0\0\0\0\1\2"
    )


@pytest.mark.req("FJ-30")
def test_an_entry_has_all_its_dates() -> None:
    dates = (5, 9, 2**63, 2**63 + 10, 2**63 + 20)
    expected = struct.pack(">HHI", 2, 0, 1) + struct.pack("<B7xB7x5Q", 3, 1, *dates)
    assert body_of(ONE_ENTRY)[: len(expected)] == expected


def test_jobs_that_were_taken_are_columns() -> None:
    dates = (1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001, 5000, 5001)
    assert body_of(taken([b"a", b"bc"])) == (
        struct.pack(">HHIQQQ", 12, 0, 2, 7, NOW_US, 0)
        + struct.pack("<10Q", *dates)
        + b"\xff\xfe" + bytes(6) + b"\1\2" + bytes(6) + b"\0\1" + bytes(6)
        + strings(b"a", b"bc") + strings(b"", b"d") + strings(b"", b"vv")
    )  # fmt: skip


@pytest.mark.req("FJ-28")
def test_no_job_is_nothing_or_a_date() -> None:
    for reply, next_at_us in ((NOTHING, 0), (LATER, NOW_US + 5)):
        body = body_of(reply)
        assert body == struct.pack(">HHIQQQ", 12, 0, 0, 0, 0, next_at_us) + strings() * 3
        found = codec.decode_reply(body)
        assert isinstance(found, Taken)
        assert (len(found.types), found.next_at_us) == (0, next_at_us)


def test_who_was_missing_and_who_was_dropped_are_counted() -> None:
    def counted(*numbers: int) -> bytes:
        return struct.pack(">I4x", len(numbers)) + struct.pack(f"<{len(numbers)}Q", *numbers)

    start = struct.pack(">HHI", 7, 0, 0) + MASTER
    expected = start + struct.pack(">Q", LARGEST) + counted(0, 2, 99_999) + counted()
    assert body_of(ACTED_ON_SOME) == expected
    expected = start + struct.pack(">Q", 6) + counted(1) + counted(0, 4, 99_999)
    assert body_of(REVIVED_SOME) == expected
    for rows in (limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        with pytest.raises(ValueError, match=str(limits.BATCH_ROWS_MAX)):
            codec.decode_reply(start + bytes(8) + struct.pack(">I4x", rows))


# -- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "most",
    [
        Finish(table="t", xids=array("Q", range(limits.BATCH_ROWS_MAX))),
        append("t", [b""] * limits.BATCH_ROWS_MAX),
    ],
    ids=["numbers", "strings"],
)
def test_the_most_rows_are_taken(most: Command) -> None:
    assert plain(there_and_back(most)) == plain(most)


def test_the_most_that_may_be_missing_is_read() -> None:
    reply = Acted(master=MASTER, seq=1, missing=range(limits.BATCH_ROWS_MAX))
    found = codec.decode_reply(body_of(reply))
    assert isinstance(found, Acted)
    assert list(found.missing) == list(range(limits.BATCH_ROWS_MAX))


@pytest.mark.parametrize(
    "offsets", [(0, 2, 1), (1, 2, 3), (0, 1, 2**32 - 1), (0, 2**32 - 1, 3), (3, 2, 1)]
)
def test_wrong_offsets_are_refused(offsets: tuple[int, int, int]) -> None:
    column = struct.pack("<III4x", *offsets) + b"abc" + bytes(5)
    text_of(decoded(get_many("t", [b"k"]), head(b"t", 2) + column))


@pytest.mark.parametrize("at", [1, 64, 65, 2_048, 2_049, 9_999])
@pytest.mark.parametrize("offset", [1_000_001, 2**31, 2**32 - 1])
def test_an_offset_that_goes_back_refuses_the_messages(at: int, offset: int) -> None:
    """One of values, of which all others are right; no reader may be led astray by it."""
    values = bytearray(Strings.of([b"v" * 100] * 10_000).encode())
    struct.pack_into("<I", values, 4 * at, offset)
    body = head(b"t", 10_000) + bytes(10_000) + strings(*[b""] * 10_000) + values
    found = decoded(append("t", [b"v"]), bytes(body))
    assert text_of(found) == "the offsets of a column do not ascend from 0"


@pytest.mark.parametrize("name", [b"n" * 129, b"n" * 60_000, "na\u00efve".encode(), b"a/b", b""])
def test_a_name_that_is_none_is_left_to_whoever_knows_names(name: bytes) -> None:
    found = decoded(get_many("t", [b"k"]), head(name, 1) + strings(b"k"))
    assert found == Get(table=name.decode("ascii", "replace"), keys=Strings.of([b"k"]))


def test_no_rows_are_a_body_and_left_to_the_table_to_refuse() -> None:
    found = decoded(get_many("t", []), head(b"t", 0) + strings())
    assert plain(found) == plain(get_many("t", []))


def test_columns_of_different_lengths_are_not_sent() -> None:
    for command in (
        push("t", [b"k", b"l"], types=b"\1"),
        append("t", [b"v", b"w"], timestamps_us=[5]),
    ):
        with pytest.raises(ValueError, match="differ in number"):
            codec.encode(command)
    reply = messages([b"a", b"b"])
    reply.walls_us = [1, 2, 3]
    with pytest.raises(ValueError, match="differ in number"):
        codec.encode_reply(reply)


# -- columns are views of the message -------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 7, 0])
def test_many_messages_are_handed_on_as_they_came(size: int) -> None:
    """The engine stores what is encoded already: columns stay views of the message."""
    command = append("t", [b"v" * size] * 10_000)
    body = body_of(command)
    found = decoded(command, body)
    assert isinstance(found, Append)
    for column, sent in ((found.keys, command.keys), (found.values, command.values)):
        stored = column.encode()
        assert isinstance(stored, memoryview)
        assert stored.obj is body
        assert stored == sent.encode()


def test_many_rows_make_no_object_for_each_of_them() -> None:
    for record in (push("t", [b"k"] * 9_999), taken([b"k"] * 9_999)):
        found: Any = (
            there_and_back(record)
            if isinstance(record, Command)
            else codec.decode_reply(body_of(record))
        )
        assert isinstance(found.process_at_us, memoryview)
        for column in (found.keys, found.domains, found.values):
            assert isinstance(column.data, memoryview)
            assert isinstance(column.offsets, memoryview)


def test_messages_are_read_and_handed_on_as_they_came() -> None:
    body = body_of(messages([b"m" * 1_000_000], rows=10_000))
    found = codec.decode_reply(body)
    assert isinstance(found, Messages)
    assert isinstance(found.ops.data, memoryview)
    assert found.ops.data.obj is body
    assert body_of(found) == body


# -- dates of rows --------------------------------------------------------------------------------


DIFFERENT: list[Sequence[int]] = [
    (NOW_US, NOW_US + 1, NOW_US - 1),
    [NOW_US, NOW_US, NOW_US + 1],
    array("Q", (NOW_US + 1, NOW_US, NOW_US)),
    memoryview(array("Q", (1, 2, 3))),
]
PUSH = push("t", [b"a", b"b", b"c"])
SET = set_many("t", [(b"a", 1, b"x"), (b"b", 1, b""), (b"c", 1, b"yz")], ttl_us=5)


@pytest.mark.parametrize("command", [PUSH, SET], ids=["push", "set"])
@pytest.mark.parametrize("dates", DIFFERENT)
def test_each_row_keeps_its_date(command: Push | Set, dates: Sequence[int]) -> None:
    dated = replace(command, timestamps_us=dates)
    _, flags, timestamp_us, _ = codec.encode(dated)
    assert flags & Flag.TIMEOUT
    assert timestamp_us == 0
    assert plain(there_and_back(dated)) == plain(dated)


@pytest.mark.req("SJ-05")
@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_the_timestamp_of_the_message_is_the_insertion_date_of_all_its_jobs(count: int) -> None:
    row, flags, timestamp_us, parts = codec.encode(push("t", [b"k"] * count))
    assert timestamp_us == NOW_US
    assert not flags & Flag.TIMEOUT
    found = codec.decode(row, flags, 5, b"".join(parts))
    assert isinstance(found, Push)
    assert list(found.timestamps_us) == [5] * count


@pytest.mark.parametrize("dates", [(), [NOW_US] * 3, memoryview(array("Q", [NOW_US] * 3))])
def test_one_date_for_all_is_that_of_the_message(dates: Sequence[int]) -> None:
    assert codec.dates(dates) == (0, NOW_US if dates else 0, b"")
    assert codec.dates(repeat(NOW_US, 3)) == (0, NOW_US, b"")


@pytest.mark.parametrize("dates", DIFFERENT)
@pytest.mark.parametrize("is_purge", [False, True])
def test_each_deletion_keeps_its_date(dates: Sequence[int], *, is_purge: bool) -> None:
    command = Delete(table="t", keys=PUSH.keys, timestamp_us=0, timestamps_us=dates, purge=is_purge)
    assert codec.encode(command)[1] == Flag.TIMEOUT | (Flag.OVERWRITE if is_purge else 0)
    assert plain(there_and_back(command)) == plain(command)


# -- what is checked besides the layout -----------------------------------------------------------


@pytest.mark.parametrize("change", [0, 4, 8, 255])
def test_a_change_that_does_not_exist_is_refused(change: int) -> None:
    body = head(b"t", 0, change) + body_of(modify(Change.ADD))[24:]
    assert "5 (ADD), 6 (NOT) or 7 (TRUNCATE)" in text_of(decoded(modify(Change.ADD), body))


INTEGER, FLOAT = 3, 4


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("change", [Change.ADD, Change.TRUNCATE])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_integer_of_any_width_is_made_8_bytes_wide(change: Change, size: int) -> None:
    for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1))):
        data = number.to_bytes(size, "little", signed=True)
        found = there_and_back(modify(change, data))
        assert isinstance(found, Modify)
        assert found.operand == struct.pack("<q", number)


@pytest.mark.parametrize(
    ("change", "type_", "size", "code"),
    [
        (Change.ADD, INTEGER, 0, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 3, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 9, Code.BAD_VALUE),
        (Change.ADD, INTEGER, 16, Code.BAD_VALUE),
        (Change.ADD, FLOAT, 0, Code.BAD_VALUE),
        (Change.ADD, FLOAT, 4, Code.BAD_VALUE),
        (Change.ADD, 0, 0, Code.BAD_TYPE),
        (Change.ADD, 1, 8, Code.BAD_TYPE),
        (Change.ADD, 2, 8, Code.BAD_TYPE),
        (Change.ADD, 5, 1, Code.BAD_TYPE),
        (Change.ADD, 255, 8, Code.BAD_TYPE),
        (Change.TRUNCATE, FLOAT, 8, Code.BAD_TYPE),
        (Change.TRUNCATE, INTEGER, 7, Code.BAD_VALUE),
        (Change.NOT, INTEGER, 8, Code.BAD_VALUE),
    ],
)
def test_any_other_operand_is_refused(change: Change, type_: int, size: int, code: Code) -> None:
    found = there_and_back(modify(change, bytes(size), type_))
    assert isinstance(found, Refusal)
    assert found.code is code


@pytest.mark.parametrize(
    ("columns", "arrow", "text"),
    [(["seq"], False, "set bit 10"), (["seq", "ts", "seq"], True, "more than once")],
)
def test_columns_are_chosen_of_an_arrow_stream_and_once(
    columns: list[str], arrow: bool, text: str
) -> None:
    command = Scan(table="t", start_seq=1, end_seq=0, arrow=arrow, columns=columns)
    assert text in text_of(there_and_back(command))


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.binary(max_size=9), st.binary(max_size=40)), max_size=90
    ),
    st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True),
    st.booleans(),
)
def test_decode_of_encode_is_the_same_messages(
    rows: list[tuple[int, bytes, bytes]], table: str, has_dates: bool
) -> None:
    command = Append(
        table=table,
        types=bytes(type_ for type_, _, _ in rows),
        keys=Strings.of([key for _, key, _ in rows]),
        values=Strings.of([value for _, _, value in rows]),
        timestamps_us=list(range(len(rows))) if has_dates else None,
    )
    assert plain(there_and_back(command)) == plain(command)


# -- commands that hold others --------------------------------------------------------------------

GOOD = set_many("t", [(b"k", 1, b"v")])
READ = Read(table="t", after=0)
BATCH, AS_OF = Batch(commands=[GOOD]), AsOf(snapshot=9, commands=[READ])


def test_inner_commands_stand_behind_the_head() -> None:
    _, flags, timestamp_us, _ = codec.encode(GOOD)
    first = inner(32, body_of(GOOD), flags=flags, timestamp_us=timestamp_us)
    body = head(b"", 2) + first + inner(0, head(b"", 0))
    assert row_of(Batch(commands=[GOOD, Nop()])) == (19, 0, 0, body)
    assert row_of(Stage(rows=GOOD)) == (81, 0, 0, head(b"", 1) + first)
    body = head(b"", 1, 9) + inner(67, body_of(READ))
    assert row_of(AS_OF) == (77, 0, 0, body)


def test_each_holder_says_what_it_holds() -> None:
    holders = {row.name: row for row in FUNCTIONS.values() if row.holds is not None}
    held = {
        name: {one.name for one in FUNCTIONS.values() if is_held(row, one)}
        for name, row in holders.items()
    }
    assert held == {
        "BATCH": {row.name for row in FUNCTIONS.values() if row.in_batch is not InBatch.NEVER},
        "AS_OF": {"GET_MANY", "RANGE", "READ"},
        "STAGE": {"APPEND", "PUSH_MANY", "SET_MANY"},
    }
    assert held["BATCH"] == {"NOP", *(type(one).row.name for one in INNER)}


def is_held(outer: Row, row: Row) -> bool:
    assert outer.holds is not None
    return outer.holds(row)


@pytest.mark.parametrize("outer", [BATCH, AS_OF, Stage(rows=GOOD)], ids=["batch", "as-of", "stage"])
def test_what_has_no_place_is_neither_sent_nor_taken(outer: Any) -> None:
    row = type(outer).row
    for one in ALL:
        if is_held(row, type(one).row):
            continue
        name, number = type(one).row.name, type(one).row.number
        field = {"rows": one} if isinstance(outer, Stage) else {"commands": [one]}
        with pytest.raises(ValueError, match=f"{row.name} holds no {name}"):
            codec.encode(replace(outer, **field))
        found = text_of(decoded(outer, head(b"", 1) + inner(number, body_of(one))))
        assert found == f"command 1 of the batch: function {number} has no place in {row.name}"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (inner(99), "function 99 has no place"),
        (inner(2), "function 2 has no place"),
        (inner(19), "function 19 has no place"),
        (inner(33, flags=Flag.TTL), "bit 14 (TTL)"),
        (inner(32, body_of(GOOD), flags=Flag.NUMBER), "no number of its own"),
        (inner(0, head(b"", 0) + bytes(8)), "longer than its fields"),
        (inner(33, bytes(8)), ""),
        (inner(33, bytes(8), length=2**32 - 1), "its body is cut short"),
    ],
)
def test_a_bad_command_refuses_the_batch_and_its_position_is_named(bad: bytes, text: str) -> None:
    good = inner(32, body_of(GOOD), timestamp_us=NOW_US)
    found = text_of(decoded(BATCH, head(b"", 3) + good + good + bad))
    assert found.startswith("command 3 of the batch: ")
    assert text in found


@pytest.mark.parametrize("outer", [BATCH, AS_OF, Stage(rows=GOOD)], ids=["batch", "as-of", "stage"])
def test_no_commands_and_too_many_are_refused(outer: Command) -> None:
    most = 1 if isinstance(outer, Stage) else limits.BATCH_COMMANDS_MAX
    for rows in (0, most + 1):
        found = text_of(decoded(outer, head(b"", rows) + inner(0, head(b"", 0)) * rows))
        commands_ = "1 command" if most == 1 else f"1 to {most} commands"
        assert found == f"{type(outer).row.name} has {commands_}"
    assert text_of(decoded(outer, head(b"t", 1))) == codec.NO_TABLE


def test_the_most_commands_are_taken() -> None:
    count = limits.BATCH_COMMANDS_MAX
    found = decoded(BATCH, head(b"", count) + inner(0, head(b"", 0)) * count)
    assert plain(found) == plain(Batch(commands=[Nop()] * count))


@pytest.mark.parametrize(
    "half",
    [
        get_many("t", [b""] * HALF),
        Finish(table="t", xids=array("Q", range(HALF))),
        append("t", [b""] * HALF),
    ],
    ids=["keys", "xids", "messages"],
)
def test_rows_are_bounded_over_all_commands(half: Command) -> None:
    assert isinstance(there_and_back(Batch(commands=[half, half])), Batch)
    more = Batch(commands=[half, half, get_many("t", [b""])])
    assert "in all its commands" in text_of(there_and_back(more))


def test_nobody_waits_as_of_a_snapshot() -> None:
    waiting = Read(table="t", after=0, wait_us=1)
    found = there_and_back(AsOf(snapshot=9, commands=[READ, waiting]))
    text = "command 2 of the batch: nothing new comes as of a snapshot: wait is 0"
    assert found == Refusal(code=Code.BAD_TIMEOUT, text=text)


def test_what_may_have_a_number_is_what_a_numbered_batch_holds() -> None:
    """And BATCH itself: all that else may be sent again needs none."""
    numbered = {row.name for row in FUNCTIONS.values() if row.flags & Flag.NUMBER}
    kept = {row.name for row in FUNCTIONS.values() if row.in_batch is InBatch.NUMBERED}
    assert numbered == kept | {"BATCH"}


def test_inner_replies_are_whole_bodies_with_their_sizes() -> None:
    expected = struct.pack(">HHI", 19, 0, 2)
    for one in (TOKEN, SHORT):
        expected += struct.pack(">I4x", len(body_of(one))) + body_of(one)
    assert body_of(Replies(replies=[TOKEN, SHORT])) == expected
    assert body_of(SHORT) == bytes(8) + blob(b"NOT_FOUND") + blob(b"the key does not exist")


def test_an_inner_reply_outside_the_body_is_refused() -> None:
    body = body_of(Replies(replies=[LONG]))
    with pytest.raises(ValueError, match="cut short"):
        codec.decode_reply(body[:8] + struct.pack(">I4x", 2**32 - 1) + body[16:])


def test_replies_hold_no_replies() -> None:
    """A server never sends them; so a client is not led into a depth without an end."""
    body = body_of(TOKEN)
    for _ in range(2_000):
        body = struct.pack(">HHII4x", 19, 0, 1, len(body)) + body
    with pytest.raises(ValueError, match="replies in replies"):
        codec.decode_reply(body)
    data = reply_bytes(b"\0" + struct.pack(">I", len(body)) + body, flags=Flag.BODY)
    assert explain(data)[-1].meaning == "replies in replies"
