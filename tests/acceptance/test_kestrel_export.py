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
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import FjordError, UnavailableError
from fjord.kestrel import collection
from fjord.kestrel.exporter import ExportOptions, export
from tests.acceptance.daemon import Daemon
from tests.acceptance.kestrel_queues import (
    command,
    fill,
    in_queue,
    item,
    numbered,
    run,
    take_all,
    written,
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "queues"


def data_of(directory: Path, queue: str) -> list[bytes]:
    return [bytes(one.data) for one in in_queue(directory, queue)]


def files(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir() if "~~" not in one.name)


def push(url: str, table: str, values: list[bytes]) -> None:
    with fjord.connect(url) as db:
        db.jobs(table, merge=False).push_many(values=values)


def options(daemon: Daemon, directory: Path, table: str = "cars") -> ExportOptions:
    return ExportOptions(
        table=table,
        url=daemon.url,
        directory=str(directory),
        queue="",
        after=None,
        subscriber="",
        appends=False,
    )


# -- jobs -----------------------------------------------------------------------------------------


def test_jobs_become_a_queue_as_they_would_be_handed_out(daemon: Daemon, directory: Path) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    with fjord.connect(daemon.url) as db:
        jobs = db.jobs("cars", merge=False)
        jobs.push_many(values=[b"taken", b"taken, too"], priority=0)
        assert len(jobs.next(2)) == 2
        jobs.push_many(values=[b"usual", b"next"])
        jobs.push_many(values=[b"first"], priority=1, expires_at=later)
        jobs.push_many(values=[b"not yet"], priority=0, delay=3600)
        inserted = [job.inserted_at for job in jobs.peek(10)]
    words = command("export", "cars", "--from", daemon.url, "--dir", directory)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "cars: 6 items exported to queue cars, 162 bytes\n"
    found = in_queue(directory, "cars")
    values = [b"taken", b"taken, too", b"first", b"usual", b"next", b"not yet"]
    assert [one.data for one in found] == values
    assert [one.expiry_ms for one in found] == [0, 0, later.timestamp() * 1000, 0, 0, 0]
    assert {one.xid for one in found} == {0}
    dates_ms = {int(one.timestamp() * 1000) for one in inserted}
    assert {one.add_ms for one in found[2:]} == dates_ms
    with fjord.connect(daemon.url) as db:
        assert db.jobs("cars").count() == (4, 2, 0)  # as before
    assert run("verify", directory).exit_code == 0


def test_values_of_all_types_are_items(daemon: Daemon, directory: Path) -> None:
    with fjord.connect(daemon.url) as db:
        db.jobs("mixed", merge=False).push_many(values=[None, b"\0", "\u00e9", 7, 1.5, True])
    ended = run("export", "mixed", "--from", daemon.url, "--dir", directory, "--json")
    assert json.loads(ended.stdout) == {
        "table": "mixed",
        "queue": "mixed",
        "items": 6,
        "expired": 0,
        "bytes": 137,
    }
    expected = [b"", b"\0", "\u00e9".encode(), b"7", b"1.5", b"True"]
    assert data_of(directory, "mixed") == expected


def test_what_was_exported_is_imported_as_it_was(daemon: Daemon, directory: Path) -> None:
    values = numbered(5000)
    push(daemon.url, "cars", values)
    words = ("--from", daemon.url, "--dir", directory, "--queue", "copy")
    assert run("export", "cars", *words).exit_code == 0
    assert run("import", directory, "--to", daemon.url).exit_code == 0
    assert take_all(daemon.url, "copy") == take_all(daemon.url, "cars") == values


def test_what_was_imported_is_exported_as_it_was(daemon: Daemon, directory: Path) -> None:
    fill(directory / "cars", numbered(5000))
    assert run("import", directory, "--to", daemon.url).exit_code == 0
    other = directory.parent / "other"
    assert run("export", "cars", "--from", daemon.url, "--dir", other).exit_code == 0
    assert (other / "cars").read_bytes() == (directory / "cars").read_bytes()


def test_jobs_that_change_meanwhile_are_refused(daemon: Daemon, directory: Path) -> None:
    push(daemon.url, "cars", numbered(5000))

    def work(done: int, total: int | None) -> None:
        with fjord.connect(daemon.url) as db:
            db.jobs("cars").next(1)

    with pytest.raises(FjordError, match="changed while it was read"):
        export(options(daemon, directory), work)
    assert files(directory) == []


def test_other_tables_may_change_meanwhile(daemon: Daemon, directory: Path) -> None:
    push(daemon.url, "cars", numbered(3))

    def work(done: int, total: int | None) -> None:
        push(daemon.url, "bikes", [b"x"])

    assert export(options(daemon, directory), work).items == 3


def test_daemon_that_dies_meanwhile_leaves_nothing(
    daemon: Daemon, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(daemon.url, "cars", numbered(5000))
    monkeypatch.setattr(limits, "REPLY_SECONDS_MAX", 1.0)

    def kill(done: int, total: int | None) -> None:
        if done == 2000:
            daemon.kill()

    with pytest.raises(UnavailableError):
        export(options(daemon, directory), kill)
    assert [one.name for one in directory.iterdir() if one.name != "~~lock"] == []


# -- streams --------------------------------------------------------------------------------------


def test_messages_of_a_stream_become_a_queue(daemon: Daemon, directory: Path) -> None:
    with fjord.connect(daemon.url) as db:
        stream = db.stream("log")
        seqs = [stream.append(value) for value in numbered(4)]
        reader = stream.subscriber("worker")
        reader.ack(seqs[2])
    words = ("--from", daemon.url, "--dir", directory)
    assert run("export", "log", *words).exit_code == 0
    assert data_of(directory, "log") == numbered(4)
    assert run("export", "log", *words, "--queue", "a", "--after", str(seqs[0])).exit_code == 0
    assert data_of(directory, "a") == numbered(3, first=1)
    ended = run("export", "log", *words, "--queue", "b", "--subscriber", "worker")
    assert ended.stdout == "log: 1 item exported to queue b, 22 bytes\n"
    assert data_of(directory, "b") == numbered(1, first=3)
    ended = run("export", "log", *words, "--queue", "c", "--subscriber", "nobody")
    assert (ended.exit_code, "no subscriber nobody" in ended.stderr) == (1, True)
    ended = run("export", "log", *words, "--subscriber", "worker", "--after", "1")
    assert ended.exit_code == 2


def test_only_what_is_there_of_a_stream_of_keys_is_exported(
    daemon: Daemon, directory: Path
) -> None:
    with fjord.connect(daemon.url) as db:
        stream = db.create_stream("pages", mode="latest")
        for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")):
            stream.append(value, key)
        stream.delete("c")
    assert run("export", "pages", "--from", daemon.url, "--dir", directory).exit_code == 0
    assert data_of(directory, "pages") == [b"2", b"3"]


def test_many_messages_are_exported_in_order(daemon: Daemon, directory: Path) -> None:
    values = numbered(50_000)
    with fjord.connect(daemon.url) as db:
        db.stream("log").append_many(values)
    assert run("export", "log", "--from", daemon.url, "--dir", directory).exit_code == 0
    assert data_of(directory, "log") == values


# -- queues that are there ------------------------------------------------------------------------


def test_queue_that_has_items_is_not_touched_unless_asked_for(
    daemon: Daemon, directory: Path
) -> None:
    directory.mkdir()
    (directory / "cars").write_bytes(written(item(b"old")))
    push(daemon.url, "cars", numbered(3))
    words = ("export", "cars", "--from", daemon.url, "--dir", directory)
    ended = run(*words)
    assert (ended.exit_code, "--append" in ended.stderr) == (1, True)
    assert data_of(directory, "cars") == [b"old"]
    assert run(*words, "--append").exit_code == 0
    assert data_of(directory, "cars") == [b"old", *numbered(3)]
    assert run(*words, "--append").exit_code == 0
    assert data_of(directory, "cars") == [b"old", *numbered(3), *numbered(3)]
    opened = collection.Collection(LocalDisk(), str(directory), None, SystemClock())
    assert opened.alerts() == []
    assert opened.stats("cars")["items"] == 7
    opened.close()


def test_what_cannot_be_exported_is_refused(daemon: Daemon, directory: Path) -> None:
    push(daemon.url, "cars", [b"1"])
    with fjord.connect(daemon.url) as db:
        db.kv("titles").set("a", "A")
    words = ("--from", daemon.url, "--dir", directory)
    assert run("export", "boats", *words).exit_code == 1
    assert run("export", "titles", *words).exit_code == 2
    assert run("export", "cars", *words, "--queue", "a.b").exit_code == 2
    assert run("export", "cars", *words, "--after", "1").exit_code == 2
    assert run("export", "cars", "--from", "nonsense://", "--dir", directory).exit_code == 2
    assert run("export", "cars", "--from", daemon.url, "--dir", "").exit_code == 2
    directory.mkdir(exist_ok=True)
    with collection.locked(LocalDisk(), str(directory)):
        assert run("export", "cars", *words).exit_code == 2
    assert files(directory) == []
