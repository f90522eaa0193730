"""Stages and writers: rows that nobody sees until they are committed, and then exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.tables import catalog, staging
from fjord.tables.state import Tree
from tests.unit.engine.shore import append_command
from tests.unit.tables.job_world import New, push_command
from tests.unit.tables.stream_world import Said, StreamWorld, said
from tests.unit.tables.world import NOW_US, World, set_command

HOUR_US = 3600 * 1_000_000


def append(table: str, *values: bytes, keys: Sequence[bytes] = ()) -> commands.Append:
    return append_command(table, list(zip(keys or [b""] * len(values), values, strict=True)))


def push(*keys: bytes, delay_us: int = 0, expires_at_us: int = 0) -> commands.Push:
    rows = [
        New(key, b"", 128, process_at_us=delay_us, expires_at_us=expires_at_us, type=0)
        for key in keys
    ]
    return push_command(rows, NOW_US, relative=True)


class Writer(StreamWorld):
    """A world in which somebody stages and commits."""

    def stage(self, rows: commands.Append | commands.Push | commands.Set) -> int:
        reply = self.run(commands.Stage(rows=rows))
        assert isinstance(reply, commands.Done), reply
        return reply.seq

    def commit(
        self, batch: int, *stages: int, table: str = "log", writer: str = "w"
    ) -> commands.Committed:
        reply = self.run(
            commands.CommitStages(table=table, writer=writer, batch=batch, stages=stages)
        )
        assert isinstance(reply, commands.Committed), reply
        return reply

    def refused(self, command: object) -> Code:
        reply = self.run(command)
        assert isinstance(reply, commands.Refusal), reply
        return reply.code

    def last_batch(self, table: str = "log", writer: str = "w") -> int:
        reply = self.run(commands.AskWriter(table=table, writer=writer))
        assert isinstance(reply, commands.Committed)
        return reply.batch

    def values(self, table: str = "log") -> list[bytes | None]:
        return [value for _, _, value in self.messages(table)]

    def messages(self, table: str) -> list[Said]:
        return said(self.read(table))

    def waiting(self) -> int:
        return self.job_counts(self.tables["jobs"].id).waiting

    def verify(self) -> None:
        """Asserts that all holds, and that the journal tells the same again."""
        self.check()
        assert self.replayed().trees() == self.trees()


@pytest.fixture
def world() -> Writer:
    found = Writer()
    found.create("log")
    found.create("latest", b'{"mode":"latest"}')
    return found


# -- logs -----------------------------------------------------------------------------------------


def test_a_batch_that_is_committed_again_changes_nothing(world: Writer) -> None:
    world.commit(4, world.stage(append("log", b"a")))
    again = world.stage(append("log", b"a"))
    older = world.stage(append("log", b"older"))
    found = world.commit(4, again)
    assert (found.batch, found.is_new, found.rows, found.left) == (4, False, 0, 0)
    assert not world.commit(3, older).is_new
    assert world.values() == [b"a"]
    assert world.last_batch() == 4
    # What was staged for it is dropped at once.
    assert len(world.tree(Tree.STAGES)) == 1
    world.verify()


def test_a_batch_without_rows_of_a_table_that_is_not_there_is_nothing(world: Writer) -> None:
    assert world.commit(0, table="new").is_new
    assert "new" not in world.tables
    missing = commands.CommitStages(table="new", writer="w", batch=0, stages=[5])
    assert world.refused(missing) is Code.NOT_FOUND


# -- jobs, values and the latest ------------------------------------------------------------------


def run_to_the_end(world: Writer, table: str, batch: int, *stages: int) -> int:
    """Commits until nothing is left; returns how many calls it took."""
    for calls in range(1, 20):
        if not world.commit(batch, *stages, table=table).left:
            return calls
    raise AssertionError("there is always more")


def test_a_later_batch_waits_until_the_one_before_it_is_written(world: Writer) -> None:
    first = [world.stage(push(b"a")), world.stage(push(b"b"))]
    world.commit(0, *first, table="jobs")
    later = world.stage(push(b"c"))
    assert run_to_the_end(world, "jobs", 1, later) == 4
    assert world.waiting() == 3
    assert world.last_batch("jobs") == 1
    world.verify()


def test_a_delay_counts_from_the_moment_of_staging(world: Writer) -> None:
    stage = world.stage(push(b"a", delay_us=HOUR_US))
    world.now_us += HOUR_US // 2
    run_to_the_end(world, "jobs", 0, stage)
    (op,) = [op for op in world.ops() if op.opcode is Opcode.JOB_ADD]
    assert list(op.column("process_at_us")) == [NOW_US + HOUR_US]


def test_jobs_that_have_expired_since_are_left_out(world: Writer) -> None:
    soon = push(b"soon", b"later", expires_at_us=NOW_US + HOUR_US)
    soon = replace(soon, expires_at_us=[NOW_US + HOUR_US, 0])
    stages = [world.stage(soon), world.stage(push(b"gone", expires_at_us=NOW_US + HOUR_US))]
    world.now_us += 2 * HOUR_US
    run_to_the_end(world, "jobs", 0, *stages)
    assert world.waiting() == 1
    assert not world.tree(Tree.STAGES)
    world.verify()


def test_values_and_messages_of_a_key_are_replaced(world: Writer) -> None:
    stages = [
        world.stage(set_command([(b"a", 1), (b"b", 2)])),
        world.stage(set_command([(b"a", 3)], at=1)),
    ]
    run_to_the_end(world, "t", 0, *stages)
    assert world.get(b"a", b"b") == [3, 2]
    latest = [
        world.stage(append("latest", b"1", b"2", keys=[b"a", b"b"])),
        world.stage(append("latest", b"3", keys=[b"a"])),
    ]
    run_to_the_end(world, "latest", 0, *latest)
    assert world.values("latest") == [b"2", b"3"]
    world.verify()


# -- refusals -------------------------------------------------------------------------------------


def test_what_could_not_be_written_is_not_staged(world: Writer) -> None:
    world.stage(push(b"a"))
    cases = {
        Code.WRONG_KIND: commands.Stage(rows=append("jobs", b"a")),
        Code.EMPTY_KEY: commands.Stage(rows=push(b"")),
        Code.BAD_TYPE: commands.Stage(rows=replace(append("log", b"a"), types=b"\x09")),
        Code.BAD_BATCH: commands.Stage(rows=replace(set_command([(b"a", 1)]), persist=False)),
        Code.BAD_TIMEOUT: commands.Stage(rows=push(b"a", expires_at_us=NOW_US)),
    }
    before = len(world.journal)
    for code, command in cases.items():
        assert world.refused(command) is code
    many = push(*[b"%d" % number for number in range(limits.SLICE_ROWS_MAX + 1)])
    assert world.refused(commands.Stage(rows=many)) is Code.BAD_BATCH
    assert len(world.journal) == before


def test_stages_that_are_not_there_are_refused_and_nothing_is_done(world: Writer) -> None:
    stage = world.stage(append("log", b"a"))
    for stages in ([stage, 999], [stage - 1]):
        command = commands.CommitStages(table="log", writer="w", batch=0, stages=stages)
        assert world.refused(command) is Code.STAGE_GONE
    other = commands.CommitStages(table="latest", writer="w", batch=0, stages=[stage])
    assert world.refused(other) is Code.STAGE_GONE
    assert world.last_batch() == -1
    world.commit(0, stage)
    taken = commands.CommitStages(table="log", writer="another", batch=0, stages=[stage])
    assert world.refused(taken) is Code.STAGE_GONE
    assert world.values() == [b"a"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"table": "-no"}, Code.BAD_NAME),
        ({"writer": ""}, Code.BAD_NAME),
        ({"writer": "\u00fc" * 65}, Code.BAD_NAME),
        ({"batch": -1}, Code.BAD_RANGE),
        ({"batch": 2**63}, Code.BAD_RANGE),
        ({"stages": [5, 5]}, Code.BAD_BATCH),
        ({"stages": range(limits.STAGES_MAX + 1)}, Code.BAD_COUNT),
    ],
)
def test_a_commit_that_cannot_be_meant_is_refused(
    world: Writer, changes: dict[str, object], code: Code
) -> None:
    command = commands.CommitStages(table="log", writer="w", batch=0, stages=[])
    assert world.refused(replace(command, **changes)) is code  # type: ignore[arg-type]


# -- going ----------------------------------------------------------------------------------------


def test_only_stages_that_nobody_has_committed_are_dropped(world: Writer) -> None:
    decided = world.stage(push(b"a"))
    world.commit(0, decided, table="jobs")
    kept = world.stage(append("log", b"kept"))
    world.commit(0, kept)
    lost = world.stage(append("log", b"lost"))
    for table in ("log", "jobs"):
        wanted = [kept, lost, decided, 999]
        world.run(staging.DropStages(table=world.tables[table].id, stages=wanted))
    assert len(world.tree(Tree.STAGES)) == 2
    run_to_the_end(world, "jobs", 0)
    assert (world.waiting(), world.values()) == (1, [b"kept"])
    world.verify()


def test_a_batch_that_was_begun_is_finished_without_its_writer(world: Writer) -> None:
    stages = [world.stage(push(b"a")), world.stage(push(b"b"))]
    world.commit(0, *stages, table="jobs")
    table = world.tables["jobs"].id
    for _ in range(3):
        world.run(staging.RunStage(table=table, name=b"w"))
    assert world.waiting() == 2
    assert not world.commit(0, *stages, table="jobs").is_new
    world.run(staging.RunStage(table=table, name=b"nobody"))
    world.run(staging.RunStage(table=999, name=b"w"))
    world.verify()


def test_a_writer_that_is_forgotten_begins_anew(world: Writer) -> None:
    world.commit(3)
    forget = staging.ForgetWriter(table=world.tables["log"].id, name=b"w", before_us=NOW_US)
    world.run(forget)
    assert world.last_batch() == 3  # it was heard of just now
    world.run(replace(forget, before_us=NOW_US + 1))
    assert world.last_batch() == -1
    world.verify()


def test_rows_without_a_timestamp_get_that_of_their_commit(world: Writer) -> None:
    """However late a stage came: what is committed later wins."""
    second = world.stage(replace(set_command([(b"a", 2)]), timestamps_us=[0]))
    world.now_us += 5
    first = world.stage(replace(set_command([(b"a", 1)]), timestamps_us=[0]))
    run_to_the_end(world, "t", 0, first, second)
    assert world.get(b"a") == [2]
    jobs = [
        world.stage(replace(push(b"k"), timestamps_us=[0], values=Strings.of([value]), types=b"\1"))
        for value in (b"one", b"two")
    ]
    run_to_the_end(world, "jobs", 0, *reversed(jobs))
    (found,) = [op for op in world.ops() if op.opcode is Opcode.JOB_REPLACE]
    assert list(found.column("value")) == [b"one"]
    world.verify()


def test_packing_says_writers_again(world: Writer) -> None:
    world.commit(3)
    world.commit(4)
    world.commit(0, writer="other")
    said = world.pack(len(world.ops()))
    assert sorted(op.column("name")[0] for op in said if op.opcode is Opcode.WRITER) == [
        b"other",
        b"w",
    ]
    assert (world.last_batch(), world.last_batch(writer="other")) == (4, 0)


def test_a_dropped_table_leaves_neither_stages_nor_writers(world: Writer) -> None:
    world.commit(0, world.stage(append("log", b"a")))
    world.stage(append("log", b"b"))
    world.run(commands.DropTable(name="log"))
    world.sweep()
    assert not world.tree(Tree.STAGES)
    assert not world.tree(Tree.WRITERS)
    world.verify()


# -- writers of no table --------------------------------------------------------------------------


class Spool(World):
    """A world in which somebody advances."""

    def advance(self, expected: int, batch: int, writer: str = "w") -> commands.Done:
        reply = self.run(commands.Advance(writer=writer, expected=expected, batch=batch))
        assert isinstance(reply, commands.Done), reply
        return reply

    def refused(self, expected: int, batch: int, writer: str = "w") -> commands.Refusal:
        before = self.next_seq
        reply = self.run(commands.Advance(writer=writer, expected=expected, batch=batch))
        assert isinstance(reply, commands.Refusal), reply
        assert self.next_seq == before
        return reply

    def at(self, writer: str = "w", table: str = "") -> int:
        reply = self.run(commands.AskWriter(table=table, writer=writer))
        assert isinstance(reply, commands.Committed), reply
        assert (reply.is_new, reply.left, reply.rows) == (False, 0, 0)
        return reply.batch

    def verify(self) -> None:
        """Asserts that all holds, and that the journal tells the same again."""
        self.check()
        assert self.replayed().trees() == self.trees()


@pytest.fixture
def spool() -> Spool:
    return Spool()


def test_a_writer_advances_from_number_to_number(spool: Spool) -> None:
    assert spool.at() == -1
    assert spool.advance(-1, 100).seq == 1
    assert spool.advance(100, 512).seq == 2
    assert spool.at() == 512
    (op, _) = spool.ops()
    assert (op.opcode, op.table, op.rows) == (Opcode.WRITER, catalog.NO_TABLE, 1)
    spool.verify()


@pytest.mark.parametrize(
    ("expected", "batch", "text"),
    [
        (-1, 600, "writer w is at 512, not new"),
        (100, 600, "writer w is at 512, not at 100"),
        (100, 512, "writer w is at 512, not at 100"),  # the same once more
        (600, 700, "writer w is at 512, not at 600"),
        (0, 600, "writer w is at 512, not at 0"),
        (-1, 0, "writer w is at 512, not new"),
        (600, 0, "writer w is at 512, not at 600"),
    ],
)
def test_a_writer_that_is_elsewhere_is_refused(
    spool: Spool, expected: int, batch: int, text: str
) -> None:
    spool.advance(-1, 512)
    refusal = spool.refused(expected, batch)
    assert (refusal.code, refusal.text) == (Code.STALE_NUMBER, text)
    assert spool.at() == 512


def test_a_writer_that_is_over_takes_no_batch_that_comes_late(spool: Spool) -> None:
    """Its first batch was given up for lost, and expects that nobody knows the writer."""
    spool.advance(-1, 512)
    spool.advance(512, 0)
    assert spool.at() == staging.OVER
    late = spool.refused(-1, 512)
    assert (late.code, late.text) == (Code.STALE_NUMBER, "writer w is finished, not new")
    assert spool.refused(512, 600).code is Code.STALE_NUMBER
    assert spool.refused(512, 0).code is Code.STALE_NUMBER
    spool.verify()


@pytest.mark.parametrize(
    ("expected", "batch"),
    [
        (5, 5),
        (5, 4),
        (-1, -1),
        (0, -1),
        (5, -5),
        (-2, 5),
        (2**63, 2**63 + 1),
        (5, 2**63 - 1),
        (-2, 0),
    ],
)
def test_a_writer_only_goes_forward(spool: Spool, expected: int, batch: int) -> None:
    assert spool.refused(expected, batch).code is Code.BAD_RANGE


def test_there_are_not_too_many_writers(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITERS_MAX", 2)
    for name in ("one", "two"):
        spool.advance(-1, 5, name)
    assert spool.refused(-1, 5, "three").code is Code.QUOTA
    spool.advance(5, 6, "two")  # who is known goes on
    spool.advance(5, 0, "one")
    spool.run(staging.ForgetWriter(table=catalog.NO_TABLE, name=b"one", before_us=NOW_US + 1))
    spool.advance(-1, 5, "three")


def test_packing_says_again_where_writers_are(spool: Spool) -> None:
    spool.advance(-1, 5)
    spool.advance(5, 6)
    spool.advance(-1, 9, "other")
    spool.advance(-1, 1, "gone")
    spool.run(staging.ForgetWriter(table=catalog.NO_TABLE, name=b"gone", before_us=NOW_US + 1))
    said = spool.pack(len(spool.ops()))
    assert sorted(op.column("name")[0] for op in said) == [b"other", b"w"]
    assert {(op.opcode, op.table) for op in said} == {(Opcode.WRITER, catalog.NO_TABLE)}
    assert (spool.at(), spool.at("other"), spool.at("gone")) == (6, 9, -1)
    assert {op.column("at_us")[0] for op in said} == {NOW_US}  # they are as old as before
    spool.verify()
    spool.advance(6, 7)
