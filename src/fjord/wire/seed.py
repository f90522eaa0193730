"""The seed functions, 0 to 16: one key, one value, flags that say which fields are there.

They carry no total length (decision 10), so a parser either finds a whole message, or says how
many bytes it needs, or gives the connection up.  They are for other clients: Fjord's own speak the
functions above 16.

NEXT, DONE and TOUCH handle one job, in the layout of key and value.  A job is identified by the
key that NEXT returns: the xid of its lease in 8 bytes, then its own key.  The length of a lease is
given by its end.  Both the end and the timestamp are from the client's clock, so only their
difference counts, and a wrong clock does no harm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Acted, Changed, Command, Entries, Flag, Page, Refusal, Reply, Taken
from fjord.commands.codec import unknown_flag
from fjord.commands.kv import widened
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import fields
from fjord.wire.cursor import Cursors

# A query marks nothing, and is not listened to.
ONE_KEY_FLAGS: Final = Flag.TIMEOUT | Flag.UPDATE_TIMEOUT | Flag.LISTEN


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


# The header of a reply: identifier, flags, timestamp.
_head: Final = partial(fields.REPLY.pack, fields.MAGIC_REPLY, fields.VERSION)
_NAMES: Final = tuple(one.name for one in Function)  # by number


class Message(NamedTuple):
    """The fields of one request; those that it does not have are 0 or empty."""

    flags: int
    timestamp_us: int
    table: str  # of the connection
    cursors: Cursors | None
    timeout_us: int
    ttl_us: int
    limit: int | None  # how many entries are asked for
    key: bytes
    second_key: bytes
    type: bytes
    data: bytes


# -- requests -------------------------------------------------------------------------------------


def decode_request(
    buffer: fields.ReceiveBuffer,
    function: int,
    flags: int,
    timestamp_us: int,
    table: str,
    cursors: Cursors | None,
) -> tuple[Command | Refusal, int, int] | None:
    """Reads what follows the header.

    Returns:
        The command or its refusal, the length of the whole message, and the number of the call,
        which these functions do not have; None if bytes are missing.

    Raises:
        RemoteProtocolError: if the message cannot be parsed any further.
    """
    row = ROWS[function]
    if row.command is None:
        raise RemoteProtocolError(Code.FORBIDDEN, "only a server sends CHANGE")
    unknown = flags & ~row.flags
    wrong = unknown or (flags & fields.QUERY_BITS and flags & ONE_KEY_FLAGS)
    if wrong:
        by = _NAMES[function] if unknown else "GET with a query"
        raise RemoteProtocolError(Code.BAD_FLAGS, unknown_flag(~wrong, flags, by))
    found = fields.Fields(buffer, fields.REQUEST.size, flags)
    timeout_us, ttl_us, limit = 0, 0, None
    key = second_key = type_ = data = b""
    try:
        if row.key:
            is_range = flags & fields.QUERY_BITS == Flag.QUERY_RANGE
            timeout_us = found.u64() if flags & Flag.TIMEOUT else 0
            ttl_us = found.u64() if flags & Flag.TTL else 0
            limit = found.u16() if flags & Flag.COUNT or is_range else None
            key = found.key()
            second_key = found.key() if is_range or row.two_keys else b""
        if row.value:
            type_, data = found.value(_NAMES[function])
    except fields.IncompleteError:
        return None
    asked = flags, timestamp_us, table, cursors, timeout_us, ttl_us, limit
    return row.command(Message(*asked, key, second_key, type_, data)), found.offset, 0


def _set(message: Message) -> Command | Refusal:
    flags = message.flags
    if flags & Flag.TIMEOUT and not message.timeout_us:
        return _NO_TIMEOUT
    if flags & Flag.TTL and not message.ttl_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="a TTL of 0 is invalid; clear bit 14")
    return commands.Set(
        table=message.table,
        keys=Strings.of([message.key]),
        types=message.type,
        values=Strings.of([message.data]),
        timestamps_us=(message.timestamp_us,),
        expires_at_us=message.timeout_us,
        ttl_us=message.ttl_us,
        overwrite=bool(flags & Flag.OVERWRITE),
        persist=bool(flags & (Flag.PERSIST | Flag.PERSIST_SYNONYM)),
    )


def _get(message: Message) -> Command | Refusal:
    flags = message.flags
    if flags & fields.QUERY_BITS:
        return _query(message)
    if flags & Flag.COUNT:
        return Refusal(code=Code.BAD_COUNT, text="a count goes with a query; clear bit 13")
    if flags & (Flag.TIMEOUT | Flag.UPDATE_TIMEOUT):
        return _touch(message)
    return commands.Get(
        table=message.table,
        keys=Strings.of([message.key]),
        with_data=bool(flags & Flag.DATA),
        skip_worked=bool(flags & Flag.WORKED_ON),
    )


def _touch(message: Message) -> Command | Refusal:
    """A timeout is a worked-on deadline, or an expiry with UPDATE_TIMEOUT; with both bits both."""
    flags, timeout_us = message.flags, message.timeout_us
    if not flags & Flag.TIMEOUT:
        return Refusal(code=Code.BAD_TIMEOUT, text="bit 4 needs a timeout; set bit 3")
    if not timeout_us:
        return _NO_TIMEOUT
    extend = bool(flags & Flag.UPDATE_TIMEOUT)
    worked_on = flags & Flag.WORKED_ON or not extend
    return commands.Touch(
        table=message.table,
        keys=Strings.of([message.key]),
        extend=extend,
        expires_at_us=timeout_us if extend else 0,
        worked_until_us=timeout_us if worked_on else 0,
        with_data=bool(flags & Flag.DATA),
    )


def _query(message: Message) -> Command | Refusal:
    query, key = message.flags & fields.QUERY_BITS, message.key
    if query == fields.QUERY_CURSOR:
        if message.cursors is None:
            return Refusal(code=Code.BAD_CURSOR, text="cursors are not available here")
        return message.cursors.decode(key, message.limit)
    start, regex = (key, b"") if query == Flag.QUERY_RANGE else (b"", key)
    # Checked here because a cursor has to hold them.
    if max(len(start), len(message.second_key)) > limits.KV_KEY_BYTES_MAX:
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    if len(regex) > limits.REGEX_BYTES_MAX:
        text = f"an expression has at most {limits.REGEX_BYTES_MAX} bytes"
        return Refusal(code=Code.BAD_REGEX, text=text)
    return commands.Range(
        table=message.table,
        start=start,
        stop=message.second_key,
        count=message.limit or 0,
        regex=regex,
        with_data=bool(message.flags & Flag.DATA),
        skip_worked=bool(message.flags & Flag.WORKED_ON),
    )


def _delete(message: Message) -> Command:
    return commands.Delete(
        table=message.table,
        keys=Strings.of([message.key]),
        timestamp_us=message.timestamp_us,
        purge=bool(message.flags & Flag.OVERWRITE),
    )


def _modify(message: Message, change: commands.Change) -> Command | Refusal:
    operand = widened(change, message.type[0], message.data)
    if isinstance(operand, Refusal):
        return operand
    return commands.Modify(
        table=message.table,
        key=message.key,
        change=change,
        operand=operand,
        operand_type=message.type[0],
        timestamp_us=message.timestamp_us,
    )


def _not(message: Message) -> Command:
    return commands.Modify(
        table=message.table,
        key=message.key,
        change=commands.Change.NOT,
        timestamp_us=message.timestamp_us,
    )


def _rename(message: Message) -> Command:
    return commands.Rename(
        table=message.table,
        key=message.key,
        to=message.second_key,
        timestamp_us=message.timestamp_us,
        overwrite=bool(message.flags & Flag.OVERWRITE),
    )


def _with_key(
    kind: type[commands.Lock | commands.Unlock | commands.Listen],
) -> Callable[[Message], Command]:
    return lambda message: kind(table=message.table, keys=Strings.of([message.key]))


def _next(message: Message) -> Command | Refusal:
    lease_us = _lease_us(message)
    if isinstance(lease_us, Refusal):
        return lease_us
    return commands.Next(
        table=message.table,
        domain=message.key,
        lease_us=lease_us,
        done=bool(message.flags & Flag.OVERWRITE),
    )


def _done(message: Message) -> Command | Refusal:
    xid = _xid(message.key)
    if isinstance(xid, Refusal):
        return xid
    return commands.Finish(table=message.table, xids=(xid,))


def _extend(message: Message) -> Command | Refusal:
    xid = _xid(message.key)
    if isinstance(xid, Refusal):
        return xid
    lease_us = _lease_us(message)
    if isinstance(lease_us, Refusal):
        return lease_us
    return commands.Extend(table=message.table, xids=(xid,), lease_us=lease_us)


def _lease_us(message: Message) -> int | Refusal:
    if not message.flags & Flag.TIMEOUT:
        return 0
    lease_us = message.timeout_us - message.timestamp_us
    return lease_us if lease_us > 0 else _OVER


def _xid(key: bytes) -> int | Refusal:
    if len(key) < fields.U64.size:
        return _NO_XID
    if len(key) > fields.U64.size + limits.JOB_KEY_BYTES_MAX:
        return _KEY_TOO_LONG
    xid: int = fields.U64.unpack_from(key)[0]
    return xid


_NO_TIMEOUT: Final = Refusal(code=Code.BAD_TIMEOUT, text="a timeout of 0 is invalid; clear bit 3")
_STALE: Final = Refusal(
    code=Code.STALE_XID, text="the lease is over, or the job is done; another worker may have it"
)
_OVER: Final = Refusal(
    code=Code.BAD_TIMEOUT, text="the timeout, at which the lease ends, is not after the timestamp"
)
_NO_XID: Final = Refusal(
    code=Code.BAD_VALUE, text="name a job by what NEXT returned: an xid of 8 bytes, and its key"
)
_KEY_TOO_LONG: Final = Refusal(
    code=Code.KEY_TOO_LONG, text=f"the key of a job has at most {limits.JOB_KEY_BYTES_MAX} bytes"
)


class SeedFunction(NamedTuple):
    """All facts of a function."""

    flags: int  # that it knows
    command: Callable[[Message], Command | Refusal] | None  # None: it is never asked for
    key: str = "key"  # what its key is: `job` has an xid before it; nothing: it has none
    two_keys: bool = False
    value: bool = False


_GET_FLAGS: Final = (
    Flag.KEY_16 | ONE_KEY_FLAGS | Flag.WORKED_ON | fields.QUERY_BITS | Flag.DATA | Flag.COUNT
)
_SET_FLAGS: Final = (
    (fields.SIZE_FLAGS | Flag.TIMEOUT | Flag.TTL | Flag.OVERWRITE | Flag.LISTEN)
    | Flag.PERSIST
    | Flag.PERSIST_SYNONYM
)
_NOP: Final = SeedFunction(0, lambda message: commands.Nop(), key="")
# By number.
ROWS: Final = (
    _NOP,
    _NOP,
    SeedFunction(_SET_FLAGS, _set, value=True),
    SeedFunction(_GET_FLAGS, _get),
    SeedFunction(Flag.KEY_16 | Flag.OVERWRITE, _delete),
    SeedFunction(fields.SIZE_FLAGS, partial(_modify, change=commands.Change.ADD), value=True),
    SeedFunction(Flag.KEY_16, _not),
    SeedFunction(fields.SIZE_FLAGS, partial(_modify, change=commands.Change.TRUNCATE), value=True),
    SeedFunction(Flag.KEY_16, _with_key(commands.Lock)),
    SeedFunction(Flag.KEY_16, _with_key(commands.Unlock)),
    SeedFunction(Flag.KEY_16 | Flag.OVERWRITE, _rename, two_keys=True),
    SeedFunction(Flag.KEY_16 | Flag.TIMEOUT | Flag.OVERWRITE, _next, key="domain"),
    SeedFunction(Flag.KEY_16, _done, key="job"),
    SeedFunction(Flag.KEY_16 | Flag.TIMEOUT, _extend, key="job"),
    _NOP,
    SeedFunction(Flag.KEY_16, _with_key(commands.Listen)),
    SeedFunction(fields.SIZE_FLAGS | Flag.TIMEOUT, None),
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
    return _head(identifier, 0, now_us) + b"\0"


def encode_error(identifier: int, refusal: Refusal, *, now_us: int, flags: int = 0) -> bytes:
    flags, error = fields.encode_keys(flags, fields.encode_error(refusal))
    return _head(identifier, flags, now_us) + error


def _missing(flags: int) -> Refusal:
    if flags & (Flag.WORKED_ON | Flag.TIMEOUT):
        text = "the key does not exist, or its value is worked on"
        return Refusal(code=Code.NOT_FOUND, text=text)
    return Refusal(code=Code.NOT_FOUND, text="the key does not exist")


def _encode_entry(identifier: int, entries: Entries, data: bytes) -> bytes:
    flags, value = fields.encode_value(entries.types[0], data)
    timeout = b""
    if entries.expires_at_us[0]:
        flags |= Flag.TIMEOUT
        timeout = fields.U64.pack(entries.expires_at_us[0])
    state = entries.states[0]
    if state:
        flags |= Flag.OVERWRITE if state & Entries.LOCKED else 0
        flags |= Flag.WORKED_ON if state & Entries.WORKED_ON else 0
    head = _head(identifier, flags, entries.timestamps_us[0])
    return b"".join((head, timeout, b"\0", value))


def _encode_page(identifier: int, page: Page, *, now_us: int, cursor: bytes) -> bytes:
    assert bool(page.next_key) == bool(cursor), "a page with more to follow needs a cursor"
    rows = page.entries.values.rows()
    keys = page.keys.rows()
    bits = fields.value_bits(1 + max(map(len, rows), default=0))
    wide = max(map(len, [*keys, cursor])) > 0xFF
    key_field, value_field = fields.KEY_SIZES[wide], fields.VALUE_SIZES[bits >> 1]
    assert value_field is not None
    flags = bits | Flag.COUNT | (Flag.KEY_16 if wide else 0)
    flags |= fields.QUERY_CURSOR if cursor else 0
    head = _head(identifier, flags, now_us)
    parts = [head, fields.U16.pack(len(keys)), b"\0\0" if wide else b"\0"]
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
        flags, value = fields.encode_value(taken.types[0], taken.values[0])
        name = fields.U64.pack(taken.first_xid) + taken.keys[0]
        flags, key = fields.encode_keys(flags | Flag.COUNT, name)
        rest = b"".join((fields.U16.pack(1), _NO_ERROR[flags & Flag.KEY_16], key, value))
        timeout_us = taken.until_us
    if timeout_us:
        flags |= Flag.TIMEOUT
        rest = fields.U64.pack(timeout_us) + rest
    return _head(identifier, flags, now_us) + rest


_NO_ERROR: Final = (b"\0", b"\0\0")  # by how wide sizes of keys are


# -- CHANGE: the one message that a server sends unasked ------------------------------------------


def encode_change(identifier: int, changed: Changed) -> bytes:
    """Returns the CHANGE message for a listener: a new value, or that there is none."""
    flags, value = 0, b""
    if changed.type != Entries.MISSING:
        flags, value = fields.encode_value(changed.type, changed.value)
    timeout = b""
    if changed.expires_at_us:
        flags |= Flag.TIMEOUT
        timeout = fields.U64.pack(changed.expires_at_us)
    flags, key = fields.encode_keys(flags, changed.key)
    head = fields.REQUEST.pack(
        fields.MAGIC_REQUEST,
        fields.VERSION,
        Function.CHANGE,
        identifier,
        flags,
        changed.timestamp_us,
    )
    return b"".join((head, timeout, key, value))


class RawChange(NamedTuple):
    """One whole CHANGE message, for a key that the client listens to."""

    identifier: int  # of the request that began the listening
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int  # 0 = never

    def of(self, table: str) -> Changed:
        """Returns the change, given the table of the listener."""
        return Changed(
            table, self.key, self.type, self.value, self.timestamp_us, self.expires_at_us
        )


def decode_change(buffer: fields.ReceiveBuffer) -> tuple[RawChange, int]:
    """Reads a CHANGE message from its beginning; returns it and its length.

    Raises:
        fields.IncompleteError: if bytes are missing.
        RemoteProtocolError: if it is something else.
    """
    found = fields.Fields(buffer, 0, 0)
    found.skip(fields.REQUEST.size)
    *head, identifier, flags, timestamp_us = fields.REQUEST.unpack_from(buffer.data, buffer.start)
    if head != _CHANGE_HEAD or flags & ~ROWS[Function.CHANGE].flags:
        raise RemoteProtocolError(Code.BAD_MAGIC, "the peer is no Fjord server of version 1")
    found.flags = flags
    expires_at_us = found.u64() if flags & Flag.TIMEOUT else 0
    key = found.key()
    type_, value = found.value("CHANGE") if flags & fields.VALUE_BITS else (_GONE, b"")
    change = RawChange(identifier, key, type_[0], value, timestamp_us, expires_at_us)
    return change, found.offset


_CHANGE_HEAD: Final = [fields.MAGIC_REQUEST, fields.VERSION, Function.CHANGE]
_GONE: Final = bytes((Entries.MISSING,))
