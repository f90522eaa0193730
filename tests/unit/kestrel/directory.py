"""A directory with a queue on a simulated disk: what is in its files, and the queue itself."""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import Any

from fjord.clock import Clock
from fjord.disk import Disk
from fjord.kestrel import inspect, reader
from fjord.kestrel.codec import Dialect
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.kestrel.reader import QueueSurvey
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.vectors import Replayed

FOLDER, QUEUE = "/kestrel", "cars"
State = tuple[list[bytes], dict[int, bytes]]  # what waits, and what is open by its xid


def made_disk(seed: int = 0, kind: type[SimDisk] = SimDisk) -> SimDisk:
    disk = kind(seed)
    disk.make_directory(FOLDER)
    disk.sync_directory("/")
    return disk


def put(disk: Disk, name: str, data: bytes = b"") -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", writable=True, create=True)) as file:
        file.write(0, data)
        file.sync()


def read(disk: Disk, name: str) -> bytes:
    with contextlib.closing(disk.open(f"{FOLDER}/{name}")) as file:
        return file.read(0, file.size())


def files(disk: Disk) -> dict[str, bytes]:
    """Returns all files but the sums, and what was moved away because it is damaged."""
    names = [name for name in disk.names(FOLDER) if name not in (f"{QUEUE}~~sums", "~~corrupt")]
    names += [f"~~corrupt/{name}" for name in disk.names(f"{FOLDER}/~~corrupt")]
    return {name: read(disk, name) for name in names}


def at_ms(now_ms: int) -> SimClock:
    return SimClock(wall_us=now_ms * 1000)


def journal_of(disk: Disk, clock: Clock | None = None, **options: Any) -> Journal:
    return Journal(disk, FOLDER, QUEUE, clock or at_ms(904), **options)


def opened(
    disk: Disk, clock: SimClock | None = None, dialect: Dialect = Dialect.V24, **config: Any
) -> PersistentQueue:
    clock = clock or SimClock()
    journal = journal_of(disk, clock, dialect=dialect)
    return PersistentQueue(QUEUE, QueueConfig(**config), clock, journal)


def drained(queue: PersistentQueue) -> list[bytes]:
    return [bytes(item.data) for item in iter(queue.remove, None)]


def held(queue: PersistentQueue) -> State:
    open_items = {xid: bytes(entry.data) for xid, entry in queue.waiting.open.items()}
    return drained(queue), open_items


def replayed(found: QueueSurvey) -> Replayed:
    """Returns what all ops of the files give, each applied by itself."""
    state = Replayed()
    for op, _, _ in chain.from_iterable(file.ops() for file in found.files):
        state.apply(op)
    return state


def meaning(state: Replayed) -> State:
    waiting = [bytes(item.data) for item in state.queue]
    return waiting, {xid: bytes(item.data) for xid, item in state.open.items()}


def on_disk(disk: Disk) -> State:
    """Returns what a reader of the files finds, which are whole."""
    found = reader.survey(disk, FOLDER, QUEUE)
    state = replayed(found)
    assert (state.missed, state.displaced) == (0, 0)
    assert [(file.broken, file.changed) for file in found.files] == [(None, None)] * len(
        found.files
    )
    return meaning(state)


def told(disk: Disk) -> list[str]:
    """Returns the names of files that a reader says are damaged, changed or missing."""
    (report,) = inspect.verify([reader.survey(disk, FOLDER, QUEUE)])
    return [one.path.rpartition("/")[2] for one in report.files if one.is_damaged]
