"""Queues of Kestrel: reading journals, serving the protocol, and queues larger than memory."""

from __future__ import annotations

from benchmarks import kestrel_files, kestrel_large, kestrel_served
from benchmarks.scale import Scale


def run(scale: Scale) -> None:
    kestrel_files.run(scale)
    kestrel_large.run(scale)
    kestrel_served.run(scale)
