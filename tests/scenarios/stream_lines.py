"""The words of scenarios that are about streams, subscribers, snapshots and blocks.

    stream TABLE [mode=latest] [history=off] [rows=N] [retention=S]
    append TABLE KEY VALUE [KEY VALUE...] [as=MARK] [at=S]   erase TABLE KEY...
    read TABLE [reader=NAME] [count=N] [after=MARK]   the next piece for that reader
    subscribe|seek TABLE NAME [from=beginning|end|MARK|S]
    ack TABLE NAME [seq=MARK] [epoch=N] [expected=MARK]      what it has read, if no seq is said
    rest|wake|unsubscribe TABLE NAME                  lag TABLE NAME         subscribers TABLE
    snapshot NAME [for=S]     close NAME              as-of NAME get|range|read ...
    seal [TABLE]              retire                  blocks TABLE

A reader keeps its place; with the name of a subscriber it begins at its mark.  MARK is a name that
an append was given by `as`, and stands for the seq of its last message, or a number; a moment has
an `s` behind it: seconds after the beginning, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from fjord import commands, streams, values
from fjord.columns import Strings
from fjord.kinds import Kind
from fjord.streams import Mode, Start
from tests.unit.engine.shore import told

if TYPE_CHECKING:
    from tests.scenarios.world import Line, World

SECOND_US = 1_000_000


class Readers:
    """Readers with their places, and names for seqs."""

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}  # names of appends -> last seq; names of snapshots
        self._places: dict[tuple[str, str], tuple[int, int]] = {}  # reader -> after, until
        self._marks: dict[tuple[str, str], commands.Position] = {}

    def seq(self, word: str) -> int:
        return self.seqs[word] if word in self.seqs else int(word)

    def place(self, table: str, name: str) -> tuple[int, int]:
        mark = self._marks.get((table, name))
        return self._places.get((table, name), (mark.seq if mark else 0, 0))

    def epoch(self, table: str, name: str) -> int:
        return self._marks[table, name].epoch

    def note(self, line: Line, reply: commands.Reply) -> None:
        """Takes note of what an answer says of a reader, or of a seq."""
        options, words = line.options, line.words
        if isinstance(reply, commands.Messages):
            reader = (words[0], options.get("reader", ""))
            self._places[reader] = (reply.after, 0 if reply.ended else reply.until)
        elif isinstance(reply, commands.Position):
            if line.verb == "seek":
                self._places.pop((words[0], words[1]), None)
            self._marks[words[0], words[1]] = reply
        elif isinstance(reply, commands.Opened):
            self.seqs[words[0]] = reply.snapshot
        elif isinstance(reply, commands.Done) and "as" in options:
            self.seqs[options["as"]] = reply.seq


# -- commands -------------------------------------------------------------------------------------


def _stream(world: World, line: Line) -> commands.Command:
    usual = streams.Settings()
    settings = streams.Settings(
        mode=Mode(line.options.get("mode", "log")),
        history=line.on("history", default=True),
        block_rows=int(line.options.get("rows", usual.block_rows)),
        retention_us=round(float(line.options.get("retention", "0")) * SECOND_US),
    )
    return commands.CreateTable(
        name=line.words[0], kind=Kind.STREAM.number, settings=settings.encode()
    )


def _append(world: World, line: Line) -> commands.Command:
    world.tick_us()
    table, *rest = line.words
    found = [values.encode(json.loads(word)) for word in rest[1::2]]
    keys = [b"" if word == '""' else word.encode() for word in rest[::2]]
    return commands.Append(
        table=table,
        types=bytes([type_ for type_, _ in found]),
        keys=Strings.of(keys),
        values=Strings.of([data for _, data in found]),
        timestamps_us=[world.moment_us(line, "at")] * len(found) if "at" in line.options else None,
    )


def _erase(world: World, line: Line) -> commands.Command:
    world.tick_us()
    return commands.Erase(table=line.words[0], keys=line.keys())


def _read(world: World, line: Line) -> commands.Command:
    after, until = world.readers.place(line.words[0], line.options.get("reader", ""))
    if "after" in line.options:
        after, until = world.readers.seq(line.options["after"]), 0
    count = int(line.options.get("count", "0"))
    return commands.Read(table=line.words[0], after=after, until=until, count=count)


def _start(world: World, line: Line) -> dict[str, int]:
    word = line.options.get("from", "beginning")
    if word in ("beginning", "end"):
        return {"start": Start[word.upper()]}
    if word.endswith("s") and word[:-1].replace(".", "").isdigit():
        line.options["from"] = word[:-1]
        return {"start": Start.TIME, "at": world.moment_us(line, "from")}
    return {"start": Start.SEQ, "at": world.readers.seq(word)}


def _subscriber(kind: Callable[..., commands.Command]) -> Callable[[World, Line], commands.Command]:
    def build(world: World, line: Line) -> commands.Command:
        table, name = line.words
        return kind(table=table, name=name, **_start(world, line))

    return build


def _ack(world: World, line: Line) -> commands.Command:
    table, name = line.words
    options = line.options
    seq = (
        world.readers.seq(options["seq"])
        if "seq" in options
        else world.readers.place(table, name)[0]
    )
    return commands.Acknowledge(
        table=table,
        name=name,
        seq=seq,
        epoch=int(options.get("epoch", world.readers.epoch(table, name))),
        expected=world.readers.seq(options.get("expected", "-1")),
    )


def _as_of(world: World, line: Line) -> commands.Command:
    name, *words = line.words
    options = [f"{name}={value}" for name, value in line.options.items()]
    command = world.build(type(line)(" ".join([*words, *options])))
    if isinstance(command, commands.Read):
        command = commands.Read(table=command.table, after=0, count=command.count)
    return commands.AsOf(snapshot=world.readers.seq(name), commands=[command])


COMMANDS: dict[str, Callable[[World, Line], commands.Command]] = {
    "stream": _stream,
    "append": _append,
    "erase": _erase,
    "read": _read,
    "subscribe": _subscriber(commands.Subscribe),
    "seek": _subscriber(commands.Seek),
    "ack": _ack,
    "rest": lambda world, line: commands.Rest(table=line.words[0], name=line.words[1], asleep=True),
    "wake": lambda world, line: commands.Rest(
        table=line.words[0], name=line.words[1], asleep=False
    ),
    "unsubscribe": lambda world, line: commands.Unsubscribe(
        table=line.words[0], name=line.words[1]
    ),
    "lag": lambda world, line: commands.Lag(table=line.words[0], name=line.words[1]),
    "subscribers": lambda world, line: commands.ListSubscribers(table=line.words[0]),
    "snapshot": lambda world, line: commands.OpenSnapshot(
        lifetime_us=round(float(line.options.get("for", "0")) * SECOND_US)
    ),
    "close": lambda world, line: commands.CloseSnapshot(snapshot=world.readers.seq(line.words[0])),
    "as-of": _as_of,
}


# -- answers --------------------------------------------------------------------------------------


def shown(reply: commands.Reply) -> str | None:
    """Returns what a scenario tells of an answer, if it is one about streams."""
    if isinstance(reply, commands.Messages):
        return "\n".join([*_messages(reply), "end" if reply.ended else "more"])
    if isinstance(reply, commands.Position):
        made = " (new)" if reply.created else ""
        return f"epoch {reply.epoch}{' asleep' if reply.asleep else ''}{made}"
    if isinstance(reply, commands.Subscribers):
        rows = zip(reply.names.rows(), reply.epochs, reply.asleep, strict=True)
        told = [
            f"{name.decode()} epoch {epoch}{' asleep' * asleep}" for name, epoch, asleep in rows
        ]
        return "\n".join(told) or "nothing"
    if isinstance(reply, commands.Opened):
        return "open"
    if isinstance(reply, commands.Numbers) and reply.names.rows() == [b"messages", b"seqs"]:
        return f"{reply.values[0]} messages behind"
    return None


def _messages(reply: commands.Messages) -> list[str]:
    found = []
    for one in told(reply):
        text = "gone" if one.is_tombstone else json.dumps(values.decode(one.type, one.value))
        found.append(f"{one.key.decode() or '-'} {text}")
    return found
