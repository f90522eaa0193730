"""The processes of the day: daemon and forwarder, killed and started again, and workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

FJORD: Final = [sys.executable, "-c", "from fjord.cli import main; main()"]
WORKER: Final = [sys.executable, "-m", "examples.day.worker"]
# An overloaded machine is slow, not broken.
END_SECONDS: Final = 60


class Daemon:
    """`fjord serve` on a directory, with default settings."""

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log
        self.url = "fjord://127.0.0.1:0"  # any port, and the same one after a restart

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._end()

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*FJORD, "serve", "--data", str(self._directory), "--listen", self.url],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        # A daemon that prints nothing is killed, which ends the wait for a line.
        timer = threading.Timer(END_SECONDS, self._process.kill)
        timer.start()
        words = self._process.stdout.readline().split()
        timer.cancel()
        if len(words) < 2:
            sys.exit(f"the daemon did not start:\n{self._log.read_text()}")
        self.url = words[1]

    def kill(self) -> float:
        """Kills it with SIGKILL and starts it again; returns how long it was away, in seconds."""
        begun = time.perf_counter()
        self._process.kill()
        self._end()
        self.start()
        return time.perf_counter() - begun

    def _end(self) -> None:
        self._process.communicate(timeout=END_SECONDS)


class Forwarder:
    """`fjord forward` from a spool to the daemon."""

    def __init__(self, spool: Path, url: str, log: Path) -> None:
        self._words = ["forward", "--spool", str(spool), "--to", url]
        self._log = log
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        if self._process.wait(END_SECONDS) and error is None:
            self._fail()

    def kill(self) -> None:
        """Kills it with SIGKILL and starts another one."""
        self._process.kill()
        self._process.wait(END_SECONDS)
        self._start()

    def check(self) -> None:
        """Exits if the forwarder has ended."""
        if self._process.poll() is not None:
            self._fail()

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen([*FJORD, *self._words], stdout=log, stderr=log)

    def _fail(self) -> None:
        code = self._process.returncode
        sys.exit(f"the forwarder ended with {code}:\n{self._log.read_text()}")


class Workers:
    """Processes that do the jobs."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._processes = [self._start(seed) for seed in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(END_SECONDS)

    def send_one_that_dies(self) -> None:
        """Starts a worker that takes jobs, and dies."""
        self._dying = subprocess.Popen(
            [*WORKER, self._url, "0", "dies"], stdout=subprocess.PIPE, text=True
        )

    def dropped(self) -> set[int]:
        """Returns the rows of the jobs that the dead worker had taken."""
        said, _ = self._dying.communicate(timeout=END_SECONDS)
        return {int(row) for row in said.split()}

    def check(self) -> None:
        """Exits if a worker has ended."""
        for process in self._processes:
            if process.poll() is not None:
                sys.exit(f"a worker ended with {process.returncode}")

    def _start(self, seed: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*WORKER, self._url, str(seed)])


class Aside:
    """Kills the daemon and restarts it while the day continues."""

    def __init__(self, daemon: Daemon) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._killed = self._pool.submit(daemon.kill)

    def join(self) -> float:
        """Waits for the restart; returns how long the daemon was away."""
        # The end of the one that was killed, and the start of the next.
        seconds = self._killed.result(2 * END_SECONDS)
        self._pool.shutdown()
        return seconds
