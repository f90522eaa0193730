"""Ops that several commands need: taking expiries back, and leaving nothing of entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fjord.columns import Strings
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables.kv import layout
from fjord.tables.kv.layout import Entry


def unschedule(table_id: int, items: Sequence[tuple[int, bytes]]) -> list[Op]:
    """Returns the op that takes expiries of index keys back; 0 stands for none."""
    due = [item for item in items if item[0]]
    if not due:
        return []
    keys = Strings.of([key[PREFIX_BYTES:] for _, key in due])
    columns = ([expires_at_us for expires_at_us, _ in due], keys)
    return [Op(Opcode.KV_UNSCHEDULE, table_id, len(due), columns)]


def purge(table_id: int, entries: Mapping[bytes, Entry]) -> list[Op]:
    """Returns the op that leaves nothing of these entries by index key."""
    if not entries:
        return []
    columns = (
        [entry.held for entry in entries.values()],
        [layout.row_bytes(entry, key) for key, entry in entries.items()],
        Strings.of([key[PREFIX_BYTES:] for key in entries]),
    )
    return [Op(Opcode.KV_PURGE, table_id, len(entries), columns)]
