"""Kestrel's files and a crash at every step of replacing them: nothing lost or doubled."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import Any

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import codec
from fjord.kestrel import config as configs
from fjord.kestrel.codec import Dialect
from fjord.kestrel.collection import Collection
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.kestrel.directory import (
    FOLDER,
    QUEUE,
    State,
    held,
    made_disk,
    on_disk,
    opened,
    put,
)

SEEDS = range(4)
DIALECTS = pytest.mark.parametrize("dialect", Dialect)
Work = Callable[[PersistentQueue], object]


def make(disk: SimDisk, dialect: Dialect, memory_bytes: int = 1 << 20) -> PersistentQueue:
    sizes: dict[str, Any] = {"max_memory_size": memory_bytes, "max_journal_size": 1 << 30}
    return opened(disk, dialect=dialect, **sizes)


def left_over(disk: SimDisk) -> list[str]:
    """Returns what nobody needs but who has not ended yet."""
    listed = set(disk.names(FOLDER)) - {f"{QUEUE}~~sums"}
    return [name for name in listed if "~~" in name or "pack" in name]


def filled(disk: SimDisk, dialect: Dialect) -> PersistentQueue:
    """Returns a queue of several files, with open items."""
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


def crashed(
    prepare: Callable[[SimDisk], PersistentQueue], work: Work, *, seed: int, call: int
) -> tuple[SimDisk, State, bool]:
    """Cuts the work at one of its calls: the disk, what was on it, and whether it was cut."""
    disk = made_disk(seed)
    queue = prepare(disk)
    before = on_disk(disk)
    disk.crash_after(call)
    try:
        work(queue)
    except SimCrash:
        return disk, before, True
    return disk, before, False


def check_every_crash(
    prepare: Callable[[SimDisk], PersistentQueue],
    work: Work,
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
                assert on_disk(disk) == before
                assert restart(disk).alerts == []  # which ends what was begun
                assert not left_over(disk)
                if cut is SimDisk.process_crash:
                    disk.power_cut()  # what the start has read must be durable by then
                assert on_disk(disk) == before
                assert held(restart(disk)) == before
    raise AssertionError("it never ends")


@pytest.mark.req("KJ-14", "KJ-16")
@DIALECTS
@pytest.mark.parametrize(
    "work", [PersistentQueue._rotate, PersistentQueue.rewrite, PersistentQueue.pack]
)
def test_a_crash_at_any_step_changes_nothing(work: Work, dialect: Dialect) -> None:
    def prepare(disk: SimDisk) -> PersistentQueue:
        return filled(disk, dialect)

    assert check_every_crash(prepare, work, lambda disk: make(disk, dialect)) >= 4


@pytest.mark.req("KJ-15", "KJ-16")
def test_a_crash_while_a_start_ends_what_a_crash_had_left_changes_nothing() -> None:
    def prepare(disk: SimDisk) -> PersistentQueue:
        put(disk, f"{QUEUE}~~961", b"whatever")
        return filled(disk, Dialect.V24)

    cuts = 0
    for call in range(1, 20):
        for again in range(1, 10):
            for seed in SEEDS[:2]:
                disk, before, is_cut = crashed(
                    prepare, PersistentQueue.rewrite, seed=seed, call=call
                )
                if not is_cut:
                    continue
                disk.process_crash()
                disk.crash_after(again)
                with contextlib.suppress(SimCrash):
                    make(disk, Dialect.V24)
                disk.power_cut()
                cuts += 1
                assert on_disk(disk) == before
                assert held(make(disk, Dialect.V24)) == before
                assert left_over(disk) == []
    assert cuts > 100


@pytest.mark.req("KJ-18", "KJ-19")
@DIALECTS
def test_a_crash_while_older_files_are_packed_changes_nothing(dialect: Dialect) -> None:
    def restart(disk: SimDisk) -> PersistentQueue:
        return make(disk, dialect, memory_bytes=600)

    def prepare(disk: SimDisk) -> PersistentQueue:
        """Returns a queue in read-behind; the next thing that is done packs."""
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
    sizes = {"maxMemorySize": 300, "maxJournalSize": 900, "defaultJournalSize": 500}
    config = configs.read({"default": sizes})
    for call in range(1, 1000):
        disk = SimDisk(call)
        disk.crash_after(call)
        allowed: list[list[bytes]] = [[]]
        try:
            use(Collection(disk, FOLDER, config, SimClock()), allowed)
        except SimCrash:
            disk.process_crash()
        else:
            assert disk.names(FOLDER) == [QUEUE]
            assert call > 250
            return
        queues = Collection(disk, FOLDER, config, SimClock())
        assert queues.alerts() == []
        assert taken(queues) in allowed
        queues.close()
    raise AssertionError("it never ends")


def taken(queues: Collection) -> list[bytes]:
    return [bytes(one.data) for one in iter(lambda: queues.remove(QUEUE), None)]


def use(queues: Collection, allowed: list[list[bytes]]) -> None:
    """Uses a queue; `allowed` is what may be in it, at any moment."""
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


def test_a_full_disk_refuses_an_item_and_a_failed_sync_ends_all_writing() -> None:
    disk = made_disk()
    queue = make(disk, Dialect.V24)
    assert queue.add(b"first")
    disk.capacity = disk.used_bytes() + 10
    with pytest.raises(OSError, match="No space"):
        queue.add(b"second")
    assert on_disk(disk) == ([b"first"], {})
    with pytest.raises(OSError, match="No space"):
        queue.rewrite()
    disk.capacity = None
    assert queue.add(b"third")
    assert on_disk(disk) == ([b"first", b"third"], {})
    disk.errors = dict.fromkeys(range(len(disk.calls) + 1, len(disk.calls) + 3), errno.EIO)
    with pytest.raises(DurabilityError):
        queue.sync()
    with pytest.raises(DurabilityError):
        queue.add(b"fourth")
