"""`fjord work`: a real worker process, real commands, a real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import fjord
from fjord.client.blocking.jobs import Jobs
from fjord.worker import WAIT_SECONDS
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.shell import process, run

SECONDS_MAX = 60.0


class Gate:
    """Lets commands wait until the test lets them go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR)  # so that it never ends, and nobody waits to open it
        self.command = f"echo begun >&2; read line <{path}"

    def let_go(self, count: int = 1) -> None:
        os.write(self._pipe, b"go\n" * count)

    def close(self) -> None:
        os.close(self._pipe)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with contextlib.closing(Gate(tmp_path / "gate")) as one:
        yield one


def work(*words: str) -> Result:
    """Runs a worker to its own end, inside the test's process."""
    return run("work", *words)


@contextlib.contextmanager
def working(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a worker meanwhile; it must have ended at the end."""
    worker = subprocess.Popen(
        [*FJORD, "work", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield worker
        assert worker.poll() is not None
    finally:
        worker.kill()
        worker.communicate(timeout=SECONDS_MAX)


def lines(worker: subprocess.Popen[str], count: int) -> list[str]:
    """Returns the next lines that a worker, or its commands, say on standard error."""
    assert worker.stderr is not None
    return [worker.stderr.readline().rstrip("\n") for _ in range(count)]


def until_parked(db: fjord.Database, count: int) -> None:
    """Waits until so many requests wait for jobs; each look is a round trip to the daemon."""
    begun = time.monotonic()
    while db.stats()["parked_waits"] != count:
        assert time.monotonic() - begun < SECONDS_MAX


def end(worker: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = worker.communicate(timeout=SECONDS_MAX)
    return worker.returncode, out, errors


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def waiting(jobs: Jobs, key: str) -> fjord.JobInfo:
    found = jobs.get(key)
    assert found is not None
    return found


# -- what a command is given, and what comes of it -------------------------------------------------


@pytest.mark.req("FJ-50")
def test_a_command_gets_the_value_and_the_environment(
    daemon: Daemon, db: fjord.Database, tmp_path: Path
) -> None:
    jobs = db.jobs("given")
    jobs.push("http://example.com/\u00e5", b"\x00raw\xff", priority=7)
    command = f"cat >{tmp_path}/value; env | grep ^FJORD_ | sort >{tmp_path}/environment; echo out"
    done = process("work", "given", "--exec", command, "--drain", "--to", daemon.url)
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert done.stderr.splitlines() == ["done http://example.com/\u00e5", "1 done"]
    assert (tmp_path / "value").read_bytes() == b"\x00raw\xff"
    told = dict(line.split("=") for line in (tmp_path / "environment").read_text().splitlines())
    assert int(told.pop("FJORD_XID")) > 0
    assert told == {
        "FJORD_TABLE": "given",
        "FJORD_TYPE": "buffer",
        "FJORD_KEY": "http://example.com/\u00e5",
        "FJORD_PRIORITY": "7",
        "FJORD_DOMAIN": "example.com",
        "FJORD_TIMEOUTS": "0",
    }
    assert jobs.count() == (0, 0, 0)


@pytest.mark.req("SJ-14")
def test_a_command_that_fails_says_why_and_its_job_waits(
    daemon: Daemon, db: fjord.Database
) -> None:
    jobs = db.jobs("fails")
    jobs.push("key")
    before = datetime.now(UTC)
    words = ("--exec", "echo first >&2; echo no such page >&2; exit 7", "--drain", "--json")
    done = process("work", "fails", *words, "--backoff", "100", "--to", daemon.url)
    first, total = objects(done.stdout)
    assert (first["result"], first["reason"]) == ("failed", "exit code 7: no such page")
    assert (total["done"], total["failed"], done.returncode) == (0, 1, 1)
    assert done.stderr == "first\nno such page\n"
    job = waiting(jobs, "key")
    assert job.timeouts == 1
    assert timedelta(seconds=95) < job.process_at - before < timedelta(seconds=160)
    jobs.kick("key")
    work("fails", "--exec", "exit 7", "--drain", "--backoff", "100", "--to", daemon.url)
    assert waiting(jobs, "key").process_at - before > timedelta(seconds=195)  # twice as long


@pytest.mark.req("SJ-15")
def test_a_job_that_fails_too_often_is_dead_with_its_reason(
    daemon: Daemon, db: fjord.Database
) -> None:
    jobs = db.create_jobs("dies", timeouts_max=2)
    jobs.push("key")
    words = ("dies", "--exec", "echo boom >&2; exit 3", "--backoff", "0", "--drain")
    assert "3 failed" in work(*words, "--to", daemon.url).stderr
    (dead,) = jobs.dead()
    assert dead.reason == "failed 3 times: exit code 3: boom"


def test_a_command_that_takes_too_long_is_ended(
    daemon: Daemon, db: fjord.Database, gate: Gate
) -> None:
    db.jobs("slow").push("key")
    words = ("slow", "--exec", gate.command, "--timeout", "0.3", "--once", "--json")
    done = process("work", *words, "--to", daemon.url)
    assert done.returncode == 1
    assert objects(done.stdout)[0]["reason"] == "it took more than 0.3 seconds"


def test_a_key_that_fits_no_environment_fails(daemon: Daemon, db: fjord.Database) -> None:
    db.jobs("zero").push(b"a\x00b")
    done = process("work", "zero", "--exec", "true", "--once", "--json", "--to", daemon.url)
    assert done.returncode == 1
    assert "cannot be started" in objects(done.stdout)[0]["reason"]


def test_a_worker_that_ends_by_itself_says_how_it_went(daemon: Daemon, db: fjord.Database) -> None:
    once, drain = (("ends", end_, "--to", daemon.url) for end_ in ("--once", "--drain"))
    assert work(*once, "--exec", "true").exit_code == 1  # there is nothing
    nothing = work(*drain, "--exec", "true")
    told = ["there is no table ends yet", "0 done"]
    assert (nothing.exit_code, nothing.stderr.splitlines()) == (0, told)
    db.jobs("ends").push_many(keys=["a", "b", "c", "d"])
    assert work(*once, "--exec", "true").exit_code == 0
    some = work(*drain, "--exec", "test $FJORD_KEY != b", "--backoff", "100")
    assert (some.exit_code, some.stderr.splitlines()[-1]) == (1, "2 done, 1 failed")
    assert work(*once, "--exec", "true").exit_code == 1  # the one that is left is not due
    assert db.jobs("ends").count() == (1, 0, 0)


def test_a_directory_is_worked_on_without_a_daemon(tmp_path: Path) -> None:
    data = tmp_path / "own"
    with fjord.open(data) as db:
        db.jobs("own").push_many(keys=[f"k{number}" for number in range(5)])
    done = work("own", "--exec", "true", "--drain", "--workers", "2", "--data", str(data))
    assert (done.exit_code, "5 done" in done.stderr) == (0, True)
    with fjord.open(data) as db:
        assert db.jobs("own").count() == (0, 0, 0)


# -- leases ---------------------------------------------------------------------------------------


@pytest.mark.req("SJ-13")
def test_a_lease_is_kept_while_the_command_runs(
    daemon: Daemon, db: fjord.Database, gate: Gate
) -> None:
    jobs = db.jobs("beats")
    jobs.push("key")
    words = ("beats", "--exec", gate.command, "--once", "--lease", "3", "--to", daemon.url)
    with working(*words) as worker:
        assert lines(worker, 1) == ["begun"]
        assert len(jobs.next(wait=4)) == 0  # longer than the lease
        gate.let_go()
        code, _, errors = end(worker)
    assert (code, errors.splitlines()) == (0, ["done key", "1 done"])
    assert jobs.count() == (0, 0, 0)


def test_a_command_whose_lease_is_lost_is_ended(
    daemon: Daemon, db: fjord.Database, gate: Gate
) -> None:
    jobs = db.jobs("lost")
    jobs.push("key")
    words = ("lost", "--exec", gate.command, "--lease", "3", "--once", "--json")
    with working(*words, "--to", daemon.url) as worker:
        assert lines(worker, 1) == ["begun"]
        (taken,) = jobs.taken()
        assert jobs.done_many([taken.xid]) == []  # behind its back
        code, out, _ = end(worker)
    assert (code, objects(out)[0]["result"]) == (1, "lost")


# -- many, and the end ----------------------------------------------------------------------------


def test_an_idle_worker_ends_at_a_signal(daemon: Daemon, db: fjord.Database) -> None:
    jobs = db.jobs("idle")
    jobs.push("key")
    words = ("idle", "--exec", "true", "--workers", "3", "--to", daemon.url)
    with working(*words) as worker:
        assert lines(worker, 1) == ["done key"]
        until_parked(db, 3)
        begun = time.monotonic()
        worker.send_signal(signal.SIGINT)
        code, _, errors = end(worker)
    assert (code, errors.splitlines()[-1]) == (0, "1 done")
    assert time.monotonic() - begun < WAIT_SECONDS / 4
    jobs.push("later")  # nobody is left who would take it
    assert jobs.count() == (1, 0, 0)
    assert jobs.cancel("later")


def test_a_job_that_comes_after_a_signal_is_given_back(tmp_path: Path, gate: Gate) -> None:
    """A thread of a directory waits until no other works; what it is handed then is too late."""
    data = tmp_path / "own"
    with fjord.open(data) as db:
        db.jobs("own").push("key")
        db.jobs("own").push("later", delay=6)  # by then a worker has begun, and was told to stop
    words = ("own", "--exec", gate.command, "--workers", "2", "--data", str(data))
    with working(*words) as worker:
        assert lines(worker, 1) == ["begun"]
        worker.send_signal(signal.SIGTERM)
        assert "no new jobs" in lines(worker, 1)[0]
        assert lines(worker, 1) == ["given back later: the worker was stopped"]
        gate.let_go()
        code, _, errors = end(worker)
    assert (code, errors.splitlines()) == (0, ["done key", "1 done, 1 given back"])
    with fjord.open(data) as db:
        assert waiting(db.jobs("own"), "later").timeouts == 0


def test_a_second_signal_gives_back_and_ends(
    daemon: Daemon, db: fjord.Database, gate: Gate, tmp_path: Path
) -> None:
    jobs = db.jobs("second")
    jobs.push("key")
    command = f"echo $$ >{tmp_path}/pid; {gate.command}"
    with working("second", "--exec", command, "--json", "--to", daemon.url) as worker:
        assert lines(worker, 1) == ["begun"]
        worker.send_signal(signal.SIGINT)
        assert "no new jobs" in lines(worker, 1)[0]
        worker.send_signal(signal.SIGINT)
        code, out, _ = end(worker)
    result, total = objects(out)
    assert (code, result["result"], total["given_back"]) == (1, "given back", 1)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    (again,) = jobs.next()
    assert (again.key, again.timeouts) == ("key", 0)


def test_a_worker_outlives_its_daemon(tmp_path: Path, gate: Gate) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with fjord.connect(daemon.url) as db:
            db.jobs("outlived").push("key")
        words = ("outlived", "--exec", gate.command, "--once")
        with working(*words, "--to", daemon.url) as worker:
            assert lines(worker, 1) == ["begun"]
            port = daemon.port
            daemon.kill()
            gate.let_go()
            daemon.start(port)
            code, _, errors = end(worker)
        assert (code, errors.splitlines()[-1]) == (0, "1 done")
        with fjord.connect(daemon.url) as db:
            assert db.jobs("outlived").count() == (0, 0, 0)
