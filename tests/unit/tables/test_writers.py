"""Writers of no table: they say how far they are, and are refused if they are elsewhere."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.commands import Advance, AskWriter, CommitStages, Committed, Done, Refusal
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.tables import catalog, staging
from tests.unit.tables.world import NOW_US, World


class Spool(World):
    """A world in which somebody advances."""

    def advance(self, expected: int, batch: int, writer: str = "w") -> Done:
        reply = self.run(Advance(writer=writer, expected=expected, batch=batch))
        assert isinstance(reply, Done), reply
        return reply

    def refused(self, expected: int, batch: int, writer: str = "w") -> Refusal:
        before = self.next_seq
        reply = self.run(Advance(writer=writer, expected=expected, batch=batch))
        assert isinstance(reply, Refusal), reply
        assert self.next_seq == before
        return reply

    def at(self, writer: str = "w", table: str = "") -> int:
        reply = self.run(AskWriter(table=table, writer=writer))
        assert isinstance(reply, Committed), reply
        assert (reply.is_new, reply.left, reply.rows) == (False, 0, 0)
        return reply.batch

    def verify(self) -> None:
        """Asserts that all holds, and that the journal tells the same again."""
        self.check()
        assert self.replayed().trees() == self.trees()


@pytest.fixture
def world() -> Spool:
    return Spool()


def test_a_writer_advances_from_number_to_number(world: Spool) -> None:
    assert world.at() == -1
    assert world.advance(-1, 100).seq == 1
    assert world.advance(100, 512).seq == 2
    assert world.at() == 512
    (op, _) = world.ops()
    assert (op.opcode, op.table, op.rows) == (Opcode.WRITER, catalog.NO_TABLE, 1)
    world.verify()


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
    world: Spool, expected: int, batch: int, text: str
) -> None:
    world.advance(-1, 512)
    refusal = world.refused(expected, batch)
    assert (refusal.code, refusal.text) == (Code.STALE_NUMBER, text)
    assert world.at() == 512


@pytest.mark.parametrize("batch", [0, 600])
def test_a_writer_that_is_not_known_is_at_no_number(world: Spool, batch: int) -> None:
    refusal = world.refused(512, batch)
    assert (refusal.code, refusal.text) == (
        Code.STALE_NUMBER,
        "writer w is new, not at 512",
    )
    assert world.at() == -1


def test_a_writer_that_is_over_takes_no_batch_that_comes_late(world: Spool) -> None:
    """Its first batch was given up for lost, and expects that nobody knows the writer."""
    world.advance(-1, 512)
    world.advance(512, 0)
    assert world.at() == staging.OVER
    late = world.refused(-1, 512)
    assert (late.code, late.text) == (Code.STALE_NUMBER, "writer w is finished, not new")
    assert world.refused(512, 600).code is Code.STALE_NUMBER
    assert world.refused(512, 0).code is Code.STALE_NUMBER
    world.verify()


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
def test_a_writer_only_goes_forward(world: Spool, expected: int, batch: int) -> None:
    assert world.refused(expected, batch).code is Code.BAD_RANGE


def test_the_largest_number_is_one(world: Spool) -> None:
    world.advance(-1, 2**63 - 3)
    world.advance(2**63 - 3, 2**63 - 2)
    assert world.at() == 2**63 - 2
    world.advance(2**63 - 2, 0)
    assert world.at() == staging.OVER


@pytest.mark.parametrize("name", ["", "x" * 129, "\u00fc" * 65])
def test_a_name_has_bounds(world: Spool, name: str) -> None:
    assert world.refused(-1, 5, name).code is Code.BAD_NAME
    asked = world.run(AskWriter(table="", writer=name))
    assert isinstance(asked, Refusal)
    assert asked.code is Code.BAD_NAME


def test_writers_of_a_table_and_of_none_do_not_meet(world: Spool) -> None:
    world.set({b"k": b"v"})
    world.run(CommitStages(table="t", writer="w", batch=3, stages=[]))
    world.advance(-1, 512)
    assert (world.at(), world.at(table="t"), world.at("other")) == (512, 3, -1)
    without = world.run(CommitStages(table="", writer="w", batch=3, stages=[]))
    assert isinstance(without, Refusal)
    assert without.code is Code.BAD_NAME
    world.verify()


def test_there_are_not_too_many_writers(world: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITERS_MAX", 2)
    for name in ("one", "two"):
        world.advance(-1, 5, name)
    assert world.refused(-1, 5, "three").code is Code.QUOTA
    world.advance(5, 6, "two")  # who is known goes on
    world.advance(5, 0, "one")
    world.run(staging.ForgetWriter(table=catalog.NO_TABLE, name=b"one", before_us=NOW_US + 1))
    world.advance(-1, 5, "three")


def test_packing_says_again_where_writers_are(world: Spool) -> None:
    world.advance(-1, 5)
    world.advance(5, 6)
    world.advance(-1, 9, "other")
    world.advance(-1, 1, "gone")
    world.run(staging.ForgetWriter(table=catalog.NO_TABLE, name=b"gone", before_us=NOW_US + 1))
    said = world.pack(len(world.ops()))
    assert sorted(op.column("name")[0] for op in said) == [b"other", b"w"]
    assert {(op.opcode, op.table) for op in said} == {(Opcode.WRITER, catalog.NO_TABLE)}
    assert (world.at(), world.at("other"), world.at("gone")) == (6, 9, -1)
    assert {op.column("at_us")[0] for op in said} == {NOW_US}  # they are as old as before
    world.verify()
    world.advance(6, 7)


def test_only_a_writer_that_was_not_heard_of_is_forgotten(world: Spool) -> None:
    world.advance(-1, 5)
    forget = staging.ForgetWriter(table=catalog.NO_TABLE, name=b"w", before_us=NOW_US)
    world.run(forget)
    assert world.at() == 5
    world.run(staging.ForgetWriter(table=catalog.NO_TABLE, name=b"w", before_us=NOW_US + 1))
    assert world.at() == -1
    world.verify()
