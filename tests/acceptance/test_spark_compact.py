"""`compact` on Spark: the same rows before and after, for everybody who reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.blocks.store import Catalog, Store
from fjord.spark.options import Location
from fjord.spark.pipelines.compact import compact
from tests.acceptance.conftest import Typed
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.spark

SIZES = [5, 40, 1, 30, 8, 2]
SMALL = 10**6


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


def fill(db: fjord.Database, table: str = "events") -> None:
    """Writes a block for each batch of messages, and some that are in none."""
    for number, size in enumerate(SIZES):
        db.stream(table).append_many([f"{number}-{row}" for row in range(size)])
        db.seal(table)
    db.stream(table).append("hot")


def messages(db: fjord.Database) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    batch = db.stream("events").read()
    while len(batch):
        found += [(one.seq, one.value) for one in batch]
        batch = db.stream("events").read(after=batch)
    return found


def rows(spark: Any, db: fjord.Database) -> list[Any]:
    """All rows of all blocks, as Spark reads the files that the node lists."""
    paths = [f"{one.location}/{one.name}.parquet" for one in db.blocks("events")]
    return list(spark.read.parquet(*paths).orderBy("seq").collect())


def files(db: fjord.Database) -> list[str]:
    folder = Path(db.blocks("events")[0].location) / db.blocks("events")[0].name.split("/")[0]
    return sorted(path.name for path in folder.iterdir())


def test_nobody_who_reads_sees_a_difference(spark: Any, daemon: Daemon, typed: Typed) -> None:
    where = Location(server=daemon.url)
    told: list[tuple[str, int, int | None]] = []
    with fjord.connect(daemon.url) as db:
        fill(db)
        before, read, old = rows(spark, db), messages(db), db.blocks("events")
        listed = files(db)
        dry = compact(spark, where, "events", target_bytes=SMALL, dry_run=True)
        assert (db.blocks("events"), files(db)) == (old, listed)
        report = compact(
            spark, where, "events", progress=lambda *one: told.append(one), target_bytes=SMALL
        )
        (new,) = db.blocks("events")
        assert (new.first, new.last, new.rows) == (old[0].first, old[-1].last, sum(SIZES))
        assert rows(spark, db) == before
        assert messages(db) == read
        assert set(files(db)) == {
            *listed,
            *(Path(new.name + end).name for end in (".parquet",)),
            "_" + Path(new.name + ".json").name,
        }
        assert report.figures == {**dry.figures, "dry_run": False, "bytes_after": new.bytes}
        assert (dry.figures["blocks_before"], dry.figures["blocks_after"]) == (6, 1)
        assert told[-1] == ("rewriting blocks", 1, 1)
        words = ("--target-mib", 1, "--to", daemon.url, "--json")
        again = json.loads(typed("pipeline", "compact", "events", *words).stdout)
        assert (again["job"], again["ok"], again["new_blocks"]) == ("compact", True, 0)
        db.stream("events").append_many(["later"] * 3)
        db.seal("events")
        catalog = Catalog(Store(new.location))
        later = db.blocks("events")[-1].name
        assert (catalog.next(new.name), catalog.previous(later)) == (later, new.name)
    daemon.kill()
    daemon.start()
    with fjord.connect(daemon.url) as db:
        assert messages(db)[: len(read)] == read
        assert [one.name for one in db.blocks("events")] == [new.name, later]
