"""LOCK and UNLOCK: nobody else may write a key until its holder lets go, or is gone.

Locks live in memory, with the connections that hold them.  What is locked is the key that a key
leads to, whether it has a value or not.
"""

from __future__ import annotations

from fjord import commands, kinds, limits
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.tables import catalog
from fjord.tables.kv import rules
from fjord.tables.kv.lookup import Lookup
from fjord.tables.state import Decision, State, decides


@decides(commands.Lock)
def decide_lock(command: commands.Lock, state: State, now_us: int) -> Decision:
    problem = rules.keys_problem(command.keys)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, kinds.Kind.KV)
    if isinstance(found, Refusal):
        return Decision(found)
    table, creation = found
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    if state.locks and not state.locks.keys().isdisjoint([*lookup.given, *lookup.keys]):
        return Decision(Refusal(code=Code.LOCKED, text="a key is locked already"))
    wanted = dict.fromkeys(lookup.keys, state.client)
    if len(state.locks) + len(wanted) > limits.LOCKS_MAX:
        return Decision(Refusal(code=Code.QUOTA, text=f"{limits.LOCKS_MAX} keys may be locked"))
    return catalog.decision(state, creation, locks=wanted)


@decides(commands.Unlock)
def decide_unlock(command: commands.Unlock, state: State, now_us: int) -> Decision:
    problem = rules.keys_problem(command.keys)
    if problem is not None:
        return Decision(problem)
    table = catalog.find(state, command.table, kinds.Kind.KV)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return Decision(_NOT_OWNER)
    lookup = Lookup.of(state, table.prefix, command.keys.rows(), now_us)
    freed: dict[bytes, None] = {}
    for given, key in zip(lookup.given, lookup.keys, strict=True):
        # A key may have become an alias since it was locked.
        own = given if state.locks.get(given) == state.client else key
        if state.locks.get(own) != state.client:
            return Decision(_NOT_OWNER)
        freed[own] = None
    return catalog.decision(state, (), locks=freed)


_NOT_OWNER = Refusal(code=Code.NOT_OWNER, text="a key is not locked by this client")
