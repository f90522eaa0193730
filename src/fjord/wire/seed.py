"""Requests of the seed functions: one key, one value, flags that say which fields are there.

They carry no total length (decision 10), so a parser either finds a whole message, or says how
many bytes it needs, or gives the connection up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Command, Refusal
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import operands, seed_jobs
from fjord.wire.buffer import ReceiveBuffer
from fjord.wire.fields import U16, U64, IncompleteError, encode_keys, encode_value
from fjord.wire.functions import (
    MAGIC_REQUEST,
    QUERY_BITS,
    QUERY_CURSOR,
    REQUEST,
    VERSION,
    Flag,
    Function,
    refused_flag,
)
from fjord.wire.message import Context, Encoded, Message

# What goes with one key only: a query marks nothing and is not listened to.
_ONE_KEY_FLAGS: Final = Flag.TIMEOUT | Flag.UPDATE_TIMEOUT | Flag.LISTEN


# -- decoding -------------------------------------------------------------------------------------


def decode_request(
    buffer: ReceiveBuffer, function: Function, flags: int, timestamp_us: int, context: Context
) -> tuple[Command | Refusal, int] | None:
    """Reads what follows the header.

    Returns:
        The command, or what is wrong with it, and the length of the whole message; None if
        bytes are missing.

    Raises:
        RemoteProtocolError: if the message cannot be followed any further.
    """
    message = Message(buffer, flags, timestamp_us, context)
    try:
        command = _DECODERS[function](message)
    except IncompleteError:
        return None
    return command, message.offset


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
        raise RemoteProtocolError(Code.BAD_FLAGS, refused_flag(wrong, "GET with a query"))
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
    operand = operands.widen(change, type_[0], data)
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


_NO_TIMEOUT: Final = Refusal(code=Code.BAD_TIMEOUT, text="a timeout of 0 is none; clear bit 3")

_DECODERS: Final[dict[Function, Callable[[Message], Command | Refusal]]] = {
    Function.NOP: _decode_nop,
    Function.QUIT: _decode_nop,
    Function.SET: _decode_set,
    Function.GET: _decode_get,
    Function.DELETE: _decode_delete,
    Function.ADD: _decode_add,
    Function.NOT: _decode_not,
    Function.TRUNCATE: _decode_truncate,
    Function.LOCK: _decode_lock,
    Function.UNLOCK: _decode_unlock,
    Function.RENAME: _decode_rename,
    Function.NEXT: seed_jobs.decode_next,
    Function.DONE: seed_jobs.decode_done,
    Function.TOUCH: seed_jobs.decode_touch,
    Function.PING: _decode_nop,
    Function.LISTEN: _decode_listen,
}


# -- encoding -------------------------------------------------------------------------------------


def encode_request(
    command: Command, identifier: int, timestamp_us: int = 0, *, listens: bool = False
) -> bytes:
    """Returns the message for a command on one key, or one job, of the connection's table.

    Raises:
        LocalProtocolError: if none of these functions can say it.
    """
    function, flags, own_us, rest = _encode(command, timestamp_us)
    flags |= Flag.LISTEN if listens else 0
    head = REQUEST.pack(MAGIC_REQUEST, VERSION, function, identifier, flags, own_us or timestamp_us)
    return head + rest


def _encode(command: Command, timestamp_us: int) -> Encoded:
    encoder = _ENCODERS.get(type(command))
    if encoder is not None:
        return encoder(command)
    if type(command) in seed_jobs.ENCODERS:
        return seed_jobs.ENCODERS[type(command)](command, timestamp_us)
    raise LocalProtocolError(
        Code.UNKNOWN_FUNCTION, f"functions 0 to 16 have no {type(command).__name__}"
    )


def _encode_nop(command: commands.Nop) -> Encoded:
    return Function.NOP, 0, 0, b""


def _encode_set(command: commands.Set) -> Encoded:
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


def _encode_get(command: commands.Get) -> Encoded:
    flags, key = encode_keys(_read_flags(command), command.keys[0])
    return Function.GET, flags, 0, key


def _encode_touch(command: commands.Touch) -> Encoded:
    timeout_us = command.expires_at_us or command.worked_until_us
    flags = Flag.TIMEOUT
    flags |= Flag.DATA if command.with_data else 0
    flags |= Flag.UPDATE_TIMEOUT if command.extend else 0
    flags |= Flag.WORKED_ON if command.worked_until_us else 0
    if not timeout_us or command.worked_until_us not in (0, timeout_us):
        raise LocalProtocolError(Code.BAD_TIMEOUT, "a GET carries one timeout")
    flags, key = encode_keys(flags, command.keys[0])
    return Function.GET, flags, 0, U64.pack(timeout_us) + key


def _encode_range(command: commands.Range) -> Encoded:
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


def _encode_delete(command: commands.Delete) -> Encoded:
    flags, key = encode_keys(Flag.OVERWRITE if command.purge else 0, command.keys[0])
    stamps = command.timestamps_us
    return Function.DELETE, flags, command.timestamp_us if stamps is None else stamps[0], key


def _encode_modify(command: commands.Modify) -> Encoded:
    function = Function(command.change)
    if function is Function.NOT:
        flags, key = encode_keys(0, command.key)
        return function, flags, command.timestamp_us, key
    size_flag, value = encode_value(command.operand_type, command.operand)
    flags, key = encode_keys(size_flag, command.key)
    return function, flags, command.timestamp_us, key + value


def _encode_rename(command: commands.Rename) -> Encoded:
    flags = Flag.OVERWRITE if command.overwrite else 0
    flags, keys = encode_keys(flags, command.key, command.to)
    return Function.RENAME, flags, command.timestamp_us, keys


def _encode_key(command: commands.Lock | commands.Unlock | commands.Listen) -> Encoded:
    flags, key = encode_keys(0, command.keys[0])
    return _KEY_FUNCTIONS[type(command)], flags, 0, key


_KEY_FUNCTIONS: Final[dict[type[Command], Function]] = {
    commands.Lock: Function.LOCK,
    commands.Unlock: Function.UNLOCK,
    commands.Listen: Function.LISTEN,
}

_ENCODERS: Final[dict[type[Command], Callable[[Any], Encoded]]] = {
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
}
