"""A world with streams: a log, a stream that keeps the latest, and short forms to use them."""

from __future__ import annotations

from collections.abc import Mapping

from fjord import commands, ops
from fjord.columns import Strings
from fjord.commands import Acted, Done, Entries, Messages, Opened, Position, Replies
from fjord.history import Block, SealedRange, SealPlan
from fjord.kinds import Kind
from fjord.streams import Start
from fjord.tables import catalog
from fjord.tables.state import Tree
from fjord.tables.streams import history, layout
from fjord.tables.streams.layout import History
from tests.unit.engine.shore import append_command
from tests.unit.tables.world import World

Said = tuple[int, bytes, bytes | None]  # seq, key, value; None: a tombstone


class StreamWorld(World):
    """A world with the tables `log` and `latest`."""

    @classmethod
    def with_tables(cls) -> StreamWorld:
        world = cls()
        world.create("log")
        world.create("latest", b'{"mode":"latest"}')
        return world

    def create(self, name: str, settings: bytes = b"") -> None:
        reply = self.run(
            commands.CreateTable(name=name, kind=Kind.STREAM.number, settings=settings)
        )
        assert isinstance(reply, Done)

    def append(self, table: str, *values: bytes) -> int:
        """Appends messages without keys; returns the seq of the last one."""
        return self.put(table, *((b"", value) for value in values))

    def put(self, table: str, *rows: tuple[bytes, bytes]) -> int:
        reply = self.run(append_command(table, rows))
        assert isinstance(reply, Done), reply
        return reply.seq

    def erase(self, table: str, *keys: bytes) -> list[int]:
        reply = self.run(commands.Erase(table=table, keys=Strings.of(list(keys))))
        assert isinstance(reply, Acted), reply
        return list(reply.missing)

    def read(self, table: str, after: int = 0, until: int = 0, count: int = 0) -> Messages:
        reply = self.run(commands.Read(table=table, after=after, until=until, count=count))
        assert isinstance(reply, Messages), reply
        return reply

    def subscribe(self, table: str, name: str, start: Start, at: int = 0) -> Position:
        reply = self.run(commands.Subscribe(table=table, name=name, start=start, at=at))
        assert isinstance(reply, Position), reply
        return reply

    def acknowledge(
        self, table: str, seq: int, *, later: int = 0, expected: int = -1
    ) -> commands.Reply:
        """Acknowledges for the subscriber `s`, in its epoch or in one that is later or earlier."""
        data = self.tree(Tree.SUBSCRIBERS)[self.tables[table].prefix + b"s"]
        epoch = layout.decode_subscriber(data).epoch + later
        return self.run(
            commands.Acknowledge(table=table, name="s", seq=seq, epoch=epoch, expected=expected)
        )

    def open_snapshot(self) -> int:
        reply = self.run(commands.OpenSnapshot())
        assert isinstance(reply, Opened), reply
        return reply.snapshot

    def map_as_of(self, snapshot: int, table: str) -> dict[bytes, bytes]:
        """Returns all values of a table at a snapshot, found by range and again by key."""
        (page,) = self.as_of_replies(snapshot, commands.Range(table=table))
        assert isinstance(page, commands.Page)
        found = dict(zip(page.keys, page.entries.values, strict=True))
        if found:
            keys = Strings.of(sorted(found))
            (entries,) = self.as_of_replies(snapshot, commands.Get(table=table, keys=keys))
            assert isinstance(entries, Entries)
            assert dict(zip(keys, entries.values, strict=True)) == found
        return found

    def said_as_of(self, snapshot: int, table: str) -> list[Said]:
        (reply,) = self.as_of_replies(snapshot, commands.Read(table=table, after=0))
        assert isinstance(reply, Messages)
        return said(reply)

    def as_of_replies(self, snapshot: int, *wanted: commands.Command) -> list[commands.Reply]:
        reply = self.run(commands.AsOf(snapshot=snapshot, commands=wanted))
        assert isinstance(reply, Replies), reply
        return list(reply.replies)

    def sweep(self, limit: int = 1000) -> None:
        """Sweeps until there is nothing left to do."""
        while True:
            before = self.next_seq
            self.run(catalog.Sweep(limit=limit))
            if self.next_seq == before:
                return

    def seal(self, table: str, last: int, *blocks: tuple[int, int]) -> SealPlan:
        """Says that a table was written to blocks; each is a range of seqs."""
        found = self.tables[table]
        first = self.history(table).sealed + 1
        self.run(history.BeginSeal(lasts=[(found.id, last)], tag=7))
        where = SealedRange(found.id, table, found.kind.number, first, last, 7, 1000)
        plan = SealPlan(b"s" * 16, [where])
        made = [block(found.id, *one) for one in blocks or ((first, last),)]
        self.run(history.EndSeal(plan=plan, blocks=made))
        return plan

    def history(self, table: str) -> History:
        return history.history_of(self, self.tables[table].id)

    def sizes(self) -> Mapping[Tree, int]:
        return {tree: self.size_of(tree) for tree in Tree}


def block(table: int, first: int, last: int, rows: int = 1) -> Block:
    return Block(table, first, last, rows, 100, first, last, 5, f"b-{first}-{last}")


def said(messages: Messages) -> list[Said]:
    """Returns seq, key and value of each message."""
    found: list[Said] = []
    for first, data in zip(messages.first_seqs, messages.ops, strict=True):
        op, _, _ = ops.decode(memoryview(data), 0)
        keys, values, types = op.column("key"), op.column("value"), op.column("type")
        seqs = op.column("row") if op.opcode is ops.Opcode.STREAM_MOVE else None
        for at in range(op.rows):
            seq = first + at if seqs is None else seqs[at]
            value = None if types[at] == ops.TOMBSTONE else values[at]
            assert isinstance(seq, int)
            assert isinstance(keys, Strings)
            assert value is None or isinstance(value, bytes)
            found.append((seq, keys[at], value))
    assert len(found) == messages.rows
    return found
