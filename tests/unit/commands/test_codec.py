"""Bodies of commands and replies: every one there and back, and refused when it is broken."""

from __future__ import annotations

import struct
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.errors import Code
from fjord.wire.explain import explain
from tests.unit.wire.job_samples import push
from tests.unit.wire.samples import COMMANDS, ONE_ENTRY, REPLIES, SHORT, TOKEN, modify, names_of
from tests.unit.wire.stream_samples import append
from tests.unit.wire.streams import (
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
ALL = [commands.Nop(), *COMMANDS]
SINGLE = [one for one in ALL if type(one).row.holds is None]
each_command = pytest.mark.parametrize("command", ALL, ids=names_of(ALL))
each_single = pytest.mark.parametrize("command", SINGLE, ids=names_of(SINGLE))
each_reply = pytest.mark.parametrize("reply", REPLIES)
KEYS = Strings.of([b"a", b"bc"])
HALF = limits.BATCH_ROWS_MAX // 2


def decoded(
    command: commands.Command, body: bytes, flags: int | None = None
) -> commands.Command | commands.Refusal:
    """What a body is that stands where that of a command would."""
    row, own, timestamp_us, _ = commands.codec.encode(command)
    return commands.codec.decode(row, own if flags is None else flags, timestamp_us, body)


def there_and_back(command: commands.Command) -> commands.Command | commands.Refusal:
    return decoded(command, body_of(command))


def text_of(found: commands.Command | commands.Refusal) -> str:
    assert isinstance(found, commands.Refusal)
    assert found.code is Code.BAD_BATCH
    assert len(found.text) < 256
    return found.text


# -- all of them ----------------------------------------------------------------------------------


def test_the_compiled_module_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "codec"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_command_and_every_kind_of_reply_has_a_sample() -> None:
    assert {type(one).row.number for one in ALL} == set(commands.FUNCTIONS)
    assert {type(one).row.number for one in REPLIES} == set(commands.KINDS)


@each_command
def test_each_command_is_there_and_back(command: commands.Command) -> None:
    row, flags, timestamp_us, parts = commands.codec.encode(command)
    body = b"".join(parts)
    assert len(body) % 8 == 0
    assert flags & ~row.flags == 0
    for data in (body, memoryview(body)):
        found = commands.codec.decode(row, flags, timestamp_us, data)
        assert plain(found) == plain(command)
        assert not isinstance(found, commands.Refusal)
        again = commands.codec.encode(found)
        assert (*again[:3], b"".join(again[3])) == (row, flags, timestamp_us, body)


@each_command
def test_a_body_that_is_cut_short_is_refused(command: commands.Command) -> None:
    body = body_of(command)
    # Each command of a large batch is cut at every byte elsewhere.
    for size in range(0, len(body), 1 if len(body) < 600 else 13):
        text_of(decoded(command, body[:size]))


@each_command
def test_a_body_that_is_longer_than_its_fields_is_refused(command: commands.Command) -> None:
    for more in (b"x", bytes(8)):
        assert "longer than its fields" in text_of(decoded(command, body_of(command) + more))


@each_command
def test_more_rows_than_there_are_are_refused(command: commands.Command) -> None:
    body = body_of(command)
    for wrong in (limits.BATCH_ROWS_MAX, limits.BATCH_ROWS_MAX + 1, 2**32 - 1):
        text_of(decoded(command, body[:4] + wrong.to_bytes(4, "big") + body[8:]))


@each_command
def test_the_reserved_bytes_of_a_head_are_0(command: commands.Command) -> None:
    body = body_of(command)
    assert "bytes 2 and 3" in text_of(decoded(command, body[:3] + b"\1" + body[4:]))


@each_command
def test_a_name_that_ends_outside_the_body_is_refused(command: commands.Command) -> None:
    assert "cut short" in text_of(decoded(command, b"\xff\xff" + body_of(command)[2:]))


@each_single
def test_an_argument_that_means_nothing_is_refused(command: commands.Command) -> None:
    row, flags, _, _ = commands.codec.encode(command)
    argument = next((one for one in row.fields if one.argument), None)
    if argument is None or flags & argument.bit != argument.bit:
        body = body_of(command)
        assert "argument" in text_of(decoded(command, body[:8] + b"\xff" * 8 + body[16:]))


@each_command
def test_each_flag_that_a_command_does_not_know_is_refused_by_its_name(
    command: commands.Command,
) -> None:
    row = type(command).row
    for bit in range(16):
        if not row.flags & 1 << bit:
            found = text_of(decoded(command, body_of(command), 1 << bit))
            name = commands.codec.FLAG_NAMES[1 << bit]
            assert found == f"bit {bit} ({name}) is not known to {row.name}"


@each_reply
def test_each_reply_is_there_and_back(reply: commands.Reply) -> None:
    body = body_of(reply)
    assert len(body) % 8 == 0
    for data in (body, memoryview(body)):
        found = commands.codec.decode_reply(data)
        assert plain(found) == plain(reply)
        assert body_of(found) == body


@each_reply
def test_a_broken_reply_is_refused(reply: commands.Reply) -> None:
    body = body_of(reply)
    wrong = [body[:size] for size in range(0, len(body), 1 if len(body) < 600 else 13)]
    wrong += [body + b"x", body + bytes(8)]
    wrong += [body[:3] + b"\1" + body[4:], b"\0\x63" + body[2:]]
    wrong += [body[:4] + rows.to_bytes(4, "big") + body[8:] for rows in (100_000, 100_001)]
    for data in wrong:
        with pytest.raises((ValueError, struct.error)):
            commands.codec.decode_reply(data)


# -- the layout, byte by byte ---------------------------------------------------------------------


def row_of(command: commands.Command) -> tuple[int, int, int, bytes]:
    row, flags, timestamp_us, _ = commands.codec.encode(command)
    return row.number, flags, timestamp_us, body_of(command)


@pytest.mark.req("FJ-30", "FJ-31")
def test_a_ttl_stands_before_the_columns_and_further_keys_behind_them() -> None:
    command = set_many("t", [(b"k", 2, b"v")], ttl_us=7, also=KEYS)
    body = head(b"t", 1) + bytes(7) + b"\7" + b"\2" + bytes(7) + strings(b"k") + strings(b"v")
    flags = (
        commands.Flag.OVERWRITE | commands.Flag.PERSIST | commands.Flag.TTL | commands.Flag.COUNT
    )
    assert row_of(command) == (32, flags, NOW_US, body + b"\0\0\0\2" + bytes(4) + strings(*KEYS))


def test_a_ttl_of_0_is_refused() -> None:
    command = set_many("t", [(b"k", 2, b"v")], ttl_us=1)
    body = body_of(command).replace(bytes(7) + b"\1", bytes(8), 1)
    assert text_of(decoded(command, body)) == "ttl is 0, which means none: clear its bit"


@pytest.mark.req("FJ-46", "FJ-47")
def test_a_touch_has_two_dates() -> None:
    command = commands.Touch(table="t", keys=KEYS, extend=True, expires_at_us=5, worked_until_us=6)
    body = head(b"t", 2, 5) + struct.pack(">Q", 6) + strings(*KEYS)
    assert row_of(command) == (35, commands.Flag.DATA | commands.Flag.UPDATE_TIMEOUT, 0, body)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (set_many("t", [(b"k", 0, b"")]), commands.Flag.OVERWRITE | commands.Flag.PERSIST),
        (set_many("t", [(b"k", 0, b"")], overwrite=False, persist=False), 0),
        (get_many("t", [b"k"], with_data=False), 0),
        (get_many("t", [b"k"], skip_worked=True), commands.Flag.DATA | commands.Flag.WORKED_ON),
        (delete_many("t", [b"k"], purge=True), commands.Flag.OVERWRITE),
        (push("t", [b"k"], relative=True), commands.Flag.TTL),
        (commands.Fail(table="t", xids=(7,)), commands.Flag.COUNT),
        (commands.Fail(table="t", xids=(7,), counts=False, buries=True), commands.Flag.OVERWRITE),
        (commands.Reschedule(table="t", keys=KEYS), 0),
        (commands.Reschedule(table="t", keys=KEYS, priority=0), commands.Flag.OVERWRITE),
        (commands.Reschedule(table="t", keys=KEYS, process_at_us=0), commands.Flag.UPDATE_TIMEOUT),
        (commands.Scan(table="t", start_seq=1, end_seq=0, arrow=True), commands.Flag.DATA),
    ],
)
def test_flags_say_the_options(command: commands.Command, flags: int) -> None:
    assert commands.codec.encode(command)[1] == flags
    assert plain(there_and_back(command)) == plain(command)


