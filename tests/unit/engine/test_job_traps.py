"""What once went wrong with jobs, or nearly did."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from fjord import commands, jobs
from fjord.columns import Strings
from fjord.commands import Acted, Batch, CreateTable, DropTable, Refusal, Taken
from fjord.disk import LocalDisk
from fjord.engine import Engine, memory
from fjord.errors import Code
from fjord.jobs import Fairness, How
from fjord.journal import repair
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.tables.jobs import take as job_next
from fjord.tables.state import Tree
from fjord.testing import SimClock
from tests.unit.engine.test_jobs import SECOND, push, run, take, tend
from tests.unit.engine.world import open_at
from tests.unit.tables.world import code_of


def settle(engine: Engine, clock: SimClock) -> int:
    """Does all upkeep, rests included; returns in how many steps."""
    for step in range(1000):
        if not engine.upkeep() and engine.upkeep_due_us() > clock.wall_us():
            engine.sync()
            return step
        clock.advance(0.01)
    raise AssertionError("upkeep does not come to an end")


def fair(engine: Engine) -> None:
    declared = jobs.Settings(fairness=Fairness.DOMAIN).encode()
    run(engine, CreateTable(name="jobs", kind=Kind.JOBS.number, settings=declared))


def test_a_command_that_comes_to_more_than_a_frame_is_refused(
    engine: Engine, clock: SimClock
) -> None:
    keys = [b"%0200d" % number for number in range(35_000)]
    run(engine, push(clock, *keys[:17_000]))
    run(engine, push(clock, *keys[17_000:]))
    bury = commands.Bury(table="jobs", keys=Strings.of(keys), reason=b"r" * 1000)
    reply = run(engine, bury)
    assert code_of(reply) is Code.TOO_LARGE
    assert isinstance(run(engine, replace(bury, keys=Strings.of(keys[:5000]))), Acted)
    assert engine.job_counts()["jobs"] == (30_000, 0, 5000)


@pytest.mark.parametrize("count", [1, 1500])
def test_leases_of_a_dropped_table_hold_up_nothing(
    engine: Engine, clock: SimClock, count: int
) -> None:
    run(engine, push(clock, *[b"%d" % number for number in range(count)]))
    run(engine, commands.Next(table="jobs", count=count, lease_us=SECOND))
    run(engine, DropTable(name="jobs"))
    run(engine, replace(push(clock, b"k", expires=5), table="other"))
    clock.advance(10)
    settle(engine, clock)
    assert engine.job_counts()["other"].waiting == 0
    assert not engine.scan_index(Tree.JOBS_TAKEN, b"", None, 1)
    assert not engine.scan_index(Tree.JOBS_LEASES, b"", None, 1)


@pytest.mark.req("FJ-32")
@pytest.mark.parametrize("how", [How.TIMEOUT, How.FAIL])
def test_of_two_jobs_of_one_key_that_come_back_the_newer_one_stays(
    engine: Engine, clock: SimClock, how: How
) -> None:
    xids: list[int] = []
    for value in (b"old", b"new"):
        clock.advance(1)
        run(engine, replace(push(clock, b"k"), values=Strings.of([value])))
        xids.append(take(engine, lease_us=(60 + len(xids)) * SECOND).first_xid)
    for xid in xids:
        if how is How.TIMEOUT:
            clock.advance(60)
            tend(engine)
        else:
            run(engine, commands.Fail(table="jobs", xids=[xid]))
    assert take(engine, 5).values.rows() == [b"new"]
    assert engine.job_counts()["jobs"] == (0, 1, 0)


@pytest.mark.req("FJ-32")
@pytest.mark.parametrize("what", ["refused batch", "failed write", "restart", "much is done"])
def test_a_job_is_overtaken_whatever_happened_in_between(
    engine: Engine, clock: SimClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(memory, "_DONE_MAX", 2)
    run(engine, push(clock, b"other"))
    take(engine)
    run(engine, push(clock, b"k"))
    old = take(engine)
    clock.advance(1)
    run(engine, push(clock, b"k"))
    takes = commands.Next(table="jobs", count=1)
    if what == "refused batch":
        too_long = commands.Next(table="jobs", count=1, lease_us=2**60)
        assert isinstance(run(engine, Batch(commands=[takes, too_long])), Refusal)
    elif what == "failed write":
        with monkeypatch.context() as patched:
            patched.setattr(engine.writer, "append", raise_full)
            assert isinstance(run(engine, takes), Refusal)
    elif what == "restart":
        engine.close()
        engine = open_at(tmp_path, clock)
    else:
        for number in range(10):
            run(engine, replace(push(clock, b"%d" % number), priorities=b"\1"))
            run(engine, commands.Finish(table="jobs", xids=[take(engine).first_xid]))
    new = take(engine)
    assert new.keys.rows() == [b"k"]
    run(engine, commands.Finish(table="jobs", xids=[new.first_xid]))
    run(engine, commands.Fail(table="jobs", xids=[old.first_xid]))
    assert engine.job_counts()["jobs"] == (0, 1, 0)
    engine.close()


def raise_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "the disk is full")


def test_a_pointer_from_before_a_repair_is_not_taken_for_one_into_the_frame(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    run(engine, CreateTable(name="jobs", kind=Kind.JOBS.number))
    run(engine, replace(push(clock, b"lost"), values=Strings.of([b"L" * 20_000])))
    run(engine, push(clock, b"b"))
    taken = take(engine, 2)
    run(engine, commands.Fail(table="jobs", xids=[taken.first_xid + 1], counts=False))
    engine.close()
    path = min((tmp_path / "journal").glob("*.seg"))
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"LLLL"))
        file.write(b"V")
    list(repair.repair(LocalDisk(), str(tmp_path / "journal"), str(tmp_path / "quarantine")))
    (tmp_path / "index" / "data.mdb").unlink()
    engine = open_at(tmp_path, clock)
    other = replace(push(clock, b"c"), table="other", values=Strings.of([b"X" * 40_000]))
    _, found = engine.run([other, commands.Next(table="jobs")])
    assert isinstance(found, Taken)
    assert found.values.rows() == [b"value of b"]


def test_a_batch_that_is_refused_leaves_no_lane_forgotten(engine: Engine, clock: SimClock) -> None:
    fair(engine)
    run(engine, push(clock, b"k", domain=b"d"))
    assert not take(engine, lease_us=0).next_at_us
    settle(engine, clock)
    run(engine, push(clock, b"l", domain=b"e"))
    cancel = commands.Cancel(table="jobs", keys=Strings.of([b"l"]))
    bad = commands.Cancel(table="jobs", keys=Strings.of([b""]))
    batch = Batch(commands=[cancel, commands.CountJobs(table="jobs"), bad])
    assert isinstance(run(engine, batch), Refusal)
    assert take(engine).keys.rows() == [b"l"]


@pytest.mark.req("SJ-09")
@pytest.mark.parametrize("is_fair", [True, False])
def test_many_expired_jobs_hide_no_live_one(
    engine: Engine, clock: SimClock, monkeypatch: pytest.MonkeyPatch, is_fair: bool
) -> None:
    monkeypatch.setattr(job_next, "EXPIRED_MAX", 10)
    if is_fair:
        fair(engine)
    keys = [b"%d" % number for number in range(25)]
    run(engine, push(clock, *keys, domain=b"d", expires=5))
    run(engine, replace(push(clock, b"slow", domain=b"d"), priorities=b"\xdc"))
    clock.advance(1)
    run(engine, push(clock, b"live", domain=b"d"))
    clock.advance(10)
    handed_out = []
    for _ in range(6):
        handed_out += take(engine).keys.rows()
    assert handed_out == [b"live", b"slow"]
    assert engine.job_counts()["jobs"] == (0, 2, 0)


def test_a_value_that_cannot_be_read_holds_up_no_other(
    engine: Engine, clock: SimClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, push(clock, b"bad", b"good"))

    def read(self: Journal, segment: int, offset: int, size: int, crc: int) -> bytes:
        raise OSError(errno.EIO, "a bad sector")

    with monkeypatch.context() as broken:
        broken.setattr(Journal, "_read_payload", read)
        broken.setattr(Journal, "_find_payload", lambda *_: None)
        assert take(engine).next_at_us
    assert take(engine, 2).keys.rows() == [b"good"]
    assert engine.job_counts()["jobs"] == (0, 1, 1)


@pytest.mark.parametrize("count", [12, 40])
def test_answers_that_are_cut_cost_no_domain_its_turn(
    engine: Engine, clock: SimClock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("fjord.limits.NEXT_BYTES_MAX", 5000)
    fair(engine)
    domains = [b"d%d" % number for number in range(12)]
    for domain in domains:
        keys = [b"%s-%d" % (domain, number) for number in range(10)]
        values = Strings.of([b"x" * 1000] * 10)
        run(engine, replace(push(clock, *keys, domain=domain), values=values))
    served: list[bytes] = []
    while len(served) < 24:
        served += take(engine, count).domains.rows()
    assert sorted(served[:12]) == sorted(served[12:24]) == sorted(domains)
