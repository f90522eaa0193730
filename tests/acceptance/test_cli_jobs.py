"""`fjord push`, `fjord next`, `fjord done` and `fjord jobs` against a real daemon.

Starting Python takes longer than what is tested, so most calls run inside the test's process.
"""

from __future__ import annotations

import json
import re
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
    assert "nothing waits" in run("next", "empty", *to).stderr
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


@pytest.mark.req("FJ-12", "SJ-29")
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
    ]
    done = run("push", "lines", "--lines", "-", "--json", *to, text="\n".join(lines))
    assert (done.exit_code, found(done)) == (1, [{"table": "lines", "pushed": 4, "bad": 6}])
    told = done.stderr.splitlines()
    numbers = sorted(int(line.split(":")[0].removeprefix("line ")) for line in told)
    assert numbers == [3, 5, 6, 8, 10, 11]
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
    assert "2499 jobs pushed, 1 lines were bad" in done.stderr
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
    words = ("jobs", "create", "plain", "--no-merge", "--timeouts-max", "1", "--lease", "5")
    assert found(run(*words, "--json", *to)) == [{"table": "plain"}]
    assert run(*words, *to).exit_code == 0
    other = run("jobs", "create", "plain", "--merge", *to)
    assert (other.exit_code, "EXISTS" in other.stderr) == (1, True)
    for value in ("1", "2", "3"):
        run("push", "plain", "", value, *to)
    jobs = found(run("next", "plain", "--count", "3", "--json", *to))
    assert [job["value"] for job in jobs] == ["1", "2", "3"]
    described = found(run("table", "describe", "plain", "--count", "--json", *to))[0]
    assert (described["kind"], described["waiting"], described["taken"]) == ("jobs", 0, 3)


def test_fairness_is_asked_for_by_name(to: tuple[str, str]) -> None:
    run("jobs", "create", "fair", "--fairness", "domain", *to)
    for key in ("http://a/1", "http://a/2", "http://b/1"):
        run("push", "fair", key, *to)
    both = found(run("next", "fair", "--count", "2", "--json", *to))
    assert sorted(job["domain"] for job in both) == ["a", "b"]
    (only,) = found(run("next", "fair", "--count", "2", "--domain", "a", "--json", *to))
    assert only["domain"] == "a"
    run("push", "unfair", "k", *to)
    refused = run("next", "unfair", "--domain", "a", *to)
    assert (refused.exit_code, "BAD_DOMAIN" in refused.stderr) == (1, True)


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


# -- the dead -------------------------------------------------------------------------------------


@pytest.fixture
def dead(db: fjord.Database, request: pytest.FixtureRequest) -> str:
    """A table with dead jobs of two sites and two reasons."""
    name = re.sub(r"\W", "_", request.node.name)[:100]
    jobs = db.jobs(name)
    keys = [f"http://{site}/{number}" for site in ("a", "b") for number in range(3)]
    jobs.push_many(keys=keys)
    for job in jobs.next(count=6):
        job.fail(bury=True, reason="exit code 7" if job.key.endswith("0") else "timed out")
    return name


@pytest.mark.req("SJ-15")
def test_the_dead_are_shown_with_their_reasons(dead: str, to: tuple[str, str]) -> None:
    shown = found(run("jobs", "dead", dead, "--json", *to))
    assert [job["key"] for job in shown][:2] == ["http://a/0", "http://a/1"]
    assert len(shown) == 6
    assert "exit code 7" in shown[0]["reason"]
    assert len(run("jobs", "dead", dead, "--limit", "2", *to).stdout.splitlines()) == 2


@pytest.mark.req("SJ-15")
def test_stats_tell_of_the_dead_and_how_to_look_at_them(dead: str, to: tuple[str, str]) -> None:
    stats = run("stats", *to)
    command = f"fjord jobs dead {dead} {' '.join(to)}"
    assert f"alert: 6 dead jobs in {dead}; see: {command}" in stats.stderr.splitlines()
    shown = run(*command.split()[1:])
    assert len(shown.stdout.splitlines()) == 6
    numbers = found(run("stats", "--json", *to))[0]
    assert numbers["jobs_dead"] >= 6


