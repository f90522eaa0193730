"""A client of functions 0 to 16, for tests: Fjord's own clients speak the functions above.

It makes requests of commands, and reads what the seed's layout has room for in a reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Command, Done, Entries, Flag, Page, Reply, Taken
from fjord.errors import Code, LocalProtocolError
from fjord.wire import Function, RawChange, decode_error
from fjord.wire.fields import (
    BODY_LENGTH,
    MAGIC_REQUEST,
    QUERY_BITS,
    REPLY,
    REQUEST,
    U16,
    U64,
    VALUE_BITS,
    VERSION,
    Fields,
    IncompleteError,
    ReceiveBuffer,
    encode_keys,
    encode_value,
)
from fjord.wire.seed import decode_change

Encoded = tuple[Function, int, int, bytes]  # function, flags, timestamp, what follows the header


# -- requests -------------------------------------------------------------------------------------


def encode_request(
    command: Command, identifier: int, timestamp_us: int = 0, *, listens: bool = False
) -> bytes:
    """Returns the message for a command on one key, or one job, of the connection's table.

    Raises:
        LocalProtocolError: if none of these functions can say it.
    """
    if type(command) not in _ENCODERS:
        text = f"functions 0 to 16 have no {type(command).__name__}"
        raise LocalProtocolError(Code.UNKNOWN_FUNCTION, text)
    function, flags, own_us, rest = _ENCODERS[type(command)](command, timestamp_us)
    flags |= Flag.LISTEN if listens else 0
    head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, own_us or timestamp_us)
    return head + rest


def _encode_nop(command: commands.Nop, timestamp_us: int) -> Encoded:
    return Function.NOP, 0, 0, b""


def _encode_set(command: commands.Set, timestamp_us: int) -> Encoded:
    size_flag, value = encode_value(command.types[0], command.values[0])
    flags, key = encode_keys(size_flag, command.keys[0])
    flags |= Flag.OVERWRITE if command.overwrite else 0
    flags |= Flag.PERSIST if command.persist else 0
    dates = b""
    if command.expires_at_us:
        flags |= Flag.TIMEOUT
        dates = U64.pack(command.expires_at_us)
    if command.ttl_us:
        flags |= Flag.TTL
        dates += U64.pack(command.ttl_us)
    return Function.SET, flags, command.timestamps_us[0], b"".join((dates, key, value))


def _encode_get(command: commands.Get, timestamp_us: int) -> Encoded:
    flags, key = encode_keys(_read_flags(command), command.keys[0])
    return Function.GET, flags, 0, key


def _encode_touch(command: commands.Touch, timestamp_us: int) -> Encoded:
    timeout_us = command.expires_at_us or command.worked_until_us
    flags = Flag.TIMEOUT
    flags |= Flag.DATA if command.with_data else 0
    flags |= Flag.UPDATE_TIMEOUT if command.extend else 0
    flags |= Flag.WORKED_ON if command.worked_until_us else 0
    if not timeout_us or command.worked_until_us not in (0, timeout_us):
        raise LocalProtocolError(Code.BAD_TIMEOUT, "a GET carries one timeout")
    flags, key = encode_keys(flags, command.keys[0])
    return Function.GET, flags, 0, U64.pack(timeout_us) + key


def _encode_range(command: commands.Range, timestamp_us: int) -> Encoded:
    flags = _read_flags(command)
    count = U16.pack(command.count)
    if command.regex:
        if command.start or command.stop:
            raise LocalProtocolError(Code.BAD_RANGE, "a GET has a range or an expression")
        flags, key = encode_keys(flags | Flag.QUERY_REGEX | Flag.COUNT, command.regex)
        return Function.GET, flags, 0, count + key
    flags, keys = encode_keys(flags | Flag.QUERY_RANGE, command.start, command.stop)
    return Function.GET, flags, 0, count + keys


def _read_flags(command: commands.Get | commands.Range) -> int:
    flags = Flag.DATA if command.with_data else 0
    return flags | (Flag.WORKED_ON if command.skip_worked else 0)


def _encode_delete(command: commands.Delete, timestamp_us: int) -> Encoded:
    flags, key = encode_keys(Flag.OVERWRITE if command.purge else 0, command.keys[0])
    stamps = command.timestamps_us
    return Function.DELETE, flags, command.timestamp_us if stamps is None else stamps[0], key


def _encode_modify(command: commands.Modify, timestamp_us: int) -> Encoded:
    function = Function(command.change)
    if function is Function.NOT:
        flags, key = encode_keys(0, command.key)
        return function, flags, command.timestamp_us, key
    size_flag, value = encode_value(command.operand_type, command.operand)
    flags, key = encode_keys(size_flag, command.key)
    return function, flags, command.timestamp_us, key + value


def _encode_rename(command: commands.Rename, timestamp_us: int) -> Encoded:
    flags = Flag.OVERWRITE if command.overwrite else 0
    flags, keys = encode_keys(flags, command.key, command.to)
    return Function.RENAME, flags, command.timestamp_us, keys


def _encode_key(
    command: commands.Lock | commands.Unlock | commands.Listen, timestamp_us: int
) -> Encoded:
    flags, key = encode_keys(0, command.keys[0])
    return _KEY_FUNCTIONS[type(command)], flags, 0, key


_KEY_FUNCTIONS: Final[dict[type[Command], Function]] = {
    commands.Lock: Function.LOCK,
    commands.Unlock: Function.UNLOCK,
    commands.Listen: Function.LISTEN,
}


def _encode_next(command: commands.Next, timestamp_us: int) -> Encoded:
    if command.count != 1 or command.wait_us:
        raise LocalProtocolError(Code.BAD_COUNT, "NEXT takes one job, and does not wait")
    flags, until = _lease_end(command.lease_us, timestamp_us)
    flags |= Flag.OVERWRITE if command.done else 0
    flags, domain = encode_keys(flags, command.domain)
    return Function.NEXT, flags, 0, until + domain


def _encode_done(command: commands.Finish, timestamp_us: int) -> Encoded:
    return Function.DONE, 0, 0, _lease_name(command)


def _encode_extend(command: commands.Extend, timestamp_us: int) -> Encoded:
    flags, until = _lease_end(command.lease_us, timestamp_us)
    return Function.TOUCH, flags, 0, until + _lease_name(command)


def _lease_end(lease_us: int, timestamp_us: int) -> tuple[int, bytes]:
    return (Flag.TIMEOUT, U64.pack(timestamp_us + lease_us)) if lease_us else (0, b"")


def _lease_name(command: commands.Finish | commands.Extend) -> bytes:
    if len(command.xids) != 1:
        raise LocalProtocolError(Code.BAD_COUNT, "functions 0 to 16 speak of one job")
    return encode_keys(0, U64.pack(command.xids[0]))[1]


_ENCODERS: Final[dict[type[Command], Callable[[Any, int], Encoded]]] = {
    commands.Nop: _encode_nop,
    commands.Set: _encode_set,
    commands.Get: _encode_get,
    commands.Touch: _encode_touch,
    commands.Range: _encode_range,
    commands.Delete: _encode_delete,
    commands.Modify: _encode_modify,
    commands.Rename: _encode_rename,
    commands.Lock: _encode_key,
    commands.Unlock: _encode_key,
    commands.Listen: _encode_key,
    commands.Next: _encode_next,
    commands.Finish: _encode_done,
    commands.Extend: _encode_extend,
}


# -- replies --------------------------------------------------------------------------------------


class SeedReply(NamedTuple):
    """One whole reply, of any form."""

    identifier: int
    error: bytes
    flags: int
    timestamp_us: int
    timeout_us: int
    type: bytes  # empty: there is no value
    data: bytes
    page: Page | None
    body: bytes

    def read(self, function: Function) -> Reply:
        """Returns what it says in answer to a function."""
        if self.error:
            return decode_error(self.error)
        if function is Function.NEXT:
            return read_taken(self.page, self.timeout_us)
        if self.page is not None:
            return self.page
        if not self.type:
            return Done(master=b"", seq=0)
        found = entries_without_dates(self.type, Strings.of([self.data]))
        locked, worked = bool(self.flags & Flag.OVERWRITE), bool(self.flags & Flag.WORKED_ON)
        found.states = bytes([Entries.LOCKED * locked | Entries.WORKED_ON * worked])
        found.timestamps_us, found.expires_at_us = (self.timestamp_us,), (self.timeout_us,)
        return found


class SeedDecoder:
    """Bytes of a server in, replies and changes out."""

    def __init__(self) -> None:
        self._buffer = ReceiveBuffer()

    def feed(self, data: bytes) -> None:
        self._buffer.feed(data)

    def next(self) -> SeedReply | RawChange | None:
        """Returns the next whole message, None if bytes are missing."""
        buffer = self._buffer
        if not buffer.has(REPLY.size):
            return None
        found: SeedReply | RawChange
        try:
            if buffer.take(0, 2) == MAGIC_REQUEST:
                found, length = decode_change(buffer)
            else:
                found, length = _decode_reply(buffer)
        except IncompleteError:
            return None
        buffer.consume(length)
        return found


def _decode_reply(buffer: ReceiveBuffer) -> tuple[SeedReply, int]:
    _, _, identifier, flags, timestamp_us = REPLY.unpack_from(buffer.data, buffer.start)
    fields = Fields(buffer, REPLY.size, flags)
    timeout_us = fields.u64() if flags & Flag.TIMEOUT else 0
    count = fields.u16() if flags & Flag.COUNT else 0
    error = fields.key()
    type_, value, page, body = b"", b"", None, b""
    if flags & Flag.COUNT:
        page = _read_pairs(fields, count)
    elif flags & VALUE_BITS:
        type_, value = fields.value("a reply")
    if flags & Flag.BODY:
        offset = fields.offset
        fields.skip(BODY_LENGTH.size)
        (size,) = BODY_LENGTH.unpack(buffer.take(offset, BODY_LENGTH.size))
        fields.skip(size)
        body = buffer.take(offset + BODY_LENGTH.size, size)
    head = (identifier, error, flags, timestamp_us, timeout_us)
    return SeedReply(*head, type_, value, page, body), fields.offset


def _read_pairs(fields: Fields, count: int) -> Page:
    pairs = [(fields.key(), *fields.value("a pair")) for _ in range(count)]
    cursor = fields.key() if fields.flags & QUERY_BITS else b""
    types = b"".join(type_ for _, type_, _ in pairs)
    found = entries_without_dates(types, Strings.of([value for *_, value in pairs]))
    return Page(keys=Strings.of([key for key, *_ in pairs]), entries=found, next_key=cursor)


def entries_without_dates(types: bytes, stored: Strings) -> Entries:
    none = (0,) * len(types)
    return Entries(
        types=types,
        values=stored,
        timestamps_us=none,
        expires_at_us=none,
        states=bytes(len(types)),
        created_us=none,
        accessed_us=none,
        ttls_us=none,
    )


def read_taken(page: Page | None, timeout_us: int) -> Taken:
    """Returns what a reply to NEXT says; what the seed's layout has no room for is 0."""
    if page is None:
        return _taken(0, b"", Strings.of([]), Strings.of([]), next_at_us=timeout_us)
    (key,) = page.keys.rows()
    (first_xid,) = U64.unpack_from(key)
    keys = Strings.of([key[U64.size :]])
    return _taken(first_xid, page.entries.types, keys, page.entries.values, until_us=timeout_us)


def _taken(
    first_xid: int,
    types: bytes,
    keys: Strings,
    found: Strings,
    *,
    until_us: int = 0,
    next_at_us: int = 0,
) -> Taken:
    unknown = (0,) * len(types)
    return Taken(
        first_xid=first_xid,
        until_us=until_us,
        next_at_us=next_at_us,
        rows=unknown,
        process_at_us=unknown,
        inserted_us=unknown,
        updated_us=unknown,
        expires_at_us=unknown,
        priorities=bytes(len(types)),
        timeouts=bytes(len(types)),
        types=types,
        keys=keys,
        domains=Strings.of([b""] * len(types)),
        values=found,
    )
