"""Bodies of the functions of a table's history as a whole: SPAN, 80, and REPLACE_BLOCKS, 84."""

from __future__ import annotations

import struct
from typing import Final

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Command
from fjord.wire.body import Body, Decoders, Encoded, Encoders, encode_head
from fjord.wire.functions import Function

SPAN = struct.Struct(">QQQQ16s")  # until, most rows, largest size, before, epoch
BLOCK = struct.Struct(">QQQQQ")  # rows, size, earliest, latest, crc
EPOCH_BYTES: Final = 16
_NO_EPOCH: Final = bytes(EPOCH_BYTES)


def _encode_span(command: commands.Span) -> Encoded:
    if command.epoch and len(command.epoch) != EPOCH_BYTES:
        raise ValueError(f"an epoch has {EPOCH_BYTES} bytes")
    numbers = (command.until, command.rows_max, command.bytes_max, command.before_us)
    fields = SPAN.pack(*numbers, command.epoch or _NO_EPOCH)
    return Function.SPAN, 0, 0, encode_head(command.table, 0, command.after) + fields


def _decode_span(body: Body) -> Command:
    body.has_rows(0)
    until, rows_max, bytes_max, before_us, epoch = body.field(SPAN)
    body.end()
    return commands.Span(
        table=body.table,
        after=body.argument,
        until=until,
        rows_max=rows_max,
        bytes_max=bytes_max,
        before_us=before_us,
        epoch=b"" if epoch == _NO_EPOCH else epoch,
    )


def _encode_replace(command: commands.ReplaceBlocks) -> Encoded:
    """Returns the new name in front of the old ones, as one column."""
    names = Strings.of([one.encode() for one in (command.name, *command.names)])
    numbers = (command.rows, command.size, command.min_us, command.max_us, command.crc)
    head = encode_head(command.table, len(names))
    return Function.REPLACE_BLOCKS, 0, 0, b"".join((head, BLOCK.pack(*numbers), *names.parts()))


def _decode_replace(body: Body) -> Command:
    rows, size, min_us, max_us, crc = body.field(BLOCK)
    names = [name.decode() for name in body.strings()]
    body.end_plain()
    if not names:
        raise ValueError("the new block has no name")
    return commands.ReplaceBlocks(
        table=body.table,
        names=names[1:],
        name=names[0],
        rows=rows,
        size=size,
        min_us=min_us,
        max_us=max_us,
        crc=crc,
    )


ENCODERS: Final[Encoders] = {
    commands.Span: _encode_span,
    commands.ReplaceBlocks: _encode_replace,
}

DECODERS: Final[Decoders] = {
    Function.SPAN: _decode_span,
    Function.REPLACE_BLOCKS: _decode_replace,
}