def test_stats_of_a_directory_tell_of_the_dead(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    with fjord.open(tmp_path) as db:
        for number in range(12):
            db.jobs(f"t{number:02}").push("key")
            assert db.jobs(f"t{number:02}").bury("key")
        db.jobs("well").push("key")
    told = run("stats", *data).stderr.splitlines()
    assert told[0] == f"alert: 1 dead jobs in t00; see: fjord jobs dead t00 {' '.join(data)}"
    assert (len(told), told[-1]) == (11, "alert: dead jobs in 2 more tables")
    assert run("stats", "--json", *data).stderr == ""


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (("--key-prefix", "http://a/"), 3),
        (("--domain", "b"), 3),
        (("--reason", "code 7"), 2),
        (("--reason", "code 7", "--domain", "b"), 1),
        (("--before", "2020-01-01T00:00:00Z"), 0),
        (("--all",), 6),
        (("--all", "--limit", "4"), 4),
    ],
)
def test_the_dead_come_back_as_they_are_picked(
    dead: str, to: tuple[str, str], db: fjord.Database, words: tuple[str, ...], matched: int
) -> None:
    dry = run("jobs", "redrive", dead, *words, "--dry-run", *to)
    assert f"{matched} dead jobs match; nothing was changed" in dry.stderr
    assert db.jobs(dead).count() == (0, 0, 6)
    done = found(run("jobs", "redrive", dead, *words, "--json", *to))
    assert done == [{"table": dead, "matched": matched, "revived": matched, "dry_run": False}]
    assert db.jobs(dead).count() == (matched, 0, 6 - matched)


def test_the_dead_are_discarded(dead: str, to: tuple[str, str], db: fjord.Database) -> None:
    dry = found(run("jobs", "discard", dead, "--domain", "a", "--dry-run", "--json", *to))
    assert dry == [{"table": dead, "matched": 3, "discarded": 0, "dry_run": True}]
    assert db.jobs(dead).count().dead == 6
    assert "3 were discarded" in run("jobs", "discard", dead, "--domain", "a", *to).stderr
    assert db.jobs(dead).count() == (0, 0, 3)


def test_all_the_dead_are_meant_only_if_one_says_so(to: tuple[str, str]) -> None:
    for verb in ("redrive", "discard"):
        done = run("jobs", verb, "any", *to)
        assert (done.exit_code, "--all" in done.stderr) == (2, True)


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
    assert (refused.exit_code, "give --to instead" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("push", "t"), "give a key"),
        (("push", "t", "k", "--lines", "f"), "give it alone"),
        (("push", "t", "k", "--priority", "soon"), "soon is no priority"),
        (("push", "t", "k", "--priority", "256"), "256 is no priority"),
        (("push", "t", "k", "--at", "soon"), "soon is no date"),
        (("push", "t", "k", "--at", "1960-01-01T00:00:00Z"), "before 1970"),
        (("push", "t", "k", "--delay", "1", "--at", "2026-01-31T12:00:00Z"), "both say when"),
        (("push", "t", "k", "--delay", "-1"), "not within 0 seconds"),
        (("push", "t", "k", "--delay", "inf"), "not within"),
        (("push", "t", "k", "--type", "integer"), "needs a VALUE"),
        (("push", "t", "k", "x", "--type", "integer"), "x is no integer"),
        (("push", "t", "k", "--jsno"), "No such option: --jsno"),
        (("next", "t", "--count", "0"), "greater than or equal to 1"),
        (("next", "t", "--wait", "3601"), "not within 0 to 3600 seconds"),
        (("next", "t", "--lease", "0"), "not within 0.001 seconds"),
        (("done", "t", "x"), "unable to parse string as an integer"),
        (("jobs", "reschedule", "t", "k"), "give --priority, --delay or --at"),
        (("jobs", "create", "t", "--fairness", "some"), "'none', 'domain'"),
        (("work", "t", "--exec", " "), "needs a command"),
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
        (("next", "t", "--lease", "99999999"), "BAD_TIMEOUT"),
        (("jobs", "create", "t", "--lease", "99999999"), ""),
    ]:
        done = run(*words, *to)
        assert done.exit_code in (1, 2)
        assert code in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for verb in (("push", "t", "k"), ("next", "t"), ("done", "t", "1"), ("jobs", "count", "t")):
        nobody = run(*verb, "--to", "fjord://127.0.0.1:1")
        assert (nobody.exit_code, "fjord serve" in nobody.stderr) == (1, True)


def test_every_verb_has_an_example() -> None:
    verbs = "create count peek taken get cancel reschedule kick bury touch fail dead redrive"
    for verb in [*(f"jobs {one}" for one in [*verbs.split(), "discard", "listen"]), "next", "done"]:
        assert f"Example: fjord {verb}" in run(*verb.split(), "--help").stdout
    for verb in ("push", "work"):
        assert f"Example: fjord {verb}" in run(verb, "--help").stdout
