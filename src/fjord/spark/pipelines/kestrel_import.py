"""`kestrel-import`: what is in the queues of a Kestrel is written to tables, exactly once.

    directory --counted, on the driver--> plan --one write a queue--> sink `fjord` --> table

Everything is looked at first: names, tables, damage, items that are too large.  If something is
wrong, nothing is written.

A queue is written as one batch of a writer whose name is made of the directory and the queue, and
the number of the batch has the checksum of its files:

    number = how often they had changed << 32 | CRC-32 of the files

So a queue that is there already is passed over, whoever was killed when; and one whose files have
changed since is refused, since most of it is there already.  The tasks that read a queue compare
the checksum once more, so what is written is what was counted.

What is written is also noted under a name that is made of the files alone, which `fjord kestrel
import` looks at and notes as well, see `import_marks`.  So neither of them, nor who has the same
files somewhere else, imports what is there without being told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NotRequired, TypedDict, Unpack

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import fjord
from fjord import jobs, limits, streams
from fjord.client.socket import Connection
from fjord.clock import Clock, SystemClock
from fjord.errors import FjordError, NotFoundError
from fjord.kestrel import importing
from fjord.kestrel.importing import UNKNOWN
from fjord.kinds import Kind
from fjord.spark.kestrel import source, tasks
from fjord.spark.kestrel.tasks import Counted
from fjord.spark.pipelines import report
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

KINDS: Final = tuple(importing.Kind)
# An item that expires sooner may do so on its way, and would be refused.
ALIVE_SECONDS: Final = 60
# Each has a task of Spark, and a connection.
_WRITES_MAX: Final = 8
# A day less than a job may have, for clocks that differ.
_EXPIRY_SECONDS_MAX: Final = limits.PROCESS_AHEAD_US_MAX // 1_000_000 - 24 * 3600
_CRC_BITS: Final = 32
_SHOWN_MAX: Final = 5


class Options(TypedDict):
    """How to import."""

    queues: NotRequired[Sequence[str]]  # these only
    tables: NotRequired[Sequence[str]]  # QUEUE=TABLE, if it is not named as its queue
    kind: NotRequired[str]  # what items become: jobs, or messages of a stream
    damaged: NotRequired[bool]  # import what can be read of damaged files
    skip_too_large: NotRequired[bool]  # leave out items that are larger than a value may be
    anew: NotRequired[bool]  # also queues that were imported before, in another state or way
    moved: NotRequired[bool]  # pass over queues whose files were imported from elsewhere
    dry_run: NotRequired[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One queue on its way to its table."""

    counted: Counted
    table: str
    writer: str
    batch: int
    is_there: bool  # it was written before


def kestrel_import(
    spark: SparkSession,
    directory: str,
    server: str,
    *,
    progress: Progress = silent,
    clock: Clock | None = None,
    **options: Unpack[Options],
) -> Report:
    """Writes what is in queues of a Kestrel to tables of a daemon, a table for each.

    Args:
        spark: the session.
        directory: where the files of the queues are; nothing there is changed.
        server: the daemon.
        progress: is told how far it is.
        clock: says what has expired.
        options: see `Options`.

    Raises:
        FjordError: if something is wrong; nothing is written then, unless Spark or the daemon
            fails meanwhile. Queues that are written by then are passed over the next time.
    """
    directory = os.path.abspath(directory)
    run = _Run(spark, directory, server, options, progress, clock or SystemClock())
    with report.explained():
        return run.report()


# -- planning -------------------------------------------------------------------------------------


def check_sizes(counted: Sequence[Counted]) -> None:
    """Makes sure that every item fits into a value.

    Raises:
        FjordError: if one does not.
    """
    large = [one for one in counted if one.too_large]
    if large:
        told = _listed([f"{one.too_large} of {one.queue}" for one in large])
        largest = max(one.largest_bytes for one in large)
        raise FjordError(
            f"a value has at most {limits.VALUE_BYTES_MAX} bytes, and these items have more: "
            f"{told}; the largest has {largest}. Nothing was written. Leave them out with "
            "--skip-too-large"
        )


def batch_of(last: int | None, crc: int) -> tuple[int, bool]:
    """Returns the number of the batch that a queue is, and whether it is the last one already."""
    if last is None:
        return crc, False
    changes, before = last >> _CRC_BITS, last & (1 << _CRC_BITS) - 1
    return (last, True) if before == crc else ((changes + 1) << _CRC_BITS | crc, False)


def check_elsewhere(counted: Counted, table: str, done: int, *, is_moved: bool) -> None:
    """Makes sure that files which were imported otherwise may be passed over.

    Args:
        counted: the queue.
        table: where its items are.
        done: how many of them.
        is_moved: whether all of them count as imported.

    Raises:
        FjordError: if they may not.
    """
    if done < counted.items:
        raise FjordError(
            f"{done} of the {counted.items} items of {counted.queue} were imported into {table} by "
            "fjord kestrel import; go on with that, or --anew imports all of them"
        )
    if not is_moved:
        raise FjordError(
            f"the files of {counted.queue} were imported into {table} before, from another "
            "directory or by fjord kestrel import; --moved passes over them, --anew imports all "
            "that is in them"
        )


