"""A queue that holds a part of its items in memory means what the ops of its journal mean."""

from __future__ import annotations

import contextlib
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.errors import CorruptionError
from fjord.kestrel import codec, items, reader
from fjord.kestrel.codec import Dialect, Item, Op, Opcode
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.vectors import ADD_MS, Replayed

FOLDER = "/kestrel"

XIDS = st.sampled_from([1, 2, 3, 7])
DATA = st.binary(max_size=30)
OPS = st.one_of(
    st.builds(codec.add, DATA),
    DATA.map(lambda data: codec.addx(data, add_ms=ADD_MS)),
    DATA.map(lambda data: codec.addx(data, add_ms=ADD_MS)),
    st.builds(lambda xid, data: codec.add_xid(xid, data, add_ms=ADD_MS), XIDS, DATA),
    st.builds(lambda xid, data: codec.proceed(xid, data, add_ms=ADD_MS), XIDS, DATA),
    st.just(codec.remove()),
    st.just(codec.remove_tentative()),
    XIDS.map(codec.remove_tentative),
    XIDS.map(codec.save_xid),
    XIDS.map(codec.unremove),
    XIDS.map(codec.confirm_remove),
    st.builds(codec.state_dump, XIDS, st.integers(0, 2)),
)


def written(made: list[Op]) -> bytes:
    return b"".join(
        codec.encode(op, next(one for one in Dialect if op.opcode in codec.WRITTEN[one]))
        for op in made
    )


def put(disk: SimDisk, name: str, data: bytes) -> None:
    disk.make_directory(FOLDER)
    with contextlib.closing(disk.open(f"{FOLDER}/{name}", create=True)) as file:
        file.write(0, data)


