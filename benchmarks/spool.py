"""The spool: the cost of a write, and how fast records reach the daemon."""

from __future__ import annotations

from benchmarks import spool_forwarding, spool_writes
from benchmarks.scale import Scale


def run(scale: Scale) -> None:
    spool_writes.run(scale)
    spool_forwarding.run(scale)
