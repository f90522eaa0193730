"""`fjord kestrel serve` in a process of its own: where queues are, and how it starts and ends."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

import fjord
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.kestrel.collection import Collection
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.kestrel_server import SERVE, expect, raw, serving


def test_raw_sockets_speak_both_protocols(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "queues", "--exact") as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        expect(client, b"set q 0 0 5\r\nhello\r\n", b"STORED\r\n")
        expect(other, b"get q\n", b":hello\n")
        expect(client, b"get q\r\n", b"END\r\n")
        expect(other, b"put q:\nworld\n\n", b"+1\n")
        expect(client, b"get q/open\r\n", b"VALUE q 0 5\r\nworld\r\nEND\r\n")
        expect(client, b"get q/close\r\n", b"END\r\n")
        assert server.end(signal.SIGTERM) == 0


def test_waiting_get_is_served_by_another_connection(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "queues", "--exact") as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        client.sendall(b"get q/t=60000\r\n")
        expect(other, b"put q:\nhello\n\n", b"+1\n")
        expect(client, b"", b"VALUE q 0 5\r\nhello\r\nEND\r\n")


def test_what_was_stored_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "queues"
    with serving(path, "--exact") as server, raw(server.port) as client:
        expect(client, b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nSTORED\r\n")
        expect(client, b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")
        server.end(signal.SIGKILL)
    with serving(path, "--exact") as server, raw(server.port) as client:
        expect(client, b"get q\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")
        expect(client, b"get q\r\n", b"END\r\n")
        client.sendall(b"shutdown\r\n")
        assert server.process.wait(timeout=60) == 0
    collection = Collection(LocalDisk(), str(path), None, SystemClock())
    assert collection.names() == ["q"]
    assert collection.peek("q") is None
    collection.close()


def test_directory_is_served_once(tmp_path: Path) -> None:
    with serving(tmp_path / "queues", "--exact"):
        command = [*SERVE, "--dir", str(tmp_path / "queues")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode != 0
        assert "use" in ended.stderr


def test_configuration_is_read_and_read_again(tmp_path: Path) -> None:
    config = tmp_path / "kestrel.json"
    config.write_text(json.dumps({"maxOpenTransactions": 2, "default": {"maxItems": 1}}))
    with (
        serving(tmp_path / "queues", "--exact", "--config", str(config)) as server,
        raw(server.port) as client,
    ):
        expect(client, b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nNOT_STORED\r\n")
        config.write_text(json.dumps({"default": {"maxItems": 5}}))
        expect(client, b"reload\r\n", b"Reloaded config.\r\n")
        expect(client, b"set q 0 0 1\r\nb\r\n", b"STORED\r\n")
        expect(client, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"maxOpenTransactions": 0}', "maxOpenTransactions is a number from 1"),
        ('{"default": {"what": 1}}', "what"),
        (None, "cannot read"),
    ],
)
def test_bad_configuration_is_told(tmp_path: Path, text: str | None, reason: str) -> None:
    config = tmp_path / "kestrel.json"
    if text is not None:
        config.write_text(text)
    command = [*SERVE, "--dir", str(tmp_path / "queues"), "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert reason in ended.stderr
    assert not (tmp_path / "queues").exists()


@pytest.mark.parametrize("is_text", [False, True], ids=["memcache", "text"])
def test_shutdown_ends_the_server(tmp_path: Path, is_text: bool) -> None:
    with serving(tmp_path / "queues") as server:
        with raw(server.text_port if is_text else server.port) as client:
            expect(client, b"shutdown\r\n", b"+0\n" if is_text else b"")
            assert client.recv(1) == b""
        assert server.process.wait(timeout=60) == 0


def test_reload_of_what_is_no_configuration_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "kestrel.json"
    config.write_text("{}")
    with serving(tmp_path / "queues", "--config", str(config)) as server:
        with raw(server.port) as client:
            config.write_text("{")
            expect(client, b"reload\r\n", b"SERVER_ERROR\r\n")
            assert client.recv(1) == b""
        with raw(server.port) as client:
            expect(client, b"set q 0 0 1\r\nx\r\n", b"STORED\r\n")


def test_others_are_not_served(tmp_path: Path) -> None:
    command = [*FJORD, "kestrel", "serve", "--dir", str(tmp_path / "q"), "--listen", "0.0.0.0:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "loopback" in ended.stderr


def test_jobs_tables_are_served_as_queues(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--exact", "--to", daemon.url) as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        expect(client, b"get q\r\nget q/peek\r\nget q/t=1\r\n", b"END\r\n" * 3)
        expect(client, b"set q 0 0 1\r\na\r\nset q 0 1000 1\r\nb\r\n", b"STORED\r\n" * 2)
        expect(client, b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n")
        expect(client, b"get q/peek\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/abort\r\n", b"END\r\n")
        expect(client, b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(other, b"get q\n", b":b\n")
        expect(other, b"get q\n", b"*\n")
        client.sendall(b"get q/t=60000\r\n")
        expect(other, b"put q:\nc\n\n", b"+1\n")
        expect(client, b"", b"VALUE q 0 1\r\nc\r\nEND\r\n")
        expect(client, b"set q 0 0 1\r\nd\r\n", b"STORED\r\n")
        expect(client, b"dump_stats q\r\n", b"queue 'q' {\r\n  items=1\r\n")
        expect(client, b"", b"  waiters=0\r\n  open_transactions=0\r\n}\r\nEND\r\n")
        large = bytes(1024 * 1024 + 1)
        expect(client, b"set q 0 0 %d\r\n%b\r\n" % (len(large), large), b"NOT_STORED\r\n")
        expect(client, b"flush q\r\nget q\r\ndelete q\r\n", b"END\r\nEND\r\nDELETED\r\n")
        with fjord.connect(daemon.url) as db:
            assert [table.name for table in db.tables() if table.kind == "jobs"] == []
            db.jobs("mail", merge=False).push_many(values=["hello"])
        expect(client, b"get mail\r\n", b"VALUE mail 0 5\r\nhello\r\nEND\r\n")


def test_tables_that_are_no_queues_are_not_deleted(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--to", daemon.url) as server,
        raw(server.port) as client,
        fjord.connect(daemon.url) as db,
    ):
        db.kv("users").set("ada", 1)
        db.create_stream("log")
        db.jobs("pages").push("http://example.com/a")  # which are merged: no queue
        for name in (b"users", b"log", b"pages", b"none"):
            expect(client, b"delete %b\r\n" % name, b"DELETED\r\n")
        expect(client, b"flush pages\r\nflush_all\r\n", b"END\r\nOK\r\n")
        assert db.jobs("pages").count().waiting == 1
        assert db.kv("users").get("ada") == 1
        assert db.table("log").kind == "stream"


def test_table_that_somebody_drops_is_made_again(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--to", daemon.url) as server,
        raw(server.port) as client,
        fjord.connect(daemon.url) as db,
    ):
        for requests in (b"", b"get q\r\n", b"get q/peek\r\n", b"flush q\r\n"):
            expect(client, b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
            db.drop("q")
            expect(client, requests, b"END\r\n" if requests else b"")
        expect(client, b"set q 0 0 1\r\nb\r\n", b"STORED\r\n")
        expect(client, b"get q\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")


def test_open_job_of_a_client_that_goes_is_given_back(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--exact", "--to", daemon.url) as server,
        raw(server.port) as client,
    ):
        with raw(server.port) as holder:
            expect(holder, b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
            expect(holder, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
            client.sendall(b"get q/t=60000/open\r\n")
        expect(client, b"", b"VALUE q 0 1\r\na\r\nEND\r\n")
        expect(client, b"get q/close\r\nget q/close\r\n", b"END\r\nEND\r\n")
        port = daemon.port
        daemon.kill()
        daemon.start(port)
        expect(client, b"get q\r\nset q 0 0 1\r\nb\r\n", b"END\r\nSTORED\r\n")


@pytest.mark.parametrize(
    "options", [[], ["--dir", "x", "--to", "fjord://127.0.0.1:1"], ["--to", "http://x"]]
)
def test_queues_are_in_one_place(options: list[str]) -> None:
    ended = subprocess.run(
        [*SERVE, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
