"""`fjord kestrel import`: what is in queues gets to a daemon in order and once, whoever dies."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord import limits
from fjord.clock import SystemClock
from fjord.errors import FjordError, UnavailableError
from fjord.kestrel import codec
from fjord.kestrel import importer as imports
from fjord.kestrel.importer import Importer, ImportOptions, ImportOutcome
from tests.acceptance.cutting import CuttingProxy, Way
from tests.acceptance.daemon import Daemon
from tests.acceptance.kestrel_queues import (
    ADD_MS,
    command,
    fill,
    item,
    now_ms,
    numbered,
    read_all,
    run,
    take_all,
    written,
)

# Enough for some tens of batches.
MANY = 30_000
CARS = [b"open", b"1", b"2", b"3", b"two words\n\0"]
CHANGED = "have changed since 5 items of it were imported; --anew"
BEFORE = "5 items, imported into jobs table cars before"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("import") / "data") as one:
        yield one


@pytest.fixture
def daemon(running: Daemon) -> Iterator[Daemon]:
    """A daemon without tables."""
    yield running
    with fjord.connect(running.url) as db:
        for table in db.tables():
            db.drop(table.name)


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as db:
        yield db


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    path = tmp_path / "queues"
    path.mkdir()
    first = [item(b"gone"), codec.remove(), item(b"open"), item(b"1"), item(b"2")]
    (path / "cars.904").write_bytes(written(*first, codec.remove_tentative(7)))
    (path / "cars").write_bytes(written(item(b"3"), item(b"two words\n\0")))
    (path / "bikes").write_bytes(written(item(b"one")))
    (path / "empty").write_bytes(b"")
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    return tmp_path / "queues"


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def check(code: int, told: str, *words: str | Path) -> None:
    """Ensures that an import ends so, and says so."""
    ended = run("import", *words)
    assert ended.exit_code == code, ended.stderr
    assert told in (ended.stderr if code else ended.stdout)


def options(path: Path, url: str, **given: Any) -> ImportOptions:
    return ImportOptions(directory=str(path), url=url, **given)


def imported(
    options: ImportOptions, show: imports.Show = lambda *_: None, **given: bool
) -> list[ImportOutcome]:
    importer = Importer(options, show, **given)
    return [importer.send(plan) for plan in importer.plans()]


def begun(label: str) -> bool:
    return label.startswith("importing")


def interrupt(label: str, done: int, total: int) -> None:
    if begun(label) and done >= 2000:
        raise KeyboardInterrupt


# -- what it does ---------------------------------------------------------------------------------


@pytest.mark.req("KJ-01", "KJ-08", "KJ-14")
def test_queues_become_jobs_tables(daemon: Daemon, db: fjord.Database, queues: Path) -> None:
    before = {one: one.read_bytes() for one in queues.iterdir()}
    check(0, "3 queues, 6 items to be imported", queues, "--to", daemon.url, "--dry-run")
    assert db.tables() == []
    words = command("import", queues, "--to", daemon.url)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "bikes: 1 item, 1 imported into jobs table bikes",
        "cars: 5 items, 5 imported into jobs table cars",
        "empty: no items",
        "3 queues, 6 items imported",
    ]
    assert {one: one.read_bytes() for one in queues.iterdir()} == before
    assert [table.name for table in db.tables()] == ["bikes", "cars"]
    db.create_jobs("cars", merge=False)  # just as it is
    (first,) = db.jobs("cars").peek(1)
    assert first.inserted_at.timestamp() * 1000 == ADD_MS
    check(0, BEFORE + "\n1 queue, 0 items", queues, "--to", daemon.url, "--queue", "cars")
    assert take_all(daemon.url, "cars") == CARS
    assert take_all(daemon.url, "bikes") == [b"one"]
    db.drop("cars")
    db.jobs("cars", merge=False).push_many(values=[b"pushed"])  # which is newer
    ended_again = run("import", queues, "--to", daemon.url, "--queue", "cars", "--json")
    told = {"queue": "cars", "table": "cars", "kind": "jobs", "dry_run": False, "damaged": []}
    counts = {"items": 5, "imported_before": 0, "imported": 5, "expired": 0, "too_large": 0}
    counts |= {"bytes": 18, "damaged_bytes": 0}
    assert json.loads(ended_again.stdout) == {**told, **counts}
    assert take_all(daemon.url, "cars") == [*CARS, b"pushed"]


def test_expired_items_are_left_out(daemon: Daemon, db: fjord.Database, queues: Path) -> None:
    later_ms = now_ms() + 3_600_000
    (queues / "old").write_bytes(written(item(b"a", expiry_ms=ADD_MS)))
    words = (queues, "--to", daemon.url, "--queue", "old")
    for _ in range(2):
        check(0, "old: 1 item, 0 imported into jobs table old (1 expired)", *words)
    assert db.tables() == []
    append(queues / "old", written(item(b"b", expiry_ms=later_ms), item(b"c")))
    check(0, "3 items, 2 imported into jobs table old (1 expired)", *words)
    found = db.jobs("old").peek(3)
    assert [job.value for job in found] == [b"b", b"c"]
    expiries = [job.expires_at and job.expires_at.timestamp() * 1000 for job in found]
    assert expiries == [later_ms, None]


# -- what it refuses ------------------------------------------------------------------------------


def test_too_large_items_are_refused(daemon: Daemon, db: fjord.Database, queues: Path) -> None:
    large = bytes(limits.VALUE_BYTES_MAX + 1)
    words = (queues, "--to", daemon.url)
    (queues / "large").write_bytes(written(item(b"1"), item(large), item(large[1:])))
    check(1, "large has 1 item of more than 1048576 bytes", *words)
    (queues / "huge").write_bytes(written(item(large), item(large)))
    check(1, "huge has 2 items, large has 1 item of more than 1048576 bytes", *words)
    check(1, "--skip-too-large", *words)
    assert db.tables() == []
    told = "large: 3 items, 2 imported into jobs table large (1 too large)"
    check(0, told, *words, "--skip-too-large")
    assert take_all(daemon.url, "large") == [b"1", large[1:]]


def test_damage_is_refused_unless_it_is_accepted(daemon: Daemon, queues: Path) -> None:
    append(queues / "cars.904", b"\x63damaged")
    words = (queues, "--to", daemon.url, "--queue", "cars")
    check(1, "8 bytes cannot be read; --damaged imports", *words)
    ended = run("import", *words, "--damaged", "--json")
    assert (ended.exit_code, "8 bytes cannot be read" in ended.stderr) == (0, True)
    (sentence,) = json.loads(ended.stdout)["damaged"]
    assert sentence.endswith("8 bytes cannot be read")
    assert take_all(daemon.url, "cars") == CARS


def test_other_tables_are_refused(daemon: Daemon, db: fjord.Database, queues: Path) -> None:
    words = (queues, "--to", daemon.url, "--queue", "cars")
    db.kv("kv").set("a", "b")
    db.jobs("merged").push("key")
    db.create_jobs("plain", merge=False)
    db.create_stream("newest", mode="latest")
    check(1, "kv", *words, "--table", "kv")
    check(1, "merge is True, not False", *words, "--table", "merged")
    for table in ("plain", "newest"):
        check(1, table, *words, "--table", table, "--as", "stream")
    check(2, "nowhere", queues / "nowhere", "--to", daemon.url)
    check(2, "nonsense", queues, "--to", "nonsense://")
    check(2, "--table", queues, "--to", daemon.url, "--table", "one")
    check(1, "has no queue boats", queues, "--to", daemon.url, "--queue", "boats")
    check(1, "no daemon answers", queues, "--to", "fjord://127.0.0.1:1")
    (queues / "cars+seo").write_bytes(written(item(b"s")))
    check(2, "--table cars+seo=TABLE", queues, "--to", daemon.url)
    words = (queues, "--to", daemon.url, "--table", "cars+seo=cars_seo")
    check(0, "4 queues, 7 items imported", *words)
    assert take_all(daemon.url, "cars_seo") == [b"s"]


@pytest.mark.parametrize("is_anew", [False, True])
def test_changed_files_are_imported_anew(daemon: Daemon, queues: Path, is_anew: bool) -> None:
    words = (queues, "--to", daemon.url, "--queue", "cars")
    check(0, "5 imported", *words, *(["--anew"] if is_anew else []))
    check(0, BEFORE, *words)
    assert take_all(daemon.url, "cars") == CARS
    append(queues / "cars", written(item(b"new")))
    check(1, CHANGED, *words)
    check(0, "6 items, 6 imported", *words, "--anew")
    check(0, "6 items, imported into jobs table cars before", *words, "--anew")
    assert take_all(daemon.url, "cars") == [*CARS, b"new"]


def test_the_same_files_moved_are_told(daemon: Daemon, db: fjord.Database, queues: Path) -> None:
    words = ("--to", daemon.url, "--queue", "cars")
    check(0, "5 imported", queues, *words)
    moved = queues.rename(queues.with_name("moved"))
    told = "5 of the 5 items in these files of cars were imported into cars before"
    check(1, told, moved, *words)
    check(0, BEFORE, moved, *words, "--moved", "--dry-run")
    check(1, told, moved, *words)
    check(2, "give one of them", moved, *words, "--moved", "--anew")
    check(0, BEFORE, moved, *words, "--moved")
    check(0, BEFORE, moved, *words)
    assert db.jobs("cars").count().waiting == 5
    append(moved / "cars", written(item(b"new")))
    check(1, CHANGED, moved, *words)
    other = queues.with_name("host-b")
    fill(other / "cars", [b"other"])  # files of the same name are others
    check(0, "1 imported", other, *words)
    assert db.jobs("cars").count().waiting == 6


# -- whoever dies ---------------------------------------------------------------------------------


@contextlib.contextmanager
def importing(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Runs an import in a process of its own, which does not outlive the block."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command("import", *words), stdout=pipe, stderr=pipe, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_importer_is_killed_again_and_again(daemon: Daemon, db: fjord.Database, many: Path) -> None:
    seen = [0]
    jobs = db.create_jobs("cars", merge=False)
    for _ in range(3):
        with jobs.listen() as changes, importing(many, "--to", daemon.url) as importer:
            assert changes.wait(60) is not None, importer.communicate()
            importer.kill()
            assert importer.wait(timeout=60) == -signal.SIGKILL
        seen.append(jobs.count().waiting)
    assert seen == sorted(set(seen))
    assert seen[-1] < MANY
    check(0, f"({seen[-1]} imported before)", many, "--to", daemon.url)
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_importer_outlives_a_daemon(daemon: Daemon, db: fjord.Database, many: Path) -> None:
    port, stream = daemon.port, db.create_stream("cars")
    with importing(many, "--to", daemon.url, "--as", "stream") as importer:
        assert len(stream.read(1, wait=60)) == 1
        daemon.kill()
        daemon.start(port)
        told, problem = importer.communicate(timeout=120)
        assert (importer.returncode, problem) == (0, "")
    assert f"cars: {MANY} items, {MANY} imported into stream cars" in told
    assert read_all(daemon.url, "cars") == numbered(MANY)


def test_daemon_that_stays_away_is_told_and_the_next_run_goes_on(
    daemon: Daemon, many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLY_SECONDS_MAX", 2.0)
    port, given = daemon.port, options(many, daemon.url)

    def kill_once(label: str, done: int, total: int) -> None:
        if begun(label) and done == 5000:
            daemon.kill()

    with pytest.raises(UnavailableError, match="run the same command again"):
        imported(given, kill_once)
    daemon.start(port)
    (outcome,) = imported(given)
    assert 5000 <= outcome.imported_before < MANY
    assert outcome.tally.imported == MANY - outcome.imported_before
    assert take_all(daemon.url, "cars") == numbered(MANY)


@pytest.mark.parametrize(("way", "is_anew"), [*((way, False) for way in Way), (Way.REQUEST, True)])
def test_broken_connections_double_nothing(
    way: Way, is_anew: bool, daemon: Daemon, many: Path
) -> None:
    def cut(label: str, done: int, total: int) -> None:
        if begun(label):
            proxy.arm(way, done % 3571 if way is Way.REQUEST else done % 97)

    with CuttingProxy(daemon.port) as proxy:
        (outcome,) = imported(options(many, proxy.url, anew=is_anew), cut)
        assert proxy.cuts > 3
    assert outcome.tally == (MANY, 0, 0)
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_import_cut_short_is_done_anew(daemon: Daemon, db: fjord.Database, many: Path) -> None:
    plain = options(many, daemon.url)
    with pytest.raises(KeyboardInterrupt):
        imported(plain, interrupt)
    before = db.jobs("cars").count().waiting
    (anew,), (again,) = imported(replace(plain, anew=True)), imported(plain)
    assert (anew.imported_before, anew.tally.imported, again.imported_before) == (0, MANY, MANY)
    assert db.jobs("cars").count().waiting == before + MANY
    # And one that is known from elsewhere, too, loses nothing.
    fill(many.with_name("copies") / "cars", numbered(MANY))
    url = daemon.url
    copies = options(many.with_name("copies"), url, anew=True)
    with pytest.raises(KeyboardInterrupt):
        imported(copies, interrupt, passes_unchanged=True)
    (outcome,) = imported(copies, passes_unchanged=True)
    assert 2000 <= outcome.imported_before < MANY
    assert db.jobs("cars").count().waiting == before + 2 * MANY


def test_an_import_goes_on_where_its_directory_was_moved_to(daemon: Daemon, many: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        imported(options(many, daemon.url), interrupt)
    moved = many.rename(many.with_name("moved"))
    (outcome,) = imported(options(moved, daemon.url, moved=True))
    assert 2000 <= outcome.imported_before < MANY
    (again,) = imported(options(moved, daemon.url))
    assert again.imported_before == MANY
    assert take_all(daemon.url, "cars") == numbered(MANY)


@pytest.mark.parametrize("other", ["queues", "copies"])
def test_two_importers_import_each_item_once(daemon: Daemon, many: Path, other: str) -> None:
    fill(many.with_name("copies") / "cars", numbered(MANY))
    words = ("--to", daemon.url, "--moved")
    with importing(many, *words) as first, importing(many.with_name(other), *words) as second:
        for one in (first, second):
            _, told = one.communicate(timeout=120)
            assert one.returncode == 0 or "somebody else imports this queue" in told
    assert run("import", many, *words).exit_code == 0
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_queue_that_changes_between_two_looks_is_refused(daemon: Daemon, queues: Path) -> None:
    def change(label: str, done: int, total: int) -> None:
        if label == "looking at cars":
            (queues / "cars").write_bytes(written(item(b"other")))

    with pytest.raises(FjordError, match="changed while they were read"):
        imported(options(queues, daemon.url, queues=("cars",)), change)
    assert take_all(daemon.url, "cars") == []


@pytest.mark.parametrize("is_anew", [False, True])
def test_what_expires_on_its_way_is_left_out(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_anew: bool
) -> None:
    class Behind(SystemClock):
        def wall_us(self) -> int:
            return super().wall_us() - 30_000_000

    made = (item(b"a"), item(b"b", expiry_ms=now_ms() - 15_000), item(b"c"))
    (tmp_path / "cars").write_bytes(written(*made))
    monkeypatch.setattr(imports, "SystemClock", Behind)
    (outcome,) = imported(options(tmp_path, daemon.url, anew=is_anew))
    assert outcome.tally == (2, 1, 0)
    assert take_all(daemon.url, "cars") == [b"a", b"c"]
