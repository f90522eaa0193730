"""What the verbs of `fjord pipeline` share, and what they refuse before Spark starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from typer.testing import CliRunner

import fjord.spark
from fjord.cli.commands import app
from fjord.cli.pipelines import GO_ON, running
from fjord.errors import FjordError
from fjord.spark.pipelines.report import Figure, Report


class NoSpark:
    """A session that does nothing."""

    def stop(self) -> None:
        self.is_stopped = True


def no_session(*_: object, **__: object) -> Any:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["reconcile", "events", "--bucket", "day"], "--bucket must be hour or block, not day"),
        (["reconcile", "events", "--start", "5", "--end", "2"], "--end 2 is before --start 5"),
        (
            ["ingest", "events", "out", "--format", "csv"],
            "--format must be parquet or delta, not csv",
        ),
        (["ingest", "events", "out", "--every", "banana"], "--every banana is not an interval"),
        (["ingest", "events", "out", "--to", "http://a"], "http://a"),
        (["latest", "events", "out", "--data", "d", "--from-warehouse", "w"], "excludes --to"),
        (["replay", "events", "again", "--pace", "slow"], "a pace is fast, original, or"),
        (["replay", "events", "again", "--keys", "new"], "keys is same or fresh, not 'new'"),
        (["dead-letters", "pages", "--until", "2026-01-31T12:00"], "has no time zone"),
    ],
)
def test_wrong_use_is_told_before_spark_starts(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fjord.spark, "session", no_session)
    done = CliRunner().invoke(app, ["pipeline", *words])
    assert (done.exit_code, problem in done.stderr) == (2, True), done.output
    assert done.stderr.count("\n") == 1


def test_what_spark_says_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = NoSpark()
    monkeypatch.setattr(fjord.spark, "session", lambda **_: spark)
    with (
        pytest.raises(FjordError, match=r"\AError parsing 'banana' to interval\Z"),
        running.spark_of("", None),
    ):
        raise IllegalArgumentException("Error parsing 'banana' to interval\n\tat org.apache")
    assert spark.is_stopped


ROWS: list[dict[str, Figure]] = [{"side": "cold", "rows": 3}, {"side": "server", "rows": 4}]


def test_json_has_figures_and_lines_by_other_names(capsys: pytest.CaptureFixture[str]) -> None:
    running.show(Report(job="ingest", figures={"rows": 7}), as_json=True)
    running.show(Report(job="reconcile", figures={"rows": 7}, rows=ROWS), as_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"job": "ingest", "ok": True, "rows": 7, "lines": []}
    assert second == {"job": "reconcile", "ok": True, "rows": 7, "lines": ROWS}


def test_a_pipe_is_told_what_the_columns_are(capsys: pytest.CaptureFixture[str]) -> None:
    running.show(Report(job="reconcile", figures={"lag_rows": 7}, rows=ROWS), as_json=False)
    expected = ["lag rows\t7", "side\trows", "cold\t3", "server\t4"]
    assert capsys.readouterr().out.splitlines() == expected


def test_an_interrupt_ends_a_replay_behind_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def nothing(*_: object) -> Iterator[Any]:
        yield None

    def run(*_: object, stop: Any, replay_id: str, **__: object) -> Report:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        return Report(job="replay", figures={"replay_id": replay_id, "complete": False})

    monkeypatch.setattr(running, "spark_of", nothing)
    monkeypatch.setattr("fjord.spark.pipelines.replay.replay", run)
    before = signal.getsignal(signal.SIGINT)
    done = CliRunner().invoke(app, ["pipeline", "replay", "events", "again", "--json"])
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert (told["ok"], told["complete"]) == (False, False)
    first, last = done.stderr.splitlines()
    assert first == f"replay {told['replay_id']}: if it is interrupted, resume with this --id"
    assert last == GO_ON.format(told["replay_id"])
    assert signal.getsignal(signal.SIGINT) is before
