"""A forwarder in a process of its own, whose log and pages are read; for tests of the command."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from fjord.client.spool import files
from tests.acceptance.daemon import FJORD


class Forwarding:
    """`fjord forward` that runs until it is stopped."""

    def __init__(
        self, spool: Path, url: str, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        command = [*FJORD, "forward", "--spool", str(spool), "--to", url, *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._log = self.process.stderr
        words = self.process.stdout.readline().split()
        assert words[:1] == ["ready"], self._log.read()
        self.http = words[1] if len(words) > 1 else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def read_log_until(self, *texts: str) -> str:
        """Returns the log up to the line with which every text has been there; waits for it."""
        lines = []
        missing = {*texts}
        for line in self._log:
            lines.append(line)
            missing -= {text for text in missing if text in line}
            if not missing:
                return "".join(lines)
        raise AssertionError(f"it ended without {missing}: {''.join(lines)}")

    def fetch(self, target: str) -> tuple[int, str]:
        """Returns status and body of a page."""
        connection = http.client.HTTPConnection(urlsplit(self.http).netloc, timeout=20)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Returns all numbers; those with a label as name:label."""
        status, text = self.fetch("/metrics")
        assert status == 200
        return {
            ":".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def spool_files(spool: Path) -> list[str]:
    return sorted(path.name for path in spool.glob("*.spool"))


def long_period() -> int:
    """Returns seconds of a period that does not end while a test runs.

    Both are counted from 1970, and end at other times: one comes earlier by a second every week.
    """
    return next(one for one in (604_800, 604_799) if one - time.time() % one > 600)


def make_past(spool: Path, name: str) -> Path:
    """Gives a file the name of a period that is over, so that it may be deleted once it is sent."""
    past = spool / files.name_of(int(name[:2]) + files.SLOTS // 2)
    (spool / name).rename(past)
    return past
