"""The output: the machine, the command, and one line or table for each figure."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

_SYNCS = 50

# A fixed width, since tables may be written to a file.
console = Console(width=110, highlight=False, soft_wrap=True)


def machine() -> None:
    """Prints what a reader needs to compare or reproduce these figures."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    console.print(f"$ python -m benchmarks {' '.join(sys.argv[1:])}".rstrip())
    console.print(
        f"{platform.platform()}, {_processor()}, {os.cpu_count()} cores, "
        f"{memory_bytes / 2**30:.0f} GiB, Python {platform.python_version()}, {_redis()}"
    )
    console.print(f"fdatasync of 4 KiB: {_sync_us():,.0f} µs (median of {_SYNCS})")


def figure(name: str, shown: str, *, aim: str = "no target", is_met: bool = True) -> None:
    """Prints one figure beside its target."""
    console.print(f"{name}: {shown} ({aim}{'' if is_met else ', missed'})")


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _redis() -> str:
    path = shutil.which("redis-server")
    if path is None:
        return "no Redis"
    words = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return "Redis " + words.partition("v=")[2].split()[0]


def _sync_us() -> float:
    """Returns the minimum cost of a durable write on the disk of the working directory."""
    with tempfile.NamedTemporaryFile(prefix=".fjord-bench-", dir=Path.cwd()) as file:
        os.posix_fallocate(file.fileno(), 0, 4096 * _SYNCS)
        os.fsync(file.fileno())
        times = []
        for number in range(_SYNCS):
            os.pwrite(file.fileno(), b"x" * 4096, 4096 * number)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6
