"""`compact`: many small cold blocks of a table become few large ones, row by row the same.

    blocks of the node -> groups of neighbours -> a task of Spark for each: one new block, set aside
    each new block gets its name -> the node replaces the old ones with it -> the chain

A task reads the old blocks part by part, verifies their checksums, and compares the rows and the
checksum of all values that it has written with the old metadata.  The node compares once more, and
changes everything at once or nothing.  It keeps the old files for an hour, for readers that have
opened them.

A group with a damaged block stays unchanged; the run ends with an error after all others are done.
However a run ends, every row is either in the blocks that were in use before, or in the new one.
Unused files are removed at the end of the run, or at the beginning of the next one.

Object stores have no locks, and a request whose answer was lost may have been done.  So no file is
removed on an assumption: the names of a run's blocks are unique, blocks are listed under the lock,
and a new one is removed only if the node has refused it for good and does not list it.  Any other
unused block is announced (see `blocks.writer`), and a run a day later removes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

import fjord
from fjord import limits
from fjord.blocks import writer
from fjord.blocks.store import Catalog, Store, decode_metadata
from fjord.blocks.writer import Rewritten
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import Code, DirectoryInUseError, FjordError, RefusedError
from fjord.history import bounded
from fjord.spark.options import Location
from fjord.spark.pipelines.report import Figure, Progress, Report, date, silent

TARGET_BYTES: Final = 128 * limits.MIB
# Groups per Spark job, after which the node gets the new blocks.
_TASKS_MAX: Final = 64
# A child that seals has the folder while it writes; that takes seconds.
_LOCK_SECONDS_MAX: Final = 300.0
_LOOK_SECONDS: Final = 0.2
# What a run that died has published goes after this; the node is told of a block within seconds.
GRACE: Final = timedelta(days=1)
# What a task says of a group.
_COLUMNS: Final = ["name", "path", "metadata", "problem"]


Blocks = Sequence[fjord.BlockInfo]
Groups = Sequence[Blocks]
Told = tuple[str, str, str, str]  # the columns above


def compact(  # noqa: PLR0913 - options of a user
    spark: SparkSession,
    location: Location,
    table: str,
    *,
    target_bytes: int = TARGET_BYTES,
    min_blocks: int = 2,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Report:
    """Merges neighbouring small blocks of a table.

    Args:
        spark: the session; its tasks must see the blocks at the node's location.
        location: where the table is.
        table: its name.
        target_bytes: the approximate maximum size of a new block; larger ones are left alone.
        min_blocks: fewer than these are not merged.
        dry_run: only reports what would be done.
        progress: receives the progress.

    Raises:
        FjordError: if there is no such table, or a block is damaged or out of reach.
    """
    if target_bytes < 1 or min_blocks < 2:
        raise FjordError(
            "compact needs a target of at least 1 byte, and at least 2 blocks at a time"
        )
    planned = partial(plan, target_bytes=target_bytes, min_blocks=min_blocks)
    with _opened(location, read_only=dry_run) as db:
        blocks = db.blocks(table)
        if dry_run or not blocks:
            return _report(table, blocks, planned(blocks), None if dry_run else ())
        return _report(table, *_Run(spark, db, blocks[0]).rewrite(planned, progress))


def plan(blocks: Blocks, *, target_bytes: int, min_blocks: int) -> list[list[fjord.BlockInfo]]:
    """Returns which blocks become one: neighbours, as many as the target has room for."""
    most = (target_bytes, limits.BLOCKS_REPLACED_MAX)
    groups = bounded(blocks, lambda block: (block.bytes, 1), most)
    return [group for group in groups if len(group) >= min_blocks]


class _Run:
    """The blocks of one table, while they are rewritten."""

    def __init__(self, spark: SparkSession, db: fjord.Database, any_of: fjord.BlockInfo) -> None:
        self._spark = spark
        self._db = db
        self._folder = any_of.name.partition("/")[0]
        self._table = self._folder.rpartition("-")[0]
        self._where = any_of.location
        self._store = Store(self._where)
        self._clock = SystemClock()
        self._tag = int.from_bytes(LocalDisk().new_uuid()[:8], "big")  # no other run has it
        self._problems: list[str] = []  # of groups that stay as they are

    def rewrite(
        self, planned: Callable[[Blocks], Groups], progress: Progress
    ) -> tuple[Blocks, Groups, Blocks]:
        """Merges each group into one block; returns old blocks, groups and new blocks."""
        with self._store.rewriting_lock():
            self._clean()
            blocks = self._db.blocks(self._table)  # as the last holder of the lock has left them
            groups = planned(blocks)
            try:
                made = self._rewrite(groups, progress)
            finally:
                self._store.drop_rewrites(self._folder, self._before_us())
        return blocks, groups, made

    def _rewrite(self, groups: Groups, progress: Progress) -> list[fjord.BlockInfo]:
        made: list[fjord.BlockInfo] = []
        if groups:
            progress("rewriting blocks", 0, len(groups))
        for start in range(0, len(groups), _TASKS_MAX):
            some = groups[start : start + _TASKS_MAX]
            made += self._replace(some, self._written(some))
            progress("rewriting blocks", len(made), len(groups))
        if self._problems:
            raise FjordError(
                f"{len(made)} of {len(groups)} groups of blocks were merged, all others are "
                f"unchanged: {self._problems[0]}"
            )
        return made

    def _written(self, groups: Groups) -> dict[tuple[int, int], Rewritten]:
        """Writes the new blocks by tasks of Spark; returns them by the seqs that they cover."""
        asked = [[block.name for block in group] for group in groups]
        written = {}
        for name, path, text, problem in run_tasks(self._spark, self._where, self._tag, asked):
            if problem:
                self._problems.append(problem)
            else:
                metadata = decode_metadata(text.encode(), name)
                written[metadata.first, metadata.last] = Rewritten(name, path, metadata)
        return written

    def _replace(
        self, groups: Groups, written: Mapping[tuple[int, int], Rewritten]
    ) -> list[fjord.BlockInfo]:
        """Registers new blocks at the node, and updates the chain."""
        made: list[fjord.BlockInfo] = []
        with self._sealing_lock():
            for group in groups:
                new = written.get((group[0].first, group[-1].last))
                if new is None:
                    continue
                self._publish(new)
                made.append(_info(self._where, new))
                try:
                    self._db.replace_blocks(self._table, [one.name for one in group], made[-1])
                except RefusedError as error:
                    # Any other refusal may be that of a second try, and the first one may have
                    # been done, or may still be: then the block stays, announced.
                    if error.code is Code.BAD_RANGE and new.name not in self._listed():
                        writer.withdraw(self._store, new.name)
                    raise
                self._store.conclude(new.name)
            writer.relink(Catalog(self._store), self._listed())
        return made

    def _publish(self, new: Rewritten) -> None:
        try:
            writer.publish(self._store, new, self._clock.wall_us())
        except FileExistsError:
            raise FjordError(
                f"{self._store.path(new.name)} already exists, and stays; run this again"
            ) from None
        except FileNotFoundError:
            raise FjordError(
                f"a task has written {new.path}, but it is not in {self._where} here; every "
                "machine that runs tasks of Spark must see the blocks where the node has them"
            ) from None

    def _listed(self) -> list[str]:
        return [block.name for block in self._db.blocks(self._table)]

    def _clean(self) -> None:
        """Removes files that earlier runs have left."""
        before_us = self._before_us()
        self._store.drop_rewrites(self._folder, before_us)
        writer.sweep(self._store, self._folder, self._listed, before_us)

    def _before_us(self) -> int:
        return self._clock.wall_us() - GRACE // timedelta(microseconds=1)

    def _sealing_lock(self) -> contextlib.ExitStack:
        """Keeps the node from writing blocks for a moment; waits for a current write."""
        held, clock = contextlib.ExitStack(), self._clock
        deadline_us = clock.monotonic_us() + round(_LOCK_SECONDS_MAX * 1_000_000)
        while True:
            try:
                held.enter_context(self._store.lock())
            except DirectoryInUseError:
                if clock.monotonic_us() > deadline_us:
                    raise
            else:
                return held
            clock.pause(_LOOK_SECONDS)


def run_tasks(
    spark: SparkSession, where: str, tag: int, asked: Sequence[Sequence[str]]
) -> list[Told]:
    """Rewrites groups of blocks, given by their names, each by a task of Spark."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = Store(where)
        for batch in batches:
            for names in map(json.loads, batch["names"].to_pylist()):
                found = [pa.array([text], pa.string()) for text in rewritten(store, names, tag)]
                yield pa.record_batch(found, _COLUMNS)

    rows = [(json.dumps(list(names)),) for names in asked]
    frame = spark.createDataFrame(rows, "names string").repartition(len(rows))
    kinds = ", ".join(f"{name} string" for name in _COLUMNS)
    return [(row[0], row[1], row[2], row[3]) for row in frame.mapInArrow(write, kinds).collect()]


