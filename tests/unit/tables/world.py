"""A world small enough to hold in one hand: state for decide, and the journal that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import google_crc32c

from fjord import ops, tables, values
from fjord.columns import Strings, repeat
from fjord.commands import Command, Delete, Done, Entries, Get, Refusal, Reply, Set
from fjord.errors import Code
from fjord.index.memory import MemoryIndex
from fjord.ops import Op, Place
from fjord.tables import catalog
from fjord.tables.state import Decision, Pointer, Table, Tree, VolatileValue
from fjord.values import Value

NOW_US = 1_700_000_000_000_000
SEGMENT = 1
MASTER = b"the master's id."


class World:
    """Decides and applies commands in memory, one after the other.

    Keeps the contract of `tables.state.State`; every op is also kept as its bytes, so that the
    whole life of a world can be replayed into another one.
    """

    def __init__(self) -> None:
        self._index = MemoryIndex(len(Tree))
        self._writes = self._index.begin()
        self.journal = b""
        self.master = MASTER
        self.next_seq = 1
        self.now_us = NOW_US
        self.tables: Mapping[str, Table] = {}
        self.volatile: dict[bytes, VolatileValue] = {}
        self.volatile_bytes = 0
        self.payload_reads = 0

    # -- what decide looks at ---------------------------------------------------------------------

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._writes.get_many(tree, keys)

    def payloads(self, pointers: Sequence[Pointer]) -> list[bytes]:
        self.payload_reads += len(pointers)
        return [self._payload(pointer) for pointer in pointers]

    def _payload(self, pointer: Pointer) -> bytes:
        assert pointer.segment == SEGMENT
        data = self.journal[pointer.offset : pointer.offset + pointer.size]
        assert google_crc32c.value(data) == pointer.crc
        return data

    # -- what a test does -------------------------------------------------------------------------

    def decide(self, command: Command | catalog.TakeOver) -> Decision:
        """Returns a decision that nothing comes of."""
        return tables.DECIDE[type(command)](command, self, self.now_us)

    def run(self, command: Command | catalog.TakeOver) -> Reply:
        """Decides a command and applies what comes of it."""
        decision = self.decide(command)
        for op in decision.ops:
            self.apply(op)
        for key, value in decision.volatile.items():
            old = self.volatile.pop(key, None)
            self.volatile_bytes -= len(key) + len(old.value) if old else 0
            if value is not None:
                self.volatile[key] = value
                self.volatile_bytes += len(key) + len(value.value)
        return decision.reply

    def apply(self, op: Op) -> None:
        data, payload = ops.encode(op)
        place = Place(seq=self.next_seq, segment=SEGMENT, payload=len(self.journal) + payload)
        tables.APPLY[op.opcode](self._writes, op, place)
        self.journal += data
        self.next_seq += op.rows
        self.tables = catalog.tables(self._writes.scan(Tree.TABLES, b"", None, 10_000))

    def replayed(self) -> World:
        """Returns the world that the journal alone gives."""
        world, view, position = World(), memoryview(self.journal), 0
        while position < len(view):
            op, _, position = ops.decode(view, position)
            world.apply(op)
        return world

    def trees(self) -> list[list[tuple[bytes, bytes]]]:
        return [self._writes.scan(tree, b"", None, 1_000_000) for tree in Tree]

    def ops(self) -> list[Op]:
        """Returns every op so far."""
        found, view, position = [], memoryview(self.journal), 0
        while position < len(view):
            op, _, position = ops.decode(view, position)
            found.append(op)
        return found

    # -- short forms ------------------------------------------------------------------------------

    def set(
        self,
        items: Mapping[bytes, Value],
        *,
        at: int = 0,
        expires: int = 0,
        overwrite: bool = True,
        persist: bool = True,
        table: str = "t",
    ) -> Reply:
        """Sets values, `at` microseconds from now, expiring `expires` from now."""
        command = set_command(
            list(items.items()),
            at=at,
            expires_at_us=self.now_us + expires if expires else 0,
            overwrite=overwrite,
            persist=persist,
            table=table,
        )
        return self.run(command)

    def delete(self, *keys: bytes, at: int = 0, table: str = "t") -> Reply:
        stamp = NOW_US + at
        return self.run(Delete(table=table, keys=Strings.of(keys), timestamp_us=stamp))

    def get(self, *keys: bytes, table: str = "t") -> list[Value | Refusal]:
        """Returns the value of each key, and a refusal where there is none."""
        reply = self.run(Get(table=table, keys=Strings.of(keys)))
        assert isinstance(reply, Entries)
        assert len(reply.types) == len(reply.values) == len(keys)
        return [
            MISSING if type_ == Entries.MISSING else values.decode(type_, data)
            for type_, data in zip(reply.types, reply.values, strict=True)
        ]


MISSING = Refusal(code=Code.NOT_FOUND, text="nothing there")


def set_command(
    items: Sequence[tuple[bytes, Value]],
    *,
    at: int = 0,
    expires_at_us: int = 0,
    overwrite: bool = True,
    persist: bool = True,
    table: str = "t",
) -> Set:
    encoded = [values.encode(value) for _, value in items]
    return Set(
        table=table,
        keys=Strings.of([key for key, _ in items]),
        types=bytes([type_ for type_, _ in encoded]),
        values=Strings.of([data for _, data in encoded]),
        timestamps_us=repeat(NOW_US + at, len(items)),
        expires_at_us=expires_at_us,
        overwrite=overwrite,
        persist=persist,
    )


def code_of(reply: Reply) -> Code | None:
    """Returns the code of a refusal, None for anything else."""
    return reply.code if isinstance(reply, Refusal) else None


def done(seq: int) -> Done:
    return Done(master=MASTER, seq=seq)
