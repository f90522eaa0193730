"""All jobs tables are one tree of the index, in which a job's table comes first."""

from __future__ import annotations

import pytest

from fjord import commands
from fjord.tables import job_row
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
    rows = [(names[key[:4]], job_row.decode_ready(key, ready[key])) for key in keys]
    assert [(name, row.priority, row.key) for name, row in rows] == [
        ("first", 10, b"soon"),
        ("first", 20, b"late"),
        ("second", 10, b"soon"),
        ("second", 20, b"late"),
    ]


@pytest.mark.req("SJ-24")
def test_tables_in_one_tree_know_nothing_of_each_other() -> None:
    world = JobWorld()
    for table in ("first", "second"):
        world.push(New(b"same", value=table.encode()), table=table)
    assert [job.value for job in world.next(5, table="first")] == [b"first"]
    assert world.next(5, table="first") == []
    world.run(commands.DropTable(name="first"))
    assert [job.value for job in world.next(5, table="second")] == [b"second"]
