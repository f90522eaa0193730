"""`fjord pipeline`: the jobs of the data pipeline, on any Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

from fjord.cli import arguments
from fjord.cli.arguments import DAEMON, Data, Json, Node, TableName, argument, noun, option, verb
from fjord.cli.output import needs, tell
from fjord.cli.pipelines import kestrel_import, running
from fjord.cli.pipelines.running import Conf, DryRun, Master, SparkJob
from fjord.errors import UsageError
from fjord.limits import MIB

if TYPE_CHECKING:
    from fjord.spark.pipelines.lifecycle import Limits
    from fjord.spark.pipelines.replay import ReplayOptions

app = noun(
    "pipeline",
    "Runs the data pipeline on Spark: ingest, latest, compact, replay, imports and reports.",
)

# Spark's syntax of an interval.
_EVERY: Final = re.compile(
    r"[0-9]+ *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)", re.ASCII | re.IGNORECASE
)
GO_ON: Final = (
    "fjord: interrupted; what was written stays. To resume, run the same command with --id {}"
)

StartSeq = Annotated[int, option("The first seq.", min=1)]
EndSeq = Annotated[int, option("The seq to stop before.", min=0, shown="the durable end")]
Ops = Annotated[list[str] | None, option("Only rows of this op; may be repeated.", shown="all")]


@verb(app)
def init(
    node: Node,
    directory: Annotated[str, argument("DIR", "Where to write it.")],
    table: Annotated[str, option("The table that the pipeline reads.")] = "events",
    force: Annotated[bool, option("Overwrite the files of an older project.", "--force")] = False,
) -> None:
    """Writes a project for Spark's declarative pipelines: ingest, latest and a report.

    Nothing is run. A jobs table is refused if the daemon can be reached. Run the project with
    `./run` in its directory, as often as you like: a streaming table named after the table takes
    the new rows, and views are built from it. Running it needs the package's extra `pipelines`.

    Example: fjord pipeline init warehouse

    Example: fjord pipeline init warehouse --to fjord://127.0.0.1:17994 --table orders
    """
    with needs("{} is missing: pip install 'fjord-journal[pipelines]'"):
        from fjord.spark.pipelines.init import init as write
    report = write(directory, running.location(node.to, node.data), table=table, force=force)
    running.show(report, as_json=node.as_json)


@verb(app)
def reconcile(
    job: SparkJob,
    table: arguments.AnyKind,
    warehouse: Annotated[
        str, option("Also compare this folder or URL, which `ingest` writes to.")
    ] = "",
    start: StartSeq = 1,
    end: EndSeq = 0,
    bucket: Annotated[str, option("Compare with the warehouse by `hour` or by `block`.")] = "hour",
    op: Ops = None,
    deep: Annotated[
        bool, option("Also read every block file and compare its checksum.", "--deep")
    ] = False,
    blocks: Annotated[
        str, option("The location of the blocks as Spark sees it.", shown="the node's")
    ] = "",
) -> None:
    """Compares a table on the server, in cold blocks and in a warehouse.

    Counts, seqs, duplicates and checksums must agree for each block and each hour. Rows that the
    warehouse does not have yet are its lag, not a difference. Exit code 1 if anything differs;
    the output then has a line for each side of each block, hour or file that differs.

    Example: fjord pipeline reconcile events --warehouse /lake/events

    Example: fjord pipeline reconcile events --deep --json | jq .lines
    """
    if bucket not in ("hour", "block"):
        raise UsageError(f"--bucket must be hour or block, not {bucket}")
    if 0 < end < start:
        raise UsageError(f"--end {end} is before --start {start}")
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.reconcile import reconcile as run

        report = run(
            spark,
            place,
            table,
            warehouse or None,
            start=start,
            end=end,
            bucket=bucket,
            ops=op or (),
            deep=deep,
            blocks=blocks,
            progress=progress,
        )
    job.show(report)


@verb(app)
def replay(
    job: SparkJob,
    table: Annotated[str, argument("TABLE", "The table whose history to replay.")],
    target: Annotated[str, argument("TARGET", "The table to write to.")],
    into: Annotated[str, option("The target's daemon.", shown="the table's")] = "",
    start: StartSeq = 1,
    end: EndSeq = 0,
    since: Annotated[
        str, option("Only rows from this date on, such as 2026-01-31T12:00:00Z.")
    ] = "",
    until: Annotated[str, option("Only rows before this date.")] = "",
    op: Ops = None,
    key_prefix: Annotated[str, option("Only rows whose keys begin with this.")] = "",
    redrive: Annotated[
        str, option("Only the jobs in this file, written by `dead-letters --redrive`.")
    ] = "",
    pace: Annotated[str, option("`fast`, `original`, or rows per second.")] = "fast",
    keys: Annotated[str, option("`same`, or `fresh`: with the replay's id appended.")] = "same",
    dates: Annotated[str, option("`moved` to the time of the replay, or the `same`.")] = "moved",
    replay_id: Annotated[str, option("Resume this replay.", "--id", shown="a new one")] = "",
    batch_rows: Annotated[int, option("Rows per batch.", min=1)] = 200_000,
    dry_run: DryRun = False,
) -> None:
    """Writes messages or jobs of a table's history again, to another table or the same.

    Every row is written once, however often the replay is interrupted, also by Ctrl-C: to resume,
    give the id that it prints at the beginning. A complete replay does nothing. --dry-run only
    counts the rows, by hour and op.

    Example: fjord pipeline replay events events-again --since 2026-11-01T00:00:00Z --dry-run

    Example: fjord pipeline replay pages pages --redrive rows.txt --id redrive-7

    Example: fjord pipeline replay events load-test --pace original --keys fresh
    """
    options: ReplayOptions = {
        "to": into,
        "start": start,
        "end": end,
        "ops": op or (),
        "key_prefix": key_prefix,
        "redrive": redrive,
        "pace": pace,
        "keys": keys,
        "dates": dates,
        "replay_id": replay_id,
        "batch_rows": batch_rows,
        "dry_run": dry_run,
    }
    if (moment := arguments.moment(since)) is not None:
        options["since"] = moment
    if (moment := arguments.moment(until)) is not None:
        options["until"] = moment
    _replay(job, table, target, options)


def _replay(job: SparkJob, table: str, target: str, options: ReplayOptions) -> None:
    with needs(running.SPARK):
        from fjord.spark.pipelines import replay as spark_replay

    options["replay_id"] = options["replay_id"] or spark_replay.new_id()
    spark_replay.check(options)
    with job.started() as (spark, place, progress):
        if not options["dry_run"]:
            tell(f"replay {options['replay_id']}: if it is interrupted, resume with this --id")
        with _stopped_by_interrupt() as options["stop"]:
            report = spark_replay.replay(spark, place, table, target, progress=progress, **options)
    if options["stop"].is_set() and not report.figures.get("complete", True):
        tell(GO_ON.format(options["replay_id"]))
        report = dataclasses.replace(report, ok=False)
    job.show(report)


@contextlib.contextmanager
def _stopped_by_interrupt() -> Iterator[threading.Event]:
    """Lets Ctrl-C end a replay after the current batch, and a second one at once.

    This replaces Spark's handler, which cancels running jobs, until the replay ends.
    """
    stop = threading.Event()

    def set_stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop.set()

    before = signal.signal(signal.SIGINT, set_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@verb(app)
def ingest(
    job: SparkJob,
    table: arguments.AnyKind,
    target: Annotated[str, argument("TARGET", "The folder or URL of the warehouse table.")],
    form: Annotated[str, option("parquet, with a manifest, or delta.", "--format")] = "parquet",
    checkpoint: Annotated[
        str, option("Spark's checkpoint directory.", shown="_checkpoint in TARGET")
    ] = "",
    max_rows: Annotated[int, option("Rows per batch, approximately.", min=1)] = 1_000_000,
    subscriber: Annotated[
        str, option("A subscriber of the stream whose mark shows the progress.")
    ] = "",
    columns: Annotated[str, option("Only these columns, separated by commas.", shown="all")] = "",
    op: Ops = None,
    follow: Annotated[
        bool, option("Continue until Ctrl-C, instead of stopping at the end.", "--follow")
    ] = False,
    every: Annotated[str, option("How often --follow looks for more.")] = "1 minute",
) -> None:
    """Adds the history of a table to a warehouse, each row exactly once.

    The warehouse is a folder of Parquet files with a manifest, or a Delta table. Run it again to
    add new rows; it may be stopped or killed at any moment. It reports how many rows, batches and
    files were added, which seqs, how fast, and the lag.

    Example: fjord pipeline ingest events /warehouse/events

    Example: fjord pipeline ingest pages s3a://bucket/pages --format delta --data data

    Example: fjord pipeline ingest events /warehouse/events --follow --subscriber warehouse
    """
    if form not in ("parquet", "delta"):
        raise UsageError(f"--format must be parquet or delta, not {form}")
    if not _EVERY.fullmatch(every):
        raise UsageError(
            f"--every {every} is not an interval; give one like 30 seconds or 5 minutes"
        )
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.ingest import ingest as run

        report = run(
            spark,
            place,
            table,
            target,
            format=form,
            checkpoint=checkpoint or None,
            max_rows=max_rows,
            subscriber=subscriber or None,
            available_now=not follow,
            every=every,
            columns=[name.strip() for name in columns.split(",") if name.strip()],
            ops=op or (),
            progress=progress,
        )
    job.show(report)


@verb(app)
def latest(
    table: arguments.AnyKind,
    target: Annotated[str, argument("TARGET", "The folder or URL for the values.")],
    to: Annotated[str, option("Address of the daemon.", shown=DAEMON)] = "",
    data: Data = "",
    from_warehouse: Annotated[
        str, option("Read this target of ingest, instead of the table itself.")
    ] = "",
    rebuild: Annotated[
        bool, option("Read the whole history, not only new rows.", "--rebuild")
    ] = False,
    grace_hours: Annotated[float, option("How long older snapshots are kept.", min=0)] = 24,
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Brings the current value of every key of a table up to date, as Parquet.

    It works on a key/value table, or on a stream whose messages have keys, and reads only rows
    since the last run. Readers see the values of the last run until all new ones are written.

    Example: fjord pipeline latest settings /warehouse/settings-latest

    Example: fjord pipeline latest events /warehouse/latest --from-warehouse /warehouse/events
    """
    if from_warehouse and (to or data):
        raise UsageError("--from-warehouse excludes --to and --data; give one of them")
    job = SparkJob(to=to or DAEMON, data=data, master=master, conf=conf, as_json=as_json)
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.latest import latest as run

        report = run(
            spark,
            None if from_warehouse else place,
            table,
            target,
            from_warehouse=from_warehouse,
            rebuild=rebuild,
            grace=timedelta(hours=grace_hours),
            progress=progress,
        )
    job.show(report)


