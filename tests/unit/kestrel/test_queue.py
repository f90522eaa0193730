"""A persistent queue: its items, its open items, its files and when they are replaced."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.kestrel.codec import XID_MAX, XID_MIN, Dialect
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk

FOLDER = "/kestrel"


class World:
    """A disk, a clock, and a queue that can be opened again."""

    def __init__(self, dialect: Dialect = Dialect.V24, **config: object) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        self.disk.make_directory(FOLDER)
        self.dialect = dialect
        self.config = QueueConfig(**config)  # type: ignore[arg-type]
        self.queue = self.again()

    def again(self) -> PersistentQueue:
        journal = Journal(self.disk, FOLDER, "q", dialect=self.dialect, now_ms=self.now_ms)
        self.queue = PersistentQueue("q", self.config, self.clock, journal)
        return self.queue

    def now_ms(self) -> int:
        return self.clock.wall_us() // 1000

    def files(self) -> list[str]:
        return [name for name in self.disk.names(FOLDER) if name != "q~~sums"]

    def stat(self, name: str) -> int:
        number = self.queue.stats()[name]
        assert isinstance(number, int)
        return number


def drained(queue: PersistentQueue) -> list[bytes]:
    return [bytes(item.data) for item in iter(queue.remove, None)]


def test_items_leave_in_the_order_in_which_they_came() -> None:
    world = World()
    assert all(world.queue.add(one) for one in (b"a", b"b", b"c"))
    first = world.queue.peek()
    assert first is not None
    assert (first.data, first.add_ms, first.expiry_ms, first.xid) == (b"a", world.now_ms(), 0, 0)
    assert drained(world.queue) == [b"a", b"b", b"c"]
    assert world.queue.peek() is None
    assert world.queue.remove(opens=True) is None


@pytest.mark.parametrize("dialect", Dialect)
def test_what_was_written_is_there_again(dialect: Dialect) -> None:
    world = World(dialect)
    for one in (b"a", b"b", b"c", b"d"):
        world.queue.add(one)
    opened = [world.queue.remove(opens=True) for _ in range(3)]
    assert [item and item.xid for item in opened] == [1, 2, 3]
    assert world.queue.confirm(2)
    assert world.queue.unremove(1)
    queue = world.again()
    assert {xid: entry.data for xid, entry in queue.waiting.open.items()} == {3: b"c"}
    queue.back_out()
    assert drained(queue) == [b"c", b"a", b"d"]


def test_the_golden_sizes_of_kestrels_own_tests() -> None:
    world = World()
    world.queue.add(b"first")
    world.queue.add(b"second")
    world.queue.remove()
    assert world.stat("logsize") == 5 + 6 + 16 + 16 + 5 + 5 + 1
    world.again()
    assert world.stat("logsize") == 54
    world.queue.remove()
    assert world.stat("logsize") == 55


def test_an_xid_that_is_not_open_is_refused() -> None:
    world = World()
    assert not world.queue.confirm(1)
    assert not world.queue.unremove(1)
    assert world.stat("logsize") == 0


def test_xids_wrap_skip_zero_and_those_that_are_open() -> None:
    world = World()
    for _ in range(4):
        world.queue.add(b"x")
    world.queue.waiting.last_xid = XID_MAX - 1
    first = [world.queue.remove(opens=True) for _ in range(2)]
    assert [item and item.xid for item in first] == [XID_MAX, XID_MIN]
    world.queue.waiting.last_xid = -1
    world.queue.remove(opens=True)
    assert 1 in world.queue.waiting.open
    world.queue.waiting.last_xid = XID_MAX - 1
    last = world.queue.remove(opens=True)
    assert last is not None
    assert last.xid == XID_MIN + 1


# -- limits and expiry ----------------------------------------------------------------------------


def test_a_full_queue_refuses_whatever_the_size() -> None:
    world = World(max_items=2)
    assert [world.queue.add(b"x") for _ in range(3)] == [True, True, False]
    world = World(max_size=3)
    assert [world.queue.add(b"xx") for _ in range(3)] == [True, True, False]
    world = World(max_item_size=3)
    assert [world.queue.add(b"xxx"), world.queue.add(b"xxxx")] == [True, False]


def test_the_oldest_gives_way_if_it_is_to() -> None:
    world = World(max_items=2, discard_old_when_full=True)
    for one in (b"a", b"b", b"c"):
        assert world.queue.add(one)
    assert world.stat("discarded") == 1
    assert drained(world.again()) == [b"b", b"c"]
    nothing = World(max_items=0, discard_old_when_full=True)
    assert not nothing.queue.add(b"a")


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
    assert len(world.queue.expired_heads()) == 2
    assert len(world.queue.expired_heads(1)) == 1


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.req("KJ-17")
@pytest.mark.parametrize("dialect", Dialect)
def test_the_journal_of_an_empty_queue_is_erased_but_for_what_is_open(dialect: Dialect) -> None:
    world = World(dialect, default_journal_size=500)
    world.queue.add(b"kept")
    item = world.queue.remove(opens=True)
    assert item is not None
    while not world.stat("journal_rewrites"):
        assert world.stat("logsize") < 600
        world.queue.add(b"x" * 50)
        world.queue.remove()
    assert world.stat("logsize") == {Dialect.V24: 30, Dialect.DOC: 35}[dialect]
    assert world.files() == ["q"]
    assert {xid: one.data for xid, one in world.again().waiting.open.items()} == {1: b"kept"}


@pytest.mark.req("KJ-20")
def test_many_open_items_cause_no_storm_of_rewrites() -> None:
    world = World(default_journal_size=500)
    for _ in range(20):
        world.queue.add(b"x" * 50)
        world.queue.remove(opens=True)  # 1 520 bytes are open in the end
    before = world.stat("journal_rewrites")
    for _ in range(100):
        world.queue.add(b"y")
        world.queue.remove()
    assert world.stat("journal_rewrites") - before <= 2


@pytest.mark.req("KJ-20")
def test_there_is_a_bound_on_what_is_open() -> None:
    queue = PersistentQueue("q", QueueConfig(), SimClock(), open_items_max=2)
    for one in (b"a", b"b", b"c"):
        queue.add(one)
    opened = [queue.remove(opens=True) for _ in range(3)]
    assert [item and item.data for item in opened] == [b"a", b"b", None]
    assert queue.confirm(1)
    assert queue.remove(opens=True) is not None


@pytest.mark.req("KJ-20")
def test_a_pack_writes_half_of_what_it_replaces_at_most() -> None:
    world = World(max_memory_size=2_000)
    for _ in range(100):
        world.queue.add(b"x" * 180)
    packs = 0
    while world.stat("items"):
        before, count = world.stat("logsize"), world.stat("journal_rewrites")
        world.queue.remove()
        if world.queue.waiting.is_behind and world.stat("journal_rewrites") > count:
            packs += 1
            first = min(world.files(), key=lambda name: (name == "q", name))
            with contextlib.closing(world.disk.open(f"{FOLDER}/{first}")) as file:
                written = file.size()
            # What was replaced is what there was, less what is left, but for the pack.
            assert 2 * written <= before - world.stat("logsize") + 1 + written
    assert packs > 1


def test_a_delay_is_kept_for_an_empty_queue_if_it_is_asked_for() -> None:
    world = World(default_journal_size=200, disable_aggressive_rewrites=True)
    world.queue.add(b"x" * 100)
    world.queue.remove(opens=True)
    for _ in range(100):
        world.queue.add(b"y" * 50)
        world.queue.remove()
    assert world.stat("journal_rewrites") == 1
    world.clock.advance(60)
    world.queue.add(b"y")
    world.queue.remove()
    assert world.stat("journal_rewrites") == 2


@pytest.mark.req("KJ-21")
def test_journals_are_not_rewritten_repeatedly_on_add() -> None:
    """Kestrel's own regression test: an add-only queue whose journal is larger than it may be."""
    world = World(max_memory_size=10_000, max_journal_size=2_000, default_journal_size=100)
    for _ in range(300):
        world.queue.add(b"x")
    assert world.stat("journal_rewrites") == 0  # it would not become smaller
    world = World(max_memory_size=10_000, max_journal_size=2_000, default_journal_size=100)
    world.queue.add(b"first")
    for _ in range(300):
        world.queue.add(b"x" * 30)
        world.queue.remove()
    assert world.stat("journal_rewrites") == 1  # the delay
    assert world.stat("logsize") > 2_000
    world.clock.advance(60)
    world.queue.remove()
    world.queue.add(b"y")
    assert drained(world.again())[-1] == b"y"


