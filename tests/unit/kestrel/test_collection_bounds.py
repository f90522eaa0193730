"""What time and a full disk do to queues: items go back, queues go, nothing half done stays."""

from __future__ import annotations

import errno

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel import config
from fjord.kestrel.collection import Collection
from fjord.testing import SimClock, SimDisk

FOLDER, RESERVE = "/kestrel", 2000


class World:
    def __init__(self, reserve_bytes: int = RESERVE, **given: object) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        self.config = config.read(given)
        self._reserve_bytes = reserve_bytes
        self.queues = self.again()

    def again(self) -> Collection:
        self.disk.locks.clear()
        self.queues = Collection(
            self.disk, FOLDER, self.config, self.clock, reserve_bytes=self._reserve_bytes
        )
        return self.queues

    def fill(self) -> None:
        self.disk.capacity = self.disk.used_bytes()

    def opened(self, queue: str) -> int:
        item = self.queues.remove(queue, opens=True)
        assert item is not None
        return item.xid

    def drained(self, queue: str) -> list[bytes]:
        return [bytes(item.data) for item in iter(lambda: self.queues.remove(queue), None)]


# -- time -----------------------------------------------------------------------------------------


def test_items_that_are_open_for_too_long_go_back_in_their_order() -> None:
    world = World(queues={"q": {"openTransactionTimeout": 1000}})
    for name in ("q", "r"):
        for one in (b"a", b"b", b"c", b"d"):
            world.queues.add(name, one)
    first, second = world.opened("q"), world.opened("q")
    world.opened("r")
    world.clock.advance(1)
    third = world.opened("q")
    assert world.queues.time_out("q") == []
    world.clock.advance(0.5)
    assert world.queues.time_out("q") == [second, first]
    assert world.queues.time_out("r") == world.queues.time_out("none") == []
    assert not world.queues.confirm("q", first)
    assert world.queues.confirm("q", third)
    assert world.drained("q") == [b"a", b"b", b"d"]
    assert world.queues.stats("q")["canceled_transactions"] == 2


def test_an_item_that_was_closed_or_given_back_does_not_time_out() -> None:
    world = World(default={"openTransactionTimeout": 1000})
    world.queues.add("q", b"a")
    world.queues.unremove("q", world.opened("q"))
    world.queues.confirm("q", world.opened("q"))
    world.clock.advance(5)
    assert world.queues.time_out("q") == []
    assert world.drained("q") == []


def test_an_empty_queue_that_nobody_asks_for_is_unused() -> None:
    world = World(queues={"q": {"maxQueueAge": 1000}})
    for name in ("q", "r", "q+x"):
        world.queues.peek(name)
    world.clock.advance(1)
    assert not world.queues.is_unused("q")
    world.queues.peek("q")  # it is used
    world.clock.advance(0.5)
    assert [world.queues.is_unused(name) for name in ("q", "r", "q+x", "none")] == [
        False,
        False,
        True,
        False,
    ]
    world.clock.advance(1)
    assert world.queues.is_unused("q")


def test_a_queue_with_items_waiting_or_open_is_used() -> None:
    world = World(default={"maxQueueAge": 1000})
    world.queues.add("q", b"a")
    world.clock.advance(5)
    assert not world.queues.is_unused("q")
    xid = world.opened("q")
    world.clock.advance(5)
    assert not world.queues.is_unused("q")
    world.queues.confirm("q", xid)
    assert not world.queues.is_unused("q")  # it was used just now
    world.clock.advance(5)
    assert world.queues.is_unused("q")
    world.again()
    assert not world.queues.is_unused("q")  # a start counts as using it


# -- a full disk ----------------------------------------------------------------------------------


def test_a_full_disk_takes_no_items_and_gives_them() -> None:
    world = World()
    for number in range(5):
        world.queues.add("q", b"%d" % number)
    first, second = world.opened("q"), world.opened("q")
    world.fill()
    with pytest.raises(OSError, match="No space"):
        world.queues.add("q", bytes(100))
    assert world.queues.unremove("q", second)  # from what was kept back
    assert world.queues.confirm("q", first)
    item = world.queues.remove("q")
    assert item is not None
    assert item.data == b"1"
    with pytest.raises(OSError, match="left to keep back"):
        world.queues.add("q", b"x")  # which is for removing alone
    world.queues.flush("q")
    world.queues.delete("q")
    world.disk.capacity = None
    assert world.queues.add("q", b"y")
    world.fill()
    assert world.drained("q") == [b"y"]  # it is kept back again
    world.queues.close()
    assert world.disk.names(FOLDER) == ["q"]


