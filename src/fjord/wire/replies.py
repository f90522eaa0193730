"""Replies: from what the engine answers to bytes, and from bytes to what a client gets."""

from __future__ import annotations

import struct
from typing import NamedTuple

from fjord import limits
from fjord.columns import Buffer, Strings
from fjord.commands import Done, Entries, Messages, Page, Refusal, Replies, Reply, Taken
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import batch, error_texts, reply_bodies, seed_jobs, seed_replies, stream_replies
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.cursor import Cursors
from fjord.wire.fields import Fields, IncompleteError
from fjord.wire.functions import (
    BODY_LENGTH,
    LAST_SEED_FUNCTION,
    MAGIC_REPLY,
    MAGIC_REQUEST,
    QUERY_BITS,
    QUERY_CURSOR,
    REPLY,
    REPLY_FLAGS,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
)
from fjord.wire.requests import Request
from fjord.wire.seed_replies import Pairs, RawChange, decode_change

# The largest reply: a full answer to GET_MANY or BATCH, with its columns of dates and offsets.
_BODY_BYTES_MAX = (
    limits.ANSWER_BYTES_MAX + 64 * limits.BATCH_ROWS_MAX + 64 * limits.BATCH_COMMANDS_MAX
)


def encode_answer(
    request: Request, reply: Reply, *, now_us: int, cursors: Cursors | None = None
) -> bytes:
    """Returns the JR message that answers a request, with a cursor where a page goes on."""
    cursor = b""
    if cursors is not None and not isinstance(request.command, Refusal):
        cursor = cursors.after(request.command, reply)
    return encode_reply(
        request.function, request.identifier, request.flags, reply, now_us=now_us, cursor=cursor
    )


def encode_reply(
    function: Function,
    identifier: int,
    flags: int,
    reply: Reply,
    *,
    now_us: int,
    cursor: bytes = b"",
) -> bytes:
    """Returns the JR message that answers a request of `function` with these flags."""
    if function <= LAST_SEED_FUNCTION:
        return seed_replies.encode_reply(
            function, identifier, flags, reply, now_us=now_us, cursor=cursor
        )
    if isinstance(reply, Refusal):
        head = seed_replies.encode_error(identifier, reply, now_us=now_us, flags=Flag.BODY)
        return head + BODY_LENGTH.pack(0)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, Flag.BODY, now_us)
    if isinstance(reply, Messages):
        return b"".join(encode_messages(identifier, reply, now_us=now_us))
    if isinstance(reply, Replies):
        body = batch.encode_replies(reply)
    else:
        body = reply_bodies.encode_body(reply)
    return b"".join((head, b"\0", BODY_LENGTH.pack(len(body)), body))


def encode_messages(identifier: int, reply: Messages, *, now_us: int) -> list[Buffer]:
    """Returns the JR message that answers a READ, in pieces: its ops are large, and not copied."""
    parts = stream_replies.message_parts(reply)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, Flag.BODY, now_us)
    return [head + b"\0" + BODY_LENGTH.pack(sum(map(len, parts))), *parts]


def encode_fatal(error: RemoteProtocolError, *, now_us: int) -> bytes:
    """Returns the one answer to bytes that are not the protocol; identifier 0."""
    return seed_replies.encode_error(0, Refusal(code=error.code, text=error.text), now_us=now_us)


class RawReply(NamedTuple):
    """One whole JR message; what it means depends on the request."""

    identifier: int
    flags: int
    timestamp_us: int
    timeout_us: int
    error: bytes
    type: bytes
    data: bytes  # the value
    page: Page | None = None  # keys and values of a query; its next key is a cursor
    body: Buffer = b""


