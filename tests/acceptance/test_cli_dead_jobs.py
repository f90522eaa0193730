"""`fjord jobs dead`, `redrive` and `discard` against a real daemon; what `fjord stats` tells."""

from __future__ import annotations

import re

import pytest

import fjord
from tests.acceptance.shell import found, run


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


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (("--key-prefix", "http://a/"), 3),
        (("--reason", "code 7", "--domain", "b"), 1),
        (("--before", "2020-01-01T00:00:00Z"), 0),
        (("--all",), 6),
        (("--all", "--limit", "4"), 4),
        (("--key", "http://a/1"), 1),
    ],
)
def test_the_dead_come_back_as_they_are_picked(
    dead: str, to: tuple[str, str], db: fjord.Database, words: tuple[str, ...], matched: int
) -> None:
    dry = run("jobs", "redrive", dead, *words, "--dry-run", *to)
    match = "1 dead job matches" if matched == 1 else f"{matched} dead jobs match"
    assert f"{match}; nothing was changed" in dry.stderr
    assert len(dry.stdout.splitlines()) == matched
    filters = [word for word in words if word != "--all"]
    assert run("jobs", "dead", dead, *filters, *to).stdout == dry.stdout
    assert db.jobs(dead).count() == (0, 0, 6)
    done = found(run("jobs", "redrive", dead, *words, "--json", *to))
    expected = {"matched": matched, "revived": matched, "dropped": 0}
    assert done == [{"table": dead, **expected, "dry_run": False}]
    assert db.jobs(dead).count() == (matched, 0, 6 - matched)


def test_a_dry_run_shows_the_first_of_many(to: tuple[str, str], db: fjord.Database) -> None:
    jobs = db.jobs("many-dead")
    jobs.push_many(keys=[f"k{number:02}" for number in range(25)])
    assert jobs.fail_many(jobs.next(count=25), bury=True) == []
    words = ("jobs", "discard", "many-dead", "--key-prefix", "k", "--dry-run", *to)
    dry = run(*words)
    assert len(dry.stdout.splitlines()) == 10
    assert dry.stderr == "25 dead jobs match, the first 10 are shown; nothing was changed\n"
    (shown,) = found(run(*words, "--json"))
    assert (shown["matched"], [one["key"] for one in shown["first"]][9:]) == (25, ["k09"])


def test_the_dead_are_picked_by_row(dead: str, to: tuple[str, str], db: fjord.Database) -> None:
    jobs = db.jobs(dead)
    first, second, third = (str(job.row) for job in jobs.dead(domain="a"))
    words = (dead, "--row", first, "--row", third, *to)
    shown = found(run("jobs", "dead", *words, "--json"))
    assert [str(job["row"]) for job in shown] == [first, third]
    (dry,) = found(run("jobs", "redrive", *words, "--dry-run", "--json"))
    assert (dry["matched"], dry["first"], dry["dry_run"]) == (2, shown, True)
    assert jobs.count() == (0, 0, 6)
    assert "2 dead jobs matched: 2 revived, 0 dropped" in run("jobs", "redrive", *words).stderr
    late = run("jobs", "discard", *words, "--row", second)
    assert late.exit_code == 1
    assert late.stderr.splitlines() == [
        "3 dead jobs matched: 1 discarded",
        "fjord: 2 of the rows are not those of dead jobs",
    ]
    assert jobs.count() == (2, 0, 3)
    both = run("jobs", "discard", *words, "--domain", "a")
    assert (both.exit_code, "single jobs" in both.stderr) == (2, True)


def test_all_the_dead_are_meant_only_if_one_says_so(to: tuple[str, str]) -> None:
    for verb in ("redrive", "discard"):
        done = run("jobs", verb, "any", *to)
        assert (done.exit_code, "--all" in done.stderr) == (2, True)
