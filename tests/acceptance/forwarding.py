"""`fjord forward` in a process of its own, for acceptance tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

from tests.acceptance.daemon import FJORD


class Forward:
    """Forwards from a spool; started, killed and started again."""

    def __init__(self, spool: Path, url: str, *options: str) -> None:
        self._command = [*FJORD, "forward", "--spool", str(spool), "--to", url, *options]
        self._log_path = spool.parent / f"{spool.name}.forward.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL)

    def start(self) -> None:
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL: nothing is finished."""
        assert self._end(signal.SIGKILL) == -signal.SIGKILL, self.log()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log_path.read_text()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        return process.wait(timeout=60)
