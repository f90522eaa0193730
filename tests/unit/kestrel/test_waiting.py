"""A queue that holds a part of its items in memory means what the ops of its journal mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.errors import CorruptionError
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Op
from fjord.kestrel.items import Checkpoints, Entry
from fjord.kestrel.journal import Segment
from fjord.testing import SimDisk
from tests.unit.kestrel import vectors
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
from tests.unit.kestrel.vectors import encoded, going_on, item, named

XIDS = st.sampled_from([1, 2, 3, 7])
DATA = st.binary(max_size=30)
OPS = st.one_of(
    st.sampled_from([codec.remove(), codec.remove_tentative()]),
    *(st.builds(make, DATA) for make in (vectors.add, item, item)),
    *(st.builds(make, XIDS, DATA) for make in (named, going_on)),
    *(st.builds(make, XIDS) for make in (codec.remove_tentative, codec.save_xid)),
    *(st.builds(make, XIDS) for make in (codec.unremove, codec.confirm_remove)),
    st.builds(vectors.state_dump, XIDS, st.integers(0, 2)),
)


@given(
    files=st.lists(st.lists(OPS, max_size=25), min_size=1, max_size=4),
    memory_bytes=st.sampled_from([0, 10, 60, 1000]),
)
def test_any_journal_means_the_same_in_little_memory(
    files: list[list[Op]], memory_bytes: int
) -> None:
    disk = made_disk()
    for number, made in enumerate(files):
        put(disk, f"{QUEUE}.{number + 1}", encoded(*made))
    state = replayed(reader.survey(disk, FOLDER, QUEUE))
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
def test_a_start_holds_no_more_than_it_may(
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


# -- how little is remembered for a pack -----------------------------------------------------------


def entry(data: bytes, era: int = 0) -> Entry:
    return Entry(data, 1, 0, 0, era)


def test_runs_of_items_that_are_gone_are_one_number() -> None:
    marks = Checkpoints()
    marks.note(entry(b"x"), 1)
    assert (len(marks._runs), marks.reached(5)) == (0, None)  # there is no checkpoint
    marks.add(Segment("q.1", 0), {}, 0)
    kept = entry(b"kept")
    for number in range(5_000):
        one = kept if number == 2_500 else entry(b"x")
        marks.note(one, 1)
        if one is not kept:
            one.go()
    assert (one.is_gone, one.data, one.item().size) == (True, b"", 0)
    assert len(marks._runs) < 10
    found = marks.reached(1)
    assert found is not None
    marks.compact()
    assert list(marks.taken(found)) == [2_500, kept, 2_499]
    marks.forget()
    assert len(marks._runs) == 0


def test_items_confirmed_in_another_order_do_not_pile_up() -> None:
    marks = Checkpoints()
    marks.add(Segment("q.1", 0), {}, 0)
    last = entry(b"x")
    for _ in range(10_000):
        one = entry(b"x")
        marks.note(one, 1)
        last.go()  # always one is open
        last = one
    assert len(marks._runs) <= 1_100
