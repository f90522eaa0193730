"""The body of the reply to SPAN, 80."""

from __future__ import annotations

import struct
from typing import Final

from fjord import columns
from fjord.commands import Reply, Spanned
from fjord.wire.reply_body import ReplyDecoders, ReplyEncoders

# seq, rows, size, wall time, examined, durable seq, first seq, epoch, is there more
SPANNED = struct.Struct(">QQQQQQQ16sI4x")


def _encode_spanned(reply: Spanned) -> bytes:
    return SPANNED.pack(
        reply.seq,
        reply.rows,
        reply.size,
        reply.wall_us,
        reply.examined,
        reply.durable_seq,
        reply.first_seq,
        reply.epoch,
        reply.is_more,
    )


def _decode_spanned(body: columns.Buffer) -> Reply:
    seq, rows, size, wall_us, examined, durable_seq, first_seq, epoch, more = SPANNED.unpack(body)
    if more > 1:
        raise ValueError("what is so or not is 0 or 1")
    return Spanned(
        seq=seq,
        rows=rows,
        size=size,
        wall_us=wall_us,
        examined=examined,
        is_more=bool(more),
        durable_seq=durable_seq,
        first_seq=first_seq,
        epoch=epoch,
    )


ENCODERS: Final[ReplyEncoders] = {Spanned: _encode_spanned}
DECODERS: Final[ReplyDecoders] = {Spanned: _decode_spanned}
