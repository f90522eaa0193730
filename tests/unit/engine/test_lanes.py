from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fjord.tables.jobs.lanes import Lanes

TABLE = 7


def lanes_of(**dates: int) -> Lanes:
    """Lanes whose names are numbers: a=3 is lane 97, date 3."""
    lanes = Lanes()
    lanes.learn(TABLE, [((ord(name), False), date) for name, date in dates.items()])
    lanes.changes.clear()
    return lanes


def turns(lanes: Lanes, now_us: int, count: int, *, slow: bool = False) -> str:
    taken = [lanes.take(TABLE, now_us, slow=slow) for _ in range(count)]
    return "".join(chr(lane[0]) if lane else "-" for lane in taken)


def test_lanes_that_are_due_take_turns() -> None:
    lanes = lanes_of(a=1, b=2, c=30)
    assert turns(lanes, 10, 5) == "ababa"
    assert turns(lanes, 30, 6) == "bacbac"


def test_fast_and_slow_jobs_have_turns_of_their_own() -> None:
    lanes = lanes_of(a=1)
    lanes.lower(TABLE, (ord("b"), True), 2)
    assert turns(lanes, 10, 2) == "aa"
    assert turns(lanes, 10, 2, slow=True) == "bb"
    assert lanes.lanes(TABLE) == 1


def test_a_table_that_nobody_asked_for_is_not_known() -> None:
    lanes = Lanes()
    lanes.lower(TABLE, (1, False), 5)
    assert not lanes.is_known(TABLE)
    assert lanes.lanes(TABLE) == 0
    lanes.learn(TABLE, [])
    assert lanes.is_known(TABLE)
    assert lanes.first(TABLE, 0) is None


def test_a_clock_that_is_set_back_leaves_no_lane_ready() -> None:
    lanes = lanes_of(a=5, b=1)
    assert sorted(turns(lanes, 10, 2)) == ["a", "b"]
    assert lanes.count(TABLE, 2, slow=False) == 1
    assert turns(lanes, 2, 2) == "bb"
    assert lanes.first(TABLE, 0) == ((ord("b"), False), 1)
    assert sorted(turns(lanes, 5, 2)) == ["a", "b"]


def test_a_group_that_is_taken_back_makes_no_lane_late() -> None:
    lanes = lanes_of(a=1, b=2)
    assert turns(lanes, 10, 1) == "a"
    lanes.correct(TABLE, (ord("a"), False), None)
    lanes.correct(TABLE, (ord("b"), False), 99)
    lanes.undo()
    assert sorted(turns(lanes, 10, 2)) == ["a", "b"]
    lanes.correct(TABLE, (ord("a"), False), None)
    lanes.changes.clear()
    lanes.undo()
    assert turns(lanes, 10, 2) == "bb"


def test_what_was_learned_in_a_group_that_is_taken_back_is_forgotten() -> None:
    lanes = Lanes()
    lanes.learn(TABLE, [((1, False), 5)])
    lanes.undo()
    assert not lanes.is_known(TABLE)


def test_dates_that_hold_no_more_do_not_pile_up() -> None:
    lanes = lanes_of(a=10**6)
    for date in range(10**6, 10**6 - 10_000, -1):
        lanes.lower(TABLE, (ord("a"), False), date)
    (side, _) = lanes._tables[TABLE]
    assert len(side._later) < 2000
    assert lanes.first(TABLE, 0) == ((ord("a"), False), 10**6 - 9_999)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=30), st.integers(0, 30))
def test_every_lane_that_is_due_has_one_turn_in_a_round(
    jobs: list[tuple[int, int]], now_us: int
) -> None:
    lanes = Lanes()
    lanes.learn(TABLE, [])
    for lane, date in jobs:
        lanes.lower(TABLE, (lane, False), date)
    due = {lane for lane, date in jobs if date <= now_us}
    count = lanes.count(TABLE, now_us, slow=False)
    taken = [lanes.take(TABLE, now_us, slow=False) for _ in range(count)]
    assert sorted(lane[0] for lane in taken if lane) == sorted(due)


def test_none_is_due_before_its_date() -> None:
    lanes = lanes_of(a=10)
    assert turns(lanes, 9, 2) == "--"
    assert lanes.count(TABLE, 9, slow=False) == 0
    assert lanes.count(TABLE, 10, slow=False) == 1
