"""What acceptance tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Typed = Callable[..., Any]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the suite, made as users make theirs."""
    import fjord.spark  # here, so that only tests with Spark wait for it

    # Frames of tests have a few rows: more tasks, plans that change and compiled code cost more
    # than they gain.
    few = {
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = fjord.spark.session(**{"spark.master": "local[2]", **few})
    yield session
    session.stop()


@pytest.fixture
def typed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Runs a command as it is typed; verbs of `pipeline` take the session of the suite."""
    from typer.testing import CliRunner

    from fjord.cli.commands import app
    from fjord.cli.pipelines import running

    monkeypatch.setattr(running, "spark_of", lambda *_: contextlib.nullcontext(spark))
    return lambda *words: CliRunner().invoke(app, [*map(str, words)])
