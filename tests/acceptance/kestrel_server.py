"""`fjord kestrel serve` in a process of its own, and raw connections to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance.daemon import FJORD

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


def expect(client: socket.socket, sent: bytes, expected: bytes) -> None:
    client.sendall(sent)
    found = b""
    while len(found) < len(expected):
        data = client.recv(len(expected) - len(found))
        if not data:
            break
        found += data
    assert found == expected
