"""Bodies of replies to the functions of streams, subscribers, snapshots and blocks, 65 to 79."""

from __future__ import annotations

import struct
from typing import Final

from fjord import columns
from fjord.commands import BlockList, Messages, Opened, Position, Reply, Subscribers
from fjord.wire.reply_body import PAGE, ReplyDecoders, ReplyEncoders, check_end, check_rows

MESSAGES = struct.Struct(">QQIII4x")  # after, until, messages, ended, rows
POSITION = struct.Struct(">QQII")  # seq, epoch, asleep, created
OPENED = struct.Struct(">QQQ")  # snapshot, moment, until
BLOCKS = struct.Struct(">QII")  # next after, rows, size of the location


# -- messages -------------------------------------------------------------------------------------


def message_parts(reply: Messages) -> tuple[columns.Buffer, ...]:
    """Returns a body in pieces: the ops in it are large, and are copied once, by who sends it."""
    rows = len(reply.ops)
    if not rows == len(reply.first_seqs) == len(reply.walls_us):
        raise ValueError("the columns of the messages differ in number")
    return (
        MESSAGES.pack(reply.after, reply.until, reply.rows, reply.ended, rows),
        columns.encode_u64(reply.first_seqs),
        columns.encode_u64(reply.walls_us),
        *reply.ops.parts(),
    )


def _encode_messages(reply: Messages) -> bytes:
    return b"".join(message_parts(reply))


def _decode_messages(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    after, until, messages, ended, rows = MESSAGES.unpack_from(view)
    check_rows(rows)
    check_rows(messages)
    first_seqs, position = columns.decode_numbers(view, MESSAGES.size, rows, "Q")
    walls_us, position = columns.decode_numbers(view, position, rows, "Q")
    found, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    return Messages(
        first_seqs=first_seqs,
        walls_us=walls_us,
        ops=found,
        after=after,
        until=until,
        ended=_is_set(ended),
        rows=messages,
    )


def _is_set(number: int) -> bool:
    if number > 1:
        raise ValueError("what is so or not is 0 or 1")
    return bool(number)


# -- subscribers ----------------------------------------------------------------------------------


def _encode_position(reply: Position) -> bytes:
    return POSITION.pack(reply.seq, reply.epoch, reply.asleep, reply.created)


def _decode_position(body: columns.Buffer) -> Reply:
    seq, epoch, asleep, created = POSITION.unpack(body)
    return Position(seq=seq, epoch=epoch, asleep=_is_set(asleep), created=_is_set(created))


def _encode_subscribers(reply: Subscribers) -> bytes:
    next_name = reply.next_name.encode()
    return b"".join(
        (
            PAGE.pack(len(reply.names), len(next_name)),
            next_name,
            columns.padding(len(next_name)),
            columns.encode_u64(reply.seqs),
            columns.encode_u64(reply.epochs),
            columns.encode_u64(reply.moved_us),
            columns.encode_u8(reply.asleep),
            reply.names.encode(),
        )
    )


def _decode_subscribers(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    rows, size = PAGE.unpack_from(view)
    check_rows(rows)
    end = PAGE.size + size
    if end > len(view):
        raise ValueError("the next name is cut short")
    seqs, position = columns.decode_numbers(view, columns.aligned(end), rows, "Q")
    epochs, position = columns.decode_numbers(view, position, rows, "Q")
    moved_us, position = columns.decode_numbers(view, position, rows, "Q")
    asleep, position = columns.decode_numbers(view, position, rows, "B")
    names, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    return Subscribers(
        names=names,
        seqs=seqs,
        epochs=epochs,
        moved_us=moved_us,
        asleep=bytes(asleep),
        next_name=str(view[PAGE.size : end], "utf-8", "replace"),
    )


# -- snapshots and blocks -------------------------------------------------------------------------


def _encode_opened(reply: Opened) -> bytes:
    return OPENED.pack(reply.snapshot, reply.wall_us, reply.until_us)


def _decode_opened(body: columns.Buffer) -> Reply:
    snapshot, wall_us, until_us = OPENED.unpack(body)
    return Opened(snapshot=snapshot, wall_us=wall_us, until_us=until_us)


def _encode_blocks(reply: BlockList) -> bytes:
    location = reply.location.encode()
    return b"".join(
        (
            BLOCKS.pack(reply.next_after, len(reply.names), len(location)),
            location,
            columns.padding(len(location)),
            *(columns.encode_u64(getattr(reply, name)) for name in BlockList.NUMBERS),
            reply.names.encode(),
        )
    )


def _decode_blocks(body: columns.Buffer) -> Reply:
    view = memoryview(body)
    next_after, rows, size = BLOCKS.unpack_from(view)
    check_rows(rows)
    end = BLOCKS.size + size
    if end > len(view):
        raise ValueError("the location is cut short")
    position = columns.aligned(end)
    numbers = {}
    for name in BlockList.NUMBERS:
        numbers[name], position = columns.decode_numbers(view, position, rows, "Q")
    names, position = columns.decode_strings(view, position, rows)
    check_end(position, view)
    location = str(view[BLOCKS.size : end], "utf-8", "replace")
    return BlockList(location=location, **numbers, names=names, next_after=next_after)


ENCODERS: Final[ReplyEncoders] = {
    Messages: _encode_messages,
    Position: _encode_position,
    Subscribers: _encode_subscribers,
    Opened: _encode_opened,
    BlockList: _encode_blocks,
}

DECODERS: Final[ReplyDecoders] = {
    Messages: _decode_messages,
    Position: _decode_position,
    Subscribers: _decode_subscribers,
    Opened: _decode_opened,
    BlockList: _decode_blocks,
}
