"""The catalog: the tables, those being dropped, and the writers so far.

    TABLES  table id u32 BE                 -> kind u8, length of the name u8, name, settings
    META    "dropped" | table id u32 BE     -> name
    META    "takeover" | seq u64 BE         -> UUID of the writer that began after that seq
    META    "begins"                        -> segment u64 BE, seq u64 BE; not after a loss
    META    "lost"                          -> nothing; there after a repair
    META    "largest-table"                 -> table id u32 BE; there after a repair

A dropped table loses its name at once, and its rows bit by bit (`Sweep`).  Ids are never reused,
since ops of the old table may still be in the journal.  The largest id ever given out always
belongs to a table or to a dropped one; that is why the last one is not forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from fjord import commands, jobs, kinds, layouts, limits, ops
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.commands.layout import Command, internal
from fjord.declared import schema
from fjord.errors import Code, RefusedError
from fjord.kinds import Kind
from fjord.ops import Op, Opcode, Place
from fjord.tables import generations, rules
from fjord.tables.state import Decision, Table, Tree, View, VolatileValue, Writes, decides

# Ops that belong to no table carry the id 0.
NO_TABLE: Final = 0
_TABLE_ID_MAX: Final = 2**32 - 1
_SHOWN_MAX: Final = 300  # characters of settings in a refusal
_TAKEOVER: Final = b"takeover"
_DROPPED: Final = b"dropped"
BEGINS: Final = b"begins"
# Set when seqs were lost to damage; what the journal says of itself may then be incomplete.
LOST: Final = b"lost"
# After such a loss: the largest table id that any op had.
LARGEST_TABLE: Final = b"largest-table"
_SEQ = struct.Struct(">Q")
_BEGIN = struct.Struct(">QQ")
_K = TypeVar("_K")
_V = TypeVar("_V")
_NOTHING: Final[Mapping[bytes, Any]] = MappingProxyType({})


@internal(frees=True)
class TakeOver(Command):
    """The first command of every writer; clients cannot send it."""

    master: bytes  # its new UUID


@internal(frees=True)
class Sweep(Command):
    """Removes rows of dropped tables, and then the tables themselves."""

    limit: int  # rows at most


@decides(TakeOver)
def decide_take_over(command: TakeOver, state: View, now_us: int) -> Decision:
    columns = ((state.next_seq - 1,), Strings.of([command.master]))
    return decision(state, [Op(Opcode.TAKEOVER, NO_TABLE, 1, columns)])


@decides(commands.Nop)
def decide_nop(command: commands.Nop, state: View, now_us: int) -> Decision:
    return decision(state, ())


def decision(
    state: View,
    ops: Sequence[Op],
    volatile: Mapping[bytes, VolatileValue | None] = _NOTHING,
    locks: Mapping[bytes, int | None] = _NOTHING,
) -> Decision:
    """Returns a decision answered with the seq after its ops."""
    seq = state.next_seq - 1
    for op in ops:
        seq += op.rows
    return Decision(commands.Done(master=state.master, seq=seq), ops, volatile, locks)


def acted(
    state: View, ops: Sequence[Op], missing: Sequence[int], dropped: Sequence[int] = ()
) -> Decision:
    """Returns a decision that lists the rows for which there was nothing to do."""
    seq = state.next_seq - 1 + sum(op.rows for op in ops)
    reply = commands.Acted(master=state.master, seq=seq, missing=missing, dropped=dropped)
    return Decision(reply, ops)


def once(keys: Iterable[_K], found: Iterable[_V | None]) -> tuple[dict[_K, _V], list[int]]:
    """Returns what was found, each key once, and the positions of all other keys."""
    kept: dict[_K, _V] = {}
    missing = []
    for at, (key, one) in enumerate(zip(keys, found, strict=True)):
        if one is None or key in kept:
            missing.append(at)
        else:
            kept[key] = one
    return kept, missing


# -- tables ---------------------------------------------------------------------------------------


def find(state: View, name: str, kind: Kind) -> Table | None:
    """Returns the table with this name, or None."""
    table = state.tables.get(name)
    if table is None:
        rules.check_name(name)
    elif table.kind is not kind:
        raise other_kind(table).error()
    return table


def find_or_create(state: View, name: str, kind: Kind) -> tuple[Table, list[Op]]:
    """Returns the table with this name, and the op that creates it if it is new."""
    table = state.tables.get(name)
    if table is not None and table.kind is kind:
        return table, []
    find(state, name, kind)  # refuses an invalid name, and a table of another kind
    return _create(state, name, kind, b"")


def find_stream(state: View, name: str) -> Table:
    """Returns the stream with this name; refuses if there is none."""
    table = find(state, name, Kind.STREAM)
    if table is None:
        raise RefusedError(Code.NOT_FOUND, f"there is no stream {name}")
    return table


def find_map(state: View, name: str) -> Table | None:
    """Returns the table with this name if it has one value per key, or None if there is none."""
    table = state.tables.get(name)
    if table is None or table.kind is not Kind.STREAM:
        return find(state, name, Kind.KV)
    if not table.is_latest:
        text = f"stream {name} keeps every message; only mode latest has one for each key"
        raise RefusedError(Code.WRONG_KIND, text)
    return table


def find_any(tables: Mapping[str, Table], name: str) -> Table:
    """Returns the table of any kind with this name; refuses if there is none."""
    rules.check_name(name)
    table = tables.get(name)
    if table is None:
        raise RefusedError(Code.NOT_FOUND, f"there is no table {name}")
    return table


def other_kind(table: Table) -> Refusal:
    return Refusal(code=Code.WRONG_KIND, text=f"table {table.name} is a {table.kind} table")


@decides(commands.CreateTable)
def decide_create_table(command: commands.CreateTable, state: View, now_us: int) -> Decision:
    kind = kinds.BY_NUMBER.get(command.kind)
    if kind is None:
        raise RefusedError(Code.WRONG_KIND, f"unknown kind of table: {command.kind}")
    if len(command.settings) > limits.SETTINGS_BYTES_MAX:
        text = f"settings have at most {limits.SETTINGS_BYTES_MAX} bytes"
        raise RefusedError(Code.TOO_LARGE, text)
    settings = _canonical(kind, command.settings)
    found = find(state, command.name, kind)
    if found is not None:
        if _canonical(found.kind, found.settings) == settings:
            return decision(state, ())
        if command.changes and found.kind is Kind.JOBS:
            return _redeclared(state, found, settings, now_us)
        shown = found.settings.decode(errors="replace") or "the defaults"
        cut = f"{shown[:_SHOWN_MAX]}..." if len(shown) > _SHOWN_MAX else shown
        raise RefusedError(Code.EXISTS, f"table {found.name} exists with other settings: {cut}")
    table, ops = _create(state, command.name, kind, settings)
    if table.kind is Kind.JOBS and jobs.decode_settings(table.settings).period:
        ops = [*ops, generations.begin(table, table.id + 1, 1, now_us, state.next_seq + 2)]
    return decision(state, ops)


def _redeclared(state: View, found: Table, settings: bytes, now_us: int) -> Decision:
    """Begins a generation with the new settings."""
    listed = state.generations.get(found.id, ())
    table = generations.changed(found, jobs.decode_settings(settings), listed)
    if len(table.settings) > limits.SETTINGS_BYTES_MAX:
        text = f"table {table.name} has had so many columns that its settings are too long"
        raise RefusedError(Code.TOO_LARGE, text)
    if len(listed) >= limits.GENERATIONS_MAX:
        text = f"table {table.name} has {limits.GENERATIONS_MAX} generations; let some drain first"
        raise RefusedError(Code.QUOTA, text)
    ops = [generations.creation(table), next_generation(state, table, now_us, ops_before=1)]
    return decision(state, ops)


def next_generation(state: View, table: Table, now_us: int, *, ops_before: int) -> Op:
    """Returns the op that begins the next generation of a table."""
    number = 1 + max((one.number for one in state.generations.get(table.id, ())), default=0)
    first_row = state.next_seq + ops_before + 1
    return generations.begin(table, 1 + largest_id(state), number, now_us, first_row)


def _canonical(kind: Kind, settings: bytes) -> bytes:
    """Returns settings in their stored form, without schema numbers, which clients cannot set."""
    try:
        found = kinds.settings_of(kind, settings)
    except ValueError as error:
        raise RefusedError(Code.BAD_SETTINGS, str(error)) from error
    if found is None:
        return settings
    if isinstance(found, jobs.Settings):
        found = replace(found, earlier=())
    return replace(found, schema=schema.FIRST).encode()


def _numbered(kind: Kind, settings: bytes, table_id: int) -> bytes:
    """Returns settings with the first schema number of a table, if there are columns."""
    found = kinds.settings_of(kind, settings)
    if found is None or not found.columns:
        return settings
    return replace(found, schema=schema.first_number(table_id)).encode()


@decides(commands.DropTable)
def decide_drop_table(command: commands.DropTable, state: View, now_us: int) -> Decision:
    table = find_any(state.tables, command.name)
    op = Op(Opcode.DROP_TABLE, table.id, 1, (Strings.of([table.name.encode()]),))
    listed = state.generations.get(table.id, ())
    ended = [generations.end(table.id, listed)] if listed else []
    gone = {key: None for key in state.volatile if key.startswith(table.prefix)}
    return decision(state, [*ended, op], gone)


@decides(commands.ListTables)
def decide_list_tables(command: commands.ListTables, state: View, now_us: int) -> Decision:
    found = [state.tables[name] for name in sorted(state.tables)]
    if command.name:
        found = [find_any(state.tables, command.name)]
    reply = commands.TableList(
        names=Strings.of([table.name.encode() for table in found]),
        ids=[table.id for table in found],
        kinds=bytes(table.kind.number for table in found),
        settings=Strings.of([table.settings for table in found]),
    )
    return Decision(reply)


def _create(state: View, name: str, kind: Kind, settings: bytes) -> tuple[Table, list[Op]]:
    if len(state.tables) + len(dropped(state)) >= limits.TABLES_MAX:
        text = f"there are {limits.TABLES_MAX} tables already, including those being purged"
        raise RefusedError(Code.QUOTA, text)
    table_id = 1 + largest_id(state)
    if table_id > _TABLE_ID_MAX:
        raise RefusedError(Code.QUOTA, "all table ids are used up")
    settings = _numbered(kind, settings, table_id)
    table = Table(id=table_id, name=name, kind=kind, settings=settings)
    return table, [generations.creation(table)]


def largest_id(state: View) -> int:
    """Returns the largest table id ever used, as far as it is known; 0 = none."""
    (largest,) = state.get_many(Tree.META, [LARGEST_TABLE])
    known = layouts.PREFIX.unpack(largest)[0] if largest else NO_TABLE
    ids = [one.id for listed in state.generations.values() for one in listed]
    return max([known, *dropped(state), *ids, *(table.id for table in state.tables.values())])


def dropped(state: View) -> dict[int, bytes]:
    """Returns the tables being dropped: id -> name, ascending."""
    items = state.scan(Tree.META, _DROPPED, _DROPPED + b"\xff" * 5, limits.TABLES_MAX)
    return {layouts.PREFIX.unpack(key[len(_DROPPED) :])[0]: name for key, name in items}


def is_there(state: View, table_id: int) -> bool:
    """Returns whether a table has this id and was not dropped."""
    return state.get_many(Tree.TABLES, [layouts.prefix_of(table_id)])[0] is not None


def by_id(state: View, table_id: int) -> Table | None:
    """Returns the table with this id, or None if it was dropped."""
    return next((table for table in state.tables.values() if table.id == table_id), None)


def is_last(state: View, table_id: int) -> bool:
    """Returns whether no table has a larger id."""
    return table_id == max([*dropped(state), *(table.id for table in state.tables.values())])


def is_secure(known: Mapping[str, Table]) -> bool:
    """Returns whether any table overwrites its data before it is removed."""
    return any(
        table.kind is Kind.JOBS and jobs.decode_settings(table.settings).secure
        for table in known.values()
    )


def tables(items: Iterable[tuple[bytes, bytes]]) -> dict[str, Table]:
    """Returns the tables in items of the TABLES tree."""
    found = {}
    for key, value in items:
        end = 2 + value[1]
        name = value[2:end].decode()
        id_, kind = layouts.PREFIX.unpack(key)[0], kinds.BY_NUMBER[value[0]]
        found[name] = Table(id=id_, name=name, kind=kind, settings=value[end:])
    return found


# -- apply ----------------------------------------------------------------------------------------


def apply_takeover(writes: Writes, op: Op, place: Place) -> None:
    seqs, masters = op.columns
    keys = (_TAKEOVER + _SEQ.pack(seq) for seq in seqs)
    writes.put_many(Tree.META, list(zip(keys, masters.rows(), strict=True)))


def apply_create_table(writes: Writes, op: Op, place: Place) -> None:
    kinds, names, settings = op.columns
    head = bytes([kinds[0], len(names[0])])
    writes.put_many(Tree.TABLES, [(layouts.prefix_of(op.table), head + names[0] + settings[0])])


def apply_drop_table(writes: Writes, op: Op, place: Place) -> None:
    (names,) = op.columns
    writes.delete_many(Tree.TABLES, [layouts.prefix_of(op.table)])
    writes.put_many(Tree.META, [(_DROPPED + layouts.prefix_of(op.table), names[0])])


def apply_forget_table(writes: Writes, op: Op, place: Place) -> None:
    writes.delete_many(Tree.META, [_DROPPED + layouts.prefix_of(op.table)])
    writes.delete_many(Tree.HISTORY, [layouts.prefix_of(op.table)])


def apply_packed(writes: Writes, op: Op, place: Place) -> None:
    segments, seqs = op.columns
    writes.put_many(Tree.META, [(BEGINS, _BEGIN.pack(segments[0], seqs[0]))])


def apply_lost(writes: Writes, op: Op, place: Place) -> None:
    """Only records the loss; the lost ops may have said where the journal begins."""
    writes.put_many(Tree.META, [(LOST, b"")])
    writes.delete_many(Tree.META, [BEGINS])


# -- what META says -------------------------------------------------------------------------------


def takeover_range() -> tuple[bytes, bytes]:
    """Returns the range of META keys that hold the takeover table."""
    return _TAKEOVER, _TAKEOVER + b"\xff" * 9


def takeovers(items: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
    """Returns the takeovers: (UUID, high seq at takeover), oldest first."""
    return [(master, _SEQ.unpack(key[len(_TAKEOVER) :])[0]) for key, master in items]


def largest_table(table_id: int) -> tuple[bytes, bytes]:
    """Returns the META item with the largest id of any op, after a loss."""
    return LARGEST_TABLE, layouts.prefix_of(table_id)


def begins(data: bytes | None) -> tuple[int, int]:
    """Returns the segment and seq at which the journal begins; (0, 0) if it was never packed."""
    return _BEGIN.unpack(data) if data else (0, 0)


# -- what is still live, for packing --------------------------------------------------------------


def keep_always(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    return [op]


def keep_never(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """For ops that later ones repeat, or that only concern earlier ones."""
    return ()


def keep_create_table(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """Drops the op if the table was declared again later."""
    table = by_id(state, op.table)
    _, _, settings = op.columns
    return [op] if table is not None and settings[0] == table.settings else ()


def keep_lost(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    """A loss is remembered as long as the journal exists."""
    return [op._replace(rows=1)]


def keep_drop_table(op: Op, place: Place, state: View, now_us: int) -> Sequence[Op]:
    found = state.get_many(Tree.META, [_DROPPED + layouts.prefix_of(op.table)])
    return [op] if found[0] is not None else ()


def keep_named(
    op: Op, place: Place, state: View, tree: Tree, held_of: Callable[[bytes], int]
) -> Sequence[Op]:
    """Rewrites those rows, each under its name in a tree, that this op still holds."""
    names, prefix = op.column("name"), layouts.prefix_of(op.table)
    stored = state.get_many(tree, [prefix + name for name in names.rows()])
    return [
        ops.part(op, at, at + 1)
        for at, data in enumerate(stored)
        if data and held_of(data) == place.seq + at
    ]
