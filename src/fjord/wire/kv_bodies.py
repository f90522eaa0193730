"""Bodies of the functions of key/value tables, 32 to 47."""

from __future__ import annotations

from typing import Final

from fjord import columns, commands
from fjord.columns import Strings, repeat
from fjord.commands import Command, Refusal
from fjord.errors import Code
from fjord.wire import operands
from fjord.wire.body import COUNT, U64, Body, Decoders, Encoded, Encoders, encode_dates, encode_head
from fjord.wire.functions import Flag, Function


def _encode_set(command: commands.Set) -> Encoded:
    flags, timestamp_us, stamps = encode_dates(command.timestamps_us)
    if command.overwrite:
        flags |= Flag.OVERWRITE
    if command.persist:
        flags |= Flag.PERSIST
    ttl = also = b""
    if command.ttl_us:
        flags |= Flag.TTL
        ttl = U64.pack(command.ttl_us)
    if command.also is not None:
        flags |= Flag.COUNT
        also = b"".join((COUNT.pack(len(command.also)), command.also.encode()))
    body = b"".join(
        (
            encode_head(command.table, len(command.keys), command.expires_at_us),
            ttl,
            stamps,
            columns.encode_u8(command.types),
            command.keys.encode(),
            command.values.encode(),
            also,
        )
    )
    return Function.SET_MANY, flags, timestamp_us, body


def _decode_set(body: Body) -> Command | Refusal:
    flags = body.flags
    ttl_us = body.field(U64)[0] if flags & Flag.TTL else 0
    stamps_us = body.dates()
    types = bytes(body.numbers("B"))
    keys = body.strings()
    stored = body.strings()
    also = body.further_strings() if flags & Flag.COUNT else None
    body.end()
    if flags & Flag.TTL and not ttl_us:
        return Refusal(code=Code.BAD_TIMEOUT, text="a TTL of 0 is none; clear bit 14")
    return commands.Set(
        table=body.table,
        keys=keys,
        types=types,
        values=stored,
        timestamps_us=repeat(body.timestamp_us, body.rows) if stamps_us is None else stamps_us,
        expires_at_us=body.argument,
        ttl_us=ttl_us,
        overwrite=bool(flags & Flag.OVERWRITE),
        persist=bool(flags & Flag.PERSIST),
        also=also,
    )


def _encode_get(command: commands.Get) -> Encoded:
    flags = Flag.DATA if command.with_data else 0
    if command.skip_worked:
        flags |= Flag.WORKED_ON
    body = b"".join((encode_head(command.table, len(command.keys)), command.keys.encode()))
    return Function.GET_MANY, flags, 0, body


def _decode_get(body: Body) -> Command:
    keys = body.strings()
    body.end_plain()
    return commands.Get(
        table=body.table,
        keys=keys,
        with_data=bool(body.flags & Flag.DATA),
        skip_worked=bool(body.flags & Flag.WORKED_ON),
    )


def _encode_delete(command: commands.Delete) -> Encoded:
    flags, timestamp_us, stamps = 0, command.timestamp_us, b""
    if command.timestamps_us is not None:
        flags, timestamp_us, stamps = encode_dates(command.timestamps_us)
    if command.purge:
        flags |= Flag.OVERWRITE
    head = encode_head(command.table, len(command.keys))
    body = b"".join((head, stamps, command.keys.encode()))
    return Function.DELETE_MANY, flags, timestamp_us, body


def _decode_delete(body: Body) -> Command:
    stamps_us = body.dates()
    return commands.Delete(
        table=body.table,
        keys=_decode_keys(body),
        timestamp_us=body.timestamp_us if stamps_us is None else 0,
        timestamps_us=stamps_us,
        purge=bool(body.flags & Flag.OVERWRITE),
    )


def _encode_touch(command: commands.Touch) -> Encoded:
    flags = Flag.DATA if command.with_data else 0
    flags |= Flag.UPDATE_TIMEOUT if command.extend else 0
    body = b"".join(
        (
            encode_head(command.table, len(command.keys), command.expires_at_us),
            U64.pack(command.worked_until_us),
            command.keys.encode(),
        )
    )
    return Function.TOUCH_MANY, flags, 0, body


def _decode_touch(body: Body) -> Command:
    (worked_until_us,) = body.field(U64)
    keys = body.strings()
    body.end()
    return commands.Touch(
        table=body.table,
        keys=keys,
        extend=bool(body.flags & Flag.UPDATE_TIMEOUT),
        expires_at_us=body.argument,
        worked_until_us=worked_until_us,
        with_data=bool(body.flags & Flag.DATA),
    )


def _encode_modify(command: commands.Modify) -> Encoded:
    body = b"".join(
        (
            encode_head(command.table, 1, command.change),
            columns.encode_u8(bytes((command.operand_type,))),
            Strings.of([command.key]).encode(),
            Strings.of([command.operand]).encode(),
        )
    )
    return Function.MODIFY, 0, command.timestamp_us, body


