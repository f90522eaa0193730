"""The report on dead letters: why jobs died, their domains, and a list for reviving them.

Only jobs that are dead now count: one that was revived or discarded since is in the figures on the
table's past, but in no group.  Reasons are grouped by kind: the first line, without counts, long
numbers and identifiers, in which reasons with the same cause differ.

Below the target:

    groups/    a row for each kind of reason and domain, with ages and samples
    redrive/   a row for each dead job, as `db.jobs(table).redrive(rows=...)` takes them

The file for `redrive` has the same jobs as arguments of `fjord jobs redrive`, one per line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from fjord import values
from fjord.errors import FjordError
from fjord.spark import source
from fjord.spark.options import MOVES, Location
from fjord.spark.pipelines import report
from fjord.spark.pipelines.lifecycle import jobs_tables
from fjord.spark.pipelines.report import Figure, Progress, Report, kept, silent

COLUMNS: Final = (
    *("seq", "ts", "op", "row"),
    *("key", "domain", "priority", "timeouts", "type", "value"),
)
# This much of a payload, and this many keys and payloads of a group, are enough to recognise it.
PAYLOAD_BYTES: Final = 256
SAMPLES: Final = 3
KIND_CHARACTERS: Final = 200
# Groups in the report; the table has all of them.
GROUPS_LISTED: Final = 50
#: How long ago jobs died, in hours; what is older than all of these is "older".
AGES: Final = {"last_hour": 1, "last_day": 24, "last_week": 168}

_IMAGES: Final = ("ADD", "REPLACE", *MOVES)
_STEPS: Final = 4
# What is replaced in a reason, in this order, to find its kind.
_PATTERNS: Final = {
    r"(?s)[\r\n].*": "",
    r"^(failed|timed out) \d+ times": "$1",
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}": "\u2026",
    r"\b(?:0x[0-9a-fA-F]+|[0-9a-fA-F]{16,}|\d{4,})\b": "\u2026",
}


def dead_letters(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location,
    table: str,
    target: str | None = None,
    *,
    end: datetime | None = None,
    reason: str = "",
    domain: str = "",
    redrive: str = "",
    progress: Progress = silent,
) -> Report:
    """Reports on the dead jobs of a table.

    Args:
        spark: the session to run in.
        location: where the data is.
        table: a table of jobs.
        target: the folder for the tables; None writes none.
        end: only what happened before, as if it were that moment; None: now.
        reason: only those with this in their reason.
        domain: only those of this domain.
        redrive: the file to write the list to.
        progress: is told what is done right now.

    Raises:
        FjordError: if there is no such table, or the list cannot be written.
    """
    jobs_tables(location, [table])
    report.check_zones(end)
    progress("reading", 0, _STEPS)
    found = source.history(spark, location, table).select(*COLUMNS, F.length("value").alias("size"))
    happened = report.before(found.withColumn("value", _cut_value()), end)
    with kept(happened), kept(_picked(dead(happened), reason, domain)) as found:
        past = report.rows(fates(happened))[0]
        progress("grouping", 1, _STEPS)
        with kept(groups(found, end or report.now())) as grouped:
            if target is not None:
                _write(grouped, found, target)
            progress("listing", 2, _STEPS)
            listed: dict[str, Figure] = {}
            if redrive:
                listed = {"redrive": redrive, "listed": _write_list(found, redrive)}
            progress("summing up", 3, _STEPS)
            return _report(table, grouped, past, listed)


def _cut_value() -> Column:
    """Returns the needed part of a value; a reason stays whole, it is short anyway."""
    is_reason = F.col("op") == "DEAD"
    return F.when(is_reason, F.col("value")).otherwise(F.substring("value", 1, PAYLOAD_BYTES))


def _picked(found: DataFrame, reason: str, domain: str) -> DataFrame:
    if reason:
        found = found.where(F.col("reason").contains(reason))
    if domain:
        found = found.where(F.col("domain") == domain)
    return found


# -- frames ---------------------------------------------------------------------------------------


def dead(history: DataFrame) -> DataFrame:
    """Returns a row for each job that is dead: what it is, since when and why."""
    seq, op = F.col("seq"), F.col("op")
    is_death = op == "DEAD"
    found = history.groupBy("row").agg(
        F.max_by("op", seq).alias("last_op"),
        F.max_by(
            F.struct("key", "domain", "priority", "timeouts"), F.when(F.col("key").isNotNull(), seq)
        ).alias("what"),
        F.max(F.when(is_death, F.col("ts"))).alias("died_at"),
        F.max_by("value", F.when(is_death, seq)).cast("string").alias("reason"),
        F.max_by(F.struct("type", "value", "size"), F.when(op.isin(*_IMAGES), seq)).alias(
            "payload"
        ),
    )
    is_dead = F.col("last_op").isin("DEAD", "MOVE_DEAD")
    return found.where(is_dead).select(
        "row", "what.*", "died_at", "reason", kind(F.col("reason")).alias("kind"), "payload"
    )


def kind(reason: Column) -> Column:
    """Returns what reasons of one cause have in common."""
    for pattern, replacement in _PATTERNS.items():
        reason = F.regexp_replace(reason, pattern, replacement)
    return F.substring(reason, 1, KIND_CHARACTERS)


def groups(dead: DataFrame, until: datetime) -> DataFrame:
    """Returns a row for each kind of reason and domain: how many, how old, and the last of them."""
    newest = Window.partitionBy("kind", "domain").orderBy(F.desc("died_at"), F.desc("row"))
    numbered = dead.withColumn("nth", F.row_number().over(newest))
    sample = F.when(F.col("nth") <= SAMPLES, F.struct("nth", "row", "key", "reason", "payload"))
    return numbered.groupBy("kind", "domain").agg(
        F.count("*").alias("jobs"),
        *(F.count_if(is_so).alias(name) for name, is_so in _ages(until).items()),
        F.min("died_at").alias("first_at"),
        F.max("died_at").alias("last_at"),
        F.sort_array(F.collect_list(sample)).alias("samples"),
    )


def _ages(until: datetime) -> dict[str, Column]:
    """Returns for each age whether a job has it; if its death is unknown, it is older."""
    hours = (F.unix_micros(F.lit(until)) - F.unix_micros("died_at")) / 3.6e9
    found, low = {}, 0
    for name, high in AGES.items():
        found[name] = (hours >= low) & (hours < high)
        low = high
    return {**found, "older": F.coalesce(hours >= low, F.lit(True))}


def fates(history: DataFrame) -> DataFrame:
    """Returns one row: how many jobs ever died, and how many were revived or discarded."""
    ops = {"died": "DEAD", "revived": "REVIVE", "discarded": "DISCARD"}
    return history.agg(*(F.count_if(F.col("op") == op).alias(name) for name, op in ops.items()))


# -- what is written and shown --------------------------------------------------------------------


def _write(grouped: DataFrame, found: DataFrame, target: str) -> None:
    ordered = grouped.orderBy(F.desc("jobs"), "kind", "domain")
    report.write_table(ordered, target, "groups")
    listed = found.select("row", "key", "domain", "priority", "timeouts", "died_at", "reason")
    report.write_table(listed.orderBy("row"), target, "redrive")


def _write_list(found: DataFrame, path: str) -> int:
    """Writes the rows of dead jobs as arguments of `fjord jobs redrive`; returns how many."""
    count = 0
    try:
        with open(path, "w", encoding="ascii") as file:
            for row in found.select("row").orderBy("row").toLocalIterator():
                file.write(f"--row={row['row']}\n")
                count += 1
        return count
    except OSError as error:
        raise FjordError(f"cannot write the list {path}: {error.strerror}") from error


def _report(
    table: str, grouped: DataFrame, past: dict[str, Any], listed: Mapping[str, Figure]
) -> Report:
    count = grouped.agg(F.count("*").alias("groups"), F.sum("jobs").alias("jobs")).collect()[0]
    shown = grouped.orderBy(F.desc("jobs"), "kind", "domain").limit(GROUPS_LISTED)
    figures: dict[str, Figure] = {
        "table": table,
        "dead": count["jobs"] or 0,
        "groups": count["groups"],
        "ever_died": past["died"],
        "revived": past["revived"],
        "discarded": past["discarded"],
        **listed,
    }
    rows = [_shown(row) for row in report.rows(shown)]
    return Report(job="dead-letters", figures=figures, rows=rows)


def _shown(group: dict[str, Any]) -> dict[str, Figure]:
    samples = group["samples"]
    return {
        "reason": group["kind"] if group["kind"] is not None else "not known any more",
        "domain": group["domain"],
        "jobs": group["jobs"],
        **{name: group[name] for name in (*AGES, "older")},
        "first": _date(group["first_at"]),
        "last": _date(group["last_at"]),
        "keys": ", ".join(_text(bytes(one["key"])) for one in samples if one["key"] is not None),
        "payload": payload(samples[0]["payload"]) if samples else None,
    }


def _date(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def payload(found: Any) -> str | None:
    """Returns the beginning of a value as text, by its type."""
    if found is None or found["type"] is None or found["value"] is None:
        return None
    data, type_ = bytes(found["value"]), found["type"]
    if type_ in (values.Type.STRING, values.Type.BUFFER) or values.problem(type_, data):
        return _text(data) + ("\u2026" if found["size"] > len(data) else "")
    value = values.decode(type_, data)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
