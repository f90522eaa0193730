"""The numbers of a daemon, for Prometheus and for STATS."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fjord.engine.waits import Listeners
from fjord.errors import Code
from fjord.server.bounds import Memory
from fjord.server.counters import Counters
from fjord.server.exposition import text_of
from fjord.server.metrics import BLOCK_COUNTS, BLOCK_GAUGES, ENGINE, Metrics
from fjord.server.session import Sessions
from fjord.testing import SimClock
from fjord.wire import Function
from tests.unit.engine.world import open_at
from tests.unit.server.peer import Source

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def metrics() -> Metrics:
    counters = Counters()
    counters.requests[Function.GET] += 3
    counters.refusals[Code.NOT_FOUND] += 2
    counters.closed[Code.BAD_MAGIC] += 1
    counters.parked_waits = 4
    counters.jobs_died, counters.jobs_died_by_table = 9, {"pages": 3}
    for took_us in (50, 90, 3_000, 60_000_000):
        counters.syncs.observe(took_us)
    return Metrics(
        engine=lambda: dict.fromkeys(ENGINE, 5),
        blocks=lambda: dict.fromkeys(BLOCK_COUNTS | BLOCK_GAUGES, 6),
        job_counts=lambda: {"pages": (7, 2, 1)},
        counters=counters,
        memory=Memory(SimClock(), 1000),
        listeners=Listeners(Source().as_engine),
        sessions=Sessions(),
        uptime_us=lambda: 2_500_000,
    )


def samples() -> dict[tuple[str, str], float]:
    """Returns value by name and label."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text_of(metrics().collect()).decode())
        for sample in family.samples
    }


def test_counts_are_told_by_function_and_code() -> None:
    found = samples()
    assert found["fjord_requests_total", "GET"] == 3
    assert found["fjord_refusals_total", "NOT_FOUND"] == 2
    assert found["fjord_connections_closed_total", "BAD_MAGIC"] == 1
    assert found["fjord_live_bytes", ""] == 5
    assert found["fjord_uptime_seconds", ""] == 2.5


def test_jobs_are_told_by_table() -> None:
    found = samples()
    states = ("waiting", "taken", "dead")
    assert [found["fjord_jobs", f"{state},pages"] for state in states] == [7, 2, 1]
    assert found["fjord_jobs_died_total", "pages"] == 3
    assert found["fjord_parked_waits", ""] == 4
    assert found["fjord_jobs_dead", ""] == 5


def test_a_histogram_adds_up() -> None:
    found = samples()
    assert found["fjord_sync_seconds_bucket", "0.0001"] == 2
    assert found["fjord_sync_seconds_bucket", "0.0025"] == 2
    assert found["fjord_sync_seconds_bucket", "0.005"] == 3
    assert found["fjord_sync_seconds_bucket", "5.0"] == 3
    assert found["fjord_sync_seconds_bucket", "+Inf"] == 4
    assert found["fjord_sync_seconds_count", ""] == 4
    assert round(found["fjord_sync_seconds_sum", ""], 5) == 60.00314


def test_stats_are_sorted_and_whole() -> None:
    numbers = metrics().numbers()
    names = numbers.names.rows()
    assert names == sorted(names)
    found = dict(zip(names, numbers.values, strict=True))
    assert found[b"requests"] == 3
    assert found[b"uptime_us"] == 2_500_000
    assert (found[b"parked_waits"], found[b"jobs_died"]) == (4, 9)
    assert set(ENGINE) <= {name.decode() for name in names}


def test_every_number_of_the_engine_has_a_meaning(tmp_path: Path) -> None:
    engine = open_at(tmp_path)
    assert set(engine.stats()) == set(ENGINE)
    engine.abandon()


def test_the_page_explains_every_number() -> None:
    words = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    exposed = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in samples()}
    counted = {name.decode() for name in metrics().numbers().names.rows()}
    assert sorted((exposed | counted) - words) == []
