"""A persistent queue: its items, its open items, its files and when they are replaced."""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from fjord.disk import LocalDisk
from fjord.errors import DurabilityError
from fjord.kestrel.codec import Dialect
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.directory import (
    FOLDER,
    QUEUE,
    at_ms,
    drained,
    files,
    held,
    made_disk,
    opened,
    read,
)

DIALECTS = pytest.mark.parametrize("dialect", Dialect)


class World:
    """A disk, a clock, and a queue that can be opened again."""

    def __init__(self, dialect: Dialect = Dialect.V24, **config: Any) -> None:
        self.disk, self.clock = made_disk(), SimClock()
        self.dialect, self.config = dialect, config
        self.queue = self.again()

    def again(self) -> PersistentQueue:
        self.queue = opened(self.disk, self.clock, self.dialect, **self.config)
        return self.queue

    def add(self, *items: bytes) -> list[bool]:
        return [self.queue.add(one) for one in items]

    def churn(self, count: int, data: bytes = b"x" * 50) -> None:
        """Adds and removes an item so often."""
        for _ in range(count):
            assert self.queue.add(data)
            self.queue.remove()

    def open(self) -> bytes:
        item = self.queue.remove(opens=True)
        assert item is not None
        return bytes(item.data)

    def now_ms(self) -> int:
        return self.clock.wall_us() // 1000

    def stat(self, name: str) -> int:
        number = self.queue.stats()[name]
        assert isinstance(number, int)
        return number


@pytest.mark.req("KJ-02")
def test_the_golden_sizes_of_kestrels_own_tests() -> None:
    world = World()
    world.add(b"first", b"second")
    world.queue.remove()
    assert world.stat("logsize") == 5 + 6 + 16 + 16 + 5 + 5 + 1
    world.again()
    assert world.stat("logsize") == 54
    world.queue.remove()
    assert world.stat("logsize") == 55
    assert not world.queue.confirm(1)  # which is not open
    assert not world.queue.unremove(1)
    assert world.stat("logsize") == 55


# -- limits and expiry ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "items", "taken"),
    [
        ({"max_items": 2}, [b"x"] * 3, [True, True, False]),
        ({"max_size": 3}, [b"xx"] * 3, [True, True, False]),
        ({"max_item_size": 3}, [b"xxx", b"xxxx"], [True, False]),
        ({"max_items": 0, "discard_old_when_full": True}, [b"a"], [False]),
    ],
)
def test_a_full_queue_refuses(
    config: dict[str, Any], items: list[bytes], taken: list[bool]
) -> None:
    assert World(**config).add(*items) == taken


def test_the_oldest_gives_way_if_it_is_to() -> None:
    world = World(max_items=2, discard_old_when_full=True)
    assert all(world.add(b"a", b"b", b"c"))
    assert world.stat("discarded") == 1
    assert drained(world.again()) == [b"b", b"c"]


def test_an_item_expires_after_its_time_and_not_at_it() -> None:
    world = World()
    world.queue.add(b"a", world.now_ms() + 1000)
    world.clock.advance(1)
    assert world.queue.expired_heads() == []
    world.clock.advance(0.001)
    assert [item.data for item in world.queue.expired_heads()] == [b"a"]
    world.queue.drop_expired(1)
    assert (world.stat("expired_items"), world.stat("items")) == (1, 0)
    world.queue.drop_expired(0)
    assert drained(world.again()) == []


def test_an_age_bounds_the_time_when_it_is_added_and_when_it_is_at_the_head() -> None:
    world = World(max_age_ms=1000)
    world.queue.add(b"a", world.now_ms() + 50_000)
    world.queue.add(b"b")
    item = world.queue.peek()
    assert item is not None
    assert item.expiry_ms == world.now_ms() + 1000
    world.queue.configure(QueueConfig(max_age_ms=10))
    world.clock.advance(0.5)
    assert [len(world.queue.expired_heads(count)) for count in (2, 1)] == [2, 1]
    world = World(max_age_ms=2**63 - 1)  # as long as an op can have it
    world.add(b"x")
    assert world.queue.expired_heads() == []
    assert drained(world.again()) == [b"x"]


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.req("KJ-17")
@DIALECTS
def test_the_journal_of_an_empty_queue_is_erased_but_for_what_is_open(dialect: Dialect) -> None:
    world = World(dialect, default_journal_size=500)
    world.add(b"kept")
    world.open()
    while not world.stat("journal_rewrites"):
        assert world.stat("logsize") < 600
        world.churn(1)
    assert world.stat("logsize") == {Dialect.V24: 30, Dialect.DOC: 35}[dialect]
    assert list(files(world.disk)) == [QUEUE]
    assert held(world.again()) == ([], {1: b"kept"})


@pytest.mark.req("KJ-20")
def test_many_open_items_cause_no_storm_of_rewrites() -> None:
    world = World(default_journal_size=500)
    for _ in range(20):
        world.add(b"x" * 50)
        world.open()  # 1 520 bytes are open in the end
    before = world.stat("journal_rewrites")
    world.churn(100, b"y")
    assert world.stat("journal_rewrites") - before <= 2


