"""APPEND and ERASE: messages come in, as one op each, and one op is all that a log does with them.

In mode latest a message takes the place of the one with its key, at commit: the index never has
more than one message a key.  What was replaced is still in the op that brought it, and so in the
history of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from fjord import commands, ops
from fjord.columns import Strings, repeat
from fjord.commands import Acted, Refusal
from fjord.errors import Code
from fjord.ops import Op, Opcode
from fjord.tables import catalog, kv_entry, kv_rules, stream_rules
from fjord.tables.kv_entry import BASE, BASE_REPLACED, PREFIX_BYTES
from fjord.tables.state import Decision, Kind, State, Table, Tree


def decide_append(command: commands.Append, state: State, now_us: int) -> Decision:
    problem = stream_rules.append_problem(command)
    if problem is not None:
        return Decision(problem)
    found = catalog.find_or_create(state, command.table, Kind.STREAM)
    if isinstance(found, Refusal):
        return Decision(found)
    table, creation = found
    columns: tuple[ops.Column, ...] = (command.types, command.keys, command.values)
    opcode = Opcode.STREAM_APPEND
    if stream_rules.is_latest(table):
        # All that follows is faster once the rows are there.
        keys, sizes = command.keys.rows(), list(map(len, command.values.rows()))
        problem = kv_rules.keys_problem(command.keys)
        if problem is not None:
            return Decision(problem)
        seq = state.next_seq + len(creation)
        columns = (*_replaced(state, table, keys, seq, sizes), *columns)
        opcode = Opcode.STREAM_PUT
    return catalog.decision(state, [*creation, Op(opcode, table.id, len(command.types), columns)])


# Of messages that are replaced: their seqs, the seqs that hold them, and their bytes.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int]]


def _replaced(
    state: State, table: Table, keys: Sequence[bytes], seq: int, sizes: Sequence[int]
) -> _Replaced:
    """Returns what messages with these keys replace, the first of which gets this seq."""
    prefix = table.prefix
    found = _taken_apart(keys, state.get_many(Tree.KV, [prefix + key for key in keys]))
    if len(set(keys)) == len(keys):
        return found
    was, held, freed = map(list, found)
    last: dict[bytes, int] = {}  # where a key was before, in the same command
    for at, key in enumerate(keys):
        before = last.get(key)
        if before is not None:
            was[at] = held[at] = seq + before
            freed[at] = ops.ROW_BYTES + len(key) + sizes[before]
        last[key] = at
    return was, held, freed


def _taken_apart(keys: Sequence[bytes], stored: Sequence[bytes | None]) -> _Replaced:
    """Returns what is known of entries, 0 where there are none."""
    row_bytes = ops.ROW_BYTES
    if not any(stored):
        none = repeat(0, len(keys))
        return none, none, none
    if all(stored) and {len(data) for data in stored if data} == {BASE.size}:
        # All of them are as they were first written, as most are.
        joined = b"".join([data for data in stored if data])
        rows, _, old, _ = zip(*BASE_REPLACED.iter_unpack(joined), strict=True)
        return rows, rows, [row_bytes + size for size in map(add, map(len, keys), old)]
    entries = [kv_entry.decode(data) if data else None for data in stored]
    found = [
        (entry.row, entry.held, row_bytes + len(key) + entry.size) if entry else (0, 0, 0)
        for key, entry in zip(keys, entries, strict=True)
    ]
    was, held, freed = zip(*found, strict=True)
    return was, held, freed


def decide_erase(command: commands.Erase, state: State, now_us: int) -> Decision:
    problem = kv_rules.keys_problem(command.keys)
    if problem is not None:
        return Decision(problem)
    table = stream_rules.find(state, command.table)
    if isinstance(table, Refusal):
        return Decision(table)
    if not stream_rules.is_latest(table):
        text = f"stream {table.name} keeps every message; only mode latest can lose one"
        return Decision(Refusal(code=Code.WRONG_KIND, text=text))
    keys = [table.prefix + key for key in command.keys.rows()]
    entries: dict[bytes, kv_entry.Entry] = {}
    missing = []
    for at, (key, data) in enumerate(zip(keys, state.get_many(Tree.KV, keys), strict=True)):
        entry = kv_entry.decode(data) if data else None
        if entry is None or not entry.is_value or key in entries:
            missing.append(at)
        else:
            entries[key] = entry
    made = [_erase(table, entries, state.lease_us)] if entries else []
    seq = state.next_seq - 1 + len(entries)
    return Decision(Acted(master=state.master, seq=seq, missing=missing), made)


def _erase(table: Table, entries: dict[bytes, kv_entry.Entry], lease_us: int) -> Op:
    columns = (
        repeat(lease_us, len(entries)),
        [entry.row for entry in entries.values()],
        [entry.held for entry in entries.values()],
        [kv_entry.row_bytes(entry, key) for key, entry in entries.items()],
        Strings.of([key[PREFIX_BYTES:] for key in entries]),
    )
    return Op(Opcode.STREAM_ERASE, table.id, len(entries), columns)
