"""The catalog: tables come into being with their first write; every start is a takeover."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.errors import Code
from fjord.kinds import Kind
from fjord.ops import Op, Opcode
from fjord.tables import catalog, clients, generations, snapshots, staging
from fjord.tables import upkeep as packing
from fjord.tables.catalog import TakeOver
from fjord.tables.jobs import keep as upkeep
from fjord.tables.kv import keep
from fjord.tables.meaning import MEANING
from fjord.tables.state import Table, Tree
from fjord.tables.streams import history
from fjord.tables.upkeep import Begin
from tests.unit.tables.world import MASTER, MISSING, NOW_US, World, code_of, done, set_command

# -- tables ---------------------------------------------------------------------------------------


def test_a_table_comes_into_being_with_its_first_write() -> None:
    world = World()
    assert world.get(b"a") == [MISSING]
    assert world.tables == {}
    assert world.set({b"a": 1}) == done(2)
    assert world.tables == {"t": Table(id=1, name="t", kind=Kind.KV)}
    assert [op.opcode for op in world.ops()] == [Opcode.CREATE_TABLE, Opcode.KV_INSERT]


@pytest.mark.parametrize("name", ["", "-a", "a.b", "a/b", "..", "n" * 129, "\ufffd"])
def test_a_bad_name_is_refused_by_every_command(name: str) -> None:
    world = World()
    keys = Strings.of([b"k"])
    assert code_of(world.set({b"k": 1}, table=name)) is Code.BAD_NAME
    refused = world.run(commands.Delete(table=name, keys=keys, timestamp_us=NOW_US))
    assert code_of(refused) is Code.BAD_NAME
    assert code_of(world.run(commands.Get(table=name, keys=keys))) is Code.BAD_NAME
    assert world.journal == b""


def test_the_number_of_tables_is_bounded() -> None:
    world = World()
    world.tables = {
        f"t{number}": Table(id=number, name=f"t{number}", kind=Kind.KV)
        for number in range(1, limits.TABLES_MAX + 1)
    }
    refused = world.set({b"a": 1}, table="one_more")
    assert code_of(refused) is Code.QUOTA
    assert world.journal == b""
    assert code_of(world.set({b"a": 1}, table="t1")) is None


def test_every_command_refuses_a_table_of_another_kind() -> None:
    world = World()
    world.tables = {"t": Table(id=1, name="t", kind=Kind.JOBS)}
    keys = Strings.of([b"k"])
    for reply in (
        world.set({b"k": 1}),
        world.delete(b"k"),
        world.run(commands.Get(table="t", keys=keys)),
    ):
        assert code_of(reply) is Code.WRONG_KIND
        assert "table t is a jobs table" in str(reply)
    assert world.journal == b""


# -- takeovers ------------------------------------------------------------------------------------


def takeovers(world: World) -> list[tuple[bytes, int]]:
    start, stop = catalog.takeover_range()
    items = [item for item in world.trees()[Tree.META] if start <= item[0] < stop]
    return catalog.takeovers(items)


def test_every_writer_is_kept_with_the_seq_that_it_found() -> None:
    world = World()
    assert takeovers(world) == []
    first = TakeOver(master=b"1" * 16)
    assert world.run(first) == done(1)
    world.set({b"a": 1, b"b": 2})
    world.run(TakeOver(master=b"2" * 16))
    world.run(TakeOver(master=b"3" * 16))
    assert takeovers(world) == [(b"1" * 16, 0), (b"2" * 16, 4), (b"3" * 16, 5)]
    assert takeovers(world.replayed()) == takeovers(world)


# -- tables by command ----------------------------------------------------------------------------


def test_a_table_is_created_with_its_settings() -> None:
    world = World()
    assert world.run(
        commands.CreateTable(name="t", kind=Kind.KV.number, settings=b"{...}")
    ) == done(1)
    assert world.tables == {"t": Table(id=1, name="t", kind=Kind.KV, settings=b"{...}")}
    assert world.replayed().tables == world.tables


def test_creating_the_same_table_again_is_no_error() -> None:
    world = World()
    command = commands.CreateTable(name="t", kind=Kind.KV.number, settings=b"{}")
    world.run(command)
    before = world.journal
    assert world.run(command) == done(1)
    assert world.journal == before


def test_a_table_that_is_there_with_other_settings_is_refused() -> None:
    world = World()
    world.run(commands.CreateTable(name="t", kind=Kind.KV.number, settings=b"{}"))
    other = commands.CreateTable(name="t", kind=Kind.KV.number, settings=b"")
    assert code_of(world.run(other)) is Code.EXISTS


@pytest.mark.parametrize("kind", [0, 4, 255, -1])
def test_a_kind_that_does_not_exist_is_refused(kind: int) -> None:
    assert code_of(World().run(commands.CreateTable(name="t", kind=kind))) is Code.WRONG_KIND


def test_settings_are_bounded() -> None:
    most = bytes(limits.SETTINGS_BYTES_MAX)
    world = World()
    assert code_of(world.run(commands.CreateTable(name="t", kind=1, settings=most))) is None
    larger = commands.CreateTable(name="u", kind=1, settings=most + b"x")
    assert code_of(world.run(larger)) is Code.TOO_LARGE


@pytest.mark.parametrize("name", ["", "-a", "a.b", "n" * 129])
def test_tables_have_good_names(name: str) -> None:
    world = World()
    assert code_of(world.run(commands.CreateTable(name=name, kind=1))) is Code.BAD_NAME
    assert code_of(world.run(commands.DropTable(name=name))) is Code.BAD_NAME
    expected = Code.BAD_NAME if name else None
    assert code_of(world.run(commands.ListTables(name=name))) is expected


def test_a_dropped_table_loses_its_name_at_once() -> None:
    world = World()
    world.set({b"a": 1}, table="t")
    world.set({b"a": 1}, table="u")
    assert world.run(commands.DropTable(name="t")) == done(5)
    assert list(world.tables) == ["u"]
    assert catalog.dropped(world) == {1: b"t"}
    assert world.replayed().trees() == world.trees()
    assert code_of(world.run(commands.DropTable(name="t"))) is Code.NOT_FOUND


def test_tables_that_are_being_purged_count_among_all() -> None:
    world = World()
    world.tables = {
        f"t{number}": Table(id=number, name=f"t{number}", kind=Kind.KV)
        for number in range(1, limits.TABLES_MAX)
    }
    world.put_many(Tree.META, [(b"dropped" + (20_000).to_bytes(4, "big"), b"gone")])
    assert code_of(world.set({b"a": 1}, table="new")) is Code.QUOTA


def test_tables_are_listed_by_name() -> None:
    world = World()
    world.run(commands.CreateTable(name="z", kind=1, settings=b"{}"))
    world.set({b"a": 1}, table="a")
    reply = world.run(commands.ListTables())
    assert reply == commands.TableList(
        names=Strings.of([b"a", b"z"]), ids=[2, 1], kinds=b"\1\1", settings=Strings.of([b"", b"{}"])
    )
    one = world.run(commands.ListTables(name="z"))
    assert isinstance(one, commands.TableList)
    assert (one.names.rows(), one.ids) == ([b"z"], [1])
    assert code_of(world.run(commands.ListTables(name="none"))) is Code.NOT_FOUND
    assert World().run(commands.ListTables()) == commands.TableList(
        names=Strings.of([]), ids=[], kinds=b"", settings=Strings.of([])
    )


def test_of_lost_seqs_only_the_loss_is_known() -> None:
    world = World()
    world.set({b"a": 1})
    before = world.trees()
    world.apply(Op(Opcode.LOST, catalog.NO_TABLE, 5, ()))
    after = world.trees()
    assert after[Tree.META] == [*before[Tree.META], (catalog.LOST, b"")]
    del before[Tree.META], after[Tree.META]
    assert after == before
    assert world.next_seq == 8
    assert world.replayed().trees() == world.trees()


# -- after a loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [1, 255, 256, 70_000])
def test_a_table_made_after_a_loss_has_an_id_that_no_op_had(largest: int) -> None:
    """The op that made a table may be among those that were lost; its rows may be not."""
    world = World()
    world.apply(Op(Opcode.LOST, catalog.NO_TABLE, 5, ()))
    world.put_many(Tree.META, [catalog.largest_table(largest)])
    world.set({b"a": 1}, table="t")
    assert world.tables["t"].id == largest + 1
    world.run(commands.CreateTable(name="u", kind=1))
    assert world.tables["u"].id == largest + 2
    world.run(commands.DropTable(name="u"))
    world.set({b"a": 1}, table="v")
    assert world.tables["v"].id == largest + 3


def test_ids_that_were_given_out_since_the_loss_count_too() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.set({b"a": 1}, table=name)
    world.put_many(Tree.META, [catalog.largest_table(2)])
    world.set({b"a": 1}, table="d")
    assert world.tables["d"].id == 4


# -- what leads from commands and opcodes to what they do -----------------------------------------

INTERNAL = {
    *(catalog.TakeOver, catalog.Sweep, generations.Turn, keep.Expire, upkeep.EndLeases),
    *(upkeep.ExpireJobs, upkeep.MoveJobs, clients.ForgetClients, staging.DropStages),
    *(staging.RunStage, staging.ForgetWriter, snapshots.EndSnapshots, history.BeginSeal),
    *(history.EndSeal, history.Retire, history.Gone, packing.Pack, packing.Begin),
}
# What the engine or the server does, and no table.
ELSEWHERE = {
    *(commands.Batch, commands.Hello, commands.Listen, commands.ListenJobs, commands.Scan),
    *(commands.SealNow, commands.Span, commands.Stats, commands.Unlisten, commands.Use),
}


KNOWN: set[type[Any]] = {row.record for row in commands.FUNCTIONS.values()} | INTERNAL
READS = {one for one in KNOWN if one.row.reads}
FREES = {one for one in KNOWN if one.row.frees}


def is_decided(command: type[commands.Command]) -> bool:
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
    found: list[commands.Command] = [
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


# -- packing --------------------------------------------------------------------------------------


def said(world: World) -> list[Opcode]:
    return [op.opcode for op in world.ops()]


def test_a_loss_is_remembered_for_ever_in_one_row() -> None:
    world = World()
    world.set({b"a": 1})
    world.apply(Op(Opcode.LOST, catalog.NO_TABLE, 30, ()))
    for _ in range(3):
        world.pack(len(world.ops()))
        lost = [op for op in world.ops() if op.opcode is Opcode.LOST]
        assert [(op.table, op.rows) for op in lost] == [(catalog.NO_TABLE, 1)]
        assert catalog.LOST in world.tree(Tree.META)
        assert world.replayed().trees() == world.trees()
        world.check()
    assert world.get(b"a") == [1]


def test_the_begin_of_the_journal_is_kept_in_the_index() -> None:
    world = World()
    assert catalog.begins(None) == (0, 0)
    assert world.run(Begin(segment=7, seq=2**40)) == done(1)
    assert said(world) == [Opcode.PACKED]
    (data,) = world.get_many(Tree.META, [catalog.BEGINS])
    assert catalog.begins(data) == (7, 2**40)
    assert world.replayed().trees() == world.trees()


def test_answers_that_may_be_asked_for_are_kept() -> None:
    world = World()
    command: commands.Set = set_command([(b"a", 1)])
    client = b"c" * 16
    for number in range(1, 4):
        asked = commands.Numbered(command=command, client=client, number=number)
        op = clients.answered_op(
            [asked], [commands.Done(master=MASTER, seq=number)], NOW_US + number
        )
        assert isinstance(op, Op)
        world.apply(op)
    before = world.trees()
    world.pack(2)
    world.pack(2)
    world.pack(len(world.ops()))
    assert world.trees() == world.replayed().trees() == before
    assert world.ops()[-1].column("client") == Strings.of([client])


def test_the_last_id_is_the_end() -> None:
    world = World()
    world.put_many(Tree.META, [(b"dropped" + b"\xff" * 4, b"gone")])
    assert code_of(world.set({b"a": 1})) is Code.QUOTA