@pytest.mark.req("FJ-30")
def test_an_entry_has_all_its_dates() -> None:
    dates = (5, 9, 2**63, 2**63 + 10, 2**63 + 20)
    expected = struct.pack(">HHI", 2, 0, 1) + struct.pack("<B7xB7x5Q", 3, 1, *dates)
    assert body_of(ONE_ENTRY)[: len(expected)] == expected


# -- dates of rows --------------------------------------------------------------------------------


@pytest.mark.req("SJ-05")
@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_the_timestamp_of_the_message_is_the_insertion_date_of_all_its_jobs(count: int) -> None:
    row, flags, timestamp_us, parts = commands.codec.encode(push("t", [b"k"] * count))
    assert timestamp_us == NOW_US
    assert not flags & commands.Flag.TIMEOUT
    found = commands.codec.decode(row, flags, 5, b"".join(parts))
    assert isinstance(found, commands.Push)
    assert list(found.timestamps_us) == [5] * count


# -- what is checked besides the layout -----------------------------------------------------------


INTEGER, FLOAT = 3, 4


@pytest.mark.req("FJ-35")
@pytest.mark.parametrize("change", [commands.Change.ADD, commands.Change.TRUNCATE])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_integer_of_any_width_is_made_8_bytes_wide(change: commands.Change, size: int) -> None:
    for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1))):
        data = number.to_bytes(size, "little", signed=True)
        found = there_and_back(modify(change, data))
        assert isinstance(found, commands.Modify)
        assert found.operand == struct.pack("<q", number)


