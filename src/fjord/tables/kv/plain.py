"""Plain writes, column by column: values that never expire, of which nothing special is known.

Most writes are plain, and no object is made for a row of them.  What is not plain, or not only,
is left to `write`, which comes to the same row by row.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from fjord import commands, ops
from fjord.columns import repeat
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables.kv import layout
from fjord.tables.state import State, Table


def is_plain(command: commands.Set, keys: list[bytes], state: State) -> bool:
    """Says whether nothing but what is stored can matter to this command."""
    return (
        command.persist
        and command.also is None
        and (len(keys) == 1 or len(set(keys)) == len(keys))
        and (not state.locks or state.locks.keys().isdisjoint(keys))
        and (not state.volatile or state.volatile.keys().isdisjoint(keys))
    )


def insert(command: commands.Set, table: Table) -> Op:
    """Returns the op for keys that have no entry at all."""
    rows, stamps = len(command.types), command.timestamps_us
    payload = (command.types, command.keys, command.values)
    if not command.expires_at_us:
        return Op(Opcode.KV_INSERT, table.id, rows, (stamps, *payload))
    none, expiries, ttls = (
        repeat(number, rows) for number in (0, command.expires_at_us, command.ttl_us)
    )
    columns = (stamps, expiries, ttls, stamps, none, none, none, *payload)
    return Op(Opcode.KV_SET, table.id, rows, columns)


def replace(
    command: commands.Set, table: Table, keys: Sequence[bytes], stored: Sequence[bytes | None]
) -> Op | None:
    """Returns the op that replaces values which never expire; None if it is not that simple."""
    if not command.overwrite or command.expires_at_us:
        return None
    stamps = command.timestamps_us
    found = _replaced_one(stored[0]) if len(stored) == 1 else _replaced_many(stored, stamps)
    if found is None or not all(map(operator.le, found[0], stamps)):
        return None
    _, sizes, held, created, links = found
    none, row_bytes = repeat(0, len(keys)), ops.ROW_BYTES - PREFIX_BYTES
    columns = (
        stamps,
        none,
        none,
        created,
        links,
        held,
        [
            row_bytes + len(key) + size if seq else 0
            for key, size, seq in zip(keys, sizes, held, strict=True)
        ],
        command.types,
        command.keys,
        command.values,
    )
    return Op(Opcode.KV_SET, table.id, len(keys), columns)


# Of what never expires, column by column: timestamp, size, held, created, links.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


def _replaced_one(data: bytes | None) -> _Replaced | None:
    """Takes the entry of a value apart; None for anything else."""
    entry = layout.decode(data) if data else _NOTHING
    if entry.type > layout.VALUE_TYPE_MAX or entry.expires_at_us:
        return None
    return (entry.timestamp_us,), (entry.size,), (entry.held,), (entry.created_us,), (entry.links,)


def _replaced_many(
    stored: Sequence[bytes | None], timestamps_us: Sequence[int]
) -> _Replaced | None:
    """Takes entries apart: values, tombstones and none at all; None if there is anything else."""
    shapes = {len(data) if data else 0 for data in stored}
    if shapes == {layout.BASE.size}:
        rows = zip(*layout.BASE_REPLACED.iter_unpack(_joined(stored)), strict=True)
        held, stamps, sizes, types = rows
        if max(types) <= layout.VALUE_TYPE_MAX:
            return stamps, sizes, held, stamps, held
    elif shapes == {layout.FULL.size}:
        rows = zip(*layout.FULL_REPLACED.iter_unpack(_joined(stored)), strict=True)
        stamps, sizes, types, held, created, expiries, links = rows
        if max(types) <= layout.VALUE_TYPE_MAX:
            return (stamps, sizes, held, created, links) if not any(expiries) else None
    return _replaced_mixed(stored, timestamps_us)


def _replaced_mixed(
    stored: Sequence[bytes | None], timestamps_us: Sequence[int]
) -> _Replaced | None:
    entries = [layout.decode(data) if data else _NOTHING for data in stored]
    _, stamps, _, _, sizes, _, types, held, created, expiries, _, links = zip(*entries, strict=True)
    if any(expiries) or ops.ALIAS in types:
        return None
    # What is not there, or not any more, is created now, and has no links.
    is_value = [type_ <= layout.VALUE_TYPE_MAX for type_ in types]
    born = [
        date if known else stamp
        for known, date, stamp in zip(is_value, created, timestamps_us, strict=True)
    ]
    return stamps, sizes, held, born, list(map(operator.mul, is_value, links))


def _joined(stored: Sequence[bytes | None]) -> bytes:
    return b"".join([data for data in stored if data])


# Where no entry is, as a tombstone that nobody holds.
_NOTHING: Final = layout.Entry(0, 0, 0, 0, 0, 0, ops.TOMBSTONE, 0, 0, 0, 0, 0)
