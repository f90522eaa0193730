"""Bodies of the functions of streams, subscribers, snapshots and blocks, 65 to 79.

AS_OF holds other messages, as BATCH does, and is in `batch`.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import columns, commands
from fjord.columns import Strings
from fjord.commands import Command
from fjord.wire.body import U64, Body, Decoders, Encoded, Encoders, encode_head
from fjord.wire.functions import Flag, Function

READ = struct.Struct(">QQQQ")  # until, count, largest size, wait
START = struct.Struct(">I4x")
ACKNOWLEDGE = struct.Struct(">QQ")  # epoch, expected
# What stands for a seq where none is named; no seq is ever so large.
NO_SEQ: Final = 2**64 - 1


# -- messages -------------------------------------------------------------------------------------


def append_parts(command: commands.Append) -> tuple[columns.Buffer, ...]:
    """Returns a body in pieces: it is large, and is copied once, by who sends it."""
    rows = len(command.types)
    if not rows == len(command.keys) == len(command.values):
        raise ValueError("the columns of the messages differ in number")
    dates: tuple[columns.Buffer, ...] = ()
    if command.timestamps_us is not None:
        if rows != len(command.timestamps_us):
            raise ValueError("the columns of the messages differ in number")
        dates = (columns.encode_u64(command.timestamps_us),)
    return (
        encode_head(command.table, rows),
        *dates,
        columns.encode_u8(command.types),
        *command.keys.parts(),
        *command.values.parts(),
    )


def append_flags(command: commands.Append) -> int:
    return 0 if command.timestamps_us is None else Flag.TIMEOUT


def _encode_append(command: commands.Append) -> Encoded:
    return Function.APPEND, append_flags(command), 0, b"".join(append_parts(command))


def _decode_append(body: Body) -> Command:
    """Returns the messages as they came: nothing is done here for each of them."""
    dates = body.dates()
    types = bytes(body.numbers("B"))
    keys, found = body.strings(), body.strings()
    body.end_plain()
    return commands.Append(
        table=body.table, types=types, keys=keys, values=found, timestamps_us=dates
    )


def _encode_erase(command: commands.Erase) -> Encoded:
    body = b"".join((encode_head(command.table, len(command.keys)), *command.keys.parts()))
    return Function.ERASE, 0, 0, body


def _decode_erase(body: Body) -> Command:
    keys = body.strings()
    body.end_plain()
    return commands.Erase(table=body.table, keys=keys)


def _encode_read(command: commands.Read) -> Encoded:
    parts = (
        encode_head(command.table, 1, command.after),
        READ.pack(command.until, command.count, command.bytes_max, command.wait_us),
        _encode_name(command.subscriber),
    )
    return Function.READ, Flag.DATA if command.once else 0, 0, b"".join(parts)


def _decode_read(body: Body) -> Command:
    until, count, bytes_max, wait_us = body.field(READ)
    return commands.Read(
        table=body.table,
        after=body.argument,
        until=until,
        count=count,
        bytes_max=bytes_max,
        wait_us=wait_us,
        subscriber=_decode_name(body),
        once=bool(body.flags & Flag.DATA),
    )


# -- subscribers ----------------------------------------------------------------------------------


def _encode_name(name: str) -> bytes:
    return bytes(Strings.of([name.encode()]).encode())


def _decode_name(body: Body) -> str:
    """Reads the name of a subscriber, the last thing in its body; tables say whether it is one."""
    body.has_rows(1)
    name = body.strings()[0]
    body.end()
    return name.decode("ascii", "replace")


def _encode_subscribe(command: commands.Subscribe) -> Encoded:
    return Function.SUBSCRIBE, 0, 0, _encode_start(command)


def _decode_subscribe(body: Body) -> Command:
    (start,) = body.field(START)
    name = _decode_name(body)
    return commands.Subscribe(table=body.table, name=name, start=start, at=body.argument)


def _encode_seek(command: commands.Seek) -> Encoded:
    return Function.SEEK, 0, 0, _encode_start(command)


def _decode_seek(body: Body) -> Command:
    (start,) = body.field(START)
    name = _decode_name(body)
    return commands.Seek(table=body.table, name=name, start=start, at=body.argument)


def _encode_start(command: commands.Subscribe | commands.Seek) -> bytes:
    head = encode_head(command.table, 1, command.at)
    return b"".join((head, START.pack(command.start), _encode_name(command.name)))


def _encode_acknowledge(command: commands.Acknowledge) -> Encoded:
    parts = (
        encode_head(command.table, 1, command.seq),
        ACKNOWLEDGE.pack(command.epoch, _or_none(command.expected)),
        _encode_name(command.name),
    )
    return Function.ACKNOWLEDGE, 0, 0, b"".join(parts)


def _decode_acknowledge(body: Body) -> Command:
    epoch, expected = body.field(ACKNOWLEDGE)
    return commands.Acknowledge(
        table=body.table,
        name=_decode_name(body),
        seq=body.argument,
        epoch=epoch,
        expected=-1 if expected == NO_SEQ else expected,
    )


def _or_none(seq: int) -> int:
    """Returns a seq as it is sent, of which -1 is none."""
    if seq == NO_SEQ:
        raise ValueError("no seq is so large")
    return NO_SEQ if seq == -1 else seq


def _encode_rest(command: commands.Rest) -> Encoded:
    head = encode_head(command.table, 1, int(command.asleep))
    return Function.REST, 0, 0, head + _encode_name(command.name)


def _decode_rest(body: Body) -> Command:
    name = _decode_name(body)
    if body.argument > 1:
        raise ValueError("the argument is 0, or 1: asleep")
    return commands.Rest(table=body.table, name=name, asleep=bool(body.argument))


def _encode_unsubscribe(command: commands.Unsubscribe) -> Encoded:
    return Function.UNSUBSCRIBE, 0, 0, encode_head(command.table, 1) + _encode_name(command.name)


def _decode_unsubscribe(body: Body) -> Command:
    name = _decode_name(body)
    body.end_plain()
    return commands.Unsubscribe(table=body.table, name=name)


def _encode_subscribers(command: commands.ListSubscribers) -> Encoded:
    head = encode_head(command.table, 1, command.count)
    return Function.SUBSCRIBERS, 0, 0, head + _encode_name(command.start)


def _decode_subscribers(body: Body) -> Command:
    start = _decode_name(body)
    return commands.ListSubscribers(table=body.table, start=start, count=body.argument)


def _encode_lag(command: commands.Lag) -> Encoded:
    head = encode_head(command.table, 1, _or_none(command.after))
    return Function.LAG, 0, 0, head + _encode_name(command.name)


def _decode_lag(body: Body) -> Command:
    after = -1 if body.argument == NO_SEQ else body.argument
    return commands.Lag(table=body.table, name=_decode_name(body), after=after)


# -- snapshots ------------------------------------------------------------------------------------


def _encode_open(command: commands.OpenSnapshot) -> Encoded:
    return Function.OPEN_SNAPSHOT, 0, 0, encode_head("", 0, command.lifetime_us)


def _decode_open(body: Body) -> Command:
    body.has_no_table()
    body.has_rows(0)
    body.end()
    return commands.OpenSnapshot(lifetime_us=body.argument)


def _encode_close(command: commands.CloseSnapshot) -> Encoded:
    return Function.CLOSE_SNAPSHOT, 0, 0, encode_head("", 0, command.snapshot)


def _decode_close(body: Body) -> Command:
    body.has_no_table()
    body.has_rows(0)
    body.end()
    return commands.CloseSnapshot(snapshot=body.argument)


# -- blocks ---------------------------------------------------------------------------------------


def _encode_blocks(command: commands.ListBlocks) -> Encoded:
    head = encode_head(command.table, 0, command.after)
    return Function.BLOCKS, 0, 0, head + U64.pack(command.count)


def _decode_blocks(body: Body) -> Command:
    body.has_rows(0)
    (count,) = body.field(U64)
    body.end()
    return commands.ListBlocks(table=body.table, after=body.argument, count=count)


def _encode_seal(command: commands.SealNow) -> Encoded:
    return Function.SEAL, 0, 0, encode_head(command.table, 0)


def _decode_seal(body: Body) -> Command:
    body.has_rows(0)
    body.end_plain()
    return commands.SealNow(table=body.table)


ENCODERS: Final[Encoders] = {
    commands.Append: _encode_append,
    commands.Erase: _encode_erase,
    commands.Read: _encode_read,
    commands.Subscribe: _encode_subscribe,
    commands.Acknowledge: _encode_acknowledge,
    commands.Seek: _encode_seek,
    commands.Rest: _encode_rest,
    commands.Unsubscribe: _encode_unsubscribe,
    commands.ListSubscribers: _encode_subscribers,
    commands.Lag: _encode_lag,
    commands.OpenSnapshot: _encode_open,
    commands.CloseSnapshot: _encode_close,
    commands.ListBlocks: _encode_blocks,
    commands.SealNow: _encode_seal,
}

DECODERS: Final[Decoders] = {
    Function.APPEND: _decode_append,
    Function.ERASE: _decode_erase,
    Function.READ: _decode_read,
    Function.SUBSCRIBE: _decode_subscribe,
    Function.ACKNOWLEDGE: _decode_acknowledge,
    Function.SEEK: _decode_seek,
    Function.REST: _decode_rest,
    Function.UNSUBSCRIBE: _decode_unsubscribe,
    Function.SUBSCRIBERS: _decode_subscribers,
    Function.LAG: _decode_lag,
    Function.OPEN_SNAPSHOT: _decode_open,
    Function.CLOSE_SNAPSHOT: _decode_close,
    Function.BLOCKS: _decode_blocks,
    Function.SEAL: _decode_seal,
}
