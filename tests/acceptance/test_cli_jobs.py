"""`fjord push`, `fjord next`, `fjord done` and `fjord jobs` against a real daemon.

Starting Python takes longer than what is tested, so most calls run inside the test's process.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("jobs") / "data") as one:
        yield one


@pytest.fixture
def to(daemon: Daemon) -> tuple[str, str]:
    return ("--to", daemon.url)


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


def run(*words: str, text: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def found(result: Result) -> list[dict[str, Any]]:
    """Returns the objects that a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def process(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*FJORD, *words], capture_output=True, text=True, check=False, timeout=60, input=text
    )
    assert "Traceback" not in done.stderr
    return done


# -- the life of a job ----------------------------------------------------------------------------


@pytest.mark.req("FJ-28", "FJ-50", "SJ-11", "SJ-28")
def test_a_job_is_pushed_taken_and_done(to: tuple[str, str]) -> None:
    """In processes of their own, as a person would type it."""
    assert process("push", "life", "http://example.com/a", "hello", *to).returncode == 0
    waiting = process("jobs", "peek", "life", *to).stdout.split("\t")
    assert waiting[1:] == ["http://example.com/a", "100", "0", "hello\n"]
    xid, _, key, *_ = process("next", "life", "--lease", "60", *to).stdout.split("\t")
    assert key == "http://example.com/a"
    assert process("next", "life", *to).returncode == 1
    assert process("jobs", "touch", "life", xid, *to).returncode == 0
    assert process("done", "life", xid, *to).returncode == 0
    late = process("done", "life", xid, *to)
    assert late.returncode == 1
    assert f"{xid} is stale" in late.stderr
    counted = json.loads(process("jobs", "count", "life", "--json", *to).stdout)
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


@pytest.mark.req("FJ-28")
def test_nothing_is_said_with_the_moment_of_the_next_job(
    to: tuple[str, str], db: fjord.Database
) -> None:
    assert "no job is waiting" in run("next", "empty", *to).stderr
    assert found(run("next", "empty", "--json", *to)) == [{"next_at": None}]
    db.jobs("empty").push("later", delay=3600)
    due = db.jobs("empty").next_at()
    assert due is not None
    assert due.isoformat() in run("next", "empty", *to).stderr
    none = run("next", "empty", "--json", *to)
    assert (none.exit_code, found(none)) == (1, [{"next_at": due.isoformat()}])


def test_many_are_taken_for_good(to: tuple[str, str], db: fjord.Database) -> None:
    db.jobs("many").push_many(keys=[f"k{number}" for number in range(5)])
    jobs = found(run("next", "many", "--count", "3", "--done", "--json", *to))
    assert [job["key"] for job in jobs] == ["k0", "k1", "k2"]
    assert [job["xid"] for job in jobs] == [0, 0, 0]
    assert db.jobs("many").count() == (2, 0, 0)


@pytest.mark.req("FJ-28")
def test_a_wait_ends_with_a_push(to: tuple[str, str], db: fjord.Database) -> None:
    waiting = subprocess.Popen(
        [*FJORD, "next", "waits", "--wait", "60", "--json", *to], stdout=subprocess.PIPE
    )
    for _ in range(10_000):
        if db.stats()["parked_waits"]:
            break
    db.jobs("waits").push("key", b"v")
    out, _ = waiting.communicate(timeout=50)
    assert (waiting.returncode, json.loads(out)["key"]) == (0, "key")


# -- lines ----------------------------------------------------------------------------------------


