"""`kestrel-import`: writes the items of a Kestrel's queues to tables, each item once.

    directory --looked at, on the driver--> plans --one task a queue--> tables of the daemon

The rules are those of `fjord.kestrel.importer`, as is all that is sent; Spark does many queues at
a time.  A task that is run again finds what is there, and sends the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Final, NotRequired, TypedDict, Unpack

from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from fjord.kestrel.importer import Importer, ImportOptions, ImportOutcome, ImportPlan
from fjord.spark.pipelines import report
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

# Between two looks at how far the tasks are.
_LOOK_SECONDS: Final = 0.5


class KestrelImport(TypedDict):
    """How to import."""

    queues: NotRequired[Sequence[str]]  # these only
    tables: NotRequired[Sequence[str]]  # QUEUE=TABLE, if it is not named as its queue
    kind: NotRequired[str]  # what items become: jobs, or messages of a stream
    damaged: NotRequired[bool]  # import what can be read of damaged files
    skip_too_large: NotRequired[bool]  # leave out items that are larger than a value may be
    anew: NotRequired[bool]  # also queues that were imported before, and have changed
    moved: NotRequired[bool]  # what was imported of the same files from elsewhere counts
    dry_run: NotRequired[bool]


def kestrel_import(
    spark: SparkSession,
    directory: str,
    server: str,
    *,
    progress: Progress = silent,
    **options: Unpack[KestrelImport],
) -> Report:
    """Writes the items of a Kestrel's queues to tables of a daemon, one table per queue.

    Args:
        spark: the session.
        directory: where the files of the queues are; nothing there is changed.
        server: the daemon.
        progress: receives the progress.
        options: see `KestrelImport`.

    Raises:
        FjordError: if a check fails, before anything is written; or if Spark or the daemon fails.
            Items that were written by then are skipped the next time.
    """
    return imported(spark, ImportOptions(directory=directory, url=server, **options), progress)


def imported(spark: SparkSession, wanted: ImportOptions, progress: Progress) -> Report:
    """Does what `kestrel_import` does."""
    wanted = replace(wanted, directory=os.path.abspath(wanted.directory))
    with report.explained():
        plans = Importer(wanted, progress, passes_unchanged=True).plans()
        found = [plan.outcome for plan in plans]
        if not wanted.dry_run:
            left = [one for one in plans if one.writer and not one.outcome.is_done]
            left.sort(key=lambda plan: -plan.size)  # the largest begin first
            sent = {one.queue: one for one in _send(spark, wanted, left, progress)}
            found = [sent.get(one.queue, one) for one in found]
    return _report(wanted, found)


def _send(
    spark: SparkSession, wanted: ImportOptions, plans: Sequence[ImportPlan], progress: Progress
) -> list[ImportOutcome]:
    if not plans:
        return []
    total = sum(plan.outcome.items - plan.outcome.imported_before for plan in plans)
    progress("writing items", 0, total)
    done = spark.sparkContext.accumulator(0)
    tasks = spark.sparkContext.parallelize(plans, len(plans))
    with ThreadPoolExecutor(max_workers=1) as thread:
        sending = thread.submit(tasks.map(partial(_send_one, wanted, done)).collect)
        while wait([sending], _LOOK_SECONDS).not_done:
            # A task that is run again may count its queue twice.
            progress("writing items", min(done.value, total), total)
        sent = sending.result()
    progress("writing items", total, total)
    return sent


def _send_one(wanted: ImportOptions, done: Accumulator[int], plan: ImportPlan) -> ImportOutcome:
    """Imports one queue, of which some may be there since it was planned."""
    queue, table = plan.outcome.queue, plan.outcome.table
    alone = replace(wanted, queues=(queue,), tables=(f"{queue}={table}",))
    importer = Importer(alone, passes_unchanged=True)
    (fresh,) = importer.plans()
    if fresh.crc != plan.crc:
        raise importer.changed(queue)
    sent = importer.send(fresh)
    done.add(plan.outcome.items - plan.outcome.imported_before)
    return sent


def _report(wanted: ImportOptions, found: Sequence[ImportOutcome]) -> Report:
    lines: list[dict[str, Figure]] = [
        {
            "queue": one.queue,
            "table": one.table,
            "items": one.items,
            "written": 0 if wanted.dry_run else one.tally.imported,
            "expired": one.tally.expired,
            "too_large": one.tally.too_large,
            "bytes": one.bytes,
            "damaged_bytes": one.damaged_bytes,
            "there_before": one.items > 0 and one.is_done,
        }
        for one in found
    ]
    figures: dict[str, Figure] = {
        **({"dry_run": True} if wanted.dry_run else {}),
        "directory": wanted.directory,
        "queues": len(lines),
        "queues_there_before": sum(line["there_before"] is True for line in lines),
    }
    for name in ("items", "written", "expired", "too_large", "bytes", "damaged_bytes"):
        figures[name] = sum(int(line[name] or 0) for line in lines)
    return Report(job="kestrel-import", figures=figures, rows=lines)
