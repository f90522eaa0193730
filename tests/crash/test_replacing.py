"""Blocks that others take the place of, cut at every call: no message is lost, none is there twice.

Journal and blocks are on one simulated disk, so that a crash comes at each step: the new block's
data, its name, its metadata, the decision, the chain, and later the files of the old ones.
"""

from __future__ import annotations

import zlib

import pytest

from fjord.blocks import writer
from fjord.blocks.store import Catalog
from fjord.commands import Done, ReplaceBlocks
from fjord.testing import SimCrash, SimDisk
from tests.crash.stream_world import LOG
from tests.crash.test_sealing import SealingWorld, begun


def put_together(world: SealingWorld) -> None:
    """Makes one block of all that the log has, as whoever compacts does."""
    store, old = world.store, world.engine.sealing.blocks(LOG)
    if len(old) < 2:
        return
    names = [block.name for block in old]
    folder = names[0].partition("/")[0]
    store.drop_rewrites(folder)
    writer.sweep(store, folder, lambda: names, before_us=2**62)
    found = writer.rewrite(store, names, tag=zlib.crc32("".join(names).encode()))
    writer.publish(store, found, wall_us=1)
    new = found.metadata
    command = ReplaceBlocks(
        table=LOG,
        names=names,
        name=found.name,
        rows=new.rows,
        size=new.bytes,
        min_us=new.min_ts,
        max_us=new.max_ts,
        crc=new.crc32c,
    )
    for _ in range(2):
        assert isinstance(world.ask(command), Done)
    store.conclude(found.name)
    live = [block.name for block in world.engine.sealing.blocks(LOG)]
    writer.relink(Catalog(store), live)


def live(world: SealingWorld) -> None:
    """Lives to the end, or to a crash."""
    put_together(world)
    world.pack()
    world.wait()
    world.retire()
    world.upkeep()


def filled(seed: int) -> SealingWorld:
    """A world in which the log has some blocks."""
    world = begun(seed, SimDisk(seed))
    for _ in range(3):
        world.write()
        world.round()
    world.upkeep()
    assert len(world.engine.sealing.blocks(LOG)) > 2
    return world


def calls_of(seed: int) -> int:
    world = filled(seed)
    began = len(world.disk.calls)
    live(world)
    world.check()
    assert len(world.engine.sealing.blocks(LOG)) == 1
    assert world.store.names() == world.block_names()
    return len(world.disk.calls) - began


@pytest.mark.req("JQ-01", "KY-30")
@pytest.mark.parametrize(("seed", "kind"), [(1, "power_cut"), (2, "process_crash")])
def test_any_call_may_be_the_last(seed: int, kind: str) -> None:
    points = range(seed, calls_of(seed), 5)
    assert len(points) > 5
    for point in points:
        world = filled(seed)
        world.disk.crash_after(point)
        with pytest.raises(SimCrash):
            live(world)
        world.crash(kind)
        world.check()
        live(world)
        world.check()
        assert len(world.engine.sealing.blocks(LOG)) == 1
        assert world.store.names() == world.block_names()
        world.crash("power_cut")
        world.check()