# -- commands that hold others --------------------------------------------------------------------

GOOD = set_many("t", [(b"k", 1, b"v")])
READ = commands.Read(table="t", after=0)
BATCH, AS_OF = commands.Batch(commands=[GOOD]), commands.AsOf(snapshot=9, commands=[READ])


def is_held(outer: commands.Row, row: commands.Row) -> bool:
    assert outer.holds is not None
    return outer.holds(row)


@pytest.mark.parametrize(
    "outer", [BATCH, AS_OF, commands.Stage(rows=GOOD)], ids=["batch", "as-of", "stage"]
)
def test_what_has_no_place_is_neither_sent_nor_taken(outer: Any) -> None:
    row = type(outer).row
    for one in ALL:
        if is_held(row, type(one).row):
            continue
        name, number = type(one).row.name, type(one).row.number
        field = {"rows": one} if isinstance(outer, commands.Stage) else {"commands": [one]}
        with pytest.raises(ValueError, match=f"{row.name} holds no {name}"):
            commands.codec.encode(replace(outer, **field))
        found = text_of(decoded(outer, head(b"", 1) + inner(number, body_of(one))))
        assert found == f"command 1 of the batch: function {number} has no place in {row.name}"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (inner(99), "function 99 has no place"),
        (inner(2), "function 2 has no place"),
        (inner(19), "function 19 has no place"),
        (inner(33, flags=commands.Flag.TTL), "bit 14 (TTL)"),
        (inner(32, body_of(GOOD), flags=commands.Flag.NUMBER), "no number of its own"),
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


@pytest.mark.parametrize(
    "outer", [BATCH, AS_OF, commands.Stage(rows=GOOD)], ids=["batch", "as-of", "stage"]
)
def test_no_commands_and_too_many_are_refused(outer: commands.Command) -> None:
    most = 1 if isinstance(outer, commands.Stage) else limits.BATCH_COMMANDS_MAX
    for rows in (0, most + 1):
        found = text_of(decoded(outer, head(b"", rows) + inner(0, head(b"", 0)) * rows))
        commands_ = "1 command" if most == 1 else f"1 to {most} commands"
        assert found == f"{type(outer).row.name} has {commands_}"
    assert text_of(decoded(outer, head(b"t", 1))) == commands.codec.NO_TABLE


@pytest.mark.parametrize(
    "half",
    [
        get_many("t", [b""] * HALF),
        commands.Finish(table="t", xids=array("Q", range(HALF))),
        append("t", [b""] * HALF),
    ],
    ids=["keys", "xids", "messages"],
)
def test_rows_are_bounded_over_all_commands(half: commands.Command) -> None:
    assert isinstance(there_and_back(commands.Batch(commands=[half, half])), commands.Batch)
    more = commands.Batch(commands=[half, half, get_many("t", [b""])])
    assert "in all its commands" in text_of(there_and_back(more))


def test_nobody_waits_as_of_a_snapshot() -> None:
    waiting = commands.Read(table="t", after=0, wait_us=1)
    found = there_and_back(commands.AsOf(snapshot=9, commands=[READ, waiting]))
    text = "command 2 of the batch: nothing new comes as of a snapshot: wait is 0"
    assert found == commands.Refusal(code=Code.BAD_TIMEOUT, text=text)


def test_what_may_have_a_number_is_what_a_numbered_batch_holds() -> None:
    """And BATCH itself: all that else may be sent again needs none."""
    numbered = {row.name for row in commands.FUNCTIONS.values() if row.flags & commands.Flag.NUMBER}
    kept = {
        row.name for row in commands.FUNCTIONS.values() if row.in_batch is commands.InBatch.NUMBERED
    }
    assert numbered == kept | {"BATCH"}


def test_inner_replies_are_whole_bodies_with_their_sizes() -> None:
    expected = struct.pack(">HHI", 19, 0, 2)
    for one in (TOKEN, SHORT):
        expected += struct.pack(">I4x", len(body_of(one))) + body_of(one)
    assert body_of(commands.Replies(replies=[TOKEN, SHORT])) == expected
    assert body_of(SHORT) == bytes(8) + blob(b"NOT_FOUND") + blob(b"the key does not exist")


def test_replies_hold_no_replies() -> None:
    """A server never sends them; so a client is not led into a depth without an end."""
    body = body_of(TOKEN)
    for _ in range(2_000):
        body = struct.pack(">HHII4x", 19, 0, 1, len(body)) + body
    with pytest.raises(ValueError, match="replies in replies"):
        commands.codec.decode_reply(body)
    data = reply_bytes(b"\0" + struct.pack(">I", len(body)) + body, flags=commands.Flag.BODY)
    assert explain(data)[-1].meaning == "replies in replies"
