"""Which blocks become one, and what becomes of files whatever happens; without Spark."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

import fjord
from fjord import limits
from fjord.blocks.files import LocalTarget
from fjord.blocks.store import Catalog, Store
from fjord.errors import Code, FjordError, NotFoundError, RefusedError
from fjord.spark.options import Location
from fjord.spark.pipelines import compact as compacting
from fjord.spark.pipelines.compact import compact, plan
from fjord.spark.pipelines.report import Report

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def block(number: int, size: int) -> fjord.BlockInfo:
    return fjord.BlockInfo(f"t-1/{number}", "/cold", number, number, 5, size, MOMENT, MOMENT, 7)


def sizes_of(sizes: list[int], *, target_bytes: int = 10, min_blocks: int = 2) -> list[list[int]]:
    blocks = [block(number, size) for number, size in enumerate(sizes)]
    groups = plan(blocks, target_bytes=target_bytes, min_blocks=min_blocks)
    for group in groups:
        assert [one.first for one in group] == list(range(group[0].first, group[-1].last + 1))
    return [[one.bytes for one in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([5, 5], [[5, 5]]),
        ([5, 6], []),
        ([1, 2, 3, 4, 5, 6], [[1, 2, 3, 4]]),
        ([4, 4, 4, 4, 4], [[4, 4], [4, 4]]),
        ([1, 1, 50, 1, 1], [[1, 1], [1, 1]]),  # a large one is left alone, and divides
        ([50, 50], []),
        ([10, 1, 1], [[1, 1]]),
    ],
)
def test_neighbours_are_put_together_while_there_is_room(
    sizes: list[int], expected: list[list[int]]
) -> None:
    assert sizes_of(sizes) == expected


def test_a_group_has_no_more_than_the_node_replaces_at_once() -> None:
    most = limits.BLOCKS_REPLACED_MAX
    found = sizes_of([1] * (2 * most + 1), target_bytes=10**9)
    assert list(map(len, found)) == [most, most]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    spark: Any = None  # nothing comes so far
    here = Location.of_path(str(tmp_path / "data"))
    with pytest.raises(FjordError, match="at least 1 byte"):
        compact(spark, here, "t", target_bytes=0)
    with pytest.raises(FjordError, match="at least 2 blocks"):
        compact(spark, here, "t", min_blocks=1)
    with fjord.open(here.path) as db:
        db.stream("events").append(b"v")
        db.kv("kv").set("k", 1)
    with pytest.raises(NotFoundError):
        compact(spark, here, "none", dry_run=True)
    with pytest.raises(FjordError, match="kv table"):
        compact(spark, here, "kv", dry_run=True)
    assert compact(spark, here, "events").figures["new_blocks"] == 0


# -- what becomes of files ------------------------------------------------------------------------


SPARK: Any = None  # the tasks run here


def run_here(spark: Any, where: str, tag: int, asked: Sequence[Sequence[str]]) -> list[Any]:
    return [compacting.rewritten(Store(where), names, tag) for names in asked]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with three blocks, made once; nobody writes to it."""
    path = tmp_path_factory.mktemp("sealed") / "data"
    with fjord.open(path) as db:
        events = db.stream("events", block_rows=10)
        for number in range(3):
            events.append_many([b"%d-%d" % (number, row) for row in range(10)])
        db.seal("events")
        assert [one.rows for one in db.blocks("events")] == [10, 10, 10]
    return path