def check_table(found: fjord.TableInfo, kind: str) -> None:
    """Makes sure that a table that is there takes items of a queue.

    Raises:
        FjordError: if it does not.
    """
    if found.kind != kind:
        raise FjordError(
            f"the table {found.name} is {found.kind}, not {kind}; name one queue and another table"
        )
    if kind == Kind.JOBS and jobs.decode_settings(found.settings).merge:
        raise FjordError(
            f"the table {found.name} merges jobs by their keys, and items have none; name one "
            "queue and another table, or drop this one first"
        )
    if kind == Kind.STREAM and streams.decode_settings(found.settings).mode is not streams.Mode.LOG:
        raise FjordError(
            f"the stream {found.name} keeps the latest message of each key, and items have none; "
            "name one queue and another table"
        )


def files_writer(counted: Counted, table: str, table_id: int) -> str:
    """Returns the name under which the files of a queue are known, wherever they are."""
    return importing.files_writer_of(
        counted.queue, table, table_id, crc=counted.crc, size=counted.size
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_MAX} others" if len(names) > _SHOWN_MAX else ""
    return ", ".join(names[:_SHOWN_MAX]) + more


# -- the import -----------------------------------------------------------------------------------


class _Run:
    """One import."""

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        server: str,
        options: Options,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._server = server
        self._options = options
        self._kind = options.get("kind", Kind.JOBS)
        self._progress = progress
        self._now_ms = clock.wall_us() // 1000
        if options.get("anew", False) and options.get("moved", False):
            raise FjordError("--anew imports all, and --moved passes over some: give one of them")
        if self._kind not in KINDS:
            raise FjordError(f"items become {' or '.join(KINDS)}, not {self._kind!r}")

    def report(self) -> Report:
        steps = self._steps()
        is_dry = self._options.get("dry_run", False)
        written = {} if is_dry else self._write_all(steps)
        return _report(self._directory, steps, written, is_dry=is_dry)

    def _steps(self) -> list[Step]:
        """Looks at everything; returns the queues, the largest first."""
        options = self._options
        named = dict.fromkeys(options.get("queues", ()))
        found = [one for queue in named or ("",) for one in source.surveys(self._directory, queue)]
        names = [one.queue for one in found]
        tables = importing.tables_of(names, options.get("tables", ()))
        counted = list(self._count(names, sum(one.size for one in found)))
        if not options.get("skip_too_large", False):
            check_sizes(counted)
        with fjord.connect(self._server) as database:
            return [self._step(database, one, tables[one.queue]) for one in counted]

    def _count(self, queues: Sequence[str], total: int) -> Iterator[Counted]:
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            self._progress("looking at queues", done, total)

        for queue in queues:
            yield tasks.count(
                self._directory,
                queue,
                now_ms=self._now_ms,
                skips_damage=self._options.get("damaged", False),
                on_bytes=advance,
            )

    def _step(self, database: fjord.Database, counted: Counted, table: str) -> Step:
        writer = importing.writer_of(self._directory, counted.queue, table)
        last, is_elsewhere = None, False
        try:
            found = database.table(table)
        except NotFoundError:
            pass  # it is made before it is written to
        else:
            check_table(found, self._kind)
            last = database.staging(table).last_batch(writer)
            if last is None and not self._options.get("anew", False):
                is_elsewhere = self._is_elsewhere(counted, found)
        batch, is_there = batch_of(last, counted.crc)
        if last is not None and not is_there and not self._options.get("anew", False):
            raise FjordError(
                f"the queue {counted.queue} of {self._directory} was imported into {table} "
                "before, and its files have changed since: what is still in it would be there "
                "twice. --anew imports all that is in it now"
            )
        is_there = is_there or is_elsewhere
        return Step(counted=counted, table=table, writer=writer, batch=batch, is_there=is_there)

    def _is_elsewhere(self, counted: Counted, table: fjord.TableInfo) -> bool:
        """Says whether all of a queue was imported in another way, which is to count.

        Raises:
            FjordError: if some of it was, or that is not to count.
        """
        names = (self._directory, counted.queue, table.name, table.id)
        with contextlib.closing(self._connection()) as daemon:
            done = importing.ask(daemon, files_writer(counted, table.name, table.id))
            if done != UNKNOWN:
                is_moved = self._options.get("moved", False)
                check_elsewhere(counted, table.name, done, is_moved=is_moved)
                return True
            for writer in importing.writer_of(*names), importing.writer_of(*names, counted.crc):
                if importing.ask(daemon, writer) != UNKNOWN:
                    raise FjordError(
                        f"{counted.queue} was imported into {table.name} by fjord kestrel import "
                        "before, and what is still in it would be there twice; go on with that, or "
                        "--anew imports all that is in it now"
                    )
        return False

    def _connection(self) -> Connection:
        return Connection(self._server, timeout=limits.REPLY_SECONDS_MAX)

    def _note(self, step: Step) -> None:
        """Notes under the name of its files that a queue is there."""
        with contextlib.closing(self._connection()) as daemon:
            table_id = importing.table_id(daemon, step.table)
            if table_id is not None:
                writer = files_writer(step.counted, step.table, table_id)
                importing.note(daemon, writer, step.counted.items)

    def _write_all(self, steps: Sequence[Step]) -> dict[str, int]:
        """Writes queues, some at a time; returns how many items of each."""
        self._prepare(steps)
        written = {one.counted.queue: 0 for one in steps if not one.is_there}
        full = [one for one in steps if not one.is_there and not one.counted.is_empty]
        total, done = sum(one.counted.items for one in full), 0
        self._progress("writing items", done, total)
        threads = ThreadPoolExecutor(max_workers=_WRITES_MAX, initializer=self._enter)
        try:
            writes = {threads.submit(self._write, one): one for one in full}
            for write in as_completed(writes):
                step = writes[write]
                written[step.counted.queue] = write.result()
                self._note(step)
                done += step.counted.items
                self._progress("writing items", done, total)
        finally:
            threads.shutdown(cancel_futures=True)
        return written

    def _enter(self) -> None:
        """Makes the session that of a new thread: without one, Spark does not find the sink."""
        self._spark.createDataFrame([], "n int")

    def _prepare(self, steps: Sequence[Step]) -> None:
        """Makes tables, and brings batches to their end that somebody else has begun."""
        with fjord.connect(self._server) as database:
            there = {one.name for one in database.tables()}
            for step in steps:
                if step.is_there:
                    database.staging(step.table).commit(step.writer, step.batch, [])
                    self._note(step)
                elif step.table in there or step.counted.is_empty:
                    continue
                elif self._kind == Kind.JOBS:
                    database.create_jobs(step.table, merge=False)
                else:
                    database.create_stream(step.table)

    def _write(self, step: Step) -> int:
        """Writes a queue; returns how many items were."""
        seen = Observation()
        frame = self._rows(step).observe(seen, F.count(F.lit(1)).alias("rows"))
        frame.write.format("fjord").mode("append").options(
            server=self._server,
            table=step.table,
            kind=self._kind,
            txnId=step.writer,
            txnVersion=step.batch,
        ).save()
        return int(seen.get["rows"])

    def _rows(self, step: Step) -> DataFrame:
        """Returns the items of a queue as its table takes them, in their order."""
        options = self._options
        frame = (
            self._spark.read.format("kestrel")
            .options(
                path=self._directory,
                queue=step.counted.queue,
                columns="dated,expires,data",
                damaged="skip" if options.get("damaged", False) else "fail",
                aliveFor=ALIVE_SECONDS,
                crc=step.counted.crc,
            )
            .load()
        )
        if step.counted.too_large:
            frame = frame.where(F.length("data") <= limits.VALUE_BYTES_MAX)
        value = F.col("data").alias("value")
        if self._kind == Kind.STREAM:
            return frame.select(value)
        # Later than a job can expire: it does not, rather than too early.
        last = datetime.fromtimestamp(self._now_ms / 1000 + _EXPIRY_SECONDS_MAX, tz=UTC)
        expires = F.when(F.col("expires") <= F.lit(last), F.col("expires"))
        # Due since it was added, as with `fjord kestrel import`.
        dates = (F.col("dated").alias(name) for name in ("inserted_at", "process_at"))
        return frame.select(value, expires.alias("expires_at"), *dates)


def _report(
    directory: str, steps: Sequence[Step], written: dict[str, int], *, is_dry: bool
) -> Report:
    lines: list[dict[str, Figure]] = [
        {
            "queue": one.counted.queue,
            "table": one.table,
            "items": one.counted.items,
            "written": written.get(one.counted.queue, 0),
            "expired": _expired(one.counted, written),
            "too_large": one.counted.too_large,
            "bytes": one.counted.bytes,
            "damaged_bytes": one.counted.skipped_bytes,
            "there_before": one.is_there,
        }
        for one in steps
    ]
    names = ("items", "written", "expired", "too_large", "bytes", "damaged_bytes")
    figures: dict[str, Figure] = {
        **({"dry_run": True} if is_dry else {}),
        "directory": directory,
        "queues": len(steps),
        "queues_there_before": sum(one.is_there for one in steps),
    }
    for name in names:
        figures[name] = sum(int(line[name] or 0) for line in lines)
    return Report(job="kestrel-import", figures=figures, rows=lines)


def _expired(counted: Counted, written: dict[str, int]) -> int:
    """Returns how many items were left out since they had expired, or would on their way."""
    if counted.queue not in written:
        return counted.expired
    return counted.items - written[counted.queue] - counted.too_large
