"""What is beside an engine with streams: cold blocks, whoever writes them, and whoever reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from fjord import commands, ops
from fjord.blocks.reader import BlockReader
from fjord.blocks.store import Store
from fjord.blocks.writer import write_blocks
from fjord.columns import Strings
from fjord.commands import Command, Messages, Reply
from fjord.disk import Disk
from fjord.engine import Engine
from fjord.engine.cold import Errand, LazyCold
from fjord.history import Block, SealPlan
from fjord.ops import Opcode

_STORES = itertools.count()


class Message(NamedTuple):
    """A message as a reader gets it."""

    seq: int
    wall_us: int
    type: int  # TOMBSTONE: the key is gone
    key: bytes
    value: bytes

    @property
    def is_tombstone(self) -> bool:
        return self.type == ops.TOMBSTONE


class Shore:
    """A store for blocks, in memory if nothing else is said, and its reader."""

    def __init__(self, store: Store | None = None, disk: Disk | None = None) -> None:
        self.store = store or Store(f"memory://tests-{next(_STORES)}")
        self.cold = BlockReader(self.store)
        self._disk = disk  # where the journal is, if not on that of this machine

    def attach(self, engine: Engine) -> None:
        engine.attach_blocks(self.store.location)

    def ask(self, engine: Engine, command: Command, client: int = 1) -> Reply:
        """Runs a command; blocks say what the engine cannot."""
        errand = Errand(command)
        while True:
            (reply,) = engine.run([errand.command], (client,))
            engine.sync()
            answer = errand.take(reply) or errand.look(LazyCold(lambda: self.cold))
            if answer is not None:
                return answer

    def write(self, engine: Engine, plan: SealPlan) -> list[Block]:
        directory = engine.journal.directory
        return write_blocks(directory, plan, self.store, disk=self._disk)

    def seal(self, engine: Engine, table: str = "") -> list[Block]:
        """Writes all that is durable to blocks."""
        written: list[Block] = []
        for _ in range(100):
            plan = engine.sealing.plan_seal(table, now=True)
            if plan is None:
                return written
            engine.sync()
            blocks = self.write(engine, plan)
            engine.sealing.finish_seal(plan, blocks)
            engine.sync()
            written += blocks
        raise AssertionError("there is always more to seal")

    def retire(self, engine: Engine) -> list[Block]:
        """Lets go what retention does not keep."""
        blocks = engine.sealing.plan_retirement()
        engine.sync()
        self.remove(blocks)
        engine.sealing.finish_retirement(blocks)
        engine.sync()
        return blocks

    def remove(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.store.remove(block.name)


def told(reply: Messages) -> list[Message]:
    """Returns the messages of an answer, one by one."""
    found: list[Message] = []
    columns = zip(reply.first_seqs, reply.walls_us, reply.ops.rows(), strict=True)
    for first, wall_us, data in columns:
        op, _, end = ops.decode(memoryview(data), 0)
        assert end == len(data)
        assert op.opcode in (Opcode.STREAM_APPEND, Opcode.STREAM_MOVE)
        is_moved = op.opcode is Opcode.STREAM_MOVE
        seqs: Any = op.column("row") if is_moved else range(first, first + op.rows)
        walls: Any = op.column("at_us") if is_moved else [wall_us] * op.rows
        rest: Any = [op.column(name) for name in ("type", "key", "value")]
        found += map(Message, seqs, walls, *rest)
    assert len(found) == reply.rows
    return found


def append_command(table: str, rows: Sequence[tuple[bytes, bytes]]) -> commands.Append:
    """Returns an append of keys and values."""
    return commands.Append(
        table=table,
        types=b"\1" * len(rows),
        keys=Strings.of([key for key, _ in rows]),
        values=Strings.of([value for _, value in rows]),
    )