class ReplyDecoder:
    """Bytes of a server in, replies and changes out."""

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer()
        self._pairs = Pairs()

    def feed(self, data: bytes | bytearray) -> None:
        self._buffer.feed(data)

    @property
    def missing(self) -> int:
        """How many bytes the message that has begun lacks, as far as its beginning tells."""
        return self._buffer.missing

    def take_all(self) -> memoryview:
        """Returns the beginning of a message, which is then fed again together with its rest."""
        return self._buffer.take_all()

    def next(self) -> RawReply | RawChange | None:
        """Returns the next whole message, None if bytes are missing.

        Raises:
            RemoteProtocolError: if the bytes are not FJ version 1.
        """
        buffer = self._buffer
        if not buffer.is_worth_a_look() or not buffer.has(REPLY.size):
            return None
        found: RawReply | RawChange
        try:
            if buffer.data[buffer.start] == MAGIC_REQUEST[0]:
                found, length = decode_change(buffer)
            else:
                found, length = self._decode_reply()
        except IncompleteError:
            return None
        buffer.consume(length)
        return found

    def _decode_reply(self) -> tuple[RawReply, int]:
        buffer = self._buffer
        magic, version, identifier, flags, timestamp_us = REPLY.unpack_from(
            buffer.data, buffer.start
        )
        if magic != MAGIC_REPLY or version != VERSION:
            raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is no Fjord server of version 1")
        fields = Fields(buffer, REPLY.size, flags)
        if flags & ~_PLAIN_FLAGS:
            return self._decode_more(fields, identifier, timestamp_us)
        timeout_us = fields.u64() if flags & Flag.TIMEOUT else 0
        error = fields.key()
        type_, data = fields.value("a reply") if flags & VALUE_BITS else (b"", b"")
        body = _decode_body(fields) if flags & Flag.BODY else b""
        raw = RawReply(identifier, flags, timestamp_us, timeout_us, error, type_, data, None, body)
        return raw, fields.offset

    def _decode_more(
        self, fields: Fields, identifier: int, timestamp_us: int
    ) -> tuple[RawReply, int]:
        """Reads a reply to a query."""
        flags = fields.flags
        query = flags & QUERY_BITS
        if flags & ~REPLY_FLAGS or flags & Flag.BODY or query not in (0, QUERY_CURSOR):
            raise RemoteProtocolError(Code.BAD_FLAGS, f"a reply with flags {flags:#06x}")
        if not flags & Flag.COUNT:
            raise RemoteProtocolError(Code.BAD_COUNT, "a reply with a cursor has a count")
        timeout_us = fields.u64() if flags & Flag.TIMEOUT else 0
        count = fields.u16()
        error = fields.key()
        page = self._pairs.read(fields, count)
        self._pairs = Pairs()
        raw = RawReply(identifier, flags, timestamp_us, timeout_us, error, b"", b"", page)
        return raw, fields.offset


# What most replies have: no count, no cursor.
_PLAIN_FLAGS = REPLY_FLAGS & ~(Flag.COUNT | QUERY_BITS)


def _decode_body(fields: Fields) -> Buffer:
    buffer, offset = fields.buffer, fields.offset
    fields.skip(BODY_LENGTH.size)
    (size,) = BODY_LENGTH.unpack_from(buffer.data, buffer.start + offset)
    if size > _BODY_BYTES_MAX:
        raise RemoteProtocolError(Code.TOO_LARGE, f"a reply of {size} bytes")
    fields.skip(size)
    return buffer.body(offset + BODY_LENGTH.size, size)


def read_reply(function: Function, raw: RawReply) -> Reply:
    """Returns what a reply to `function` says.

    Raises:
        RemoteProtocolError: if it is not a reply to that.
    """
    if raw.error:
        return error_texts.decode(raw.error)
    if function > LAST_SEED_FUNCTION:
        return _read_body(function, raw)
    if raw.flags & Flag.BODY:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply to {function.name} with a body")
    if function is Function.NEXT:
        return _read_taken(raw)
    if raw.page is not None:
        return raw.page
    if raw.flags & VALUE_BITS:
        return _read_entry(raw)
    return Done(master=b"", seq=0)


def _read_taken(raw: RawReply) -> Taken:
    if raw.page is None and raw.flags & VALUE_BITS:
        raise RemoteProtocolError(Code.BAD_BATCH, "a reply to NEXT with a value without a key")
    return seed_jobs.read_taken(raw.page, raw.timeout_us)


def _read_entry(raw: RawReply) -> Entries:
    state = 0
    if raw.flags & (Flag.OVERWRITE | Flag.WORKED_ON):
        state |= Entries.LOCKED if raw.flags & Flag.OVERWRITE else 0
        state |= Entries.WORKED_ON if raw.flags & Flag.WORKED_ON else 0
    return Entries(
        types=raw.type,
        values=Strings.of([raw.data]),
        timestamps_us=(raw.timestamp_us,),
        expires_at_us=(raw.timeout_us,),
        states=bytes((state,)),
        created_us=(0,),
        accessed_us=(0,),
        ttls_us=(0,),
    )


def _read_body(function: Function, raw: RawReply) -> Reply:
    if not raw.flags & Flag.BODY:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply to {function.name} without a body")
    try:
        if function in batch.ANSWERED_EACH:
            return batch.decode_replies(raw.body)
        return reply_bodies.decode_body(function, raw.body)
    except (ValueError, struct.error) as error:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a broken reply: {error}") from error
