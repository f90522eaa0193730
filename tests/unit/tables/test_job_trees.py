"""All jobs tables are one tree of the index, in which a job's table comes first."""

from __future__ import annotations

import pytest

from fjord import commands
from fjord.columns import Strings
from fjord.jobs import State
from fjord.tables.jobs import layout
from fjord.tables.state import Tree
from tests.unit.tables.job_world import JobWorld, New


@pytest.mark.req("SJ-24", "SJ-22")
def test_the_jobs_of_all_tables_stand_in_one_order() -> None:
    world = JobWorld()
    for table in ("first", "second"):
        world.push(New(b"late", priority=20), New(b"soon", priority=10), table=table)
    ready = world.tree(Tree.JOBS_READY)
    keys = sorted(ready)
    names = {table.prefix: name for name, table in world.tables.items()}
    rows = [(names[key[:4]], layout.decode_ready(key, ready[key])) for key in keys]
    assert [(name, row.priority, row.key) for name, row in rows] == [
        ("first", 10, b"soon"),
        ("first", 20, b"late"),
        ("second", 10, b"soon"),
        ("second", 20, b"late"),
    ]


@pytest.mark.req("SJ-23")
def test_only_jobs_that_wait_stand_in_the_order_of_handing_out() -> None:
    """Their state is no part of the key: taken and dead jobs have trees of their own."""
    world = JobWorld()
    world.push(b"a", b"b", b"c")
    first, _ = world.next(2)
    world.run(commands.Fail(table="jobs", xids=[first.xid], buries=True))
    sizes = [len(world.tree(tree)) for tree in (Tree.JOBS_READY, Tree.JOBS_TAKEN, Tree.JOBS_DEAD)]
    assert sizes == [1, 1, 1]
    (key,) = world.tree(Tree.JOBS_READY)
    assert key[4:] == layout.PLACE.pack(0, 100, world.now_us, world.peek()[0].row)


def test_a_revival_tells_who_came_too_late() -> None:
    world = JobWorld()
    world.push(b"a", b"b", New(b"c", expires_at_us=world.now_us + 1_000_000))
    keys = Strings.of([b"a", b"b", b"c"])
    world.run(commands.Bury(table="jobs", keys=keys))
    rows = [job.row for job in world.peek(State.DEAD)]
    world.push(b"a")
    world.jump(5)
    reply = world.run(commands.Revive(table="jobs", rows=[*rows, rows[1], 10**9]))
    assert isinstance(reply, commands.Acted)
    assert list(reply.dropped) == [0, 2]
    assert list(reply.missing) == [3, 4]
    assert world.totals() == (2, 0, 0)
