from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from fjord.errors import FjordError
from fjord.spark.pipelines import report

TEXT = """[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance write
Traceback (most recent call last):
  File "sink.py", line 1, in write
ConnectionError: first
During handling of the above exception, another exception occurred:
fjord.errors.UnavailableError: the daemon cannot be reached
  at org.apache.spark.Something"""


def test_the_last_error_of_python_is_the_cause() -> None:
    assert report.cause(TEXT) == "the daemon cannot be reached"
    assert report.cause("[PATH_NOT_FOUND] Path does not exist\n  more") == (
        "[PATH_NOT_FOUND] Path does not exist"
    )
    assert report.cause("") == "Spark failed"


def test_what_workers_lack_is_named() -> None:
    text = "Traceback:\nModuleNotFoundError: No module named 'fjord'\n  at org.apache.spark"
    assert report.cause(text).startswith("the Python of Spark's workers has no fjord: install")
    text = "Traceback:\nModuleNotFoundError: No module named 'pandas'\n  at org.apache.spark"
    assert report.cause(text) == "No module named 'pandas'"


def test_an_error_of_spark_becomes_one_of_fjord() -> None:
    with pytest.raises(FjordError, match=r"^the daemon cannot be reached$"), report.explained():
        raise PySparkException(TEXT)
    with pytest.raises(ZeroDivisionError), report.explained():
        raise ZeroDivisionError