@verb(app)
def compact(
    job: SparkJob,
    table: Annotated[str, argument("TABLE", "The table whose blocks to merge.")],
    target_mib: Annotated[int, option("Approximate maximum size of a new block.", min=1)] = 128,
    min_blocks: Annotated[int, option("Leave shorter runs of blocks alone.", min=2)] = 2,
    dry_run: DryRun = False,
) -> None:
    """Merges small neighbouring blocks of a table's history.

    Readers see the same rows in the same order. The old files are deleted an hour later, so that
    readers can finish with them. With --data the directory must not be in use.

    Example: fjord pipeline compact events --dry-run

    Example: fjord pipeline compact events --target-mib 256 --master local[4]
    """
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.compact import compact as run

        report = run(
            spark,
            place,
            table,
            target_bytes=target_mib * MIB,
            min_blocks=min_blocks,
            dry_run=dry_run,
            progress=progress,
        )
    job.show(report)


@verb(app)
def lifecycle(
    job: SparkJob,
    tables: Annotated[list[str] | None, argument("[TABLE]...", "Jobs tables.", shown="all")] = None,
    out: Annotated[str, option("The folder for the tables and report.html.", shown="none")] = "",
    since: Annotated[
        str, option("Leave out jobs that ended before this date, such as 2026-01-31T12:00:00Z.")
    ] = "",
    until: Annotated[str, option("Only events before this date.", shown="now")] = "",
    breach: Annotated[
        list[str] | None,
        option(
            "How many seconds a wait or a job may take: N, or TABLE=N; may be repeated.",
            shown=False,
        ),
    ] = None,
    strict: Annotated[bool, option("Exit with 1 if anything took too long.", "--strict")] = False,
) -> None:
    """Reports on jobs: waits, runs and totals, and jobs that were slow, late, expired or failed.

    Writes Parquet tables (percentiles, breaches, failures, hourly, tables) and an HTML page with
    plots to --out, replacing an earlier report.

    Example: fjord pipeline lifecycle --out report

    Example: fjord pipeline lifecycle pages mails --breach 60 --breach mails=5 --out report --strict

    Example: fjord pipeline lifecycle pages --since 2026-01-31T00:00:00Z --json
    """
    limits = limits_of(breach or [], tables or [])
    if strict and limits is None:
        raise UsageError("--strict needs --breach, which says how long is too long")
    start, end = arguments.moment(since), arguments.moment(until)
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.lifecycle import lifecycle as run

        report = run(
            spark,
            place,
            tables or (),
            out or None,
            start=start,
            end=end,
            breach_seconds=limits,
            progress=progress,
        )
    if strict and report.figures["breaches"]:
        report = dataclasses.replace(report, ok=False)
    job.show(report)


