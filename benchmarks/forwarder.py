"""A forwarder in a process of its own, so that it shares none with the measured process.

    python -m benchmarks.forwarder DIR URL once      # from a line on standard input until empty
    python -m benchmarks.forwarder DIR URL           # until standard input ends

It reports on standard output when it is ready, so that its start is not measured, and with `once`
how many records it has sent.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import TracebackType
from typing import Final, Self

import uvloop

from fjord.forwarder import Forwarder

END_SECONDS: Final = 600


class Child:
    """The forwarder, as seen from the measuring process."""

    def __init__(self, directory: str, url: str, *, is_once: bool = False) -> None:
        words = [directory, url, *(["once"] if is_once else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.forwarder", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the forwarder ended with {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=END_SECONDS)  # the end of its standard input

    def forward(self) -> int:
        """Lets a forwarder with `once` send everything; returns the number of records."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


async def main(directory: str, url: str, *, is_once: bool) -> None:
    forwarder = Forwarder(directory, url)
    if is_once:
        print("ready", flush=True)
        sys.stdin.readline()
        await forwarder.run(until_empty=True)
        print(forwarder.progress.records, flush=True)
    else:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), forwarder.stop)
        print("ready", flush=True)
        await forwarder.run()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2], is_once=sys.argv[3:] == ["once"]))
