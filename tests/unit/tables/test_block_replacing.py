"""One block takes the place of some: all at once, once, and nothing is lost of what goes later."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Done, InBlock, ReplaceBlocks
from fjord.errors import Code
from fjord.history import Block
from fjord.tables.state import Tree
from fjord.tables.streams import history
from tests.unit.tables.stream_world import StreamWorld, block
from tests.unit.tables.world import NOW_US, code_of


@pytest.fixture
def world() -> StreamWorld:
    """A log of four messages, each in a block of its own."""
    found = StreamWorld.with_tables()
    seqs = [found.append("log", b"%d" % number) for number in range(4)]
    edges = zip([1, *(seq + 1 for seq in seqs[:-1])], seqs, strict=True)
    found.seal("log", seqs[-1], *edges)
    found.sweep()
    return found


def live(world: StreamWorld) -> list[Block]:
    return list(history.live_blocks(world, world.tables["log"].prefix))


def replaced(world: StreamWorld) -> list[str]:
    return [one.name for one in history.replaced_blocks(world.scan)]


def new_name(world: StreamWorld, first: int, last: int, tag: int = 0xC) -> str:
    return f"log-{world.tables['log'].id}/{first:020d}-{last:020d}-{tag:016x}"


def replacing(world: StreamWorld, old: list[Block], **changes: Any) -> ReplaceBlocks:
    """Returns what puts one block in the place of others."""
    given: dict[str, Any] = {
        "table": "log",
        "names": [one.name for one in old],
        "name": new_name(world, old[0].first, old[-1].last),
        "rows": sum(one.rows for one in old),
        "size": 170,
        "min_us": min(one.min_us for one in old),
        "max_us": max(one.max_us for one in old),
        "crc": 99,
    }
    return ReplaceBlocks(**given | changes)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 3), (2, 4), (0, 4), (1, 2)])
def test_a_block_takes_the_place_of_those_that_it_covers(
    world: StreamWorld, start: int, end: int
) -> None:
    before = live(world)
    old = before[start:end]
    command = replacing(world, old)
    assert isinstance(world.run(command), Done)
    found = live(world)
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
    assert replaced(world) == [one.name for one in old]
    world.check()
    assert world.replayed().trees() == world.trees()
    read = world.run(commands.Read(table="log", after=old[-1].first - 1))
    assert isinstance(read, InBlock)
    assert read.name == new.name


def test_the_same_again_changes_nothing(world: StreamWorld) -> None:
    command = replacing(world, live(world)[:3])
    world.run(command)
    before, seq = world.trees(), world.next_seq
    assert isinstance(world.run(command), Done)
    assert (world.trees(), world.next_seq) == (before, seq)
    other = replacing(world, live(world)[:1], names=command.names, crc=98)
    assert code_of(world.run(other)) is Code.BAD_RANGE


def test_what_does_not_fit_is_refused_and_changes_nothing(world: StreamWorld) -> None:
    blocks = live(world)
    two = blocks[:2]
    wrong: list[tuple[dict[str, Any], Code]] = [
        ({"table": "none"}, Code.NOT_FOUND),
        ({"table": "no name"}, Code.BAD_NAME),
        ({"table": "kv"}, Code.WRONG_KIND),
        ({"names": []}, Code.BAD_RANGE),
        ({"names": ["x"] * (limits.BLOCKS_REPLACED_MAX + 1)}, Code.BAD_RANGE),
        ({"names": [blocks[0].name]}, Code.BAD_RANGE),
        ({"names": [blocks[1].name, blocks[0].name]}, Code.BAD_RANGE),
        ({"names": [blocks[0].name, blocks[2].name]}, Code.BAD_RANGE),
        ({"names": [blocks[0].name, "unknown"]}, Code.BAD_RANGE),
        ({"name": "log-7/x"}, Code.BAD_NAME),
        ({"name": new_name(world, 1, 2).replace("log-", "other-")}, Code.BAD_NAME),
        ({"name": new_name(world, two[0].first, two[1].last) + "0"}, Code.BAD_NAME),
        ({"name": new_name(world, two[0].first + 1, two[1].last)}, Code.BAD_RANGE),
        ({"name": new_name(world, two[0].first, two[1].last + 1)}, Code.BAD_RANGE),
        ({"rows": 3}, Code.BAD_RANGE),
        ({"min_us": two[0].min_us + 1}, Code.BAD_RANGE),
        ({"max_us": two[1].max_us + 1}, Code.BAD_RANGE),
    ]
    world.run(
        commands.Set(
            table="kv",
            keys=Strings.of([b"k"]),
            types=b"\1",
            values=Strings.of([b"v"]),
            timestamps_us=[NOW_US],
        )
    )
    before, seq = world.trees(), world.next_seq
    for changes, code in wrong:
        assert code_of(world.run(replacing(world, two, **changes))) is code, changes
    assert (world.trees(), world.next_seq) == (before, seq)
    world.run(history.Retire(blocks=blocks[:1]))
    assert code_of(world.run(replacing(world, two))) is Code.BAD_RANGE


def test_files_that_are_gone_are_forgotten_one_by_one(world: StreamWorld) -> None:
    old = live(world)[2:]
    world.run(replacing(world, old))
    kept = live(world)
    later = list(history.replaced_blocks(world.scan))
    assert [one.max_us for one in later] == [world.now_us] * 2
    world.run(history.Gone(blocks=later[1:]))
    assert replaced(world) == [old[0].name]
    assert live(world) == kept
    world.run(history.Gone(blocks=later[:1]))
    assert world.size_of(Tree.REPLACED) == 0
    assert live(world) == kept
    world.check()
    assert world.replayed().trees() == world.trees()


def test_packing_says_again_what_still_holds(world: StreamWorld) -> None:
    world.run(replacing(world, live(world)[1:3]))
    world.run(replacing(world, live(world)[1:]))
    (first, *_) = history.replaced_blocks(world.scan)
    world.run(history.Gone(blocks=[first]))
    trees = (Tree.BLOCKS, Tree.REPLACED)
    before = {tree: world.tree(tree) for tree in trees}
    assert len(before[Tree.BLOCKS]) == 2
    assert len(before[Tree.REPLACED]) == 3
    for _ in range(2):
        world.pack(len(world.ops()))
        assert {tree: world.tree(tree) for tree in trees} == before
        world.check()
        assert world.replayed().trees() == world.trees()


def test_a_block_of_another_table_may_end_at_the_same_seq(world: StreamWorld) -> None:
    old = live(world)
    other = block(old[0].table + 50, old[0].first, old[0].last)
    world.run(replacing(world, old[:2]))
    world.run(history.Gone(blocks=[other]))
    assert len(replaced(world)) == 2