def limits_of(texts: list[str], tables: list[str]) -> Limits | None:
    """Parses the limits: one for all, or by table."""
    found: dict[str, float] = {}
    for text in texts:
        table, _, number = text.rpartition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"--breach {text} is not a limit; give one like 60 or pages=60")
        found[table] = seconds
    for_all = found.pop("", None)
    if for_all is None or not found:
        return found or for_all
    if not tables:
        raise UsageError(
            "with both --breach N and --breach TABLE=N, name the tables for N as arguments"
        )
    return {**dict.fromkeys(tables, for_all), **found}


@verb(app)
def dead_letters(
    job: SparkJob,
    table: TableName,
    out: Annotated[str, option("The folder for the tables groups and redrive.", shown="none")] = "",
    redrive: Annotated[
        str, option("Write the dead jobs to this file, for `xargs fjord jobs redrive`.")
    ] = "",
    reason: Annotated[str, option("Only those with this in their reason.")] = "",
    domain: Annotated[str, option("Only those of this domain.")] = "",
    until: Annotated[str, option("Jobs that were dead at this date.", shown="now")] = "",
) -> None:
    """Groups dead jobs by reason and domain, with ages, dates and samples of keys and payloads.

    The groups and the file contain only jobs that are dead now; jobs revived or discarded since
    are only counted.

    Example: fjord pipeline dead-letters pages

    Example: fjord pipeline dead-letters pages --reason "exit code 7" --redrive rows.txt
    && xargs -a rows.txt fjord jobs redrive pages
    """
    end = arguments.moment(until)
    with job.started() as (spark, place, progress):
        from fjord.spark.pipelines.dead_letters import dead_letters as run

        report = run(
            spark,
            place,
            table,
            out or None,
            end=end,
            reason=reason,
            domain=domain,
            redrive=redrive,
            progress=progress,
        )
    job.show(report)


verb(app)(kestrel_import.kestrel_import)
