"""The dictionaries that lead from commands and opcodes to what they do."""

from __future__ import annotations

from typing import Any

from fjord import commands
from fjord.columns import Strings
from fjord.commands import Command
from fjord.kinds import Kind
from fjord.ops import Opcode
from fjord.tables import catalog, clients, generations, snapshots, staging
from fjord.tables import upkeep as packing
from fjord.tables.jobs import keep as upkeep
from fjord.tables.kv import keep
from fjord.tables.meaning import MEANING
from fjord.tables.state import Table, Tree
from fjord.tables.streams import history
from tests.unit.tables.world import World

INTERNAL = {
    catalog.TakeOver,
    catalog.Sweep,
    generations.Turn,
    keep.Expire,
    upkeep.EndLeases,
    upkeep.ExpireJobs,
    upkeep.MoveJobs,
    clients.ForgetClients,
    staging.DropStages,
    staging.RunStage,
    staging.ForgetWriter,
    snapshots.EndSnapshots,
    history.BeginSeal,
    history.EndSeal,
    history.Retire,
    history.Gone,
    packing.Pack,
    packing.Begin,
}
# What the engine or the server does, and no table.
ELSEWHERE = {
    commands.Batch,
    commands.Hello,
    commands.Listen,
    commands.ListenJobs,
    commands.Scan,
    commands.SealNow,
    commands.Span,
    commands.Stats,
    commands.Unlisten,
    commands.Use,
}


KNOWN: set[type[Any]] = {row.record for row in commands.FUNCTIONS.values()} | INTERNAL
READS = {one for one in KNOWN if one.row.reads}
FREES = {one for one in KNOWN if one.row.frees}


def is_decided(command: type[Command]) -> bool:
    return command.row.decide.__module__.startswith("fjord.tables.")


def test_every_opcode_has_a_meaning() -> None:
    assert set(MEANING) == set(Opcode)


def test_what_is_due_and_what_is_replaced_stand_in_columns() -> None:
    for opcode, meaning in MEANING.items():
        due = meaning.due[1:] if meaning.due else ()
        assert {*due, *meaning.replaces} <= opcode.position.keys(), opcode


def test_every_command_is_decided_or_done_elsewhere() -> None:
    asked = {row.record for row in commands.FUNCTIONS.values()}
    assert {one for one in asked | INTERNAL if not is_decided(one)} == ELSEWHERE


def test_commands_that_read_are_decided_and_cannot_be_merged() -> None:
    assert all(map(is_decided, READS))
    assert {commands.Set, commands.Touch, catalog.TakeOver}.isdisjoint(READS)
    assert not any(one.row.merge for one in READS)


def test_what_reads_never_writes() -> None:
    world = World()
    world.set({b"a": 1}, expires=10)
    world.touch(b"a", worked=5)
    keys = Strings.of([b"a"])
    world.run(
        commands.CreateTable(name="s", kind=Kind.STREAM.number, settings=b'{"mode":"latest"}')
    )
    world.run(commands.Append(table="s", types=b"\1", keys=keys, values=keys))
    world.run(commands.Subscribe(table="s", name="n", start=1))
    opened = world.run(commands.OpenSnapshot())
    assert isinstance(opened, commands.Opened)
    found: list[Command] = [
        commands.Nop(),
        commands.Get(table="t", keys=keys, skip_worked=True),
        commands.Range(table="t", regex=b"a"),
        commands.Peek(table="j"),
        commands.Find(table="j", keys=keys),
        commands.CountJobs(table="j"),
        commands.ListTables(),
        commands.ListSubscribers(table="s"),
        commands.Lag(table="s", name="n"),
        commands.AsOf(snapshot=opened.snapshot, commands=[commands.Read(table="s", after=0)]),
        commands.ListBlocks(table="s"),
        commands.AskWriter(table="s", writer="w"),
    ]
    found.append(commands.Read(table="s", after=0, once=True))
    assert {type(command) for command in found} == READS
    for command in found:
        decision = world.decide(command)
        assert not decision.ops
        assert decision[2:] == ({}, {})
        assert not isinstance(decision.reply, commands.Refusal)


def test_what_works_on_a_full_disk_is_decided_and_writes() -> None:
    assert all(map(is_decided, FREES))
    assert frozenset({commands.Read}) == FREES & READS  # one that opens a snapshot
    # They make room only after they took some.
    moves = {packing.Pack, upkeep.MoveJobs, staging.RunStage}
    assert INTERNAL - moves < FREES
    assert moves.isdisjoint(FREES)
    assert {commands.Set, commands.Modify, commands.Rename}.isdisjoint(FREES)
    # A spool can wait, and its writers must not use up what is reserved.
    assert commands.Advance not in FREES
    assert {commands.Delete, commands.Unlock, commands.DropTable} < FREES


def test_trees_are_numbered_from_0_without_gaps() -> None:
    assert [tree.value for tree in Tree] == list(range(len(Tree)))


def test_the_prefixes_of_tables_sort_as_their_ids_do() -> None:
    ids = [1, 2, 255, 256, 65_536, 2**32 - 1]
    prefixes = [Table(id=number, name="t", kind=Kind.KV).prefix for number in ids]
    assert prefixes == sorted(prefixes)
    assert {len(prefix) for prefix in prefixes} == {4}
