"""BATCH: all commands of a message, or none of them."""

from __future__ import annotations

import struct
from array import array

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import AsOf, Batch, Command, Refusal, Replies
from fjord.errors import Code
from fjord.wire import Flag, Function, batch, bodies
from tests.unit.wire.samples import BATCHES, COMMANDS, INNER, LONG, REPLIES, SHORT, TOKEN, names_of
from tests.unit.wire.stream_samples import AS_OF, append
from tests.unit.wire.streams import NOW_US, get_many, plain, set_many
from tests.unit.wire.test_body import head

GOOD = set_many("t", [(b"k", 1, b"v")])
ANSWERS = [reply for _, reply in REPLIES if isinstance(reply, Replies)]
READ = commands.Read(table="t", after=0)
HALF = limits.BATCH_ROWS_MAX // 2
OUTSIDE: list[Command] = [one for one in COMMANDS if one not in INNER]


def inner(
    function: int, body: bytes = b"", *, flags: int = 0, timestamp_us: int = 0, length: int = -1
) -> bytes:
    size = len(body) if length < 0 else length
    return struct.pack(">HHIQ", function, flags, size, timestamp_us) + body + bytes(-len(body) % 8)


def body_of(command: Batch | AsOf) -> bytes:
    return b"".join(batch.encode(command)[1])


def decode(body: bytes) -> Command | Refusal:
    return batch.decode(Function.BATCH, body)


def refusal_of(body: bytes, function: Function = Function.BATCH) -> Refusal:
    found = batch.decode(function, body)
    assert isinstance(found, Refusal)
    return found


def test_inner_messages_stand_behind_the_head() -> None:
    _, flags, timestamp_us, body = bodies.encode_body(GOOD)
    expected = head(b"", 2, 9) + inner(32, body, flags=flags, timestamp_us=timestamp_us) + inner(0)
    command = Batch(commands=[GOOD, commands.Nop()], number=9)
    assert batch.encode(command)[0] is Function.BATCH
    assert body_of(command) == expected


@pytest.mark.parametrize("command", BATCHES, ids=["one", "all"])
def test_each_batch_decodes_to_itself(command: Batch) -> None:
    assert plain(decode(body_of(command))) == plain(command)


@pytest.mark.parametrize("command", BATCHES, ids=["one", "all"])
def test_every_truncation_is_refused(command: Batch) -> None:
    body = body_of(command)
    step = 1 if len(command.commands) == 1 else 7  # each command was cut at every byte elsewhere
    for size in range(0, len(body), step):
        assert refusal_of(body[:size]).code is Code.BAD_BATCH
    assert refusal_of(body + bytes(8)).code is Code.BAD_BATCH


def test_the_refusal_of_one_command_is_that_of_all_and_names_its_position() -> None:
    good = bodies.encode_body(GOOD)[3]
    no_ttl = head(b"t", 1) + bytes(8) + good[24:]
    body = head(b"", 2) + inner(32, good) + inner(32, no_ttl, flags=Flag.TTL)
    expected = "command 2 of the batch: a TTL of 0 is none; clear bit 14"
    assert refusal_of(body) == Refusal(code=Code.BAD_TIMEOUT, text=expected)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (inner(99), "function 99 has no place"),
        (inner(2), "function 2 has no place"),
        (inner(19), "function 19 has no place"),
        (inner(49, bodies.encode_body(commands.Next(table="t"))[3]), "function 49 has no place"),
        (inner(61, head(b"t", 0)), "function 61 has no place"),
        (inner(67, bodies.encode_body(READ)[3]), "function 67 has no place"),
        (inner(75, head(b"", 0)), "function 75 has no place"),
        (inner(77, body_of(AS_OF[0])), "function 77 has no place"),
        (inner(33, flags=Flag.BODY), "bit 15 (BODY)"),
        (inner(0, bytes(8)), "NOP has no body"),
        (inner(33, bytes(8)), ""),
        (inner(33, bytes(8), length=2**32 - 1), "its body is cut short"),
        (inner(33)[:-1], "it is cut short"),
    ],
)
def test_a_bad_command_refuses_the_batch(bad: bytes, text: str) -> None:
    good = inner(32, bodies.encode_body(GOOD)[3], timestamp_us=NOW_US)
    found = refusal_of(head(b"", 3) + good + good + bad)
    assert found.code is Code.BAD_BATCH
    assert found.text.startswith("command 3 of the batch: ")
    assert text in found.text


@pytest.mark.parametrize("command", OUTSIDE, ids=names_of(OUTSIDE))
def test_what_cannot_be_undone_has_no_place_in_a_batch(command: Command) -> None:
    with pytest.raises(ValueError, match="a batch holds no"):
        batch.encode(Batch(commands=[command]))


@pytest.mark.parametrize("rows", [0, limits.BATCH_COMMANDS_MAX + 1])
def test_no_commands_and_too_many_are_refused(rows: int) -> None:
    found = refusal_of(head(b"", rows) + inner(0) * rows)
    assert str(limits.BATCH_COMMANDS_MAX) in found.text


def test_the_most_commands_are_taken() -> None:
    body = head(b"", limits.BATCH_COMMANDS_MAX) + inner(0) * limits.BATCH_COMMANDS_MAX
    found = decode(body)
    assert isinstance(found, Batch)
    assert len(found.commands) == limits.BATCH_COMMANDS_MAX


@pytest.mark.parametrize(
    "half",
    [
        get_many("t", [b""] * HALF),
        commands.Finish(table="t", xids=array("Q", range(HALF))),
        commands.Revive(table="t", rows=array("Q", range(HALF))),
        append("t", [b""] * HALF),
    ],
    ids=["keys", "xids", "rows", "messages"],
)
def test_rows_are_bounded_over_all_commands(half: Command) -> None:
    assert isinstance(decode(body_of(Batch(commands=[half, half]))), Batch)
    found = refusal_of(body_of(Batch(commands=[half, half, commands.Nop()])))
    assert "in all its commands" in found.text