def test_lines_are_pushed_and_bad_ones_told(to: tuple[str, str], db: fjord.Database) -> None:
    lines = [
        '{"key": "a", "value": "x", "priority": "now"}',
        "",
        "no json",
        '{"key": "b", "value": {"base64": "AHo="}, "delay": 0.5}',
        '{"key": "c", "vlaue": 1}',
        '{"key": "' + "k" * 2000 + '"}',
        '{"key": "d", "value": 2.5, "process_at": "2026-01-31T12:00:00Z"}',
        '{"key": "e", "expires_at": "2020-01-01T00:00:00Z"}',
        '{"key": {"base64": "/w=="}, "domain": "x.org", "priority": 3}',
        '["key"]',
        '{"key": "f", "priority": 256}',
        '{"key": "g", "process_at": "2026-01-31T12:00:00"}',
    ]
    done = run("push", "lines", "--lines", "-", "--json", *to, text="\n".join(lines))
    assert (done.exit_code, found(done)) == (1, [{"table": "lines", "pushed": 4, "bad": 7}])
    told = done.stderr.splitlines()
    numbers = sorted(int(line.split(":")[0].removeprefix("line ")) for line in told)
    assert numbers == [3, 5, 6, 8, 10, 11, 12]
    assert "line 12: 2026-01-31T12:00:00 has no time zone" in done.stderr
    assert "no vlaue" in done.stderr
    assert "KEY_TOO_LONG" in done.stderr
    assert "BAD_TIMEOUT" in done.stderr
    jobs = db.jobs("lines")
    assert jobs.count().waiting == 4
    first = jobs.get("a")
    assert first is not None
    assert (first.priority, first.value) == (0, "x")
    odd = jobs.get(b"\xff")
    assert odd is not None
    assert (odd.domain, odd.priority) == ("x.org", 3)


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


def test_a_table_of_another_kind_ends_lines_at_once(
    to: tuple[str, str], db: fjord.Database
) -> None:
    db.kv("settings").set("a", 1)
    done = run("push", "settings", "--lines", "-", *to, text='{"key": "a"}\n{"key": "b"}\n')
    assert done.exit_code == 1
    assert done.stderr.count("WRONG_KIND") == 1


# -- settings, waiting and taken jobs -------------------------------------------------------------


@pytest.mark.req("FJ-02")
def test_a_table_is_made_with_settings(to: tuple[str, str]) -> None:
    words = ("table", "create", "plain", "--model", "queue", "--set", "timeouts_max=1")
    made = {"name": "plain", "model": "queue", "outcome": "made"}
    assert found(run(*words, "--json", *to)) == [made]
    assert found(run(*words, "--json", *to)) == [made | {"outcome": "same"}]
    other = run("table", "create", "plain", "--set", "merge=true", *to)
    assert (other.exit_code, "differs: merge is false, not true" in other.stderr) == (1, True)
    for value in ("1", "2", "3"):
        run("push", "plain", "", value, *to)
    jobs = found(run("next", "plain", "--count", "3", "--json", *to))
    assert [job["value"] for job in jobs] == ["1", "2", "3"]
    described = found(run("table", "describe", "plain", "--count", "--json", *to))[0]
    assert (described["kind"], described["waiting"], described["taken"]) == ("jobs", 0, 3)


def test_fairness_is_asked_for_by_name(to: tuple[str, str]) -> None:
    run("table", "create", "fair", "--set", "fairness=domain", *to)
    for key in ("http://a/1", "http://a/2", "http://b/1"):
        run("push", "fair", key, *to)
    both = found(run("next", "fair", "--count", "2", "--json", *to))
    assert sorted(job["domain"] for job in both) == ["a", "b"]
    (only,) = found(run("next", "fair", "--count", "2", "--domain", "a", "--json", *to))
    assert only["domain"] == "a"
    run("push", "unfair", "k", *to)
    refused = run("next", "unfair", "--domain", "a", *to)
    assert (refused.exit_code, "BAD_DOMAIN" in refused.stderr) == (1, True)


def test_only_what_is_of_a_domain_is_shown(to: tuple[str, str], db: fjord.Database) -> None:
    jobs = db.create_jobs("by-domain", fairness="domain")
    jobs.push("http://a/1", delay=1000)
    jobs.push("http://b/1", delay=2000)
    jobs.push("http://a/2", delay=3000)
    peeked = found(run("jobs", "peek", "by-domain", "--json", *to))
    domains = [job["domain"] for job in peeked]
    assert sorted(domains) == ["a", "a", "b"]
    assert domains in (["a", "a", "b"], ["b", "a", "a"])  # whatever their dates
    due = jobs.next_at("b")
    assert due is not None
    words = ("jobs", "count", "by-domain", "--domain", "b")
    assert found(run(*words, "--json", *to)) == [{"next_at": due.isoformat()}]
    assert run(*words, *to).stdout == f"next_at\t{due.isoformat()}\n"


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


