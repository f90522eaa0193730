"""A real daemon in a process of its own, for acceptance tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

FJORD = [sys.executable, "-c", "from fjord.cli import main; main()"]


class Daemon:
    """`fjord serve` on a directory; started, killed and started again."""

    def __init__(self, path: Path, *options: str, program: Sequence[str] = FJORD) -> None:
        self.path = path
        self.options = options  # of `fjord serve`
        self.program = program
        self.url = ""
        self.http = ""  # if an option asks for it
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def _log_path(self) -> Path:
        return self.path.parent / f"{self.path.name}.log"

    def start(self, port: int = 0) -> None:
        listen = f"127.0.0.1:{port}"
        command = [*self.program, "serve", "--data", str(self.path), "--listen", listen]
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *self.options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words[:1] == ["ready"], self.log()
        self.url = words[1]
        self.http = words[2] if len(words) > 2 else ""

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log_path.read_text()

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self.process, None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        code = process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()
        return code
