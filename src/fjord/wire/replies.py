"""Replies: from what the engine answers to bytes, and from bytes to what a client gets."""

from __future__ import annotations

import struct
from typing import NamedTuple

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Done, Entries, Refusal, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import batch, seed
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.functions import (
    BODY_LENGTH,
    LAST_SEED_FUNCTION,
    MAGIC_REPLY,
    REPLY,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
)

# The largest reply: a full answer to GET_MANY, with its columns of dates and offsets.
_BODY_BYTES_MAX = limits.ANSWER_BYTES_MAX + 64 * limits.BATCH_ROWS_MAX


def encode_reply(
    function: Function, identifier: int, flags: int, reply: Reply, *, now_us: int
) -> bytes:
    """Returns the JR message that answers a request."""
    if function <= LAST_SEED_FUNCTION:
        with_data = bool(flags & Flag.DATA)
        return seed.encode_reply(identifier, reply, now_us=now_us, with_data=with_data)
    if isinstance(reply, Refusal):
        head = seed.encode_error(identifier, reply, now_us=now_us, flags=Flag.BODY)
        return head + BODY_LENGTH.pack(0)
    body = batch.encode_reply_body(reply)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, Flag.BODY, now_us)
    return b"".join((head, b"\0", BODY_LENGTH.pack(len(body)), body))


def encode_fatal(error: RemoteProtocolError, *, now_us: int) -> bytes:
    """Returns the one answer to bytes that are not the protocol; identifier 0."""
    return seed.encode_error(0, Refusal(code=error.code, text=error.text), now_us=now_us)


class RawReply(NamedTuple):
    """One whole JR message; what it means depends on the request."""

    identifier: int
    flags: int
    timestamp_us: int
    timeout_us: int
    error: bytes
    type: bytes
    data: bytes  # the value, or the body


class ReplyDecoder:
    """Bytes of a server in, replies out."""

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer()

    def feed(self, data: bytes) -> None:
        self._buffer.feed(data)

    def next(self) -> RawReply | None:
        """Returns the next whole reply, None if bytes are missing.

        Raises:
            RemoteProtocolError: if the bytes are not FJ version 1.
        """
        buffer = self._buffer
        if not buffer.is_worth_a_look() or not buffer.has(REPLY.size):
            return None
        magic, version, identifier, flags, timestamp_us = REPLY.unpack_from(
            buffer.data, buffer.start
        )
        if magic != MAGIC_REPLY or version != VERSION:
            raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is no Fjord server of version 1")
        fields = seed.decode_reply_fields(buffer, flags)
        if fields is None:
            return None
        timeout_us, error, type_, data, length = fields
        if flags & Flag.BODY:
            if not buffer.has(length + BODY_LENGTH.size):
                return None
            (size,) = BODY_LENGTH.unpack_from(buffer.data, buffer.start + length)
            if size > _BODY_BYTES_MAX:
                raise RemoteProtocolError(Code.TOO_LARGE, f"a reply of {size} bytes")
            length += BODY_LENGTH.size
            if not buffer.has(length + size):
                return None
            data = buffer.take(length, size)
            length += size
        buffer.consume(length)
        return RawReply(identifier, flags, timestamp_us, timeout_us, error, type_, data)


def read_reply(function: Function, raw: RawReply) -> Reply:
    """Returns what a reply to `function` says.

    Raises:
        RemoteProtocolError: if it is not a reply to that.
    """
    if raw.error:
        return _read_refusal(raw.error)
    if function > LAST_SEED_FUNCTION:
        return _read_body(function, raw)
    if raw.flags & Flag.BODY:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply to {function.name} with a body")
    if raw.flags & VALUE_BITS:
        return Entries(
            types=raw.type,
            values=Strings.of([raw.data]),
            timestamps_us=(raw.timestamp_us,),
            expires_at_us=(raw.timeout_us,),
        )
    return Done(master=b"", seq=0)


def _read_body(function: Function, raw: RawReply) -> Reply:
    if not raw.flags & Flag.BODY:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply to {function.name} without a body")
    try:
        return batch.decode_reply_body(function, raw.data)
    except (ValueError, struct.error) as error:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a broken reply: {error}") from error


def _read_refusal(text: bytes) -> Refusal:
    code, _, sentence = text.decode(errors="replace").partition(": ")
    try:
        return Refusal(code=Code(code), text=sentence)
    except ValueError:
        return Refusal(code=Code.FAILED, text=text.decode(errors="replace"))
