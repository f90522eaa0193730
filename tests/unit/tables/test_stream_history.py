"""The way of history into blocks and out of them, and what packing says again of streams."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import commands, limits
from fjord.commands import BlockList, Done, InBlock, ReplaceBlocks
from fjord.errors import Code
from fjord.history import Block
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
    assert code_of(world.run(commands.ListBlocks(table="not a valid file name"))) is Code.BAD_NAME


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


# -- one block takes the place of some ------------------------------------------------------------


@pytest.fixture
def sealed() -> StreamWorld:
    """A log of four messages, each in a block of its own."""
    found = StreamWorld.with_tables()
    seqs = [found.append("log", b"%d" % number) for number in range(4)]
    edges = zip([1, *(seq + 1 for seq in seqs[:-1])], seqs, strict=True)
    found.seal("log", seqs[-1], *edges)
    found.sweep()
    return found


def live(sealed: StreamWorld) -> list[Block]:
    return list(history.live_blocks(sealed, sealed.tables["log"].prefix))


def replaced(sealed: StreamWorld) -> list[str]:
    return [one.name for one in history.replaced_blocks(sealed.scan)]


def new_name(sealed: StreamWorld, first: int, last: int, tag: int = 0xC) -> str:
    return f"log-{sealed.tables['log'].id}/{first:020d}-{last:020d}-{tag:016x}"


def replacing(sealed: StreamWorld, old: list[Block], **changes: Any) -> ReplaceBlocks:
    """Returns what puts one block in the place of others."""
    given: dict[str, Any] = {
        "table": "log",
        "names": [one.name for one in old],
        "name": new_name(sealed, old[0].first, old[-1].last),
        "rows": sum(one.rows for one in old),
        "size": 170,
        "min_us": min(one.min_us for one in old),
        "max_us": max(one.max_us for one in old),
        "crc": 99,
    }
    return ReplaceBlocks(**given | changes)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 3), (2, 4), (0, 4), (1, 2)])
def test_a_block_takes_the_place_of_those_that_it_covers(
    sealed: StreamWorld, start: int, end: int
) -> None:
    before = live(sealed)
    old = before[start:end]
    command = replacing(sealed, old)
    assert isinstance(sealed.run(command), Done)
    found = live(sealed)
    new = found[start]
    assert found == [*before[:start], new, *before[end:]]
    assert new == Block(
        old[0].table,
        old[0].first,
        old[-1].last,
        len(old),
        170,
        old[0].min_us,
        old[-1].max_us,
        99,
        command.name,
    )
    assert replaced(sealed) == [one.name for one in old]
    sealed.check()
    assert sealed.replayed().trees() == sealed.trees()
    read = sealed.run(commands.Read(table="log", after=old[-1].first - 1))
    assert isinstance(read, InBlock)
    assert read.name == new.name


def test_the_same_again_changes_nothing(sealed: StreamWorld) -> None:
    command = replacing(sealed, live(sealed)[:3])
    sealed.run(command)
    before, seq = sealed.trees(), sealed.next_seq
    assert isinstance(sealed.run(command), Done)
    assert (sealed.trees(), sealed.next_seq) == (before, seq)
    other = replacing(sealed, live(sealed)[:1], names=command.names, crc=98)
    assert code_of(sealed.run(other)) is Code.BAD_RANGE


def test_what_does_not_fit_is_refused_and_changes_nothing(sealed: StreamWorld) -> None:
    blocks = live(sealed)
    two = blocks[:2]
    wrong: list[tuple[dict[str, Any], Code]] = [
        ({"table": "none"}, Code.NOT_FOUND),
        ({"table": "not a valid file name"}, Code.BAD_NAME),
        ({"table": "kv"}, Code.WRONG_KIND),
        ({"names": []}, Code.BAD_RANGE),
        ({"names": ["x"] * (limits.BLOCKS_REPLACED_MAX + 1)}, Code.BAD_RANGE),
        ({"names": [blocks[0].name]}, Code.BAD_RANGE),
        ({"names": [blocks[1].name, blocks[0].name]}, Code.BAD_RANGE),
        ({"names": [blocks[0].name, blocks[2].name]}, Code.BAD_RANGE),
        ({"names": [blocks[0].name, "unknown"]}, Code.BAD_RANGE),
        ({"name": "log-7/x"}, Code.BAD_NAME),
        ({"name": new_name(sealed, 1, 2).replace("log-", "other-")}, Code.BAD_NAME),
        ({"name": new_name(sealed, two[0].first, two[1].last) + "0"}, Code.BAD_NAME),
        ({"name": new_name(sealed, two[0].first + 1, two[1].last)}, Code.BAD_RANGE),
        ({"name": new_name(sealed, two[0].first, two[1].last + 1)}, Code.BAD_RANGE),
        ({"rows": 3}, Code.BAD_RANGE),
        ({"min_us": two[0].min_us + 1}, Code.BAD_RANGE),
        ({"max_us": two[1].max_us + 1}, Code.BAD_RANGE),
    ]
    sealed.set({b"k": b"v"}, table="kv")
    before, seq = sealed.trees(), sealed.next_seq
    for changes, code in wrong:
        assert code_of(sealed.run(replacing(sealed, two, **changes))) is code, changes
    assert (sealed.trees(), sealed.next_seq) == (before, seq)
    sealed.run(history.Retire(blocks=blocks[:1]))
    assert code_of(sealed.run(replacing(sealed, two))) is Code.BAD_RANGE


def test_files_that_are_gone_are_forgotten_one_by_one(sealed: StreamWorld) -> None:
    old = live(sealed)[2:]
    sealed.run(replacing(sealed, old))
    kept = live(sealed)
    later = list(history.replaced_blocks(sealed.scan))
    assert [one.max_us for one in later] == [sealed.now_us] * 2
    sealed.run(history.Gone(blocks=later[1:]))
    assert replaced(sealed) == [old[0].name]
    assert live(sealed) == kept
    sealed.run(history.Gone(blocks=later[:1]))
    assert sealed.size_of(Tree.REPLACED) == 0
    assert live(sealed) == kept
    sealed.check()
    assert sealed.replayed().trees() == sealed.trees()


def test_packing_says_again_what_still_holds(sealed: StreamWorld) -> None:
    sealed.run(replacing(sealed, live(sealed)[1:3]))
    sealed.run(replacing(sealed, live(sealed)[1:]))
    (first, *_) = history.replaced_blocks(sealed.scan)
    sealed.run(history.Gone(blocks=[first]))
    trees = (Tree.BLOCKS, Tree.REPLACED)
    before = {tree: sealed.tree(tree) for tree in trees}
    assert len(before[Tree.BLOCKS]) == 2
    assert len(before[Tree.REPLACED]) == 3
    for _ in range(2):
        sealed.pack(len(sealed.ops()))
        assert {tree: sealed.tree(tree) for tree in trees} == before
        sealed.check()
        assert sealed.replayed().trees() == sealed.trees()


def listed(sealed: StreamWorld) -> list[tuple[int, int]]:
    reply = sealed.run(commands.ListBlocks(table="log"))
    assert isinstance(reply, BlockList)
    return list(zip(reply.firsts, reply.lasts, strict=True))


def test_what_was_put_together_can_be_put_together_again(sealed: StreamWorld) -> None:
    first = live(sealed)
    sealed.run(replacing(sealed, first[:2]))
    second = live(sealed)
    sealed.run(replacing(sealed, second))
    assert listed(sealed) == [(first[0].first, first[-1].last)]
    assert sorted(replaced(sealed)) == sorted([*(one.name for one in first), second[0].name])
    sealed.check()
    assert sealed.replayed().trees() == sealed.trees()
