"""The way of history into blocks and out of them, and what packing says again of streams."""

from __future__ import annotations

import pytest

from fjord import commands, limits
from fjord.commands import BlockList
from fjord.errors import Code
from fjord.history import SealedRange, SealPlan
from fjord.streams import Start
from fjord.tables.state import Tree
from fjord.tables.streams import history, layout
from tests.unit.tables.stream_world import StreamWorld, block, said
from tests.unit.tables.world import code_of


@pytest.fixture
def world() -> StreamWorld:
    return StreamWorld.with_tables()


def names(world: StreamWorld, table: str, **options: int) -> list[bytes]:
    reply = world.run(commands.ListBlocks(table=table, **options))
    assert isinstance(reply, BlockList)
    return list(reply.names)


@pytest.mark.req("JQ-16")
def test_a_range_is_fixed_before_its_blocks_are_written(world: StreamWorld) -> None:
    last, table = world.append("log", b"1"), world.tables["log"]
    world.run(history.BeginSeal(lasts=[(table.id, last)], tag=9))
    assert world.history("log")[:4] == (0, 0, last, 9)
    world.append("log", b"2")
    world.run(history.BeginSeal(lasts=[(table.id, world.next_seq - 1)], tag=10))
    assert world.history("log")[:4] == (0, 0, last, 9)


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_what_is_in_blocks_is_forgotten_bit_by_bit(world: StreamWorld, limit: int) -> None:
    for number in range(5):
        world.append("log", b"%d" % number)
    last = world.next_seq - 1
    world.append("log", b"not sealed")
    world.seal("log", last)
    world.sweep(limit)
    assert world.history("log")[:3] == (last, last, 0)
    assert world.size_of(Tree.STREAM_OPS) == 1
    world.check()
    assert world.replayed().trees() == world.trees()


def test_blocks_are_listed_in_pages(world: StreamWorld) -> None:
    seqs = [world.append("log", b"x") for _ in range(5)]
    world.seal("log", seqs[-1], *((seq, seq) for seq in seqs))
    found, after = [], 0
    while True:
        page = world.run(commands.ListBlocks(table="log", after=after, count=2))
        assert isinstance(page, BlockList)
        found += list(page.lasts)
        after = page.next_after
        if not after:
            break
    assert found == seqs
    assert code_of(world.run(commands.ListBlocks(table="none"))) is Code.NOT_FOUND
    assert code_of(world.run(commands.ListBlocks(table="no name"))) is Code.BAD_NAME


def test_blocks_go_by_age_and_by_size_the_oldest_first(world: StreamWorld) -> None:
    world.create("short", b'{"retention_us":100}')
    world.create("small", b'{"retention_bytes":250}')
    blocks = [block(9, number, number) for number in (10, 20, 30)]
    short, small = world.tables["short"], world.tables["small"]
    assert history.outdated(short, blocks, 100) == []
    assert history.outdated(short, blocks, 121) == blocks[:2]
    assert history.outdated(small, blocks, 0) == blocks[:1]
    assert history.outdated(world.tables["log"], blocks, 2**60) == []


def test_a_block_that_is_retired_is_read_no_more_and_then_gone(world: StreamWorld) -> None:
    first, second = world.append("log", b"1"), world.append("log", b"2")
    table = world.tables["log"]
    world.seal("log", second, (1, first), (second, second))
    world.sweep()
    old = block(table.id, 1, first)
    world.run(history.Retire(blocks=[old]))
    assert names(world, "log") == [b"b-%d-%d" % (second, second)]
    reply = world.run(commands.Read(table="log", after=0))
    assert isinstance(reply, commands.InBlock)
    assert reply.first == second
    assert world.size_of(Tree.BLOCKS) == 2
    world.run(history.Gone(blocks=[old]))
    assert world.size_of(Tree.BLOCKS) == 1
    assert world.replayed().trees() == world.trees()


def test_packing_says_what_holds_of_streams_again(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    world.put("latest", (b"b", b"2"))
    world.erase("latest", b"c")
    world.subscribe("latest", "s", Start.BEGINNING)
    world.subscribe("latest", "gone", Start.BEGINNING)
    world.run(commands.Unsubscribe(table="latest", name="gone"))
    last = world.append("log", b"1")
    world.seal("log", last)
    world.sweep()
    world.run(history.Retire(blocks=[block(world.tables["log"].id, 1, last)]))
    before = said(world.read("latest"))
    trees = (Tree.BLOCKS, Tree.STREAM_SEQS, Tree.STREAM_OPS)
    items = {tree: world.tree(tree) for tree in trees}
    for _ in range(2):
        world.pack(len(world.ops()))
        assert said(world.read("latest")) == before
        assert {tree: world.tree(tree) for tree in trees} == items
        assert world.history("log")[:4] == (last, last, 0, 0)
        assert world.size_of(Tree.SUBSCRIBERS) == 1
        world.check()
        assert world.replayed().trees() == world.trees()


def test_old_tombstones_go_when_all_subscribers_have_passed_them(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"))
    world.subscribe("latest", "s", Start.BEGINNING)
    world.erase("latest", b"a")
    last = world.next_seq - 1
    world.lease_us += limits.TOMBSTONE_US
    world.pack(len(world.ops()))
    assert world.size_of(Tree.STREAM_SEQS) == 2
    world.acknowledge("latest", last - 1)
    world.pack(len(world.ops()))
    assert world.size_of(Tree.STREAM_SEQS) == 2  # it is the next one to read
    world.acknowledge("latest", last)
    world.pack(len(world.ops()))
    assert world.size_of(Tree.STREAM_SEQS) == 1
    world.check()


def test_a_dropped_stream_leaves_nothing_but_blocks_whose_files_are_to_go(
    world: StreamWorld,
) -> None:
    for table in ("log", "latest"):
        world.put(table, *((b"%d" % number, b"x") for number in range(5)))
        world.subscribe(table, "s", Start.BEGINNING)
    sealed = world.next_seq - 1
    world.seal("log", sealed)
    world.append("log", b"more")
    log = world.tables["log"]
    world.create("last")
    for table in ("log", "latest"):
        world.run(commands.DropTable(name=table))
    world.sweep(2)
    left = {tree for tree, size in world.sizes().items() if size}
    assert left == {Tree.META, Tree.TABLES, Tree.BLOCKS, Tree.HISTORY}
    ((_, data),) = world.tree(Tree.BLOCKS).items()
    assert layout.BLOCK.unpack_from(data)[-1] == 1
    world.run(history.Gone(blocks=[block(log.id, 1, sealed)]))
    world.sweep()
    assert {tree for tree, size in world.sizes().items() if size} == {Tree.TABLES}
    assert world.replayed().trees() == world.trees()


def test_blocks_of_a_table_that_was_dropped_meanwhile_are_not_used(world: StreamWorld) -> None:
    last, table = world.append("log", b"1"), world.tables["log"]
    world.run(history.BeginSeal(lasts=[(table.id, last)], tag=7))
    world.run(commands.DropTable(name="log"))
    where = SealPlan(b"s" * 16, [SealedRange(table.id, "log", 3, 1, last, 7, 1000)])
    world.run(history.EndSeal(plan=where, blocks=[block(table.id, 1, last)]))
    ((_, data),) = world.tree(Tree.BLOCKS).items()
    assert layout.BLOCK.unpack_from(data)[-1] == 1
