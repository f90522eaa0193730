"""Bodies of functions above 16: every command there and back, and refused when they are broken."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.commands import Command, Refusal
from fjord.errors import Code
from fjord.wire import Function, batch, bodies
from fjord.wire.body import encode_head
from tests.unit.wire.samples import COMMANDS, names_of
from tests.unit.wire.streams import plain

SINGLE = [one for one in COMMANDS if not isinstance(one, batch.Holder)]
each_command = pytest.mark.parametrize("command", SINGLE, ids=names_of(SINGLE))


def text_of(found: Command | Refusal) -> str:
    assert isinstance(found, Refusal)
    assert found.code is Code.BAD_BATCH
    assert len(found.text) < 256
    return found.text


def test_every_function_above_16_has_a_sample() -> None:
    found = {bodies.encode_body(command)[0] for command in SINGLE}
    above = {function for function in Function if function > 16}
    assert found == above - {Function.USE, *batch.HELD}


@each_command
def test_each_body_decodes_to_its_command(command: Command) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    for data in (body, memoryview(body)):
        assert plain(bodies.decode_body(function, flags, timestamp_us, data)) == plain(command)


@each_command
def test_each_body_is_a_multiple_of_8(command: Command) -> None:
    assert len(bodies.encode_body(command)[3]) % 8 == 0


@each_command
def test_every_truncation_of_a_body_is_refused(command: Command) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    for size in range(len(body)):
        text_of(bodies.decode_body(function, flags, timestamp_us, body[:size]))


@each_command
def test_a_body_with_more_than_its_columns_is_refused(command: Command) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    for more in (b"x", bytes(8)):
        found = bodies.decode_body(function, flags, timestamp_us, body + more)
        assert "longer than its columns" in text_of(found)


@each_command
def test_more_rows_than_the_columns_have_are_refused(command: Command) -> None:
    function, flags, timestamp_us, body = bodies.encode_body(command)
    for wrong in (1000, limits.BATCH_ROWS_MAX, 2**32 - 1):
        changed = body[:4] + wrong.to_bytes(4, "big") + body[8:]
        text_of(bodies.decode_body(function, flags, timestamp_us, changed))


# Functions whose argument has no meaning, or a bounded one.
@pytest.mark.parametrize(
    "function",
    sorted(
        {
            *(Function.GET_MANY, Function.DELETE_MANY, Function.RENAME_KEY, Function.LOCK_MANY),
            *(Function.UNLOCK_MANY, Function.LISTEN_MANY, Function.UNLISTEN, Function.MODIFY),
            *(Function.HELLO, Function.TABLES, Function.CREATE_TABLE, Function.DROP_TABLE),
            *(Function.STATS, Function.PUSH_MANY, Function.FINISH, Function.CANCEL, Function.BURY),
            *(Function.DISCARD, Function.FIND, Function.COUNT_JOBS, Function.LISTEN_JOBS),
            *(Function.APPEND, Function.ERASE, Function.REST, Function.UNSUBSCRIBE, Function.SEAL),
            Function.REPLACE_BLOCKS,
        }
    ),
)
def test_an_argument_that_means_nothing_is_refused(function: Function) -> None:
    found = [one for one in map(bodies.encode_body, SINGLE) if one[0] is function]
    for _, flags, timestamp_us, body in found:
        changed = body[:8] + b"\xff" * 8 + body[16:]
        assert "argument" in text_of(bodies.decode_body(function, flags, timestamp_us, changed))


@pytest.mark.parametrize(
    "function",
    [
        *(Function.HELLO, Function.STATS, Function.UNLISTEN),
        *(Function.OPEN_SNAPSHOT, Function.CLOSE_SNAPSHOT),
    ],
)
def test_a_table_where_none_belongs_is_refused(function: Function) -> None:
    found = [one for one in map(bodies.encode_body, SINGLE) if one[0] is function]
    for _, flags, timestamp_us, body in found:
        changed = encode_head("t", 0, int.from_bytes(body[8:16], "big")) + body[16:]
        assert "name" in text_of(bodies.decode_body(function, flags, timestamp_us, changed))
