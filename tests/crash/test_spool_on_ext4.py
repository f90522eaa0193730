"""Power cuts under a spool, on a real ext4: what was synced arrives once, and nothing twice.

Each run is several lives of one spool; the daemon is elsewhere and lives on.  A life ends with a
cut between two writes, or while a forwarder erases what has arrived; the next one finds whatever
the disk holds, and a machine that was started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from pathlib import Path
from typing import Final

import pytest

import fjord
from fjord.client.spool import files, reader, records
from fjord.client.spool.reader import FileReader, Load
from fjord.client.spool.writer import Sync
from fjord.errors import FjordError
from fjord.forwarder import Forwarder
from tests.crash.ext4 import Cut, Ext4
from tests.crash.spool_world import (
    DEADLINE_SECONDS,
    LOAD_ROWS,
    Tables,
    check,
    forward,
    opened,
    spool_files,
    write,
)
from tests.crash.tracing import noted

pytestmark = [pytest.mark.root, pytest.mark.loop]

SEEDS: Final = range(2)
LIVES: Final = 5
DISK_MIB: Final = 8


class CutForwarder(Forwarder):
    """A forwarder whose disk loses its power when so many loads are confirmed."""

    def __init__(self, directory: Path, url: str, disk: Ext4, cut: Cut, loads: int) -> None:
        super().__init__(str(directory), url)
        self._cut = (disk, cut)
        self._loads = loads

    def _confirm(self, source: FileReader, load: Load) -> None:
        self._loads -= 1
        if self._loads == 0:
            disk, cut = self._cut
            disk.cut_power(cut)
        super()._confirm(source, load)


class World:
    """A spool on a disk that loses its power, and what of it must arrive."""

    def __init__(self, disk: Ext4, url: str, seed: int) -> None:
        self.disk = disk
        self.url = url
        self.dice = random.Random(seed)
        self.directory = disk.path / "spool"
        self.tables = Tables()
        self.numbers = itertools.count()
        self.synced: list[int] = []
        self.written: list[int] = []
        with fjord.connect(url) as db:  # a table of values, so that no job is taken there
            db.kv(self.tables.kv).set("0", 0)
            db.kv(self.tables.kv).delete("0")

    def live(self, cut: Cut) -> None:
        """Writes and forwards, until the power is cut."""
        for _ in range(self.dice.randrange(1, 4)):
            self.write()
            if self.dice.random() < 0.5:
                forward(self.directory, self.url)
        if self.dice.random() < 0.5:
            loads = self.dice.randrange(1, 6)
            forwarder = CutForwarder(self.directory, self.url, self.disk, cut, loads)
            with contextlib.suppress(OSError, FjordError):
                asyncio.run(asyncio.wait_for(forwarder.run(until_empty=True), DEADLINE_SECONDS))
        self.disk.cut_power(cut)

    def write(self) -> None:
        sync = self.dice.choice(list(Sync))
        with opened(self.directory, sync) as spool:
            for number in itertools.islice(self.numbers, self.dice.randrange(1, 40)):
                write(spool, self.tables, number)
                self.written.append(number)
                if sync is not Sync.NONE:
                    self.synced.append(number)
                if self.dice.random() < 0.05:
                    spool.jobs(self.tables.kv).push("a job in a table of values")


@pytest.mark.req("FJ-16", "FJ-25")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cut", Cut)
def test_what_was_synced_arrives_once_after_power_cuts(
    cut: Cut, seed: int, daemon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, reader):
        monkeypatch.setattr(module, "ROWS_MAX", LOAD_ROWS)
    with Ext4(tmp_path, mib=DISK_MIB) as disk, noted(f"seed {seed}"):
        world = World(disk, daemon, seed)
        for life in range(LIVES):
            monkeypatch.setattr(files, "_boot", lambda life=life: life.to_bytes(8, "big"))
            world.live(cut)
            disk.unmount()
            disk.mount()
        monkeypatch.setattr(files, "_boot", lambda: LIVES.to_bytes(8, "big"))
        world.write()
        world.synced += world.written[-1:]  # the power stays on
        forward(world.directory, daemon)
        forward(world.directory, daemon, hours=1)
        assert not spool_files(world.directory)
        with fjord.connect(daemon) as db:
            check(db, world.tables, world.synced, world.written)
