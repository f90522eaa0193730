"""Rows of jobs tables: each op of a real life of jobs, whole; and images that are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import commands, jobs
from fjord.blocks import rows as job_columns
from fjord.errors import FjordError
from fjord.jobs import How, State
from fjord.ops import Opcode
from fjord.tables import catalog
from fjord.tables.jobs import layout
from tests.unit.blocks import scans
from tests.unit.blocks.scans import row, rows
from tests.unit.tables.job_world import SECOND, TABLE, JobWorld, New

URI = b"http://user@Example.com:80/a"


def shown(world: JobWorld) -> list[dict[str, Any]]:
    """Returns all rows of a world but for the dates of their commits."""
    found = rows(scans.piece(world.ops(), world.first_seq), end_seq=world.next_seq)
    return [{**one, "ts": None, "txn": None} for one in found]


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, tz=UTC)


@pytest.fixture
def world() -> JobWorld:
    """A table in which the second failure kills; its CREATE_TABLE has the seq 1."""
    return JobWorld(timeouts_max=1)


def test_a_job_that_is_pushed_merged_taken_and_done(world: JobWorld) -> None:
    start = moment(world.now_us)
    expiry_us = world.now_us + 60 * SECOND
    world.push(New(URI, b"first", 20, 0, expiry_us), New(b"no-uri", b"2", 200, domain=b"Given"))
    world.push_one(URI, value=b"second", priority=30)
    (job,) = world.next()
    world.done(job)
    example = {"row": 2, "key": URI, "domain": "example.com", "priority": 20, "process_at": start}
    given_ = {"key": b"no-uri", "domain": "Given", "priority": 200, "process_at": start}
    expires = {"expires_at": moment(expiry_us)}
    pushed = {"timeouts": 0, "type": 1}
    assert shown(world) == [
        row(2, op="ADD", **example, **expires, **pushed, value=b"first"),
        row(3, op="ADD", **given_, **pushed, value=b"2"),
        row(4, op="REPLACE", **example, **pushed, value=b"second"),
        row(5, op="TAKE", xid=5, **example, timeouts=0),
        row(6, op="DONE", xid=5, row=2),
    ]


def test_jobs_that_fail_die_and_come_back(world: JobWorld) -> None:
    start = moment(world.now_us)
    world.push_one(b"key", value=b"value")
    (first,) = world.next()
    world.fail(first, delay_us=5 * SECOND, reason=b"once")
    world.wait(5)
    assert world.keys(lease_us=2 * SECOND) == [b"key"]
    world.wait(2)
    world.revive(2)
    (third,) = world.next()
    world.fail(third, counts=False)
    later, last = start + timedelta(seconds=5), start + timedelta(seconds=7)
    job = {"row": 2, "key": b"key", "priority": 100}
    dead = {"type": 2, "value": b"timed out 2 times"}
    assert shown(world) == [
        row(2, op="ADD", **job, process_at=start, timeouts=0, type=1, value=b"value"),
        row(3, op="TAKE", **job, xid=3, process_at=start, timeouts=0),
        row(4, op="FAIL", **job, xid=3, process_at=later, timeouts=1),
        row(5, op="TAKE", **job, xid=5, process_at=later, timeouts=1),
        row(6, op="DEAD", **job, xid=5, process_at=later, timeouts=2, **dead),
        row(7, op="REVIVE", **job, process_at=last, timeouts=0),
        row(8, op="TAKE", **job, xid=8, process_at=last, timeouts=0),
        row(9, op="GIVEN_BACK", **job, xid=8, process_at=last, timeouts=0),
    ]


def test_what_is_removed_is_told_by_why(world: JobWorld) -> None:
    start, expiry_us = moment(world.now_us), world.now_us + SECOND
    world.push(New(b"a", priority=1), New(b"b", expires_at_us=expiry_us), New(b"c", priority=3))
    (taken,) = world.next()
    world.push_one(b"a", priority=2)
    world.fail(taken)
    assert world.keys(done=True) == [b"a"]
    world.cancel(b"c")
    world.wait(1)
    job = {"process_at": start, "timeouts": 0, "type": 1, "value": b""}
    gone = {"process_at": start}
    assert shown(world) == [
        row(2, op="ADD", key=b"a", priority=1, **job),
        row(3, op="ADD", key=b"b", priority=100, expires_at=moment(expiry_us), **job),
        row(4, op="ADD", key=b"c", priority=3, **job),
        row(5, op="TAKE", row=2, xid=5, key=b"a", priority=1, process_at=start, timeouts=0),
        row(6, op="ADD", key=b"a", priority=2, **job),
        row(7, op="SUPERSEDED", row=2, xid=5, priority=1, **gone),
        row(8, op="DONE", row=6, priority=2, **gone),
        row(9, op="CANCEL", row=4, priority=3, **gone),
        row(10, op="EXPIRE", row=3, priority=100, expires_at=moment(expiry_us), **gone),
    ]


def test_jobs_that_packing_says_again_are_those_that_they_were(world: JobWorld) -> None:
    start = moment(world.now_us)
    world.push(New(b"dead", b"1", 1), New(b"taken", b"2", 2), New(b"waiting", b"3", 3))
    world.bury(b"dead", reason=b"by hand")
    (taken,) = world.next()
    last_seq = world.next_seq - 1
    world.pack(4)
    job = {"process_at": start, "timeouts": 0, "type": 1}
    assert (taken.xid, last_seq) == (6, 6)
    assert shown(world) == [
        row(7, op="MOVE", row=4, key=b"waiting", priority=3, value=b"3", **job),
        row(8, op="MOVE", row=3, xid=6, key=b"taken", priority=2, value=b"2", **job),
        row(9, op="MOVE_DEAD", row=2, key=b"dead", priority=1, value=b"1", **job),
        # The rest is about the table itself, and about the note of the lease.
    ]


def test_what_is_rescheduled_discarded_and_dropped(world: JobWorld) -> None:
    world.push(New(b"a"), New(b"b"))
    world.reschedule(b"a", priority=7)
    world.bury(b"a", reason=b"no")
    world.discard(2)
    world.run(commands.DropTable(name=TABLE))
    world.run(catalog.Sweep(limit=10))
    found = [
        (one["seq"], one["op"], one["row"], one["priority"], one["xid"]) for one in shown(world)
    ]
    assert found == [
        (2, "ADD", 2, 100, None),
        (3, "ADD", 3, 100, None),
        (4, "RESCHEDULE", 2, 7, None),
        (5, "DEAD", 2, 7, None),
        (6, "DISCARD", 2, 7, None),
        (8, "PURGE", 3, 100, None),
    ]


# -- images ---------------------------------------------------------------------------------------

numbers = st.integers(0, 2**63 - 1)


def job(wide: list[int], small: list[int], domain: bytes, key: bytes) -> layout.JobRow:
    place, rest = (wide[0], small[0], *wide[1:3]), (*wide[3:7], b"h" * 16, *small[1:4])
    return layout.JobRow._make((*place, *rest, len(domain), 1, 2, 3, 4, domain, key))


job_rows = st.builds(
    job,
    st.lists(numbers, min_size=7, max_size=7),
    st.lists(st.integers(0, 255), min_size=4, max_size=4),
    st.binary(max_size=255),
    st.binary(max_size=40),
)


@given(st.lists(job_rows, min_size=1, max_size=5))
def test_images_say_what_the_index_knows(found: list[layout.JobRow]) -> None:
    columns = job_columns.read_images(pa.array([one.image for one in found], pa.binary()))
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        name: [getattr(one, name) for one in found]
        for name in (
            "priority",
            "process_at_us",
            "row",
            "expires_at_us",
            "timeouts",
            "type",
            "domain",
            "key",
        )
    }


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(92), id="too short"),
        pytest.param(bytes(76) + b"\5" + bytes(20), id="shorter than its domain"),
    ],
)
def test_what_is_no_image_is_refused(image: bytes) -> None:
    whole = bytes(93)
    with pytest.raises(FjordError, match="not ops"):
        job_columns.read_images(pa.array([whole, image], pa.binary()))


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(FjordError, match="not ops"):
        job_columns.read_places(pa.array([bytes(25), bytes(24)], pa.binary()))


@pytest.mark.parametrize("how", [0, len(How) + 1, 255])
def test_an_unknown_reason_is_refused(how: int) -> None:
    columns: dict[str, Any] = {
        "how": bytes([how]),
        "state": bytes([State.DEAD]),
        "place": [bytes(25)],
        "slot": [b""],
    }
    with pytest.raises(FjordError, match="not ops"):
        rows(scans.piece([scans.op(Opcode.JOB_REMOVE, 1, columns)]))


# -- domains --------------------------------------------------------------------------------------

_WORDS = (b"http", b"://", b"Ex.COM", b"user@", b":80", b"[::1]", b"\xc3\xa4", b"\xc2\xa0")
# What regular expressions of Python and of RE2 may take differently is among these.
_SIGNS = [bytes([one]) for one in b":/@[]?# +.-9\t\n\v\f\r\0\x1c\x85\xff"]
pieces = st.sampled_from([*_WORDS, *_SIGNS])
keys = st.lists(pieces, max_size=8).map(b"".join) | st.binary(max_size=20)


@given(st.lists(st.tuples(st.sampled_from([b"", b"Given", b"\xff"]), keys), min_size=1, max_size=6))
def test_domains_are_those_that_the_server_finds(found: list[tuple[bytes, bytes]]) -> None:
    given_, of = (pa.array(column, pa.binary()) for column in zip(*found, strict=True))
    wanted = [domain or jobs.domain_of(key) for domain, key in found]
    assert job_columns.domains(given_, of).to_pylist() == [
        domain.decode(errors="replace") or None for domain in wanted
    ]


def test_a_long_domain_is_cut_as_the_server_cuts_it() -> None:
    key = b"http://" + b"a" * 400
    (found,) = job_columns.domains(pa.array([b""], pa.binary()), pa.array([key], pa.binary()))
    assert found.as_py().encode() == jobs.domain_of(key)
