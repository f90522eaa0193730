"""The queues of a directory: found, made, copied to, expired, synced and closed."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from fjord.disk import LocalDisk
from fjord.errors import DirectoryInUseError, DurabilityError, FjordError, UsageError
from fjord.kestrel import codec, collection, config, reader
from fjord.kestrel.collection import Collection, Reserve
from fjord.testing import SimClock
from tests.unit.kestrel.directory import FOLDER, made_disk, put
from tests.unit.kestrel.vectors import encoded, item

RESERVE = 2000


class World:
    """A directory of queues that can be opened again."""

    def __init__(self, reserve_bytes: int = 0, **given: object) -> None:
        self.disk, self.clock = made_disk(), SimClock()
        self.config, self._reserve_bytes = config.read(given), reserve_bytes
        self.queues = self.again()

    def again(self, **options: Any) -> Collection:
        self.disk.locks.clear()
        options = {"reserve_bytes": self._reserve_bytes, **options}
        self.queues = Collection(self.disk, FOLDER, self.config, self.clock, **options)
        return self.queues

    def add(self, queue: str, *items: bytes, expires_ms: int = 0) -> list[bool]:
        return [self.queues.add(queue, one, expires_ms) for one in items]

    def opened(self, queue: str) -> int:
        item = self.queues.remove(queue, opens=True)
        assert item is not None
        return item.xid

    def drained(self, queue: str) -> list[bytes]:
        return [bytes(item.data) for item in iter(lambda: self.queues.remove(queue), None)]

    def soon(self) -> int:
        return self.clock.wall_us() // 1000 + 1000

    def fill(self, left: int = 0) -> None:
        self.disk.capacity = self.disk.used_bytes() + left


def test_queues_are_made_by_adding_and_asking_and_by_nothing_else() -> None:
    world = World()
    queues = world.queues
    queues.flush("a")
    queues.delete("a")
    for name in ("", "a.b", "a/b", "a~b", "a+"):
        with pytest.raises(UsageError):
            queues.add(name, b"x")
    queues.sync()
    assert (queues.flush_expired("a"), queues.stats("a"), queues.names()) == (0, {}, [])
    assert (queues.confirm("a", 1), queues.unremove("a", 1)) == (False, False)
    assert queues.add("b", b"x")
    assert queues.remove("a") is queues.peek("c") is None
    assert queues.names() == world.disk.names(FOLDER) == ["a", "b", "c"]


def test_what_is_in_a_directory_is_found_and_open_items_are_put_back() -> None:
    world = World()
    put(world.disk, "cars.904", encoded(item(b"a"), item(b"b")))
    put(world.disk, "cars", encoded(codec.remove_tentative(7), item(b"c")))
    put(world.disk, "bikes~~9")
    put(world.disk, "vans", b"\x63nonsense")
    assert world.again().names() == ["cars", "vans"]
    assert "~~corrupt/vans" in world.queues.alerts()[0]
    assert world.queues.confirm("cars", 7) is False
    assert world.drained("cars") == [b"a", b"b", b"c"]


def test_children_get_what_their_parent_gets_from_then_on() -> None:
    world = World(queues={"cars": {"maxItems": 2}, "cars+seo": {"maxItems": 9}})
    world.add("cars", b"before")
    world.queues.peek("cars+seo")
    assert world.add("cars", b"a", b"refused") == [True, False]
    world.add("cars+seo", b"own")
    assert world.queues.stats("cars")["children"] == "cars+seo"
    world.again()
    world.queues.flush("cars")
    world.add("cars", b"b")
    assert world.drained("cars+seo") == [b"a", b"own", b"b"]
    world.queues.delete("cars+seo")
    world.add("cars", b"c")
    assert world.queues.names() == ["cars"]
    assert "children" not in world.queues.stats("cars")


def test_an_alias_takes_items_for_other_queues() -> None:
    world = World(aliases={"all": ["a", "b"]}, queues={"a": {"maxItems": 1}})
    assert world.add("all", b"1", b"2") == [True, False]
    assert (world.drained("a"), world.drained("b")) == ([b"1"], [b"1", b"2"])


def test_expired_items_are_never_handed_out() -> None:
    world = World()
    world.add("q", *[b"old"] * 2_500, expires_ms=world.soon())  # more than expire in one go
    world.add("q", b"new")
    world.clock.advance(2)
    head = world.queues.peek("q")
    assert head is not None
    assert (head.data, world.queues.stats("q")["expired_items"]) == (b"new", 2_500)


def test_expired_items_go_where_they_are_to_go_and_stay_there() -> None:
    world = World(queues={"q": {"expireToQueue": "late", "maxExpireSweep": 2}})
    world.add("q", b"a", b"b", b"c", expires_ms=world.soon())
    world.clock.advance(2)
    assert [world.queues.flush_expired("q") for _ in range(2)] == [2, 1]
    world.clock.advance(100_000)
    assert (world.drained("late"), world.drained("q")) == ([b"a", b"b", b"c"], [])


def test_directories_among_the_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    queues = Collection(LocalDisk(), str(tmp_path), None, SimClock())
    with pytest.raises(OSError, match="directory"):
        queues.add("lost+found", b"x")
    assert queues.add("q", b"x")
    queues.close()
    assert Collection(LocalDisk(), str(tmp_path), None, SimClock()).names() == ["q"]


def test_a_directory_has_one_owner() -> None:
    world = World()
    with pytest.raises(DirectoryInUseError):
        Collection(world.disk, FOLDER, None, world.clock)
    with pytest.raises(DirectoryInUseError), collection.locked(world.disk, FOLDER):
        raise AssertionError("it is not locked")
    world.queues.close()
    with collection.locked(world.disk, FOLDER):
        assert world.disk.locks


def test_a_start_or_an_end_that_fails_gives_the_directory_back() -> None:
    world = World()
    for name in ("a", "b"):
        world.add(name, b"x")
    world.disk.errors = {len(world.disk.calls) + 1: 5}
    with pytest.raises(DurabilityError):
        world.queues.close()
    assert not world.disk.locks
    assert world.again().names() == ["a", "b"]
    world.disk.process_crash()
    world.disk.errors = {len(world.disk.calls) + 1: 5}
    with pytest.raises(FjordError, match="the journal of a failed"):
        Collection(world.disk, FOLDER, None, world.clock)
    assert not world.disk.locks


# -- time -----------------------------------------------------------------------------------------


def test_items_that_are_open_for_too_long_go_back_in_their_order() -> None:
    world = World(queues={"q": {"openTransactionTimeout": 1000}})
    for name in ("q", "r"):
        world.add(name, b"a", b"b", b"c", b"d", b"e")
    first, second, closed = world.opened("q"), world.opened("q"), world.opened("q")
    world.queues.confirm("q", closed)
    world.opened("r")
    world.clock.advance(1)
    third = world.opened("q")
    assert world.queues.time_out("q") == []
    world.clock.advance(0.5)
    assert world.queues.time_out("q") == [second, first]
    assert world.queues.time_out("r") == world.queues.time_out("none") == []
    assert [world.queues.confirm("q", xid) for xid in (first, third)] == [False, True]
    assert world.drained("q") == [b"a", b"b", b"e"]
    assert world.queues.stats("q")["canceled_transactions"] == 2


# -- a full disk ----------------------------------------------------------------------------------


def test_a_full_disk_takes_no_items_and_gives_them() -> None:
    world = World(RESERVE)
    world.add("q", *(b"%d" % number for number in range(5)))
    first, second = world.opened("q"), world.opened("q")
    world.fill()
    with pytest.raises(OSError, match="No space"):
        world.add("q", bytes(100))
    assert world.queues.unremove("q", second)  # from what was kept back
    assert world.queues.confirm("q", first)
    head = world.queues.remove("q")
    assert head is not None
    assert head.data == b"1"
    with pytest.raises(OSError, match="No space left"):
        world.add("q", b"x")  # which is for removing alone
    world.queues.flush("q")
    world.queues.delete("q")
    world.disk.capacity = None
    assert world.add("q", b"y") == [True]
    world.fill()
    assert world.drained("q") == [b"y"]  # it is kept back again
    world.queues.close()
    assert world.disk.names(FOLDER) == ["q"]


def test_a_queue_that_could_not_be_deleted_is_as_it_was() -> None:
    refused = 0
    for call in range(1, 20):
        world = World()
        world.add("q", b"a")
        world.queues.sync()
        world.disk.errors = {len(world.disk.calls) + call: errno.ENOSPC}
        try:
            world.queues.delete("q")
        except DurabilityError:
            continue  # names were about to change, and nobody knows which there are
        except OSError:
            refused += 1
            assert world.drained("q") == [b"a"]
            world.add("q", b"b")
            world.queues.delete("q")
        assert world.queues.names() == []
    assert refused > 0


def test_space_is_kept_back_and_given_once() -> None:
    disk = made_disk()
    disk.capacity = RESERVE - 1
    reserve = Reserve(disk, FOLDER, RESERVE)
    assert not reserve.give()  # there is none yet
    with pytest.raises(OSError, match="No space left") as caught:
        reserve.take()
    assert caught.value.errno == errno.ENOSPC
    disk.capacity = RESERVE
    reserve.take()
    reserve.take()
    assert (disk.used_bytes(), reader.queues(disk, FOLDER)) == (RESERVE, [])
    assert (reserve.give(), disk.used_bytes(), reserve.give()) == (True, 0, False)
    reserve.take()
    disk.process_crash()
    reserve = Reserve(disk, FOLDER, RESERVE)  # of a process that died
    assert (reserve.give(), disk.used_bytes()) == (True, 0)
    disk.errors[len(disk.calls) + 1] = errno.EIO  # which is no full disk
    with pytest.raises(OSError, match=r"Errno 5\b"):
        reserve.take()
    reserve.take()
    reserve.close()
    Reserve(disk, FOLDER, 0).take()  # nothing may be kept back
    assert disk.names(FOLDER) == []
