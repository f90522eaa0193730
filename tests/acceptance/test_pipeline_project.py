"""A project that `fjord pipeline init` writes runs, from what pip installs alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import fjord
from tests.acceptance.daemon import FJORD, Daemon

pytestmark = pytest.mark.spark

Message = tuple[str, bytes]


def make_project(project: Path, daemon: Daemon) -> None:
    command = [*FJORD, "pipeline", "init", str(project), "--to", daemon.url, "--table", "visits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(project / "run") in done.stdout


def run(project: Path) -> None:
    """Runs the project as a user does, in a shell where this Python is the first."""
    place = os.path.dirname(sys.executable)
    done = subprocess.run(
        [str(project / "run"), "--remote", "local[2]"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}"},
    )
    said = done.stdout + done.stderr
    assert "Run is COMPLETED" in said, said[-5000:]
    assert done.returncode == 0


def rows(project: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(project / "tables" / name).to_pylist()
    return found


def append(daemon: Daemon, messages: list[Message]) -> None:
    with fjord.connect(daemon.url) as db:
        stream = db.stream("visits")
        stream.append_many([value for _, value in messages], keys=[key for key, _ in messages])


def check(project: Path, messages: list[Message]) -> None:
    """Compares the three datasets with what was written."""
    events = sorted(rows(project, "visits"), key=lambda row: int(row["seq"]))
    assert [(row["key"].decode(), row["value"]) for row in events] == messages
    latest = {row["key"]: row["value"] for row in rows(project, "latest")}
    assert latest == dict(messages)
    report = rows(project, "report")
    sums: Counter[str] = Counter()
    for row in report:
        assert row["op"] == "APPEND"
        sums.update({name: row[name] for name in ("rows", "bytes", "value_crc")})
    assert sums == {
        "rows": len(messages),
        "bytes": sum(len(value) for _, value in messages),
        "value_crc": sum(zlib.crc32(value) for _, value in messages),
    }


def some(start: int, count: int) -> list[Message]:
    return [(f"page {number % 7}", b"visit %d" % number) for number in range(start, start + count)]


@pytest.mark.soak
def test_a_project_runs_as_it_is_written_and_each_run_takes_what_is_new(tmp_path: Path) -> None:
    project = tmp_path / "project"
    with Daemon(tmp_path / "data") as daemon:
        make_project(project, daemon)
        append(daemon, some(0, 600))
        with fjord.connect(daemon.url) as db:
            db.seal("visits")
        append(daemon, some(600, 400))
        run(project)
        check(project, some(0, 1000))
        files = set((project / "tables" / "visits").glob("*.parquet"))
        append(daemon, some(1000, 50))
        run(project)
        check(project, some(0, 1050))
        # What was there before is still there as it was: nothing was read or written again.
        assert files < set((project / "tables" / "visits").glob("*.parquet"))
