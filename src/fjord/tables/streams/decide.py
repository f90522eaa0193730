"""APPEND and ERASE.

Messages come in as one op each, which is all that a log does with them.  In mode latest a message
replaces the one with its key, at commit: the index never has more than one message per key.  A
replaced message is still in the op that brought it, and so in the history of the table.  A message
with a date does not replace one with a later date, and is then in no op; ties go to the later
message.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final

from fjord import commands, kinds, limits, ops, streams
from fjord.columns import Strings, repeat
from fjord.errors import Code, RefusedError
from fjord.layouts import PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables import catalog, rules
from fjord.tables.kv import layout
from fjord.tables.kv.layout import BASE, BASE_REPLACED
from fjord.tables.state import Decision, Table, Tree, View, decides
from fjord.values import Type

_STRING: Final = bytes([Type.STRING])


@decides(commands.Append)
def decide_append(command: commands.Append, state: View, now_us: int) -> Decision:
    _check_append(command, now_us)
    table, creation = catalog.find_or_create(state, command.table, kinds.Kind.STREAM)
    _check_values(command, table)
    if not table.is_latest:
        columns = (command.types, command.keys, command.values)
        op = Op(Opcode.STREAM_APPEND, table.id, len(command.types), columns)
        return catalog.decision(state, [*creation, op])
    keys = command.keys.rows()  # faster to use from here on
    rules.check_keys(command.keys)
    prefix, seq = table.prefix, state.next_seq + len(creation)
    stored = state.get_many(Tree.KV, [prefix + key for key in keys])
    put = _put if command.timestamps_us is None else _put_dated
    return catalog.decision(state, [*creation, *put(command, table, stored, seq)])


def _check_append(command: commands.Append, now_us: int) -> None:
    rows, keys, dates = len(command.types), command.keys, command.timestamps_us
    if not len(keys) == len(command.values) == rows:
        raise RefusedError(Code.BAD_BATCH, "keys, types and values differ in length")
    rules.check_sizes(keys, command.values)
    if len(keys.data) > limits.KV_KEY_BYTES_MAX < max(keys.lengths()):
        text = f"a key has at most {limits.KV_KEY_BYTES_MAX} bytes"
        raise RefusedError(Code.KEY_TOO_LONG, text)
    if dates is not None:  # checked in every mode, though a log does not use them
        if len(dates) != rows:
            raise RefusedError(Code.BAD_BATCH, "messages and their dates differ in length")
        rules.check_timestamps(dates, now_us)


def _check_values(command: commands.Append, table: Table) -> None:
    """Checks single values only if their types or columns require it."""
    settings, data = streams.decode_settings(table.settings), command.values.data
    is_text = not command.types.strip(_STRING) and bytes(data).isascii()
    if settings.columns or not is_text:
        rules.check_values(command.types, command.values, settings.declared)


_Stored = Sequence[bytes | None]  # the index entries of the keys of a command


def _put(command: commands.Append, table: Table, stored: _Stored, seq: int) -> list[Op]:
    """Returns the op of messages that replace others; the first one gets this seq."""
    sizes = list(map(len, command.values.rows()))
    replaced = _replaced(command.keys.rows(), stored, seq, sizes)
    columns = (*replaced, command.types, command.keys, command.values)
    return [Op(Opcode.STREAM_PUT, table.id, len(command.types), columns)]


def _put_dated(command: commands.Append, table: Table, stored: _Stored, seq: int) -> list[Op]:
    """Like `_put`, without messages older than the stored ones; none if nothing is left."""
    dates = command.timestamps_us
    assert dates is not None
    rows = _winners(command.keys.rows(), stored, dates)
    if not rows:
        return []
    if len(rows) < len(dates):
        command, stored = _only(command, rows), [stored[row] for row in rows]
        dates = [dates[row] for row in rows]
    (op,) = _put(command, table, stored, seq)
    return [op._replace(opcode=Opcode.STREAM_PUT_AT, columns=(dates, *op.columns))]


def _winners(keys: Sequence[bytes], stored: _Stored, dates: Sequence[int]) -> list[int]:
    """Returns the rows that are not older than the entry of their key, nor than an earlier row."""
    newest = {
        key: layout.decode(data).timestamp_us if data else 0
        for key, data in zip(keys, stored, strict=True)
    }
    rows = []
    for row, (key, date_us) in enumerate(zip(keys, dates, strict=True)):
        if date_us >= newest[key]:
            newest[key] = date_us
            rows.append(row)
    return rows


def _only(command: commands.Append, rows: Sequence[int]) -> commands.Append:
    keys, values = command.keys.rows(), command.values.rows()
    return commands.Append(
        table=command.table,
        types=bytes([command.types[row] for row in rows]),
        keys=Strings.of([keys[row] for row in rows]),
        values=Strings.of([values[row] for row in rows]),
    )


# Of replaced messages: their seqs, the seqs that hold them, and their bytes.
_Replaced = tuple[Sequence[int], Sequence[int], Sequence[int]]


def _replaced(keys: Sequence[bytes], stored: _Stored, seq: int, sizes: Sequence[int]) -> _Replaced:
    """Returns what messages with these keys replace; the first one gets this seq."""
    found = _taken_apart(keys, stored)
    if len(set(keys)) == len(keys):
        return found
    was, held, freed = map(list, found)
    last: dict[bytes, int] = {}  # the previous seq of a key within the command
    for at, key in enumerate(keys):
        before = last.get(key)
        if before is not None:
            was[at] = held[at] = seq + before
            freed[at] = ops.ROW_BYTES + len(key) + sizes[before]
        last[key] = at
    return was, held, freed


def _taken_apart(keys: Sequence[bytes], stored: _Stored) -> _Replaced:
    """Unpacks entries; 0 where there is none."""
    row_bytes = ops.ROW_BYTES
    if not any(stored):
        none = repeat(0, len(keys))
        return none, none, none
    if all(stored) and {len(data) for data in stored if data} == {BASE.size}:
        # All are as first written, which is the usual case.
        joined = b"".join([data for data in stored if data])
        rows, _, old, _ = zip(*BASE_REPLACED.iter_unpack(joined), strict=True)
        return rows, rows, [row_bytes + size for size in map(add, map(len, keys), old)]
    entries = [layout.decode(data) if data else None for data in stored]
    found = [
        (entry.row, entry.held, row_bytes + len(key) + entry.size) if entry else (0, 0, 0)
        for key, entry in zip(keys, entries, strict=True)
    ]
    was, held, freed = zip(*found, strict=True)
    return was, held, freed


@decides(commands.Erase)
def decide_erase(command: commands.Erase, state: View, now_us: int) -> Decision:
    rules.check_keys(command.keys)
    table = catalog.find_stream(state, command.table)
    if not table.is_latest:
        text = f"stream {table.name} keeps every message; only mode latest can erase one"
        raise RefusedError(Code.WRONG_KIND, text)
    keys = [table.prefix + key for key in command.keys.rows()]
    stored = [layout.decode(data) if data else None for data in state.get_many(Tree.KV, keys)]
    live = [entry if entry and entry.is_value else None for entry in stored]
    entries, missing = catalog.once(keys, live)
    rows = [
        (state.lease_us, entry.row, entry.held, layout.row_bytes(entry, key), key[PREFIX_BYTES:])
        for key, entry in entries.items()
    ]
    return catalog.acted(state, ops.of_rows(Opcode.STREAM_ERASE, table.id, rows), missing)
