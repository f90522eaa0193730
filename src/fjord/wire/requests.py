"""Requests: from bytes to commands, and from commands to bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from fjord import commands, limits
from fjord.commands import Command, Refusal
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import batch, seed
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.functions import (
    BODY_LENGTH,
    FLAG_NAMES,
    FLAGS,
    FUNCTIONS,
    LAST_SEED_FUNCTION,
    MAGIC_REQUEST,
    REQUEST,
    VERSION,
    Function,
)


class Request(NamedTuple):
    """One whole message of a client."""

    function: Function
    identifier: int
    flags: int
    command: Command | Refusal  # a refusal: the message was understood and is no good
    size: int  # bytes of the message


class RequestDecoder:
    """Bytes of one client in, requests out.

    After a RemoteProtocolError the stream cannot be followed: answer once, and close.
    """

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer()

    def feed(self, data: bytes) -> None:
        self._buffer.feed(data)

    @property
    def pending_bytes(self) -> int:
        """How much was fed and is not part of a request yet."""
        return len(self._buffer)

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
        command: Command | Refusal
        if number <= LAST_SEED_FUNCTION:
            found = seed.decode_request(buffer, function, flags, timestamp_us)
            if found is None:
                return None
            command, length = found
        else:
            if not buffer.has(REQUEST.size + BODY_LENGTH.size):
                return None
            (size,) = BODY_LENGTH.unpack_from(buffer.data, buffer.start + REQUEST.size)
            if size > limits.MESSAGE_BYTES_MAX:
                raise RemoteProtocolError(
                    Code.TOO_LARGE, f"a body has at most {limits.MESSAGE_BYTES_MAX} bytes"
                )
            length = REQUEST.size + BODY_LENGTH.size + size
            if not buffer.has(length):
                return None
            body = buffer.take(REQUEST.size + BODY_LENGTH.size, size)
            command = batch.decode_body(function, flags, timestamp_us, body)
        buffer.consume(length)
        return Request(function, identifier, flags, command, length)


def encode_request(command: Command, identifier: int) -> tuple[Function, bytes]:
    """Returns the function and the message for a command.

    Raises:
        LocalProtocolError: if a number or a name in it is beyond what the protocol has room for.
    """
    if isinstance(command, commands.Nop):
        return Function.NOP, seed.encode_request(command, identifier)
    try:
        function, flags, timestamp_us, body = batch.encode_body(command)
        head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, timestamp_us)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise LocalProtocolError(Code.BAD_BATCH, f"this cannot be sent: {error}") from error
    return function, b"".join((head, BODY_LENGTH.pack(len(body)), body))


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
    function = FUNCTIONS.get(number)
    if function is None:
        raise RemoteProtocolError(
            Code.UNKNOWN_FUNCTION, f"function {number} does not exist in this version"
        )
    wrong = flags & ~FLAGS[number]
    if wrong:
        bit = (wrong & -wrong).bit_length() - 1
        raise RemoteProtocolError(
            Code.BAD_FLAGS, f"bit {bit} ({FLAG_NAMES[1 << bit]}) is not known to {function.name}"
        )
    return function
