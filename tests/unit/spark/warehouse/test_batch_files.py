"""How many files a batch has; tests/acceptance/test_pipeline_ingest.py writes them."""

from __future__ import annotations

import pytest

from fjord.spark import warehouse


@pytest.mark.parametrize(
    ("rows", "tasks", "count"),
    [
        pytest.param(1, 8, 1, id="little"),
        pytest.param(250_000, 8, 3, id="no small files"),
        pytest.param(1_000_000, 2, 2, id="a machine"),
        pytest.param(1_000_000, 8, 8, id="more cores"),
        pytest.param(1_000_000, 200, 10, id="a cluster"),
        pytest.param(5_000_000, 2, 10, id="no large tasks"),
        pytest.param(10**12, 2, warehouse.FILES_MAX, id="bound"),
    ],
)
def test_batches_are_spread_over_tasks(rows: int, tasks: int, count: int) -> None:
    assert warehouse.file_count(rows, tasks) == count
