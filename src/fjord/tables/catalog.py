"""The catalog: which tables there are, and which writers there were."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.ops import Op, Opcode, Place
from fjord.tables.state import Decision, Kind, State, Table, Tree, Writes

# Ops that belong to no table carry the id 0.
NO_TABLE = 0
_TAKEOVER = b"takeover"
_SEQ = struct.Struct(">Q")
_TABLE_ID = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """What every writer begins with; nobody else can ask for it."""

    master: bytes  # its new UUID


def decide_take_over(command: TakeOver, state: State, now_us: int) -> Decision:
    op = Op(Opcode.TAKEOVER, NO_TABLE, 1, (Strings.of([command.master]),))
    return Decision(commands.Done(master=state.master, seq=state.next_seq), [op])


def apply_takeover(writes: Writes, op: Op, place: Place) -> None:
    (masters,) = op.columns
    assert isinstance(masters, Strings)
    items = [
        (_TAKEOVER + _SEQ.pack(place.seq + row - 1), master) for row, master in enumerate(masters)
    ]
    writes.put_many(Tree.META, items)


def takeover_range() -> tuple[bytes, bytes]:
    """Returns the range of META keys that hold the takeover table."""
    return _TAKEOVER, _TAKEOVER + b"\xff" * 9


def takeovers(items: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
    """Returns the takeover table: (UUID, high seq at takeover), oldest first."""
    return [(master, _SEQ.unpack(key[len(_TAKEOVER) :])[0]) for key, master in items]


def decide_nop(command: commands.Nop, state: State, now_us: int) -> Decision:
    return Decision(commands.Done(master=state.master, seq=state.next_seq - 1))


def find_or_create(state: State, name: str, kind: Kind) -> tuple[Table, list[Op]] | Refusal:
    """Returns the table of that name, with the op that creates it if it is new."""
    table = state.tables.get(name)
    if table is not None:
        return wrong_kind(table, kind) or (table, [])
    problem = commands.name_problem(name)
    if problem is not None:
        return problem
    if len(state.tables) >= limits.TABLES_MAX:
        return Refusal(code=Code.QUOTA, text=f"there are {limits.TABLES_MAX} tables already")
    table_id = 1 + max((table.id for table in state.tables.values()), default=NO_TABLE)
    row = (bytes([kind]), Strings.of([name.encode()]), Strings.of([b""]))
    op = Op(Opcode.CREATE_TABLE, table_id, 1, row)
    return Table(id=table_id, name=name, kind=kind), [op]


def wrong_kind(table: Table, kind: Kind) -> Refusal | None:
    if int(table.kind) == int(kind):
        return None
    text = f"table {table.name} is a {table.kind.name.lower()} table"
    return Refusal(code=Code.WRONG_KIND, text=text)


def apply_create_table(writes: Writes, op: Op, place: Place) -> None:
    kinds, names, settings = op.columns
    assert not isinstance(kinds, Strings)
    assert isinstance(names, Strings)
    assert isinstance(settings, Strings)
    head = bytes([kinds[0], len(names[0])])
    writes.put_many(Tree.TABLES, [(_TABLE_ID.pack(op.table), head + names[0] + settings[0])])


def tables(items: Iterable[tuple[bytes, bytes]]) -> dict[str, Table]:
    """Returns the tables that the items of the TABLES tree describe."""
    found = {}
    for key, value in items:
        name = value[2 : 2 + value[1]].decode()
        found[name] = Table(id=_TABLE_ID.unpack(key)[0], name=name, kind=Kind(value[0]))
    return found
