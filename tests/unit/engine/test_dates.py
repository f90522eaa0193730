from __future__ import annotations

import pytest

from fjord.columns import Strings
from fjord.engine.group import arrival_of, lanes_of, schedule_of
from fjord.engine.news import Arrival
from fjord.jobs import How, State
from fjord.ops import STRINGS, Column, Op, Opcode
from fjord.tables.jobs import rows as ops
from fjord.tables.jobs.layout import JobRow
from fjord.tables.state import Tree

ROW = JobRow(
    lane=5,
    priority=220,
    process_at_us=70,
    row=3,
    inserted_us=1,
    updated_us=2,
    expires_at_us=0,
    held=3,
    hash=b"h" * 16,
    probe=0,
    timeouts=0,
    type=1,
    domain_bytes=0,
    segment=1,
    offset=2,
    size=3,
    crc=4,
    domain=b"",
    key=b"k",
)


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
    assert schedule_of(op(opcode, expires_at_us=[0, 0])) is None
    assert schedule_of(op(opcode, expires_at_us=[0, 8])) == (Tree.KV_EXPIRY, 8)
    assert schedule_of(op(opcode, expires_at_us=[9, 8])) == (Tree.KV_EXPIRY, 8)


@pytest.mark.parametrize("opcode", [Opcode.JOB_ADD, Opcode.JOB_REPLACE])
def test_expiries_of_jobs(opcode: Opcode) -> None:
    assert schedule_of(op(opcode, expires_at_us=[0, 0])) is None
    assert schedule_of(op(opcode, rows=1, expires_at_us=[8])) == (Tree.JOBS_EXPIRY, 8)


@pytest.mark.parametrize("opcode", [Opcode.JOB_TAKE, Opcode.JOB_TOUCH, Opcode.JOB_LEASE])
def test_ends_of_leases(opcode: Opcode) -> None:
    assert schedule_of(op(opcode, deadline_us=[7, 5])) == (Tree.JOBS_LEASES, 5)


def test_a_job_that_waits_again_brings_its_expiry_along() -> None:
    held = ops.Held(State.TAKEN, 1, ROW)
    waits = [(held, ROW), (held, ROW._replace(expires_at_us=90))]
    (wait,) = ops.wait(9, waits, How.FAIL)
    assert schedule_of(wait) == (Tree.JOBS_EXPIRY, 90)
    (wait,) = ops.wait(9, waits[:1], How.FAIL)
    assert schedule_of(wait) is None


@pytest.mark.parametrize("opcode", [Opcode.JOB_ADD, Opcode.JOB_REPLACE])
def test_jobs_that_are_pushed_arrive(opcode: Opcode) -> None:
    found = op(opcode, process_at_us=[70, 60], lane=[5, 6], priority=[199, 200])
    assert arrival_of(found) == Arrival(2, 60)
    assert list(lanes_of(found)) == [((5, False), 70), ((6, True), 60)]
    assert arrival_of(op(opcode, rows=1, process_at_us=[70])) == Arrival(1, 70)


def test_jobs_that_wait_again_arrive() -> None:
    held = ops.Held(State.TAKEN, 1, ROW)
    (wait,) = ops.wait(9, [(held, ROW), (held, ROW._replace(process_at_us=50))], How.FAIL)
    assert arrival_of(wait) == Arrival(2, 50)
    assert list(lanes_of(wait)) == [((5, True), 70), ((5, True), 50)]
