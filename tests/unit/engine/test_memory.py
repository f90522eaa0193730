"""What an engine keeps in memory: values, gathered writes, counts and dates."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Batch, Command, Refusal, Rename, Set
from fjord.engine import group
from fjord.engine.memory import TREE_COUNT, Gathered, Overlay
from fjord.engine.news import Arrival
from fjord.index.memory import MemoryIndex
from fjord.jobs import How, State
from fjord.ops import STRINGS, Column, Op, Opcode
from fjord.tables.jobs import rows as ops
from fjord.tables.jobs.layout import JobRow
from fjord.tables.state import JobCounts, Tree
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, open_at, read, set_command, write

CACHE_BYTES = 64 * 1024


@pytest.mark.req("FJ-31")
@pytest.mark.parametrize("links_max", [1, 100])
@pytest.mark.parametrize("what", ["refused batch", "restart", "nothing"])
def test_further_keys_are_known_whatever_happened_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, links_max: int
) -> None:
    monkeypatch.setattr(limits, "LINKS_MAX", links_max)
    clock = SimClock()
    engine = open_at(tmp_path, clock)

    def link(key: bytes, *also: bytes) -> Set:
        command = set_command({key: b"value"}, timestamp_us=clock.wall_us())
        return replace(command, also=Strings.of(also))

    def rename(key: bytes, to: bytes) -> Rename:
        clock.advance(1)
        return Rename(table=TABLE, key=key, to=to, timestamp_us=clock.wall_us())

    engine.run([link(b"other", b"another"), rename(b"other", b"x")])  # from here on they are known
    if what == "refused batch":
        batch: list[Command] = [link(b"a", b"b"), rename(b"a", b"y"), rename(b"nothing", b"z")]
        (refused,) = engine.run([Batch(commands=batch)])
        assert isinstance(refused, Refusal)
    engine.run([link(b"a", b"b", b"c")])
    if what == "restart":
        engine.sync()
        engine.close()
        engine = open_at(tmp_path, clock)
    engine.run([rename(b"a", b"d"), rename(b"b", b"e"), rename(b"d", b"f")])
    engine.sync()
    assert read(engine, b"f", b"c", b"e", b"x", b"another") == [b"value"] * 5
    assert read(engine, b"a", b"b", b"d", b"other") == [None] * 4
    engine.close()


@pytest.mark.req("FJ-29")
def test_data_larger_than_the_cache_is_served_and_the_cache_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VALUE_CACHE_BYTES", CACHE_BYTES)
    clock = SimClock()
    engine = open_at(tmp_path, clock)
    dice = random.Random(1)
    model = {b"key-%04d" % number: dice.randbytes(1000) for number in range(1000)}
    write(engine, clock, model)
    for _ in range(3):
        for key in dice.sample(list(model), 500):
            assert read(engine, key) == [model[key]]
            assert engine.journal._values.size <= CACHE_BYTES
    assert len(engine.journal._values) > 10  # it is in use
    assert read(engine, *model) == list(model.values())


# -- writes that are gathered ---------------------------------------------------------------------

TREE = 2


@pytest.fixture
def index() -> MemoryIndex:
    index = MemoryIndex(TREE_COUNT)
    transaction = index.begin()
    transaction.put_many(TREE, [(b"a", b"1"), (b"b", b"2"), (b"d", b"4")])
    transaction.commit()
    return index


def test_gathered_writes_come_out_as_the_last_of_each_key(index: MemoryIndex) -> None:
    gathered = Gathered()
    gathered.put_many(TREE, [(b"c", b"3"), (b"a", b"9")])
    gathered.delete_many(TREE, [b"a", b"d"])
    gathered.put_many(TREE, [(b"d", b"8")])
    assert gathered.rows == 3
    transaction = index.begin()
    gathered.write(transaction)
    transaction.commit()
    assert index.view().scan(TREE, b"", None, 10) == [(b"b", b"2"), (b"c", b"3"), (b"d", b"8")]


def test_an_overlay_shows_its_own_writes_over_what_is_below(index: MemoryIndex) -> None:
    overlay = Overlay(index.begin())
    assert overlay.get_many(TREE, [b"a", b"x"]) == [b"1", None]
    overlay.put_many(TREE, [(b"a", b"9"), (b"c", b"3")])
    overlay.delete_many(TREE, [b"b"])
    assert overlay.get_many(TREE, [b"a", b"b", b"c", b"d"]) == [b"9", None, b"3", b"4"]


def test_a_scan_merges_both_in_order(index: MemoryIndex) -> None:
    overlay = Overlay(index.begin())
    overlay.put_many(TREE, [(b"c", b"3"), (b"0", b"0")])
    overlay.delete_many(TREE, [b"a"])
    assert overlay.scan(TREE, b"", None, 3) == [(b"0", b"0"), (b"b", b"2"), (b"c", b"3")]
    assert overlay.scan(TREE, b"b", b"d", 10) == [(b"b", b"2"), (b"c", b"3")]


# -- counts of jobs -------------------------------------------------------------------------------


def test_what_was_lost_does_not_make_a_count_negative() -> None:
    counts = group.Counts({})
    counts.change(1, State.TAKEN, 4, 0, 4)
    assert counts.of(1) == JobCounts(0, 0, 0)


def test_counts_are_kept_with_the_index() -> None:
    transaction = MemoryIndex(len(Tree)).begin()
    counts = {1: JobCounts(1, 2, 3), 2**32 - 1: JobCounts(4, 0, 0), -7: JobCounts(5, 9, 0)}
    group.write_progress(transaction, 1, 0, counts)
    assert group.read_counts(transaction) == {**counts, -7: JobCounts(5, 0, 0)}
    group.write_progress(transaction, 2, 0, {1: JobCounts(0, 0, 0), -7: JobCounts(0, 9, 0)})
    group.write_progress(transaction, 3, 0, {})
    assert group.read_counts(transaction) == {2**32 - 1: JobCounts(4, 0, 0)}


# -- dates that ops bring -------------------------------------------------------------------------

ROW = JobRow(
    lane=5, priority=220, process_at_us=70, row=3, inserted_us=1, updated_us=2, expires_at_us=0,
    held=3, hash=b"h" * 16, probe=0, timeouts=0, type=1, domain_bytes=0,
    segment=1, offset=2, size=3, crc=4, domain=b"", key=b"k",
)  # fmt: skip


def op(opcode: Opcode, rows: int = 2, **columns: list[int]) -> Op:
    """An op whose other columns are zeros and empty strings."""
    found: list[Column] = []
    for name, kind in opcode.columns:
        empty: Column = Strings.of([b""] * rows) if kind == STRINGS else [0] * rows
        found.append(columns.get(name, empty))
    return Op(opcode, 9, rows, tuple(found))


@pytest.mark.parametrize(
    "opcode", [Opcode.KV_SET, Opcode.KV_MOVE, Opcode.KV_MARK, Opcode.KV_EXPIRE]
)
def test_expiries_of_values(opcode: Opcode) -> None:
    assert group.schedule_of(op(opcode, expires_at_us=[0, 0])) is None
    assert group.schedule_of(op(opcode, expires_at_us=[0, 8])) == (Tree.KV_EXPIRY, 8)
    assert group.schedule_of(op(opcode, expires_at_us=[9, 8])) == (Tree.KV_EXPIRY, 8)


@pytest.mark.parametrize("opcode", [Opcode.JOB_ADD, Opcode.JOB_REPLACE])
def test_expiries_of_jobs(opcode: Opcode) -> None:
    assert group.schedule_of(op(opcode, expires_at_us=[0, 0])) is None
    assert group.schedule_of(op(opcode, rows=1, expires_at_us=[8])) == (Tree.JOBS_EXPIRY, 8)


@pytest.mark.parametrize("opcode", [Opcode.JOB_TAKE, Opcode.JOB_TOUCH, Opcode.JOB_LEASE])
def test_ends_of_leases(opcode: Opcode) -> None:
    assert group.schedule_of(op(opcode, deadline_us=[7, 5])) == (Tree.JOBS_LEASES, 5)


def test_a_job_that_waits_again_brings_its_expiry_along() -> None:
    held = ops.Held(State.TAKEN, 1, ROW)
    waits = [(held, ROW), (held, ROW._replace(expires_at_us=90))]
    (wait,) = ops.wait(9, waits, How.FAIL)
    assert group.schedule_of(wait) == (Tree.JOBS_EXPIRY, 90)
    (wait,) = ops.wait(9, waits[:1], How.FAIL)
    assert group.schedule_of(wait) is None


@pytest.mark.parametrize("opcode", [Opcode.JOB_ADD, Opcode.JOB_REPLACE])
def test_jobs_that_are_pushed_arrive(opcode: Opcode) -> None:
    found = op(opcode, process_at_us=[70, 60], lane=[5, 6], priority=[199, 200])
    assert group.arrival_of(found) == Arrival(2, 60)
    assert list(group.lanes_of(found)) == [((5, False), 70), ((6, True), 60)]
    assert group.arrival_of(op(opcode, rows=1, process_at_us=[70])) == Arrival(1, 70)


@pytest.mark.parametrize("opcode", [Opcode.KV_INSERT, Opcode.JOB_DONE, Opcode.JOB_REMOVE])
def test_other_ops_say_nothing_of_dates(opcode: Opcode) -> None:
    assert group.schedule_of(op(opcode)) is None
