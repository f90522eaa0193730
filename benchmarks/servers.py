"""Starting and stopping the compared servers, on free loopback ports."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

REDIS_INSTALL = "apt-get install redis-server"
BEANSTALKD_INSTALL = "apt-get install beanstalkd"
MEMCACHED_INSTALL = "apt-get install memcached"
_TRIES = 200


class Daemon:
    """`fjord serve` on a directory; it can be killed and restarted.

    Bounds of `fjord.limits` can be changed, so that a quick try reaches them too.
    """

    def __init__(self, directory: str, **bounds: int) -> None:
        self._directory = directory
        self._bounds = bounds
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)

    def start(self) -> float:
        """Starts it; returns the seconds until it was ready."""
        start = time.perf_counter()
        with tempfile.TemporaryFile("w+") as log:
            self._process = subprocess.Popen(
                [*self._command(), "--data", self._directory, "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            assert self._process.stdout is not None
            words = self._process.stdout.readline().split()
            seconds = time.perf_counter() - start
            if words[:1] != ["ready"]:
                self._end(signal.SIGTERM)
                log.seek(0)
                raise RuntimeError(f"fjord serve did not start: {log.read()}")
        self.url = words[1]
        return seconds

    def kill(self) -> None:
        """Sends SIGKILL, without a clean stop."""
        self._end(signal.SIGKILL)

    def memory_bytes(self, kind: str) -> int:
        """Returns a memory figure of the process from the kernel: RssAnon, RssFile, RssShmem."""
        assert self._process is not None
        return _memory_bytes(self._process.pid, kind)

    def cpu_seconds(self) -> float:
        """Returns the processor time of the process, including the kernel's."""
        assert self._process is not None
        numbers = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        user_ticks, system_ticks = numbers[11:13]
        return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")

    def _command(self) -> list[str]:
        # Before other imports, since some of the defaults are computed from these.
        lines = ["from fjord import limits"]
        lines += [f"limits.{name} = {value}" for name, value in self._bounds.items()]
        lines += ["from fjord.cli import main", "main()"]
        return [sys.executable, "-c", "\n".join(lines), "serve"]

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        process.communicate(timeout=60)


class KestrelServer:
    """`fjord kestrel serve` on the queues below a directory."""

    def __init__(self, process: subprocess.Popen[str], port: int, start_seconds: float) -> None:
        self._process = process
        self.port = port
        self.start_seconds = start_seconds  # until it was ready

    def memory_bytes(self, kind: str) -> int:
        """Returns a memory figure of the process from the kernel, such as RssAnon."""
        return _memory_bytes(self._process.pid, kind)


@contextlib.contextmanager
def kestrel_server(directory: str, config: str) -> Iterator[KestrelServer]:
    """Runs a server on `queues` in a directory, with this configuration."""
    file = Path(directory) / "config.json"
    file.write_text(config)
    program = [sys.executable, "-c", "from fjord.cli import main; main()", "kestrel", "serve"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [
            *(*program, "--dir", f"{directory}/queues", "--config", str(file)),
            *("--listen", "127.0.0.1:0", "--text", "off"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise RuntimeError("fjord kestrel serve did not start")
        port = int(ready[1].rpartition(":")[2])
        yield KestrelServer(process, port, time.perf_counter() - start)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _memory_bytes(process: int, kind: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, size = line.partition(":")
        if name == kind:
            return int(size.split()[0]) * 1024
    raise RuntimeError(f"this kernel does not report {kind}")


def has_memcached() -> bool:
    return shutil.which("memcached") is not None


@contextlib.contextmanager
def memcached_server() -> Iterator[int]:
    """Runs memcached, which stores nothing on disk; yields its port."""
    port = free_port()
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "1024", *user]
    )
    try:
        _wait_until_open(port)
        yield port
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
    with data_directory() as directory:
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


def has_beanstalkd() -> bool:
    return shutil.which("beanstalkd") is not None


@contextlib.contextmanager
def beanstalkd_server(*, syncs: bool = True) -> Iterator[int]:
    """Runs beanstalkd with an fsync before every acknowledgement, or with none; yields its port."""
    sync = ["-f", "0"] if syncs else ["-F"]
    port = free_port()
    with data_directory() as directory:
        process = subprocess.Popen(
            ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", directory, *sync]
        )
        try:
            _wait_until_open(port)
            yield port
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait_until_open(port: int) -> None:
    """Waits until a server listens.

    Raises:
        ConnectionRefusedError: if it does not in time.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.02)
    raise ConnectionRefusedError(f"nothing listens on port {port}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def data_directory() -> Iterator[str]:
    """Yields an empty directory on the disk of the working directory, not on a tmpfs."""
    with tempfile.TemporaryDirectory(prefix=".fjord-bench-", dir=Path.cwd()) as directory:
        yield directory
