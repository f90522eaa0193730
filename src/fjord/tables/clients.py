"""Clients that retry: a command with a number is applied once, and answered as often as asked.

    CLIENTS  client | number modulo ANSWERS_KEPT, u16 BE  -> number u64 LE, answer
    CLIENTS  client | ff ff                               -> date u64 LE
    META     "heard" | hour u64 BE | client               -> nothing

The answers of a client are a ring, so their number is bounded whatever numbers it chooses, and one
lookup is enough.  The slot of a number holds its answer; or a larger number, in which case the
answer is no longer known; or neither, in which case the command was never applied.

A client was last seen at the date of its last answer.  The notes by hour serve to find clients that
have been silent for long; only the last note of a client counts.
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from fjord import limits, ops
from fjord.columns import Strings, repeat
from fjord.commands import Batch, InBatch, Numbered, Refusal, Reply, codec
from fjord.commands.codec import data_bytes
from fjord.commands.layout import Command, internal
from fjord.errors import Code
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.state import Decision, Tree, View, Writes, decides

CLIENT_BYTES: Final = 16
_HEARD: Final = b"heard"
_DATE: Final = b"\xff\xff"
_HOUR_US: Final = 3600 * 1_000_000
_SLOT = struct.Struct(">H")
_U64 = struct.Struct("<Q")
_HOUR = struct.Struct(">Q")
_number_and_client = operator.attrgetter("number", "client")


@internal(frees=True)
class ForgetClients(Command):
    """Drops the answers of clients that have been silent for long."""

    limit: int  # notes at most


# -- batches --------------------------------------------------------------------------------------


def batch_problem(batch: Batch, *, is_numbered: bool) -> Refusal | None:
    """Returns the refusal for an invalid batch, or None."""
    count = len(batch.commands)
    if not 0 < count <= limits.BATCH_COMMANDS_MAX:
        return _bad_batch(f"a batch has 1 to {limits.BATCH_COMMANDS_MAX} commands")
    rows = {type(one).row for one in batch.commands}
    alone = sorted(row.record.__name__ for row in rows if row.in_batch is InBatch.NEVER)
    if alone:
        return _bad_batch(f"not allowed in a batch: {', '.join(alone)}")
    plain = sorted(row.record.__name__ for row in rows if row.in_batch is InBatch.PLAIN)
    if is_numbered and plain:
        text = f"a numbered batch may only contain writes, not {', '.join(plain)}"
        return _bad_batch(text)
    if sum(map(data_bytes, batch.commands)) > limits.BATCH_BYTES_MAX:
        text = f"the commands of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    return None


# -- numbers --------------------------------------------------------------------------------------


def number_problem(numbered: Numbered) -> Refusal | None:
    """Returns the refusal for an invalid command number, or None."""
    if len(numbered.client) != CLIENT_BYTES or not 0 < numbered.number < 2**64:
        return _bad_batch("numbered commands need a client that has sent HELLO")
    command = numbered.command
    if isinstance(command, Batch):
        return batch_problem(command, is_numbered=True)
    if type(command).row.in_batch is not InBatch.NUMBERED:
        return _bad_batch(f"{type(command).__name__} cannot be numbered")
    return None


def find_answers(state: View, asked: Sequence[Numbered]) -> list[Reply | None]:
    """Returns the answers to commands that were applied before, else None."""
    stored = state.get_many(Tree.CLIENTS, list(map(slot_of, asked)))
    if not any(stored):
        return [None] * len(asked)
    return [
        None if data is None else _known(data, one.number)
        for data, one in zip(stored, asked, strict=True)
    ]


def _known(data: bytes, wanted: int) -> Reply | None:
    (number,) = _U64.unpack_from(data)
    if number == wanted:
        return _decode_answer(data[_U64.size :])
    if number > wanted:
        text = f"number {wanted} is too old: whether its command was applied is no longer known"
        return Refusal(code=Code.STALE_NUMBER, text=text)
    return None


def answered_op(asked: Sequence[Numbered], replies: Sequence[Reply], now_us: int) -> Op | Refusal:
    """Returns the op that stores the answers to numbered commands."""
    found = list(map(_encode_answer, replies))
    if max(map(len, found)) > limits.ANSWER_KEPT_BYTES_MAX:
        text = (
            f"the answer to a numbered command has at most {limits.ANSWER_KEPT_BYTES_MAX} "
            "bytes; ask for less at a time"
        )
        return Refusal(code=Code.TOO_LARGE, text=text)
    numbers, names = zip(*map(_number_and_client, asked), strict=True)
    columns = (repeat(now_us, len(asked)), numbers, Strings.of(names), Strings.of(found))
    return Op(Opcode.ANSWERED, catalog.NO_TABLE, len(asked), columns)


# An answer is a reply as it is sent, behind one byte: its version, and whether it is compressed.
_PLAIN, _COMPRESSED = b"\2", b"\3"


def _encode_answer(reply: Reply) -> bytes:
    """Encodes a reply; one that is too large is many times "it is done"."""
    answer = b"".join((_PLAIN, *type(reply).row.encode(reply)))
    if len(answer) <= limits.ANSWER_KEPT_BYTES_MAX:
        return answer
    return _COMPRESSED + zlib.compress(answer[1:], 1)


def _decode_answer(data: bytes) -> Reply:
    version, body = data[:1], data[1:]
    if version == _PLAIN:
        return codec.decode_reply(body)
    if version == _COMPRESSED:
        return codec.decode_reply(zlib.decompress(body))
    text = "already applied, but the answer was stored by another version of Fjord; check the data"
    return Refusal(code=Code.STALE_NUMBER, text=text)


def _bad_batch(text: str) -> Refusal:
    return Refusal(code=Code.BAD_BATCH, text=text)


# -- forgetting -----------------------------------------------------------------------------------


@decides(ForgetClients)
def decide_forget_clients(command: ForgetClients, state: View, now_us: int) -> Decision:
    stop = _HEARD + _HOUR.pack(max(0, now_us - limits.CLIENT_KEPT_US) // _HOUR_US)
    notes = [key for key, _ in state.scan(Tree.META, _HEARD, stop, command.limit)]
    hours = [_HOUR.unpack_from(note, len(_HEARD))[0] for note in notes]
    found = [note[-CLIENT_BYTES:] for note in notes]
    dates = state.get_many(Tree.CLIENTS, [client + _DATE for client in found])
    gone = [
        date is not None and _U64.unpack(date)[0] // _HOUR_US == hour
        for date, hour in zip(dates, hours, strict=True)
    ]
    dates = [hour * _HOUR_US for hour in hours]
    rows = zip(dates, gone, found, strict=True)
    return catalog.decision(state, ops.of_rows(Opcode.FORGET_CLIENT, catalog.NO_TABLE, rows))


# -- apply ----------------------------------------------------------------------------------------


def apply_answered(writes: Writes, op: Op, place: Place) -> None:
    for date_us, number, client, answer in zip(*op.columns, strict=True):
        items = [
            (_slot_key(client, number), _U64.pack(number) + answer),
            (client + _DATE, _U64.pack(date_us)),
        ]
        writes.put_many(Tree.CLIENTS, items)
        writes.put_many(Tree.META, [(_note(date_us, client), b"")])


def apply_forget_client(writes: Writes, op: Op, place: Place) -> None:
    for date_us, is_gone, client in zip(*op.columns, strict=True):
        writes.delete_many(Tree.META, [_note(date_us, client)])
        if is_gone:
            slots = map(_SLOT.pack, range(limits.ANSWERS_KEPT))
            writes.delete_many(Tree.CLIENTS, [client + _DATE, *(client + slot for slot in slots)])


def keep_answered(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Rewrites an answer that may still be asked for, with its current date.

    The note of the op's own date is removed, unless it is for the same hour.
    """
    kept: list[tuple[int, int, bytes, bytes]] = []
    gone: dict[tuple[int, bytes], int] = {}  # the date of each removed note
    for date_us, number, client, answer in zip(*op.columns, strict=True):
        slot, last = state.get_many(Tree.CLIENTS, [_slot_key(client, number), client + _DATE])
        (note,) = state.get_many(Tree.META, [_note(date_us, client)])
        last_us = _U64.unpack(last)[0] if last else 0
        if slot and last and _U64.unpack_from(slot)[0] == number:
            kept.append((last_us, number, client, answer))
        if note is not None and date_us // _HOUR_US != last_us // _HOUR_US:
            gone[date_us // _HOUR_US, client] = date_us
    notes = [(date_us, 0, client) for (_, client), date_us in gone.items()]
    return [
        *ops.of_rows(Opcode.ANSWERED, catalog.NO_TABLE, kept),
        *ops.of_rows(Opcode.FORGET_CLIENT, catalog.NO_TABLE, notes),
    ]


def slot_of(numbered: Numbered) -> bytes:
    """Returns the key under which the answer to a command is stored."""
    return numbered.client + _SLOT.pack(numbered.number % limits.ANSWERS_KEPT)


def _slot_key(client: bytes, number: int) -> bytes:
    return client + _SLOT.pack(number % limits.ANSWERS_KEPT)


def _note(date_us: int, client: bytes) -> bytes:
    return _HEARD + _HOUR.pack(date_us // _HOUR_US) + client
