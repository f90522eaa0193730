"""`fjord kestrel serve` with few files: clients cannot take those that its queues need."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fjord import limits
from fjord.kestrel import service
from tests.acceptance import kestrel_server
from tests.acceptance.kestrel_server import expect, raw, serving
from tests.unit.kestrel.serving_world import REFUSED, STORED, put, value


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
    assert service.shares(files, asked) == (connections, queues)


@pytest.mark.parametrize(
    ("queues", "connections"), [(0, 648), (108, 648), (109, 646), (400, 64), (431, 4), (900, 4)]
)
def test_connections_give_way_to_queues_that_are_there(queues: int, connections: int) -> None:
    assert service.shares(1024, 10_000, queues)[0] == connections


def limited(files: int) -> list[str]:
    """Returns the beginning of a command that may have so many files open."""
    limit = f"resource.setrlimit({resource.RLIMIT_NOFILE}, ({files},) * 2)"
    code = f"import os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code]


def test_as_many_queues_as_files_allow_are_served_and_more_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(70):
        (tmp_path / f"q{number}").write_bytes(b"")
    monkeypatch.setattr(kestrel_server, "SERVE", [*limited(100), *kestrel_server.SERVE])
    serve = [*kestrel_server.SERVE, "--dir", str(tmp_path)]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        f"fjord: {tmp_path} has 70 queues, and each has a file open: a server needs 102 open files "
        "at least, and the system allows it 100; allow more, with ulimit -n or LimitNOFILE= of "
        "systemd. 10300 are enough for two files of each queue and 10000 connections"
    )
    assert len(list(tmp_path.iterdir())) == 70
    for number in (68, 69):
        (tmp_path / f"q{number}").unlink()
    with serving(tmp_path) as server, raw(server.port) as client:
        expect(client, put(b"q67", b"x") + b"get q67\r\n", STORED + value(b"q67", b"x"))


def test_a_client_that_makes_many_queues_ends_its_connection_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = limits.FILES_RESERVED + 40
    monkeypatch.setattr(kestrel_server, "SERVE", [*limited(files), *kestrel_server.SERVE])
    with serving(tmp_path / "queues") as server:
        with raw(server.port) as client:
            for number in range(5):
                expect(client, put(b"q%d" % number, b"x"), STORED)
            expect(client, put(b"q5", b"x"), REFUSED)
        with raw(server.port) as client:
            expect(client, put(b"q0", b"y"), STORED)
            expect(client, b"delete q1\r\n", b"DELETED\r\n")
            expect(client, put(b"q5", b"x"), STORED)
        assert server.process.poll() is None
