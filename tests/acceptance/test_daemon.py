"""The daemon as its users meet it: real processes, real bytes, real signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord import limits
from fjord.client.blocking.database import Database
from fjord.client.connection import Connection
from fjord.columns import Strings
from fjord.commands import Get
from fjord.errors import UnavailableError
from tests.acceptance.daemon import FJORD, Daemon
from tests.unit.wire.streams import sent

# SET k="v" as a string, overwrite and persist, identifier 0x1234.
SEED_SET = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
SEED_GET = bytes.fromhex("464a00010003123504000000000000000000016b")
SEED_NOP = bytes.fromhex("464a00010000000700000000000000000000")
SEED_QUIT = bytes.fromhex("464a00010001000900000000000000000000")


class Raw:
    """A client that knows bytes only."""

    def __init__(self, daemon: Daemon) -> None:
        self._socket = socket.create_connection(("127.0.0.1", daemon.port), timeout=20)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def finish(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._socket.recv(size - len(data))):
            data += more
        return data

    def receive_all(self) -> bytes:
        return self.receive(1 << 30)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[Raw]:
    one = Raw(daemon)
    yield one
    one.close()


@pytest.mark.req("FJ-34", "FJ-36")
def test_a_client_that_knows_only_the_seeds_page_works(daemon: Daemon, raw: Raw) -> None:
    raw.send(SEED_SET)
    reply = raw.receive(17)
    assert reply[:4] == b"JR\0\1"
    assert reply[4:8] == b"\x12\x34\0\0"
    assert reply[-1:] == b"\0"  # no error
    raw.send(SEED_GET)
    reply = raw.receive(20)
    assert reply[4:6] == b"\x12\x35"
    assert reply[-4:] == b"\0\2\2v"  # no error, size 2, string, v
    with fjord.connect(daemon.url) as db:
        assert db.kv().get("k") == "v"


@pytest.mark.req("FJ-49")
def test_quit_is_answered_and_the_connection_closed(raw: Raw) -> None:
    raw.send(SEED_SET + SEED_NOP + SEED_QUIT)
    replies = raw.receive_all()
    assert len(replies) == 3 * 17
    assert replies[21:23] == SEED_NOP[6:8]  # NOP is answered, and does nothing
    assert replies[38:40] == b"\0\x09"


def test_good_requests_before_a_bad_one_are_answered(raw: Raw) -> None:
    raw.send(SEED_SET + b"nonsense")
    replies = raw.receive_all()
    assert replies[4:6] == b"\x12\x34"
    assert b"BAD_MAGIC" in replies


def test_an_address_that_others_could_reach_is_refused(tmp_path: Path) -> None:
    for address in ("0.0.0.0:0", "192.168.1.1:17994", "example.com:17994"):
        done = subprocess.run(
            [*FJORD, "serve", "--data", str(tmp_path), "--listen", address],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2
        assert "neither authentication nor TLS" in done.stderr


def test_a_second_daemon_on_the_directory_is_refused(daemon: Daemon) -> None:
    done = subprocess.run(
        [*FJORD, "serve", "--data", str(daemon.path), "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"process {daemon.process.pid} writes" in done.stderr


def test_a_stop_answers_what_is_under_way_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data")
    daemon.start()
    raw = Raw(daemon)
    raw.send(SEED_SET)
    raw.receive(17)
    assert daemon.stop() == 0
    assert raw.receive_all() == b""
    raw.close()
    assert (daemon.path / "clean").exists()
    with fjord.open(daemon.path) as db:
        assert db.kv().get("k") == "v"


def test_a_client_says_what_to_do_when_nobody_answers(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data")
    daemon.start()
    with fjord.connect(daemon.url, timeout=1) as db:
        db.kv().set("key", 1)
        daemon.kill()
        with pytest.raises(UnavailableError, match=str(daemon.port)):
            db.kv().get("key")
    with pytest.raises(UnavailableError, match="fjord serve"):
        fjord.connect(daemon.url)


def serve_fails(directory: Path, listen: str = "127.0.0.1:0") -> tuple[int, str]:
    done = subprocess.run(
        [*FJORD, "serve", "--data", str(directory), "--listen", listen],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_directory_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    code, text = serve_fails(file)
    assert code == 2
    assert f"{file} is a file" in text


def test_an_address_that_is_none_or_taken_is_named(tmp_path: Path, daemon: Daemon) -> None:
    code, text = serve_fails(tmp_path / "data", "127.0.0.1:port")
    assert code == 2
    assert "looks like fjord://host:port" in text
    code, text = serve_fails(tmp_path / "data", f"127.0.0.1:{daemon.port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{daemon.port}: Address already in use" in text


def test_requests_before_a_half_close_are_all_answered(raw: Raw) -> None:
    names = range(1, 51)
    raw.send(b"".join(SEED_SET[:6] + name.to_bytes(2, "big") + SEED_SET[8:] for name in names))
    raw.finish()
    assert len(raw.receive_all()) == 17 * len(names)


def test_an_interrupted_call_leaves_no_half_message_behind(daemon: Daemon) -> None:
    """What the socket still held would be taken for a part of the next message."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    connection = Connection(daemon.url, timeout=20)
    assert connection._line._duplex is not None
    connection._line._duplex._socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * limits.KIB
    )
    db = Database(connection)
    db.kv("cut").set("k", "before")
    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(daemon.process.pid, signal.SIGSTOP)  # the socket fills up, and the send waits
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            db.kv("cut").set_many({f"k{row}": b"x" * 1_000_000 for row in range(7)})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.kill(daemon.process.pid, signal.SIGCONT)
    db.kv("cut").set("k", "after")
    assert db.kv("cut").get_many([f"k{row}" for row in range(7)]) == {}
    assert db.kv("cut").get("k") == "after"
    db.close()


def test_many_large_answers_do_not_pile_up_in_the_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with fjord.connect(daemon.url) as db:
            db.kv().set("large", b"x" * limits.VALUE_BYTES_MAX)
        get = Get(table="default", keys=Strings.of([b"large"] * 31))
        raw = Raw(daemon)
        raw.send(b"".join(sent(get, number) for number in range(1, 61)))
        with fjord.connect(daemon.url) as db:  # others are served meanwhile
            assert db.kv().get("small") is None
        assert peak_bytes(daemon) < 600 * limits.MIB
        raw.close()


def peak_bytes(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * limits.KIB


def test_no_directory_is_no_data_directory(tmp_path: Path) -> None:
    done = subprocess.run(
        [*FJORD, "serve", "--data", ""],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
