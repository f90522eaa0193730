"""`fjord kestrel serve` in a process of its own, and clients as people use them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import memcache
import pytest
from pymemcache.client.base import Client

import fjord
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.kestrel.collection import Collection
from tests.acceptance.daemon import FJORD, Daemon

SERVE = [*FJORD, "kestrel", "serve", "--listen", "0", "--text", "0"]


class Serving:
    """A server on a directory, or on a daemon if an option says so."""

    def __init__(self, path: Path, *options: str) -> None:
        where = [] if "--to" in options else ["--dir", str(path)]
        self.log = path.parent / f"{path.name}.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*SERVE, *where, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.words = self.process.stdout.readline().split()
        assert self.words[:1] == ["ready"], self.log.read_text()
        self.port, self.text_port = (int(word.rpartition(":")[2]) for word in self.words[1:])

    def end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def serving(path: Path, *options: str) -> Iterator[Serving]:
    server = Serving(path, *options)
    try:
        yield server
    finally:
        if not server.process.stdout.closed:  # type: ignore[union-attr]
            server.end(signal.SIGTERM)


@contextlib.contextmanager
def raw(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        yield client


def ask(client: socket.socket, sent: bytes, expected: bytes) -> None:
    client.sendall(sent)
    found = b""
    while len(found) < len(expected):
        data = client.recv(len(expected) - len(found))
        if not data:
            break
        found += data
    assert found == expected


def test_raw_sockets_speak_both_protocols(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "queues") as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        ask(client, b"set q 0 0 5\r\nhello\r\n", b"STORED\r\n")
        ask(other, b"get q\n", b":hello\n")
        ask(client, b"get q\r\n", b"END\r\n")
        ask(other, b"put q:\nworld\n\n", b"+1\n")
        ask(client, b"get q/open\r\n", b"VALUE q 0 5\r\nworld\r\nEND\r\n")
        ask(client, b"get q/close\r\n", b"END\r\n")
        assert server.end(signal.SIGTERM) == 0


def test_waiting_get_is_served_by_another_connection(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "queues") as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        client.sendall(b"get q/t=60000\r\n")
        ask(other, b"put q:\nhello\n\n", b"+1\n")
        ask(client, b"", b"VALUE q 0 5\r\nhello\r\nEND\r\n")


def test_what_was_stored_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "queues"
    with serving(path) as server, raw(server.port) as client:
        ask(client, b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nSTORED\r\n")
        ask(client, b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(client, b"get q/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")
        server.end(signal.SIGKILL)
    with serving(path) as server, raw(server.port) as client:
        ask(client, b"get q\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")
        ask(client, b"get q\r\n", b"END\r\n")
        client.sendall(b"shutdown\r\n")
        assert server.process.wait(timeout=60) == 0
    collection = Collection(LocalDisk(), str(path), None, SystemClock())
    assert collection.names() == ["q"]
    assert collection.peek("q") is None
    collection.close()


def test_directory_is_served_once(tmp_path: Path) -> None:
    with serving(tmp_path / "queues"):
        command = [*SERVE, "--dir", str(tmp_path / "queues")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode != 0
        assert "use" in ended.stderr


def test_configuration_is_read_and_read_again(tmp_path: Path) -> None:
    config = tmp_path / "kestrel.json"
    config.write_text(json.dumps({"maxOpenTransactions": 2, "default": {"maxItems": 1}}))
    with (
        serving(tmp_path / "queues", "--config", str(config)) as server,
        raw(server.port) as client,
    ):
        ask(client, b"set q 0 0 1\r\na\r\nset q 0 0 1\r\nb\r\n", b"STORED\r\nNOT_STORED\r\n")
        config.write_text(json.dumps({"default": {"maxItems": 5}}))
        ask(client, b"reload\r\n", b"Reloaded config.\r\n")
        ask(client, b"set q 0 0 1\r\nb\r\n", b"STORED\r\n")
        ask(client, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(client, b"get q/open\r\n", b"VALUE q 0 1\r\nb\r\nEND\r\n")


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


def test_others_are_not_served(tmp_path: Path) -> None:
    command = [*FJORD, "kestrel", "serve", "--dir", str(tmp_path / "q"), "--listen", "0.0.0.0:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "loopback" in ended.stderr


def test_pymemcache_works_unchanged(tmp_path: Path) -> None:
    with serving(tmp_path / "queues", "--whole-keys") as server:
        client = Client(("127.0.0.1", server.port), timeout=60)
        assert client.set("q", b"one")  # without a reply, as is its default
        assert client.set("q", b"two", noreply=False)
        assert client.get("q/peek") == b"one"
        assert client.get("q") == b"one"
        assert client.get("q/open") == b"two"
        assert client.get("q/abort") is None
        assert client.get("q/t=1000/open") == b"two"
        assert client.get("q/close") is None
        assert client.get("q/t=1") is None
        assert client.set("q", b"late", expire=1000, noreply=False)
        stats = client.stats()
        assert stats[b"queue_q_items"] in (1, b"1")
        assert client.version().count(b".") == 2
        assert client.delete("q", noreply=False)
        client.flush_all()
        assert client.get("q") is None
        client.quit()
        client.close()


def test_python_memcached_works_unchanged(tmp_path: Path) -> None:
    with serving(tmp_path / "queues") as server:
        client = memcache.Client([f"127.0.0.1:{server.port}"], socket_timeout=60)
        assert client.set("q", b"one")
        assert client.set("q", b"two", time=1000)
        assert client.get("q/peek") == b"one"
        assert client.get("q") == b"one"
        assert client.get("q/open") == b"two"
        assert client.get("q/abort") is None
        assert client.get("q/t=1000/open") == b"two"
        assert client.get("q/close") is None
        assert client.get("q/t=1") is None
        ((_, stats),) = client.get_stats()
        assert stats["queue_q_items"] == "0"
        assert client.delete("q")
        client.disconnect_all()


def test_jobs_tables_are_served_as_queues(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--to", daemon.url) as server,
        raw(server.port) as client,
        raw(server.text_port) as other,
    ):
        ask(client, b"get q\r\nget q/peek\r\nget q/t=1\r\n", b"END\r\n" * 3)
        ask(client, b"set q 0 0 1\r\na\r\nset q 0 1000 1\r\nb\r\n", b"STORED\r\n" * 2)
        ask(client, b"set q 0 -1 1\r\nx\r\n", b"STORED\r\n")
        ask(client, b"get q/peek\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(client, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(client, b"get q/abort\r\n", b"END\r\n")
        ask(client, b"get q\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(other, b"get q\n", b":b\n")
        ask(other, b"get q\n", b"*\n")
        client.sendall(b"get q/t=60000\r\n")
        ask(other, b"put q:\nc\n\n", b"+1\n")
        ask(client, b"", b"VALUE q 0 1\r\nc\r\nEND\r\n")
        ask(client, b"set q 0 0 1\r\nd\r\n", b"STORED\r\n")
        ask(client, b"dump_stats q\r\n", b"queue 'q' {\r\n  items=1\r\n")
        ask(client, b"", b"  waiters=0\r\n  open_transactions=0\r\n}\r\nEND\r\n")
        large = bytes(1024 * 1024 + 1)
        ask(client, b"set q 0 0 %d\r\n%b\r\n" % (len(large), large), b"NOT_STORED\r\n")
        ask(client, b"flush q\r\nget q\r\ndelete q\r\n", b"END\r\nEND\r\nDELETED\r\n")
        with fjord.connect(daemon.url) as db:
            assert [table.name for table in db.tables() if table.kind == "jobs"] == []
            db.jobs("mail", merge=False).push_many(values=["hello"])
        ask(client, b"get mail\r\n", b"VALUE mail 0 5\r\nhello\r\nEND\r\n")


def test_open_job_of_a_client_that_goes_is_given_back(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "data") as daemon,
        serving(tmp_path / "queues", "--to", daemon.url) as server,
        raw(server.port) as client,
    ):
        with raw(server.port) as holder:
            ask(holder, b"set q 0 0 1\r\na\r\n", b"STORED\r\n")
            ask(holder, b"get q/open\r\n", b"VALUE q 0 1\r\na\r\nEND\r\n")
            client.sendall(b"get q/t=60000/open\r\n")
        ask(client, b"", b"VALUE q 0 1\r\na\r\nEND\r\n")
        ask(client, b"get q/close\r\nget q/close\r\n", b"END\r\nEND\r\n")
        port = daemon.port
        daemon.kill()
        daemon.start(port)
        ask(client, b"get q\r\nset q 0 0 1\r\nb\r\n", b"END\r\nSTORED\r\n")


@pytest.mark.parametrize(
    "options", [[], ["--dir", "x", "--to", "fjord://127.0.0.1:1"], ["--to", "http://x"]]
)
def test_queues_are_in_one_place(options: list[str]) -> None:
    ended = subprocess.run(
        [*SERVE, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
