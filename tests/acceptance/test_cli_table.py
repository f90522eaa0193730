"""`fjord table` and `fjord stats` against a real daemon."""

from __future__ import annotations

import json

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.shell import run


def make_table(daemon: Daemon, name: str) -> None:
    with fjord.connect(daemon.url) as db:
        db.kv(name).set_many({"a": 1, "b": 2})


@pytest.mark.req("FJ-50")
def test_tables_are_listed_and_described(daemon: Daemon) -> None:
    make_table(daemon, "listed")
    lines = run("table", "list", "--to", daemon.url).stdout.splitlines()
    assert [line.split("\t")[:2] for line in lines if line.startswith("listed")] == [
        ["listed", "kv"]
    ]
    found = run("table", "list", "--json", "--to", daemon.url).stdout.splitlines()
    assert "listed" in [json.loads(line)["name"] for line in found]
    described = run("table", "describe", "listed", "--count", "--json", "--to", daemon.url)
    what = json.loads(described.stdout)
    assert (what["name"], what["kind"], what["keys"]) == ("listed", "kv", 2)
    missing = run("table", "describe", "none", "--to", daemon.url)
    assert missing.exit_code == 1
    assert "there is no table none" in missing.stderr


@pytest.mark.req("FJ-50")
def test_a_table_is_dropped_only_if_its_name_is_typed(daemon: Daemon) -> None:
    make_table(daemon, "doomed")
    drop = ("table", "drop", "doomed", "--to", daemon.url)
    wrong = run(*drop, text="other\n")
    assert wrong.exit_code == 1
    assert "nothing was dropped" in wrong.stderr
    assert run(*drop, text="").exit_code == 1
    assert run("table", "describe", "doomed", "--to", daemon.url).exit_code == 0
    assert run(*drop, text="doomed\n").exit_code == 0
    assert run(*drop).exit_code == 1
    make_table(daemon, "doomed")
    assert json.loads(run(*drop, "--yes", "--json").stdout) == {"dropped": "doomed"}


@pytest.mark.req("FJ-50")
def test_stats_are_numbers(daemon: Daemon) -> None:
    make_table(daemon, "counted")
    numbers = json.loads(run("stats", "--json", "--to", daemon.url).stdout)
    assert numbers["durable_seq"] > 0
    assert numbers["tables"] > 0
    lines = run("stats", "--to", daemon.url).stdout.splitlines()
    names = [line.split("\t")[0] for line in lines]
    assert names == list(numbers)
    beside = json.loads(run("stats", "--json", "--data", str(daemon.path)).stdout)
    assert beside["tables"] == numbers["tables"]