@pytest.mark.req("KJ-20")
def test_there_is_a_bound_on_what_is_open() -> None:
    queue = PersistentQueue("q", QueueConfig(), SimClock(), open_items_max=2)
    assert all(map(queue.add, (b"a", b"b", b"c")))
    opened = [queue.remove(opens=True) for _ in range(3)]
    assert [item and item.data for item in opened] == [b"a", b"b", None]
    assert queue.confirm(1)
    assert queue.remove(opens=True) is not None


@pytest.mark.req("KJ-20")
def test_a_pack_writes_half_of_what_it_replaces_at_most() -> None:
    world = World(max_memory_size=2_000)
    world.add(*[b"x" * 180] * 100)
    packs = 0
    while world.stat("items"):
        before, count = world.stat("logsize"), world.stat("journal_rewrites")
        world.queue.remove()
        if world.queue.waiting.is_behind and world.stat("journal_rewrites") > count:
            packs += 1
            first = min(files(world.disk), key=lambda name: (name == QUEUE, name))
            written = len(read(world.disk, first))
            # What was replaced is what there was, less what is left, but for the pack.
            assert 2 * written <= before - world.stat("logsize") + 1 + written
    assert packs > 1


def test_a_delay_is_kept_for_an_empty_queue_if_it_is_asked_for() -> None:
    world = World(default_journal_size=200, disable_aggressive_rewrites=True)
    world.add(b"x" * 100)
    world.open()
    world.churn(100)
    assert world.stat("journal_rewrites") == 1
    world.clock.advance(60)
    world.churn(1, b"y")
    assert world.stat("journal_rewrites") == 2


@pytest.mark.req("KJ-21")
def test_journals_are_not_rewritten_repeatedly_on_add() -> None:
    """Kestrel's own regression test: an add-only queue whose journal is larger than it may be."""
    sizes: dict[str, Any] = {"max_memory_size": 10_000, "max_journal_size": 2_000}
    sizes["default_journal_size"] = 100
    world = World(**sizes)
    world.add(*[b"x"] * 300)
    assert world.stat("journal_rewrites") == 0  # it would not become smaller
    world = World(**sizes)
    world.add(b"first")
    world.churn(300, b"x" * 30)
    assert world.stat("journal_rewrites") == 1  # the delay
    assert world.stat("logsize") > 2_000
    world.clock.advance(60)
    world.queue.remove()
    world.add(b"y")
    assert drained(world.again())[-1] == b"y"


@pytest.mark.req("KJ-21")
def test_a_journal_that_is_too_large_is_rewritten_when_all_is_in_memory() -> None:
    world = World(max_journal_size=2_000)
    world.add(b"stays")
    world.churn(100, b"x" * 30)
    assert (world.stat("journal_rewrites"), world.stat("items")) == (1, 1)


@pytest.mark.req("KJ-18")
def test_a_file_is_begun_whenever_one_has_as_much_as_memory_may() -> None:
    world = World(max_memory_size=500)
    items = [b"%02d" % number * 25 for number in range(40)]
    world.add(*items)
    assert world.stat("journal_rotations") >= 40 * 71 // 600
    assert world.stat("mem_bytes") <= 550
    assert len(world.queue.waiting.checkpoints.waiting) > 1  # in memory, one a file
    assert drained(world.again()) == items


def test_a_file_that_cannot_be_read_costs_no_item(tmp_path: Path) -> None:
    config = QueueConfig(max_memory_size=300, max_journal_size=1 << 30)

    def opened() -> PersistentQueue:
        journal = Journal(LocalDisk(), str(tmp_path), "q", at_ms(904))
        return PersistentQueue("q", config, SimClock(), journal)

    queue = opened()
    items = [b"%02d" % number * 20 for number in range(60)]
    assert all(map(queue.add, items))
    queue.sync()
    file = sorted(tmp_path.glob("q.*"))[3]
    file.rename(tmp_path / "away")
    got = []
    with pytest.raises(FileNotFoundError):
        while (item := queue.remove()) is not None:
            got.append(item.data)
    assert len(got) > 10
    for opens in (False, True):
        with pytest.raises(FileNotFoundError):
            queue.remove(opens=opens)
    (tmp_path / "away").rename(file)
    assert got + drained(opened()) == items


def test_a_rewrite_without_space_is_not_tried_at_every_op() -> None:
    world = World(default_journal_size=100)
    world.add(b"x" * 100)
    world.open()
    world.add(b"y" * 400)
    world.disk.capacity = world.disk.used_bytes() + 110  # enough to put down a sum
    for _ in range(2):
        world.queue.remove()
        world.add(b"")
    assert (world.stat("journal_rewrites"), world.stat("journal_rotations")) == (0, 1)
    world.disk.capacity = None
    world.clock.advance(60)
    world.queue.remove()
    assert world.stat("journal_rewrites") == 1


