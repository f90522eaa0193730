"""The daemon as its users meet it: real processes, real bytes, real signals."""

from __future__ import annotations

import os
import re
import signal
import socket
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
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import Raw
from tests.acceptance.shell import process
from tests.unit.wire.streams import sent

# SET k="v" as a string, overwrite and persist, identifier 0x1234.
SEED_SET = bytes.fromhex("464a000100021234022200060a24181e4000016b020276")
SEED_GET = bytes.fromhex("464a00010003123504000000000000000000016b")
SEED_NOP = bytes.fromhex("464a00010000000700000000000000000000")
SEED_QUIT = bytes.fromhex("464a00010001000900000000000000000000")


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.port) as one:
        yield one


def receive(raw: Raw, size: int = 1 << 30) -> bytes:
    """Returns so many bytes, or all until the end."""
    data = b""
    while len(data) < size and (more := raw.socket.recv(size - len(data))):
        data += more
    return data


@pytest.mark.req("FJ-34", "FJ-36")
def test_a_client_that_knows_only_the_seeds_page_works(daemon: Daemon, raw: Raw) -> None:
    raw.send(SEED_SET)
    reply = receive(raw, 17)
    assert reply[:4] == b"JR\0\1"
    assert reply[4:8] == b"\x12\x34\0\0"
    assert reply[-1:] == b"\0"  # no error
    raw.send(SEED_GET)
    reply = receive(raw, 20)
    assert reply[4:6] == b"\x12\x35"
    assert reply[-4:] == b"\0\2\2v"  # no error, size 2, string, v
    with fjord.connect(daemon.url) as db:
        assert db.kv().get("k") == "v"


@pytest.mark.req("FJ-49")
def test_quit_is_answered_and_the_connection_closed(raw: Raw) -> None:
    raw.send(SEED_SET + SEED_NOP + SEED_QUIT)
    replies = receive(raw)
    assert len(replies) == 3 * 17
    assert replies[21:23] == SEED_NOP[6:8]  # NOP is answered, and does nothing
    assert replies[38:40] == b"\0\x09"


def test_good_requests_before_a_bad_one_are_answered(raw: Raw) -> None:
    raw.send(SEED_SET + b"nonsense")
    replies = receive(raw)
    assert replies[4:6] == b"\x12\x34"
    assert b"BAD_MAGIC" in replies


def test_a_stop_answers_what_is_under_way_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data")
    daemon.start()
    raw = Raw(daemon.port)
    raw.send(SEED_SET)
    receive(raw, 17)
    assert daemon.stop() == 0
    assert receive(raw) == b""
    raw.socket.close()
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


def test_what_cannot_be_served_is_named(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, empty = tmp_path / "file", tmp_path / "empty"
    file.write_text("no directory")
    empty.mkdir()
    monkeypatch.chdir(empty)
    own, free, taken = str(tmp_path / "data"), "127.0.0.1:0", f"127.0.0.1:{daemon.port}"
    for data, listen, code, said in (
        (own, "192.168.1.1:17994", 2, "neither authentication nor TLS"),
        (own, "x[/y]:1", 2, "x[/y]"),  # no address, and markup elsewhere
        (own, taken, 1, f"cannot listen on {taken}: Address already in use"),
        (str(file), free, 2, f"{file} is a file"),
        (str(daemon.path), free, 2, f"process {daemon.process.pid} writes"),
        ("", free, 2, "--data"),
    ):
        done = process("serve", "--data", data, "--listen", listen)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert list(empty.iterdir()) == []


def test_requests_before_a_half_close_are_all_answered(raw: Raw) -> None:
    names = range(1, 51)
    raw.send(b"".join(SEED_SET[:6] + name.to_bytes(2, "big") + SEED_SET[8:] for name in names))
    raw.finish()
    assert len(receive(raw)) == 17 * len(names)


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
        raw = Raw(daemon.port)
        raw.send(b"".join(sent(get, number) for number in range(1, 61)))
        with fjord.connect(daemon.url) as db:  # others are served meanwhile
            assert db.kv().get("small") is None
        assert peak_bytes(daemon) < 600 * limits.MIB
        raw.socket.close()


def peak_bytes(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * limits.KIB
