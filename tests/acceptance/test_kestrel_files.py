"""`fjord kestrel serve` with few files: clients cannot take those that its queues need."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fjord import limits
from fjord.cli import kestrel_serving
from tests.acceptance import kestrel_server
from tests.acceptance.kestrel_server import expect, raw, serving


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
    assert kestrel_serving.shares(files, asked) == (connections, queues)


def test_a_client_that_makes_many_queues_ends_its_connection_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = limits.FILES_RESERVED + 40
    limited = (
        f"import os, resource, sys; resource.setrlimit({resource.RLIMIT_NOFILE}, ({files},) * 2)"
    )
    run = [sys.executable, "-c", f"{limited}; os.execv(sys.argv[1], sys.argv[1:])"]
    monkeypatch.setattr(kestrel_server, "SERVE", [*run, *kestrel_server.SERVE])
    with serving(tmp_path / "queues") as server:
        with raw(server.port) as client:
            for number in range(5):
                expect(client, b"set q%d 0 0 1\r\nx\r\n" % number, b"STORED\r\n")
            expect(client, b"set q5 0 0 1\r\nx\r\n", b"SERVER_ERROR\r\n")
        with raw(server.port) as client:
            expect(client, b"set q0 0 0 1\r\ny\r\n", b"STORED\r\n")
            expect(client, b"delete q1\r\n", b"DELETED\r\n")
            expect(client, b"set q5 0 0 1\r\nx\r\n", b"STORED\r\n")
        assert server.process.poll() is None
    assert isinstance(server.process, subprocess.Popen)
