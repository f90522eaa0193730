"""The life of jobs as frames: what a history of jobs says about waits, work and failures.

A row of history is one step of one job (docs/spark.md, "Jobs"): `row` is the job, `xid` the lease.
From these rows come two frames, and all figures come from the two:

    attempts   one row for each time that a job was handed out
    jobs       one row for each job, with the state that its last row leaves it in

What the figures mean:

    wait    from when the job could have been taken until it was: from its process date, or from
            when it began to wait if that was later.  It begins to wait when it is pushed, and anew
            with each failure, timeout, return and revival; a push that is merged begins nothing.
    run     from TAKE until its lease ended, whatever the end; a job that is taken for good has none
    total   from when the job could have been taken for the first time until DONE, so with all
            retries and the pauses between them

Invariants: nothing is dropped because its end or its beginning is missing.  An attempt that goes on
has no run; a job whose ADD is not there any more, since its segment is gone, has no total, and its
first wait counts from its process date.  A wait is never negative.

All functions are pure: frames in, a frame out, and no action of Spark runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

#: What the functions here need of a history, beside `table`, which tells several apart.
COLUMNS: Final = ("seq", "ts", "op", "row", "xid", "key", "domain", "priority", "process_at")
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
#: Percentiles are for everything, for each table, and within it for each of these.
LEVELS: Final = {
    "all": (),
    "table": ("table",),
    "domain": ("table", "domain"),
    "priority": ("table", "priority"),
    "domain and priority": ("table", "domain", "priority"),
}
#: A histogram has so many buckets for each power of ten.
BUCKETS_PER_DECADE: Final = 5

# With these a job begins to wait.
_BEGINS: Final = ("ADD", "TIMEOUT", "FAIL", "GIVEN_BACK", "REVIVE")
# These only write again what holds already, when the journal is packed.
_MOVES: Final = ("MOVE", "MOVE_DEAD")
_FAILURES: Final = ("FAIL", "TIMEOUT", "DEAD")
_STATES: Final = {
    "DONE": "done",
    "EXPIRE": "expired",
    "CANCEL": "cancelled",
    "SUPERSEDED": "superseded",
    "DISCARD": "discarded",
    "PURGE": "purged",
    "DEAD": "dead",
    "MOVE_DEAD": "dead",
    "TAKE": "taken",
}
#: Of a job that is not gone, in the words of `db.jobs(...).count()`.
OPEN: Final = ("waiting", "taken")
_US_PER_SECOND: Final = 1_000_000
# Exact up to here; what is longer is rounded to as many digits, so that the number of different
# values, and with it the memory of a percentile, is bounded however many jobs there are.
_EXACT_US: Final = 10_000


# -- from history to attempts and jobs ------------------------------------------------------------


def attempts(history: DataFrame) -> DataFrame:
    """Returns one row for each time that a job was handed out, with how long it waited and ran.

    `outcome` is the op that ended it, null while it goes on.  It is late if its lease was over and
    the job was handed out again: somebody did the work twice, or somebody was gone.
    """
    by_job = Window.partitionBy("table", "row").orderBy("seq")
    before = by_job.rowsBetween(Window.unboundedPreceding, -1)
    so_far = by_job.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Of a job that is taken nothing changes but its lease, so the next row is its end.
    steps = (
        history.where(~F.col("op").isin(*_MOVES))
        .withColumn("began_at", F.last(_where_began("ts"), ignorenulls=True).over(before))
        .withColumn("known_key", F.last("key", ignorenulls=True).over(so_far))
        .withColumn("known_domain", F.last(_described("domain"), ignorenulls=True).over(so_far))
        .withColumn("next", F.lead(F.struct("op", "ts", "xid")).over(by_job))
    )
    is_ended = F.col("next.xid") == F.col("xid")
    is_done_at_once = F.col("op") == "DONE"
    outcome = F.when(is_done_at_once, F.lit("DONE")).when(is_ended, F.col("next.op"))
    ended_at = F.when(is_done_at_once, F.col("ts")).when(is_ended, F.col("next.ts"))
    return steps.where(_is_handed_out()).select(
        "table",
        "row",
        F.col("known_key").alias("key"),
        F.col("known_domain.value").alias("domain"),
        "priority",
        F.row_number().over(by_job).cast("int").alias("number"),
        F.col("ts").alias("taken_at"),
        ended_at.alias("ended_at"),
        outcome.alias("outcome"),
        _elapsed_us(_later("process_at", "began_at"), F.col("ts")).alias("wait_us"),
        F.when(~is_done_at_once, _elapsed_us(F.col("ts"), ended_at)).alias("run_us"),
        F.coalesce(
            (outcome == "TIMEOUT") & F.lead("row").over(by_job).isNotNull(), F.lit(False)
        ).alias("is_late"),
    )


def jobs(history: DataFrame) -> DataFrame:
    """Returns one row for each job: what it is, what became of it, and how often what happened."""
    seq, op = F.col("seq"), F.col("op")
    first_process_at = F.min_by("process_at", F.when(_is_handed_out(), seq))
    found = history.groupBy("table", "row").agg(
        F.max_by(F.struct("key", "domain"), F.when(F.col("key").isNotNull(), seq)).alias("what"),
        F.max_by("priority", F.when(F.col("priority").isNotNull(), seq)).alias("priority"),
        F.max_by("process_at", F.when(F.col("process_at").isNotNull(), seq)).alias("process_at"),
        F.max_by(F.struct("op", "xid", "ts"), seq).alias("last"),
        F.min(F.when(op == "ADD", F.col("ts"))).alias("pushed_at"),
        F.max(_where_began("ts")).alias("began_at"),
        first_process_at.alias("first_process_at"),
        F.count_if(op == "REPLACE").alias("merged"),
        F.count_if(_is_handed_out()).alias("taken"),
        F.count_if(op.isin(*_FAILURES) & F.col("xid").isNotNull()).alias("failures"),
        F.count_if(op == "TIMEOUT").alias("timeouts"),
        F.count_if(op == "DEAD").alias("deaths"),
    )
    first_due_at = F.greatest("first_process_at", "pushed_at")
    is_timed = (F.col("last.op") == "DONE") & F.col("pushed_at").isNotNull()
    return found.select(
        "table",
        "row",
        F.col("what.key").alias("key"),
        F.col("what.domain").alias("domain"),
        "priority",
        _state(F.col("last")).alias("state"),
        "pushed_at",
        F.when(_state(F.col("last")) == "waiting", _later("process_at", "began_at")).alias(
            "due_at"
        ),
        F.col("last.ts").alias("last_at"),
        "merged",
        "taken",
        "failures",
        "timeouts",
        "deaths",
        F.when(is_timed, _elapsed_us(first_due_at, F.col("last.ts"))).alias("total_us"),
    )


def _is_handed_out() -> Column:
    is_done_at_once = (F.col("op") == "DONE") & F.col("xid").isNull()
    return (F.col("op") == "TAKE") | is_done_at_once


def _where_began(column: str) -> Column:
    return F.when(F.col("op").isin(*_BEGINS), F.col(column))


def _described(column: str) -> Column:
    """Returns a column of those rows that describe the job; null of others, not of its own."""
    return F.when(F.col("key").isNotNull(), F.struct(F.col(column).alias("value")))


def _state(last: Column) -> Column:
    names = F.create_map(*chain.from_iterable((F.lit(op), F.lit(s)) for op, s in _STATES.items()))
    is_taken = (last["op"] == "MOVE") & last["xid"].isNotNull()
    return F.when(is_taken, F.lit("taken")).otherwise(
        F.coalesce(names[last["op"]], F.lit("waiting"))
    )


def _later(first: str, second: str) -> Column:
    """Returns the later of two dates, of which one may be missing."""
    return F.greatest(first, second)


def _elapsed_us(start: Column, end: Column) -> Column:
    elapsed = F.unix_micros(end) - F.unix_micros(start)
    return F.when(elapsed < 0, F.lit(0).cast("bigint")).otherwise(elapsed)


# -- figures --------------------------------------------------------------------------------------


def frequencies(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """Returns how often each wait, run and total there was, to four digits; `max_us` is exact."""
    where = ("table", "domain", "priority")
    measured = attempts.select(
        *where, F.expr("stack(2, 'wait', wait_us, 'run', run_us) AS (measure, us)")
    ).unionByName(
        jobs.select(*where, F.lit("total").alias("measure"), F.col("total_us").alias("us"))
    )
    return (
        measured.where("us IS NOT NULL")
        .groupBy(*where, "measure", _rounded(F.col("us")).alias("rounded_us"))
        .agg(F.count("*").alias("count"), F.max("us").alias("max_us"))
    )


def _rounded(us: Column) -> Column:
    step = F.pow(F.lit(10.0), F.floor(F.log10(us)) - 3)
    return F.when(us < _EXACT_US, us).otherwise((F.round(us / step) * step).cast("bigint"))


def percentiles(frequencies: DataFrame) -> DataFrame:
    """Returns count, percentiles and maximum of each measure, in seconds, on every level.

    `level` says by what rows are told apart; a column that is not among these is null.
    """
    columns = ("table", "domain", "priority")
    sets = [("measure", *names) for names in LEVELS.values()]
    probabilities = F.array(*(F.lit(one) for one in PERCENTILES.values()))
    found = frequencies.groupingSets(sets, "measure", *columns).agg(
        F.grouping_id().alias("set"),
        F.sum("count").alias("count"),
        F.percentile("rounded_us", probabilities, F.col("count")).alias("found"),
        F.max("max_us").alias("max_us"),
    )
    numbers = {_grouping_id(names): level for level, names in LEVELS.items()}
    levels = F.create_map(*chain.from_iterable((F.lit(n), F.lit(s)) for n, s in numbers.items()))
    return found.select(
        levels[F.col("set").cast("int")].alias("level"),
        *columns,
        "measure",
        "count",
        *(_seconds(F.col("found")[place]).alias(name) for place, name in enumerate(PERCENTILES)),
        _seconds(F.col("max_us")).alias("max"),
    )


def _grouping_id(names: tuple[str, ...]) -> int:
    """Returns the number by which Spark tells a grouping set: a bit for each column it lacks."""
    return sum(
        bit for bit, name in ((4, "table"), (2, "domain"), (1, "priority")) if name not in names
    )


def histogram(frequencies: DataFrame) -> DataFrame:
    """Returns how many times fall into each bucket; bucket n begins at 10 ** (n / 5) us."""
    us = F.greatest("rounded_us", F.lit(1))
    bucket = F.floor(F.log10(us) * BUCKETS_PER_DECADE + 1e-9).cast("int")
    return frequencies.groupBy("measure", bucket.alias("bucket")).agg(F.sum("count").alias("count"))


Limits = Mapping[str, float] | float


def breaches(attempts: DataFrame, jobs: DataFrame, limits: Limits, until: datetime) -> DataFrame:
    """Returns everything that took longer than it may, by seconds for each table or for all.

    `kind` is wait or total, or waiting for a job that has not been taken by `until`.
    """
    allowed = _allowed(limits)
    names = ("table", "row", "key", "domain", "priority")
    waits = attempts.select(
        *names, F.lit("wait").alias("kind"), F.col("taken_at").alias("at"), F.col("wait_us")
    )
    totals = jobs.select(
        *names, F.lit("total").alias("kind"), F.col("last_at").alias("at"), F.col("total_us")
    )
    waiting = jobs.where("state = 'waiting'").select(
        *names,
        F.lit("waiting").alias("kind"),
        F.lit(until).alias("at"),
        _elapsed_us(F.col("due_at"), F.lit(until)).alias("us"),
    )
    return (
        waits.withColumnRenamed("wait_us", "us")
        .unionByName(totals.withColumnRenamed("total_us", "us"))
        .unionByName(waiting)
        .withColumn("limit_seconds", allowed)
        .withColumn("seconds", _seconds(F.col("us")))
        .drop("us")
        .where("seconds > limit_seconds")
    )


def _allowed(limits: Limits) -> Column:
    if not isinstance(limits, Mapping):
        return F.lit(float(limits))
    # The empty name is that of no table, and Spark makes no map out of nothing.
    given = {"": 0.0, **limits}
    pairs = chain.from_iterable((F.lit(name), F.lit(float(s))) for name, s in given.items())
    return F.create_map(*pairs)[F.col("table")]


def failures(jobs: DataFrame, *, times: int = 2) -> DataFrame:
    """Returns the keys of jobs that failed or timed out so many times, each on its own."""
    return (
        jobs.where(F.col("failures") >= times)
        .groupBy("table", "key")
        .agg(
            F.max_by("domain", "last_at").alias("domain"),
            F.count("*").alias("jobs"),
            F.sum("failures").alias("failures"),
            F.sum("timeouts").alias("timeouts"),
            F.count_if(F.col("state") == "dead").alias("dead"),
            F.count_if(F.col("state") == "done").alias("done"),
            F.max("last_at").alias("last_at"),
        )
    )


def throughput(history: DataFrame, attempts: DataFrame, seconds: int) -> DataFrame:
    """Returns what happened in each period of so many seconds, and how long jobs had waited."""
    counted = {
        "pushed": F.col("op").isin("ADD", "REPLACE"),
        "merged": F.col("op") == "REPLACE",
        "taken": _is_handed_out(),
        "done": F.col("op") == "DONE",
        "failed": F.col("op") == "FAIL",
        "timed_out": F.col("op") == "TIMEOUT",
        "dead": F.col("op") == "DEAD",
        "expired": F.col("op") == "EXPIRE",
    }
    ops = history.groupBy("table", _period("ts", seconds)).agg(
        *(F.count_if(condition).alias(name) for name, condition in counted.items())
    )
    rounded = _rounded(F.col("wait_us"))
    waits = attempts.groupBy("table", _period("taken_at", seconds)).agg(
        _seconds(F.percentile(rounded, F.lit(0.5))).alias("wait_p50"),
        _seconds(F.percentile(rounded, F.lit(0.99))).alias("wait_p99"),
    )
    return ops.join(waits, ["table", "at"], "left")


def _period(column: str, seconds: int) -> Column:
    start = F.floor(F.unix_seconds(F.col(column)) / seconds) * seconds
    return F.timestamp_seconds(start).alias("at")


def totals(jobs: DataFrame, attempts: DataFrame, until: datetime) -> DataFrame:
    """Returns one row for each table: how many jobs are in which state, and what went wrong."""
    state = F.col("state")
    overdue_us = F.when(state == "waiting", _elapsed_us(F.col("due_at"), F.lit(until)))
    counted = jobs.groupBy("table").agg(
        F.count("*").alias("jobs"),
        F.sum("merged").alias("merged"),
        *(
            F.count_if(state == one).alias(one)
            for one in ("done", "waiting", "taken", "dead", "expired")
        ),
        F.count_if(F.col("due_at") <= F.lit(until)).alias("due"),
        F.count_if(state.isin("cancelled", "superseded", "discarded", "purged")).alias("dropped"),
        F.count_if((state == "expired") & (F.col("taken") == 0)).alias("expired_unread"),
        F.count_if(F.col("failures") >= 2).alias("failed_twice"),
        F.count_if((state == "done") & (F.col("taken") == 1)).alias("done_at_first"),
        _seconds(F.max(overdue_us)).alias("oldest_due"),
    )
    handed_out = attempts.groupBy("table").agg(
        F.count("*").alias("attempts"),
        F.count_if(F.col("outcome") == "TIMEOUT").alias("timed_out"),
        F.count_if("is_late").alias("late"),
    )
    return counted.join(handed_out, "table", "left").fillna(0, ["attempts", "timed_out", "late"])


def _seconds(us: Column) -> Column:
    return us / F.lit(float(_US_PER_SECOND))
