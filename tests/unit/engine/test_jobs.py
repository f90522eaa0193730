"""Jobs on an engine: what it tells of them, and does with them by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fjord import commands, jobs
from fjord.columns import Strings, repeat
from fjord.disk import LocalDisk
from fjord.engine import Engine, ReadOnlyEngine
from fjord.errors import Code
from fjord.journal import repair
from fjord.kinds import Kind
from fjord.tables.state import JobCounts
from fjord.testing import SimClock
from tests.unit.engine import job_records as records
from tests.unit.engine.world import open_at, settings
from tests.unit.tables.world import code_of

SECOND = 1_000_000
CLIENT = b"client-of-tests."


def push(
    clock: SimClock, *keys: bytes, delay: int = 0, domain: bytes = b"", expires: int = 0
) -> commands.Push:
    command = records.push(
        *keys, now_us=clock.wall_us(), delay_us=delay * SECOND, domain=domain, table="jobs"
    )
    expires_at_us = clock.wall_us() + expires * SECOND if expires else 0
    return replace(command, expires_at_us=repeat(expires_at_us, len(keys)))


def run(engine: Engine, command: commands.Command) -> commands.Reply:
    (reply,) = engine.run([command])
    engine.sync()
    return reply


def take(engine: Engine, count: int = 1, lease_us: int = 0) -> commands.Taken:
    reply = run(engine, commands.Next(table="jobs", count=count, lease_us=lease_us))
    assert isinstance(reply, commands.Taken)
    return reply


def tend(engine: Engine) -> None:
    while engine.upkeep():
        pass
    engine.sync()


def test_counts_outlive_a_crash(engine: Engine, clock: SimClock, tmp_path: Path) -> None:
    run(engine, push(clock, *[b"%d" % number for number in range(10)]))
    taken = take(engine, 4)
    xids = range(taken.first_xid, taken.first_xid + 4)
    run(engine, commands.Finish(table="jobs", xids=xids[:1]))
    run(engine, commands.Fail(table="jobs", xids=xids[1:2], buries=True))
    expected = {"jobs": JobCounts(6, 2, 1)}
    assert engine.job_counts() == expected
    stats = engine.stats()
    assert [stats[f"jobs_{name}"] for name in ("waiting", "taken", "dead")] == [6, 2, 1]
    engine.abandon()
    engine = open_at(tmp_path, clock)
    assert engine.job_counts() == expected
    engine.close()
    (tmp_path / "index" / "data.mdb").unlink()
    engine = open_at(tmp_path, clock)
    assert engine.job_counts() == expected
    engine.close()
    reader = ReadOnlyEngine(str(tmp_path), settings(clock))
    (reply,) = reader.run([commands.CountJobs(table="jobs")])
    assert isinstance(reply, commands.Numbers)
    assert list(reply.values)[:3] == [6, 2, 1]
    (refused,) = reader.run([commands.Next(table="jobs")])
    assert code_of(refused) is Code.READ_ONLY
    reader.close()


def test_what_follows_from_a_job_is_written_by_whoever_still_has_it(
    engine: Engine, clock: SimClock
) -> None:
    run(engine, push(clock, b"a"))
    taken = take(engine, lease_us=60 * SECOND)
    finish = commands.Finish(table="jobs", xids=[taken.first_xid], strict=True)
    chain = commands.Batch(commands=[finish, push(clock, b"b")])
    clock.advance(61)
    tend(engine)
    late = run(engine, chain)
    assert code_of(late) is Code.STALE_XID
    again = take(engine)
    assert again.keys.rows() == [b"a"]
    assert not take(engine).rows
    finish = commands.Finish(table="jobs", xids=[again.first_xid], strict=True)
    assert isinstance(
        run(engine, commands.Batch(commands=[finish, push(clock, b"b")])), commands.Replies
    )
    assert take(engine).keys.rows() == [b"b"]


def test_every_death_is_counted_also_of_jobs_that_live_again(
    engine: Engine, clock: SimClock
) -> None:
    run(engine, push(clock, b"a", b"b"))
    bury = commands.Bury(table="jobs", keys=Strings.of([b"a", b"b"]))
    run(engine, bury)
    assert engine.job_deaths() == {"jobs": 2}
    dead = run(engine, commands.Peek(table="jobs", state=jobs.State.DEAD))
    assert isinstance(dead, commands.JobPage)
    run(engine, commands.Revive(table="jobs", rows=dead.rows))
    assert engine.job_counts()["jobs"].dead == 0
    refused = run(
        engine,
        commands.Batch(commands=[bury, commands.Cancel(table="jobs", keys=Strings.of([b""]))]),
    )
    assert isinstance(refused, commands.Refusal)
    run(engine, commands.Bury(table="jobs", keys=Strings.of([b"a"])))
    assert engine.job_deaths() == {"jobs": 3}


def test_the_next_date_of_domains_with_nothing_ready(engine: Engine, clock: SimClock) -> None:
    fair = jobs.Settings(fairness=jobs.Fairness.DOMAIN).encode()
    run(engine, commands.CreateTable(name="jobs", kind=Kind.JOBS.number, settings=fair))
    now_us = clock.wall_us()
    run(engine, push(clock, b"a", domain=b"x"))
    run(engine, push(clock, b"b", domain=b"x", delay=5))
    run(engine, push(clock, b"c", domain=b"y", delay=9))
    assert engine.first_date_us("jobs", now_us) == now_us + 9 * SECOND
    run(engine, push(clock, b"d", domain=b"z", delay=7))
    assert engine.first_date_us("jobs", now_us) == now_us + 7 * SECOND


def test_damage_of_one_job_does_not_hold_up_the_others(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    run(engine, push(clock, b"first", b"second"))
    path = min((tmp_path / "journal").glob("*.seg"))
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"value of first"))
        file.write(b"V")
    assert take(engine, 2).next_at_us == clock.wall_us()
    assert take(engine, 2).keys.rows() == [b"second"]
    assert engine.job_counts() == {"jobs": JobCounts(0, 1, 1)}
    dead = run(engine, commands.Peek(table="jobs", state=jobs.State.DEAD))
    assert isinstance(dead, commands.JobPage)
    assert (dead.keys.rows(), dead.types, dead.values.rows()) == ([b"first"], b"\0", [b""])
    assert b"is damaged at byte" in dead.reasons[0]


def test_jobs_are_whole_in_a_journal_that_was_repaired(
    engine: Engine, clock: SimClock, tmp_path: Path
) -> None:
    """What was damaged is left out, so that all behind it stands elsewhere."""
    run(engine, commands.CreateTable(name="jobs", kind=Kind.JOBS.number))
    run(engine, push(clock, *[b"lost-%d" % number for number in range(5)]))
    run(engine, push(clock, b"a", b"b", b"c"))
    taken = take(engine, 8)
    xids = range(taken.first_xid, taken.first_xid + 8)
    run(engine, commands.Fail(table="jobs", xids=xids[5:6], counts=False))
    engine.close()
    path = min((tmp_path / "journal").glob("*.seg"))
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"value of lost-3"))
        file.write(b"V")
    repaired = repair.repair(LocalDisk(), str(tmp_path / "journal"), str(tmp_path / "quarantine"))
    assert list(repaired)
    (tmp_path / "index" / "data.mdb").unlink()
    engine = open_at(tmp_path, clock)
    assert take(engine).values.rows() == [b"value of a"]
    clock.advance(3601)
    tend(engine)
    assert take(engine, 9).next_at_us  # those that were lost are sent to the dead letters
    found = take(engine, 9)
    assert found.values.rows() == [b"value of a", b"value of b", b"value of c"]
    assert engine.job_counts()["jobs"].dead == 5
