"""What the words of a scenario mean: an engine on a simulated disk, asked in plain lines.

    set TABLE KEY VALUE [at=S] [ttl=S] [expires=S] [overwrite=off] [persist=off] [also=K,K]
    get TABLE KEY...          probe TABLE KEY...      touch TABLE KEY... [expires=S]
    take TABLE KEY... for=S   delete TABLE KEY... [at=S] [purge=on]
    add|flip|truncate TABLE KEY [OPERAND]             rename TABLE KEY TO [overwrite=on]
    lock|unlock TABLE KEY [by=N]     gone N           range TABLE FROM TO [count=N] [match=RE]
    tables    create NAME     drop NAME
    batch ... end             commands in between are one batch [number=N client=C]
    wait S                    time passes            upkeep      what is due is done
    clock S                   the wall clock is set, so many seconds ahead or back
    crash     power-cut       restart                segment     another segment begins
    pack                      the oldest segment goes, if it may
    ops                       tells the ops that were written since the last time

Times are seconds after the beginning; values are JSON.  The words for jobs are in `job_lines`,
those for streams, snapshots and blocks in `stream_lines`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from fjord import commands, ops, values
from fjord.columns import Strings
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.index.memory import MemoryIndexes
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.ops import Op
from fjord.testing import SimClock, SimDisk
from tests.scenarios import job_lines, stream_lines
from tests.unit.engine.shore import Shore

_HIDDEN = frozenset({ops.Opcode.TAKEOVER})


class Line:
    """A line of a scenario: a verb, words, and options."""

    def __init__(self, text: str) -> None:
        parts = shlex.split(text, posix=False)
        self.verb: str = parts[0]
        self.words: list[str] = [part for part in parts[1:] if not _is_option(part)]
        self.options: dict[str, str] = dict(
            part.split("=", 1) for part in parts[1:] if _is_option(part)
        )

    def on(self, name: str, *, default: bool) -> bool:
        return {"on": True, "off": False}[self.options.get(name, "on" if default else "off")]

    def keys(self, start: int = 1) -> Strings:
        return Strings.of([key_of(word) for word in self.words[start:]])


def key_of(word: str) -> bytes:
    """Returns the key that a word stands for; two quotes are the empty one."""
    return b"" if word == '""' else word.encode()


def _is_option(part: str) -> bool:
    name, found, _ = part.partition("=")
    return bool(found) and name.isalpha() and not part.startswith('"')


class World:
    """An engine that is told what to do line by line."""

    def __init__(self) -> None:
        self._disk = SimDisk()
        self._clock = SimClock()
        self._indexes = MemoryIndexes(TREE_COUNT)
        self._begin_us = self._clock.wall_us()
        self._shore = Shore(disk=self._disk)
        self._engine = self._open()
        self._told_seq = 0
        self._batch: tuple[Line, list[commands.Command]] | None = None
        self.hands: job_lines.Hands = job_lines.Hands()
        self.readers: stream_lines.Readers = stream_lines.Readers()

    def answer(self, text: str) -> str:
        line = Line(text)
        if line.verb in _DOES:
            return _DOES[line.verb](self, line)
        command = self.build(line)
        if self._batch is not None:
            self._batch[1].append(command)
            return ""
        reply = self.ask(command, int(line.options.get("by", "1")))
        if isinstance(reply, commands.Taken) and reply.first_xid:
            self.hands.note(line, reply)
        self.readers.note(line, reply)
        return _shown(reply, self._begin_us, line.words[1:])

    # -- what a line does -------------------------------------------------------------------------

    def begin_batch(self, line: Line) -> str:
        self._batch = (line, [])
        return ""

    def end_batch(self, line: Line) -> str:
        assert self._batch is not None
        (head, found), self._batch = self._batch, None
        client = head.options.get("client", "").encode().ljust(16, b"-")
        number = int(head.options.get("number", "0"))
        batch: commands.Command = commands.Batch(commands=found)
        if number:
            batch = commands.Numbered(command=batch, client=client, number=number)
        return _shown(self.ask(batch), self._begin_us)

    def wait(self, line: Line) -> str:
        self._clock.advance(float(line.words[0]))
        return ""

    def set_clock(self, line: Line) -> str:
        self._clock.jump(float(line.words[0]))
        return ""

    def upkeep(self, line: Line) -> str:
        while self._engine.upkeep():
            pass
        self._engine.sync()
        return ""

    def gone(self, line: Line) -> str:
        self._engine.release(int(line.words[0]))
        return ""

    def crash(self, line: Line) -> str:
        self._disk.process_crash()
        self._engine = self._open()
        return ""

    def power_cut(self, line: Line) -> str:
        self._disk.power_cut()
        self._indexes.drop()
        self._engine = self._open()
        return ""

    def restart(self, line: Line) -> str:
        self._engine.close()
        self._engine = self._open()
        return ""

    def begin_segment(self, line: Line) -> str:
        self._engine.begin_segment()
        return ""

    def pack(self, line: Line) -> str:
        """Packs the oldest segment, and says whether it is gone."""
        before = self._engine.stats()["first_seq"]
        while self._engine.stats()["first_seq"] == before and self._engine._packer.step():
            self._engine.sync()
        self._engine.sync()
        return "packed" if self._engine.stats()["first_seq"] > before else "it stays"

    def seal(self, line: Line) -> str:
        self._shore.attach(self._engine)
        return f"{len(self._shore.seal(self._engine, ''.join(line.words)))} blocks"

    def retire(self, line: Line) -> str:
        return f"{len(self._shore.retire(self._engine))} blocks"

    def tell_blocks(self, line: Line) -> str:
        blocks = self._engine.sealing.blocks(line.words[0])
        return "\n".join(f"{block.rows} rows" for block in blocks) or "nothing"

    def tell_ops(self, line: Line) -> str:
        """Tells the ops of a journal as it is on the disk now, from where it was told last."""
        self._engine.sync()
        journal = Journal(self._disk, "/data/journal")
        told = []
        for located in journal.frames(
            max(self._told_seq + 1, journal.first_seq), durable_seq=self._engine.durable_seq
        ):
            told += [
                f"{place.seq} {_shown_op(op, self._begin_us)}"
                for op, place in located.ops()
                if op.opcode not in _HIDDEN
            ]
        self._told_seq = self._engine.durable_seq
        return "\n".join(told)

    # -- inside -----------------------------------------------------------------------------------

    def moment_us(self, line: Line, name: str) -> int:
        """Returns the wall time that an option names in seconds after the beginning, 0 if none."""
        text = line.options.get(name)
        return 0 if text is None else self._begin_us + round(float(text) * 1_000_000)

    def stamp_us(self, line: Line) -> int:
        return self.moment_us(line, "at") if "at" in line.options else self.tick_us()

    def tick_us(self) -> int:
        """Lets a millisecond pass, so that no two commands have one date."""
        self._clock.advance(0.001)
        return self._clock.wall_us()

    def later_us(self, line: Line, name: str) -> int:
        text = line.options.get(name)
        return 0 if text is None else self._clock.wall_us() + round(float(text) * 1_000_000)

    def ask(self, command: commands.Command, client: int = 1) -> commands.Reply:
        """Runs a command; its answer may be told."""
        return self._shore.ask(self._engine, command, client)

    def build(self, line: Line) -> commands.Command:
        """Some verbs mean one thing for jobs and another for values."""
        if line.verb in stream_lines.COMMANDS:
            return stream_lines.COMMANDS[line.verb](self, line)
        table = self._engine.tables.get(line.words[0]) if line.words else None
        is_jobs = table is not None and table.kind is Kind.JOBS
        if line.verb in job_lines.COMMANDS and (is_jobs or line.verb not in _COMMANDS):
            return job_lines.COMMANDS[line.verb](self, line)
        return _COMMANDS[line.verb](self, line)

    def _open(self) -> Engine:
        return open_engine(
            "/data",
            EngineSettings(
                disk=self._disk, clock=self._clock, indexes=self._indexes, rebuild_rows=100
            ),
        )


# -- commands -------------------------------------------------------------------------------------


def _set(world: World, line: Line) -> commands.Command:
    type_, data = values.encode(json.loads(line.words[2]))
    also = line.options.get("also")
    return commands.Set(
        table=line.words[0],
        keys=Strings.of([line.words[1].encode()]),
        types=bytes([type_]),
        values=Strings.of([data]),
        timestamps_us=[world.stamp_us(line)],
        expires_at_us=world.moment_us(line, "expires"),
        ttl_us=round(float(line.options.get("ttl", "0")) * 1_000_000),
        overwrite=line.on("overwrite", default=True),
        persist=line.on("persist", default=True),
        also=None if also is None else Strings.of([key.encode() for key in also.split(",") if key]),
    )


def _delete(world: World, line: Line) -> commands.Command:
    return commands.Delete(
        table=line.words[0],
        keys=line.keys(),
        timestamp_us=world.stamp_us(line),
        purge=line.on("purge", default=False),
    )


def _touch(world: World, line: Line) -> commands.Command:
    return commands.Touch(
        table=line.words[0],
        keys=line.keys(),
        extend=True,
        expires_at_us=world.moment_us(line, "expires"),
    )


def _take(world: World, line: Line) -> commands.Command:
    until_us = world.later_us(line, "for")
    return commands.Touch(table=line.words[0], keys=line.keys(), worked_until_us=until_us)


def _modify(change: commands.Change) -> Callable[[World, Line], commands.Command]:
    def build(world: World, line: Line) -> commands.Command:
        operand = json.loads(line.words[2]) if len(line.words) > 2 else 0
        type_, data = values.encode(operand)
        return commands.Modify(
            table=line.words[0],
            key=line.words[1].encode(),
            change=change,
            operand=data,
            operand_type=type_,
            timestamp_us=world.stamp_us(line),
        )

    return build


def _rename(world: World, line: Line) -> commands.Command:
    table, key, to = line.words
    return commands.Rename(
        table=table,
        key=key.encode(),
        to=to.encode(),
        timestamp_us=world.stamp_us(line),
        overwrite=line.on("overwrite", default=False),
    )


def _range(world: World, line: Line) -> commands.Command:
    table, *bounds = line.words
    start, stop = [*bounds, "", ""][:2]
    return commands.Range(
        table=table,
        start=start.encode(),
        stop=stop.encode(),
        count=int(line.options.get("count", "0")),
        regex=line.options.get("match", "").encode(),
    )


_COMMANDS: dict[str, Callable[[World, Line], commands.Command]] = {
    "set": _set,
    "get": lambda world, line: commands.Get(table=line.words[0], keys=line.keys()),
    "probe": lambda world, line: commands.Get(
        table=line.words[0], keys=line.keys(), with_data=False
    ),
    "touch": _touch,
    "take": _take,
    "delete": _delete,
    "add": _modify(commands.Change.ADD),
    "flip": _modify(commands.Change.NOT),
    "truncate": _modify(commands.Change.TRUNCATE),
    "rename": _rename,
    "lock": lambda world, line: commands.Lock(table=line.words[0], keys=line.keys()),
    "unlock": lambda world, line: commands.Unlock(table=line.words[0], keys=line.keys()),
    "range": _range,
    "tables": lambda world, line: commands.ListTables(),
    "create": lambda world, line: commands.CreateTable(name=line.words[0], kind=Kind.KV.number),
    "drop": lambda world, line: commands.DropTable(name=line.words[0]),
}

_DOES: dict[str, Callable[[World, Line], str]] = {
    "batch": World.begin_batch,
    "end": World.end_batch,
    "wait": World.wait,
    "clock": World.set_clock,
    "upkeep": World.upkeep,
    "gone": World.gone,
    "crash": World.crash,
    "power-cut": World.power_cut,
    "restart": World.restart,
    "segment": World.begin_segment,
    "pack": World.pack,
    "seal": World.seal,
    "retire": World.retire,
    "blocks": World.tell_blocks,
    "ops": World.tell_ops,
}


# -- answers --------------------------------------------------------------------------------------


def _shown(reply: commands.Reply, begin_us: int, words: Sequence[str] = ()) -> str:
    if isinstance(reply, commands.Refusal):
        return f"{reply.code}: {reply.text}"
    told = stream_lines.shown(reply) or job_lines.shown(reply, begin_us, words)
    if told is not None:
        return told
    if isinstance(reply, commands.Done):
        return "done"
    if isinstance(reply, commands.Entries):
        return "\n".join(_shown_entry(reply, row, begin_us) for row in range(len(reply.types)))
    if isinstance(reply, commands.Page):
        rows = [
            f"{key.decode()} = {_shown_entry(reply.entries, row, begin_us)}"
            for row, key in enumerate(reply.keys.rows())
        ]
        more = [f"more from {reply.next_key.decode()}"] if reply.next_key else []
        return "\n".join([*rows, *more]) or "nothing"
    if isinstance(reply, commands.TableList):
        return "\n".join(name.decode() for name in reply.names) or "nothing"
    assert isinstance(reply, commands.Replies)
    return "\n".join(_shown(one, begin_us) for one in reply.replies)


def _shown_entry(entries: commands.Entries, row: int, begin_us: int) -> str:
    type_ = entries.types[row]
    if type_ == commands.Entries.MISSING:
        return "missing"
    data = entries.values[row]
    shown = (
        json.dumps(values.decode(type_, data)) if data or type_ in (0, 1, 2) else f"type {type_}"
    )
    if entries.expires_at_us[row]:
        shown += f" expires={_seconds(entries.expires_at_us[row], begin_us)}"
    state = entries.states[row]
    shown += " locked" if state & commands.Entries.LOCKED else ""
    return shown + (" worked-on" if state & commands.Entries.WORKED_ON else "")


def _shown_op(op: Op, begin_us: int) -> str:
    names = [name for name, _ in op.opcode.columns]
    rows = []
    for row in range(op.rows):
        shown = {
            name: _shown_field(name, column[row], begin_us)
            for name, column in zip(names, op.columns, strict=True)
        }
        rows.append(" ".join(f"{name}={value}" for name, value in shown.items() if value))
    return f"{op.opcode.name} table={op.table} " + " | ".join(rows)


def _shown_field(name: str, value: Any, begin_us: int) -> str:
    if name == "answer":
        return f"{len(value)} bytes"
    if isinstance(value, bytes):
        return ascii(value.decode("latin-1"))[1:-1]
    if not value or name in ("lease_us", "freed"):
        return ""
    if name in ("ttl_us", "worked_until_us", "buried_us"):
        return f"{value / 1_000_000:g}"
    return _seconds(value, begin_us) if name.endswith("_us") else str(value)


def _seconds(moment_us: int, begin_us: int) -> str:
    return f"{(moment_us - begin_us) / 1_000_000:g}"
