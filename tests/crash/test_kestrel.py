"""Kestrel's files and a crash at every step of replacing them: nothing lost or doubled."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from itertools import chain

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import codec, reader
from fjord.kestrel import config as configs
from fjord.kestrel.codec import Dialect
from fjord.kestrel.collection import Collection
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.kestrel.vectors import Replayed

FOLDER, QUEUE = "/kestrel", "cars"
SEEDS = range(4)
DIALECTS = pytest.mark.parametrize("dialect", Dialect)

State = tuple[list[bytes], dict[int, bytes]]


def make(disk: SimDisk, dialect: Dialect, memory_bytes: int = 1 << 20) -> PersistentQueue:
    clock = SimClock()
    config = QueueConfig(max_memory_size=memory_bytes, max_journal_size=1 << 30)
    journal = Journal(disk, FOLDER, QUEUE, dialect=dialect, now_ms=lambda: clock.wall_us() // 1000)
    return PersistentQueue(QUEUE, config, clock, journal)


def state_of(disk: SimDisk) -> State:
    state = Replayed()
    found = reader.survey(disk, FOLDER, QUEUE)
    for op, _, _ in chain.from_iterable(file.ops() for file in found.files):
        state.apply(op)
    assert state.missed == 0
    assert [file.changed for file in found.files if file.changed] == []
    waiting = [bytes(item.data) for item in state.queue]
    return waiting, {xid: bytes(item.data) for xid, item in state.open.items()}


def left_over(disk: SimDisk) -> list[str]:
    """Returns what nobody needs but who has not ended yet."""
    listed = disk.names(FOLDER)
    return [
        name for name in listed if name != f"{QUEUE}~~sums" and ("~~" in name or "pack" in name)
    ]


def drained(queue: PersistentQueue) -> State:
    opened = {xid: entry.data for xid, entry in queue.waiting.open.items()}
    return [bytes(item.data) for item in iter(queue.remove, None)], opened


def drained_all(queues: Collection) -> list[bytes]:
    return [bytes(item.data) for item in iter(lambda: queues.remove(QUEUE), None)]


def filled(disk: SimDisk, dialect: Dialect) -> PersistentQueue:
    """Returns a queue of several files, with open items."""
    disk.make_directory(FOLDER)
    disk.sync_directory("/")
    queue = make(disk, dialect)
    for number in range(12):
        assert queue.add(b"item %d" % number)
        if number % 4 == 3:
            queue._rotate()
            assert queue.remove(opens=True)
            assert queue.remove()
    queue.unremove(1)
    queue.sync()
    return queue


def rewrite(queue: PersistentQueue) -> None:
    queue.rewrite()


def rotate(queue: PersistentQueue) -> None:
    queue._rotate()


def pack_offline(queue: PersistentQueue) -> None:
    queue.pack()


def crashed(
    prepare: Callable[[SimDisk], PersistentQueue],
    work: Callable[[PersistentQueue], object],
    *,
    seed: int,
    call: int,
) -> tuple[SimDisk, State, bool]:
    """Cuts the work at one of its calls: the disk, what was on it, and whether it was cut."""
    disk = SimDisk(seed)
    queue = prepare(disk)
    before = state_of(disk)
    disk.crash_after(call)
    try:
        work(queue)
    except SimCrash:
        return disk, before, True
    return disk, before, False


def check_every_crash(
    prepare: Callable[[SimDisk], PersistentQueue],
    work: Callable[[PersistentQueue], object],
    restart: Callable[[SimDisk], PersistentQueue],
) -> int:
    """Cuts the work at each of its calls; returns how many there are."""
    for call in range(1, 1000):
        for seed in SEEDS:
            for cut in (SimDisk.power_cut, SimDisk.process_crash):
                disk, before, is_cut = crashed(prepare, work, seed=seed, call=call)
                if not is_cut:
                    return call - 1
                cut(disk)
                assert state_of(disk) == before
                assert restart(disk).alerts == []  # which ends what was begun
                assert not left_over(disk)
                if cut is SimDisk.process_crash:
                    disk.power_cut()  # what the start has read must be durable by then
                assert state_of(disk) == before
                assert drained(restart(disk)) == before
    raise AssertionError("it never ends")


@pytest.mark.req("KJ-14")
@pytest.mark.req("KJ-16")
@DIALECTS
@pytest.mark.parametrize("work", [rotate, rewrite, pack_offline])
def test_a_crash_at_any_step_changes_nothing(
    work: Callable[[PersistentQueue], None], dialect: Dialect
) -> None:
    def prepare(disk: SimDisk) -> PersistentQueue:
        return filled(disk, dialect)

    def restart(disk: SimDisk) -> PersistentQueue:
        return make(disk, dialect)

    assert check_every_crash(prepare, work, restart) >= 4


@pytest.mark.req("KJ-16")
def test_a_crash_while_a_start_ends_what_a_crash_had_left_changes_nothing() -> None:
    def prepare(disk: SimDisk) -> PersistentQueue:
        return filled(disk, Dialect.V24)

    cuts = 0
    for call in range(1, 20):
        for again in range(1, 10):
            for seed in SEEDS[:2]:
                disk, before, is_cut = crashed(prepare, rewrite, seed=seed, call=call)
                if not is_cut:
                    continue
                disk.process_crash()
                disk.crash_after(again)
                with contextlib.suppress(SimCrash):
                    make(disk, Dialect.V24)
                disk.power_cut()
                cuts += 1
                assert state_of(disk) == before
                assert drained(make(disk, Dialect.V24)) == before
    assert cuts > 100


@pytest.mark.req("KJ-18")
@pytest.mark.req("KJ-19")
@DIALECTS
def test_a_crash_while_older_files_are_packed_changes_nothing(dialect: Dialect) -> None:
    def restart(disk: SimDisk) -> PersistentQueue:
        return make(disk, dialect, memory_bytes=600)

    def prepare(disk: SimDisk) -> PersistentQueue:
        """Returns a queue in read-behind; the next thing that is done packs."""
        disk.make_directory(FOLDER)
        disk.sync_directory("/")
        queue = restart(disk)
        for number in range(20):
            assert queue.add(b"%04d" % number * 50)
        for number in range(15):
            assert queue.remove(opens=number % 3 == 0)
        assert queue.waiting.is_behind
        queue._write(codec.remove())
        queue.waiting.take()
        queue.sync()
        return queue

    def work(queue: PersistentQueue) -> None:
        queue._check_files()
        assert queue.stats()["journal_rewrites"] == 1

    assert check_every_crash(prepare, work, restart) >= 8


def test_a_crash_at_any_step_of_any_work_keeps_what_was_acknowledged() -> None:
    given = {"maxMemorySize": 300, "maxJournalSize": 900, "defaultJournalSize": 500}
    config = configs.read({"default": given})
    call = 0
    while True:
        call += 1
        disk = SimDisk(call)
        disk.crash_after(call)
        allowed: list[list[bytes]] = [[]]
        try:
            work(disk, config, allowed)
        except SimCrash:
            disk.process_crash()
        else:
            break
        queues = Collection(disk, FOLDER, config, SimClock())
        assert queues.alerts() == []
        found = drained_all(queues)
        assert found in allowed
        queues.close()
    assert call > 250


def work(disk: SimDisk, config: configs.Configuration, allowed: list[list[bytes]]) -> None:
    """Uses a queue; `allowed` is what may be in it, at any moment."""
    queues = Collection(disk, FOLDER, config, SimClock())
    model: list[bytes] = []
    for number in range(60):
        data = b"%03d" % number * 15
        allowed[:] = [list(model), [*model, data]]
        queues.add(QUEUE, data)
        model.append(data)
        allowed[:] = [list(model)]
        if number % 3:
            # An open item is put back by the next start, so it counts as waiting until then.
            item = queues.remove(QUEUE, opens=True)
            assert item is not None
            allowed[:] = [list(model), model[1:]]
            queues.confirm(QUEUE, item.xid)
            del model[0]
    while model:
        allowed[:] = [list(model), model[1:]]
        queues.remove(QUEUE)
        del model[0]
    allowed[:] = [[]]
    queues.close()
    assert disk.names(FOLDER) == [QUEUE]


def test_a_full_disk_refuses_an_item_and_keeps_the_others() -> None:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    queue = make(disk, Dialect.V24)
    assert queue.add(b"first")
    disk.capacity = disk.used_bytes() + 10
    with pytest.raises(OSError, match="No space"):
        queue.add(b"second")
    assert queue.stats()["items"] == 1
    assert state_of(disk) == ([b"first"], {})
    with pytest.raises(OSError, match="No space"):
        queue.rewrite()
    disk.capacity = None
    assert queue.add(b"third")
    assert state_of(disk) == ([b"first", b"third"], {})


def test_a_failed_sync_ends_all_writing() -> None:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    queue = make(disk, Dialect.V24)
    assert queue.add(b"first")
    disk.errors = {len(disk.calls) + 2: errno.EIO}  # the first one is for the directory
    with pytest.raises(DurabilityError):
        queue.sync()
    with pytest.raises(DurabilityError):
        queue.add(b"second")


@pytest.mark.req("KJ-15")
def test_what_a_crash_has_left_is_removed() -> None:
    disk = SimDisk()
    queue = filled(disk, Dialect.V24)
    before = state_of(disk)
    with contextlib.closing(disk.open(f"{FOLDER}/{QUEUE}~~961", create=True)) as file:
        file.write(0, b"whatever")
    disk.process_crash()
    again = make(disk, Dialect.V24)
    assert left_over(disk) == []
    assert state_of(disk) == before
    assert drained(again) == before
    assert queue is not again