@pytest.mark.parametrize("verb", ["count", "peek", "taken", "dead"])
def test_a_table_that_is_not_there_is_said(to: tuple[str, str], verb: str) -> None:
    done = run("jobs", verb, "mispelt", *to)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "mispelt" in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
        (("push", "t", "k", "--priority", "soon"), "soon is not a priority"),
        (("push", "t", "k", "--priority", "256"), "256 is not a priority"),
        (("push", "t", "k", "--at", "soon"), "soon is not a date"),
        (("push", "t", "k", "--at", "1960-01-01T00:00:00Z"), "before 1970"),
        (("push", "t", "k", "--delay", "1", "--at", "2026-01-31T12:00:00Z"), "exclude each other"),
        (("push", "t", "k", "--at", "2026-01-31T12:00:00"), "has no time zone"),
        (("push", "t", "k", "--expires", "2026-01-31"), "has no time zone"),
        (("jobs", "redrive", "t", "--before", "2026-01-31"), "has no time zone"),
        (("push", "t", "k", "--delay", "-1"), "not within 0 to 31622400 seconds"),
        (("push", "t", "k", "--delay", "inf"), "not within 0 to 31622400 seconds"),
        (("next", "t", "--lease", "inf"), "not within 0.001 to 2592000 seconds"),
        (("work", "t", "--exec", "true", "--lease", "inf"), "0.001 to 2592000 seconds"),
        (("push", "t", "k", "--type", "integer"), "needs a VALUE"),
        (("push", "t", "k", "x", "--type", "integer"), "x is not a valid integer"),
        (("push", "t", "k", "--jsno"), "No such option: --jsno"),
        (("next", "t", "--count", "0"), "greater than or equal to 1"),
        (("next", "t", "--wait", "3601"), "not within 0 to 3600 seconds"),
        (("next", "t", "--lease", "0"), "not within 0.001 to 2592000 seconds"),
        (("done", "t", "x"), "unable to parse string as an integer"),
        (("jobs", "reschedule", "t", "k"), "give --priority, --delay or --at"),
        (("table", "create", "t", "--set", "fairness=some"), "fairness is none or domain"),
        (("work", "t", "--exec", " "), "needs a command"),
        (("work", "t", "--exec", "true", "--once", "--drain"), "exclude each other"),
    ],
)
def test_wrong_use_ends_with_2(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("\u2502", "").split())


def test_what_is_refused_is_said(to: tuple[str, str]) -> None:
    for words, code in [
        (("push", "../x", "k"), "BAD_NAME"),
        (("push", "t", ""), "EMPTY_KEY"),
        (("push", "t", "k", "--expires", "2020-01-01T00:00:00Z"), "BAD_TIMEOUT"),
        (("push", "t", "k", "--at", "2999-01-01T00:00:00Z"), "BAD_TIMEOUT"),
    ]:
        done = run(*words, *to)
        assert done.exit_code in (1, 2)
        assert code in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for verb in (("push", "t", "k"), ("next", "t"), ("done", "t", "1"), ("jobs", "count", "t")):
        nobody = run(*verb, "--to", "fjord://127.0.0.1:1")
        assert (nobody.exit_code, "fjord serve" in nobody.stderr) == (1, True)


def test_every_verb_has_an_example() -> None:
    verbs = "list count peek taken get cancel reschedule kick bury touch fail dead redrive"
    for verb in [*(f"jobs {one}" for one in [*verbs.split(), "discard", "listen"]), "next", "done"]:
        assert f"Example: fjord {verb}" in run(*verb.split(), "--help").stdout
    for verb in ("push", "work"):
        assert f"Example: fjord {verb}" in run(verb, "--help").stdout
