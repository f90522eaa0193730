"""`fjord kestrel serve --config`: every setting of the server, as its process has it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.kestrel_server import SERVE, expect, raw, serving

END, STORED = b"END\r\n", b"STORED\r\n"
A = b"VALUE q 0 1\r\na\r\nEND\r\n"
PUT = b"set q 0 0 1\r\na\r\n"


def configured(tmp_path: Path, **given: object) -> tuple[str, str, str]:
    path = tmp_path / "kestrel.json"
    path.write_text(json.dumps(given))
    return "--exact", "--config", str(path)


def test_status_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "run" / "status"
    options = configured(tmp_path, statusFile=str(file), defaultStatus="readonly")
    for number, kept in ((signal.SIGTERM, "Up\n"), (signal.SIGKILL, "Quiescent\n")):
        with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
            if number is signal.SIGTERM:
                expect(client, b"status\r\nstatus up\r\nstatus\r\n", b"READONLY\r\nEND\r\nUP\r\n")
                expect(client, PUT, STORED)
            else:
                expect(client, b"status\r\nstatus quiescent\r\n", b"UP\r\nEND\r\n")
            assert file.read_text() == kept
            server.end(number)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, b"status\r\nget q\r\n", b"QUIESCENT\r\nSERVER_ERROR\r\n")


def test_file_that_keeps_no_status_is_told_of(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text("Down\n")
    options = configured(tmp_path, statusFile=str(file))
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, b"status\r\n", b"UP\r\n")
        assert "the file keeps no status" in server.log.read_text()


def test_stricter_status_is_enforced_after_its_grace_period(tmp_path: Path) -> None:
    options = configured(tmp_path, statusChangeGracePeriod=3_600_000)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, b"status readonly\r\nstatus\r\n" + PUT, b"END\r\nREADONLY\r\nSTORED\r\n")


def test_connections_beyond_a_limit_are_refused(tmp_path: Path) -> None:
    options = configured(tmp_path, connectionLimitRefuseWrites=1, connectionLimitRefuseReads=2)
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, PUT, STORED)
        with raw(server.port) as second:
            expect(second, b"get q/peek\r\n", A)
            with raw(server.port) as third:
                expect(third, b"get q\r\n", b"SERVER_ERROR\r\n")
            expect(client, PUT, b"SERVER_ERROR\r\n")


def test_open_items_and_unused_queues_time_out(tmp_path: Path) -> None:
    options = configured(
        tmp_path,
        default={"openTransactionTimeout": 50},
        queues={"old": {"maxQueueAge": 50}},
    )
    path = tmp_path / "queues"
    with (
        serving(path, *options) as server,
        raw(server.port) as holder,
        raw(server.port) as client,
    ):
        expect(client, b"get old\r\n", END)
        expect(holder, PUT + b"get q/open\r\n", STORED + A)
        expect(client, b"get q/t=60000\r\n", A)
        expect(holder, b"get q/close\r\nget q\r\n", END + END)
        while (path / "old").exists():
            expect(client, b"version\r\n", b"VERSION ")
            while client.recv(1) != b"\n":
                pass
        client.sendall(b"stats\r\n")
        told = b""
        while END not in told:
            told += client.recv(65536)
        assert b"STAT queue_expires 1\r\n" in told


def test_traced_queue_is_in_the_log_each_time(tmp_path: Path) -> None:
    options = configured(tmp_path, queues={"q": {"enableTrace": True}})
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, PUT * 50, STORED * 50)
        expect(client, b"get q/open\r\nget q/close\r\n", A + END)
        told = server.log.read_text()
    lines = re.findall(r" INFO (put|open|close) queue=q client=127\.0\.0\.1:\d+", told)
    assert lines == ["put"] * 50 + ["open", "close"]


def test_names_that_change_nothing_are_warned_of_also_when_they_are_read_again(
    tmp_path: Path,
) -> None:
    options = configured(
        tmp_path,
        queuePath="/var/spool/kestrel",
        memcacheListenPort=22133,
        thriftListenPort=2229,
        default={"whiteListClientIdForDequeue": ["me"]},
    )
    with serving(tmp_path / "queues", *options) as server, raw(server.port) as client:
        expect(client, PUT, STORED)
        for times in (1, 2):
            told = server.log.read_text()
            for name in ("queuePath", "memcacheListenPort", "thriftListenPort"):
                assert len(re.findall(rf" WARNING {name} changes nothing", told)) == times
            white = re.findall(r" WARNING whiteListClientIdForDequeue is not looked at", told)
            assert len(white) == times
            expect(client, b"reload\r\n", b"Reloaded config.\r\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queuePaths": "/x"}, "queuePaths is no part of a configuration"),
        ({"statusFile": "x"}, "statusFile is the whole path of a file"),
        ({"statusFile": "QUEUES/status"}, "would be taken for a queue"),
        ({"defaultStatus": "down"}, "defaultStatus is one of up, readonly, quiescent"),
    ],
)
def test_what_is_no_setting_is_refused(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    path = str(tmp_path / "queues")
    options = configured(
        tmp_path, **{name: str(one).replace("QUEUES", path) for name, one in given.items()}
    )
    ended = subprocess.run(
        [*SERVE, "--dir", path, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert message in ended.stderr
