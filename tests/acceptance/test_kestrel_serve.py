"""`fjord kestrel serve` in a process of its own: where queues are, and its settings."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.kestrel import service
from fjord.kestrel.collection import Collection
from tests.acceptance import kestrel_server
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.kestrel_server import SERVE, Serving, expect, raw, serving
from tests.unit.kestrel.serving_world import END, REFUSED, STORED, put, value

A = value(b"q", b"a")
PUT = put(b"q", b"a")


def configured(tmp_path: Path, **given: object) -> tuple[str, str, str]:
    path = tmp_path / "kestrel.json"
    path.write_text(json.dumps(given))
    return "--exact", "--config", str(path)


def check_refused(reason: str, *command: str) -> None:
    """Ensures that a server says so and does not start."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr


# -- on files -------------------------------------------------------------------------------------


def test_what_was_stored_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "queues"
    with serving(path, "--exact") as server, raw(server.port) as client:
        expect(client, PUT + put(b"q", b"b"), STORED * 2)
        check_refused("use", *SERVE, "--dir", str(path))  # it is served already
        expect(client, b"get q\r\n", A)
        expect(client, b"get q/open\r\n", value(b"q", b"b"))
        server.end(signal.SIGKILL)
    with serving(path, "--exact") as server, raw(server.port) as client:
        expect(client, b"get q\r\nget q\r\n", value(b"q", b"b") + END)
        client.sendall(b"shutdown\r\n")
        assert server.process.wait(timeout=60) == 0
    collection = Collection(LocalDisk(), str(path), None, SystemClock())
    assert (collection.names(), collection.peek("q")) == (["q"], None)
    collection.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ('{"maxOpenTransactions": 0}', "maxOpenTransactions is a number from 1"),
        ('{"statusFile": "QUEUES/status"}', "would be taken for a queue"),
        (None, "cannot be read"),
    ],
)
def test_bad_configuration_is_told(tmp_path: Path, text: str | None, reason: str) -> None:
    path, config = tmp_path / "queues", tmp_path / "kestrel.json"
    if text is not None:
        config.write_text(text.replace("QUEUES", str(path)))
    check_refused(reason, *SERVE, "--dir", str(path), "--config", str(config))
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("", "--dir"),
        ("--dir x --to fjord://127.0.0.1:1", "--dir"),
        ("--to http://x", "http://x"),
        ("--dir x --listen 0.0.0.0:0", "loopback"),
    ],
)
def test_wrong_use_is_told(options: str, reason: str) -> None:
    check_refused(reason, *FJORD, "kestrel", "serve", *options.split())


def test_configuration_is_read_and_read_again(tmp_path: Path) -> None:
    options = configured(tmp_path, default={"maxItems": 1}, maxOpenTransactions=2)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, PUT * 2, STORED + b"NOT_STORED\r\n")
        configured(tmp_path, default={"maxItems": 99}, maxOpenTransactions=2)
        expect(client, b"reload\r\n", b"Reloaded config.\r\n")
        expect(client, PUT, STORED)
        expect(client, b"get q/open\r\nget q/open\r\nget q/close\r\n", A + A + END)
        (tmp_path / "kestrel.json").write_text("{")
        expect(client, b"reload\r\n", REFUSED)
        assert client.recv(1) == b""
        with raw(server.port) as other:
            expect(other, PUT, STORED)


def test_status_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "run" / "status"
    options = configured(tmp_path, statusFile=str(file), defaultStatus="readonly")
    for number, sent, told, kept in (
        (signal.SIGTERM, b"status\r\nstatus up\r\n", b"READONLY\r\nEND\r\n", "Up\n"),
        (signal.SIGKILL, b"status\r\nstatus quiescent\r\n", b"UP\r\nEND\r\n", "Quiescent\n"),
        (signal.SIGTERM, b"status\r\nget q\r\n", b"QUIESCENT\r\n" + REFUSED, "Quiescent\n"),
    ):
        with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
            expect(client, sent, told)
            assert file.read_text() == kept
            server.end(number)
    file.write_text("Down\n")
    options = configured(tmp_path, statusFile=str(file), statusChangeGracePeriod=3_600_000)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        assert "the file keeps no status" in server.log.read_text()
        expect(client, b"status readonly\r\nstatus\r\n" + PUT, b"END\r\nREADONLY\r\nSTORED\r\n")


def test_limits_are_those_of_the_configuration(tmp_path: Path) -> None:
    limits = {"connectionLimitRefuseWrites": 1, "connectionLimitRefuseReads": 2}
    options = configured(tmp_path, **limits)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, PUT, STORED)
        with raw(server.port) as second:
            expect(second, b"get q/peek\r\n", A)
            with raw(server.port) as third:
                expect(third, b"get q\r\n", REFUSED)
            expect(client, PUT, REFUSED)


# -- on tables ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("tables") / "data") as daemon:
        yield daemon


@pytest.fixture
def server(daemon: Daemon, tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "queues", "--to", daemon.url) as server:
        yield server


