"""What acceptance tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the suite, made as users make theirs."""
    import fjord.spark  # here, so that only tests with Spark wait for it

    session = fjord.spark.session(**{"spark.master": "local[2]"})
    yield session
    session.stop()