def opened(disk: SimDisk, memory_bytes: int) -> PersistentQueue:
    clock = SimClock()
    journal = Journal(disk, FOLDER, "q", now_ms=lambda: clock.wall_us() // 1000)
    return PersistentQueue("q", QueueConfig(max_memory_size=memory_bytes), clock, journal)


def read(disk: SimDisk) -> tuple[list[bytes], dict[int, bytes], int]:
    """Returns what the plain fold of all ops gives."""
    state = Replayed()
    for op, _, _ in chain.from_iterable(
        file.ops() for file in reader.survey(disk, FOLDER, "q").files
    ):
        state.apply(op)
    items = [bytes(item.data) for item in state.queue]
    return items, {xid: bytes(item.data) for xid, item in state.open.items()}, state.last_xid


def held(queue: PersistentQueue) -> tuple[list[bytes], dict[int, bytes], int]:
    reserved = {xid: entry.data for xid, entry in queue.waiting.open.items()}
    last_xid = queue.waiting.last_xid
    return [bytes(item.data) for item in iter(queue.remove, None)], reserved, last_xid


def test_every_op_is_applied_by_something() -> None:
    special = {Opcode.ADD_XID, Opcode.REMOVE_TENTATIVE}
    adding = {Opcode.ADD, Opcode.ADDX, Opcode.CONTINUE}
    assert set(items.APPLIERS) | special | adding == set(Opcode)


@given(
    files=st.lists(st.lists(OPS, max_size=25), min_size=1, max_size=4),
    memory_bytes=st.sampled_from([0, 10, 60, 1000]),
)
def test_any_journal_means_the_same_however_little_memory_there_is(
    files: list[list[Op]], memory_bytes: int
) -> None:
    disk = SimDisk()
    for number, made in enumerate(files):
        put(disk, f"q.{number + 1}", written(made))
    expected = read(disk)
    queue = opened(disk, memory_bytes)
    assert queue.stats()["items"] == len(expected[0])
    assert held(queue) == expected


@pytest.mark.parametrize("memory_bytes", [0, 40, 1000])
def test_what_is_behind_damage_is_cut_off_for_the_reader_too(memory_bytes: int) -> None:
    disk = SimDisk()
    items = [codec.addx(b"%d" % number * 10, add_ms=ADD_MS) for number in range(9)]
    put(disk, "q.1", written(items[:4]) + b"\x63damaged" + written(items[4:6]))
    put(disk, "q", written(items[6:]) + written(items[:1])[:-1])
    queue = opened(disk, memory_bytes)
    assert held(queue)[0] == [b"%d" % number * 10 for number in (0, 1, 2, 3, 6, 7, 8)]
    assert len(queue.alerts) == 1


def test_memory_is_left_and_entered_again() -> None:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    queue = opened(disk, 30)
    for _ in range(3):
        for number in range(10):
            queue.add(b"%d" % number * 10)
        assert queue.waiting.is_behind
        assert queue.waiting.memory_bytes == 30
        assert queue.waiting.behind_count == 7
        for number in range(10):
            item = queue.remove()
            assert item is not None
            assert item.data == b"%d" % number * 10
        assert not queue.waiting.is_behind


def test_a_file_that_changes_under_a_reader_is_damage() -> None:
    disk = SimDisk()
    disk.make_directory(FOLDER)
    queue = opened(disk, 30)
    for number in range(10):
        queue.add(b"%d" % number * 10)
    with contextlib.closing(disk.open(f"{FOLDER}/{disk.names(FOLDER)[-1]}")) as file:
        file.write(31, b"\x63" * 31)
    with contextlib.closing(disk.open(f"{FOLDER}/q")) as file:
        file.write(0, b"\x63" * file.size())
    with pytest.raises(CorruptionError):
        held(queue)


@pytest.mark.parametrize("batch_bytes", [0, 100, 65_536])
def test_a_start_holds_no_more_in_memory_than_it_may(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """However many of them are read at a time."""
    monkeypatch.setattr(codec, "_BATCH_BYTES", batch_bytes)
    disk = SimDisk()
    put(disk, "q", written([codec.addx(b"x" * 50, add_ms=ADD_MS)] * 20))
    found = opened(disk, 200).waiting
    assert (found.memory_count, found.memory_bytes) == (4, 200)
    assert (found.behind_count, found.behind_bytes) == (16, 800)


def test_what_went_back_counts_for_what_memory_may_hold() -> None:
    disk = SimDisk()
    item = codec.addx(b"x" * 50, add_ms=ADD_MS)
    taken = [codec.remove_tentative(xid) for xid in (1, 2, 3)]
    back = [codec.unremove(xid) for xid in (1, 2, 3)]
    put(disk, "q.1", written([item] * 3 + taken))
    put(disk, "q", written([*back, item, item]))
    found = opened(disk, 200).waiting
    assert (found.memory_count, found.behind_count) == (4, 1)


def test_a_pack_holds_what_waited_before_memory_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of a start are taken when a newer file is written to; the older ones had them."""
    monkeypatch.setattr(codec, "_BATCH_BYTES", 0)
    disk = SimDisk()
    items = [codec.addx(bytes((one,)) * 50, add_ms=ADD_MS) for one in range(8)]
    put(disk, "q.1", written(items[:3]))
    put(disk, "q.2", written(items[3:]))
    put(disk, "q", written([codec.remove()]))
    found = opened(disk, 200).waiting
    points = found.checkpoints.waiting
    assert [point.segment.name for point in points] == ["q.2"]
    assert list(found.checkpoints.taken(points[0])) == [1]
    left = [entry.data[0] for entry in found.entries() if entry.era <= points[0].segment.era]
    assert left == [1, 2, 3, 4]


def test_a_raw_item_is_the_same_one_each_time_it_is_looked_at() -> None:
    disk = SimDisk()
    made = [codec.addx(b"a", add_ms=ADD_MS, expiry_ms=7), codec.addx(b"b", add_ms=ADD_MS)]
    put(disk, "q", written([*made, codec.remove_tentative(3)]))
    found = opened(disk, 200).waiting
    assert found.open[3].item() == Item(b"a", ADD_MS, 7)
    assert found.open[3] is found.open[3]
    assert found.head() is found.head()
    assert [entry.item() for entry in found.entries()] == [Item(b"b", ADD_MS)]
    assert found.bytes == 1