def test_jobs_tables_are_served_as_queues(daemon: Daemon, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "queues", "--exact", "--to", daemon.url) as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        expect(client, b"get q\r\nget q/peek\r\nget q/t=1\r\n", END * 3)
        expect(client, PUT + b"set q 0 1000 1\r\nb\r\n", STORED * 2)
        expect(client, b"set q 0 -1 1\r\nx\r\n", STORED)
        expect(client, b"get q/peek\r\nget q/open\r\n", A * 2)
        expect(client, b"get q/abort\r\nget q\r\n", END + A)
        expect(other, b"get q\nget q\n", b":b\n*\n")
        client.sendall(b"get q/t=60000\r\n")
        expect(other, b"put q:\nc\n\n", b"+1\n")
        expect(client, b"", value(b"q", b"c"))
        expect(client, PUT, STORED)
        expect(client, b"dump_stats q\r\n", b"queue 'q' {\r\n  items=1\r\n")
        expect(client, b"", b"  waiters=0\r\n  open_transactions=0\r\n}\r\nEND\r\n")
        expect(client, put(b"q", bytes(1024 * 1024 + 1)), b"NOT_STORED\r\n")
        expect(client, b"flush q\r\nget q\r\ndelete q\r\n", END * 2 + b"DELETED\r\n")
        with fjord.connect(daemon.url) as db:
            assert [table.name for table in db.tables() if table.kind == "jobs"] == []
            db.jobs("mail", merge=False).push_many(values=["hello"])
        expect(client, b"get mail\r\n", value(b"mail", b"hello"))


def test_tables_that_are_no_queues_are_not_deleted(daemon: Daemon, server: Serving) -> None:
    with raw(server.port) as client, fjord.connect(daemon.url) as db:
        db.kv("users").set("ada", 1)
        db.create_stream("log")
        db.jobs("pages").push("http://example.com/a")  # which are merged: no queue
        for name in (b"users", b"log", b"pages", b"none"):
            expect(client, b"delete %b\r\n" % name, b"DELETED\r\n")
        expect(client, b"flush pages\r\nflush_all\r\n", b"END\r\nOK\r\n")
        assert db.jobs("pages").count().waiting == 1
        assert db.kv("users").get("ada") == 1
        assert db.table("log").kind == "stream"


def test_table_that_somebody_drops_is_made_again(daemon: Daemon, server: Serving) -> None:
    with raw(server.port) as client, fjord.connect(daemon.url) as db:
        for requests in (b"", b"get q\r\n", b"get q/peek\r\n", b"flush q\r\n"):
            expect(client, PUT, STORED)
            db.drop("q")
            expect(client, requests, END if requests else b"")
        expect(client, PUT + b"get q\r\n", STORED + A)


def test_open_job_of_a_client_that_goes_is_given_back(daemon: Daemon, server: Serving) -> None:
    with raw(server.port) as client:
        with raw(server.port) as holder:
            expect(holder, PUT + b"get q/open\r\n", STORED + b"VALUE q/open 0 1\r\na\r\nEND\r\n")
            client.sendall(b"get q/t=60000/open\r\n")
        expect(client, b"", b"VALUE q/t=60000/open 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/close\r\nget q/close\r\n", END * 2)
        port = daemon.port
        daemon.kill()
        daemon.start(port)
        expect(client, b"get q\r\n" + PUT, END + STORED)


# -- few files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "asked", "connections", "queues"),
    [
        (20_000, 10_000, 10_000, 4920),
        (1024, 10_000, 648, 108),
        (limits.FILES_RESERVED, 10_000, 3, 0),
        (1_000_000, 1, 1, 499_919),
    ],
)
def test_files_are_shared(files: int, asked: int, connections: int, queues: int) -> None:
    assert service.shares(files, asked) == (connections, queues)


@pytest.mark.parametrize(
    ("queues", "connections"), [(0, 648), (108, 648), (109, 646), (400, 64), (431, 4), (900, 4)]
)
def test_connections_give_way_to_queues_that_are_there(queues: int, connections: int) -> None:
    assert service.shares(1024, 10_000, queues)[0] == connections


def limited(files: int) -> list[str]:
    """Returns the beginning of a command that may have so many files open."""
    limit = f"resource.setrlimit({resource.RLIMIT_NOFILE}, ({files},) * 2)"
    code = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code]


def test_more_queues_than_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(70):
        (tmp_path / f"q{number}").write_bytes(b"")
    monkeypatch.setattr(kestrel_server, "SERVE", [*limited(100), *kestrel_server.SERVE])
    serve = [*kestrel_server.SERVE, "--dir", str(tmp_path)]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        f"fjord: {tmp_path} has 70 queues, and each has a file open: a server needs 102 open files "
        "at least, and the system allows it 100; allow more, with ulimit -n or LimitNOFILE= of "
        "systemd"
    )
    assert len(list(tmp_path.iterdir())) == 70
    for number in (68, 69):
        (tmp_path / f"q{number}").unlink()
    with serving(tmp_path) as server, raw(server.port) as client:
        expect(client, put(b"q67", b"x") + b"get q67\r\n", STORED + value(b"q67", b"x"))


def test_client_that_makes_many_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = limits.FILES_RESERVED + 40
    monkeypatch.setattr(kestrel_server, "SERVE", [*limited(files), *kestrel_server.SERVE])
    with serving(tmp_path / "queues") as server:
        with raw(server.port) as client:
            for number in range(5):
                expect(client, put(b"q%d" % number, b"x"), STORED)
            expect(client, put(b"q5", b"x"), REFUSED)
        with raw(server.port) as client:
            expect(client, put(b"q0", b"y"), STORED)
            expect(client, b"delete q1\r\n", b"DELETED\r\n")
            expect(client, put(b"q5", b"x"), STORED)
        assert server.process.poll() is None
