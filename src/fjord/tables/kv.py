"""Key/value tables: SET, GET, DELETE; the largest client timestamp wins (FJ-42).

The index has one entry a key.  A value rests in the journal, and the entry points to it.  A
deleted key keeps an entry without a value, the tombstone, so that an older SET that comes late
does not bring it back.  A write that is older than what is there succeeds and changes nothing.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import google_crc32c

from fjord import commands, limits
from fjord.columns import Strings, repeat
from fjord.commands import Entries, Refusal
from fjord.errors import Code
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, kv_rules
from fjord.tables.state import (
    Decision,
    Kind,
    Pointer,
    State,
    Table,
    Tree,
    VolatileValue,
    Writes,
    volatile_bytes,
)

_TOMBSTONE = 0xFF
# seq, timestamp, expiry, then the pointer (segment, offset, size, crc), then the type.
_ENTRY = struct.Struct("<QQQIIIIB")
# Small writes of many clients are decided together; large ones gain nothing by being copied.
_MERGED_ROWS_MAX = 8
_MERGED_BYTES_MAX = 4 * limits.KIB
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
    problem = kv_rules.set_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    write = _Write(found, command.keys, command.timestamps_us, state)
    if not command.overwrite and write.any_live(now_us):
        return Decision(Refusal(code=Code.EXISTS, text="a key is there and overwrite is off"))
    if not command.persist:
        return _decide_volatile(command, write, state, now_us)
    if not write.winners:
        return write.decision(())
    if len(write.winners) < len(write.keys):
        command = _pick(command, write.winners)
    columns = (
        command.timestamps_us,
        repeat(command.expires_at_us, len(write.winners)),
        write.previous(write.winners),
        command.types,
        command.keys,
        command.values,
    )
    return write.decision((Op(Opcode.KV_SET, write.table.id, len(write.winners), columns),))


def decide_delete(command: commands.Delete, state: State, now_us: int) -> Decision:
    problem = kv_rules.delete_problem(command, now_us)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    timestamps_us = repeat(command.timestamp_us, len(command.keys))
    write = _Write(found, command.keys, timestamps_us, state)
    return write.decision((write.delete_op(write.winners),) if write.winners else ())


def decide_get(command: commands.Get, state: State, now_us: int) -> Decision:
    problem = kv_rules.keys_problem(command.keys) or commands.name_problem(command.table)
    if problem is not None:
        return Decision(problem)
    table = state.tables.get(command.table)
    if table is None:
        return Decision(_no_entries(len(command.keys)))
    refusal = catalog.wrong_kind(table, Kind.KV)
    if refusal is not None:
        return Decision(refusal)
    prefix = table.prefix
    keys = [prefix + key for key in command.keys.rows()]
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


def merge_key(command: commands.Set) -> Hashable:
    """Returns what neighbours must share to be decided as one; None for what stands alone."""
    if not command.overwrite or not command.persist:
        return None
    if not 0 < len(command.keys) <= _MERGED_ROWS_MAX:
        return None
    if len(command.values.data) > _MERGED_BYTES_MAX:
        return None
    return commands.Set, command.table, command.expires_at_us


def merge(sets: Sequence[commands.Set]) -> commands.Set | None:
    """Returns one command for neighbours of one merge key; None if they write a key twice."""
    keys = [key for command in sets for key in command.keys.rows()]
    if len(set(keys)) < len(keys):
        return None
    return commands.Set(
        table=sets[0].table,
        keys=Strings.of(keys),
        types=b"".join([command.types for command in sets]),
        values=Strings.of([value for command in sets for value in command.values.rows()]),
        timestamps_us=[stamp for command in sets for stamp in command.timestamps_us],
        expires_at_us=sets[0].expires_at_us,
    )


class _Write:
    """A write of some keys, looked up once, and which of its rows win."""

    def __init__(
        self,
        found: tuple[Table, Sequence[Op]],
        keys: Strings,
        timestamps_us: Sequence[int],
        state: State,
    ) -> None:
        self.table, self._creation = found
        prefix = self.table.prefix
        self.keys = [prefix + key for key in keys.rows()]
        self._timestamps_us = timestamps_us
        self._state = state
        # A table that is only being created holds nothing under its new id.
        self._stored = state.get_many(Tree.KV, self.keys)
        self._is_all_new = not any(self._stored)
        self.winners = self._find_winners()

    def _find_winners(self) -> Sequence[int]:
        """Returns the rows to write: newer than what is there, the last one of each key."""
        keys, timestamps_us, volatile = self.keys, self._timestamps_us, self._state.volatile
        rows: Sequence[int] = range(len(keys))
        if not self._is_all_new:
            rows = [
                row
                for row, data in enumerate(self._stored)
                if data is None or _SEQ_AND_TIMESTAMP.unpack_from(data)[1] <= timestamps_us[row]
            ]
        if volatile:
            rows = [
                row
                for row in rows
                if keys[row] not in volatile
                or volatile[keys[row]].timestamp_us <= timestamps_us[row]
            ]
        if len(keys) > 1 and len(set(keys)) < len(keys):
            # Ascending by timestamp and, since sorting is stable, by row: the last one wins.
            last = {keys[row]: row for row in sorted(rows, key=timestamps_us.__getitem__)}
            rows = sorted(last.values())
        return rows

    def any_live(self, now_us: int) -> bool:
        volatile = self._state.volatile
        return any(data and decode_entry(data).is_live(now_us) for data in self._stored) or any(
            key in volatile and _Read.of_volatile(volatile[key], now_us).type != Entries.MISSING
            for key in self.keys
        )

    def previous(self, rows: Sequence[int]) -> Sequence[int]:
        if self._is_all_new:
            return repeat(0, len(rows))
        stored = [self._stored[row] for row in rows]
        return array(
            "Q", [_SEQ_AND_TIMESTAMP.unpack_from(data)[0] if data else 0 for data in stored]
        )

    def delete_op(self, rows: Sequence[int]) -> Op:
        """Returns the op that leaves a tombstone in each of these rows."""
        prefix = len(self.table.prefix)
        keys = Strings.of([self.keys[row][prefix:] for row in rows])
        timestamps = [self._timestamps_us[row] for row in rows]
        return Op(
            Opcode.KV_DELETE, self.table.id, len(rows), (timestamps, self.previous(rows), keys)
        )

    def has_value(self, row: int) -> bool:
        data = self._stored[row]
        return data is not None and data[-1] != _TOMBSTONE

    def decision(self, ops: Sequence[Op]) -> Decision:
        """Returns the decision to run `ops`; values in memory that they replace are dropped."""
        all_ops = [*self._creation, *ops]
        seq = self._state.next_seq - 1
        for op in all_ops:
            seq += op.rows
        reply = commands.Done(master=self._state.master, seq=seq)
        if not self._state.volatile:
            return Decision(reply, all_ops)
        dropped = [self.keys[row] for row in self.winners]
        gone = {key: None for key in dropped if key in self._state.volatile}
        return Decision(reply, all_ops, gone)


def _decide_volatile(command: commands.Set, write: _Write, state: State, now_us: int) -> Decision:
    """persist=0: memory only; a stored value under the key is first deleted durably."""
    stored = [row for row in write.winners if write.has_value(row)]
    kept: dict[bytes, VolatileValue | None] = {
        write.keys[row]: VolatileValue(
            command.types[row],
            command.values[row],
            command.timestamps_us[row],
            command.expires_at_us,
        )
        for row in write.winners
    }
    changes = _within_quota(kept, state, now_us)
    if changes is None:
        text = f"values with persist=0 may take {limits.VOLATILE_BYTES_MAX} bytes in all"
        return Decision(Refusal(code=Code.QUOTA, text=text))
    decided = write.decision((write.delete_op(stored),) if stored else ())
    return Decision(decided.reply, decided.ops, changes)


def _within_quota(
    kept: dict[bytes, VolatileValue | None], state: State, now_us: int
) -> Mapping[bytes, VolatileValue | None] | None:
    """Returns the changes that keep the quota, without expired values if need be; else None."""
    added = sum(volatile_bytes(key, value) for key, value in kept.items() if value)
    if state.volatile_bytes + added <= limits.VOLATILE_BYTES_MAX:
        return kept
    gone: dict[bytes, VolatileValue | None] = {
        key: None for key, value in state.volatile.items() if 0 < value.expires_at_us <= now_us
    }
    replaced = [key for key in gone.keys() | kept.keys() if key in state.volatile]
    freed = sum(volatile_bytes(key, state.volatile[key]) for key in replaced)
    if state.volatile_bytes - freed + added > limits.VOLATILE_BYTES_MAX:
        return None
    return gone | kept


def _pick(command: commands.Set, rows: Sequence[int]) -> commands.Set:
    """Returns the command with these of its rows only."""
    return replace(
        command,
        keys=Strings.of([command.keys[row] for row in rows]),
        types=bytes([command.types[row] for row in rows]),
        values=Strings.of([command.values[row] for row in rows]),
        timestamps_us=[command.timestamps_us[row] for row in rows],
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
    in_memory = sum([len(read.value) for read in reads])
    if in_memory + sum([pointer.size for pointer in pointers]) > limits.ANSWER_BYTES_MAX:
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
    zeros = repeat(0, count)
    return Entries(
        types=bytes([Entries.MISSING]) * count,
        values=Strings.of([b""] * count),
        timestamps_us=zeros,
        expires_at_us=zeros,
    )


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
            (
                prefix + key,
                pack(seq, ts, expiry, segment, payload + at, len(value), crc(value), type_),
            )
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
