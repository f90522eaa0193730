"""A queue that holds a part of its items in memory means what the ops of its journal mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.errors import CorruptionError
from fjord.kestrel import codec, reading
from fjord.kestrel.codec import Item, Op
from fjord.testing import SimDisk
from tests.unit.kestrel.directory import (
    FOLDER,
    QUEUE,
    drained,
    held,
    made_disk,
    meaning,
    opened,
    put,
    replayed,
)
from tests.unit.kestrel.vectors import ADD_MS, encoded, going_on, item, named

XIDS = st.sampled_from([1, 2, 3, 7])
DATA = st.binary(max_size=30)
OPS = st.one_of(
    st.sampled_from([codec.remove(), codec.remove_tentative()]),
    *(st.builds(make, DATA) for make in (codec.add, item, item)),
    *(st.builds(make, XIDS, DATA) for make in (named, going_on)),
    *(st.builds(make, XIDS) for make in (codec.remove_tentative, codec.save_xid)),
    *(st.builds(make, XIDS) for make in (codec.unremove, codec.confirm_remove)),
    st.builds(codec.state_dump, XIDS, st.integers(0, 2)),
)


@given(
    files=st.lists(st.lists(OPS, max_size=25), min_size=1, max_size=4),
    memory_bytes=st.sampled_from([0, 10, 60, 1000]),
)
def test_any_journal_means_the_same_however_little_memory_there_is(
    files: list[list[Op]], memory_bytes: int
) -> None:
    disk = made_disk()
    for number, made in enumerate(files):
        put(disk, f"{QUEUE}.{number + 1}", encoded(*made))
    state = replayed(reading.survey(disk, FOLDER, QUEUE))
    queue = opened(disk, max_memory_size=memory_bytes)
    assert queue.stats()["items"] == len(state.queue)
    assert queue.waiting.last_xid == state.last_xid
    assert held(queue) == meaning(state)


@pytest.mark.parametrize("memory_bytes", [0, 40, 1000])
def test_what_is_behind_damage_is_cut_off_for_the_reader_too(memory_bytes: int) -> None:
    disk = made_disk()
    items = [item(b"%d" % number * 10) for number in range(9)]
    put(disk, "cars.1", encoded(*items[:4]) + b"\x63damaged" + encoded(*items[4:6]))
    put(disk, "cars", encoded(*items[6:], items[0])[:-1])
    queue = opened(disk, max_memory_size=memory_bytes)
    assert drained(queue) == [b"%d" % number * 10 for number in (0, 1, 2, 3, 6, 7, 8)]
    assert len(queue.alerts) == 1


def test_memory_is_left_and_entered_again() -> None:
    queue = opened(made_disk(), max_memory_size=30)
    for _ in range(3):
        for number in range(10):
            queue.add(b"%d" % number * 10)
        found = queue.waiting
        assert (found.is_behind, found.memory_bytes, found.behind_count) == (True, 30, 7)
        assert drained(queue) == [b"%d" % number * 10 for number in range(10)]
        assert not queue.waiting.is_behind


def test_a_file_that_changes_under_a_reader_is_damage() -> None:
    disk = made_disk()
    queue = opened(disk, max_memory_size=30)
    for number in range(10):
        queue.add(b"%d" % number * 10)
    put(disk, QUEUE, b"\x63" * 400)
    with pytest.raises(CorruptionError):
        held(queue)


def started(disk: SimDisk, first: list[Op], *others: Op) -> list[int]:
    """Returns how many items a start has in memory and behind it, of 200 bytes at most."""
    put(disk, "cars.1", encoded(*first))
    put(disk, "cars", encoded(*others))
    found = opened(disk, max_memory_size=200).waiting
    assert (found.memory_bytes, found.behind_bytes) == (
        50 * found.memory_count,
        50 * found.behind_count,
    )
    return [found.memory_count, found.behind_count]


@pytest.mark.parametrize("batch_bytes", [0, 100, 65_536])
def test_a_start_holds_no_more_in_memory_than_it_may(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """However many of them are read at a time."""
    monkeypatch.setattr(codec, "_BATCH_BYTES", batch_bytes)
    one = item(b"x" * 50)
    assert started(made_disk(), [one] * 20) == [4, 16]
    taken = [codec.remove_tentative(xid) for xid in (1, 2, 3)]
    back = [codec.unremove(xid) for xid in (1, 2, 3)]
    assert started(made_disk(), [*[one] * 3, *taken], *back, one, one) == [4, 1]


def test_a_pack_holds_what_waited_before_memory_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of a start are taken when a newer file is written to; the older ones had them."""
    monkeypatch.setattr(codec, "_BATCH_BYTES", 0)
    disk = made_disk()
    items = [item(bytes((one,)) * 50) for one in range(8)]
    put(disk, "cars.1", encoded(*items[:3]))
    put(disk, "cars.2", encoded(*items[3:]))
    put(disk, "cars", encoded(codec.remove()))
    found = opened(disk, max_memory_size=200).waiting
    (point,) = found.checkpoints.waiting
    assert (point.segment.name, list(found.checkpoints.taken(point))) == ("cars.2", [1])
    left = [entry.data[0] for entry in found.entries() if entry.era <= point.segment.era]
    assert left == [1, 2, 3, 4]


def test_a_raw_item_is_the_same_one_each_time_it_is_looked_at() -> None:
    disk = made_disk()
    put(disk, QUEUE, encoded(item(b"a", expiry_ms=7), item(b"b"), codec.remove_tentative(3)))
    found = opened(disk).waiting
    assert found.open[3].item() == Item(b"a", ADD_MS, 7)
    assert found.open[3] is found.open[3]
    assert found.head() is found.head()
    assert [entry.item() for entry in found.entries()] == [Item(b"b", ADD_MS)]
