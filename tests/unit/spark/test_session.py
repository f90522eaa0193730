"""Settings of a session, and the one that runs."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession

import fjord.spark
from fjord.spark import _is_local, _settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.delenv("MASTER", raising=False)


def test_a_local_session_needs_no_host_name() -> None:
    for conf in ({}, {"spark.master": "local[2]"}):
        found = _settings(conf)
        assert found["spark.driver.host"] == "127.0.0.1"
        assert found["spark.master"] == conf.get("spark.master", "local[*]")
        assert found["spark.sql.shuffle.partitions"] == "8"


def test_a_cluster_decides_for_itself() -> None:
    found = _settings({"spark.master": "spark://host:7077"})
    assert found["spark.master"] == "spark://host:7077"
    assert {"spark.driver.host", "spark.sql.shuffle.partitions"} & found.keys() == set()
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_what_was_submitted_elsewhere_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://host:7077 pyspark-shell")
    found = _settings({})
    assert not _is_local({})
    assert {"spark.master", "spark.driver.host"} & found.keys() == set()


def test_filters_are_not_pushed() -> None:
    """With filters pushed down, Spark 4.3 reads a frame that a query has twice with one of them."""
    assert "spark.sql.python.filterPushdown.enabled" not in _settings({})


@pytest.mark.spark
def test_a_running_session_is_used_again_and_its_workers_run_this_python(
    spark: SparkSession,
) -> None:
    assert fjord.spark.session(**{"spark.master": "local[2]"}) is spark
    assert os.environ["PYSPARK_PYTHON"] == spark.sparkContext.pythonExec == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
