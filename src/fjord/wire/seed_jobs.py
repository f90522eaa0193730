"""NEXT, DONE and TOUCH of the seed functions: one job at a time, in the layout of key and value.

A job is named by the key that NEXT gives it: the xid of its lease in 8 bytes, then its own key.
How long a lease is to last is said by its end.  Both that and the timestamp are the client's, so
it is their difference that counts, and a wrong clock does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Acted, Command, Page, Refusal, Taken
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire.fields import U16, U64, encode_keys, encode_value
from fjord.wire.functions import MAGIC_REPLY, REPLY, VERSION, Flag, Function
from fjord.wire.message import Encoded, Message

_NO_ERROR: Final = (b"\0", b"\0\0")  # by how wide sizes of keys are
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


# -- requests -------------------------------------------------------------------------------------


def decode_next(message: Message) -> Command | Refusal:
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


def decode_done(message: Message) -> Command | Refusal:
    xid = _xid(message.key())
    if isinstance(xid, Refusal):
        return xid
    return commands.Finish(table=message.context.table, xids=(xid,))


def decode_touch(message: Message) -> Command | Refusal:
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


def _encode_next(command: commands.Next, timestamp_us: int) -> Encoded:
    if command.count != 1 or command.wait_us:
        raise LocalProtocolError(Code.BAD_COUNT, "NEXT takes one job, and does not wait")
    flags, until = _encode_lease(command.lease_us, timestamp_us)
    flags |= Flag.OVERWRITE if command.done else 0
    flags, domain = encode_keys(flags, command.domain)
    return Function.NEXT, flags, 0, until + domain


def _encode_done(command: commands.Finish, timestamp_us: int) -> Encoded:
    return Function.DONE, 0, 0, _encode_xid(command)


def _encode_touch(command: commands.Extend, timestamp_us: int) -> Encoded:
    flags, until = _encode_lease(command.lease_us, timestamp_us)
    return Function.TOUCH, flags, 0, until + _encode_xid(command)


def _encode_lease(lease_us: int, timestamp_us: int) -> tuple[int, bytes]:
    return (Flag.TIMEOUT, U64.pack(timestamp_us + lease_us)) if lease_us else (0, b"")


def _encode_xid(command: commands.Finish | commands.Extend) -> bytes:
    if len(command.xids) != 1:
        raise LocalProtocolError(Code.BAD_COUNT, "functions 0 to 16 speak of one job")
    return encode_keys(0, U64.pack(command.xids[0]))[1]


ENCODERS: Final[dict[type[Command], Callable[[Any, int], Encoded]]] = {
    commands.Next: _encode_next,
    commands.Finish: _encode_done,
    commands.Extend: _encode_touch,
}


# -- replies --------------------------------------------------------------------------------------


def encode_taken(identifier: int, taken: Taken, *, now_us: int) -> bytes:
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


def stale(acted: Acted) -> Refusal | None:
    """Says that the one job of DONE and TOUCH is somebody else's by now, or None."""
    return _STALE if acted.missing else None


def read_taken(page: Page | None, timeout_us: int) -> Taken:
    """Returns what a reply to NEXT says; what the seed's layout has no room for is 0.

    Raises:
        RemoteProtocolError: if it is something else.
    """
    if page is None:
        return _taken(0, b"", Strings.of([]), Strings.of([]), next_at_us=timeout_us)
    if len(page.keys) != 1 or len(page.keys[0]) < U64.size or page.next_key:
        raise RemoteProtocolError(Code.BAD_BATCH, "a reply to NEXT has one job, with its xid")
    key = page.keys[0]
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
