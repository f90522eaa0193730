"""What a pack in the middle of a journal holds, and how little is remembered for it."""

from __future__ import annotations

import pytest

from fjord.kestrel import codec
from fjord.kestrel import items as checkpoints
from fjord.kestrel.codec import Dialect
from fjord.kestrel.items import Checkpoints, Entry
from fjord.kestrel.journal import Segment
from tests.unit.kestrel.vectors import Replayed


def entry(data: bytes, era: int = 0) -> Entry:
    return Entry(data, 1, 0, 0, era)


def test_what_is_gone_gives_its_data_away() -> None:
    one = entry(b"x")
    one.go()
    assert (one.is_gone, one.data, one.item().size) == (True, b"", 0)


def test_nothing_is_remembered_without_a_checkpoint() -> None:
    marks = Checkpoints()
    marks.note(entry(b"x"), 1)
    assert marks.runs == 0
    assert marks.reached(5) is None


def test_runs_of_items_that_are_gone_are_one_number() -> None:
    marks = Checkpoints()
    marks.add(Segment("q.1", 0), {}, 0)
    kept = entry(b"kept")
    for number in range(5_000):
        one = kept if number == 2_500 else entry(b"x")
        marks.note(one, 1)
        if one is not kept:
            one.go()
    assert marks.runs < 10
    found = marks.reached(1)
    assert found is not None
    marks.compact()
    assert list(marks.taken(found)) == [2_500, kept, 2_499]
    marks.forget()
    assert marks.runs == 0


def test_items_confirmed_in_another_order_do_not_pile_up() -> None:
    marks = Checkpoints()
    marks.add(Segment("q.1", 0), {}, 0)
    last = entry(b"x")
    for _ in range(10_000):
        one = entry(b"x")
        marks.note(one, 1)
        last.go()  # always one is open
        last = one
    assert marks.runs <= 1_100


def test_what_began_to_wait_later_is_no_part_of_a_checkpoint() -> None:
    marks = Checkpoints()
    marks.add(Segment("q.1", 0), {}, 0)
    marks.add(Segment("q.2", 1), {}, 0)
    early, late = entry(b"early", era=0), entry(b"late", era=1)
    for one in (early, late):
        marks.note(one, 2)
    first = marks.reached(1)
    assert first is not None
    assert list(marks.taken(first)) == [early]
    marks.forget()
    second = marks.reached(2)
    assert second is not None
    assert list(marks.taken(second)) == [early, late]


@pytest.mark.req("KJ-19")
@pytest.mark.req("KJ-13")
@pytest.mark.parametrize("dialect", Dialect)
def test_a_pack_has_open_items_then_taken_ones_then_those_that_wait(dialect: Dialect) -> None:
    opened = {3: entry(b"three"), 5: entry(b"five")}
    taken: list[Entry | int] = [2, entry(b"taken"), 1]
    waiting = [entry(b"waits")]
    made = list(checkpoints.made(opened, taken, waiting, last_xid=9, dialect=dialect))
    state = Replayed()
    for op in made:
        state.apply(op)
    assert [item.data for item in state.queue] == [b"", b"", b"taken", b"", b"waits"]
    assert {xid: item.data for xid, item in state.open.items()} == {3: b"three", 5: b"five"}
    size = sum(len(codec.encode(op, dialect)) for op in made)
    assert size - checkpoints.size_of(opened, taken, waiting) == (
        5 if dialect is Dialect.DOC else 0
    )
