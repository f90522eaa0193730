"""What services share: where they may listen, and what they tell systemd."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fjord.errors import FjordError
from fjord.server import service


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_may_be_listened_on(host: str) -> None:
    service.check_host(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])  # noqa: S104
def test_others_are_not_let_in(host: str) -> None:
    with pytest.raises(FjordError, match="neither authentication nor TLS"):
        service.check_host(host)


def test_systemd_is_told_where_it_wants_to_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    service.notify("READY=1")
    for address in (str(tmp_path / "notify"), "\0fjord-test-notify"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.bind(address)
            peer.settimeout(20)
            monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
            service.notify("READY=1")
            assert peer.recv(100) == b"READY=1"
    assert caplog.records == []
    service.notify("READY=1")  # nobody is there any more
    assert [record.message for record in caplog.records] == ["systemd could not be notified"]


def test_an_address_that_is_taken_is_named() -> None:
    with service.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(FjordError, match=f"cannot listen on 127.0.0.1:{port}: "):
            service.listen("127.0.0.1", port)


CODE = """
import resource
from fjord.server.service import keep_freed_buffers

if {kept}:
    assert keep_freed_buffers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    bytearray(4 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, kept: bool) -> int:
    """Returns how many pages a process faults in that takes a buffer over and over."""
    code = CODE.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_buffers_that_are_used_again_are_not_faulted_in_again() -> None:
    pages = 4 * 2**20 // 4096
    assert faults(kept=True) < 3 * pages
