"""Key/value tables: SET, GET, DELETE; the largest client timestamp wins (FJ-42).

The index has one entry a key.  A value rests in the journal, and the entry points to it.  A
deleted key keeps an entry without a value, the tombstone, so that an older SET that comes late
does not bring it back.  A write that is older than what is there succeeds and changes nothing.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

from fjord import commands, limits, values
from fjord.columns import Strings
from fjord.commands import Entries, Refusal
from fjord.errors import Code
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog
from fjord.tables.state import (
    Decision,
    Kind,
    Pointer,
    State,
    Table,
    Tree,
    VolatileValue,
    Writes,
)

_TOMBSTONE = 0xFF
# seq, timestamp, expiry, then the pointer (segment, offset, size, crc), then the type.
_ENTRY = struct.Struct("<QQQIIIIB")
_SEQ_AND_TIMESTAMP = struct.Struct("<QQ")


class Entry(NamedTuple):
    """What the index knows of a key."""

    seq: int  # of the row that holds the value
    timestamp_us: int
    expires_at_us: int
    segment: int
    offset: int
    size: int
    crc: int
    type: int  # _TOMBSTONE for a deleted key

    def is_live(self, now_us: int) -> bool:
        return self.type != _TOMBSTONE and not 0 < self.expires_at_us <= now_us

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc)


# -- decide ---------------------------------------------------------------------------------------


def decide_set(command: commands.Set, state: State, now_us: int) -> Decision:
    problem = _keys_problem(command.keys) or _set_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    table, creation = found
    write = _Write(table, creation, command.keys, command.timestamp_us, state)
    if not command.overwrite and write.any_live(now_us):
        return Decision(Refusal(code=Code.EXISTS, text="a key is there and overwrite is off"))
    if not command.persist:
        return _decide_volatile(command, write, state)
    rows = write.winners()
    if not rows:
        return write.decision([])
    picked = _pick(command, rows)
    count = len(rows)
    op = Op(
        Opcode.KV_SET,
        table.id,
        count,
        (
            array("Q", (command.timestamp_us,)) * count,
            array("Q", (command.expires_at_us,)) * count,
            write.previous(rows),
            picked.types,
            picked.keys,
            picked.values,
        ),
    )
    return write.decision([op])


def decide_delete(command: commands.Delete, state: State, now_us: int) -> Decision:
    problem = _keys_problem(command.keys) or _timestamp_problem(command.timestamp_us, now_us)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    table, creation = found
    write = _Write(table, creation, command.keys, command.timestamp_us, state)
    rows = write.winners()
    return write.decision([write.delete_op(rows)] if rows else [])


def decide_get(command: commands.Get, state: State, now_us: int) -> Decision:
    problem = _keys_problem(command.keys) or commands.name_problem(command.table)
    if problem is not None:
        return Decision(problem)
    table = state.tables.get(command.table)
    if table is None:
        return Decision(_no_entries(len(command.keys)))
    refusal = catalog.wrong_kind(table, Kind.KV)
    if refusal is not None:
        return Decision(refusal)
    keys = _index_keys(table, command.keys)
    entries = [
        _Read.of_entry(data, now_us) if data else _Read.missing()
        for data in state.get_many(Tree.KV, keys)
    ]
    if state.volatile:
        for row, key in enumerate(keys):
            volatile = state.volatile.get(key)
            if volatile is not None:
                entries[row] = _Read.of_volatile(volatile, now_us)
    return Decision(_answer(entries, state))


class _Write:
    """A write of some keys at one timestamp, looked up once, and which of its rows win."""

    def __init__(
        self, table: Table, creation: list[Op], keys: Strings, timestamp_us: int, state: State
    ) -> None:
        self.table = table
        self.keys = _index_keys(table, keys)
        self._creation = creation
        self._timestamp_us = timestamp_us
        self._state = state
        self._stored: list[bytes | None] = (
            [None] * len(self.keys) if creation else state.get_many(Tree.KV, self.keys)
        )

    def winners(self) -> Sequence[int]:
        """Returns the rows to write: newer than what is there, the last one of each key."""
        timestamp_us, volatile = self._timestamp_us, self._state.volatile
        rows: Sequence[int] = range(len(self.keys))
        if any(self._stored):
            rows = [
                row
                for row, data in enumerate(self._stored)
                if data is None or _SEQ_AND_TIMESTAMP.unpack_from(data)[1] <= timestamp_us
            ]
        if volatile:
            rows = [
                row
                for row in rows
                if self.keys[row] not in volatile
                or volatile[self.keys[row]].timestamp_us <= timestamp_us
            ]
        if len(rows) > 1:
            last = {self.keys[row]: row for row in rows}
            if len(last) < len(rows):
                rows = sorted(last.values())
        return rows

    def any_live(self, now_us: int) -> bool:
        volatile = self._state.volatile
        return any(data and decode_entry(data).is_live(now_us) for data in self._stored) or any(
            key in volatile and _Read.of_volatile(volatile[key], now_us).type != Entries.MISSING
            for key in self.keys
        )

    def previous(self, rows: Sequence[int]) -> Sequence[int]:
        if not any(self._stored):
            return array("Q", (0,)) * len(rows)
        stored = [self._stored[row] for row in rows]
        return array("Q", [_SEQ_AND_TIMESTAMP.unpack_from(data)[0] if data else 0 for data in stored])

    def delete_op(self, rows: Sequence[int]) -> Op:
        """Returns the op that leaves a tombstone in each of these rows."""
        prefix = len(self.table.prefix)
        keys = Strings.of([self.keys[row][prefix:] for row in rows])
        timestamps = array("Q", (self._timestamp_us,)) * len(rows)
        return Op(
            Opcode.KV_DELETE, self.table.id, len(rows), (timestamps, self.previous(rows), keys)
        )

    def has_value(self, row: int) -> bool:
        data = self._stored[row]
        return data is not None and data[-1] != _TOMBSTONE

    def decision(self, ops: Sequence[Op]) -> Decision:
        """Returns the decision to run `ops`; values in memory that they replace are dropped."""
        all_ops = [*self._creation, *ops]
        seq = self._state.next_seq - 1 + sum(op.rows for op in all_ops)
        reply = commands.Done(master=self._state.master, seq=seq)
        if not self._state.volatile:
            return Decision(reply, all_ops)
        dropped = [self.keys[row] for row in self.winners()]
        gone = {key: None for key in dropped if key in self._state.volatile}
        return Decision(reply, all_ops, gone)


def _decide_volatile(command: commands.Set, write: _Write, state: State) -> Decision:
    """persist=0: memory only; a stored value under the key is first deleted durably."""
    if state.volatile_bytes + len(command.values.data) > limits.VOLATILE_BYTES_MAX:
        text = f"values with persist=0 may take {limits.VOLATILE_BYTES_MAX} bytes in all"
        return Decision(Refusal(code=Code.QUOTA, text=text))
    rows = write.winners()
    stored = [row for row in rows if write.has_value(row)]
    kept = {
        write.keys[row]: VolatileValue(
            command.types[row], command.values[row], command.timestamp_us, command.expires_at_us
        )
        for row in rows
    }
    decided = write.decision([write.delete_op(stored)] if stored else [])
    return Decision(decided.reply, decided.ops, kept)


def _pick(command: commands.Set, rows: Sequence[int]) -> commands.Set:
    if len(rows) == len(command.keys):
        return command
    return commands.Set(
        table=command.table,
        keys=Strings.of([command.keys[row] for row in rows]),
        types=bytes(command.types[row] for row in rows),
        values=Strings.of([command.values[row] for row in rows]),
        timestamp_us=command.timestamp_us,
    )


class _Read(NamedTuple):
    """One row of an answer; the value is either here or behind the pointer."""

    type: int
    timestamp_us: int
    expires_at_us: int
    value: bytes
    pointer: Pointer | None

    @classmethod
    def missing(cls) -> _Read:
        return cls(Entries.MISSING, 0, 0, b"", None)

    @classmethod
    def of_entry(cls, data: bytes, now_us: int) -> _Read:
        entry = decode_entry(data)
        if not entry.is_live(now_us):
            return cls.missing()
        pointer = entry.pointer if entry.size else None
        return cls(entry.type, entry.timestamp_us, entry.expires_at_us, b"", pointer)

    @classmethod
    def of_volatile(cls, found: VolatileValue, now_us: int) -> _Read:
        if 0 < found.expires_at_us <= now_us:
            return cls.missing()
        return cls(found.type, found.timestamp_us, found.expires_at_us, found.value, None)


def _answer(reads: list[_Read], state: State) -> Entries | Refusal:
    pointers = [read.pointer for read in reads if read.pointer is not None]
    if sum(pointer.size for pointer in pointers) > limits.ANSWER_BYTES_MAX:
        text = f"the values have more than {limits.ANSWER_BYTES_MAX} bytes; ask for fewer keys"
        return Refusal(code=Code.TOO_LARGE, text=text)
    stored = iter(state.payloads(pointers))
    return Entries(
        types=bytes(read.type for read in reads),
        values=Strings.of([next(stored) if read.pointer else read.value for read in reads]),
        timestamps_us=array("Q", [read.timestamp_us for read in reads]),
        expires_at_us=array("Q", [read.expires_at_us for read in reads]),
    )


def _no_entries(count: int) -> Entries:
    zeros = array("Q", (0,)) * count
    return Entries(
        types=bytes([Entries.MISSING]) * count,
        values=Strings.of([b""] * count),
        timestamps_us=zeros,
        expires_at_us=zeros,
    )


def _index_keys(table: Table, keys: Strings) -> list[bytes]:
    prefix = table.prefix
    return [prefix + key for key in keys.rows()]


# -- what is wrong with a command -----------------------------------------------------------------


def _keys_problem(keys: Strings) -> Refusal | None:
    if not len(keys) or len(keys) > limits.BATCH_ROWS_MAX:
        text = f"a batch has 1 to {limits.BATCH_ROWS_MAX} rows"
        return Refusal(code=Code.BAD_BATCH, text=text)
    if len(keys.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    lengths = keys.lengths()
    if not min(lengths):
        return Refusal(code=Code.EMPTY_KEY, text="a key has at least one byte")
    if max(lengths) > limits.KV_KEY_BYTES_MAX:
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        return Refusal(code=Code.KEY_TOO_LONG, text=text)
    return None


def _set_problem(command: commands.Set, now_us: int) -> Refusal | None:
    if len(command.values) != len(command.keys) or len(command.types) != len(command.keys):
        return Refusal(code=Code.BAD_BATCH, text="keys, types and values differ in number")
    if len(command.keys.data) + len(command.values.data) > limits.BATCH_BYTES_MAX:
        text = f"the keys and values of a batch have at most {limits.BATCH_BYTES_MAX} bytes"
        return Refusal(code=Code.TOO_LARGE, text=text)
    if max(command.values.lengths()) > limits.VALUE_BYTES_MAX:
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
        return Refusal(code=Code.VALUE_TOO_LARGE, text=text)
    expires_us = command.expires_at_us
    if expires_us and not now_us < expires_us <= now_us + limits.EXPIRY_AHEAD_US_MAX:
        return Refusal(code=Code.BAD_TIMEOUT, text="an expiry is from now to 30 days ahead")
    return _timestamp_problem(command.timestamp_us, now_us) or _values_problem(command)


def _values_problem(command: commands.Set) -> Refusal | None:
    if not command.types.strip(bytes([values.Type.BUFFER])):
        return None
    for type_, value in zip(command.types, command.values.rows(), strict=True):
        problem = values.problem(type_, value)
        if problem is not None:
            return Refusal(code=problem[0], text=problem[1])
    return None


def _timestamp_problem(timestamp_us: int, now_us: int) -> Refusal | None:
    if 0 < timestamp_us <= now_us + limits.TIMESTAMP_AHEAD_US_MAX:
        return None
    text = (
        "a timestamp is in microseconds since 1970, not 0, and at most 60 s ahead; "
        f"the server's time is {now_us}"
    )
    return Refusal(code=Code.BAD_TIMESTAMP, text=text)


# -- apply ----------------------------------------------------------------------------------------


def apply_set(writes: Writes, op: Op, place: Place) -> None:
    timestamps, expiries, _, types, keys, stored = op.columns
    assert isinstance(keys, Strings)
    assert isinstance(stored, Strings)
    pack, crc, segment, payload = _ENTRY.pack, google_crc32c.value, place.segment, place.payload
    prefix = op.table.to_bytes(4, "big")
    rows = zip(
        range(place.seq, place.seq + op.rows),
        timestamps,
        expiries,
        types,
        keys.rows(),
        stored.offsets,
        stored.rows(),
        strict=False,  # one offset more than rows
    )
    writes.put_many(
        Tree.KV,
        [
            (prefix + key, pack(seq, ts, expiry, segment, payload + at, len(value), crc(value), type_))
            for seq, ts, expiry, type_, key, at, value in rows
        ],
    )


def apply_delete(writes: Writes, op: Op, place: Place) -> None:
    timestamps, _, keys = op.columns
    assert isinstance(keys, Strings)
    prefix = op.table.to_bytes(4, "big")
    rows = zip(range(place.seq, place.seq + op.rows), timestamps, keys.rows(), strict=True)
    writes.put_many(
        Tree.KV,
        [
            (prefix + key, _ENTRY.pack(seq, timestamp, 0, 0, 0, 0, 0, _TOMBSTONE))
            for seq, timestamp, key in rows
        ],
    )


def decode_entry(data: bytes) -> Entry:
    return Entry(*_ENTRY.unpack(data))
