"""One value under several keys (FJ-31): linking further keys to the key of a value.

A key that has a value of its own, or belongs to another one, is refused.  What the keys lead to
is found by `lookup`; a list that replaces another one needs no unlinking, since aliases of
before the new row no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fjord import commands, ops
from fjord.columns import Strings, repeat
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.layouts import PREFIX_BYTES, end_of, prefix_of
from fjord.ops import Op, Opcode
from fjord.tables.kv import layout
from fjord.tables.kv.layout import Entry
from fjord.tables.kv.lookup import Lookup, lock_problem
from fjord.tables.kv.ops import unschedule
from fjord.tables.state import State, Table, Tree, VolatileValue

_Volatile = dict[bytes, VolatileValue | None]
_PIECE: Final = 10_000  # entries are looked at in pieces


def link(
    command: commands.Set, table: Table, target: bytes, state: State, now_us: int
) -> tuple[list[Op], _Volatile] | Refusal:
    """Returns the ops that give the one value of a command, at an index key, its further keys.

    What has expired under such a key goes, be it in the index or in memory.
    """
    if not command.also:
        return [], {}
    stamp, prefix = command.timestamps_us[0], table.prefix
    wanted = [key for key in dict.fromkeys(command.also.rows()) if prefix + key != target]
    also = Lookup.of(state, prefix, wanted, now_us)
    problem = lock_problem(state, also)
    if problem is not None:
        return problem
    rows = []
    for row in range(len(wanted)):
        if also.is_live(row) and also.keys[row] != target:
            return Refusal(code=Code.EXISTS, text="a further key belongs to another value")
        if row in also.aliases or also.timestamp_us(row) <= stamp:
            rows.append(row)
    if not rows:
        return [], {}
    taken_over = list(map(also.own, rows))
    due = [(also.stored_expiry(row), also.keys[row]) for row in rows if row not in also.aliases]
    columns = (
        repeat(stamp, len(rows)),
        [entry.held if entry else 0 for entry in taken_over],
        [
            layout.row_bytes(entry, also.given[row]) if entry else 0
            for row, entry in zip(rows, taken_over, strict=True)
        ],
        Strings.of([wanted[row] for row in rows]),
        Strings.of([target[PREFIX_BYTES:]] * len(rows)),
    )
    linked = Op(Opcode.KV_LINK, table.id, len(rows), columns)
    gone: _Volatile = {also.given[row]: None for row in rows if also.given[row] in also.volatile}
    return [*unschedule(table.id, due), linked], gone


def linked(state: State, table_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the further keys of a table, each behind the key that it leads to."""
    start = prefix = prefix_of(table_id)
    stop = end_of(prefix)
    while items := state.scan(Tree.KV, start, stop, _PIECE):
        for key, data in items:
            if data[layout.TYPE_AT] == ops.ALIAS:
                yield layout.decode_target(data), key[PREFIX_BYTES:]
        start = items[-1][0] + b"\0"


def linked_of(op: Op) -> Iterable[tuple[bytes, bytes]]:
    """Returns the same of KV_LINK."""
    keys, targets = op.column("key"), op.column("target")
    assert isinstance(keys, Strings)
    assert isinstance(targets, Strings)
    return zip(targets.rows(), keys.rows(), strict=True)


def further_keys(state: State, table: Table, key: bytes, now_us: int) -> dict[bytes, Entry]:
    """Returns the index keys that lead to the value of a key, and what stands there."""
    known = dict.fromkeys(state.linked_keys(table.id).get(key, ()))
    found, target = Lookup.of(state, table.prefix, list(known), now_us), table.prefix + key
    return {
        found.given[at]: alias for at, alias in found.aliases.items() if found.keys[at] == target
    }
