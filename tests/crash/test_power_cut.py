"""Power cuts under load, on a real ext4: nothing acknowledged is lost, and nothing is made up.

Each run is several lives of one directory.  A life ends when so many writes were acknowledged,
with others under way; the next one finds whatever the disk holds, and a machine that was started
anew.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.errors import FjordError
from tests.crash import tracing
from tests.crash.ext4 import Cut, Ext4
from tests.crash.world import make_script

pytestmark = [pytest.mark.root, pytest.mark.loop]

CUTS = pytest.mark.parametrize("cut", Cut)
SEEDS = range(5)
CUTS_PER_SEED = 5
DISK_MIB = 64
WRITERS = 3
KEYS_PER_WRITER = 7
BATCH_ROWS = 20
# A life is at most so many acknowledged writes.
WRITES_PER_LIFE = 80
VALUE_BYTES = [10, 300, 3000]
SCRIPT_LENGTH = 200
# Of the calls that each step of a script makes, every so many-th is one to cut the power at.
ROUTINE_STEP = 47


class Load:
    """Writers that note what was acknowledged, and what was only attempted."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, bytes] = {}
        self.attempted: dict[str, bytes] = {}
        self.count = 0
        self._is_over = False
        self._progress = threading.Semaphore(0)
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def run(self, traced: tracing.TracedDaemon, life: int) -> Iterator[None]:
        """Writes for as long as the daemon lives; the daemon must be gone at the end."""
        self._is_over = False
        threads = [
            threading.Thread(target=self._write, args=(traced, writer, life))
            for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            traced.kill()
            for thread in threads:
                thread.join()

    def wait_for(self, writes: int) -> None:
        """Waits until so many more writes were acknowledged."""
        for _ in range(writes):
            assert self._progress.acquire(timeout=tracing.DEADLINE_SECONDS)

    def end(self) -> None:
        """From now on no answer counts.

        After a power cut there are none.  Here there may be: a sync that ext4 is busy with while
        it is shut down comes back as if all were well.
        """
        with self._guard:
            self._is_over = True

    def _write(self, traced: tracing.TracedDaemon, writer: int, life: int) -> None:
        """Writes under few keys, and batches, until the connection breaks."""
        dice = random.Random(f"{writer} {life}")
        with contextlib.suppress(*tracing.GONE), tracing.connected(traced) as db:
            table = db.kv("load")
            for number in itertools.count():
                value = b"%d:%d:%d " % (life, writer, number)
                value += bytes(dice.choice(VALUE_BYTES))
                items = {f"{writer}:{number % KEYS_PER_WRITER}": value}
                if number % 5 == 0:
                    items |= {f"{writer}:batch:{row}": value for row in range(BATCH_ROWS)}
                with self._guard:
                    self.attempted |= items
                table.set_many(items)
                with self._guard:
                    if self._is_over:
                        return
                    self.acknowledged |= items
                    self.count += 1
                self._progress.release()

    def check(self, traced: tracing.TracedDaemon) -> None:
        """Asserts that every key has its last acknowledged value, or the one attempted."""
        assert traced.is_ready, traced.log()
        with tracing.connected(traced) as db:
            found = db.kv("load").get_many(self.attempted) if self.attempted else {}
        wrong = [
            key
            for key, attempted in self.attempted.items()
            if found.get(key) not in (self.acknowledged.get(key), attempted)
        ]
        assert not wrong, f"lost or made up: {wrong}"
        for writer in range(WRITERS):
            batch = {found.get(f"{writer}:batch:{row}") for row in range(BATCH_ROWS)}
            assert len(batch) == 1, f"half of a batch of writer {writer}"
        # What was read must stay.
        self.acknowledged = {key: value for key, value in found.items() if type(value) is bytes}
        self.attempted = dict(self.acknowledged)


def survive_cuts(folder: Path, cut: Cut, seed: int, cuts: int, flaw: str = "") -> int:
    """Cuts the power again and again; returns how many writes were acknowledged."""
    dice, load = random.Random(seed), Load()
    with (
        tracing.noted(f"replay: survive_cuts(folder, {cut}, {seed}, {cuts})"),
        Ext4(folder, mib=DISK_MIB) as disk,
    ):
        for number in range(cuts):
            life = life_on(disk, folder, boot=number, flaw=flaw)
            with tracing.TracedDaemon(life) as traced:
                load.check(traced)
                with load.run(traced, number):
                    load.wait_for(dice.randint(1, WRITES_PER_LIFE))
                    load.end()
                    disk.cut_power(cut)
            disk.unmount()
            disk.mount()
        with tracing.TracedDaemon(life_on(disk, folder, boot=cuts, flaw=flaw)) as traced:
            load.check(traced)
    return load.count


def life_on(disk: Ext4, folder: Path, *, boot: int, flaw: str = "") -> tracing.Life:
    """Returns a life of a directory on a disk; nothing of the page cache outlives its boot."""
    return tracing.Life(data=disk.path / "data", log=folder / "log", boot=f"boot {boot}", flaw=flaw)


def whole_life(disk: Ext4, folder: Path, seed: int) -> list[tracing.Point]:
    """Plays a script to its end; returns all points at which the power can be cut."""
    with tracing.TracedDaemon(life_on(disk, folder, boot=1), *tracing.trace()) as traced:
        assert tracing.Player().play(traced, make_script(seed, SCRIPT_LENGTH))
        assert traced.stop() == 0
    remove_data(disk)
    return tracing.points(traced.calls())


def survive_cut_at(disk: Ext4, folder: Path, cut: Cut, seed: int, point: tracing.Point) -> bool:
    """Cuts the power at one call of a script; says whether it came there."""
    player = tracing.Player()
    with tracing.noted(f"replay: survive_cut_at(disk, folder, {cut}, {seed}, {point})"):
        with tracing.TracedDaemon(
            life_on(disk, folder, boot=1), *point.inject("signal=KILL")
        ) as traced:
            if traced.is_ready:
                player.play(traced, make_script(seed, SCRIPT_LENGTH))
            code = traced.stop()
        disk.cut_power(cut)
        disk.unmount()
        disk.mount()
        player.check(life_on(disk, folder, boot=2))
    remove_data(disk)
    return code != 0


def remove_data(disk: Ext4) -> None:
    """Removes the directory so that the next power cut does not bring it back."""
    shutil.rmtree(disk.path / "data")
    LocalDisk().sync_directory(str(disk.path))


@pytest.mark.req("FJ-18")
@CUTS
@pytest.mark.parametrize("seed", SEEDS)
def test_power_cuts_under_load_lose_nothing(cut: Cut, seed: int, tmp_path: Path) -> None:
    assert survive_cuts(tmp_path, cut, seed, CUTS_PER_SEED) > CUTS_PER_SEED


@pytest.mark.strace
@CUTS
def test_a_power_cut_at_any_call_keeps_exactly_what_was_acknowledged(
    cut: Cut, tmp_path: Path
) -> None:
    with Ext4(tmp_path, mib=DISK_MIB) as disk:
        wanted = tracing.chosen(whole_life(disk, tmp_path, 1), ROUTINE_STEP)[cut - 1 :: len(Cut)]
        reached = [survive_cut_at(disk, tmp_path, cut, 1, point) for point in wanted]
    # What a daemon does by itself depends on time, so that a few points may not come again.
    assert sum(reached) >= 0.9 * len(wanted) > 20


@CUTS
def test_the_search_finds_a_daemon_that_acknowledges_before_the_sync(
    cut: Cut, tmp_path: Path
) -> None:
    with pytest.raises((AssertionError, FjordError), match=r"lost or made up|damaged"):
        survive_cuts(tmp_path, cut, 1, 5, flaw="acknowledges before the sync")


@pytest.mark.soak
@CUTS
def test_five_hundred_power_cuts_of_each_kind_lose_nothing(
    cut: Cut, tmp_path: Path, soak_seconds: float
) -> None:
    deadline = time.monotonic() + soak_seconds
    cuts = 0
    for seed in itertools.count(1_000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        survive_cuts(folder, cut, seed, CUTS_PER_SEED)
        cuts += CUTS_PER_SEED
        print(f"seed {seed}: {cuts} power cuts so far")
        if cuts >= 500 and time.monotonic() > deadline:
            break
    assert cuts >= 500


@pytest.mark.soak
@pytest.mark.strace
@CUTS
def test_scripts_without_end_survive_a_power_cut_at_every_call(
    cut: Cut, tmp_path: Path, soak_seconds: float
) -> None:
    deadline = time.monotonic() + soak_seconds
    reached = 0
    with Ext4(tmp_path, mib=DISK_MIB) as disk:
        for seed in itertools.count(1_000):
            for point in whole_life(disk, tmp_path, seed):
                reached += survive_cut_at(disk, tmp_path, cut, seed, point)
            print(f"seed {seed}: {reached} power cuts so far")
            if time.monotonic() > deadline:
                break
    assert reached > 0
