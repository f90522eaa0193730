"""An engine with streams on a real directory, and a cold store in memory beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fjord import commands, streams
from fjord.engine import Engine
from fjord.errors import Code
from fjord.history import Block
from fjord.kinds import Kind
from fjord.streams import Start
from fjord.testing import SimClock
from tests.unit.engine.shore import Shore, append_command, told
from tests.unit.engine.world import open_at, set_command

Row = tuple[str, str | None]  # key and value; None: a tombstone


class Shell:
    """An engine, its clock and its blocks, in short words."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.clock = SimClock()
        self.shore = Shore()
        self.engine: Engine = open_at(path, self.clock)
        self.shore.attach(self.engine)

    def close(self) -> None:
        self.engine.close()
        self.shore.cold.close()

    def restart(self) -> None:
        self.engine.close()
        self.engine = open_at(self._path, self.clock)
        self.shore.attach(self.engine)

    def run(self, command: commands.Command) -> commands.Reply:
        """Runs a command; blocks say what the engine cannot."""
        return self.shore.ask(self.engine, command)

    def refused(self, command: commands.Command) -> Code:
        reply = self.run(command)
        assert isinstance(reply, commands.Refusal), reply
        return reply.code

    def create(self, name: str, **settings: Any) -> None:
        encoded = streams.Settings(**settings).encode()
        assert isinstance(
            self.run(commands.CreateTable(name=name, kind=Kind.STREAM.number, settings=encoded)),
            commands.Done,
        )

    def append(self, table: str, *rows: Row) -> int:
        """Adds messages; returns the seq of the last one."""
        self.clock.advance(0.001)
        reply = self.run(append(table, *rows))
        assert isinstance(reply, commands.Done), reply
        return reply.seq

    def read(self, table: str, after: int = 0, until: int = 0, count: int = 0) -> commands.Messages:
        reply = self.run(commands.Read(table=table, after=after, until=until, count=count))
        assert isinstance(reply, commands.Messages), reply
        return reply

    def read_all(self, table: str, after: int = 0) -> list[Row]:
        """Reads to the end of one snapshot."""
        found: list[Row] = []
        until = 0
        while True:
            reply = self.read(table, after, until)
            found += rows_of(reply)
            if reply.ended:
                return found
            after, until = reply.after, reply.until

    def subscribe(
        self, table: str, name: str, start: Start = Start.BEGINNING, at: int = 0
    ) -> commands.Position:
        reply = self.run(commands.Subscribe(table=table, name=name, start=start, at=at))
        assert isinstance(reply, commands.Position), reply
        return reply

    def lag(self, table: str, name: str) -> int:
        reply = self.run(commands.Lag(table=table, name=name))
        assert isinstance(reply, commands.Numbers), reply
        assert reply.names.rows() == [b"messages", b"seqs"]
        return reply.values[0]

    def snapshot(self) -> int:
        reply = self.run(commands.OpenSnapshot())
        assert isinstance(reply, commands.Opened), reply
        return reply.snapshot

    def as_of(self, snapshot: int, *found: commands.Command) -> list[commands.Reply]:
        reply = self.run(commands.AsOf(snapshot=snapshot, commands=list(found)))
        assert isinstance(reply, commands.Replies), reply
        return list(reply.replies)

    def seal(self, table: str = "") -> list[Block]:
        """Writes all that is durable to blocks."""
        return self.shore.seal(self.engine, table)

    def tend(self) -> None:
        while self.engine.upkeep():
            pass
        self.engine.sync()

    def pack(self) -> None:
        """Packs until the oldest segment is gone."""
        self.engine.begin_segment()
        first_seq = self.engine.stats()["first_seq"]
        while self.engine.stats()["first_seq"] == first_seq:
            assert self.engine._packer.step()
        self.engine.sync()

    def count(self, tree: int) -> int:
        """Returns how many items a tree of the index has."""
        return len(self.engine.scan_index(tree, b"", None, 100_000))


def append(table: str, *rows: Row) -> commands.Append:
    return append_command(table, [(key.encode(), (value or "").encode()) for key, value in rows])


def set_value(key: str, value: str, timestamp_us: int, **fields: Any) -> commands.Set:
    items = {key.encode(): value.encode()}
    return replace(set_command(items, timestamp_us=timestamp_us, table="kv"), **fields)


def rows_of(reply: commands.Messages) -> list[Row]:
    """Returns keys and values of an answer."""
    return [
        (one.key.decode(), None if one.is_tombstone else one.value.decode()) for one in told(reply)
    ]


def seqs_of(reply: commands.Messages) -> list[int]:
    return [one.seq for one in told(reply)]


def entries_of(reply: commands.Reply) -> dict[str, str]:
    assert isinstance(reply, commands.Page), reply
    pairs = zip(reply.keys.rows(), reply.entries.values.rows(), strict=True)
    return {key.decode(): value.decode() for key, value in pairs}


def batch(found: Sequence[commands.Command]) -> commands.Batch:
    return commands.Batch(commands=list(found))
