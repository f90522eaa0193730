"""The seed functions, 0 to 16: one key, one value, flags that say which fields are there.

They carry no total length (decision 10), so a parser either finds a whole message, or says how
many bytes it needs, or gives the connection up.  They are for other clients: Fjord's own speak the
functions above 16.

NEXT, DONE and TOUCH speak of one job, in the layout of key and value.  A job is named by the key
that NEXT gives it: the xid of its lease in 8 bytes, then its own key.  How long a lease is to last
is said by its end.  Both that and the timestamp are the client's, so it is their difference that
counts, and a wrong clock does no harm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Acted, Changed, Command, Entries, Flag, Page, Refusal, Reply, Taken
from fjord.commands.codec import unknown_flag
from fjord.commands.kv import widened
from fjord.errors import Code, RemoteProtocolError
from fjord.wire.cursor import Cursors
from fjord.wire.fields import (
    KEY_SIZES,
    MAGIC_REPLY,
    MAGIC_REQUEST,
    QUERY_BITS,
    QUERY_CURSOR,
    REPLY,
    REQUEST,
    SIZE_FLAGS,
    U16,
    U64,
    VALUE_BITS,
    VALUE_SIZES,
    VERSION,
    Fields,
    IncompleteError,
    ReceiveBuffer,
    encode_keys,
    encode_value,
    value_bits,
)
from fjord.wire.fields import encode_error as error_text

# What goes with one key only: a query marks nothing and is not listened to.
_ONE_KEY_FLAGS: Final = Flag.TIMEOUT | Flag.UPDATE_TIMEOUT | Flag.LISTEN


class Function(enum.IntEnum):
    """What a request asks for."""

    NOP = 0
    QUIT = 1
    SET = 2
    GET = 3
    DELETE = 4
    ADD = 5
    NOT = 6
    TRUNCATE = 7
    LOCK = 8
    UNLOCK = 9
    RENAME = 10
    NEXT = 11
    DONE = 12
    TOUCH = 13
    PING = 14
    LISTEN = 15
    CHANGE = 16  # sent by servers only


class Context:
    """What a connection knows beside its bytes: its table, and who signs its cursors."""

    __slots__ = ("cursors", "table")

    def __init__(self, cursors: Cursors | None = None) -> None:
        self.table = commands.DEFAULT_TABLE
        self.cursors = cursors


class Message(Fields):
    """One request, as far as it is read."""

    __slots__ = ("context", "timestamp_us")

    def __init__(
        self, buffer: ReceiveBuffer, flags: int, timestamp_us: int, context: Context
    ) -> None:
        super().__init__(buffer, REQUEST.size, flags)
        self.timestamp_us = timestamp_us
        self.context = context


# -- requests -------------------------------------------------------------------------------------


def decode_request(
    buffer: ReceiveBuffer, function: int, flags: int, timestamp_us: int, context: Context
) -> tuple[Command | Refusal, int] | None:
    """Reads what follows the header.

    Returns:
        The command, or what is wrong with it, and the length of the whole message; None if
        bytes are missing.

    Raises:
        RemoteProtocolError: if the message cannot be followed any further.
    """
    known, decode, *_ = ROWS[function]
    if decode is None:
        raise RemoteProtocolError(Code.FORBIDDEN, "CHANGE is what a server sends")
    if flags & ~known:
        text = unknown_flag(known, flags, Function(function).name)
        raise RemoteProtocolError(Code.BAD_FLAGS, text)
    message = Message(buffer, flags, timestamp_us, context)
    try:
        command = decode(message)
    except IncompleteError:
        return None
    return command, message.offset


def unknown_function(number: int) -> RemoteProtocolError:
    text = f"function {number} does not exist in this version"
    return RemoteProtocolError(Code.UNKNOWN_FUNCTION, text)


def _decode_nop(message: Message) -> Command:
    return commands.Nop()


def _decode_set(message: Message) -> Command | Refusal:
    flags = message.flags
    expires_at_us = message.u64() if flags & Flag.TIMEOUT else 0
    ttl_us = message.u64() if flags & Flag.TTL else 0
    key = message.key()
    type_, data = message.value("SET")
    if flags & Flag.TIMEOUT and not expires_at_us:
        return _NO_TIMEOUT
    if flags & Flag.TTL and not ttl_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="a TTL of 0 is none; clear bit 14")
    return commands.Set(
        table=message.context.table,
        keys=Strings.of([key]),
        types=type_,
        values=Strings.of([data]),
        timestamps_us=(message.timestamp_us,),
        expires_at_us=expires_at_us,
        ttl_us=ttl_us,
        overwrite=bool(flags & Flag.OVERWRITE),
        persist=bool(flags & (Flag.PERSIST | Flag.PERSIST_SYNONYM)),
    )


def _decode_get(message: Message) -> Command | Refusal:
    flags = message.flags
    if flags & QUERY_BITS:
        return _decode_query(message)
    timeout_us = message.u64() if flags & Flag.TIMEOUT else 0
    if flags & Flag.COUNT:
        message.u16()
    keys = Strings.of([message.key()])
    if flags & Flag.COUNT:
        return Refusal(code=Code.BAD_COUNT, text="a count goes with a query; clear bit 13")
    if flags & (Flag.TIMEOUT | Flag.UPDATE_TIMEOUT):
        return _touch(message, keys, timeout_us)
    return commands.Get(
        table=message.context.table,
        keys=keys,
        with_data=bool(flags & Flag.DATA),
        skip_worked=bool(flags & Flag.WORKED_ON),
    )


def _touch(message: Message, keys: Strings, timeout_us: int) -> Command | Refusal:
    """A timeout is a worked-on deadline, or an expiry with UPDATE_TIMEOUT; with both bits both."""
    flags = message.flags
    if not flags & Flag.TIMEOUT:
        return Refusal(code=Code.BAD_TIMEOUT, text="bit 4 needs a timeout; set bit 3")
    if not timeout_us:
        return _NO_TIMEOUT
    extend = bool(flags & Flag.UPDATE_TIMEOUT)
    worked_on = flags & Flag.WORKED_ON or not extend
    return commands.Touch(
        table=message.context.table,
        keys=keys,
        extend=extend,
        expires_at_us=timeout_us if extend else 0,
        worked_until_us=timeout_us if worked_on else 0,
        with_data=bool(flags & Flag.DATA),
    )


def _decode_query(message: Message) -> Command | Refusal:
    flags = message.flags
    query = flags & QUERY_BITS
    wrong = flags & _ONE_KEY_FLAGS
    if wrong:
        text = unknown_flag(~wrong, flags, "GET with a query")
        raise RemoteProtocolError(Code.BAD_FLAGS, text)
    has_count = flags & Flag.COUNT or query == Flag.QUERY_RANGE
    count = message.u16() if has_count else 0
    first = message.key()
    second = message.key() if query == Flag.QUERY_RANGE else b""
    if query == QUERY_CURSOR:
        cursors = message.context.cursors
        if cursors is None:
            return Refusal(code=Code.BAD_CURSOR, text="no cursors are given out here")
        return cursors.decode(first, count if has_count else None)
    if query == Flag.QUERY_RANGE:
        return _range(message, count, start=first, stop=second)
    return _range(message, count, regex=first)


def _range(
    message: Message, count: int, *, start: bytes = b"", stop: bytes = b"", regex: bytes = b""
) -> Command | Refusal:
    # Checked here because a cursor has to hold them.
    if max(len(start), len(stop)) > limits.KV_KEY_BYTES_MAX:
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    if len(regex) > limits.REGEX_BYTES_MAX:
        text = f"an expression has at most {limits.REGEX_BYTES_MAX} bytes"
        return Refusal(code=Code.BAD_REGEX, text=text)
    return commands.Range(
        table=message.context.table,
        start=start,
        stop=stop,
        count=count,
        regex=regex,
        with_data=bool(message.flags & Flag.DATA),
        skip_worked=bool(message.flags & Flag.WORKED_ON),
    )


def _decode_delete(message: Message) -> Command:
    return commands.Delete(
        table=message.context.table,
        keys=Strings.of([message.key()]),
        timestamp_us=message.timestamp_us,
        purge=bool(message.flags & Flag.OVERWRITE),
    )


def _decode_add(message: Message) -> Command | Refusal:
    return _modify(message, commands.Change.ADD)


def _decode_truncate(message: Message) -> Command | Refusal:
    return _modify(message, commands.Change.TRUNCATE)


def _modify(message: Message, change: commands.Change) -> Command | Refusal:
    key = message.key()
    type_, data = message.value(change.name)
    operand = widened(change, type_[0], data)
    if isinstance(operand, Refusal):
        return operand
    return commands.Modify(
        table=message.context.table,
        key=key,
        change=change,
        operand=operand,
        operand_type=type_[0],
        timestamp_us=message.timestamp_us,
    )


def _decode_not(message: Message) -> Command:
    return commands.Modify(
        table=message.context.table,
        key=message.key(),
        change=commands.Change.NOT,
        timestamp_us=message.timestamp_us,
    )


def _decode_rename(message: Message) -> Command:
    return commands.Rename(
        table=message.context.table,
        key=message.key(),
        to=message.key(),
        timestamp_us=message.timestamp_us,
        overwrite=bool(message.flags & Flag.OVERWRITE),
    )


def _decode_lock(message: Message) -> Command:
    return commands.Lock(table=message.context.table, keys=Strings.of([message.key()]))


def _decode_unlock(message: Message) -> Command:
    return commands.Unlock(table=message.context.table, keys=Strings.of([message.key()]))


def _decode_listen(message: Message) -> Command:
    return commands.Listen(table=message.context.table, keys=Strings.of([message.key()]))


def _decode_next(message: Message) -> Command | Refusal:
    until_us = message.u64() if message.flags & Flag.TIMEOUT else None
    domain = message.key()
    lease_us = _lease_us(until_us, message.timestamp_us)
    if isinstance(lease_us, Refusal):
        return lease_us
    return commands.Next(
        table=message.context.table,
        domain=domain,
        lease_us=lease_us,
        done=bool(message.flags & Flag.OVERWRITE),
    )


def _decode_done(message: Message) -> Command | Refusal:
    xid = _xid(message.key())
    if isinstance(xid, Refusal):
        return xid
    return commands.Finish(table=message.context.table, xids=(xid,))


def _decode_touch(message: Message) -> Command | Refusal:
    until_us = message.u64() if message.flags & Flag.TIMEOUT else None
    xid = _xid(message.key())
    if isinstance(xid, Refusal):
        return xid
    lease_us = _lease_us(until_us, message.timestamp_us)
    if isinstance(lease_us, Refusal):
        return lease_us
    return commands.Extend(table=message.context.table, xids=(xid,), lease_us=lease_us)


def _lease_us(until_us: int | None, timestamp_us: int) -> int | Refusal:
    if until_us is None:
        return 0
    return until_us - timestamp_us if until_us > timestamp_us else _OVER


def _xid(key: bytes) -> int | Refusal:
    if len(key) < U64.size:
        return _NO_XID
    if len(key) > U64.size + limits.JOB_KEY_BYTES_MAX:
        return _KEY_TOO_LONG
    xid: int = U64.unpack_from(key)[0]
    return xid


_NO_TIMEOUT: Final = Refusal(code=Code.BAD_TIMEOUT, text="a timeout of 0 is none; clear bit 3")
_STALE: Final = Refusal(
    code=Code.STALE_XID, text="the lease was over, or the job is done; somebody else may have it"
)
_OVER: Final = Refusal(
    code=Code.BAD_TIMEOUT, text="the timeout, when the lease is over, is later than the timestamp"
)
_NO_XID: Final = Refusal(
    code=Code.BAD_VALUE, text="a job is named by what NEXT gave: an xid of 8 bytes, and its key"
)
_KEY_TOO_LONG: Final = Refusal(
    code=Code.KEY_TOO_LONG, text=f"the key of a job has at most {limits.JOB_KEY_BYTES_MAX} bytes"
)


class SeedFunction(NamedTuple):
    """All facts of a function."""

    flags: int  # that it knows
    decode: Callable[[Message], Command | Refusal] | None  # None: it is never asked for
    key: str = "key"  # what its key is: `job` has an xid before it; nothing: it has none
    two_keys: bool = False
    value: bool = False  # it has one, whatever its flags say


# By number.
ROWS: Final = (
    SeedFunction(0, _decode_nop, key=""),
    SeedFunction(0, _decode_nop, key=""),
    SeedFunction(
        SIZE_FLAGS
        | Flag.TIMEOUT
        | Flag.TTL
        | Flag.OVERWRITE
        | Flag.PERSIST
        | Flag.PERSIST_SYNONYM
        | Flag.LISTEN,
        _decode_set,
        value=True,
    ),
    SeedFunction(
        Flag.KEY_16
        | Flag.TIMEOUT
        | Flag.UPDATE_TIMEOUT
        | Flag.WORKED_ON
        | QUERY_BITS
        | Flag.DATA
        | Flag.LISTEN
        | Flag.COUNT,
        _decode_get,
    ),
    SeedFunction(Flag.KEY_16 | Flag.OVERWRITE, _decode_delete),
    SeedFunction(SIZE_FLAGS, _decode_add, value=True),
    SeedFunction(Flag.KEY_16, _decode_not),
    SeedFunction(SIZE_FLAGS, _decode_truncate, value=True),
    SeedFunction(Flag.KEY_16, _decode_lock),
    SeedFunction(Flag.KEY_16, _decode_unlock),
    SeedFunction(Flag.KEY_16 | Flag.OVERWRITE, _decode_rename, two_keys=True),
    SeedFunction(Flag.KEY_16 | Flag.TIMEOUT | Flag.OVERWRITE, _decode_next, key="domain"),
    SeedFunction(Flag.KEY_16, _decode_done, key="job"),
    SeedFunction(Flag.KEY_16 | Flag.TIMEOUT, _decode_touch, key="job"),
    SeedFunction(0, _decode_nop, key=""),
    SeedFunction(Flag.KEY_16, _decode_listen),
    SeedFunction(SIZE_FLAGS | Flag.TIMEOUT, None),
)


# -- replies --------------------------------------------------------------------------------------


def encode_reply(
    function: int, identifier: int, flags: int, reply: Reply, *, now_us: int, cursor: bytes
) -> bytes:
    """Returns the JR message for a reply to a request of `function` with these flags."""
    if isinstance(reply, Refusal):
        return encode_error(identifier, reply, now_us=now_us)
    if isinstance(reply, Entries):
        if reply.types[0] == Entries.MISSING:
            return encode_error(identifier, _missing(flags), now_us=now_us)
        with_data = flags & Flag.DATA or function != Function.GET
        return _encode_entry(identifier, reply, reply.values[0] if with_data else b"")
    if isinstance(reply, Page):
        return _encode_page(identifier, reply, now_us=now_us, cursor=cursor)
    if isinstance(reply, Taken):
        return _encode_taken(identifier, reply, now_us=now_us)
    if isinstance(reply, Acted) and reply.missing:
        return encode_error(identifier, _STALE, now_us=now_us)
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, 0, now_us) + b"\0"


def encode_error(identifier: int, refusal: Refusal, *, now_us: int, flags: int = 0) -> bytes:
    flags, error = encode_keys(flags, error_text(refusal))
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us) + error


def _missing(flags: int) -> Refusal:
    if flags & (Flag.WORKED_ON | Flag.TIMEOUT):
        text = "the key does not exist, or its value is worked on"
        return Refusal(code=Code.NOT_FOUND, text=text)
    return Refusal(code=Code.NOT_FOUND, text="the key does not exist")


def _encode_entry(identifier: int, entries: Entries, data: bytes) -> bytes:
    flags, value = encode_value(entries.types[0], data)
    timeout = b""
    if entries.expires_at_us[0]:
        flags |= Flag.TIMEOUT
        timeout = U64.pack(entries.expires_at_us[0])
    state = entries.states[0]
    if state:
        flags |= Flag.OVERWRITE if state & Entries.LOCKED else 0
        flags |= Flag.WORKED_ON if state & Entries.WORKED_ON else 0
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, entries.timestamps_us[0])
    return b"".join((head, timeout, b"\0", value))


def _encode_page(identifier: int, page: Page, *, now_us: int, cursor: bytes) -> bytes:
    assert bool(page.next_key) == bool(cursor), "a page that goes on needs a cursor"
    rows = page.entries.values.rows()
    keys = page.keys.rows()
    bits = value_bits(1 + max(map(len, rows), default=0))
    wide = max(map(len, [*keys, cursor])) > 0xFF
    key_field, value_field = KEY_SIZES[wide], VALUE_SIZES[bits >> 1]
    assert value_field is not None
    flags = bits | Flag.COUNT | (Flag.KEY_16 if wide else 0) | (QUERY_CURSOR if cursor else 0)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us)
    parts = [head, U16.pack(len(keys)), b"\0\0" if wide else b"\0"]
    for key, type_, data in zip(keys, page.entries.types, rows, strict=True):
        size = value_field.pack(1 + len(data))
        parts += (key_field.pack(len(key)), key, size, bytes((type_,)), data)
    if cursor:
        parts += (key_field.pack(len(cursor)), cursor)
    return b"".join(parts)


def _encode_taken(identifier: int, taken: Taken, *, now_us: int) -> bytes:
    """Returns the JR message with the job that was taken, or with when to ask again."""
    if not taken.types:
        flags, rest, timeout_us = 0, b"\0", taken.next_at_us
    else:
        flags, value = encode_value(taken.types[0], taken.values[0])
        flags, key = encode_keys(flags | Flag.COUNT, U64.pack(taken.first_xid) + taken.keys[0])
        rest = b"".join((U16.pack(1), _NO_ERROR[flags & Flag.KEY_16], key, value))
        timeout_us = taken.until_us
    if timeout_us:
        flags |= Flag.TIMEOUT
        rest = U64.pack(timeout_us) + rest
    return REPLY.pack(MAGIC_REPLY, VERSION, identifier, flags, now_us) + rest


_NO_ERROR: Final = (b"\0", b"\0\0")  # by how wide sizes of keys are


# -- CHANGE: the one message that a server sends unasked ------------------------------------------


def encode_change(identifier: int, changed: Changed) -> bytes:
    """Returns the CHANGE message that tells a listener of a new value, or that there is none."""
    flags, value = 0, b""
    if changed.type != Entries.MISSING:
        flags, value = encode_value(changed.type, changed.value)
    timeout = b""
    if changed.expires_at_us:
        flags |= Flag.TIMEOUT
        timeout = U64.pack(changed.expires_at_us)
    flags, key = encode_keys(flags, changed.key)
    head = REQUEST.pack(
        MAGIC_REQUEST, VERSION, Function.CHANGE, identifier, flags, changed.timestamp_us
    )
    return b"".join((head, timeout, key, value))


class RawChange(NamedTuple):
    """One whole CHANGE message: what became of a key that the client listens to."""

    identifier: int  # of the request that began the listening
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int  # 0 = never

    def of(self, table: str) -> Changed:
        """Returns the change, once it is known to which table the listening belongs."""
        return Changed(
            table, self.key, self.type, self.value, self.timestamp_us, self.expires_at_us
        )


def decode_change(buffer: ReceiveBuffer) -> tuple[RawChange, int]:
    """Reads a CHANGE message from its beginning; returns it and its length.

    Raises:
        IncompleteError: if bytes are missing.
        RemoteProtocolError: if it is something else.
    """
    fields = Fields(buffer, 0, 0)
    fields.skip(REQUEST.size)
    *head, identifier, flags, timestamp_us = REQUEST.unpack_from(buffer.data, buffer.start)
    if head != _CHANGE_HEAD or flags & ~ROWS[Function.CHANGE].flags:
        raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is no Fjord server of version 1")
    fields.flags = flags
    expires_at_us = fields.u64() if flags & Flag.TIMEOUT else 0
    key = fields.key()
    type_, value = fields.value("CHANGE") if flags & VALUE_BITS else (_GONE, b"")
    change = RawChange(identifier, key, type_[0], value, timestamp_us, expires_at_us)
    return change, fields.offset


_CHANGE_HEAD: Final = [MAGIC_REQUEST, VERSION, Function.CHANGE]
_GONE: Final = bytes((Entries.MISSING,))
