"""Rates of writes and reads while the journal is packed, beside those while it is not.

One daemon, one run, three phases; every window of a phase writes some batches, then reads some:

    inserts                      new keys: nothing to pack
    overwrites before packing    garbage accumulates, and is not enough yet
    overwrites while packing     windows in which the daemon packed; those between do not count

Several batches are in flight, so that packing cannot hide in the daemon's idle time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.table import Table

import fjord.aio
from benchmarks import loads, report, servers
from benchmarks.journal import JournalState
from benchmarks.scale import Scale

KEYS = 500_000
WINDOW_ROWS = 20_000
IN_FLIGHT = 4
# Stop when this many segments are packed, or keys are overwritten this many times.
SEGMENTS_PACKED = 10
TIMES_OVERWRITTEN_MAX = 15
RATIO_AIM = 0.6

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A period of writing, then of reading."""

    rows: int  # written rows
    write_seconds: float
    keys: int  # read keys
    read_seconds: float


@dataclass(slots=True)
class Phase:
    """Windows in which the daemon was in the same state."""

    name: str
    windows: list[Window] = field(default_factory=list)

    def write_rate(self) -> float:
        """Returns rows per second over all windows, so that no stall is missed."""
        seconds = sum(window.write_seconds for window in self.windows)
        return sum(window.rows for window in self.windows) / seconds if seconds else 0.0

    def read_rate(self) -> float:
        seconds = sum(window.read_seconds for window in self.windows)
        return sum(window.keys for window in self.windows) / seconds if seconds else 0.0


@dataclass(slots=True)
class Phases:
    inserts: Phase = field(default_factory=lambda: Phase("inserts, nothing to pack"))
    before: Phase = field(default_factory=lambda: Phase("overwrites before packing"))
    packing: Phase = field(default_factory=lambda: Phase("overwrites while packing"))
    between: Phase = field(default_factory=lambda: Phase("overwrites between, not compared"))


def run(scale: Scale) -> None:
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory, SEGMENT_BYTES=scale.segment_bytes) as daemon,
    ):
        phases, packed = asyncio.run(measure(daemon.url, scale))
    table = Table("rates while packing", "set_many rows/s", "get_many rows/s", "windows")
    for phase in (phases.inserts, phases.before, phases.packing, phases.between):
        rates = (f"{phase.write_rate():,.0f}", f"{phase.read_rate():,.0f}")
        table.add_row(phase.name, *rates, str(len(phase.windows)))
    report.console.print(table)
    if not (phases.before.windows and phases.packing.windows):
        report.console.print(
            "no ratio: there were no windows before packing, or none while packing"
        )
        return
    report.console.print(f"{packed} segments were packed")
    ratio("set_many", phases.packing.write_rate(), phases.before.write_rate())
    ratio("get_many", phases.packing.read_rate(), phases.before.read_rate())


def ratio(what: str, packing: float, before: float) -> None:
    report.figure(
        f"{what} while packing / before",
        f"{packing / before:.2f}",
        aim=f"target: {RATIO_AIM}",
        is_met=packing >= RATIO_AIM * before,
    )


async def measure(url: str, scale: Scale) -> tuple[Phases, int]:
    """Returns the measurements, and how many segments were packed meanwhile."""
    keys = loads.keys(scale.of(KEYS))
    phases = Phases()
    async with await fjord.aio.connect(url) as db:
        rows = max(IN_FLIGHT * loads.BATCH, scale.of(WINDOW_ROWS))
        load = Load(db.kv("bench"), window_rows=rows)
        await insert(load, keys, phases.inserts)
        packed = await overwrite(db, load, keys, phases, scale.segment_bytes)
    return phases, packed


async def insert(load: Load, keys: Sequence[str], phase: Phase) -> None:
    for start in range(0, len(keys), load.window_rows):
        end = start + load.window_rows
        batches = list(loads.batches(keys[start:end]))
        phase.windows.append(await load.window(batches, keys[:end]))


async def overwrite(
    db: fjord.aio.AsyncDatabase,
    load: Load,
    keys: Sequence[str],
    phases: Phases,
    segment_bytes: int,
) -> int:
    """Overwrites until enough segments are packed; returns their number."""
    first = state = JournalState.of(await db.stats())
    for _ in range(TIMES_OVERWRITTEN_MAX * len(keys) // load.window_rows + 1):
        window = await load.window(load.drawn_batches(keys), keys)
        was, state = state, JournalState.of(await db.stats())
        has_packed = state.packed_segments > was.packed_segments
        if has_packed or was.is_packing_due(segment_bytes):
            phase = phases.packing
        else:
            phase = phases.between if phases.packing.windows else phases.before
        phase.windows.append(window)
        if state.packed_segments - first.packed_segments >= SEGMENTS_PACKED:
            break
    return state.packed_segments - first.packed_segments


class Load:
    """Writes and reads of one client, with several batches in flight."""

    def __init__(self, kv: fjord.aio.AsyncKv, *, window_rows: int) -> None:
        self._kv = kv
        self.window_rows = window_rows
        self._chance = random.Random(4)

    def drawn_batches(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        count = self.window_rows // loads.BATCH
        return [loads.drawn_batch(self._chance, keys) for _ in range(count)]

    async def window(self, batches: Sequence[dict[str, bytes]], there: Sequence[str]) -> Window:
        """Writes batches, then reads as many of the existing keys."""
        wanted = [loads.drawn_keys(self._chance, there) for _ in batches]
        return Window(
            rows=sum(map(len, batches)),
            write_seconds=await _timed(self._kv.set_many, batches),
            keys=sum(map(len, wanted)),
            read_seconds=await _timed(self._kv.get_many, wanted),
        )


async def _timed(call: Callable[[Item], Awaitable[object]], items: Sequence[Item]) -> float:
    """Calls with each of the items, some at a time; returns the seconds."""

    async def work(part: Sequence[Item]) -> None:
        for item in part:
            await call(item)

    start = time.perf_counter()
    await asyncio.gather(*(work(items[task::IN_FLIGHT]) for task in range(IN_FLIGHT)))
    return time.perf_counter() - start
