"""`fjord kestrel import`: what is in queues gets to a daemon in order and once, whoever dies."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

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


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


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


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir()}


def imported(options: ImportOptions, show: imports.Show = lambda *_: None) -> list[ImportOutcome]:
    importer = Importer(options, show)
    return [importer.send(plan) for plan in importer.plans()]


def begun(label: str) -> bool:
    return label.startswith("importing")


def interrupt(label: str, done: int, total: int) -> None:
    if begun(label) and done >= 2000:
        raise KeyboardInterrupt


# -- what it does ---------------------------------------------------------------------------------


@pytest.mark.req("KJ-01", "KJ-08", "KJ-14")
def test_queues_become_jobs_tables_with_open_items_at_the_head(
    daemon: Daemon, queues: Path
) -> None:
    before = files(queues)
    words = command("import", queues, "--to", daemon.url)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "bikes: 1 item, 1 imported into jobs table bikes",
        "cars: 5 items, 5 imported into jobs table cars",
        "empty: no items",
        "3 queues, 6 items imported",
    ]
    assert files(queues) == before
    with fjord.connect(daemon.url) as db:
        assert [table.name for table in db.tables()] == ["bikes", "cars"]
        db.create_jobs("cars", merge=False)  # just as it is
        (first,) = db.jobs("cars").peek(1)
        assert first.inserted_at.timestamp() * 1000 == ADD_MS
    assert take_all(daemon.url, "cars") == [b"open", b"1", b"2", b"3", b"two words\n\0"]
    assert take_all(daemon.url, "bikes") == [b"one"]


def test_second_run_finds_that_all_is_there(daemon: Daemon, queues: Path) -> None:
    assert run("import", queues, "--to", daemon.url).exit_code == 0
    ended = run("import", queues, "--to", daemon.url, "--queue", "cars")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        "cars: 5 items, imported into jobs table cars before",
        "1 queue, 0 items imported",
    ]
    with fjord.connect(daemon.url) as db:
        assert db.jobs("cars").count().waiting == 5
        db.drop("cars")
    ended = run("import", queues, "--to", daemon.url, "--queue", "cars", "--json")
    assert json.loads(ended.stdout) == {
        "queue": "cars",
        "table": "cars",
        "kind": "jobs",
        "dry_run": False,
        "items": 5,
        "imported_before": 0,
        "imported": 5,
        "expired": 0,
        "too_large": 0,
        "damaged": [],
    }


def test_dry_run_does_nothing(daemon: Daemon, queues: Path) -> None:
    ended = run("import", queues, "--to", daemon.url, "--dry-run")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[-1] == "3 queues, 6 items to be imported"
    with fjord.connect(daemon.url) as db:
        assert db.tables() == []


def test_items_become_messages_of_a_stream(daemon: Daemon, queues: Path) -> None:
    words = ("--queue", "cars", "--table", "log", "--as", "stream")
    ended = run("import", queues, "--to", daemon.url, *words)
    assert ended.exit_code == 0, ended.stderr
    assert "5 imported into stream log" in ended.stdout
    assert read_all(daemon.url, "log") == [b"open", b"1", b"2", b"3", b"two words\n\0"]
    again = run("import", queues, "--to", daemon.url, *words)
    assert "items, imported into stream log before" in again.stdout


def test_what_has_expired_is_left_out_and_the_rest_expires_as_before(
    daemon: Daemon, queues: Path
) -> None:
    later_ms = now_ms() + 3_600_000
    made = (item(b"a", expiry_ms=ADD_MS), item(b"b", expiry_ms=later_ms), item(b"c"))
    (queues / "old").write_bytes(written(*made))
    ended = run("import", queues, "--to", daemon.url, "--queue", "old")
    assert "3 items, 2 imported into jobs table old (1 expired)" in ended.stdout
    with fjord.connect(daemon.url) as db:
        found = db.jobs("old").peek(3)
    assert [job.value for job in found] == [b"b", b"c"]
    assert [job.expires_at and job.expires_at.timestamp() * 1000 for job in found] == [
        later_ms,
        None,
    ]


def test_imported_items_stand_before_newer_jobs(daemon: Daemon, queues: Path) -> None:
    with fjord.connect(daemon.url) as db:
        db.jobs("cars", merge=False).push_many(values=[b"pushed"])
    assert run("import", queues, "--to", daemon.url, "--queue", "cars").exit_code == 0
    assert take_all(daemon.url, "cars")[-2:] == [b"two words\n\0", b"pushed"]


# -- what it refuses ------------------------------------------------------------------------------


def test_too_large_items_are_refused_before_anything_is_sent(daemon: Daemon, queues: Path) -> None:
    large = bytes(limits.VALUE_BYTES_MAX + 1)
    (queues / "large").write_bytes(written(item(b"1"), item(large), item(large[1:])))
    ended = run("import", queues, "--to", daemon.url)
    assert ended.exit_code == 1
    assert "large has 1 item of more than 1048576 bytes" in ended.stderr
    (queues / "huge").write_bytes(written(item(large), item(large)))
    ended = run("import", queues, "--to", daemon.url)
    assert "huge has 2 items, large has 1 item of more than 1048576 bytes" in ended.stderr
    (queues / "huge").unlink()
    assert "--skip-too-large" in ended.stderr
    with fjord.connect(daemon.url) as db:
        assert db.tables() == []
    ended = run("import", queues, "--to", daemon.url, "--skip-too-large")
    assert "large: 3 items, 2 imported into jobs table large (1 too large)" in ended.stdout
    assert take_all(daemon.url, "large") == [b"1", large[1:]]


def test_damage_is_refused_unless_it_is_accepted(daemon: Daemon, queues: Path) -> None:
    with (queues / "cars.904").open("ab") as file:
        file.write(b"\x63damaged")
    ended = run("import", queues, "--to", daemon.url)
    assert ended.exit_code == 1
    assert "8 bytes cannot be read; --damaged imports" in ended.stderr
    ended = run("import", queues, "--to", daemon.url, "--damaged", "--json")
    assert ended.exit_code == 0
    assert "8 bytes cannot be read" in ended.stderr
    (cars,) = [one for one in map(json.loads, ended.stdout.splitlines()) if one["items"] == 5]
    assert [sentence.endswith("8 bytes cannot be read") for sentence in cars["damaged"]] == [True]
    assert take_all(daemon.url, "cars") == [b"open", b"1", b"2", b"3", b"two words\n\0"]


def test_name_that_no_table_has_needs_another(daemon: Daemon, queues: Path) -> None:
    (queues / "cars+seo").write_bytes(written(item(b"s")))
    ended = run("import", queues, "--to", daemon.url)
    assert ended.exit_code == 2
    assert "--table cars+seo=cars_seo" in ended.stderr
    ended = run("import", queues, "--to", daemon.url, "--table", "cars+seo=cars_seo")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[-1] == "4 queues, 7 items imported"
    assert take_all(daemon.url, "cars_seo") == [b"s"]


def test_tables_that_are_something_else_are_refused(daemon: Daemon, queues: Path) -> None:
    with fjord.connect(daemon.url) as db:
        db.kv("cars").set("a", "b")
        db.jobs("bikes").push("key")
    ended = run("import", queues, "--to", daemon.url, "--queue", "cars")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "cars" in ended.stderr
    ended = run("import", queues, "--to", daemon.url, "--queue", "bikes")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "merge is True, not False" in ended.stderr
    with fjord.connect(daemon.url) as db:
        db.create_jobs("plain", merge=False)
        db.create_stream("newest", mode="latest")
    for table in ("plain", "newest"):
        words = ("--queue", "cars", "--table", table, "--as", "stream")
        ended = run("import", queues, "--to", daemon.url, *words)
        assert (ended.exit_code, ended.stdout, table in ended.stderr) == (1, "", True)


def test_wrong_use_is_told(daemon: Daemon, queues: Path) -> None:
    assert run("import", queues / "nowhere", "--to", daemon.url).exit_code == 2
    assert run("import", queues, "--to", "nonsense://").exit_code == 2
    assert run("import", queues, "--to", daemon.url, "--table", "one").exit_code == 2
    ended = run("import", queues, "--to", daemon.url, "--queue", "boats")
    assert (ended.exit_code, "has no queue boats" in ended.stderr) == (1, True)
    daemon.stop()
    daemon_is_away = run("import", queues, "--to", daemon.url)
    assert (daemon_is_away.exit_code, "no daemon answers" in daemon_is_away.stderr) == (1, True)


def test_files_that_have_changed_are_imported_only_anew(daemon: Daemon, queues: Path) -> None:
    assert run("import", queues, "--to", daemon.url, "--queue", "cars").exit_code == 0
    assert take_all(daemon.url, "cars")[:1] == [b"open"]
    with (queues / "cars").open("ab") as file:
        file.write(written(item(b"new")))
    ended = run("import", queues, "--to", daemon.url, "--queue", "cars")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "have changed since 5 items of it were imported; --anew" in ended.stderr
    words = ("--queue", "cars", "--anew")
    assert run("import", queues, "--to", daemon.url, *words).exit_code == 0
    again = run("import", queues, "--to", daemon.url, *words)
    assert "6 items, imported into jobs table cars before" in again.stdout
    assert take_all(daemon.url, "cars")[-1:] == [b"new"]


def test_what_was_imported_anew_is_known_without_it(daemon: Daemon, queues: Path) -> None:
    words = ("--to", daemon.url, "--queue", "cars")
    assert run("import", queues, *words, "--anew").exit_code == 0
    again = run("import", queues, *words)
    assert "5 items, imported into jobs table cars before" in again.stdout
    with (queues / "cars").open("ab") as file:
        file.write(written(item(b"new")))
    changed = run("import", queues, *words)
    assert "have changed since 5 items of it were imported; --anew" in changed.stderr
    with fjord.connect(daemon.url) as db:
        assert db.jobs("cars").count().waiting == 5


def test_the_same_files_elsewhere_are_told(daemon: Daemon, queues: Path) -> None:
    words = ("--to", daemon.url, "--queue", "cars")
    assert run("import", queues, *words).exit_code == 0
    moved = queues.rename(queues.with_name("moved"))
    ended = run("import", moved, *words)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "5 of the 5 items in these files of cars were imported into cars before" in ended.stderr
    assert (
        "5 items, imported into jobs table cars before"
        in run("import", moved, *words, "--moved").stdout
    )
    both = run("import", moved, *words, "--moved", "--anew")
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True)
    with fjord.connect(daemon.url) as db:
        assert db.jobs("cars").count().waiting == 5
        assert run("import", moved, *words, "--anew").exit_code == 0
        assert db.jobs("cars").count().waiting == 10


def test_what_was_moved_is_known_in_its_new_place(daemon: Daemon, queues: Path) -> None:
    words = ("--to", daemon.url, "--queue", "cars")
    assert run("import", queues, *words).exit_code == 0
    moved = queues.rename(queues.with_name("moved"))
    dry = run("import", moved, *words, "--moved", "--dry-run")
    assert (dry.exit_code, run("import", moved, *words).exit_code) == (0, 1)
    assert run("import", moved, *words, "--moved").exit_code == 0
    again = run("import", moved, *words)
    assert "5 items, imported into jobs table cars before" in again.stdout
    with (moved / "cars").open("ab") as file:
        file.write(written(item(b"new")))
    changed = run("import", moved, *words)
    assert "have changed since 5 items of it were imported; --anew" in changed.stderr


def test_other_files_of_the_same_name_elsewhere_are_imported(daemon: Daemon, queues: Path) -> None:
    assert run("import", queues, "--to", daemon.url, "--queue", "bikes").exit_code == 0
    fill(queues.with_name("host-b") / "bikes", [b"two"])
    assert run("import", queues.with_name("host-b"), "--to", daemon.url).exit_code == 0
    assert set(take_all(daemon.url, "bikes")) == {b"one", b"two"}


def test_an_import_anew_may_pass_over_what_has_not_changed(daemon: Daemon, queues: Path) -> None:
    plain = ImportOptions(directory=str(queues), url=daemon.url)
    anew = replace(plain, anew=True, passes_unchanged=True)
    imported(plain)
    with (queues / "bikes").open("ab") as file:
        file.write(written(item(b"new")))
    for written_now in (2, 0):
        found = {one.queue: one for one in imported(anew)}
        assert (found["cars"].before, found["cars"].tally.imported) == (5, 0)
        assert found["bikes"].tally.imported == written_now
    with fjord.connect(daemon.url) as db:
        assert (db.jobs("cars").count().waiting, db.jobs("bikes").count().waiting) == (5, 3)


def test_an_import_anew_that_was_cut_short_loses_nothing_of_what_is_known_from_elsewhere(
    daemon: Daemon, tmp_path: Path
) -> None:
    for directory in ("queues", "copies"):
        fill(tmp_path / directory / "cars", numbered(MANY))
    imported(ImportOptions(directory=str(tmp_path / "queues"), url=daemon.url))
    copies = ImportOptions(
        directory=str(tmp_path / "copies"), url=daemon.url, anew=True, passes_unchanged=True
    )
    with pytest.raises(KeyboardInterrupt):
        imported(copies, interrupt)
    (outcome,) = imported(copies)
    assert 2000 <= outcome.before < MANY
    with fjord.connect(daemon.url) as db:
        assert db.jobs("cars").count().waiting == 2 * MANY


def test_a_queue_of_which_nothing_lives_gets_no_table(daemon: Daemon, queues: Path) -> None:
    (queues / "old").write_bytes(written(item(b"a", expiry_ms=ADD_MS)))
    for _ in range(2):
        ended = run("import", queues, "--to", daemon.url, "--queue", "old")
        assert ended.exit_code == 0
        assert "old: 1 item, 0 imported into jobs table old (1 expired)" in ended.stdout
    with fjord.connect(daemon.url) as db:
        assert db.tables() == []


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


def test_importer_that_is_killed_again_and_again_imports_each_item_once(
    daemon: Daemon, tmp_path: Path
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    seen = [0]
    with fjord.connect(daemon.url) as db:
        jobs = db.create_jobs("cars", merge=False)
        for _ in range(3):
            with (
                jobs.listen() as changes,
                importing(tmp_path / "queues", "--to", daemon.url) as importer,
            ):
                assert changes.wait(60) is not None, importer.communicate()
                importer.kill()
                assert importer.wait(timeout=60) == -signal.SIGKILL
            seen.append(jobs.count().waiting)
    assert seen == sorted(set(seen))
    assert seen[-1] < MANY
    ended = run("import", tmp_path / "queues", "--to", daemon.url)
    assert ended.exit_code == 0, ended.stderr
    assert f"({seen[-1]} imported before)" in ended.stdout
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_importer_outlives_a_daemon_that_is_killed_and_comes_back(
    daemon: Daemon, tmp_path: Path
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    port = daemon.port
    with fjord.connect(daemon.url) as db:
        stream = db.create_stream("cars")
        words = (tmp_path / "queues", "--to", daemon.url, "--as", "stream")
        with importing(*words) as importer:
            assert len(stream.read(1, wait=60)) == 1
            daemon.kill()
            daemon.start(port)
            told, problem = importer.communicate(timeout=120)
            assert (importer.returncode, problem) == (0, "")
    assert f"cars: {MANY} items, {MANY} imported into stream cars" in told
    assert read_all(daemon.url, "cars") == numbered(MANY)


def test_daemon_that_stays_away_is_told_and_the_next_run_goes_on(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    monkeypatch.setattr(limits, "REPLY_SECONDS_MAX", 2.0)
    port, options = daemon.port, ImportOptions(directory=str(tmp_path / "queues"), url=daemon.url)

    def kill_once(label: str, done: int, total: int) -> None:
        if begun(label) and done == 5000:
            daemon.kill()

    with pytest.raises(UnavailableError, match="run the same command again"):
        imported(options, kill_once)
    daemon.start(port)
    (outcome,) = imported(options)
    assert 5000 <= outcome.before < MANY
    assert outcome.tally.imported == MANY - outcome.before
    assert take_all(daemon.url, "cars") == numbered(MANY)


@pytest.mark.parametrize("is_anew", [False, True])
@pytest.mark.parametrize("way", list(Way))
def test_connections_that_break_anywhere_double_nothing(
    way: Way, daemon: Daemon, tmp_path: Path, *, is_anew: bool
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))

    def cut(label: str, done: int, total: int) -> None:
        if begun(label):
            proxy.arm(way, done % 3571 if way is Way.REQUEST else done % 97)

    with CuttingProxy(daemon.port) as proxy:
        directory = str(tmp_path / "queues")
        (outcome,) = imported(ImportOptions(directory=directory, url=proxy.url, anew=is_anew), cut)
        assert proxy.cuts > 3
    assert outcome.tally == (MANY, 0, 0)
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_interrupt_in_the_middle_loses_nothing(daemon: Daemon, tmp_path: Path) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    options = ImportOptions(directory=str(tmp_path / "queues"), url=daemon.url)
    with pytest.raises(KeyboardInterrupt):
        imported(options, interrupt)
    (outcome,) = imported(options)
    assert outcome.before >= 2000
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_an_import_that_was_cut_short_is_done_anew_and_known_then(
    daemon: Daemon, tmp_path: Path
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    plain = ImportOptions(directory=str(tmp_path / "queues"), url=daemon.url)
    with pytest.raises(KeyboardInterrupt):
        imported(plain, interrupt)
    with fjord.connect(daemon.url) as db:
        before = db.jobs("cars").count().waiting
        (anew,), (again,) = imported(replace(plain, anew=True)), imported(plain)
        assert (anew.before, anew.tally.imported, again.before) == (0, MANY, MANY)
        assert db.jobs("cars").count().waiting == before + MANY


def test_an_import_goes_on_where_its_directory_was_moved_to(daemon: Daemon, tmp_path: Path) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    with pytest.raises(KeyboardInterrupt):
        imported(ImportOptions(directory=str(tmp_path / "queues"), url=daemon.url), interrupt)
    moved = str((tmp_path / "queues").rename(tmp_path / "moved"))
    (outcome,) = imported(ImportOptions(directory=moved, url=daemon.url, moved=True))
    assert 2000 <= outcome.before < MANY
    (again,) = imported(ImportOptions(directory=moved, url=daemon.url))
    assert again.before == MANY
    assert take_all(daemon.url, "cars") == numbered(MANY)


@pytest.mark.parametrize("other", ["queues", "copies"])
def test_two_importers_at_a_time_import_each_item_once(
    daemon: Daemon, tmp_path: Path, other: str
) -> None:
    fill(tmp_path / "queues" / "cars", numbered(MANY))
    fill(tmp_path / "copies" / "cars", numbered(MANY))
    words = ("--to", daemon.url, "--moved")
    with (
        importing(tmp_path / "queues", *words) as first,
        importing(tmp_path / other, *words) as second,
    ):
        for one in (first, second):
            _, told = one.communicate(timeout=120)
            assert one.returncode == 0 or "somebody else imports this queue" in told
    assert run("import", tmp_path / "queues", *words).exit_code == 0
    assert take_all(daemon.url, "cars") == numbered(MANY)


def test_queue_that_changes_between_two_looks_is_refused(daemon: Daemon, queues: Path) -> None:
    def change(label: str, done: int, total: int) -> None:
        if label == "looking at cars":
            (queues / "cars").write_bytes(written(item(b"other")))

    with pytest.raises(FjordError, match="changed while they were read"):
        imported(ImportOptions(directory=str(queues), url=daemon.url, queues=("cars",)), change)
    assert take_all(daemon.url, "cars") == []


@pytest.mark.parametrize("is_anew", [False, True])
def test_what_expires_on_its_way_is_left_out(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_anew: bool
) -> None:
    class Behind(SystemClock):
        def wall_us(self) -> int:
            return super().wall_us() - 30_000_000

    (tmp_path / "queues").mkdir()
    made = (item(b"a"), item(b"b", expiry_ms=now_ms() - 15_000), item(b"c"))
    (tmp_path / "queues" / "cars").write_bytes(written(*made))
    monkeypatch.setattr(imports, "SystemClock", Behind)
    directory = str(tmp_path / "queues")
    (outcome,) = imported(ImportOptions(directory=directory, url=daemon.url, anew=is_anew))
    assert outcome.tally == (2, 1, 0)
    assert take_all(daemon.url, "cars") == [b"a", b"c"]
