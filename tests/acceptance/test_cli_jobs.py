"""`fjord push`, `fjord next`, `fjord done` and `fjord jobs` against a real daemon."""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.shell import found, process, run

# -- the life of a job ----------------------------------------------------------------------------


@pytest.mark.req("FJ-28", "FJ-50", "SJ-11", "SJ-28")
def test_a_job_is_pushed_taken_and_done(to: tuple[str, str]) -> None:
    """Some of it in processes of their own, as a person would type it."""
    assert process("push", "life", "http://example.com/a", "hello", *to).returncode == 0
    waiting = run("jobs", "peek", "life", *to).stdout.split("\t")
    assert waiting[1:] == ["http://example.com/a", "100", "0", "hello\n"]
    xid, _, key, *_ = process("next", "life", "--lease", "60", *to).stdout.split("\t")
    assert key == "http://example.com/a"
    assert run("next", "life", *to).exit_code == 1
    assert run("jobs", "touch", "life", xid, *to).exit_code == 0
    assert process("done", "life", xid, *to).returncode == 0
    late = run("done", "life", xid, *to)
    assert (late.exit_code, f"{xid} is stale" in late.stderr) == (1, True)
    (counted,) = found(run("jobs", "count", "life", "--json", *to))
    assert counted == {"waiting": 0, "taken": 0, "dead": 0, "next_at": None}


@pytest.mark.req("FJ-03", "FJ-05", "FJ-07", "FJ-50", "SJ-06", "SJ-08")
def test_options_of_push_are_kept(to: tuple[str, str]) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    gone = due + timedelta(hours=1)
    words = ("--priority", "new-page", "--at", due.isoformat(), "--expires", gone.isoformat())
    pushed = run("push", "options", "key", "-5", "--type", "integer", *words, "--json", *to)
    assert found(pushed) == [{"table": "options", "key": "key"}]
    run("push", "options", "ftp://Example.ORG/x", "v", "--delay", "50", "--priority", "7", *to)
    run("push", "options", "given", "--domain", "elsewhere.com", "--delay", "50", *to)
    (job,) = found(run("jobs", "get", "options", "key", "--json", *to))
    assert (job["priority"], job["type"], job["value"]) == (20, "integer", -5)
    assert job["state"] == "waiting"
    assert datetime.fromisoformat(job["process_at"]) == due
    assert datetime.fromisoformat(job["expires_at"]) == gone
    (uri,) = found(run("jobs", "get", "options", "ftp://Example.ORG/x", "--json", *to))
    assert (uri["priority"], uri["domain"], uri["expires_at"]) == (7, "example.org", None)
    (given,) = found(run("jobs", "get", "options", "given", "--json", *to))
    assert (given["domain"], given["type"], given["value"]) == ("elsewhere.com", "void", None)
    assert run("next", "options", *to).exit_code == 1


def test_a_value_comes_from_standard_input(to: tuple[str, str]) -> None:
    assert run("push", "stdin", "bytes", "-", *to, text=b"\x00\xff\n").exit_code == 0
    assert run("push", "stdin", "text", "-", "--type", "string", *to, text="a\n").exit_code == 0
    (raw,) = found(run("jobs", "get", "stdin", "bytes", "--json", *to))
    assert (raw["type"], raw["value"]) == ("buffer", {"base64": "AP8K"})
    (text,) = found(run("jobs", "get", "stdin", "text", "--json", *to))
    assert (text["type"], text["value"]) == ("string", "a\n")
    bad = run("push", "stdin", "text", "-", "--type", "string", *to, text=b"\xff")
    assert (bad.exit_code, "not UTF-8" in bad.stderr) == (2, True)
    large = run("push", "stdin", "large", "-", *to, text=b"x" * (2**20 + 1))
    assert large.exit_code == 2


# -- lines ----------------------------------------------------------------------------------------


def test_jobs_of_a_domain_are_taken_for_good(to: tuple[str, str]) -> None:
    assert run("table", "create", "fair", "--set", "fairness=domain", *to).exit_code == 0
    for key in ("http://a/1", "http://b/1", "http://a/2"):
        assert run("push", "fair", key, *to).exit_code == 0
    taken = run("next", "fair", "--count", "3", "--domain", "a", "--done", "--json", *to)
    assert [(job["key"], job["xid"]) for job in found(taken)] == [
        ("http://a/1", 0),
        ("http://a/2", 0),
    ]
    nothing = run("next", "fair", "--domain", "a", *to)
    assert (nothing.exit_code, "no job is waiting" in nothing.stderr) == (1, True)
    assert run("next", "fair", "--done", *to).exit_code == 0


