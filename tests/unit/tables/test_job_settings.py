"""Settings of jobs tables: what can be chosen, and what is refused."""

from __future__ import annotations

from fjord import jobs
from fjord.commands import CreateTable, Refusal
from fjord.errors import Code
from fjord.kinds import Kind
from tests.unit.tables.job_world import TABLE, JobWorld
from tests.unit.tables.world import code_of


def check_refused(command: object, code: Code, world: JobWorld | None = None) -> None:
    """Asserts that a command is refused with this code, and that nothing comes of it."""
    world = world or JobWorld()
    before, seq = world.trees(), world.next_seq
    assert code_of(world.run(command)) is code
    assert (world.trees(), world.next_seq) == (before, seq)


def test_settings_that_are_too_large_are_refused() -> None:
    command = CreateTable(name="new", kind=Kind.JOBS.number, settings=b" " * 33_000)
    check_refused(command, Code.TOO_LARGE)


def test_a_table_with_other_settings_is_refused_and_with_the_same_is_no_error() -> None:
    world = JobWorld(merge=False)
    check_refused(CreateTable(name=TABLE, kind=Kind.JOBS.number), Code.EXISTS, world)
    assert code_of(world.create(jobs.Settings(merge=False).encode())) is None


def test_of_many_columns_a_refusal_shows_some() -> None:
    world = JobWorld(columns=tuple((f"column_{at}", "int8", False) for at in range(256)))
    reply = world.run(CreateTable(name=TABLE, kind=Kind.JOBS.number))
    assert isinstance(reply, Refusal)
    assert 'with other settings: {"columns":[["column_0","int8",false]' in reply.text
    assert len(reply.text) < 400
