"""Clients that retry: a numbered batch is applied once, and answered as often as it is asked.

    CLIENTS  client | number modulo ANSWERS_KEPT, u16 BE  -> number u64 LE, answer
    CLIENTS  client | ff ff                               -> date u64 LE
    META     "heard" | hour u64 BE | client               -> nothing

The answers of a client are a ring.  So they are bounded whatever numbers it chooses, and one look
tells all: the slot of a number holds its answer; or a larger number, and then the answer is no
longer known; or else the batch was never applied.

A client was last heard of at the date of its last answer.  The notes by the hour are how those are
found that were not heard of for long; of the notes of a client only the last one counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Batch, Refusal, Reply
from fjord.errors import Code
from fjord.ops import Op, Opcode, Place
from fjord.tables import answers, catalog
from fjord.tables.state import Decision, State, Tree, Writes

CLIENT_BYTES: Final = 16
_HEARD: Final = b"heard"
_DATE: Final = b"\xff\xff"
_HOUR_US: Final = 3600 * 1_000_000
_SLOT = struct.Struct(">H")
_U64 = struct.Struct("<Q")
_HOUR = struct.Struct(">Q")

# What may not be part of a batch: it is no command of tables, or it would be without an end.
_ALONE: Final = frozenset(
    {
        commands.Batch,
        commands.Scan,
        commands.Stats,
        commands.Hello,
        commands.Listen,
        commands.Unlisten,
        commands.ListenJobs,
        # Who waits for jobs would let all others wait; and it is the only one that corrects what
        # is known of lanes.
        commands.Next,
        # What reads may have to look in blocks, or opens a snapshot that has no end with a batch.
        commands.Read,
        commands.Lag,
        commands.OpenSnapshot,
        commands.AsOf,
        commands.SealNow,
        commands.Span,
        commands.ReplaceBlocks,
        # They are asked for as often as it takes, without a number.
        commands.Stage,
        commands.CommitStages,
        commands.AskWriter,
    }
)
# What a numbered batch may hold: what writes.  A lock is gone with its connection, and so would
# an answer be that says that it is held.
_NUMBERED: Final = frozenset(
    {
        commands.Set,
        commands.Touch,
        commands.Delete,
        commands.Modify,
        commands.Rename,
        commands.Push,
        commands.Finish,
        commands.Extend,
        commands.Fail,
        commands.Cancel,
        commands.Reschedule,
        commands.Bury,
        commands.Revive,
        commands.Discard,
        commands.Append,
        commands.Erase,
        commands.Subscribe,
        commands.Acknowledge,
        commands.Seek,
        commands.Rest,
        commands.Unsubscribe,
        commands.Advance,
        commands.CreateTable,
        commands.DropTable,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetClients:
    """Drops the answers of clients that have not been heard of for long."""

    limit: int  # notes at most


# -- batches --------------------------------------------------------------------------------------


def batch_problem(batch: Batch) -> Refusal | None:
    """Says what is wrong with a batch as such, or None."""
    count = len(batch.commands)
    if not 0 < count <= limits.BATCH_COMMANDS_MAX:
        return _bad_batch(f"a batch has 1 to {limits.BATCH_COMMANDS_MAX} commands")
    kinds = set(map(type, batch.commands))
    if kinds & _ALONE:
        names = ", ".join(sorted(kind.__name__ for kind in kinds & _ALONE))
        return _bad_batch(f"not in a batch: {names}")
    if batch.number:
        if len(batch.client) != CLIENT_BYTES or not 0 < batch.number < 2**64:
            return _bad_batch("a batch is numbered by a client that has said who it is")
        if not kinds <= _NUMBERED:
            names = ", ".join(sorted(kind.__name__ for kind in kinds - _NUMBERED))
            return _bad_batch(f"a numbered batch holds nothing but writes, not {names}")
    size = sum([_SIZES[type(command)](command) for command in batch.commands])
    if size > limits.BATCH_BYTES_MAX:
        text = f"the commands of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    return None


def find_answer(state: State, batch: Batch) -> Reply | None:
    """Returns the answer to a numbered batch that was applied before; None if it was not."""
    if not batch.number:
        return None
    (data,) = state.get_many(Tree.CLIENTS, [_slot_key(batch.client, batch.number)])
    if data is None:
        return None
    (number,) = _U64.unpack_from(data)
    if number == batch.number:
        return answers.decode(data[_U64.size :])
    if number > batch.number:
        text = f"batch {batch.number} is too old to tell whether it was applied"
        return Refusal(code=Code.STALE_NUMBER, text=text)
    return None


def answered_op(batch: Batch, replies: Sequence[Reply], now_us: int) -> Op | Refusal:
    """Returns the op that keeps the answer to a numbered batch."""
    answer = answers.encode(replies)
    if answer is None:
        return _bad_batch("the answer to a command of this batch cannot be kept")
    if len(answer) > limits.ANSWER_KEPT_BYTES_MAX:
        text = f"the answer to a numbered batch has at most {limits.ANSWER_KEPT_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    row = ((now_us,), (batch.number,), Strings.of([batch.client]), Strings.of([answer]))
    return Op(Opcode.ANSWERED, catalog.NO_TABLE, 1, row)


def _bad_batch(text: str) -> Refusal:
    return Refusal(code=Code.BAD_BATCH, text=text)


def _set_bytes(command: commands.Set) -> int:
    also = len(command.also.data) if command.also is not None else 0
    return len(command.keys.data) + len(command.values.data) + also


def _push_bytes(command: commands.Push) -> int:
    return len(command.keys.data) + len(command.domains.data) + len(command.values.data)


_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    commands.Nop: lambda command: 0,
    commands.Set: _set_bytes,
    commands.Get: lambda command: len(command.keys.data),
    commands.Touch: lambda command: len(command.keys.data),
    commands.Delete: lambda command: len(command.keys.data),
    commands.Modify: lambda command: len(command.key) + len(command.operand),
    commands.Rename: lambda command: len(command.key) + len(command.to),
    commands.Lock: lambda command: len(command.keys.data),
    commands.Unlock: lambda command: len(command.keys.data),
    commands.Range: lambda command: len(command.start) + len(command.stop) + len(command.regex),
    commands.Push: _push_bytes,
    commands.Finish: lambda command: 8 * len(command.xids),
    commands.Extend: lambda command: 8 * len(command.xids),
    commands.Fail: lambda command: 8 * len(command.xids) + len(command.reason),
    commands.Cancel: lambda command: len(command.keys.data),
    commands.Reschedule: lambda command: len(command.keys.data),
    commands.Bury: lambda command: len(command.keys.data) + len(command.reason),
    commands.Revive: lambda command: 8 * len(command.rows),
    commands.Discard: lambda command: 8 * len(command.rows),
    commands.Peek: lambda command: len(command.start) + len(command.domain),
    commands.Find: lambda command: len(command.keys.data),
    commands.CountJobs: lambda command: len(command.domain),
    commands.Append: lambda command: len(command.keys.data) + len(command.values.data),
    commands.Erase: lambda command: len(command.keys.data),
    commands.Subscribe: lambda command: len(command.name),
    commands.Acknowledge: lambda command: len(command.name),
    commands.Seek: lambda command: len(command.name),
    commands.Rest: lambda command: len(command.name),
    commands.Unsubscribe: lambda command: len(command.name),
    commands.ListSubscribers: lambda command: len(command.start),
    commands.CloseSnapshot: lambda command: 0,
    commands.ListBlocks: lambda command: 0,
    commands.Advance: lambda command: 0,  # it has no keys and no values
    commands.CreateTable: lambda command: len(command.name) + len(command.settings),
    commands.DropTable: lambda command: len(command.name),
    commands.ListTables: lambda command: len(command.name),
}


# -- forgetting -----------------------------------------------------------------------------------


def decide_forget_clients(command: ForgetClients, state: State, now_us: int) -> Decision:
    stop = _HEARD + _HOUR.pack(max(0, now_us - limits.CLIENT_KEPT_US) // _HOUR_US)
    notes = [key for key, _ in state.scan(Tree.META, _HEARD, stop, command.limit)]
    if not notes:
        return catalog.decision(state, ())
    hours = [_HOUR.unpack_from(note, len(_HEARD))[0] for note in notes]
    found = [note[-CLIENT_BYTES:] for note in notes]
    dates = state.get_many(Tree.CLIENTS, [client + _DATE for client in found])
    gone = [
        date is not None and _U64.unpack(date)[0] // _HOUR_US == hour
        for date, hour in zip(dates, hours, strict=True)
    ]
    columns = ([hour * _HOUR_US for hour in hours], bytes(gone), Strings.of(found))
    return catalog.decision(
        state, [Op(Opcode.FORGET_CLIENT, catalog.NO_TABLE, len(notes), columns)]
    )


# -- apply ----------------------------------------------------------------------------------------


def apply_answered(writes: Writes, op: Op, place: Place) -> None:
    for date_us, number, client, answer in _rows(op):
        items = [
            (_slot_key(client, number), _U64.pack(number) + answer),
            (client + _DATE, _U64.pack(date_us)),
        ]
        writes.put_many(Tree.CLIENTS, items)
        writes.put_many(Tree.META, [(_note(date_us, client), b"")])


def apply_forget_client(writes: Writes, op: Op, place: Place) -> None:
    for date_us, is_gone, client in _rows(op):
        writes.delete_many(Tree.META, [_note(date_us, client)])
        if is_gone:
            slots = map(_SLOT.pack, range(limits.ANSWERS_KEPT))
            writes.delete_many(Tree.CLIENTS, [client + _DATE, *(client + slot for slot in slots)])


def keep_answered(op: Op, place: Place, state: State, now_us: int) -> Sequence[Op]:
    """Says an answer again that may still be asked for, with the date that holds by now.

    The note of the date that the op itself has then goes, unless it is that of the same hour.
    """
    kept = []
    for date_us, number, client, answer in _rows(op):
        slot, last = state.get_many(Tree.CLIENTS, [_slot_key(client, number), client + _DATE])
        (note,) = state.get_many(Tree.META, [_note(date_us, client)])
        last_us = _U64.unpack(last)[0] if last else 0
        if slot and last and _U64.unpack_from(slot)[0] == number:
            row = ((last_us,), (number,), Strings.of([client]), Strings.of([answer]))
            kept.append(Op(Opcode.ANSWERED, catalog.NO_TABLE, 1, row))
        if note is not None and date_us // _HOUR_US != last_us // _HOUR_US:
            gone = ((date_us,), b"\0", Strings.of([client]))
            kept.append(Op(Opcode.FORGET_CLIENT, catalog.NO_TABLE, 1, gone))
    return kept


def _rows(op: Op) -> list[Any]:
    """Returns the rows; which columns are numbers and which are strings, the opcode says."""
    return list(zip(*op.columns, strict=True))


def _slot_key(client: bytes, number: int) -> bytes:
    return client + _SLOT.pack(number % limits.ANSWERS_KEPT)


def _note(date_us: int, client: bytes) -> bytes:
    return _HEARD + _HOUR.pack(date_us // _HOUR_US) + client