def test_a_queue_without_a_journal_is_in_memory_alone() -> None:
    queue = PersistentQueue("q", QueueConfig(max_memory_size=1), SimClock())
    assert all(map(queue.add, (b"a", b"b", b"c")))
    item = queue.remove(opens=True)
    assert item is not None
    assert queue.unremove(item.xid)
    queue.sync()
    assert drained(queue) == [b"a", b"b", b"c"]
    queue.add(b"d")
    queue.flush()
    assert (queue.stats()["items"], queue.alerts) == (0, [])
    queue.close()
    queue.delete()


def test_a_pack_of_a_queue_larger_than_memory_has_all_of_it() -> None:
    world = World(max_memory_size=200, max_journal_size=1 << 30)
    wanted = [b"%03d" % number * 20 for number in range(60)]
    world.add(*wanted)
    for _ in range(10):
        world.queue.remove()
    world.open()
    world.again().pack()
    assert list(files(world.disk)) == [QUEUE]
    assert world.stat("logsize") == 50 * 81 + 5
    assert held(world.again()) == (wanted[11:], {1: wanted[10]})


# -- any one call of a disk fails ------------------------------------------------------------------

# Files are rotated, packed, rewritten and erased all the time.
SIZES: dict[str, Any] = {"max_memory_size": 150, "default_journal_size": 200}
SIZES["max_journal_size"] = 600


def make(disk: SimDisk, clock: SimClock) -> PersistentQueue:
    return opened(disk, clock, **SIZES, min_journal_compact_delay_ms=0)


class Life:
    """Works with a queue, and knows what must be in it."""

    def __init__(self, disk: SimDisk, clock: SimClock) -> None:
        self.queue = make(disk, clock)
        self.waiting: deque[bytes] = deque()
        self.unsure: bytes | None = None  # of the op that was never answered
        self.refusals = 0

    def work(self) -> None:
        for turn in range(3):
            for number in range(12):
                self._try(self._add, b"%d-%d" % (turn, number) * 5)
            for number in range(12):
                self._try(self._open_and_confirm if number % 3 == 1 else self._remove, b"")
        for number in range(3):
            self._try(self._add, b"last %d" % number)

    def _try(self, act: object, data: bytes) -> None:
        assert callable(act)
        self.unsure = data or (self.waiting[0] if self.waiting else None)
        try:
            act(data)
        except OSError:
            self.refusals += 1  # so it was not done
        self.unsure = None

    def _add(self, data: bytes) -> None:
        assert self.queue.add(data)
        self.waiting.append(data)

    def _remove(self, _: bytes) -> None:
        item = self.queue.remove()
        assert (item.data if item else None) == (self.waiting[0] if self.waiting else None)
        if item:
            self.waiting.popleft()

    def _open_and_confirm(self, _: bytes) -> None:
        item = self.queue.remove(opens=True)
        if item is None:
            assert not self.waiting
            return
        assert item.data == self.waiting[0]
        try:
            assert self.queue.confirm(item.xid)
        except OSError:
            assert self.queue.unremove(item.xid)
            raise
        self.waiting.popleft()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_what_is_refused_has_not_been_done_whichever_call_fails(code: int) -> None:
    kinds: set[str] = set()
    for call in range(1, 2000):
        disk, clock = made_disk(), SimClock()
        begun = len(disk.calls)
        disk.errors = {begun + call: code}
        try:
            life = Life(disk, clock)
        except (OSError, DurabilityError):
            continue
        with contextlib.suppress(DurabilityError):
            life.work()
        if len(disk.calls) < begun + call:
            assert call > 200
            assert {"create", "rename", "write", "remove"} <= kinds
            return
        kinds.add(disk.calls[begun + call - 1])
        disk.process_crash()
        again = drained(make(disk, clock))
        expected = [list(life.waiting)]
        if life.unsure is not None:
            without = [one for one in life.waiting if one != life.unsure]
            expected += [without, [*without, life.unsure]]
        assert again in expected, (call, disk.calls[begun + call - 1])
    raise AssertionError("it never ends")


def test_a_queue_without_room_for_another_file_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = made_disk(), SimClock()
    queue = make(disk, clock)
    assert all(queue.add(b"%03d" % number * 20) for number in range(2))
    queue.sync()
    before = disk.names(FOLDER)
    # The current file is large enough by now, so this is the first call of a rotation.
    disk.errors = {len(disk.calls) + 1: errno.ENOSPC}
    assert queue.add(b"a")
    assert disk.calls[-2:] == ["create", "write"]
    assert queue.add(b"b")  # it is not tried at every op
    assert disk.names(FOLDER) == before
    assert caplog.messages == ["files of a queue could not be replaced"]
    clock.advance(61)
    assert queue.add(b"c")
    assert queue.stats()["journal_rotations"] == 1
    assert drained(make(disk, clock))[2:] == [b"a", b"b", b"c"]
