"""The queues of a directory: found, made, copied to, expired, synced and closed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from fjord.disk import LocalDisk
from fjord.errors import DirectoryInUseError, DurabilityError, FjordError, UsageError
from fjord.kestrel import codec, collection, config, reader
from fjord.kestrel.codec import Dialect, Item, Op
from fjord.kestrel.collection import Collection
from fjord.kestrel.config import QueueConfig
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.vectors import ADD_MS, encoded

FOLDER = "/kestrel"


class World:
    """A directory of queues that can be opened again."""

    def __init__(self, **given: object) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        self.config = config.read(given)
        self.queues = self.again()

    def again(self) -> Collection:
        self.disk.locks.clear()
        self.queues = Collection(self.disk, FOLDER, self.config, self.clock)
        return self.queues

    def drained(self, queue: str) -> list[bytes]:
        return [bytes(item.data) for item in iter(lambda: self.queues.remove(queue), None)]

    def soon(self) -> int:
        return self.clock.wall_us() // 1000 + 1000

    def put(self, name: str, *made: Op) -> None:
        self.disk.make_directory(FOLDER)
        with contextlib.closing(self.disk.open(f"{FOLDER}/{name}", create=True)) as file:
            file.write(0, b"".join(codec.encode(op, Dialect.V24) for op in made))


def test_queues_are_made_by_adding_and_asking_and_by_nothing_else() -> None:
    world = World()
    queues = world.queues
    queues.flush("a")
    queues.delete("a")
    assert queues.flush_expired("a") == 0
    assert (queues.confirm("a", 1), queues.unremove("a", 1)) == (False, False)
    assert queues.stats("a") == {}
    assert queues.names() == []
    assert queues.add("b", b"x")
    assert queues.remove("a") is None
    assert queues.peek("c") is None
    assert queues.names() == ["a", "b", "c"]
    assert world.disk.names(FOLDER) == ["a", "b", "c"]


def test_a_bad_name_is_refused_and_makes_nothing() -> None:
    world = World()
    for name in ("", "a.b", "a/b", "a~b", "a+"):
        with pytest.raises(UsageError):
            world.queues.add(name, b"x")
    world.queues.sync()
    assert world.queues.names() == []


def test_what_is_in_a_directory_is_found_and_open_items_are_put_back() -> None:
    world = World()
    world.put("cars.904", codec.addx(b"a", add_ms=ADD_MS), codec.addx(b"b", add_ms=ADD_MS))
    world.put("cars", codec.remove_tentative(7), codec.addx(b"c", add_ms=ADD_MS))
    world.put("bikes~~9")
    assert world.again().names() == ["cars"]
    assert world.queues.confirm("cars", 7) is False
    assert world.drained("cars") == [b"a", b"b", b"c"]


def test_open_items_are_confirmed_or_put_back() -> None:
    world = World()
    for one in (b"a", b"b"):
        world.queues.add("q", one)
    first = world.queues.remove("q", opens=True)
    second = world.queues.remove("q", opens=True)
    assert first is not None
    assert second is not None
    assert world.queues.unremove("q", first.xid)
    assert world.queues.confirm("q", second.xid)
    assert not world.queues.confirm("q", second.xid)
    stats = world.queues.stats("q")
    assert (stats["transactions"], stats["canceled_transactions"]) == (2, 1)
    assert world.drained("q") == [b"a"]


def test_children_get_what_their_parent_gets_from_then_on() -> None:
    world = World()
    world.queues.add("cars", b"before")
    world.queues.peek("cars+seo")
    world.queues.add("cars", b"a")
    world.queues.add("cars+seo", b"own")
    assert world.queues.stats("cars")["children"] == "cars+seo"
    world.again()
    world.queues.add("cars", b"b")
    world.queues.flush("cars")
    assert world.drained("cars+seo") == [b"a", b"own", b"b"]
    world.queues.delete("cars+seo")
    world.queues.add("cars", b"c")
    assert world.queues.names() == ["cars"]
    assert "children" not in world.queues.stats("cars")


def test_a_parent_that_refuses_gives_nothing_to_its_children() -> None:
    world = World(queues={"cars": {"maxItems": 1}, "cars+seo": {"maxItems": 9}})
    world.queues.peek("cars+seo")
    assert [world.queues.add("cars", one) for one in (b"a", b"b")] == [True, False]
    assert world.drained("cars+seo") == [b"a"]


def test_a_parent_may_keep_nothing_itself() -> None:
    world = World(queues={"cars": {"fanoutOnly": True}})
    world.queues.peek("cars+seo")
    assert world.queues.add("cars", b"a")
    assert world.drained("cars") == []
    assert world.drained("cars+seo") == [b"a"]


def test_an_alias_takes_items_for_other_queues() -> None:
    world = World(aliases={"all": ["a", "b"]}, queues={"a": {"maxItems": 1}})
    assert [world.queues.add("all", one) for one in (b"1", b"2")] == [True, False]
    assert (world.drained("a"), world.drained("b")) == ([b"1"], [b"1", b"2"])


def test_expired_items_are_never_handed_out() -> None:
    world = World()
    for _ in range(2_500):  # more than expire in one go
        world.queues.add("q", b"old", world.soon())
    world.queues.add("q", b"new")
    world.clock.advance(2)
    item = world.queues.peek("q")
    assert item is not None
    assert item.data == b"new"
    assert world.queues.stats("q")["expired_items"] == 2_500


def test_expired_items_go_where_they_are_to_go_and_stay_there() -> None:
    world = World(queues={"q": {"expireToQueue": "late", "maxExpireSweep": 2}})
    for one in (b"a", b"b", b"c"):
        world.queues.add("q", one, world.soon())
    world.clock.advance(2)
    assert world.queues.flush_expired("q") == 2
    assert world.queues.flush_expired("q") == 1
    world.clock.advance(100_000)
    assert world.drained("late") == [b"a", b"b", b"c"]
    assert world.drained("q") == []


def test_expired_items_may_go_to_an_alias_which_makes_no_queue_of_its_own() -> None:
    world = World(aliases={"all": ["a", "b"]}, queues={"q": {"expireToQueue": "all"}})
    world.queues.add("q", b"x", world.soon())
    world.queues.sync()
    world.clock.advance(2)
    assert world.queues.flush_expired("q") == 1
    assert world.queues.names() == ["a", "b", "q"]
    world.disk.power_cut()  # it is where it went before it is gone
    world.again()
    assert (world.drained("a"), world.drained("b")) == ([b"x"], [b"x"])


def test_there_is_a_bound_on_queues_that_are_made() -> None:
    world = World()
    world.queues.add("a", b"x")
    world.queues.add("b", b"x")
    world.queues.close()
    bounded = Collection(world.disk, FOLDER, None, world.clock, queues_max=1)
    assert bounded.names() == ["a", "b"]
    with pytest.raises(FjordError, match="too many queues"):
        bounded.remove("c")
    assert bounded.add("a", b"y")
    bounded.delete("a")
    bounded.delete("b")
    assert bounded.add("c", b"x")
    assert world.disk.names(FOLDER) == ["c"]


def test_directories_among_the_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    queues = Collection(LocalDisk(), str(tmp_path), None, SimClock())
    assert queues.names() == []
    with pytest.raises(OSError, match="directory"):
        queues.add("lost+found", b"x")
    assert queues.add("q", b"x")
    queues.close()
    assert Collection(LocalDisk(), str(tmp_path), None, SimClock()).names() == ["q"]


def test_what_was_synced_survives_a_power_cut() -> None:
    for seed in range(10):
        disk, clock = SimDisk(seed), SimClock()
        queues = Collection(disk, FOLDER, None, clock)
        disk.sync_directory("/")
        for one in ("a", "b"):
            queues.add(one, b"x")
        queues.sync()
        calls = len(disk.calls)
        queues.sync()
        assert len(disk.calls) == calls  # there was nothing to do
        disk.power_cut()
        again = Collection(disk, FOLDER, None, clock)
        found = [again.remove(one) for one in ("a", "b")]
        assert [item and item.data for item in found] == [b"x", b"x"]


def test_a_directory_has_one_owner() -> None:
    world = World()
    with pytest.raises(DirectoryInUseError):
        Collection(world.disk, FOLDER, None, world.clock)
    with pytest.raises(DirectoryInUseError), collection.locked(world.disk, FOLDER):
        raise AssertionError("it is not locked")
    world.queues.close()
    with collection.locked(world.disk, FOLDER):
        assert world.disk.locks


def test_an_end_leaves_nothing_of_empty_queues_but_their_names() -> None:
    world = World()
    for one in ("a", "b"):
        world.queues.add(one, b"x")
    world.queues.remove("a")
    world.queues.close()
    assert world.disk.names(FOLDER) == ["a", "b", "b~~sums"]
    assert reader.survey(world.disk, FOLDER, "a").size == 0
    world.again()
    assert world.drained("b") == [b"x"]


def test_a_queue_that_cannot_be_closed_leaves_the_others_and_the_lock_alone() -> None:
    world = World()
    for one in ("a", "b"):
        world.queues.add(one, b"x")
    world.disk.errors = {len(world.disk.calls) + 1: 5}
    with pytest.raises(DurabilityError):
        world.queues.close()
    assert not world.disk.locks
    assert world.again().names() == ["a", "b"]


def test_a_configuration_can_be_changed() -> None:
    world = World(default={"keepJournal": False})
    world.queues.add("q", b"x")
    world.queues.configure(config.read({"default": {"maxItems": 1}}))
    assert not world.queues.add("q", b"y")
    assert world.disk.names(FOLDER) == []


def test_damage_is_told() -> None:
    world = World()
    world.disk.make_directory(FOLDER)
    with contextlib.closing(world.disk.open(f"{FOLDER}/q", create=True)) as file:
        file.write(0, b"\x63nonsense")
    assert "~~corrupt/q" in world.again().alerts()[0]


def test_a_start_that_fails_gives_the_directory_back() -> None:
    world = World()
    world.queues.add("q", b"x")
    world.disk.process_crash()
    world.disk.errors = {len(world.disk.calls) + 1: 5}
    with pytest.raises(Exception, match="the journal of q failed"):
        Collection(world.disk, FOLDER, None, world.clock)
    world.disk.errors = {}
    assert not world.disk.locks


def test_a_queue_is_packed_with_what_is_open(tmp_path: Path) -> None:
    made = [codec.addx(b"a", add_ms=ADD_MS), codec.remove()] * 50
    waiting = codec.addx(b"b", add_ms=ADD_MS), codec.addx(b"c", add_ms=ADD_MS)
    (tmp_path / "q.904").write_bytes(encoded(*made, *waiting))
    (tmp_path / "q").write_bytes(encoded(codec.remove_tentative(7)))
    disk, folder, clock = LocalDisk(), str(tmp_path), SimClock()
    (packed,) = collection.pack_queues(disk, folder, "q", QueueConfig(), clock)
    assert isinstance(packed, collection.Packed)
    assert (packed.items, packed.open_items, packed.alerts) == (1, 1, ())
    assert (packed.bytes_before, packed.bytes_after) == (50 * 23 + 44 + 5, 49)
    assert disk.names(folder) == ["q", "q~~sums", "~~lock"]
    queues = Collection(disk, folder, None, clock)
    assert [queues.remove("q"), queues.remove("q")] == [Item(data, ADD_MS) for data in (b"b", b"c")]
    queues.close()
