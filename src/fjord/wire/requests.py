"""Requests: from bytes to commands, and from commands to bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from fjord import commands, limits
from fjord.columns import Buffer
from fjord.commands import Command, Refusal
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import batch, bodies, seed, session_bodies, stream_bodies
from fjord.wire.body import Encoded
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.cursor import Cursors
from fjord.wire.functions import (
    BODY_LENGTH,
    FLAGS,
    LAST_SEED_FUNCTION,
    MAGIC_REQUEST,
    REQUEST,
    VERSION,
    Flag,
    Function,
    unknown_flag,
)
from fjord.wire.message import Context

_BODY_START = REQUEST.size + BODY_LENGTH.size
# What a client may send, by number: the function, and the flags that it does not know.  Looked up
# once for every message, since members of an enum are slow to get at.
_ACCEPTED: Final = {
    int(function): (function, ~FLAGS[function])
    for function in Function
    if function is not Function.CHANGE
}
# Kernels take so many pieces and more in one call.
_PARTS_MAX: Final = 256
_HOLDERS: Final = frozenset(batch.HELD)
_USE: Final = Function.USE


class Request(NamedTuple):
    """One whole message of a client."""

    function: Function
    identifier: int
    flags: int
    command: Command | Refusal  # a refusal: the message was understood and is no good
    size: int  # bytes of the message
    listens: bool = False  # a SET or GET that also asks to be told of changes of its key


class RequestDecoder:
    """Bytes of one client in, requests out.

    It knows the table that the client has chosen with USE.  After a RemoteProtocolError the stream
    cannot be followed: answer once, and close.
    """

    def __init__(self, cursors: Cursors | None = None) -> None:
        self._buffer = ReceiveBuffer()
        self._context = Context(cursors)

    def feed(self, data: bytes) -> None:
        self._buffer.feed(data)

    @property
    def pending_bytes(self) -> int:
        """How much was fed and is not part of a request yet."""
        return len(self._buffer)

    @property
    def table(self) -> str:
        """The table of the seed functions."""
        return self._context.table

    def next(self) -> Request | None:
        """Returns the next whole request, None if bytes are missing.

        Raises:
            RemoteProtocolError: if the bytes are not FJ version 1.
        """
        buffer = self._buffer
        if not buffer.is_worth_a_look():
            return None
        if not buffer.has(REQUEST.size):
            _check_magic(buffer.take(0, 2))
            return None
        magic, version, number, identifier, flags, timestamp_us = REQUEST.unpack_from(
            buffer.data, buffer.start
        )
        if magic != MAGIC_REQUEST:
            _check_magic(magic)
        function = _check_header(version, number, flags)
        if number <= LAST_SEED_FUNCTION:
            found = seed.decode_request(buffer, function, flags, timestamp_us, self._context)
        else:
            found = self._decode_body(function, flags, timestamp_us)
        if found is None:
            return None
        command, length = found
        buffer.consume(length)
        return Request(function, identifier, flags, command, length, bool(flags & Flag.LISTEN))

    def _decode_body(
        self, function: Function, flags: int, timestamp_us: int
    ) -> tuple[Command | Refusal, int] | None:
        buffer = self._buffer
        if not buffer.has(_BODY_START):
            return None
        (size,) = BODY_LENGTH.unpack_from(buffer.data, buffer.start + REQUEST.size)
        if size > limits.MESSAGE_BYTES_MAX:
            raise RemoteProtocolError(
                Code.TOO_LARGE, f"a body has at most {limits.MESSAGE_BYTES_MAX} bytes"
            )
        if not buffer.has(_BODY_START + size):
            return None
        body = buffer.body(_BODY_START, size)
        command: Command | Refusal
        if function in _HOLDERS:
            command = batch.decode(function, body)
        elif function is _USE:
            command = self._use(body)
        else:
            command = bodies.decode_body(function, flags, timestamp_us, body)
        return command, _BODY_START + size

    def _use(self, body: bytes | memoryview) -> Command | Refusal:
        """Chooses a table: nothing that is left to anybody else to do."""
        table = session_bodies.decode_use(body)
        if isinstance(table, Refusal):
            return table
        self._context.table = table
        return commands.Nop()


def encode_request(command: Command, identifier: int) -> tuple[Function, bytes]:
    """Returns the function and the message for a command.

    Raises:
        LocalProtocolError: if a number or a name in it is beyond what the protocol has room for.
    """
    function, parts = encode_parts(command, identifier)
    return function, bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def encode_parts(command: Command, identifier: int) -> tuple[Function, list[Buffer]]:
    """Does the same for who can send a large message in pieces, without putting it together."""
    if isinstance(command, commands.Nop):
        return Function.NOP, [seed.encode_request(command, identifier)]
    try:
        if isinstance(command, commands.Append):
            flags = stream_bodies.append_flags(command)
            return _large(Function.APPEND, stream_bodies.append_parts(command), identifier, flags)
        if isinstance(command, batch.Holder):
            return _large(*batch.encode(command), identifier)
        return _message(bodies.encode_body(command), identifier)
    except (struct.error, ValueError, OverflowError) as error:
        raise LocalProtocolError(Code.BAD_BATCH, f"this cannot be sent: {error}") from error


def encode_use(table: str, identifier: int) -> bytes:
    """Returns the message that chooses the table of the seed functions."""
    return bytes(_message(session_bodies.encode_use(table), identifier)[1][0])


def _message(encoded: Encoded, identifier: int) -> tuple[Function, list[Buffer]]:
    function, flags, timestamp_us, body = encoded
    head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, timestamp_us)
    return function, [b"".join((head, BODY_LENGTH.pack(len(body)), body))]


def _large(
    function: Function, body: Sequence[Buffer], identifier: int, flags: int = 0
) -> tuple[Function, list[Buffer]]:
    """Does the same for a body in pieces; small ones are put together."""
    size = sum(map(len, body))
    head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, 0)
    parts = [head + BODY_LENGTH.pack(size), *body]
    is_large = size > limits.JOINED_BYTES_MAX and len(parts) <= _PARTS_MAX
    return function, parts if is_large else [b"".join(parts)]


def _check_magic(magic: bytes) -> None:
    if MAGIC_REQUEST.startswith(magic):
        return
    hint = ""
    if magic[:2] in (b"GE", b"PO", b"HE", b"PU"):
        hint = "; this looks like HTTP"
    elif magic[:1] == b"\x16":
        hint = "; this looks like TLS"
    raise RemoteProtocolError(Code.BAD_MAGIC, f"a message begins with FJ{hint}")


def _check_header(version: int, number: int, flags: int) -> Function:
    if version != VERSION:
        raise RemoteProtocolError(Code.BAD_VERSION, f"supported versions: {VERSION}")
    accepted = _ACCEPTED.get(number)
    if accepted is None:
        if number == Function.CHANGE:
            raise RemoteProtocolError(Code.FORBIDDEN, "CHANGE is what a server sends")
        raise RemoteProtocolError(
            Code.UNKNOWN_FUNCTION, f"function {number} does not exist in this version"
        )
    function, unknown = accepted
    if flags & unknown:
        raise RemoteProtocolError(Code.BAD_FLAGS, unknown_flag(function, flags))
    return function
