"""Verbs of `fjord pipeline`, as they are typed: JSON, exit codes, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.spark.pipelines import latest
from tests.acceptance.conftest import Typed
from tests.acceptance.daemon import Daemon
from tests.acceptance.test_sealing import until

pytestmark = pytest.mark.spark


def test_verbs_report_in_json_and_by_their_exit_codes(tmp_path: Path, typed: Typed) -> None:
    with Daemon(tmp_path / "data") as daemon, fjord.connect(daemon.url) as database:
        events = database.stream("events")
        events.append_many([b"1", b"2", b"3"], keys=["a", "b", "a"])
        database.stream("broken").append_many([b"one", b"two", b"three"])
        database.seal()
        (block,) = database.blocks("broken")
        Path(block.location, f"{block.name}.parquet").unlink()

        def told(*words: object, code: int = 0) -> dict[str, Any]:
            done = typed("pipeline", *words, "--to", daemon.url, "--json")
            assert done.exit_code == code, done.output
            assert "Traceback" not in done.output
            found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
            return found

        stock = tmp_path / "target"
        found = told("ingest", "events", stock, "--subscriber", "warehouse")
        figures = [found[name] for name in ("job", "ok", "rows", "lag_seqs")]
        assert figures == ["ingest", True, 3, 0]
        until(database, lambda: events.subscriber("warehouse").position >= found["last_seq"])
        lost = told("reconcile", "broken", code=1)
        assert (lost["ok"], lost["differing_buckets"]) == (False, 1)
        sides = {(line["side"], line["rows"]) for line in lost["lines"]}
        assert sides == {("server", 3), ("metadata", 3), ("cold", 0)}
        copy = ("replay", "events", "again", "--id", "seven")
        dry = told(*copy, "--dry-run")
        assert dry["lines"] == [{"hour": dry["lines"][0]["hour"], "op": "APPEND", "rows": 3}]
        first = told(*copy)
        assert (first["written_rows"], first["complete"]) == (3, True)
        assert [one.value for one in database.stream("again").read()] == [b"1", b"2", b"3"]
        date = typed("pipeline", *copy, "--since", "yesterday", "--to", daemon.url)
        assert (date.exit_code, "yesterday is not a date" in date.output) == (2, True)
    values = tmp_path / "values"
    done = typed("pipeline", "latest", "events", values, "--from-warehouse", stock)
    assert (done.exit_code, "keys\t2\n" in done.stdout) == (0, True), done.output
    assert latest.snapshot(str(values)) is not None
