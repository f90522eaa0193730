"""The catalog: tables come into being with their first write; every start is a takeover."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import CreateTable, Delete, DropTable, Get, ListTables, Nop, TableList
from fjord.errors import Code
from fjord.kinds import Kind
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.catalog import TakeOver
from fjord.tables.state import Table, Tree
from tests.unit.tables.world import MISSING, NOW_US, World, code_of, done


def test_a_nop_does_nothing_and_tells_where_the_journal_is() -> None:
    world = World()
    world.set({b"a": 1})
    before = world.trees()
    assert world.run(Nop()) == done(2)
    assert world.trees() == before
    assert len(world.ops()) == 2


# -- tables ---------------------------------------------------------------------------------------


def test_a_table_comes_into_being_with_its_first_write() -> None:
    world = World()
    assert world.get(b"a") == [MISSING]
    assert world.tables == {}
    assert world.set({b"a": 1}) == done(2)
    assert world.tables == {"t": Table(id=1, name="t", kind=Kind.KV)}
    assert [op.opcode for op in world.ops()] == [Opcode.CREATE_TABLE, Opcode.KV_INSERT]


def test_tables_get_ascending_ids_and_keep_apart() -> None:
    world = World()
    for name in ("z", "a", "m"):
        world.set({b"key": name}, table=name)
    assert {table.name: table.id for table in world.tables.values()} == {"z": 1, "a": 2, "m": 3}
    assert [world.get(b"key", table=name) for name in ("a", "m", "z")] == [["a"], ["m"], ["z"]]
    world.delete(b"key", table="m", at=1)
    assert [world.get(b"key", table=name) for name in ("a", "m", "z")] == [["a"], [MISSING], ["z"]]


def test_a_longest_name_is_kept_whole() -> None:
    world = World()
    name = "n" * limits.NAME_BYTES_MAX
    world.set({b"a": 1}, table=name)
    assert list(world.tables) == [name]
    assert world.replayed().tables == world.tables


@pytest.mark.parametrize("name", ["", "-a", "a.b", "a/b", "..", "n" * 129, "\ufffd"])
def test_a_bad_name_is_refused_by_every_command(name: str) -> None:
    world = World()
    keys = Strings.of([b"k"])
    assert code_of(world.set({b"k": 1}, table=name)) is Code.BAD_NAME
    refused = world.run(Delete(table=name, keys=keys, timestamp_us=NOW_US))
    assert code_of(refused) is Code.BAD_NAME
    assert code_of(world.run(Get(table=name, keys=keys))) is Code.BAD_NAME
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
    for reply in (world.set({b"k": 1}), world.delete(b"k"), world.run(Get(table="t", keys=keys))):
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


def test_takeovers_are_in_order_of_seq_however_large() -> None:
    world = World()
    for seq in (1, 255, 256, 2**32, 2**63, 2**64 - 2):
        world.next_seq = seq
        world.run(TakeOver(master=b"%16d" % seq))
    assert [seq for _, seq in takeovers(world)] == [0, 254, 255, 2**32 - 1, 2**63 - 1, 2**64 - 3]


# -- tables by command ----------------------------------------------------------------------------


def test_a_table_is_created_with_its_settings() -> None:
    world = World()
    assert world.run(CreateTable(name="t", kind=Kind.KV.number, settings=b"{...}")) == done(1)
    assert world.tables == {"t": Table(id=1, name="t", kind=Kind.KV, settings=b"{...}")}
    assert world.replayed().tables == world.tables


def test_creating_the_same_table_again_is_no_error() -> None:
    world = World()
    command = CreateTable(name="t", kind=Kind.KV.number, settings=b"{}")
    world.run(command)
    before = world.journal
    assert world.run(command) == done(1)
    assert world.journal == before


def test_a_table_that_is_there_with_other_settings_is_refused() -> None:
    world = World()
    world.run(CreateTable(name="t", kind=Kind.KV.number, settings=b"{}"))
    other = CreateTable(name="t", kind=Kind.KV.number, settings=b"")
    assert code_of(world.run(other)) is Code.EXISTS


@pytest.mark.parametrize("kind", [0, 4, 255, -1])
def test_a_kind_that_does_not_exist_is_refused(kind: int) -> None:
    assert code_of(World().run(CreateTable(name="t", kind=kind))) is Code.WRONG_KIND


def test_settings_are_bounded() -> None:
    most = bytes(limits.SETTINGS_BYTES_MAX)
    world = World()
    assert code_of(world.run(CreateTable(name="t", kind=1, settings=most))) is None
    larger = CreateTable(name="u", kind=1, settings=most + b"x")
    assert code_of(world.run(larger)) is Code.TOO_LARGE


@pytest.mark.parametrize("name", ["", "-a", "a.b", "n" * 129])
def test_tables_have_good_names(name: str) -> None:
    world = World()
    assert code_of(world.run(CreateTable(name=name, kind=1))) is Code.BAD_NAME
    assert code_of(world.run(DropTable(name=name))) is Code.BAD_NAME
    expected = Code.BAD_NAME if name else None
    assert code_of(world.run(ListTables(name=name))) is expected


def test_a_dropped_table_loses_its_name_at_once() -> None:
    world = World()
    world.set({b"a": 1}, table="t")
    world.set({b"a": 1}, table="u")
    assert world.run(DropTable(name="t")) == done(5)
    assert list(world.tables) == ["u"]
    assert catalog.dropped(world) == {1: b"t"}
    assert world.replayed().trees() == world.trees()
    assert code_of(world.run(DropTable(name="t"))) is Code.NOT_FOUND


def test_tables_that_are_being_purged_count_among_all() -> None:
    world = World()
    world.tables = {
        f"t{number}": Table(id=number, name=f"t{number}", kind=Kind.KV)
        for number in range(1, limits.TABLES_MAX)
    }
    world.put_many(Tree.META, [(b"dropped" + (20_000).to_bytes(4, "big"), b"gone")])
    assert code_of(world.set({b"a": 1}, table="new")) is Code.QUOTA


def test_the_last_id_is_the_end() -> None:
    world = World()
    world.put_many(Tree.META, [(b"dropped" + b"\xff" * 4, b"gone")])
    assert code_of(world.set({b"a": 1})) is Code.QUOTA


def test_tables_are_listed_by_name() -> None:
    world = World()
    world.run(CreateTable(name="z", kind=1, settings=b"{}"))
    world.set({b"a": 1}, table="a")
    reply = world.run(ListTables())
    assert reply == TableList(
        names=Strings.of([b"a", b"z"]), ids=[2, 1], kinds=b"\1\1", settings=Strings.of([b"", b"{}"])
    )
    one = world.run(ListTables(name="z"))
    assert isinstance(one, TableList)
    assert (one.names.rows(), one.ids) == ([b"z"], [1])
    assert code_of(world.run(ListTables(name="none"))) is Code.NOT_FOUND
    assert World().run(ListTables()) == TableList(
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
    world.run(CreateTable(name="u", kind=1))
    assert world.tables["u"].id == largest + 2
    world.run(DropTable(name="u"))
    world.set({b"a": 1}, table="v")
    assert world.tables["v"].id == largest + 3


def test_ids_that_were_given_out_since_the_loss_count_too() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.set({b"a": 1}, table=name)
    world.put_many(Tree.META, [catalog.largest_table(2)])
    world.set({b"a": 1}, table="d")
    assert world.tables["d"].id == 4
