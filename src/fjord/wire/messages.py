"""Messages: from bytes to requests and replies, and back.

Functions up to 16 are in `seed`; all above have a body, which `commands.codec` knows:

    request = header [number u64] length u32, body       the number with Flag.NUMBER
    reply   = header error length u32, body

A server has a `RequestDecoder` for each connection, a client a `Link`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from fjord import commands, limits
from fjord.columns import Buffer
from fjord.commands import (
    FUNCTIONS,
    Changed,
    Command,
    Done,
    Flag,
    Page,
    Refusal,
    Reply,
    Row,
    Use,
    codec,
)
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import seed
from fjord.wire.cursor import Cursors
from fjord.wire.fields import (
    BODY_LENGTH,
    LAST_SEED_FUNCTION,
    MAGIC_REPLY,
    MAGIC_REQUEST,
    REPLY,
    REQUEST,
    U64,
    VERSION,
    VIEW_BYTES_MIN,
    Fields,
    IncompleteError,
    ReceiveBuffer,
    decode_error,
)
from fjord.wire.seed import RawChange

# Kernels accept at least this many pieces in one call.
_PARTS_MAX: Final = 256
# The largest reply: a full answer to GET_MANY or BATCH, with its columns of dates and offsets.
_REPLY_BYTES_MAX: Final = (
    limits.ANSWER_BYTES_MAX + 64 * limits.BATCH_ROWS_MAX + 64 * limits.BATCH_COMMANDS_MAX
)

# -- requests, as a server reads them -------------------------------------------------------------


class Request(NamedTuple):
    """One whole message of a client."""

    function: int
    identifier: int
    flags: int
    command: Command | Refusal  # a refusal: the message was understood and is no good
    size: int  # bytes of the message
    number: int = 0  # the client's: a retry with it is applied once

    @property
    def listens(self) -> bool:
        """Says whether a SET or GET also listens for changes of its key."""
        return bool(self.flags & Flag.LISTEN)


class RequestDecoder(ReceiveBuffer):
    """Bytes of one client in, requests out.

    It knows the table that the client has chosen with USE.  After a RemoteProtocolError the stream
    cannot be followed: answer once, and close.
    """

    def __init__(self, cursors: Cursors | None = None) -> None:
        super().__init__()
        self._cursors = cursors
        self.table = commands.DEFAULT_TABLE  # of the seed functions

    def next(self) -> Request | None:
        """Returns the next whole request, None if bytes are missing.

        Raises:
            RemoteProtocolError: if the bytes are not FJ version 1, or a message is too large.
        """
        pending = self.pending_bytes
        if pending < self.needed:
            return None
        if pending < REQUEST.size:
            _check_magic(self.take(0, 2))
            self.needed = REQUEST.size
            return None
        magic, version, function, identifier, flags, timestamp_us = REQUEST.unpack_from(
            self.data, self.start
        )
        if magic != MAGIC_REQUEST:
            _check_magic(magic)
        if version != VERSION:
            raise RemoteProtocolError(Code.BAD_VERSION, f"supported versions: {VERSION}")
        found: tuple[Command | Refusal, int, int] | None
        if function > LAST_SEED_FUNCTION:
            found = self._decode_body(function, flags, timestamp_us)
        else:
            found = seed.decode_request(
                self, function, flags, timestamp_us, self.table, self._cursors
            )
        if found is None:
            return None
        command, size, number = found
        self.start += size
        self.pending_bytes = pending - size
        self.needed = 1
        return Request(function, identifier, flags, command, size, number)

    def _decode_body(
        self, function: int, flags: int, timestamp_us: int
    ) -> tuple[Command | Refusal, int, int] | None:
        """Returns command, size and number of a message; None if bytes are missing."""
        row = FUNCTIONS.get(function)
        if row is None:
            text = f"function {function} does not exist in this version"
            raise RemoteProtocolError(Code.UNKNOWN_FUNCTION, text)
        if flags & ~row.flags:
            text = codec.unknown_flag(row.flags, flags, row.name)
            raise RemoteProtocolError(Code.BAD_FLAGS, text)
        data, start, pending = self.data, self.start, self.pending_bytes
        head = _NUMBERED if flags & Flag.NUMBER else _UNNUMBERED
        if pending < head.size:
            self.needed = head.size
            return None
        size: int
        (size,) = BODY_LENGTH.unpack_from(data, start + head.size - BODY_LENGTH.size)
        if size > limits.MESSAGE_BYTES_MAX:
            text = f"a body has at most {limits.MESSAGE_BYTES_MAX} bytes"
            raise RemoteProtocolError(Code.TOO_LARGE, text)
        end = head.size + size
        if pending < end:
            self.needed = end
            return None
        body: Buffer
        if size < VIEW_BYTES_MIN and type(data) is bytes:
            body = data[start + head.size : start + end]
        else:
            body = self.body(head.size, size)
        command = codec.decode(row, flags, timestamp_us, body)
        if type(command) is Use:
            command = self._use(command.table)
        number = 0
        if flags & Flag.NUMBER:
            (number,) = U64.unpack_from(data, start + REQUEST.size)
            if not number:
                command = _NO_NUMBER
        return command, end, number

    def _use(self, table: str) -> Command | Refusal:
        """Selects a table, which needs no further execution."""
        problem = commands.name_problem(table)
        if problem is None:
            self.table = table
        return problem or commands.Nop()


_NO_NUMBER: Final = Refusal(code=Code.BAD_BATCH, text="numbers begin with 1; clear bit 15 for none")


def _check_magic(magic: bytes) -> None:
    if MAGIC_REQUEST.startswith(magic):
        return
    hint = ""
    if magic[:2] in (b"GE", b"PO", b"HE", b"PU"):
        hint = "; this looks like HTTP"
    elif magic[:1] == b"\x16":
        hint = "; this looks like TLS"
    raise RemoteProtocolError(Code.BAD_MAGIC, f"a message begins with FJ{hint}")


# -- requests, as a client writes them ------------------------------------------------------------


def encode_request(command: Command, identifier: int, number: int = 0) -> list[Buffer]:
    """Returns the message for a command, a large one in pieces.

    Raises:
        LocalProtocolError: if a number or a name in it does not fit the protocol.
    """
    row = type(command).row
    try:
        flags, timestamp_us, body = row.encode(command)
    except (struct.error, ValueError, OverflowError) as error:
        raise LocalProtocolError(Code.BAD_BATCH, f"this cannot be sent: {error}") from error
    if row.number <= LAST_SEED_FUNCTION:  # NOP
        return [REQUEST.pack(MAGIC_REQUEST, VERSION, row.number, identifier, flags, timestamp_us)]
    size = sum(map(len, body))
    header = MAGIC_REQUEST, VERSION, row.number, identifier
    if number:
        head = _NUMBERED.pack(*header, flags | Flag.NUMBER, timestamp_us, number, size)
    else:
        head = _UNNUMBERED.pack(*header, flags, timestamp_us, size)
    if size > limits.JOINED_BYTES_MAX:
        return _joined([head, *body], size)
    return [head + b"".join(body)]


_UNNUMBERED: Final = struct.Struct(REQUEST.format + BODY_LENGTH.format[1:])
_NUMBERED: Final = struct.Struct(REQUEST.format + U64.format[1:] + BODY_LENGTH.format[1:])


def _joined(parts: list[Buffer], size: int) -> list[Buffer]:
    """Joins small pieces; joining large ones would take longer than sending each."""
    if size > limits.JOINED_BYTES_MAX and len(parts) <= _PARTS_MAX:
        return parts
    return [b"".join(parts)]


# -- replies, as a server writes them -------------------------------------------------------------


def encode_reply(
    request: Request, reply: Reply, *, now_us: int, cursors: Cursors | None = None
) -> list[Buffer]:
    """Returns the message that answers a request, a large one in pieces."""
    if request.function <= LAST_SEED_FUNCTION:
        cursor = b""
        if type(reply) is Page and cursors is not None:
            cursor = cursors.after(request.command, reply)
        asked = request.function, request.identifier, request.flags
        return [seed.encode_reply(*asked, reply, now_us=now_us, cursor=cursor)]
    if type(reply) is Refusal:
        error = seed.encode_error(request.identifier, reply, now_us=now_us, flags=Flag.BODY)
        return [error + BODY_LENGTH.pack(0)]
    body = type(reply).row.encode(reply)
    size = sum(map(len, body))
    head = REPLY.pack(MAGIC_REPLY, VERSION, request.identifier, Flag.BODY, now_us)
    parts = [head + b"\0" + BODY_LENGTH.pack(size), *body]
    return [b"".join(parts)] if size <= limits.JOINED_BYTES_MAX else _joined(parts, size)


def encode_fatal(error: RemoteProtocolError, *, now_us: int) -> bytes:
    """Returns the reply to invalid bytes; identifier 0."""
    return seed.encode_error(0, Refusal(code=error.code, text=error.text), now_us=now_us)


# -- replies, as a client reads them --------------------------------------------------------------


class RawReply(NamedTuple):
    """One whole reply to NOP or to a function above 16."""

    identifier: int
    error: bytes
    body: Buffer | None  # None: there is none

    def refusal(self) -> Refusal:
        return decode_error(self.error)


class ReplyDecoder(ReceiveBuffer):
    """Bytes of a server in, replies and changes out."""

    def next(self) -> RawReply | RawChange | None:
        """Returns the next whole message, None if bytes are missing.

        Raises:
            RemoteProtocolError: if the bytes are not FJ version 1.
        """
        data, start, size = self.data, self.start, self.pending_bytes
        if size < self.needed:
            return None
        if size >= _PLAIN.size:
            beginning, identifier, flags, error_size, body_size = _PLAIN.unpack_from(data, start)
            if beginning == _REPLY_BEGINNING and flags == Flag.BODY and not error_size:
                # Nearly every message: a reply that is no error.
                end = _PLAIN.size + body_size
                if size < end or body_size >= VIEW_BYTES_MIN:
                    return self._next_large(identifier, body_size)
                self.start, self.pending_bytes, self.needed = start + end, size - end, 1
                return RawReply(identifier, b"", bytes(data[start + _PLAIN.size : start + end]))
        elif size < REPLY.size:
            self.needed = REPLY.size
            return None
        found: RawReply | RawChange
        try:
            if data[start] == MAGIC_REQUEST[0]:
                found, length = seed.decode_change(self)
            else:
                found, length = _decode_reply(self)
        except IncompleteError:
            return None
        self.consume(length)
        return found

    def _next_large(self, identifier: int, size: int) -> RawReply | None:
        """Returns a reply that is large or incomplete."""
        _check_size(size)
        if not self.has(_PLAIN.size + size):
            return None
        body = self.body(_PLAIN.size, size)
        self.consume(_PLAIN.size + size)
        return RawReply(identifier, b"", body)


# Magic and version, identifier, flags, size of the error, and where that is 0 the body's length.
_PLAIN: Final = struct.Struct(">4sHH8xBI")
_REPLY_BEGINNING: Final = MAGIC_REPLY + VERSION.to_bytes(2, "big")


def _decode_reply(buffer: ReceiveBuffer) -> tuple[RawReply, int]:
    magic, version, identifier, flags, _ = REPLY.unpack_from(buffer.data, buffer.start)
    if magic != MAGIC_REPLY or version != VERSION:
        raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is not a Fjord server of version 1")
    if flags & ~(Flag.KEY_16 | Flag.BODY):
        raise RemoteProtocolError(Code.BAD_FLAGS, f"a reply with flags {flags:#06x}")
    fields = Fields(buffer, REPLY.size, flags)
    error = fields.key()
    body = _decode_body(fields) if flags & Flag.BODY else None
    return RawReply(identifier, error, body), fields.offset


def _decode_body(fields: Fields) -> Buffer:
    buffer, offset = fields.buffer, fields.offset
    fields.skip(BODY_LENGTH.size)
    (size,) = BODY_LENGTH.unpack_from(buffer.data, buffer.start + offset)
    _check_size(size)
    fields.skip(size)
    return buffer.body(offset + BODY_LENGTH.size, size)


def _check_size(size: int) -> None:
    if size > _REPLY_BYTES_MAX:
        raise RemoteProtocolError(Code.TOO_LARGE, f"a reply of {size} bytes")


def read_reply(row: Row, raw: RawReply) -> Reply:
    """Decodes the reply to a command of this row.

    Raises:
        RemoteProtocolError: if it does not fit the command.
    """
    if raw.error:
        return raw.refusal()
    if raw.body is None:
        if row is commands.Nop.row:
            return Done(master=b"", seq=0)
        raise RemoteProtocolError(Code.BAD_BATCH, "a reply without a body")
    try:
        return codec.decode_reply(raw.body)
    except (ValueError, struct.error) as error:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a broken reply: {error}") from error


# -- requests and replies of one connection, as a client has them ---------------------------------


class Link(ReplyDecoder):
    """Numbers requests, and matches replies by number.

    A request that listens keeps its number for as long as the connection lives: changes carry it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._in_flight: dict[int, Row] = {}  # what was asked, by the number of the request
        self._listening: dict[int, str] = {}  # table by the number of the request
        self._last_identifier = 0

    def send(self, command: Command, number: int = 0) -> tuple[int, bytes]:
        """Returns the identifier and the message of a new request, see `send_parts`."""
        identifier, parts = self.send_parts(command, number)
        return identifier, bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def send_parts(self, command: Command, number: int = 0) -> tuple[int, list[Buffer]]:
        """Returns the identifier and the message of a new request; a large one in pieces.

        Args:
            command: what is asked.
            number: makes a retry safe; 0 = it has none.

        Raises:
            LocalProtocolError: if it is larger than a message may be, or too many are in flight.
        """
        if len(self._in_flight) >= limits.IN_FLIGHT_MAX:
            raise LocalProtocolError(
                Code.BUSY, f"a connection has at most {limits.IN_FLIGHT_MAX} requests in flight"
            )
        # A server uses 0 when it does not know the request.
        identifier = self._last_identifier % 0xFFFF + 1
        while identifier in self._in_flight or identifier in self._listening:
            identifier = identifier % 0xFFFF + 1
        self._last_identifier = identifier
        parts = encode_request(command, identifier, number)
        if sum(map(len, parts)) > limits.MESSAGE_BYTES_MAX:
            raise LocalProtocolError(
                Code.TOO_LARGE,
                f"a message has at most {limits.MESSAGE_BYTES_MAX} bytes; split the batch",
            )
        self._in_flight[identifier] = row = type(command).row
        if row.listens:
            self._listening[identifier] = command.table  # type: ignore[attr-defined]
        return identifier, parts

    def receive(self, data: bytes | bytearray = b"") -> tuple[int, Reply | Changed] | None:
        """Takes bytes; returns the first thing that is complete, and which request it belongs to.

        Call it without bytes for what else is complete, until it returns None.

        Raises:
            RemoteProtocolError: if the peer closed this connection, or is not a Fjord server.
        """
        if data:
            self.feed(data)
        raw = self.next()
        if raw is None:
            return None
        if isinstance(raw, RawChange):
            return raw.identifier, self._changed(raw)
        row = self._in_flight.pop(raw.identifier, None)
        if row is None:
            raise _last_words(raw)
        return raw.identifier, read_reply(row, raw)

    def _changed(self, raw: RawChange) -> Changed:
        table = self._listening.get(raw.identifier)
        if table is None:
            raise RemoteProtocolError(Code.FAILED, "a change that nobody listens to")
        return raw.of(table)


def _last_words(raw: RawReply) -> RemoteProtocolError:
    """Returns the error with which a server closes a connection."""
    if not raw.error:
        return RemoteProtocolError(Code.FAILED, "a reply to no request")
    refusal = raw.refusal()
    return RemoteProtocolError(refusal.code, refusal.text)