def rewritten(store: Store, names: Sequence[str], tag: int) -> Told:
    """Writes a block; returns its name, path and metadata, or the problem."""
    try:
        new = writer.rewrite(store, names, tag=tag)
    except (FjordError, FileNotFoundError) as error:
        return "", "", "", f"{error}; see `fjord blocks verify`, and run this again"
    return new.name, new.path, new.metadata.encode().decode(), ""


def _opened(location: Location, *, read_only: bool) -> fjord.Database:
    """Opens what is to be changed; a directory must not be in use, a daemon may be."""
    if location.server or read_only:
        return location.open()
    return fjord.open(location.path)


def _info(where: str, new: Rewritten) -> fjord.BlockInfo:
    found = new.metadata
    return fjord.BlockInfo(
        name=new.name,
        location=where,
        first=found.first,
        last=found.last,
        rows=found.rows,
        bytes=found.bytes,
        min_at=date(found.min_ts),
        max_at=date(found.max_ts),
        crc=found.crc32c,
    )


def _report(table: str, blocks: Blocks, groups: Groups, made: Blocks | None) -> Report:
    """Returns the report; `made` is None for a dry run."""
    replaced = [block for group in groups for block in group]
    figures: dict[str, Figure] = {
        "table": table,
        "dry_run": made is None,
        "blocks_before": len(blocks),
        "blocks_after": len(blocks) - len(replaced) + len(groups),
        "replaced_blocks": len(replaced),
        "new_blocks": len(groups),
        "rows": sum(block.rows for block in replaced),
        "bytes_before": sum(block.bytes for block in replaced),
    }
    if made is not None:
        figures["bytes_after"] = sum(block.bytes for block in made)
    return Report(job="compact", figures=figures)
