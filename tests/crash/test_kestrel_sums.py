"""Sums of Kestrel's files: a changed byte is told, and nothing else is, whatever was cut short."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from fjord.kestrel import codec, exporter, inspect, reader
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.kestrel.vectors import ADD_MS, encoded

FOLDER, QUEUE = "/kestrel", "cars"
SEEDS = range(2)
ITEM = encoded(codec.addx(b"of somebody else", add_ms=ADD_MS))


class ReusingDisk(SimDisk):
    """A disk on which a new file cannot be told from one that was removed."""

    def identity(self, path: str) -> str | None:
        return "same" if super().identity(path) else None


def made_disk(seed: int = 0, kind: type[SimDisk] = SimDisk) -> SimDisk:
    disk = kind(seed)
    disk.make_directory(FOLDER)
    disk.sync_directory("/")
    return disk


def make(disk: SimDisk) -> PersistentQueue:
    clock = SimClock()
    config = QueueConfig(max_memory_size=1 << 20, max_journal_size=1 << 30)
    journal = Journal(disk, FOLDER, QUEUE, now_ms=lambda: clock.wall_us() // 1000)
    return PersistentQueue(QUEUE, config, clock, journal)


def adds(queue: PersistentQueue, count: int, size: int = 9) -> None:
    for number in range(count):
        assert queue.add(b"%d" % number * size)
        queue.sync()


def closed(disk: SimDisk) -> None:
    """Makes a queue of two older files and a current one, and ends."""
    queue = make(disk)
    for _ in range(2):
        adds(queue, 2)
        assert queue.remove(opens=True)
        queue._rotate()
    adds(queue, 2)
    assert queue.remove()
    queue.close()


def files(disk: SimDisk) -> dict[str, bytes]:
    found = {}
    kept = [f"~~corrupt/{name}" for name in disk.names(f"{FOLDER}/~~corrupt")]
    for name in [*disk.names(FOLDER), *kept]:
        if name == "~~corrupt":
            continue
        with contextlib.closing(disk.open(f"{FOLDER}/{name}")) as file:
            found[name] = file.read(0, file.size())
    return found


def put(disk: SimDisk, name: str, data: bytes) -> None:
    """Puts a new file in the place of another."""
    with contextlib.closing(disk.open(f"{FOLDER}/{name}.tmp", writable=True, create=True)) as file:
        file.write(0, data)
    disk.rename(f"{FOLDER}/{name}.tmp", f"{FOLDER}/{name}")


def copied(disk: SimDisk) -> SimDisk:
    copy = made_disk()
    for name, data in files(disk).items():
        if "/" not in name:
            put(copy, name, data)
    return copy


def told(disk: SimDisk) -> list[str]:
    """Returns the names of files that a reader says are damaged or changed."""
    (report,) = inspect.verify([reader.survey(disk, FOLDER, QUEUE)])
    return [one.path.rpartition("/")[2] for one in report.files if one.is_damaged]


# -- what is changed is told ----------------------------------------------------------------------


def of_a_journal(disk: SimDisk) -> Iterator[tuple[str, int]]:
    """Yields every byte of every file of the queue."""
    for name, data in files(disk).items():
        if name != f"{QUEUE}~~sums":
            for at in range(len(data)):
                yield name, at


@pytest.mark.parametrize("bit", [0, 7])
def test_every_changed_byte_is_told_and_nothing_is_lost(bit: int) -> None:
    disk = made_disk()
    closed(disk)
    assert told(disk) == []
    count = 0
    for name, at in of_a_journal(disk):
        for changed in (disk, copied(disk)):
            changed.flip_bit(f"{FOLDER}/{name}", at, bit)
            assert told(changed) == [name]
            bytes_before = sum(map(len, files(changed).values()))
            if changed is disk:
                changed.flip_bit(f"{FOLDER}/{name}", at, bit)
                continue
            (alert,) = make(changed).alerts
            assert f"{FOLDER}/{name}" in alert
            sizes = {one: len(data) for one, data in files(changed).items()}
            assert sum(sizes.values()) + 100 >= bytes_before  # sums may be gone
            assert sizes[name] + sizes.get(f"~~corrupt/{name}", 0) == len(files(disk)[name])
            count += 1
    assert count > 150


def test_a_changed_file_is_told_again_until_it_is_replaced() -> None:
    disk = made_disk()
    closed(disk)
    before = files(disk)
    disk.flip_bit(f"{FOLDER}/{QUEUE}", len(before[QUEUE]) - 2)  # within an item
    for _ in range(2):
        queue = make(disk)
        assert len(queue.alerts) == 1
        adds(queue, 1)
        queue.close()
        assert told(disk) == [QUEUE]
    queue = make(disk)
    queue._rotate()
    queue.close()
    changed = told(disk)
    assert len(changed) == 1
    assert changed[0] not in before
    assert len(make(disk).alerts) == 1
    make(disk).pack()
    assert told(disk) == []
    assert make(disk).alerts == []


@pytest.mark.parametrize("name", [QUEUE, "older"])
def test_lost_bytes_are_told_even_where_an_op_ends(name: str) -> None:
    disk = made_disk()
    closed(disk)
    name = next(one for one in files(disk) if "." in one) if name == "older" else name
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", writable=True)) as file:
        file.truncate(30)  # behind the first item
    assert told(disk) == [name]
    assert len(make(disk).alerts) == 1


def test_an_older_file_is_summed_before_it_is_closed() -> None:
    disk = made_disk()
    queue = make(disk)
    adds(queue, 3)
    queue._rotate()
    adds(queue, 1)
    disk.power_cut()
    older = next(one for one in files(disk) if "." in one)
    disk.flip_bit(f"{FOLDER}/{older}", 23)
    assert told(disk) == [older]


def test_the_front_of_a_file_that_goes_on_is_held_to_its_sum() -> None:
    disk = made_disk()
    closed(disk)
    size = len(files(disk)[QUEUE])
    adds(make(disk), 3)
    disk.power_cut()
    assert told(disk) == []
    disk.flip_bit(f"{FOLDER}/{QUEUE}", size - 2)
    assert told(disk) == [QUEUE]


# -- and nothing else is --------------------------------------------------------------------------


def lives(disk: SimDisk) -> None:
    """Uses a queue in all ways that change files, over several starts."""
    queue = make(disk)
    adds(queue, 3)
    queue._rotate()
    adds(queue, 3)
    queue.close()
    queue = make(disk)
    assert queue.remove(opens=True)
    queue.sync()
    adds(queue, 1)
    queue._rotate()
    assert queue._journal is not None
    queue._journal.pack(queue._journal.segments[1], [codec.addx(b"packed", add_ms=ADD_MS)])
    queue.sync()
    queue.close()
    queue = make(disk)
    queue.rewrite()
    adds(queue, 1)
    queue._rotate()
    queue.close()
    make(disk).delete()
    queue = make(disk)
    adds(queue, 8)
    queue.close()


def started(disk: SimDisk) -> PersistentQueue:
    """Starts, and ensures that nothing is told that would not be told without sums.

    A power cut may leave garbage behind what was synced, and that may be damage.
    """
    bare = copied(disk)
    if bare.exists(f"{FOLDER}/{QUEUE}~~sums"):
        bare.remove(f"{FOLDER}/{QUEUE}~~sums")
    assert told(disk) == told(bare)
    queue = make(disk)
    assert queue.alerts == make(bare).alerts
    assert told(disk) == []
    return queue


def check_no_alerts(disk: SimDisk, cut: Callable[[SimDisk], None]) -> None:
    """Starts again and again, and writes more than any sum tells of."""
    for _ in range(2):
        cut(disk)
        adds(started(disk), 2, size=200)
    disk.process_crash()
    started(disk).close()
    disk.power_cut()
    assert told(disk) == []
    assert reader.CURRENT in reader.read_sums(disk, FOLDER, QUEUE)


@pytest.mark.parametrize("kind", [SimDisk, ReusingDisk])
@pytest.mark.parametrize("cut", [SimDisk.power_cut, SimDisk.process_crash])
def test_a_crash_anywhere_is_no_alert(cut: Callable[[SimDisk], None], kind: type[SimDisk]) -> None:
    for call in range(1, 1000):
        for seed in SEEDS:
            disk = made_disk(seed, kind)
            disk.crash_after(call)
            try:
                lives(disk)
            except SimCrash:
                check_no_alerts(disk, cut)
            else:
                assert call > 100
                return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_crash_while_a_queue_is_exported_is_no_alert(is_there: bool) -> None:
    for call in range(1, 500):
        disk = made_disk(call)
        if is_there:
            closed(disk)
        disk.crash_after(call)
        try:
            exporter.write(
                disk, FOLDER, QUEUE, [ITEM, ITEM], appends=True, now_ms=lambda: 1_700_000_000_000
            )
        except SimCrash:
            disk.power_cut()
            assert told(disk) == []
            assert make(disk).alerts == []
        else:
            assert call > 5
            return
    raise AssertionError("it never ends")


def test_a_crash_while_damage_is_moved_away_leaves_no_wrong_sum() -> None:
    for call in range(1, 100):
        disk = made_disk(call)
        closed(disk)
        disk.flip_bit(f"{FOLDER}/{QUEUE}", 0, 6)  # no opcode
        disk.crash_after(call)
        try:
            make(disk)
        except SimCrash:
            disk.power_cut()
            assert told(disk) in ([QUEUE], [])
            make(disk)
            assert make(disk).alerts == []
            assert told(disk) == []
            assert f"~~corrupt/{QUEUE}" in files(disk)
        else:
            assert call > 5
            return
    raise AssertionError("it never ends")


def replaced_by_same_size(disk: SimDisk) -> None:
    disk.now_s += 1
    rest = len(files(disk)[QUEUE]) - len(ITEM)
    put(disk, QUEUE, ITEM + encoded(codec.remove()) * rest)


def replaced_by_shorter(disk: SimDisk) -> None:
    put(disk, QUEUE, ITEM)


def replaced_by_longer(disk: SimDisk) -> None:
    put(disk, QUEUE, ITEM * 20)


def emptied(disk: SimDisk) -> None:
    put(disk, QUEUE, b"")


def torn(disk: SimDisk) -> None:
    put(disk, QUEUE, ITEM[:-1])


def appended_to(disk: SimDisk) -> None:
    with contextlib.closing(disk.open(f"{FOLDER}/{QUEUE}", writable=True)) as file:
        file.write(file.size(), ITEM)


def rotated(disk: SimDisk) -> None:
    disk.rename(f"{FOLDER}/{QUEUE}", f"{FOLDER}/{QUEUE}.1700000000")
    put(disk, QUEUE, ITEM * 9)


def older_removed(disk: SimDisk) -> None:
    for name in disk.names(FOLDER):
        if "." in name:
            disk.remove(f"{FOLDER}/{name}")


def removed(disk: SimDisk) -> None:
    older_removed(disk)
    disk.remove(f"{FOLDER}/{QUEUE}")


def opened_by_kestrel(disk: SimDisk) -> None:
    """Kestrel 2 removes what is temporary, and may replace any file then."""
    disk.remove(f"{FOLDER}/{QUEUE}~~sums")
    for name in disk.names(FOLDER):
        put(disk, name, ITEM)


def packed_halfway(disk: SimDisk) -> None:
    """Somebody has made a pack and not given it its name; what it replaces is gone."""
    last = max(name for name in disk.names(FOLDER) if "." in name)
    older_removed(disk)
    put(disk, f"{last}.pack", ITEM * 3)
    put(disk, QUEUE, b"")


@pytest.mark.parametrize(
    "act",
    [
        replaced_by_same_size,
        replaced_by_shorter,
        replaced_by_longer,
        emptied,
        torn,
        appended_to,
        rotated,
        older_removed,
        removed,
        opened_by_kestrel,
        packed_halfway,
    ],
)
def test_what_another_server_has_done_is_no_alert(act: Callable[[SimDisk], None]) -> None:
    disk = made_disk()
    closed(disk)
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


def test_a_file_that_is_made_anew_has_not_the_sum_of_one_that_was_removed() -> None:
    disk = made_disk(kind=ReusingDisk)
    closed(disk)
    removed(disk)
    adds(make(disk), 9)
    disk.process_crash()
    assert told(disk) == []
    assert make(disk).alerts == []


def test_a_clock_that_was_set_back_gives_no_file_the_sum_of_another() -> None:
    disk = made_disk()
    now_ms = [1000]

    def journal() -> tuple[Journal, int]:
        made = Journal(disk, FOLDER, QUEUE, now_ms=lambda: now_ms[0])
        count = sum(batch.op_count for _, batch in made.replay(ADD_MS))
        assert made.alerts == []
        made.begin()
        return made, count

    first, _ = journal()
    first.append_bytes(ITEM)
    first.rotate()
    first.append_bytes(ITEM)
    first.rewrite([])
    now_ms[0] = 1000
    first.append_bytes(ITEM * 3)
    assert first.rotate().number == 1000
    disk.process_crash()
    assert told(disk) == []
    assert journal()[1] == 3


def test_a_full_disk_has_no_sums_but_goes_on() -> None:
    disk = made_disk()
    queue = make(disk)
    adds(queue, 3)
    disk.capacity = disk.used_bytes()
    queue._rotate()
    assert reader.read_sums(disk, FOLDER, QUEUE) == {}
    disk.capacity = None
    adds(queue, 1)
    queue.close()
    assert len(reader.read_sums(disk, FOLDER, QUEUE)) == 2
    assert told(disk) == []
