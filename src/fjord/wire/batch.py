"""BATCH, AS_OF and STAGE: commands in one message; the replies to the first two are in one, too.

    request body = head (rows: how many commands, argument), inner*
    argument     = BATCH: the client's number or 0, AS_OF: the snapshot, STAGE: 0
    inner        = function u16, flags u16, length u32, timestamp u64, body, padding

    reply body   = rows u32, 4 zero bytes, inner*
    inner        = kind u16, size of the error u16, length u32, error, body, padding

An inner message is one above 16 without magic, version and identifier, or a NOP without a body.
What a reply holds is said by its kind, so whoever reads it need not remember what was asked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from fjord import commands, limits
from fjord.columns import Buffer, aligned, padding
from fjord.commands import (
    Acted,
    Command,
    Done,
    Entries,
    JobPage,
    Messages,
    Numbers,
    Page,
    Position,
    Refusal,
    Replies,
    Reply,
    Subscribers,
    TableList,
)
from fjord.errors import Code
from fjord.wire import bodies, error_texts, reply_bodies, stream_bodies
from fjord.wire.body import Body, Encoded, encode_head
from fjord.wire.functions import FUNCTIONS, Function, unknown_flag

INNER = struct.Struct(">HHIQ")
ROWS = struct.Struct(">I4x")
INNER_REPLY = struct.Struct(">HHI")

# What can be undone, or need not be.  Jobs that were handed out must not be taken back; and what
# waits, or looks into blocks, would let all others wait.
INSIDE: Final = frozenset(
    (
        Function.NOP,
        Function.TABLES,
        Function.CREATE_TABLE,
        Function.DROP_TABLE,
        Function.SET_MANY,
        Function.GET_MANY,
        Function.DELETE_MANY,
        Function.TOUCH_MANY,
        Function.MODIFY,
        Function.RENAME_KEY,
        Function.LOCK_MANY,
        Function.UNLOCK_MANY,
        Function.RANGE,
        Function.PUSH_MANY,
        Function.FINISH,
        Function.EXTEND,
        Function.FAIL,
        Function.CANCEL,
        Function.RESCHEDULE,
        Function.BURY,
        Function.REVIVE,
        Function.DISCARD,
        Function.PEEK,
        Function.FIND,
        Function.COUNT_JOBS,
        Function.APPEND,
        Function.ERASE,
        Function.SUBSCRIBE,
        Function.ACKNOWLEDGE,
        Function.SEEK,
        Function.REST,
        Function.UNSUBSCRIBE,
        Function.SUBSCRIBERS,
        Function.ADVANCE,
    )
)
# What each function that holds commands may hold.
HELD: Final[dict[Function, frozenset[Function]]] = {
    Function.BATCH: INSIDE,
    Function.AS_OF: frozenset((Function.GET_MANY, Function.RANGE, Function.READ)),
    Function.STAGE: frozenset((Function.APPEND, Function.PUSH_MANY, Function.SET_MANY)),
}
NAMES: Final = {Function.BATCH: "a batch", Function.AS_OF: "AS_OF", Function.STAGE: "STAGE"}
# Whose reply is one for each command.
ANSWERED_EACH: Final = frozenset((Function.BATCH, Function.AS_OF))
Holder = commands.Batch | commands.AsOf | commands.Stage

REFUSED: Final = 0
KINDS: Final[dict[type[Reply], int]] = {
    Done: 1,
    Entries: 2,
    Page: 3,
    TableList: 4,
    Numbers: 5,
    JobPage: 6,
    Acted: 7,
    Messages: 8,
    Position: 9,
    Subscribers: 10,
}
TYPES: Final[dict[int, type[Reply]]] = {kind: type_ for type_, kind in KINDS.items()}


# -- requests -------------------------------------------------------------------------------------


def encode(command: Holder) -> tuple[Function, list[Buffer]]:
    """Returns the function, and the body in pieces: it may be large, and is put together once.

    Raises:
        struct.error, ValueError, OverflowError: if a command does not belong here, or fits not.
    """
    held: Sequence[Any]
    if isinstance(command, commands.AsOf):
        function, argument, held = Function.AS_OF, command.snapshot, command.commands
    elif isinstance(command, commands.Stage):
        function, argument, held = Function.STAGE, 0, (command.rows,)
    else:
        function, argument, held = Function.BATCH, command.number, command.commands
    parts: list[Buffer] = [encode_head("", len(held), argument)]
    for one in held:
        if type(one) is commands.Append and function is not Function.AS_OF:
            pieces = stream_bodies.append_parts(one)
            size = sum(map(len, pieces))
            head = INNER.pack(Function.APPEND, stream_bodies.append_flags(one), size, 0)
            parts += (head, *pieces, padding(size))
        else:
            inner, flags, timestamp_us, body = _encode_inner(function, one)
            head = INNER.pack(inner, flags, len(body), timestamp_us)
            parts += (head, body, padding(len(body)))
    return function, parts


def _encode_inner(function: Function, command: Any) -> Encoded:
    if isinstance(command, commands.Nop) and function is Function.BATCH:
        return Function.NOP, 0, 0, b""
    if isinstance(command, commands.Nop | Holder):
        raise ValueError(f"{NAMES[function]} holds no {type(command).__name__}")
    found = bodies.encode_body(command)
    if found[0] not in HELD[function]:
        raise ValueError(f"{NAMES[function]} holds no {found[0].name}")
    return found


def decode(function: Function, body: Buffer) -> Holder | Refusal:
    """Returns the batch of a body; if anything in it is wrong, all of it is."""
    try:
        return _decode(function, Body(body, 0, 0))
    except (ValueError, struct.error) as error:
        return Refusal(code=Code.BAD_BATCH, text=str(error))


def _decode(function: Function, body: Body) -> Holder | Refusal:
    body.has_no_table()
    if function is Function.STAGE:
        body.has_rows(1)
    if not 1 <= body.rows <= limits.BATCH_COMMANDS_MAX:
        raise ValueError(f"a batch has 1 to {limits.BATCH_COMMANDS_MAX} commands")
    found: list[Command] = []
    entries = 0
    for position in range(1, body.rows + 1):
        command = _decode_inner(function, body)
        if isinstance(command, Refusal):
            return Refusal(
                code=command.code, text=f"command {position} of the batch: {command.text}"
            )
        found.append(command)
        entries += _rows(command)
    body.end()
    if entries > limits.BATCH_ROWS_MAX:
        raise ValueError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows in all its commands")
    if function is Function.AS_OF:
        return commands.AsOf(snapshot=body.argument, commands=found)
    if function is Function.STAGE:
        body.end_plain()
        (rows,) = found
        assert isinstance(rows, commands.Append | commands.Push | commands.Set)
        return commands.Stage(rows=rows)
    return commands.Batch(commands=found, number=body.argument)


def _decode_inner(outer: Function, body: Body) -> Command | Refusal:
    if body.position + INNER.size > len(body.view):
        return _bad("it is cut short")
    number, flags, length, timestamp_us = body.field(INNER)
    end = body.position + length
    if end > len(body.view):
        return _bad("its body is cut short")
    inner = body.view[body.position : end]
    body.position = aligned(end)
    function = FUNCTIONS.get(number)
    if function not in HELD[outer]:
        return _bad(f"function {number} has no place in {NAMES[outer]}")
    problem = unknown_flag(function, flags)
    if problem:
        return _bad(problem)
    if function is Function.NOP:
        return _bad("NOP has no body") if length else commands.Nop()
    command = bodies.decode_body(function, flags, timestamp_us, inner)
    if isinstance(command, commands.Read) and command.wait_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="nothing new comes as of a snapshot: wait is 0")
    return command


def _bad(text: str) -> Refusal:
    return Refusal(code=Code.BAD_BATCH, text=text)


def _rows(command: Command) -> int:
    if isinstance(command, commands.Advance):
        return 0  # so that whatever fits into a message of its own is sent with one
    for name in ("keys", "xids", "rows"):
        column = getattr(command, name, None)
        if column is not None:
            return len(column)
    return 1


# -- replies --------------------------------------------------------------------------------------


def encode_replies(reply: Replies) -> bytes:
    parts = [ROWS.pack(len(reply.replies))]
    for one in reply.replies:
        kind, error, body = _encode_reply(one)
        head = INNER_REPLY.pack(kind, len(error), len(body))
        parts += (head, error, body, padding(len(error) + len(body)))
    return b"".join(parts)


def _encode_reply(reply: Reply) -> tuple[int, bytes, bytes]:
    if isinstance(reply, Refusal):
        return REFUSED, error_texts.encode(reply), b""
    return KINDS[type(reply)], b"", reply_bodies.encode_body(reply)


def decode_replies(body: Buffer) -> Replies:
    """Returns the replies of a body.

    Raises:
        ValueError, struct.error: if the body is not one.
    """
    (rows,) = ROWS.unpack_from(body)
    if rows > limits.BATCH_COMMANDS_MAX:
        raise ValueError(f"a batch has at most {limits.BATCH_COMMANDS_MAX} commands")
    found: list[Reply] = []
    position = ROWS.size
    for _ in range(rows):
        kind, error_size, length = INNER_REPLY.unpack_from(body, position)
        begin = position + INNER_REPLY.size
        middle, end = begin + error_size, begin + error_size + length
        if end > len(body):
            raise ValueError("a reply in a batch is cut short")
        found.append(_decode_reply(kind, body[begin:middle], body[middle:end]))
        position = aligned(end)
    if position != len(body):
        raise ValueError("the body is longer than its replies")
    return Replies(replies=found)


def _decode_reply(kind: int, error: Buffer, body: Buffer) -> Reply:
    if kind == REFUSED:
        return error_texts.decode(bytes(error))
    type_ = TYPES.get(kind)
    if type_ is None:
        raise ValueError(f"a reply of kind {kind}")
    return reply_bodies.DECODERS[type_](body)