@pytest.mark.req("KJ-21")
def test_a_journal_that_is_too_large_is_rewritten_when_all_is_in_memory() -> None:
    world = World(max_journal_size=2_000)
    world.queue.add(b"stays")
    for _ in range(100):
        world.queue.add(b"x" * 30)
        world.queue.remove()
    assert world.stat("journal_rewrites") == 1
    assert world.stat("items") == 1


@pytest.mark.req("KJ-18")
def test_a_file_is_begun_whenever_one_has_as_much_as_memory_may() -> None:
    world = World(max_memory_size=500)
    for number in range(40):
        world.queue.add(b"%02d" % number * 25)
    assert world.stat("journal_rotations") >= 40 * 71 // 600
    assert world.stat("mem_bytes") <= 550
    assert len(world.queue.waiting.checkpoints.waiting) > 1  # in memory, one a file
    assert drained(world.again()) == [b"%02d" % number * 25 for number in range(40)]


@pytest.mark.req("KJ-19")
@pytest.mark.parametrize("dialect", Dialect)
def test_files_that_were_read_are_packed_and_mean_the_same(dialect: Dialect) -> None:
    world = World(dialect, max_memory_size=2_000)
    wanted = [b"%03d" % number * 60 for number in range(100)]
    for one in wanted:
        world.queue.add(one)
    files = len(world.files())
    opened = world.queue.remove(opens=True)
    assert opened is not None
    for one in wanted[1:60]:
        item = world.queue.remove()
        assert item is not None
        assert item.data == one
    assert world.stat("journal_rewrites") > 0
    assert len(world.files()) < files
    assert world.stat("logsize") < 100 * 201 * 0.7
    queue = world.again()
    queue.back_out()
    assert drained(queue) == [wanted[0], *wanted[60:]]


