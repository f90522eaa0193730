"""What acceptance tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import fjord
from tests.acceptance.daemon import Daemon

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


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for all tests of a file; those that kill one start their own."""
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    """A connection to the daemon of the file."""
    with fjord.connect(daemon.url) as one:
        yield one


@pytest.fixture
def to(daemon: Daemon) -> tuple[str, str]:
    """The option of a command that names the daemon of the file."""
    return ("--to", daemon.url)


@pytest.fixture
def empty(db: fjord.Database) -> fjord.Database:
    """The daemon of the file without any table."""
    for table in db.tables():
        db.drop(table.name)
    return db


@pytest.fixture
def typed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Runs a command as it is typed; verbs of `pipeline` take the session of the suite."""
    from typer.testing import CliRunner

    from fjord.cli.commands import app
    from fjord.cli.pipelines import running

    monkeypatch.setattr(running, "spark_of", lambda *_: contextlib.nullcontext(spark))
    return lambda *words: CliRunner().invoke(app, [*map(str, words)])
