"""Metrics and health over HTTP, as a Prometheus server and a service manager meet them."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Get, Set
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import STRING, Raw, get, nop, now_us, set_
from tests.unit.wire.streams import sent


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("http") / "data", "--http", "127.0.0.1:0") as one:
        yield one


def fetch(daemon: Daemon, target: str, **headers: str) -> tuple[int, str]:
    """Returns status and body of a page."""
    connection = http.client.HTTPConnection(urlsplit(daemon.http).netloc, timeout=20)
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def samples(daemon: Daemon) -> dict[tuple[str, str], float]:
    status, text = fetch(daemon, "/metrics")
    assert status == 200
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_follow_what_happens(daemon: Daemon) -> None:
    before = samples(daemon)
    with Raw(daemon.port) as raw:
        raw.ask(set_(b"key", STRING, b"value"))
        raw.ask(get(b"key"))
        assert raw.code(set_(b"key", 6, b"")) == "BAD_TYPE"
        after = samples(daemon)
        assert after["fjord_connections", ""] == before["fjord_connections", ""] + 1

    def grown(name: str, label: str = "") -> float:
        return after[name, label] - before.get((name, label), 0)

    assert grown("fjord_requests_total", "SET") == 2
    assert grown("fjord_requests_total", "GET") == 1
    assert grown("fjord_refusals_total", "BAD_TYPE") == 1
    assert grown("fjord_group_seconds_count") >= 3  # the daemon's own turns count, too
    assert grown("fjord_sync_seconds_count") >= 1
    assert grown("fjord_durable_seq") >= 1
    assert grown("fjord_received_bytes_total") > 0
    assert grown("fjord_sent_bytes_total") > 0


def test_nothing_that_users_send_becomes_a_label(daemon: Daemon) -> None:
    with Raw(daemon.port) as raw:
        raw.ask(set_(b"user-string", STRING, b"user-string"))
    with Raw(daemon.port) as raw:
        raw.send(b"user-string")
        assert raw.next() is not None
    assert "user-string" not in fetch(daemon, "/metrics")[1]


def test_http_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        assert daemon.http == ""
        assert "http=off" in daemon.log()


def test_a_daemon_that_stops_says_so(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--http", "0") as daemon:
        with Raw(daemon.port, buffer_bytes=4096) as raw:
            large = Set(
                table="default",
                keys=Strings.of([b"large"]),
                types=b"\1",
                values=Strings.of([bytes(limits.MIB)]),
                timestamps_us=[now_us()],
            )
            assert raw.code(sent(large, 1)) == ""
            gets = Get(table="default", keys=Strings.of([b"large"] * 20))
            raw.send(*(sent(gets, number) for number in range(1, 20)))
            with Raw(daemon.port) as other:  # by now the answers wait to be taken
                assert other.code(nop()) == ""
            os.kill(daemon.process.pid, signal.SIGTERM)
            found = (200, "")
            while found[0] == 200:
                found = fetch(daemon, "/healthz")
            assert found == (503, "stopping\n")
        assert daemon.process.wait(timeout=60) == 0