def _decode_modify(body: Body) -> Command | Refusal:
    body.has_rows(1)
    (operand_type,) = body.numbers("B")
    key = body.strings()[0]
    operand = body.strings()[0]
    body.end()
    change = _CHANGES.get(body.argument)
    if change is None:
        raise ValueError("the argument is 5 (ADD), 6 (NOT) or 7 (TRUNCATE)")
    wide = operands.widen(change, operand_type, operand)
    if isinstance(wide, Refusal):
        return wide
    return commands.Modify(
        table=body.table,
        key=key,
        change=change,
        operand=wide,
        operand_type=operand_type,
        timestamp_us=body.timestamp_us,
    )


_CHANGES: Final = {int(change): change for change in commands.Change}


def _encode_rename(command: commands.Rename) -> Encoded:
    flags = Flag.OVERWRITE if command.overwrite else 0
    keys = (Strings.of([command.key]).encode(), Strings.of([command.to]).encode())
    body = b"".join((encode_head(command.table, 1), *keys))
    return Function.RENAME_KEY, flags, command.timestamp_us, body


def _decode_rename(body: Body) -> Command:
    body.has_rows(1)
    key = body.strings()[0]
    to = body.strings()[0]
    body.end_plain()
    return commands.Rename(
        table=body.table,
        key=key,
        to=to,
        timestamp_us=body.timestamp_us,
        overwrite=bool(body.flags & Flag.OVERWRITE),
    )


def _encode_range(command: commands.Range) -> Encoded:
    flags = Flag.DATA if command.with_data else 0
    flags |= Flag.WORKED_ON if command.skip_worked else 0
    bounds = [Strings.of([one]) for one in (command.start, command.stop, command.regex)]
    head = encode_head(command.table, 1, command.count)
    return Function.RANGE, flags, 0, b"".join((head, *(one.encode() for one in bounds)))


def _decode_range(body: Body) -> Command:
    body.has_rows(1)
    start, stop, regex = (body.strings()[0] for _ in range(3))
    body.end()
    return commands.Range(
        table=body.table,
        start=start,
        stop=stop,
        count=body.argument,
        regex=regex,
        with_data=bool(body.flags & Flag.DATA),
        skip_worked=bool(body.flags & Flag.WORKED_ON),
    )


def _encode_keys(command: commands.Lock | commands.Unlock | commands.Listen) -> bytes:
    return b"".join((encode_head(command.table, len(command.keys)), command.keys.encode()))


def _decode_keys(body: Body) -> Strings:
    keys = body.strings()
    body.end_plain()
    return keys


def _encode_lock(command: commands.Lock) -> Encoded:
    return Function.LOCK_MANY, 0, 0, _encode_keys(command)


def _decode_lock(body: Body) -> Command:
    return commands.Lock(table=body.table, keys=_decode_keys(body))


def _encode_unlock(command: commands.Unlock) -> Encoded:
    return Function.UNLOCK_MANY, 0, 0, _encode_keys(command)


def _decode_unlock(body: Body) -> Command:
    return commands.Unlock(table=body.table, keys=_decode_keys(body))


def _encode_listen(command: commands.Listen) -> Encoded:
    return Function.LISTEN_MANY, 0, 0, _encode_keys(command)


def _decode_listen(body: Body) -> Command:
    return commands.Listen(table=body.table, keys=_decode_keys(body))


def _encode_unlisten(command: commands.Unlisten) -> Encoded:
    return Function.UNLISTEN, 0, 0, encode_head("", 0, command.identifier)


def _decode_unlisten(body: Body) -> Command:
    body.has_no_table()
    body.has_rows(0)
    body.end()
    if body.argument > 0xFFFF:
        raise ValueError("the argument is an identifier of 16 bits")
    return commands.Unlisten(identifier=body.argument)


ENCODERS: Final[Encoders] = {
    commands.Set: _encode_set,
    commands.Get: _encode_get,
    commands.Touch: _encode_touch,
    commands.Delete: _encode_delete,
    commands.Modify: _encode_modify,
    commands.Rename: _encode_rename,
    commands.Lock: _encode_lock,
    commands.Unlock: _encode_unlock,
    commands.Range: _encode_range,
    commands.Listen: _encode_listen,
    commands.Unlisten: _encode_unlisten,
}

DECODERS: Final[Decoders] = {
    Function.SET_MANY: _decode_set,
    Function.GET_MANY: _decode_get,
    Function.TOUCH_MANY: _decode_touch,
    Function.DELETE_MANY: _decode_delete,
    Function.MODIFY: _decode_modify,
    Function.RENAME_KEY: _decode_rename,
    Function.LOCK_MANY: _decode_lock,
    Function.UNLOCK_MANY: _decode_unlock,
    Function.RANGE: _decode_range,
    Function.LISTEN_MANY: _decode_listen,
    Function.UNLISTEN: _decode_unlisten,
}
