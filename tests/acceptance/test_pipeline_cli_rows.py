"""`fjord pipeline reconcile` and `fjord pipeline replay`, as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fjord
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark

# Spark takes seconds to start, so all commands run in one process, one after the other.
RUN = """
import json, sys
from fjord.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["fjord", "pipeline", *words]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    print(json.dumps({"code": code}), flush=True)
"""


def run(*commands: list[str]) -> tuple[list[list[dict[str, object]]], str]:
    """Runs commands; returns the lines of each, of which the last has its exit code."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    found: list[list[dict[str, object]]] = [[]]
    for line in map(json.loads, done.stdout.splitlines()):
        found[-1].append(line)
        if list(line) == ["code"]:
            found.append([])
    return found[:-1], done.stderr


@pytest.mark.soak
def test_both_verbs_report_in_json_and_by_their_exit_codes(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with fjord.connect(daemon.url) as database:
            database.stream("events").append_many([b"one", b"two", b"three"])
            database.stream("broken").append_many([b"one", b"two", b"three"])
            database.seal()
            (block,) = database.blocks("broken")
        Path(block.location, f"{block.name}.parquet").unlink()
        at = ["--to", daemon.url, "--json", "--master", "local[2]"]
        copy = ["replay", "events", "again", "--id", "seven", *at]
        found, told = run(
            ["reconcile", "broken", *at],
            [*copy, "--dry-run"],
            copy,
            ["replay", "events", "again", "--since", "yesterday", *at],
        )
        lost, dry, first, date = found
        with fjord.connect(daemon.url) as database:
            values = [message.value for message in database.stream("again").read().messages]
    assert [lines[-1]["code"] for lines in found] == [1, 0, 0, 2]
    assert dry[0]["selected_rows"] == 3
    assert dry[0]["lines"] == [{"hour": dry[0]["lines"][0]["hour"], "op": "APPEND", "rows": 3}]  # type: ignore[index]
    assert (first[0]["written_rows"], first[0]["complete"]) == (3, True)
    assert values == [b"one", b"two", b"three"]
    assert date == [{"code": 2}]
    assert "yesterday is no date" in told
    assert (lost[0]["ok"], lost[0]["differing_buckets"]) == (False, 1)
    sides = {(line["side"], line["rows"]) for line in lost[0]["lines"]}  # type: ignore[attr-defined]
    assert sides == {("server", 3), ("metadata", 3), ("cold", 0)}
    assert "Traceback" not in told
