"""Sums of Kestrel's files: a changed byte or a missing file is told, and nothing else is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from fjord.kestrel import exporter, reader
from fjord.kestrel.codec import remove
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.kestrel.directory import (
    FOLDER,
    QUEUE,
    at_ms,
    files,
    journal_of,
    made_disk,
    opened,
    put,
    told,
)
from tests.unit.kestrel.vectors import ADD_MS, encoded, item

SEEDS = range(2)
SUMS = f"{FOLDER}/{QUEUE}~~sums"
ITEM = encoded(item(b"of somebody else"))


class ReusingDisk(SimDisk):
    """A disk on which a new file cannot be told from one that was removed."""

    def identity(self, path: str) -> str | None:
        return "same" if super().identity(path) else None


def make(disk: SimDisk) -> PersistentQueue:
    return opened(disk, max_memory_size=1 << 20, max_journal_size=1 << 30)


def alerts(disk: SimDisk) -> list[str]:
    return make(disk).alerts


def adds(queue: PersistentQueue, count: int, size: int = 9) -> None:
    for number in range(count):
        assert queue.add(b"%d" % number * size)
        queue.sync()


def rotated(queue: PersistentQueue, count: int) -> None:
    adds(queue, count)
    queue._rotate()


def closed(disk: SimDisk) -> SimDisk:
    """Makes a queue of two older files and a current one, and ends."""
    queue = make(disk)
    for _ in range(2):
        adds(queue, 2)
        assert queue.remove(opens=True)
        queue._rotate()
    adds(queue, 2)
    assert queue.remove()
    queue.close()
    return disk


def older(disk: SimDisk) -> list[str]:
    """Returns the names of older files, the oldest first."""
    return sorted(name for name in disk.names(FOLDER) if "." in name)


def replace(disk: SimDisk, name: str, data: bytes) -> None:
    """Puts a new file in the place of another."""
    put(disk, f"{name}.tmp", data)
    disk.rename(f"{FOLDER}/{name}.tmp", f"{FOLDER}/{name}")


def copied(disk: SimDisk, *, sums: bool = True) -> SimDisk:
    copy = made_disk()
    for name in disk.names(FOLDER):
        if name != "~~corrupt" and (sums or name != f"{QUEUE}~~sums"):
            with contextlib.closing(disk.open(f"{FOLDER}/{name}")) as file:
                replace(copy, name, file.read(0, file.size()))
    return copy


def crashes(
    begin: Callable[[SimDisk], object],
    work: Callable[[SimDisk], object],
    kind: type[SimDisk] = SimDisk,
) -> Iterator[SimDisk]:
    """Yields the disk of a work that was cut at each of its calls."""
    for call in range(1, 1000):
        for seed in SEEDS:
            disk = made_disk(seed + 2 * call, kind)
            begin(disk)
            disk.crash_after(call)
            try:
                work(disk)
            except SimCrash:
                yield disk
            else:
                assert call > 5
                return
    raise AssertionError("it never ends")


# -- what is changed is told ----------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 7])
def test_every_changed_byte_is_told_and_nothing_is_lost(bit: int) -> None:
    disk = closed(made_disk())
    assert told(disk) == []
    whole = files(disk)
    assert sum(map(len, whole.values())) > 150
    for name, data in whole.items():
        for at in range(len(data)):
            for changed in (disk, copied(disk)):
                changed.flip_bit(f"{FOLDER}/{name}", at, bit)
                assert told(changed) == [name]
                if changed is disk:
                    disk.flip_bit(f"{FOLDER}/{name}", at, bit)
                    continue
                (alert,) = alerts(changed)
                assert f"{FOLDER}/{name}" in alert
                sizes = {one: len(data) for one, data in files(changed).items()}
                assert sizes[name] + sizes.pop(f"~~corrupt/{name}", 0) == len(data)
                assert sizes.keys() == whole.keys()


@pytest.mark.parametrize("at", [0, -1])
def test_lost_bytes_are_told_even_where_an_op_ends(at: int) -> None:
    disk = closed(made_disk())
    name = [QUEUE, *older(disk)][at]
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", writable=True)) as file:
        file.truncate(30)  # behind the first item
    assert told(disk) == [name]
    assert len(alerts(disk)) == 1


def test_files_are_held_to_sums_before_the_queue_is_closed() -> None:
    disk = made_disk()
    queue = make(disk)
    rotated(queue, 3)
    adds(queue, 1)
    disk.power_cut()
    (name,) = older(disk)
    disk.flip_bit(f"{FOLDER}/{name}", 23)
    assert told(disk) == [name]
    disk = closed(made_disk())
    size = len(files(disk)[QUEUE])
    adds(make(disk), 3)  # the front of a file that goes on is held to its sum
    disk.power_cut()
    assert told(disk) == []
    disk.flip_bit(f"{FOLDER}/{QUEUE}", size - 2)
    assert told(disk) == [QUEUE]


# -- missing files --------------------------------------------------------------------------------


def without(disk: SimDisk, at: int) -> str:
    """Makes a queue of four older files, and removes one of them; returns its name."""
    closed(closed(disk))
    lost = older(disk)[at]
    disk.remove(f"{FOLDER}/{lost}")
    disk.sync_directory(FOLDER)
    return lost


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_missing_file_is_told_again_until_others_take_its_place(at: int) -> None:
    disk = made_disk()
    lost = without(disk, at)
    for _ in range(2):
        queue = make(disk)
        (alert,) = queue.alerts
        assert alert.startswith(f"{FOLDER}/{lost} is missing: it had ")
        rotated(queue, 1)
        adds(queue, 1)
        queue.close()
        assert told(disk) == [lost]
    make(disk).pack()
    assert told(disk) == alerts(disk) == []


@pytest.mark.parametrize("at", [1, 3])
def test_no_crash_takes_a_missing_file_for_another(at: int) -> None:
    lost = without(made_disk(), at)

    def work(disk: SimDisk) -> None:
        queue = make(disk)
        rotated(queue, 1)
        queue.close()

    for disk in crashes(lambda disk: without(disk, at), work):
        disk.power_cut()
        assert told(disk) == [lost]
        (alert,) = alerts(disk)
        assert f"{FOLDER}/{lost} is missing" in alert


# -- and nothing else is --------------------------------------------------------------------------


def lives(disk: SimDisk) -> None:
    """Uses a queue in all ways that change files, over several starts."""
    queue = make(disk)
    rotated(queue, 3)
    adds(queue, 3)
    queue.close()
    queue = make(disk)
    assert queue.remove(opens=True)
    queue.sync()
    rotated(queue, 1)
    assert queue._journal is not None
    queue._journal.pack(queue._journal.segments[1], [item(b"packed")])
    queue.sync()
    queue.close()
    queue = make(disk)
    queue.rewrite()
    rotated(queue, 1)
    queue.close()
    make(disk).delete()
    queue = make(disk)
    adds(queue, 8)
    queue.close()


def started(disk: SimDisk) -> PersistentQueue:
    """Starts, and ensures that nothing is told that would not be told without sums.

    A power cut may leave garbage behind what was synced, and that may be damage.
    """
    bare = copied(disk, sums=False)
    assert told(disk) == told(bare)
    queue = make(disk)
    assert queue.alerts == alerts(bare)
    assert told(disk) == []
    return queue


@pytest.mark.parametrize("kind", [SimDisk, ReusingDisk])
@pytest.mark.parametrize("cut", [SimDisk.power_cut, SimDisk.process_crash])
def test_a_crash_anywhere_is_no_alert(cut: Callable[[SimDisk], None], kind: type[SimDisk]) -> None:
    for disk in crashes(lambda disk: None, lives, kind):
        for _ in range(2):
            cut(disk)
            adds(started(disk), 2, size=200)  # more than any sum tells of
        disk.process_crash()
        started(disk).close()
        disk.power_cut()
        assert told(disk) == []
        assert reader.CURRENT in reader.read_sums(disk, FOLDER, QUEUE)


@pytest.mark.parametrize("begin", [lambda disk: None, closed])
def test_a_crash_while_a_queue_is_exported_is_no_alert(begin: Callable[[SimDisk], object]) -> None:
    def export(disk: SimDisk) -> None:
        exporter.write(disk, FOLDER, QUEUE, [ITEM] * 2, at_ms(1 << 40), appends=True)

    for disk in crashes(begin, export):
        disk.power_cut()
        assert told(disk) == alerts(disk) == []


def test_a_crash_while_damage_is_moved_away_leaves_no_wrong_sum() -> None:
    def begin(disk: SimDisk) -> None:
        closed(disk).flip_bit(f"{FOLDER}/{QUEUE}", 0, 6)  # no opcode

    for disk in crashes(begin, make):
        disk.power_cut()
        assert told(disk) in ([QUEUE], [])
        make(disk)
        assert told(disk) == alerts(disk) == []
        assert f"~~corrupt/{QUEUE}" in files(disk)


def replaced_by_same_size(disk: SimDisk) -> None:
    disk.now_s += 1
    rest = len(files(disk)[QUEUE]) - len(ITEM)
    replace(disk, QUEUE, ITEM + encoded(remove()) * rest)


def appended_to(disk: SimDisk) -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{QUEUE}", writable=True)) as file:
        file.write(file.size(), ITEM)


def rotated_by_another(disk: SimDisk) -> None:
    disk.rename(f"{FOLDER}/{QUEUE}", f"{FOLDER}/{QUEUE}.1700000000")
    replace(disk, QUEUE, ITEM * 9)


def older_removed(disk: SimDisk) -> None:
    for name in older(disk):
        disk.remove(f"{FOLDER}/{name}")


def removed(disk: SimDisk) -> None:
    older_removed(disk)
    disk.remove(f"{FOLDER}/{QUEUE}")


def opened_by_kestrel(disk: SimDisk) -> None:
    """Kestrel 2 removes what is temporary, and may replace any file then."""
    disk.remove(SUMS)
    for name in disk.names(FOLDER):
        replace(disk, name, ITEM)


def packed_halfway(disk: SimDisk) -> None:
    """Somebody has made a pack and not given it its name; what it replaces is gone."""
    last = older(disk)[-1]
    older_removed(disk)
    replace(disk, f"{last}.pack", ITEM * 3)
    replace(disk, QUEUE, b"")


@pytest.mark.parametrize(
    "act",
    [
        *(replaced_by_same_size, appended_to, rotated_by_another, older_removed, removed),
        *(opened_by_kestrel, packed_halfway),
        # Another file is shorter, longer, empty, or torn.
        *(
            lambda disk, data=data: replace(disk, QUEUE, data)
            for data in (ITEM, ITEM * 20, b"", ITEM[:-1])
        ),
    ],
)
def test_what_another_server_has_done_is_no_alert(act: Callable[[SimDisk], None]) -> None:
    disk = closed(made_disk())
    act(disk)
    assert told(disk) == []
    queue = make(disk)
    assert queue.alerts == []
    adds(queue, 9)
    disk.process_crash()
    queue = make(disk)
    assert queue.alerts == []
    queue.close()
    assert told(disk) == []


def test_a_clock_that_was_set_back_gives_no_file_the_sum_of_another() -> None:
    disk = made_disk()
    journal = journal_of(disk, at_ms(1000))
    assert list(journal.replay(ADD_MS)) == []
    journal.begin()
    journal.append_bytes(ITEM)
    journal.rotate()
    journal.append_bytes(ITEM)
    journal.rewrite([])
    journal.append_bytes(ITEM * 3)
    assert journal.rotate().number == 1000
    disk.process_crash()
    assert told(disk) == []
    again = journal_of(disk)
    assert sum(batch.op_count for _, batch in again.replay(ADD_MS)) == 3
    assert again.alerts == []
