"""`compact`: many small cold blocks of a table become few large ones, row by row the same.

    blocks of the node -> groups of neighbours -> a task of Spark for each: one new block, set aside
    each new block gets its name -> the node puts it in the place of the old ones -> the chain

A task reads the old blocks part by part, checks their checksums, and compares rows and the checksum
of all values of what it has written with what their metadata says.  The node compares once more,
and changes all at once or nothing.  It keeps the old files for an hour, for those who have begun to
read them.

A group with a damaged block stays as it is; the run ends with an error once all others are done.
Whatever ends a run leaves every row in just the blocks that were in use before, or in the new one.
What it has set aside in vain is removed at its end, or at the beginning of the next run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict, Unpack

import pyarrow as pa
from pyspark.sql import SparkSession

import fjord
from fjord import limits
from fjord.blocks import rewriting
from fjord.blocks.catalog import Catalog, decode_metadata
from fjord.blocks.rewriting import Rewritten
from fjord.blocks.store import Store
from fjord.clock import SystemClock
from fjord.errors import DirectoryInUseError, FjordError, RefusedError
from fjord.spark.options import Location
from fjord.spark.pipelines.report import Figure, Progress, Report, silent

TARGET_BYTES: Final = 128 * limits.MIB
# One run of Spark does so many groups; then the node is told of them.
_TASKS_MAX: Final = 64
# A child that seals has the folder while it writes; that takes seconds.
_LOCK_SECONDS_MAX: Final = 300.0
_LOOK_SECONDS: Final = 0.2
# What a task says of a group.
_COLUMNS: Final = ["name", "path", "metadata", "problem"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


Groups = Sequence[Sequence[fjord.BlockInfo]]


class Options(TypedDict, total=False):
    """What is worth it."""

    target_bytes: int  # a new block has about so many at most; larger ones are left alone
    min_blocks: int  # fewer than these are not put together; 2
    dry_run: bool  # only say what would be done


def compact(
    spark: SparkSession,
    location: Location,
    table: str,
    *,
    progress: Progress = silent,
    **options: Unpack[Options],
) -> Report:
    """Puts neighbouring small blocks of a table together.

    Args:
        spark: the session; its tasks have to see the blocks where the node has them.
        location: where the table is.
        table: its name.
        progress: is told how far it is.
        options: see `Options`.

    Raises:
        FjordError: if there is no such table, or a block is damaged or out of reach.
    """
    target_bytes = options.get("target_bytes", TARGET_BYTES)
    min_blocks, dry_run = options.get("min_blocks", 2), options.get("dry_run", False)
    if target_bytes < 1 or min_blocks < 2:
        raise FjordError(
            "compact takes a target of at least 1 byte, and 2 blocks or more at a time"
        )
    with _opened(location, read_only=dry_run) as db:
        blocks = db.blocks(table)
        groups = plan(blocks, target_bytes=target_bytes, min_blocks=min_blocks)
        made: Sequence[fjord.BlockInfo] = ()
        if groups and not dry_run:
            made = _Run(spark, db, blocks[0]).rewrite(groups, progress)
    return _report(table, blocks, groups, None if dry_run else made)


def plan(
    blocks: Sequence[fjord.BlockInfo], *, target_bytes: int, min_blocks: int
) -> list[list[fjord.BlockInfo]]:
    """Returns which blocks become one: neighbours, as many as the target has room for."""
    groups: list[list[fjord.BlockInfo]] = []
    group: list[fjord.BlockInfo] = []
    size = 0
    for block in blocks:
        is_full = size + block.bytes > target_bytes or len(group) == limits.BLOCKS_REPLACED_MAX
        if group and is_full:
            groups.append(group)
            group, size = [], 0
        group.append(block)
        size += block.bytes
    groups.append(group)
    return [group for group in groups if len(group) >= min_blocks]


def tag_of(names: Sequence[str]) -> int:
    """Returns the tag of the block that is made of others: the same again for the same ones."""
    return int.from_bytes(hashlib.sha256("\n".join(names).encode()).digest()[:8], "big")


class _Run:
    """The blocks of one table, while they are rewritten."""

    def __init__(self, spark: SparkSession, db: fjord.Database, any_of: fjord.BlockInfo) -> None:
        self._spark = spark
        self._db = db
        self._folder = any_of.name.partition("/")[0]
        self._table = self._folder.rpartition("-")[0]
        self._where = any_of.location
        self._store = Store(self._where)
        self._problems: list[str] = []  # of groups that stay as they are

    def rewrite(self, groups: Groups, progress: Progress) -> list[fjord.BlockInfo]:
        """Makes one block of each group; returns them."""
        made: list[fjord.BlockInfo] = []
        progress("rewriting blocks", 0, len(groups))
        with self._store.rewriting_lock():
            self._clean()
            try:
                for start in range(0, len(groups), _TASKS_MAX):
                    some = groups[start : start + _TASKS_MAX]
                    made += self._replace(some, self._written(some))
                    progress("rewriting blocks", len(made), len(groups))
            finally:
                self._clean()
        if self._problems:
            raise FjordError(
                f"{len(made)} of {len(groups)} groups of blocks were put together, all others are "
                f"as they were: {self._problems[0]}"
            )
        return made

    def _written(self, groups: Groups) -> dict[tuple[int, int], Rewritten]:
        """Writes the new blocks by tasks of Spark; returns them by the seqs that they cover."""
        where = self._where

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = Store(where)
            for batch in batches:
                for names in map(json.loads, batch["names"].to_pylist()):
                    found = [pa.array([text], pa.string()) for text in _rewritten(store, names)]
                    yield pa.record_batch(found, _COLUMNS)

        asked = [(json.dumps([block.name for block in group]),) for group in groups]
        frame = self._spark.createDataFrame(asked, "names string").repartition(len(asked))
        kinds = ", ".join(f"{name} string" for name in _COLUMNS)
        written = {}
        for name, path, text, problem in frame.mapInArrow(write, kinds).collect():
            if problem:
                self._problems.append(problem)
            else:
                metadata = decode_metadata(text.encode(), name)
                written[metadata.first, metadata.last] = Rewritten(name, path, metadata)
        return written

    def _replace(
        self, groups: Groups, written: Mapping[tuple[int, int], Rewritten]
    ) -> list[fjord.BlockInfo]:
        """Tells the node of new blocks, and mends the chain."""
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
                except RefusedError:
                    self._store.remove(new.name)  # it is not in use, and never will be
                    raise
            names = [block.name for block in self._db.blocks(self._table)]
            rewriting.relink(Catalog(self._store), names)
        return made

    def _publish(self, new: Rewritten) -> None:
        try:
            rewriting.publish(self._store, new)
        except FileNotFoundError:
            raise FjordError(
                f"a task has written {new.path}, but it is not in {self._where} here; every "
                "machine that runs tasks of Spark must see the blocks where the node has them"
            ) from None

    def _clean(self) -> None:
        """Removes what was written in vain, by this run or by one that died."""
        self._store.drop_rewrites(self._folder)

    @contextlib.contextmanager
    def _sealing_lock(self) -> Iterator[None]:
        """Keeps the node from writing blocks for a moment; waits for one that it writes now."""
        clock = SystemClock()
        deadline_us = clock.monotonic_us() + round(_LOCK_SECONDS_MAX * 1_000_000)
        while True:
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(self._store.lock())
                except DirectoryInUseError:
                    if clock.monotonic_us() > deadline_us:
                        raise
                else:
                    yield
                    return
            clock.pause(_LOOK_SECONDS)


def _rewritten(store: Store, names: Sequence[str]) -> tuple[str, str, str, str]:
    """Writes a block; returns its name, its path and its metadata, or what is wrong."""
    try:
        new = rewriting.rewrite(store, names, tag=tag_of(names))
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
        min_at=_EPOCH + timedelta(microseconds=found.min_ts),
        max_at=_EPOCH + timedelta(microseconds=found.max_ts),
        crc=found.crc32c,
    )


def _report(
    table: str,
    blocks: Sequence[fjord.BlockInfo],
    groups: Groups,
    made: Sequence[fjord.BlockInfo] | None,
) -> Report:
    """Returns what was done; `made` is None if that was nothing."""
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
