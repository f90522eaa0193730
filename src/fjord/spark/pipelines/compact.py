"""`compact`: many small cold blocks of a table become few large ones, row by row the same.

    blocks of the node -> groups of neighbours -> a task of Spark for each: one new block
    each new block: metadata -> the node puts it in the place of the old ones -> the chain is mended

A task reads the old blocks part by part, checks their checksums, and compares rows and the checksum
of all values of what it has written with what their metadata says.  The node compares once more,
and changes all at once or nothing.  It keeps the old files for an hour, for those who have begun to
read them.

Whatever ends a run leaves every row in just the blocks that were in use before, or in the new one.
What it has written in vain is removed at the end of the run, or at the beginning of the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

import fjord
from fjord import limits
from fjord.blocks import rewriting
from fjord.blocks.catalog import Catalog, Metadata, decode_metadata
from fjord.blocks.store import Store
from fjord.clock import SystemClock
from fjord.errors import CorruptionError, DirectoryInUseError, FjordError
from fjord.spark.options import Location
from fjord.spark.pipelines.report import Progress, Report, silent

TARGET_BYTES: Final = 128 * limits.MIB
# One run of Spark does so many groups; then the node is told of them.
_TASKS_MAX: Final = 64
# A child that seals has the folder while it writes; that takes seconds.
_LOCK_SECONDS_MAX: Final = 300.0
_LOOK_SECONDS: Final = 0.2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def compact(
    spark: SparkSession,
    location: Location,
    table: str,
    *,
    target_bytes: int = TARGET_BYTES,
    min_blocks: int = 2,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Report:
    """Puts neighbouring small blocks of a table together.

    Args:
        spark: the session; its tasks have to see the blocks where the node has them.
        location: where the table is.
        table: its name.
        target_bytes: a new block has about so many bytes at most; larger ones are left alone.
        min_blocks: fewer than these are not worth it.
        dry_run: only say what would be done.
        progress: is told how far it is.

    Raises:
        FjordError: if there is no such table, or a block is damaged or out of reach.
    """
    if target_bytes < 1 or min_blocks < 2:
        raise FjordError(
            "compact takes a target of 1 byte or more, and at least 2 blocks at a time"
        )
    with _opened(location, read_only=dry_run) as db:
        blocks = db.blocks(table)
        groups = plan(blocks, target_bytes=target_bytes, min_blocks=min_blocks)
        made: list[fjord.BlockInfo] = []
        if groups and not dry_run:
            made = _Run(spark, db, table, blocks[0].location).rewrite(groups, progress)
    return _report(table, blocks, groups, made, dry_run=dry_run)


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

    def __init__(self, spark: SparkSession, db: fjord.Database, table: str, where: str) -> None:
        self._spark = spark
        self._db = db
        self._table = table
        self._where = where
        self._store = Store(where)

    def rewrite(
        self, groups: Sequence[Sequence[fjord.BlockInfo]], progress: Progress
    ) -> list[fjord.BlockInfo]:
        """Makes one block of each group; returns them."""
        made: list[fjord.BlockInfo] = []
        progress("rewriting blocks", 0, len(groups))
        with self._store.rewriting_lock():
            self._clean()
            try:
                for start in range(0, len(groups), _TASKS_MAX):
                    some = groups[start : start + _TASKS_MAX]
                    made += self._publish(some, self._written(some))
                    progress("rewriting blocks", start + len(some), len(groups))
            finally:
                self._clean()
        return made

    def _written(self, groups: Sequence[Sequence[fjord.BlockInfo]]) -> dict[str, Metadata]:
        """Writes the new blocks by tasks of Spark; returns their metadata, by name."""
        where = self._where

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = Store(where)
            for batch in batches:
                for names in map(json.loads, batch["names"].to_pylist()):
                    name, metadata = rewriting.rewrite(store, names, tag=tag_of(names))
                    found = [pa.array([name]), pa.array([metadata.encode()], pa.binary())]
                    yield pa.record_batch(found, ["name", "metadata"])

        asked = [(json.dumps([block.name for block in group]),) for group in groups]
        frame = self._spark.createDataFrame(asked, "names string").repartition(len(asked))
        found = frame.mapInArrow(write, "name string, metadata binary").collect()
        return {row["name"]: decode_metadata(bytes(row["metadata"]), row["name"]) for row in found}

    def _publish(
        self, groups: Sequence[Sequence[fjord.BlockInfo]], written: dict[str, Metadata]
    ) -> list[fjord.BlockInfo]:
        """Tells the node of new blocks, and mends the chain."""
        by_edges = {(one.first, one.last): (name, one) for name, one in written.items()}
        made: list[fjord.BlockInfo] = []
        with self._sealing_lock():
            for group in groups:
                name, metadata = by_edges[group[0].first, group[-1].last]
                new = _info(name, self._where, metadata)
                self._check(new)
                self._store.write_metadata(name, metadata.encode())
                self._db.replace_blocks(self._table, [block.name for block in group], new)
                made.append(new)
            names = [block.name for block in self._db.blocks(self._table)]
            rewriting.relink(Catalog(self._store), names)
        return made

    def _check(self, new: fjord.BlockInfo) -> None:
        """Makes sure that the file of a new block is here as the task has left it there.

        Raises:
            FjordError: if it is not.
        """
        path = self._store.path(new.name)
        try:
            size = self._store.size(new.name)
        except FileNotFoundError:
            raise FjordError(
                f"a task has written {path}, but it is not there; every machine that runs tasks of "
                "Spark must see the blocks where the node has them"
            ) from None
        if size != new.bytes:
            raise CorruptionError(path, 0, f"it has {size} bytes, its task wrote {new.bytes}")

    def _clean(self) -> None:
        """Removes what was written in vain, by this run or by one that died."""
        live = [(one.name, one.first, one.last) for one in self._db.blocks(self._table)]
        for name in rewriting.orphans(self._store, live):
            self._store.remove(name)
        if live:
            self._store.drop_rewrites(live[0][0].partition("/")[0])

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


def _opened(location: Location, *, read_only: bool) -> fjord.Database:
    """Opens what is to be changed; a directory must not be in use, a daemon may be."""
    if location.server or read_only:
        return location.open()
    return fjord.open(location.path)


def _info(name: str, where: str, found: Metadata) -> fjord.BlockInfo:
    return fjord.BlockInfo(
        name=name,
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
    groups: Sequence[Sequence[fjord.BlockInfo]],
    made: Sequence[fjord.BlockInfo],
    *,
    dry_run: bool,
) -> Report:
    replaced = [block for group in groups for block in group]
    figures = {
        "table": table,
        "dry_run": dry_run,
        "blocks_before": len(blocks),
        "blocks_after": len(blocks) - len(replaced) + len(groups),
        "replaced_blocks": len(replaced),
        "new_blocks": len(groups),
        "rows": sum(block.rows for block in replaced),
        "bytes_before": sum(block.bytes for block in replaced),
    }
    if not dry_run:
        figures["bytes_after"] = sum(block.bytes for block in made)
    return Report(job="compact", figures=figures)
