"""The session helper gives a session with Fjord's settings."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession

import fjord.spark

pytestmark = pytest.mark.spark


def test_settings_are_those_of_fjord_and_of_the_caller(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.master == "local[2]"


def test_workers_run_this_python(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.sparkContext.pythonExec == sys.executable


def test_a_running_session_is_used_again(spark: SparkSession) -> None:
    assert fjord.spark.session(**{"spark.master": "local[2]"}) is spark
