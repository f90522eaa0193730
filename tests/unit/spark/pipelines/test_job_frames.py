"""The life of jobs as frames: five-row histories in, whole frames out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from fjord.spark.pipelines import lifecycle

pytestmark = pytest.mark.spark

HISTORY = (
    "table string, seq bigint, ts timestamp, op string, row bigint, xid bigint, key binary, "
    "domain string, priority smallint, process_at timestamp"
)
ATTEMPTS = (
    "table string, row bigint, key binary, domain string, priority smallint, number int, "
    "taken_at timestamp, ended_at timestamp, outcome string, wait_us bigint, run_us bigint, "
    "is_late boolean"
)
JOBS = (
    "table string, row bigint, key binary, domain string, priority smallint, state string, "
    "pushed_at timestamp, due_at timestamp, last_at timestamp, merged bigint, taken bigint, "
    "failures bigint, timeouts bigint, deaths bigint, total_us bigint"
)
FREQUENCIES = (
    "table string, domain string, priority smallint, measure string, rounded_us bigint, "
    "count bigint, max_us bigint"
)
SECOND = 1_000_000


def at(seconds: float) -> datetime:
    return datetime(2026, 11, 16, 9, tzinfo=UTC) + timedelta(seconds=seconds)


def step(
    seq: int, seconds: float, op: str, row: int, xid: int | None = None, **more: Any
) -> tuple[Any, ...]:
    """Returns a row of the history of a job; its key is there unless `key` says it is not."""
    key = more.get("key", b"k%d" % row)
    priority = more.get("priority", None if key is None else 100)
    domain = more.get("domain", None if key is None else "here")
    due = more.get("due", None if key is None else seconds)
    process_at = None if due is None else at(due)
    return ("t", seq, at(seconds), op, row, xid, key, domain, priority, process_at)


def history(spark: SparkSession, *steps: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(steps), HISTORY)


RETRIED = (
    step(1, 0, "ADD", 1, due=10),
    step(2, 15, "TAKE", 1, 2, due=10),
    step(3, 75, "TIMEOUT", 1, 2, due=10),
    step(4, 77, "TAKE", 1, 4, due=10),
    step(5, 80, "DONE", 1, 4, key=None),
)
# Merged, taken for good; one that is taken; one without its ADD.
OTHERS = (
    step(6, 0, "ADD", 6, due=0),
    step(7, 2, "REPLACE", 6, due=3, domain="there"),
    step(8, 5, "DONE", 6, key=None, due=3, priority=50),
    step(9, 6, "MOVE", 9, due=1),
    step(10, 7, "TAKE", 9, 10, due=1),
)
# Failed twice and dead; expired unread; waits after it was given back.
ENDS = (
    step(11, 0, "ADD", 11, due=0),
    step(12, 1, "TAKE", 11, 12, due=0),
    step(13, 2, "FAIL", 11, 12, due=0),
    step(14, 3, "TAKE", 11, 14, due=0),
    step(15, 4, "DEAD", 11, 14, due=0),
    step(16, 0, "ADD", 16, due=0),
    step(17, 9, "EXPIRE", 16, key=None, due=0, priority=100),
    step(18, 0, "ADD", 18, due=0, domain=None),
    step(19, 1, "TAKE", 18, 19, due=0, domain=None),
    step(20, 2, "GIVEN_BACK", 18, 19, due=0, domain=None),
)


def test_attempts_pair_each_take_with_its_end(spark: SparkSession) -> None:
    """Waits count from the process date or from when the job began to wait, the later of both."""
    k1, k6, k9 = (b"k%d" % row for row in (1, 6, 9))
    expected = [
        ("t", 1, k1, "here", 100, 1, at(15), at(75), "TIMEOUT", 5 * SECOND, 60 * SECOND, True),
        ("t", 1, k1, "here", 100, 2, at(77), at(80), "DONE", 2 * SECOND, 3 * SECOND, False),
        ("t", 6, k6, "there", 50, 1, at(5), at(5), "DONE", 2 * SECOND, None, False),
        ("t", 9, k9, "here", 100, 1, at(7), None, None, 6 * SECOND, None, False),
    ]
    found = lifecycle.attempts(history(spark, *RETRIED, *OTHERS))
    assertDataFrameEqual(found, spark.createDataFrame(expected, ATTEMPTS))


def test_jobs_are_counted_whatever_became_of_them(spark: SparkSession) -> None:
    k = {row: b"k%d" % row for row in (1, 6, 9, 11, 16, 18)}
    states = [
        ("t", 1, k[1], "here", 100, "done", at(0), None, at(80), 0, 2, 1, 1, 0, 70 * SECOND),
        ("t", 6, k[6], "there", 50, "done", at(0), None, at(5), 1, 1, 0, 0, 0, 2 * SECOND),
        ("t", 9, k[9], "here", 100, "taken", None, None, at(7), 0, 1, 0, 0, 0, None),
        ("t", 11, k[11], "here", 100, "dead", at(0), None, at(4), 0, 2, 2, 0, 1, None),
        ("t", 16, k[16], "here", 100, "expired", at(0), None, at(9), 0, 0, 0, 0, 0, None),
        ("t", 18, k[18], None, 100, "waiting", at(0), at(2), at(2), 0, 1, 0, 0, 0, None),
    ]
    found = lifecycle.jobs(history(spark, *RETRIED, *OTHERS, *ENDS))
    assertDataFrameEqual(found, spark.createDataFrame(states, JOBS))


def test_a_job_that_was_moved_is_in_the_state_that_it_was_in(spark: SparkSession) -> None:
    found = lifecycle.jobs(
        history(
            spark,
            step(30, 0, "MOVE", 1),
            step(31, 0, "MOVE", 2, 7),
            step(32, 0, "MOVE_DEAD", 3),
            step(33, 0, "REVIVE", 4),
            step(34, 1, "DONE", 2, 7, key=None),
        )
    )
    states = {row["row"]: (row["state"], row["total_us"]) for row in found.collect()}
    assert states == {
        1: ("waiting", None),
        2: ("done", None),
        3: ("dead", None),
        4: ("waiting", None),
    }


def test_frequencies_round_long_times_to_four_digits(spark: SparkSession) -> None:
    def attempt(wait_us: int, run_us: int | None) -> tuple[Any, ...]:
        return ("t", 1, b"k", "here", 100, 1, at(0), None, None, wait_us, run_us, False)

    waits = [
        attempt(9_999, None),
        attempt(12_344, None),
        attempt(12_336, 7),
        attempt(999_999_999, 0),
        attempt(1_000_000, 7),
    ]
    job = ("t", 1, b"k", None, 5, "done", at(0), None, at(1), 0, 1, 0, 0, 0, 10_005)
    found = lifecycle.frequencies(
        spark.createDataFrame(waits, ATTEMPTS), spark.createDataFrame([job], JOBS)
    )
    expected = [
        ("t", "here", 100, "wait", 9_999, 1, 9_999),
        ("t", "here", 100, "wait", 12_340, 2, 12_344),
        ("t", "here", 100, "wait", 1_000_000_000, 1, 999_999_999),
        ("t", "here", 100, "wait", 1_000_000, 1, 1_000_000),
        ("t", "here", 100, "run", 7, 2, 7),
        ("t", "here", 100, "run", 0, 1, 0),
        ("t", None, 5, "total", 10_010, 1, 10_005),
    ]
    assertDataFrameEqual(found, spark.createDataFrame(expected, FREQUENCIES))


def test_percentiles_on_every_level(spark: SparkSession) -> None:
    frequencies = spark.createDataFrame(
        [
            ("t", "a", 100, "wait", SECOND, 3, SECOND),
            ("t", "a", 100, "wait", 2 * SECOND, 2, 2 * SECOND),
            ("t", None, 50, "wait", 4 * SECOND, 5, 4 * SECOND + 1),
            ("u", "a", 100, "wait", 8 * SECOND, 1, 8 * SECOND),
            ("t", "a", 100, "run", 5 * SECOND, 1, 5 * SECOND),
        ],
        FREQUENCIES,
    )
    ddl = (
        "level string, table string, domain string, priority smallint, measure string, "
        "count bigint, p50 double, p90 double, p99 double, p999 double, max double"
    )
    both = "domain and priority"
    t_a, t_none, u = (
        (5, 1.0, 2.0, 2.0, 2.0, 2.0),
        (5, 4.0, 4.0, 4.0, 4.0, 4.000001),
        (1, 8.0, 8.0, 8.0, 8.0, 8.0),
    )
    run = (1, 5.0, 5.0, 5.0, 5.0, 5.0)
    expected = [
        ("all", None, None, None, "wait", 11, 4.0, 4.0, 7.6, 7.96, 8.0),
        ("all", None, None, None, "run", *run),
        ("table", "t", None, None, "wait", 10, 3.0, 4.0, 4.0, 4.0, 4.000001),
        ("table", "u", None, None, "wait", *u),
        ("table", "t", None, None, "run", *run),
        ("domain", "t", "a", None, "wait", *t_a),
        ("domain", "t", None, None, "wait", *t_none),
        ("domain", "u", "a", None, "wait", *u),
        ("domain", "t", "a", None, "run", *run),
        ("priority", "t", None, 100, "wait", *t_a),
        ("priority", "t", None, 50, "wait", *t_none),
        ("priority", "u", None, 100, "wait", *u),
        ("priority", "t", None, 100, "run", *run),
        (both, "t", "a", 100, "wait", *t_a),
        (both, "t", None, 50, "wait", *t_none),
        (both, "u", "a", 100, "wait", *u),
        (both, "t", "a", 100, "run", *run),
    ]
    assertDataFrameEqual(lifecycle.percentiles(frequencies), spark.createDataFrame(expected, ddl))
    buckets = [("wait", 30, 3), ("wait", 31, 2), ("wait", 33, 5), ("wait", 34, 1), ("run", 33, 1)]
    assertDataFrameEqual(
        lifecycle.histogram(frequencies),
        spark.createDataFrame(buckets, "measure string, bucket int, count bigint"),
    )


def test_breaches_are_waits_totals_and_what_still_waits(spark: SparkSession) -> None:
    steps = history(spark, *RETRIED, *OTHERS, *ENDS)
    attempts, jobs = lifecycle.attempts(steps), lifecycle.jobs(steps)
    ddl = (
        "table string, row bigint, key binary, domain string, priority smallint, kind string, "
        "at timestamp, limit_seconds double, seconds double"
    )
    expected = [
        ("t", 1, b"k1", "here", 100, "wait", at(15), 4.0, 5.0),
        ("t", 9, b"k9", "here", 100, "wait", at(7), 4.0, 6.0),
        ("t", 1, b"k1", "here", 100, "total", at(80), 4.0, 70.0),
        ("t", 18, b"k18", None, 100, "waiting", at(90), 4.0, 88.0),
    ]
    wanted = spark.createDataFrame(expected, ddl)
    assertDataFrameEqual(lifecycle.breaches(attempts, jobs, 4, at(90)), wanted)
    by_table = {"t": 4.0, "u": 0.0}
    assertDataFrameEqual(lifecycle.breaches(attempts, jobs, by_table, at(90)), wanted)
    assert lifecycle.breaches(attempts, jobs, {}, at(90)).count() == 0


def test_throughput_by_period_and_totals_by_table(spark: SparkSession) -> None:
    steps = history(spark, *RETRIED, *OTHERS, *ENDS)
    attempts, jobs = lifecycle.attempts(steps), lifecycle.jobs(steps)
    ddl = (
        "table string, at timestamp, pushed bigint, merged bigint, taken bigint, done bigint, "
        "failed bigint, timed_out bigint, dead bigint, expired bigint, wait_p50 double, "
        "wait_p99 double"
    )
    minutes = [
        ("t", at(0), 6, 1, 6, 1, 1, 0, 1, 1, 1.5, 5.95),
        ("t", at(60), 0, 0, 1, 1, 0, 1, 0, 0, 2.0, 2.0),
    ]
    assertDataFrameEqual(
        lifecycle.throughput(steps, attempts, 60), spark.createDataFrame(minutes, ddl)
    )
    (totals,) = lifecycle.totals(jobs, attempts, at(90)).collect()
    ones = "merged waiting taken dead expired due expired_unread failed_twice done_at_first"
    counts = dict.fromkeys([*ones.split(), "timed_out", "late"], 1)
    others = {"table": "t", "jobs": 6, "done": 2, "dropped": 0, "oldest_due": 88.0, "attempts": 7}
    assert totals.asDict() == counts | others
