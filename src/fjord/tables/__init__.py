"""Tables: what ops mean.  Pure: no clock, no file, no randomness.

Two verbs.  **decide**(command, state, now) looks things up, may refuse, and returns resolved ops
and a reply; it runs once, at the writer.  **apply**(writes, op, place) only writes, and may not
refuse; it runs live, in recovery, on replicas and in tests.  Both are found by dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from fjord import commands
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, kv
from fjord.tables.state import Decision, State, Writes

APPLY: Final[dict[Opcode, Callable[[Writes, Op, Place], None]]] = {
    Opcode.TAKEOVER: catalog.apply_takeover,
    Opcode.CREATE_TABLE: catalog.apply_create_table,
    Opcode.KV_SET: kv.apply_set,
    Opcode.KV_DELETE: kv.apply_delete,
}

DECIDE: Final[dict[type, Callable[[Any, State, int], Decision]]] = {
    catalog.TakeOver: catalog.decide_take_over,
    commands.Nop: catalog.decide_nop,
    commands.Set: kv.decide_set,
    commands.Get: kv.decide_get,
    commands.Delete: kv.decide_delete,
}

# Commands that never change anything need no write transaction.
READS: Final[frozenset[type]] = frozenset({commands.Nop, commands.Get})

# Neighbours that share a key may be merged into one command before they are decided; a reply to
# that one is the reply to each.  Where it is refused, each is decided alone.
MERGE_KEY: Final[dict[type, Callable[[Any], Hashable]]] = {commands.Set: kv.merge_key}
MERGE: Final[dict[type, Callable[[Sequence[Any]], Any]]] = {commands.Set: kv.merge}