# -- as of a snapshot -----------------------------------------------------------------------------


def test_reads_as_of_a_snapshot_stand_behind_its_seq() -> None:
    get = get_many("t", [b"k"])
    command = AsOf(snapshot=9, commands=[get, READ])
    (_, flags, _, first), (_, _, _, second) = bodies.encode_body(get), bodies.encode_body(READ)
    body = head(b"", 2, 9) + inner(33, first, flags=flags) + inner(67, second)
    assert batch.encode(command)[0] is Function.AS_OF
    assert body_of(command) == body


@pytest.mark.parametrize("command", AS_OF, ids=["one", "all"])
def test_each_reading_as_of_a_snapshot_decodes_to_itself(command: AsOf) -> None:
    body = body_of(command)
    assert plain(batch.decode(Function.AS_OF, body)) == plain(command)
    for size in range(len(body)):
        assert refusal_of(body[:size], Function.AS_OF).code is Code.BAD_BATCH
    assert refusal_of(body + bytes(8), Function.AS_OF).code is Code.BAD_BATCH


NOT_AS_OF: list[Command] = [
    commands.Nop(),
    *(
        one
        for one in COMMANDS
        if not isinstance(one, commands.Get | commands.Range | commands.Read)
    ),
]


@pytest.mark.parametrize("command", NOT_AS_OF, ids=names_of(NOT_AS_OF))
def test_nothing_but_reads_has_a_place_in_a_snapshot(command: Command) -> None:
    with pytest.raises(ValueError, match="AS_OF holds no"):
        batch.encode(AsOf(snapshot=9, commands=[command]))


@pytest.mark.parametrize("function", [one for one in Function if one not in (33, 40, 67)])
def test_no_other_function_is_taken_as_of_a_snapshot(function: Function) -> None:
    found = refusal_of(head(b"", 1, 9) + inner(function), Function.AS_OF)
    expected = f"command 1 of the batch: function {int(function)} has no place in AS_OF"
    assert found == Refusal(code=Code.BAD_BATCH, text=expected)


def test_nobody_waits_as_of_a_snapshot() -> None:
    waiting = commands.Read(table="t", after=0, wait_us=1)
    body = body_of(AsOf(snapshot=9, commands=[READ, waiting]))
    found = refusal_of(body, Function.AS_OF)
    assert found.code is Code.BAD_TIMEOUT
    assert found.text == "command 2 of the batch: nothing new comes as of a snapshot: wait is 0"


def test_reads_as_of_a_snapshot_are_bounded() -> None:
    for rows in (0, limits.BATCH_COMMANDS_MAX + 1):
        found = refusal_of(head(b"", rows, 9) + inner(33) * rows, Function.AS_OF)
        assert str(limits.BATCH_COMMANDS_MAX) in found.text
    half = get_many("t", [b""] * HALF)
    found = refusal_of(body_of(AsOf(snapshot=9, commands=[half, half, READ])), Function.AS_OF)
    assert "in all its commands" in found.text
    assert refusal_of(head(b"t", 1, 9), Function.AS_OF).code is Code.BAD_BATCH


def test_a_name_of_a_table_does_not_belong_to_a_batch() -> None:
    assert refusal_of(head(b"t", 1) + inner(0)).code is Code.BAD_BATCH


# -- replies --------------------------------------------------------------------------------------


def test_inner_replies_say_their_kind() -> None:
    error = b"NOT_FOUND: the key does not exist"
    expected = (
        struct.pack(">I4x", 2)
        + struct.pack(">HHI", 1, 0, 24) + b"m" * 16 + struct.pack(">Q", 5)
        + struct.pack(">HHI", 0, len(error), 0) + error + bytes(-len(error) % 8)
    )  # fmt: skip
    assert batch.encode_replies(Replies(replies=[TOKEN, SHORT])) == expected


@pytest.mark.parametrize("reply", ANSWERS, ids=["none", "all", "jobs", "streams", "as-of"])
def test_each_answer_decodes_to_itself(reply: Replies) -> None:
    assert plain(batch.decode_replies(batch.encode_replies(reply))) == plain(reply)


def test_every_kind_of_reply_has_one_number() -> None:
    assert sorted(batch.TYPES) == list(range(1, 11))
    assert batch.REFUSED not in batch.TYPES


@pytest.mark.parametrize("reply", [*ANSWERS, Replies(replies=[LONG])])
def test_every_truncation_of_an_answer_is_refused(reply: Replies) -> None:
    body = batch.encode_replies(reply)
    for size in range(len(body)):
        with pytest.raises((ValueError, struct.error)):
            batch.decode_replies(body[:size])
    with pytest.raises(ValueError, match="longer than its replies"):
        batch.decode_replies(body + bytes(8))


def test_an_answer_of_an_unknown_kind_or_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 99"):
        batch.decode_replies(struct.pack(">I4x", 1) + struct.pack(">HHI", 99, 0, 0))
    with pytest.raises(ValueError, match=str(limits.BATCH_COMMANDS_MAX)):
        batch.decode_replies(struct.pack(">I4x", 2**32 - 1))


def test_keys_of_an_inner_message_are_those_of_the_command() -> None:
    found = decode(body_of(Batch(commands=[get_many("t", [b"a", b"b"])])))
    assert isinstance(found, Batch)
    (command,) = found.commands
    assert isinstance(command, commands.Get)
    assert command.keys == Strings.of([b"a", b"b"])
