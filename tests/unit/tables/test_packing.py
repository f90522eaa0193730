"""Packing: what a slice of the journal still has to say, in as few ops as can be."""

from __future__ import annotations

from fjord.columns import Strings
from fjord.commands import Done, Numbered, Set
from fjord.ops import Op, Opcode
from fjord.tables import catalog, clients
from fjord.tables.catalog import TakeOver
from fjord.tables.state import Tree
from fjord.tables.upkeep import Begin, Pack
from tests.unit.tables.world import MASTER, NOW_US, World, done, set_command


def said(world: World) -> list[Opcode]:
    return [op.opcode for op in world.ops()]


def test_single_rows_are_gathered_into_one_op_a_table() -> None:
    world = World()
    for number in range(10):
        world.set({b"%d" % number: number})
        world.set({b"%d" % number: number}, table="u")
    world.pack(len(world.ops()))
    assert said(world) == [Opcode.CREATE_TABLE] * 2 + [Opcode.KV_MOVE] * 2
    assert [op.rows for op in world.ops()[2:]] == [10, 10]
    assert world.get(*[b"%d" % number for number in range(10)]) == list(range(10))
    world.check()


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


def test_a_slice_without_anything_that_holds_writes_nothing() -> None:
    world = World()
    world.set({b"a": 1})
    world.set({b"a": 2}, at=1)
    decision = world.decide(Pack(ops=world.placed()[1:2]))
    assert decision.ops == []
    assert decision.reply == done(3)
    assert world.decide(Pack(ops=[])).ops == []


def test_the_begin_of_the_journal_is_kept_in_the_index() -> None:
    world = World()
    assert catalog.begins(None) == (0, 0)
    assert world.run(Begin(segment=7, seq=2**40)) == done(1)
    assert said(world) == [Opcode.PACKED]
    (data,) = world.get_many(Tree.META, [catalog.BEGINS])
    assert catalog.begins(data) == (7, 2**40)
    assert world.replayed().trees() == world.trees()


def test_takeovers_are_kept_for_ever_with_their_seqs() -> None:
    world = World()
    for number in range(3):
        world.run(TakeOver(master=b"%16d" % number))
        world.set({b"a": number}, at=number)
    before = world.tree(Tree.META)
    world.pack(len(world.ops()))
    world.pack(len(world.ops()))
    assert world.tree(Tree.META) == world.replayed().tree(Tree.META) == before


def test_answers_that_may_be_asked_for_are_kept() -> None:
    world = World()
    command: Set = set_command([(b"a", 1)])
    client = b"c" * 16
    for number in range(1, 4):
        asked = Numbered(command=command, client=client, number=number)
        op = clients.answered_op([asked], [Done(master=MASTER, seq=number)], NOW_US + number)
        assert isinstance(op, Op)
        world.apply(op)
    before = world.trees()
    world.pack(2)
    world.pack(2)
    world.pack(len(world.ops()))
    assert world.trees() == world.replayed().trees() == before
    assert world.ops()[-1].column("client") == Strings.of([client])
