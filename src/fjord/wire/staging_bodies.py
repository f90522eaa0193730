"""Bodies of COMMIT, 82, WRITER, 83, and ADVANCE, 85, and of the reply to the first two; STAGE, 81,
is in `batch`.
"""

from __future__ import annotations

import struct
from typing import Final

from fjord import columns, commands
from fjord.columns import Strings
from fjord.commands import Command, Committed, Reply
from fjord.wire.body import COUNT, U64, Body, Decoders, Encoded, Encoders, encode_head
from fjord.wire.functions import Function
from fjord.wire.reply_body import ReplyDecoders, ReplyEncoders

# batch, is it new, stages that are left, rows, seq
COMMITTED = struct.Struct(">QIIQQ")
_NONE: Final = 2**64 - 1  # there is no batch


def _encode_commit(command: commands.CommitStages) -> Encoded:
    writer = command.writer.encode()
    parts = (
        encode_head(command.table, len(command.stages), command.batch),
        COUNT.pack(len(writer)),
        writer,
        columns.padding(len(writer)),
        columns.encode_u64(command.stages),
    )
    return Function.COMMIT, 0, 0, b"".join(parts)


def _decode_commit(body: Body) -> Command:
    (size,) = body.field(COUNT)
    end = body.position + size
    if end > len(body.view):
        raise ValueError("the name of the writer is cut short")
    writer = str(body.view[body.position : end], "utf-8")
    body.position = columns.aligned(end)
    stages = list(body.numbers("Q"))
    body.end()
    return commands.CommitStages(
        table=body.table, writer=writer, batch=body.argument, stages=stages
    )


def _encode_writer(command: commands.AskWriter) -> Encoded:
    name = Strings.of([command.writer.encode()])
    return Function.WRITER, 0, 0, encode_head(command.table, 1) + bytes(name.encode())


def _decode_writer(body: Body) -> Command:
    body.has_rows(1)
    (name,) = body.strings()
    body.end_plain()
    return commands.AskWriter(table=body.table, writer=name.decode())


def _encode_advance(command: commands.Advance) -> Encoded:
    if command.expected == _NONE:
        raise ValueError("no number of a batch is so large")
    parts = (
        encode_head("", 1, command.batch),
        U64.pack(_NONE if command.expected == -1 else command.expected),
        Strings.of([command.writer.encode()]).encode(),
    )
    return Function.ADVANCE, 0, 0, b"".join(parts)


def _decode_advance(body: Body) -> Command:
    body.has_no_table()
    body.has_rows(1)
    (expected,) = body.field(U64)
    (name,) = body.strings()
    body.end()
    if expected == _NONE:
        expected = -1
    return commands.Advance(writer=name.decode(), expected=expected, batch=body.argument)


ENCODERS: Final[Encoders] = {
    commands.CommitStages: _encode_commit,
    commands.AskWriter: _encode_writer,
    commands.Advance: _encode_advance,
}
DECODERS: Final[Decoders] = {
    Function.COMMIT: _decode_commit,
    Function.WRITER: _decode_writer,
    Function.ADVANCE: _decode_advance,
}


# -- replies --------------------------------------------------------------------------------------


def _encode_committed(reply: Committed) -> bytes:
    batch = _NONE if reply.batch < 0 else reply.batch
    return COMMITTED.pack(batch, reply.is_new, reply.left, reply.rows, reply.seq)


def _decode_committed(body: columns.Buffer) -> Reply:
    batch, is_new, left, rows, seq = COMMITTED.unpack(body)
    if is_new > 1:
        raise ValueError("what is so or not is 0 or 1")
    batch = -1 if batch == _NONE else batch
    return Committed(batch=batch, is_new=bool(is_new), left=left, rows=rows, seq=seq)


REPLY_ENCODERS: Final[ReplyEncoders] = {Committed: _encode_committed}
REPLY_DECODERS: Final[ReplyDecoders] = {Committed: _decode_committed}
