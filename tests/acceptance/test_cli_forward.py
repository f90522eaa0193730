"""`fjord forward` as a service: what it sends, says, serves, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import Daemon
from tests.acceptance.forward_process import Forwarding, long_period, make_past, spool_files
from tests.acceptance.shell import process as run


def once(spool: Path, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run("forward", "--spool", spool, "--to", url, "--once", *options)


def made(path: Path) -> Path:
    """Makes the spool, as the first writer does."""
    fjord.spool(path).close()
    return path


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.req("FJ-24", "FJ-25", "FJ-26")
def test_once_sends_all_and_deletes_what_is_finished(daemon: Daemon, tmp_path: Path) -> None:
    period = long_period()
    with fjord.spool(tmp_path, period=period) as spool:
        for number in range(1000):
            spool.stream("once").append(number)
    (name,) = spool_files(tmp_path)
    done = once(tmp_path, daemon.url, "--period", str(period))
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "1000 records sent")
    assert spool_files(tmp_path) == [name]  # its period is not over
    assert (tmp_path / name).read_bytes()[96:].strip(b" \n\0") == b""
    make_past(tmp_path, name)
    again = once(tmp_path, daemon.url, "--json", "--period", str(period))
    assert json.loads(again.stdout)["records"] == 0
    assert spool_files(tmp_path) == []
    with fjord.connect(daemon.url) as db:
        found = [message.value for message in db.stream("once").read(2000)]
    assert found == list(range(1000))


@pytest.mark.req("FJ-01", "FJ-23", "FJ-27")
def test_what_is_written_while_it_is_away_arrives_when_it_is_back(
    daemon: Daemon, tmp_path: Path
) -> None:
    with fjord.connect(daemon.url) as db:
        with Forwarding(made(tmp_path), daemon.url) as forwarding:
            assert run("spool", "push", tmp_path, "away", "first").returncode == 0
            (job,) = db.jobs("away").next(1, wait=30)
            assert job.key == "first"
            assert "a forwarder is running" in run("spool", "status", tmp_path).stdout
            assert forwarding.stop() == 0
        for number in range(10):
            fjord.spool(tmp_path).jobs("away").push(f"late {number}")
        status = json.loads(run("spool", "status", tmp_path, "--json").stdout)
        assert (status["waiting"], status["forwarder"]) == (10, False)
        with Forwarding(tmp_path, daemon.url):
            keys: list[str | bytes] = []
            while len(keys) < 10:
                keys += [job.key for job in db.jobs("away").next(10, wait=30)]
        assert keys == [f"late {number}" for number in range(10)]


@pytest.mark.req("FJ-27")
def test_a_daemon_that_is_away_is_waited_for(tmp_path: Path) -> None:
    spool, port = made(tmp_path / "spool"), unused_port()
    url = f"fjord://127.0.0.1:{port}"
    with Forwarding(spool, url, "--http", "0") as forwarding:
        fjord.spool(spool).kv("late").set("key", "value")
        assert "WARNING nothing can be sent: " in forwarding.read_log_until("nothing can be sent")
        found = forwarding.metrics()
        assert found["fjord_forwarder_problem"] == 1
        assert found["fjord_forwarder_waiting_bytes"] > 0
        assert found["fjord_forwarder_waiting_files"] == 1
        assert found["fjord_forwarder_oldest_seconds"] > 0
        assert found["fjord_forwarder_retries_total"] > 0
        assert forwarding.fetch("/healthz") == (200, "ok\n")
        daemon = Daemon(tmp_path / "data")
        daemon.start(port)
        forwarding.read_log_until("records are sent again")
        found = forwarding.metrics()
        assert found["fjord_forwarder_problem"] == 0
        assert found["fjord_forwarder_waiting_bytes"] == 0
        assert found["fjord_forwarder_oldest_seconds"] == 0
        assert found["fjord_forwarder_records_total"] == 1
        assert found["fjord_forwarder_batches_total"] == 1
        assert found["fjord_forwarder_bytes_total"] > 0
        with fjord.connect(url) as db:
            assert db.kv("late").get("key") == "value"
        assert daemon.stop() == 0
        assert forwarding.stop() == 0


def test_a_stop_in_the_middle_loses_and_doubles_nothing(daemon: Daemon, tmp_path: Path) -> None:
    with fjord.spool(tmp_path) as spool:
        for number in range(100_000):
            spool.stream("middle").append(number)
    with Forwarding(tmp_path, daemon.url, "--http", "0") as forwarding:
        while not forwarding.metrics()["fjord_forwarder_records_total"]:
            assert forwarding.process.poll() is None
        assert forwarding.stop() == 0
        records = int(forwarding.read_log_until("stopped records=").rpartition("=")[2])
    again = once(tmp_path, daemon.url, "--json")
    assert json.loads(again.stdout)["records"] == 100_000 - records
    found: list[object] = []
    with fjord.connect(daemon.url) as db:
        reader = db.stream("middle").subscriber("test", start="beginning")
        while messages := reader.read(50_000):
            found += [message.value for message in messages]
    assert found == list(range(100_000))


def test_there_is_one_forwarder(daemon: Daemon, tmp_path: Path) -> None:
    with Forwarding(made(tmp_path), daemon.url) as forwarding:
        second = once(tmp_path, daemon.url)
        assert second.returncode == 2
        text = f"process {forwarding.process.pid} forwards from {tmp_path}; stop it first"
        assert text in second.stderr
        assert forwarding.stop() == 0
    assert once(tmp_path, daemon.url).returncode == 0


def test_systemd_is_told(daemon: Daemon, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.bind(address)
        peer.settimeout(30)
        spool, environment = made(tmp_path / "spool"), {"NOTIFY_SOCKET": address}
        with Forwarding(
            spool, daemon.url, "--log-format", "json", environment=environment
        ) as forwarding:
            assert peer.recv(100) == b"READY=1"
            line = json.loads(forwarding.read_log_until("forwarding"))
            assert line["message"] == "forwarding"
            assert (line["spool"], line["to"]) == (str(spool), daemon.url)
            assert forwarding.stop() == 0
            assert peer.recv(100) == b"STOPPING=1"
            assert '"message": "stopped"' in forwarding.read_log_until("stopped")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "http://127.0.0.1"], "is not a valid address"),
        (["--http", "0.0.0.0:0"], "neither authentication nor TLS"),
        (["--period", "0"], "0 is not within 1 to 604800 seconds"),
        (["--poll", "x"], "x is not a number of seconds"),
        (["--json"], "--json needs --once"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["forward", "--spool", str(tmp_path), *words])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_spool_of_somebody_else_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    os.chown(made(tmp_path), 12345, -1)
    for done in (once(tmp_path, daemon.url), run("spool", "push", tmp_path, "jobs", "key")):
        assert done.returncode == 2
        assert "belongs to user 12345; run this as that user" in done.stderr
