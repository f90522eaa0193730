"""What acceptance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import fjord
from tests.acceptance.daemon import Daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the suite, made as users make theirs."""
    import fjord.spark  # here, so that only tests with Spark wait for it

    session = fjord.spark.session(**{"spark.master": "local[2]"})
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