def test_a_file_of_many_lines_is_pushed(
    to: tuple[str, str], db: fjord.Database, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.jsonl"
    rows = [{"key": f"k{number}", "value": number} for number in range(2500)]
    rows[1700] = {"key": ""}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("push", "file", "--lines", str(path), *to)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[0].startswith("line 1701: EMPTY_KEY")
    assert "2499 jobs pushed, 1 bad line" in done.stderr
    assert db.jobs("file").count().waiting == 2499
    missing = run("push", "file", "--lines", str(tmp_path / "none"), *to)
    assert (missing.exit_code, "cannot be read" in missing.stderr) == (2, True)


# -- settings, waiting and taken jobs -------------------------------------------------------------


def test_all_jobs_tables_are_listed(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    with fjord.open(tmp_path) as db:
        db.kv("settings").set("a", 1)
        db.create_jobs("empty")
        full = db.jobs("full")
        full.push_many(keys=["a", "b", "c"], delay=0)
        full.push("later", delay=1000)
        assert full.bury("a")
        assert len(full.next(lease=2000)) == 1
        due = full.next_at()
    assert due is not None
    numbers = {"waiting": 2, "taken": 1, "dead": 1, "next_at": due.isoformat()}
    nothing = {"waiting": 0, "taken": 0, "dead": 0, "next_at": None}
    assert found(run("jobs", "list", "--json", *data)) == [
        {"table": "empty", **nothing},
        {"table": "full", **numbers},
    ]
    shown = run("jobs", "list", *data).stdout
    assert shown == f"empty\t0\t0\t0\t\nfull\t2\t1\t1\t{due.isoformat()}\n"


def test_waiting_jobs_are_changed_by_key(to: tuple[str, str], db: fjord.Database) -> None:
    jobs = db.jobs("changed")
    jobs.push_many(keys=["a", "b", "c", "d"], delay=1000)
    some = run("jobs", "cancel", "changed", "a", "nothing", "--json", *to)
    assert found(some) == [{"table": "changed", "cancelled": ["a"], "missing": ["nothing"]}]
    assert some.exit_code == 1
    words = ("jobs", "reschedule", "changed", "b", "--priority", "important", "--delay", "2000")
    assert run(*words, *to).exit_code == 0
    changed = jobs.get("b")
    assert changed is not None
    assert changed.priority == 10
    assert changed.process_at > datetime.now(UTC) + timedelta(seconds=1500)
    assert run("jobs", "kick", "changed", "c", *to).exit_code == 0
    assert [job.key for job in jobs.next(count=5)] == ["c"]
    missing = run("jobs", "kick", "changed", "c", *to)
    assert (missing.exit_code, "no job waits in changed under c" in missing.stderr) == (1, True)
    assert run("jobs", "bury", "changed", "d", "--reason", "by hand", *to).exit_code == 0
    assert [(job.key, job.reason) for job in jobs.dead()] == [("d", "by hand")]


@pytest.mark.req("SJ-13")
def test_taken_jobs_are_shown_touched_and_failed(to: tuple[str, str], db: fjord.Database) -> None:
    jobs = db.jobs("leases")
    jobs.push_many(keys=["a", "b"])
    taken = jobs.next(count=2, lease=30)
    first, second = (str(job.xid) for job in taken)
    shown = found(run("jobs", "taken", "leases", "--json", *to))
    assert [str(job["xid"]) for job in shown] == [first, second]
    touched = run("jobs", "touch", "leases", first, "--lease", "600", "--json", *to)
    assert found(touched) == [{"table": "leases", "touched": [int(first)], "stale": []}]
    after = found(run("jobs", "taken", "leases", "--json", *to))
    assert {job["key"]: job["lease_until"] for job in after}["a"] > shown[0]["lease_until"]
    failed = run("jobs", "fail", "leases", second, "999999", "--delay", "60", "--json", *to)
    assert found(failed) == [{"table": "leases", "failed": [int(second)], "stale": [999999]}]
    assert failed.exit_code == 1
    waits = jobs.get("b")
    assert waits is not None
    assert waits.timeouts == 1
    assert run("jobs", "fail", "leases", first, "--no-count", *to).exit_code == 0
    (again,) = jobs.next()
    assert (again.key, again.timeouts) == ("a", 0)


# -- listening, directories, wrong use ------------------------------------------------------------


@pytest.mark.req("SJ-29")
def test_moments_are_told_until_ctrl_c(to: tuple[str, str], db: fjord.Database) -> None:
    words = [*FJORD, "jobs", "listen", "heard", "--json", *to]
    listen = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert listen.stdout is not None
    assert listen.stderr is not None
    assert "listening" in listen.stderr.readline()
    db.jobs("heard").push("key", delay=0.3)
    kinds = [json.loads(listen.stdout.readline())["kind"] for _ in range(2)]
    assert kinds == ["arrived", "due"]
    listen.send_signal(signal.SIGINT)
    _, errors = listen.communicate(timeout=60)
    assert (listen.returncode, errors) == (0, "")


def test_a_directory_is_used_without_a_daemon(tmp_path: Path, daemon: Daemon) -> None:
    data = ("--data", str(tmp_path / "own"))
    assert run("push", "own", "key", "value", *data).exit_code == 0
    (job,) = found(run("next", "own", "--json", *data))
    assert job["value"] == "value"
    assert run("done", "own", str(job["xid"]), *data).exit_code == 0
    run("push", "beside", "key", "--to", daemon.url)
    beside = found(run("jobs", "count", "beside", "--json", "--data", str(daemon.path)))
    assert beside[0]["waiting"] == 1
    refused = run("next", "beside", "--data", str(daemon.path))
    assert (refused.exit_code, "use --to instead" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("push", "t"), "give a key"),
        (("push", "t", "k", "--lines", "f"), "give it alone"),
        (("push", "t", "k", "--delay", "1", "--at", "2026-01-31T12:00:00Z"), "exclude each other"),
        (("push", "t", "k", "--at", "2026-01-31T12:00:00"), "has no time zone"),
        (("jobs", "redrive", "t", "--before", "2026-01-31"), "has no time zone"),
        (("push", "t", "k", "--delay", "-1"), "not within 0 to 31622400 seconds"),
        (("push", "t", "k", "--type", "integer"), "needs a VALUE"),
        (("push", "t", "k", "--jsno"), "No such option: --jsno"),
        (("next", "t", "--count", "0"), "greater than or equal to 1"),
        (("next", "t", "--wait", "3601"), "not within 0 to 3600 seconds"),
        (("jobs", "reschedule", "t", "k"), "give --priority, --delay or --at"),
        (("work", "t", "--exec", " "), "needs a command"),
        (("work", "t", "--exec", "true", "--once", "--drain"), "exclude each other"),
    ],
)
def test_wrong_use_ends_with_2(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("\u2502", "").split())