def test_memory_is_bounded_however_large_a_queue_is() -> None:
    world = World(max_memory_size=64 * 1024, max_journal_size=1 << 40)
    tracemalloc.start()
    try:
        size, count = 4096, 0
        world.disk.names("/")
        for _ in range(1_000):
            world.queue.add(bytes(size))
        assert world.stat("bytes") == 1_000 * size
        world.again()
        assert world.stat("mem_bytes") <= 64 * 1024 + size
        tracemalloc.clear_traces()
        while world.queue.remove():
            count += 1
            assert world.stat("mem_bytes") <= 64 * 1024 + size
            assert world.queue.waiting.checkpoints.runs < 100
        assert count == 1_000
        # What is read, what is in memory, and a pack that is being written.
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_file_that_cannot_be_read_costs_no_item(tmp_path: Path) -> None:
    clock = SimClock()
    config = QueueConfig(max_memory_size=300, max_journal_size=1 << 30)

    def opened() -> PersistentQueue:
        journal = Journal(LocalDisk(), str(tmp_path), "q", now_ms=lambda: clock.wall_us() // 1000)
        return PersistentQueue("q", config, clock, journal)

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


def test_the_longest_age_fits_into_an_op() -> None:
    world = World(max_age_ms=2**63 - 1)
    assert world.queue.add(b"x")
    assert world.queue.expired_heads() == []
    assert drained(world.again()) == [b"x"]


def test_a_flush_removes_what_waits_in_memory_and_in_files() -> None:
    world = World(max_memory_size=200)
    for _ in range(50):
        world.queue.add(b"x" * 50)
    item = world.queue.remove(opens=True)
    assert item is not None
    world.queue.flush()
    assert (world.stat("items"), world.stat("bytes"), world.stat("total_flushes")) == (0, 0, 1)
    world.queue.add(b"new")
    queue = world.again()
    queue.back_out()
    assert drained(queue) == [item.data, b"new"]


def test_an_end_rewrites_the_journal_of_an_empty_queue_alone() -> None:
    world = World()
    world.queue.add(b"a")
    world.queue.close()
    assert world.stat("logsize") == 22
    world.again()
    world.queue.remove()
    world.queue.close()
    assert world.disk.used_bytes() == 0
    calls = len(world.disk.calls)
    world.again().close()
    assert world.disk.calls[calls:].count("rename") == 0


def test_a_rewrite_without_space_is_not_tried_at_every_op() -> None:
    world = World(default_journal_size=100)
    world.queue.add(b"x" * 100)
    world.queue.remove(opens=True)
    world.queue.add(b"y" * 400)
    world.disk.capacity = world.disk.used_bytes() + 110  # enough to put down a sum
    for _ in range(2):
        world.queue.remove()
        world.queue.add(b"")
    assert world.stat("journal_rewrites") == 0
    assert world.stat("journal_rotations") == 1
    world.disk.capacity = None
    world.clock.advance(60)
    world.queue.remove()
    assert world.stat("journal_rewrites") == 1


def test_a_queue_without_a_journal_is_in_memory_alone() -> None:
    queue = PersistentQueue("q", QueueConfig(max_memory_size=1), SimClock())
    for one in (b"a", b"b", b"c"):
        queue.add(one)
    item = queue.remove(opens=True)
    assert item is not None
    assert queue.unremove(item.xid)
    queue.sync()
    assert drained(queue) == [b"a", b"b", b"c"]
    queue.add(b"d")
    queue.flush()
    assert queue.stats()["items"] == 0
    queue.close()
    queue.delete()
    assert not queue.is_dirty
    assert queue.alerts == []


def test_a_pack_of_a_queue_larger_than_memory_has_all_of_it() -> None:
    world = World(max_memory_size=200, max_journal_size=1 << 30)
    wanted = [b"%03d" % number * 20 for number in range(60)]
    for one in wanted:
        world.queue.add(one)
    for _ in range(10):
        world.queue.remove()
    opened = world.queue.remove(opens=True)
    world.again().pack()
    assert world.files() == ["q"]
    assert world.stat("logsize") == 50 * 81 + 5
    queue = world.again()
    assert opened is not None
    assert [entry.data for entry in queue.waiting.open.values()] == [opened.data]
    assert drained(queue) == wanted[11:]


def test_what_is_open_for_too_long_is_told_the_first_opened_first() -> None:
    world = World(open_transaction_timeout_ms=2000)
    for data in (b"a", b"b", b"c"):
        world.queue.add(data)
    world.queue.remove(opens=True)
    world.queue.remove(opens=True)
    world.clock.advance(1)
    world.queue.unremove(1)
    world.queue.remove(opens=True)  # as 3
    world.clock.advance(1)
    assert world.queue.timed_out() == []
    world.clock.advance(1)
    assert world.queue.timed_out() == [2]
    world.clock.advance(1)
    assert world.queue.timed_out() == [2, 3]
    world.queue.confirm(2)
    assert world.queue.timed_out() == [3]


def test_what_was_opened_without_a_timeout_begins_when_it_is_first_looked_at() -> None:
    world = World()
    world.queue.add(b"a")
    world.queue.add(b"b")
    world.queue.remove(opens=True)
    assert world.queue.timed_out() == []
    world.queue.configure(QueueConfig(open_transaction_timeout_ms=1000))
    world.queue.remove(opens=True)
    world.clock.advance(5)
    assert world.queue.timed_out() == [2]
    world.clock.advance(2)
    assert world.queue.timed_out() == [1, 2]
