"""Writers, forwarder and daemon, all of them killed at any moment: each record counts once."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Final

import pytest

import fjord
from tests.acceptance.daemon import Daemon
from tests.acceptance.forwarding import Forward
from tests.crash.spool_processes import TracedWriter, Writing, is_killed
from tests.crash.spool_world import Tables, check, forward, spool_files
from tests.crash.tracing import noted

WRITERS: Final = 3
PERIOD: Final = 1.0  # seconds: files are finished, removed and made again all the time
COUNT: Final = 2_000  # records of one life of a writer
STEPS: Final = 30


class Chaos:
    """A spool on which everything is killed, and what must arrive in spite of that."""

    def __init__(self, folder: Path, daemon: Daemon, seed: int) -> None:
        self.dice = random.Random(seed)
        self.directory = folder / "spool"
        self.directory.mkdir()
        self.tables = Tables()
        self.told: list[int] = []
        self.attempted: list[int] = []
        self.killed = 0
        self._folder = folder
        self._daemon = daemon
        self._firsts = itertools.count(0, COUNT)
        self._forward = Forward(self.directory, daemon.url, "--period", str(PERIOD))

    def run(self, steps: int) -> None:
        """Lets all of them work, and kills one after the other."""
        writers = [self._writer() for _ in range(WRITERS)]
        self._forward.start()
        try:
            for _ in range(steps):
                # A record more of some writer is a moment as good as any other.
                place = self.dice.randrange(WRITERS)
                for _ in range(self.dice.randrange(1, 300)):
                    self.told.append(writers[place].next_told())
                what = self.dice.random()
                if what < 0.5:
                    self._end(writers[place])
                    writers[place] = self._writer()
                elif what < 0.8:
                    self._forward.kill()
                    self._forward.start()
                else:
                    port = self._daemon.port
                    self._daemon.kill()
                    self._daemon.start(port)
                self.killed += 1
        finally:
            for writer in writers:
                self._end(writer)
            self._forward.kill()

    def _writer(self) -> TracedWriter:
        first = next(self._firsts)
        life = Writing(
            data=self.directory,
            log=self._folder / f"{first}.log",
            tables=self.tables,
            first=first,
            count=COUNT,
            sync=self.dice.choice(["none", "none", "each", "group"]),
            period=PERIOD,
        )
        return TracedWriter(life).__enter__()

    def _end(self, writer: TracedWriter) -> None:
        writer.send_kill()
        self.told += writer.told()
        code = writer.wait()
        assert is_killed(code) or code == 0, writer.log()
        assert isinstance(writer.life, Writing)
        first = writer.life.first
        self.attempted.append(
            max([n for n in self.told if n // COUNT == first // COUNT] or [first - 1]) + 1
        )


def survive(folder: Path, seed: int, steps: int) -> int:
    folder.mkdir()
    with noted(f"seed {seed}"), Daemon(folder / "data") as daemon:
        chaos = Chaos(folder, daemon, seed)
        chaos.run(steps)
        for hours in (1, 2):  # one of them may be the period whose name a file has
            forward(chaos.directory, daemon.url, hours=hours)
        assert not spool_files(chaos.directory)
        with fjord.connect(daemon.url) as db:
            check(db, chaos.tables, chaos.told, chaos.attempted)
    return chaos.killed


@pytest.mark.soak
def test_everybody_is_killed_all_the_time(tmp_path: Path, soak_seconds: float) -> None:
    deadline = time.monotonic() + soak_seconds
    killed = 0
    for seed in itertools.count():
        killed += survive(tmp_path / str(seed), seed, STEPS)
        print(f"seed {seed}: {killed} kills so far")
        if time.monotonic() > deadline:
            break
    assert killed >= STEPS