@pytest.fixture
def here(sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A copy of that stream, with the same three blocks in a folder of its own."""
    monkeypatch.setattr(compacting, "run_tasks", run_here)
    found = Location.of_path(shutil.copytree(sealed, tmp_path / "data").as_posix())
    assert {Path(one.location) for one in live(found)} == {tmp_path / "data" / "blocks"}
    return found


def live(here: Location) -> list[fjord.BlockInfo]:
    with fjord.open(here.path, read_only=True) as db:
        return db.blocks("events")


def files(here: Location) -> set[str]:
    block = live(here)[0]
    return {path.name for path in (Path(block.location) / block.name).parent.iterdir()}


def files_of(blocks: Sequence[fjord.BlockInfo]) -> set[str]:
    names = [one.name.split("/")[1] for one in blocks]
    return {f"{name}.parquet" for name in names} | {f"_{name}.json" for name in names}


def check(here: Location) -> None:
    """Every block that is in use is whole, and all messages are there."""
    blocks = live(here)
    assert sum(Catalog(Store(blocks[0].location)).verify(one.name).rows for one in blocks) == 30
    with fjord.open(here.path, read_only=True) as db:
        found = [db.stream("events").read()]
        while len(found[-1]):
            found.append(db.stream("events").read(after=found[-1]))
    assert sum(map(len, found)) == 30


def test_each_run_makes_blocks_of_its_own_name(here: Location) -> None:
    old = live(here)
    report = compact(SPARK, here, "events", target_bytes=old[0].bytes + old[1].bytes)
    assert (report.figures["new_blocks"], report.figures["blocks_after"]) == (1, 2)
    first = live(here)
    compact(SPARK, here, "events")
    second = live(here)
    assert (len(first), len(second)) == (2, 1)
    tags = {one.name.rsplit("-", 1)[1] for one in (old[0], first[0], second[0])}
    assert len(tags) == 3
    assert files(here) == files_of([*old, *first, *second])  # and nothing is announced
    check(here)


def test_a_run_that_comes_too_late_leaves_the_live_block_alone(
    here: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an object store, which has no locks: another run is done while the tasks run."""
    old = live(here)
    monkeypatch.setattr(Store, "rewriting_lock", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(LocalTarget, "has_locks", False)
    write = pq.ParquetWriter.__init__

    def with_other_bytes(self: Any, *args: Any, **options: Any) -> None:
        write(self, *args, **{**options, "compression": "gzip", "compression_level": 9})

    def overtaken(spark: Any, where: str, tag: int, asked: Sequence[Sequence[str]]) -> list[Any]:
        monkeypatch.setattr(compacting, "run_tasks", run_here)
        told = run_here(spark, where, tag, asked)
        monkeypatch.setattr(pq.ParquetWriter, "__init__", with_other_bytes)
        compact_inside(databases[0], monkeypatch)
        return told

    databases: list[fjord.Database] = []
    opened = compacting._opened

    def remembered(location: Location, *, read_only: bool) -> fjord.Database:
        databases.append(opened(location, read_only=read_only))
        return databases[-1]

    monkeypatch.setattr(compacting, "_opened", remembered)
    monkeypatch.setattr(compacting, "run_tasks", overtaken)
    with pytest.raises(RefusedError, match="these are not the current blocks"):
        compact(SPARK, here, "events")
    (new,) = live(here)
    assert files(here) == files_of([*old, new])
    check(here)


def compact_inside(db: fjord.Database, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Runs once more with a database that is open already."""
    with monkeypatch.context() as patch:
        patch.setattr(compacting, "_opened", lambda *_, **__: contextlib.nullcontext(db))
        return compact(SPARK, Location.of_path("nowhere"), "events")


@pytest.mark.parametrize("code", [Code.DISK_FULL, Code.BUSY, Code.BAD_RANGE])
def test_a_block_stays_whose_answer_was_lost(
    here: Location, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    old = live(here)
    replace = fjord.Database.replace_blocks

    def refused(self: fjord.Database, *args: Any) -> None:
        replace(self, *args)
        raise RefusedError(code, "at the second try")

    monkeypatch.setattr(fjord.Database, "replace_blocks", refused)
    with pytest.raises(RefusedError, match="at the second try"):
        compact(SPARK, here, "events")
    (new,) = live(here)
    assert files_of([*old, new]) < files(here)
    check(here)
    monkeypatch.setattr(compacting, "GRACE", timedelta(days=-1))
    compact(SPARK, here, "events")
    assert files(here) == files_of([*old, new])
    check(here)


def test_what_a_killed_run_has_published_goes_after_a_day(
    here: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = live(here)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fjord.Database, "replace_blocks", killed)
        with pytest.raises(KeyboardInterrupt):
            compact(SPARK, here, "events")
    left = files(here) - files_of(old)
    assert {name.rsplit(".", 1)[1] for name in left} == {"parquet", "json", "announced"}
    compact(SPARK, here, "events", min_blocks=4)  # nothing to do, and it is too young
    assert files(here) == files_of(old) | left
    monkeypatch.setattr(compacting, "GRACE", timedelta(days=-1))
    compact(SPARK, here, "events", min_blocks=4)
    assert files(here) == files_of(old)
    check(here)


def test_a_group_with_a_damaged_block_stays_as_it_is(here: Location) -> None:
    old, listed = live(here), files(here)
    path = Path(old[1].location) / f"{old[1].name}.parquet"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(FjordError, match=r"0 of 1 groups .* checksum"):
        compact(SPARK, here, "events")
    assert (live(here), files(here)) == (old, listed)


def test_a_run_sees_what_the_one_before_has_done(
    here: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is looked at under the lock: here somebody is done just before."""
    lock = Store.rewriting_lock
    done: list[int] = []

    def after_another(self: Store) -> Any:
        if not done:
            done.append(1)
            compact_inside(databases[0], monkeypatch)
        return lock(self)

    databases: list[fjord.Database] = []
    opened = compacting._opened

    def remembered(location: Location, *, read_only: bool) -> fjord.Database:
        databases.append(opened(location, read_only=read_only))
        return databases[-1]

    monkeypatch.setattr(compacting, "_opened", remembered)
    monkeypatch.setattr(Store, "rewriting_lock", after_another)
    report = compact(SPARK, here, "events")
    assert (report.figures["blocks_before"], report.figures["new_blocks"]) == (1, 0)
    check(here)
