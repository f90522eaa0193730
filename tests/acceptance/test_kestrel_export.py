"""`fjord kestrel export`: a table becomes a queue, all of it or nothing, and comes back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.disk import LocalDisk
from fjord.errors import FjordError, UnavailableError
from fjord.kestrel import collection
from fjord.kestrel.exporter import ExportOptions, export
from tests.acceptance.daemon import Daemon
from tests.acceptance.kestrel_queues import (
    command,
    fill,
    in_queue,
    numbered,
    run,
    take_all,
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests here; each has tables of its own."""
    with Daemon(tmp_path_factory.mktemp("export") / "data") as one:
        yield one


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as db:
        yield db


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "queues"


def data_of(directory: Path, queue: str) -> list[bytes]:
    return [bytes(one.data) for one in in_queue(directory, queue)]


def push(db: fjord.Database, table: str, values: list[bytes]) -> None:
    db.jobs(table, merge=False).push_many(values=values)


def options(daemon: Daemon, directory: Path, table: str) -> ExportOptions:
    return ExportOptions(table=table, url=daemon.url, directory=str(directory))


def test_jobs_become_a_queue_in_order(daemon: Daemon, db: fjord.Database, directory: Path) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    jobs = db.jobs("cars", merge=False)
    jobs.push_many(values=[b"taken", b"taken, too"], priority=0)
    assert len(jobs.next(2)) == 2
    jobs.push_many(values=[b"usual", b"next"])
    jobs.push_many(values=[b"first"], priority=1, expires_at=later)
    jobs.push_many(values=[b"not yet"], priority=0, delay=3600)
    inserted = [job.inserted_at for job in jobs.peek(10)]
    asked = command("export", "cars", "--from", daemon.url, "--dir", directory)
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "cars: 6 items exported to queue cars, 162 bytes\n"
    found = in_queue(directory, "cars")
    values = [b"taken", b"taken, too", b"first", b"usual", b"next", b"not yet"]
    assert [one.data for one in found] == values
    assert [one.expiry_ms for one in found] == [0, 0, later.timestamp() * 1000, 0, 0, 0]
    assert {one.xid for one in found} == {0}
    dates_ms = {int(one.timestamp() * 1000) for one in inserted}
    assert {one.add_ms for one in found[2:]} == dates_ms
    assert jobs.count() == (4, 2, 0)  # as before
    assert run("verify", directory).exit_code == 0
    words = ("export", "cars", "--from", daemon.url, "--dir", directory)
    again = run(*words)
    assert (again.exit_code, "--append" in again.stderr) == (1, True)
    assert run(*words, "--append").exit_code == 0
    assert data_of(directory, "cars") == values * 2


def test_values_of_all_types_are_items(daemon: Daemon, db: fjord.Database, directory: Path) -> None:
    db.jobs("mixed", merge=False).push_many(values=[None, b"\0", "\u00e9", 7, 1.5, True])
    ended = run("export", "mixed", "--from", daemon.url, "--dir", directory, "--json")
    counts = {"items": 6, "expired": 0, "bytes": 137}
    assert json.loads(ended.stdout) == {"table": "mixed", "queue": "mixed", **counts}
    expected = [b"", b"\0", "\u00e9".encode(), b"7", b"1.5", b"True"]
    assert data_of(directory, "mixed") == expected


def test_import_and_export_change_nothing(daemon: Daemon, directory: Path) -> None:
    values, other = numbered(5000), directory.parent / "other"
    fill(directory / "vans", values)
    assert run("import", directory, "--to", daemon.url).exit_code == 0
    words = ("--from", daemon.url, "--dir", other, "--queue", "copy")
    assert run("export", "vans", *words).exit_code == 0
    assert (other / "copy").read_bytes() == (directory / "vans").read_bytes()
    assert run("import", other, "--to", daemon.url).exit_code == 0
    assert take_all(daemon.url, "copy") == take_all(daemon.url, "vans") == values


def test_jobs_that_change_are_refused(daemon: Daemon, db: fjord.Database, directory: Path) -> None:
    push(db, "lorries", numbered(5000))

    def take(done: int, total: int | None) -> None:
        db.jobs("lorries").next(1)

    with pytest.raises(FjordError, match="changed while it was read"):
        export(options(daemon, directory, "lorries"), take)
    assert [one.name for one in directory.iterdir() if one.name != "~~lock"] == []
    found = export(options(daemon, directory, "lorries"), lambda *_: push(db, "bikes", [b"x"]))
    assert found.items == 5000


def test_daemon_that_dies_meanwhile_leaves_nothing(
    daemon: Daemon, db: fjord.Database, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(db, "trams", numbered(5000))
    monkeypatch.setattr(limits, "REPLY_SECONDS_MAX", 1.0)
    port = daemon.port

    def kill(done: int, total: int | None) -> None:
        if done == 2000:
            daemon.kill()

    with pytest.raises(UnavailableError):
        export(options(daemon, directory, "trams"), kill)
    assert [one.name for one in directory.iterdir() if one.name != "~~lock"] == []
    daemon.start(port)


def test_messages_become_a_queue(daemon: Daemon, db: fjord.Database, directory: Path) -> None:
    stream, values = db.stream("log"), numbered(50_000)
    first = stream.append(values[0])
    stream.append_many(values[1:])
    words = ("--from", daemon.url, "--dir", directory)
    assert run("export", "log", *words).exit_code == 0
    assert data_of(directory, "log") == values
    assert run("export", "log", *words, "--queue", "a", "--after", str(first)).exit_code == 0
    assert data_of(directory, "a") == values[1:]
    # Of a stream of keys there is what is still there.
    pages = db.create_stream("pages", mode="latest")
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")):
        pages.append(value, key)
    pages.delete("c")
    assert run("export", "pages", *words).exit_code == 0
    assert data_of(directory, "pages") == [b"2", b"3"]


def test_wrong_use_is_refused(daemon: Daemon, db: fjord.Database, directory: Path) -> None:
    push(db, "ships", [b"1"])
    db.kv("titles").set("a", "A")
    words = ("--from", daemon.url, "--dir", directory)
    for code, given in (
        (1, ("boats", *words)),
        (2, ("titles", *words)),
        (2, ("ships", *words, "--queue", "a.b")),
        (2, ("ships", *words, "--after", "1")),
        (2, ("ships", "--from", "nonsense://", "--dir", directory)),
        (2, ("ships", "--from", daemon.url, "--dir", "")),
    ):
        assert run("export", *given).exit_code == code
    directory.mkdir(exist_ok=True)
    with collection.locked(LocalDisk(), str(directory)):
        assert run("export", "ships", *words).exit_code == 2
    assert [one.name for one in directory.iterdir() if one.name != "~~lock"] == []
