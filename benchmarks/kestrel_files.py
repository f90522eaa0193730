"""How fast journals of Kestrel are read, on one core.

The file is that of a busy queue: items are added, and each is taken soon after, alternately for
good and as an open item that is confirmed; some of them remain at the end.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator

from rich.table import Table

from benchmarks import report, servers
from benchmarks.scale import Scale
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.kestrel import codec, inspect, reader
from fjord.kestrel.codec import Item, Op, Opcode
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue

QUEUE = "cars"
FILE_BYTES = 32 * 2**20
SIZES = {"64 B": 64, "1 KB": 1000, "16 KB": 16_000}
ADD_MS = 1_700_000_000_000
AIM = 50
# One of this many items stays in the queue; the others are taken.
LEFT = 10


def run(scale: Scale) -> None:
    table = Table("a journal, MB/s of a core", "found", "counted", "opened", "target", "as objects")
    for name, size in SIZES.items():
        with servers.data_directory() as folder:
            path = os.path.join(folder, QUEUE)
            _write(path, size, max(scale.of(FILE_BYTES), 2**20))
            rates = [_rate(path, read, scale) for read in (_find, _count, _open)]
            alone = _rate(path, _parse, scale)
        missed = "" if min(rates) >= AIM else "  missed"
        figures = [f"{rate:,.0f}" for rate in rates]
        table.add_row(f"items of {name}", *figures, f"{AIM}{missed}", f"{alone:,.0f}")
    report.console.print(table)


def _write(path: str, size: int, file_bytes: int) -> None:
    with open(path, "wb") as file:
        for op in _ops(size):
            file.write(codec.encode(op, codec.Dialect.V24))
            if file.tell() >= file_bytes:
                return


def _ops(size: int) -> Iterator[Op]:
    data, number = b"x" * size, 0
    while True:
        number += 1
        yield Op(Opcode.ADDX, item=Item(data, ADD_MS + number))
        if number % LEFT == 0:
            continue
        if number % 2:
            yield codec.remove()
        else:
            yield codec.remove_tentative(number)
            yield codec.confirm_remove(number)


def _rate(path: str, read: Callable[[str], object], scale: Scale) -> float:
    """Returns megabytes per second of processor time."""
    rates = []
    for _ in range(scale.rounds):
        start = time.process_time()
        read(path)
        rates.append(os.path.getsize(path) / 1e6 / (time.process_time() - start))
    return statistics.median(rates)


def _find(path: str) -> None:
    """Finds each op, many at a time; counting and opening begin with this."""
    for _ in reader.JournalFile(LocalDisk(), path).batches():
        pass


def _parse(path: str) -> None:
    """Makes an object of each op, as `dump` does before it prints."""
    for _ in reader.JournalFile(LocalDisk(), path).ops():
        pass


def _count(path: str) -> None:
    """Follows what happens to each item, without its data, as `verify` does."""
    list(inspect.verify([reader.alone(LocalDisk(), path)]))


def _open(path: str) -> None:
    """Opens the queue for use, as a start of the server does."""
    folder, queue = os.path.split(path)
    clock = SystemClock()
    journal = Journal(LocalDisk(), folder, queue, clock)
    PersistentQueue(queue, QueueConfig(), clock, journal)
    journal.close()
