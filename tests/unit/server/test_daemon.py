"""What the daemon decides before it serves; that it serves is shown by the acceptance tests."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from fjord import limits
from fjord.errors import FjordError
from fjord.server import daemon
from fjord.server.bounds import Bounds


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_may_be_listened_on(host: str) -> None:
    daemon.check_host(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])  # noqa: S104
def test_others_are_not_let_in(host: str) -> None:
    with pytest.raises(FjordError, match="neither authentication nor TLS"):
        daemon.check_host(host)


def test_connections_leave_files_for_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 1000))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: set_to.append(both))
    fitted = daemon._fit_files(Bounds(connections=10_000))
    assert fitted.connections == 1000 - limits.FILES_RESERVED
    assert set_to == [(1000, 1000)]
    few = Bounds(connections=5)
    assert daemon._fit_files(few) is few


def test_systemd_is_told_where_it_wants_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    daemon._notify("READY=1")
    for address in (str(tmp_path / "notify"), "\0fjord-test-notify"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.bind(address)
            peer.settimeout(20)
            monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
            daemon._notify("READY=1")
            assert peer.recv(100) == b"READY=1"
    assert caplog.records == []
    daemon._notify("READY=1")  # nobody is there any more
    assert [record.message for record in caplog.records] == ["systemd could not be told"]
