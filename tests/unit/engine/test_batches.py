from __future__ import annotations

import copy
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fjord import commands, jobs, limits
from fjord.columns import Strings
from fjord.engine import Engine
from fjord.engine.group import Group
from fjord.errors import Code
from fjord.jobs import Period
from fjord.kinds import Kind
from fjord.testing import SimClock
from tests.unit.engine.job_records import push
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import open_at, read, set_command
from tests.unit.tables.world import code_of

CLIENT = b"c" * 16


def add(key: bytes, number: int, clock: SimClock) -> commands.Modify:
    return commands.Modify(
        table="default",
        key=key,
        change=commands.Change.ADD,
        operand=number.to_bytes(8, "little", signed=True),
        timestamp_us=clock.wall_us(),
    )


def integer(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def set_integer(key: bytes, number: int, clock: SimClock) -> commands.Set:
    command = set_command({key: integer(number)}, timestamp_us=clock.wall_us())
    return replace(command, types=b"\3")


def run(engine: Engine, *wanted: commands.Command, number: int = 0) -> commands.Reply:
    batch: commands.Command = commands.Batch(commands=wanted)
    if number:
        batch = commands.Numbered(command=batch, client=CLIENT, number=number)
    (reply,) = engine.run([batch])
    engine.sync()
    return reply


def answered(reply: object) -> bytes:
    """Returns the value that the one command of a batch was answered with."""
    assert isinstance(reply, commands.Replies)
    (entries,) = reply.replies
    assert isinstance(entries, commands.Entries)
    return entries.values[0]


@pytest.mark.req("KY-17")
def test_a_refusal_leaves_nothing_of_the_whole_batch(engine: Engine, clock: SimClock) -> None:
    now_us = clock.wall_us()
    run(engine, set_command({b"a": b"1"}, timestamp_us=now_us))
    before = stored(engine)
    reply = run(
        engine,
        set_command({b"a": b"2"}, timestamp_us=now_us + 1),
        set_command({b"x": b"2"}, timestamp_us=now_us + 1, table="new"),
        commands.Lock(table="default", keys=Strings.of([b"a"])),
        volatile(b"m", clock),
        add(b"a", 1, clock),
    )
    assert isinstance(reply, commands.Refusal)
    assert reply.code is Code.TYPE_MISMATCH
    assert "command 5" in reply.text
    assert stored(engine) == before
    assert read(engine, b"a", b"m") == [b"1", None]


def stored(engine: Engine) -> dict[str, int]:
    """Returns what the engine holds; other processes change what the disk has left."""
    return {name: one for name, one in engine.stats().items() if name != "free_bytes"} | {
        "tables": len(engine.tables)
    }


PLAIN = (int, list, dict, set)


def plain_parts(group: Group) -> dict[str, object]:
    """Returns what a group has gathered, but for what it reads and writes by."""
    found: dict[str, object] = {"counts": dict(group.counts.changed)}
    notes = {one.name: getattr(group.notes, one.name) for one in fields(group.notes)}
    parts = (vars(group) | notes).items()
    return found | {name: copy.copy(one) for name, one in parts if isinstance(one, PLAIN)}


def test_a_refusal_leaves_nothing_of_what_a_group_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch changes goes back to what the commands before it in the group have left."""
    seen: list[dict[str, object]] = []
    begin, drop = Group.begin_batch, Group.drop_batch

    def begin_batch(group: Group) -> None:
        seen.append(plain_parts(group))
        begin(group)

    def drop_batch(group: Group) -> None:
        seen.append(plain_parts(group))
        drop(group)
        seen.append(plain_parts(group))

    monkeypatch.setattr(Group, "begin_batch", begin_batch)
    monkeypatch.setattr(Group, "drop_batch", drop_batch)
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    create = commands.CreateTable(name="log", kind=Kind.STREAM.number)
    (_, opened) = engine.run([create, commands.OpenSnapshot()])
    assert isinstance(opened, commands.Opened)
    engine.watched.add("default", b"a")
    now_us = clock.wall_us()
    hourly = jobs.Settings(period=Period.HOUR)
    changes: list[commands.Command] = [
        set_command({b"a": b"2"}, timestamp_us=now_us),
        append_command("log", [(b"", b"message")]),
        push(b"key", now_us=now_us, table="jobs"),
        commands.Bury(table="jobs", keys=Strings.of([b"key"]), reason=b""),
        commands.CreateTable(name="hourly", kind=Kind.JOBS.number, settings=hourly.encode()),
    ]
    ends: list[commands.Command] = [
        commands.CloseSnapshot(snapshot=opened.snapshot),
        commands.DropTable(name="log"),
    ]
    batch = commands.Batch(commands=[*changes, *ends, add(b"a", 1, clock)])
    replies = engine.run([changes[0], changes[2], batch])
    assert isinstance(replies[-1], commands.Refusal), replies
    assert "command 8" in replies[-1].text
    before, during, after = seen
    touched = {name for name in before if before[name] != during[name]}
    assert touched >= {
        *("appended", "arrivals", "body_bytes", "changed", "counts", "deaths", "seen"),
        *("generations", "last_seqs", "live_bytes", "next_seq", "ops", "rows", "snapshots"),
        *("table_rows", "tables"),
    }
    assert {name: after[name] for name in touched} == {name: before[name] for name in touched}


def volatile(key: bytes, clock: SimClock) -> commands.Set:
    return replace(set_command({key: b"m"}, timestamp_us=clock.wall_us()), persist=False)


@pytest.mark.parametrize("is_kept_before", [False, True])
def test_a_refusal_leaves_what_others_of_its_group_did_in_memory(
    engine: Engine, clock: SimClock, *, is_kept_before: bool
) -> None:
    now_us = clock.wall_us()
    lock = commands.Lock(table="default", keys=Strings.of([b"locked"]))
    first: commands.Command = volatile(b"first", clock)
    refused = commands.Batch(commands=[volatile(b"gone", clock), add(b"none", 1, clock)])
    wanted = [
        commands.Batch(commands=[first, first]) if is_kept_before else first,
        volatile(b"second", clock),
        lock,
        refused,
    ]
    replies = engine.run(wanted, (1, 1, 1, 2))
    assert [isinstance(reply, commands.Refusal) for reply in replies] == [False, False, False, True]
    assert read(engine, b"first", b"second", b"gone") == [b"m", b"m", None]
    write = set_command({b"locked": b"x"}, timestamp_us=now_us)
    (refusal,) = engine.run([write], (2,))
    assert code_of(refusal) is Code.LOCKED


def test_what_a_batch_comes_to_is_bounded(engine: Engine, clock: SimClock) -> None:
    """A batch of small commands may rewrite large values."""
    now_us = clock.wall_us()
    text = b"y" * limits.VALUE_BYTES_MAX
    engine.run([set_command({b"large": text}, timestamp_us=now_us)])
    wanted = [
        commands.Modify(
            table="default",
            key=b"large",
            change=commands.Change.TRUNCATE,
            operand=integer(limits.VALUE_BYTES_MAX - number),
            timestamp_us=now_us,
        )
        for number in range(40)
    ]
    reply = run(engine, *wanted)
    assert code_of(reply) is Code.TOO_LARGE
    assert read(engine, b"large") == [text]
    assert isinstance(run(engine, *wanted[:20]), commands.Replies)


def test_a_numbered_batch_is_applied_once_also_after_a_restart(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    engine.run([set_integer(b"n", 0, clock)])
    assert answered(run(engine, add(b"n", 1, clock), number=7)) == integer(1)
    assert answered(run(engine, add(b"n", 1, clock), number=7)) == integer(1)
    engine.close()
    engine = open_at(tmp_path, clock)
    assert answered(run(engine, add(b"n", 1, clock), number=7)) == integer(1)
    assert read(engine, b"n") == [integer(1)]
