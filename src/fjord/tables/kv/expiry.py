"""Upkeep of key/value tables, bit by bit: what has expired, and what a dropped table left behind.

An expired value counts as missing from its expiry on, whether or not upkeep has come by.  What is
left of it then is a tombstone, as if it had been deleted right after the write that gave it its
expiry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fjord.columns import Strings, repeat
from fjord.commands.layout import Command, internal
from fjord.layouts import PREFIX_BYTES, end_of, prefix_of, table_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.kv import layout
from fjord.tables.kv.layout import EXPIRY_BYTES, Entry, Mark
from fjord.tables.kv.ops import purge, unschedule
from fjord.tables.state import Decision, State, Tree, decides

_Due = tuple[int, bytes]  # expiry, index key


@internal(frees=True)
class Expire(Command):
    """Turns values whose time is over into tombstones."""

    limit: int  # rows at most


def due_us(state: State) -> int | None:
    """Returns when the next value expires, None if none does."""
    first = state.scan(Tree.KV_EXPIRY, b"", None, 1)
    return layout.decode_schedule(first[0][0])[0] if first else None


@decides(Expire)
def decide_expire(command: Expire, state: State, now_us: int) -> Decision:
    stop = (now_us + 1).to_bytes(EXPIRY_BYTES, "big")
    items = state.scan(Tree.KV_EXPIRY, b"", stop, command.limit)
    due = [layout.decode_schedule(key) for key, _ in items]
    rows = [layout.ROW.unpack(data)[0] for _, data in items]
    found = _find(state, [key for _, key in due])
    over: dict[int, list[tuple[_Due, Entry]]] = defaultdict(list)
    stale: dict[int, list[_Due]] = defaultdict(list)
    for (expires_at_us, key), row, (entry, mark) in zip(due, rows, found, strict=True):
        table_id = table_of(key)
        if entry and entry.row == row and layout.expiry_of(entry, mark) == expires_at_us:
            over[table_id].append(((expires_at_us, key), entry))
        else:
            # No row stands here with this expiry, so it is not one that could be missed.
            stale[table_id].append((expires_at_us, key))
    ops = [op for table_id, gone in over.items() for op in _expire(table_id, gone, state.lease_us)]
    ops += [op for table_id, gone in stale.items() for op in unschedule(table_id, gone)]
    return catalog.decision(state, ops)


def _expire(table_id: int, gone: Sequence[tuple[_Due, Entry]], lease_us: int) -> list[Op]:
    columns = (
        [entry.timestamp_us + 1 for _, entry in gone],  # a SET that is sent again loses
        repeat(lease_us, len(gone)),
        [expires_at_us for (expires_at_us, _), _ in gone],
        [entry.held for _, entry in gone],
        [layout.row_bytes(entry, key) for (_, key), entry in gone],
        Strings.of([key[PREFIX_BYTES:] for (_, key), _ in gone]),
    )
    return [Op(Opcode.KV_EXPIRE, table_id, len(gone), columns)]


def sweep(state: State, table_id: int, limit: int) -> list[Op]:
    """Returns the ops that purge rows of a dropped table, none if there are none left."""
    prefix = prefix_of(table_id)
    items = state.scan(Tree.KV, prefix, end_of(prefix), limit)
    return _sweep(state, table_id, [key for key, _ in items]) if items else []


def _sweep(state: State, table_id: int, keys: Sequence[bytes]) -> list[Op]:
    found = dict(zip(keys, _find(state, keys), strict=True))
    entries = {key: entry for key, (entry, _) in found.items() if entry}
    due = [(layout.expiry_of(entry, found[key][1]), key) for key, entry in entries.items()]
    return [*unschedule(table_id, due), *purge(table_id, entries)]


def _find(state: State, keys: Sequence[bytes]) -> list[tuple[Entry | None, Mark]]:
    """Returns the entries of index keys, of any tables, each with its mark."""
    entries = [layout.decode(data) if data else None for data in state.get_many(Tree.KV, keys)]
    marks = state.get_many(Tree.KV_MARKS, keys)
    return [
        (entry, layout.decode_mark(mark, entry.row) if entry else layout.NO_MARK)
        for entry, mark in zip(entries, marks, strict=True)
    ]
