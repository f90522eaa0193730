"""Starting and stopping the servers that are compared, on free loopback ports."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

REDIS_INSTALL = "apt-get install redis-server"
_TRIES = 200


@contextlib.contextmanager
def fjord_daemon(directory: str) -> Iterator[str]:
    """Runs `fjord serve` on a directory; yields its URL."""
    command = [sys.executable, "-c", "from fjord.cli import main; main()", "serve"]
    process = subprocess.Popen(
        [*command, "--data", directory, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if not words:
            raise RuntimeError("fjord serve did not start")
        yield words[1]
    finally:
        process.terminate()
        process.wait(timeout=30)


def has_redis() -> bool:
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def redis_server() -> Iterator[int]:
    """Runs redis-server with an fsync before every acknowledgement; yields its port."""
    import redis

    port = free_port()
    with tempfile.TemporaryDirectory(prefix="fjord-bench-redis-") as directory:
        process = subprocess.Popen(
            [
                *("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", directory),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.02), _TRIES)
            client = redis.Redis(port=port, retry=retry, retry_on_error=[redis.ConnectionError])
            client.ping()
            client.close()
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def data_directory() -> Iterator[str]:
    """Yields an empty directory on the disk of the working directory, not on a tmpfs."""
    with tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=Path.cwd()) as directory:
        yield directory
