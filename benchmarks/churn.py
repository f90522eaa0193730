"""Disk use after every key was overwritten several times, in random order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import fjord
from benchmarks import loads, report, servers
from benchmarks.journal import JournalState, disk_bytes, settle
from benchmarks.scale import Scale

KEYS = 1_000_000
TIMES_OVERWRITTEN = 4
RATIO_AIM = 2.5
SEGMENTS_AIM = 2
_LOOKS = 100  # at the disk usage, while keys are overwritten


def run(scale: Scale) -> None:
    keys = loads.keys(scale.of(KEYS))
    with (
        servers.data_directory() as directory,
        servers.Daemon(directory, SEGMENT_BYTES=scale.segment_bytes) as daemon,
        fjord.connect(daemon.url) as db,
    ):
        loads.insert(db.kv("bench"), keys)
        journal = Path(directory, "journal")
        peak_bytes = overwrite(db, keys, journal)
        state = settle(db)
        settled(state, disk_bytes(journal), scale.segment_bytes)
        report.figure("  the maximum meanwhile", _beside(peak_bytes, state))
        whole_bytes = disk_bytes(Path(directory))
        report.figure("  the whole directory, index included", _beside(whole_bytes, state))


def overwrite(db: fjord.Database, keys: Sequence[str], journal: Path) -> int:
    """Overwrites keys at random; returns the maximum size of the journal on disk meanwhile."""
    chance = random.Random(3)
    kv = db.kv("bench")
    batches = max(1, TIMES_OVERWRITTEN * len(keys) // loads.BATCH)
    peak_bytes = 0
    for number in range(batches):
        kv.set_many(loads.drawn_batch(chance, keys))
        if number % max(1, batches // _LOOKS) == 0:
            peak_bytes = max(peak_bytes, disk_bytes(journal))
    return peak_bytes


def settled(state: JournalState, used_bytes: int, segment_bytes: int) -> None:
    allowed_bytes = RATIO_AIM * state.live_bytes + SEGMENTS_AIM * segment_bytes
    report.figure(
        f"journal on disk after churn, {report.megabytes(state.live_bytes)} live, "
        f"{state.packed_segments} segments packed",
        _beside(used_bytes, state),
        aim=f"target: at most {RATIO_AIM} times and {SEGMENTS_AIM} segments = "
        f"{report.megabytes(allowed_bytes)}",
        is_met=used_bytes <= allowed_bytes,
    )


def _beside(used_bytes: int, state: JournalState) -> str:
    return f"{report.megabytes(used_bytes)}, {used_bytes / state.live_bytes:.2f} times live"