def test_what_was_kept_back_is_there_for_the_next_start() -> None:
    world = World()
    world.queues.add("q", b"a")
    world.opened("q")
    world.disk.process_crash()
    world.fill()
    world.again()
    assert world.drained("q") == [b"a"]


def test_a_disk_that_is_full_at_the_start_takes_no_items() -> None:
    world = World(reserve_bytes=0)
    world.queues.add("q", b"a")
    world.queues.close()
    world.disk.capacity = world.disk.used_bytes() + 100
    queues = Collection(world.disk, FOLDER, world.config, world.clock, reserve_bytes=RESERVE)
    with pytest.raises(OSError, match="left to keep back"):
        queues.add("q", b"b")
    assert queues.peek("q") is not None


def test_without_space_nothing_is_half_done() -> None:
    world = World(reserve_bytes=0)
    for one in (b"a", b"b", b"c"):
        world.queues.add("q", one)
    xid = world.opened("q")
    world.fill()
    for act in (
        lambda: world.queues.remove("q"),
        lambda: world.queues.confirm("q", xid),
        lambda: world.queues.unremove("q", xid),
        lambda: world.queues.flush("q"),
    ):
        with pytest.raises(OSError, match="No space"):
            act()
    stats = world.queues.stats("q")
    assert (stats["items"], stats["open_transactions"], stats["total_flushes"]) == (2, 1, 0)
    world.disk.capacity = None
    assert world.queues.unremove("q", xid)
    assert world.drained("q") == [b"a", b"b", b"c"]


def test_items_that_time_out_without_space_are_told_as_they_go_back() -> None:
    world = World(reserve_bytes=0, default={"openTransactionTimeout": 1})
    for one in (b"a", b"b"):
        world.queues.add("q", one)
    first, second = world.opened("q"), world.opened("q")
    world.clock.advance(1)
    world.disk.capacity = world.disk.used_bytes() + 5  # for one of them
    assert world.queues.time_out("q") == [second]
    with pytest.raises(OSError, match="No space"):
        world.queues.time_out("q")
    world.disk.capacity = None
    assert world.queues.time_out("q") == [first]
    assert world.drained("q") == [b"a", b"b"]


def test_a_flush_of_very_many_that_finds_no_space_removes_what_it_says() -> None:
    world = World(reserve_bytes=0)
    for _ in range(70_000):
        world.queues.add("q", b"")
    world.disk.capacity = world.disk.used_bytes() + 66_000
    with pytest.raises(OSError, match="No space"):
        world.queues.flush("q")
    assert world.queues.stats("q")["items"] == 70_000 - 65_536
    world.disk.capacity = None
    world.queues.sync()
    world.disk.process_crash()
    assert world.again().stats("q")["items"] == 70_000 - 65_536


def test_expired_items_that_find_no_space_elsewhere_stay_and_are_not_doubled() -> None:
    world = World(reserve_bytes=0, queues={"q": {"expireToQueue": "late"}})
    for one in (b"a", b"b", b"c"):
        world.queues.add("q", one, world.clock.wall_us() // 1000 + 1)
    world.queues.peek("late")
    world.clock.advance(1)
    world.disk.capacity = world.disk.used_bytes() + 22 * 2 + 1 + 2  # two of them, and removes
    with pytest.raises(OSError, match="No space"):
        world.queues.flush_expired("q")
    assert world.queues.stats("q")["items"] == 1
    world.disk.capacity = None
    assert world.queues.flush_expired("q") == 1
    assert world.drained("late") == [b"a", b"b", b"c"]


def test_a_queue_that_could_not_be_deleted_is_as_it_was() -> None:
    refused = 0
    for call in range(1, 20):
        world = World(reserve_bytes=0)
        world.queues.add("q", b"a")
        world.queues.sync()
        world.disk.errors = {len(world.disk.calls) + call: errno.ENOSPC}
        try:
            world.queues.delete("q")
        except DurabilityError:
            continue  # names were about to change, and nobody knows which there are
        except OSError:
            refused += 1
            assert world.drained("q") == [b"a"]
            world.queues.add("q", b"b")
            world.queues.delete("q")
        assert world.queues.names() == []
    assert refused > 0
