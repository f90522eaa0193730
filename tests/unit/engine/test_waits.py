"""Who is woken when there may be jobs: the rules, without anybody who really waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings
from fjord.commands import DUE, Done, Messages, Next, Read
from fjord.engine import Engine
from fjord.engine.news import Arrival
from fjord.engine.waits import Lines, Listeners, Ranked, Wait, Waits, found_nothing
from tests.unit.engine.job_records import taken

NOW_US = 1_000_000
NOTHING = Messages(
    first_seqs=[], walls_us=[], ops=Strings.of([]), after=5, until=5, ended=True, rows=0
)
LOOK_US = int(limits.WALL_LOOK_SECONDS_MAX * 1_000_000)


@dataclass(frozen=True, eq=False)
class Waiter:
    """Somebody who waits."""

    name: str
    command: Next

    def __repr__(self) -> str:
        return self.name


def waiter(name: str, *, count: int = 1, domain: bytes = b"", table: str = "t") -> Waiter:
    return Waiter(name, Next(table=table, count=count, domain=domain))


def parked(*waiters: Waiter, next_at_us: int = 0) -> Lines[Waiter]:
    waits: Lines[Waiter] = Lines()
    for one in waiters:
        waits.park(one, one.command, next_at_us)
    return waits


def arrive(
    waits: Lines[Waiter], rows: int = 1, first_us: int = NOW_US, *, table: str = "t"
) -> list[str]:
    return names(waits.arrive({table: Arrival(rows, first_us)}, NOW_US))


def names(woken: list[Waiter]) -> list[str]:
    return [one.name for one in woken]


# -- arrivals -------------------------------------------------------------------------------------


def test_as_many_are_woken_as_jobs_arrived_the_first_ones_first() -> None:
    waits = parked(*(waiter(name) for name in "abcde"))
    assert arrive(waits, 2) == ["a", "b"]
    assert arrive(waits, 1) == ["c"]
    assert arrive(waits, 9) == ["d", "e"]
    assert arrive(waits, 1) == []


def test_those_who_ask_for_many_jobs_are_fewer() -> None:
    waits = parked(waiter("a", count=10), waiter("b", count=10), waiter("c", count=10))
    assert arrive(waits, 11) == ["a", "b"]
    everything = parked(waiter("a", count=0), waiter("b"))
    assert arrive(everything, limits.NEXT_COUNT_MAX) == ["a"]


# -- what is passed on ----------------------------------------------------------------------------


def test_the_last_that_found_jobs_lets_the_next_one_look() -> None:
    a, b, c, d = (waiter(name) for name in "abcd")
    waits = parked(a, b, c, d)
    assert arrive(waits, 2) == ["a", "b"]
    assert waits.leave(a) == []  # another one is still looking
    assert waits.leave(b) == [c]
    waits.park(c, c.command, 0)
    assert arrive(waits) == ["c"]


def test_the_more_is_found_the_more_are_woken() -> None:
    """A thousand jobs of one date are not handed out one sync after the other."""
    waits = parked(*(waiter(str(number)) for number in range(20)), next_at_us=NOW_US)
    sizes = []
    woken = waits.reach(NOW_US)
    while woken:
        sizes.append(len(woken))
        found = woken
        woken = [one for each in found for one in waits.leave(each)]
    assert sizes == [1, 1, 2, 4, 8, 4]


# -- domains --------------------------------------------------------------------------------------


def test_one_of_each_domain_looks_since_nobody_knows_whose_jobs_came() -> None:
    waits = parked(
        waiter("a1", domain=b"a"), waiter("a2", domain=b"a"), waiter("b1", domain=b"b"), waiter("c")
    )
    assert sorted(arrive(waits, 5)) == ["a1", "b1", "c"]


def test_a_domain_that_has_nothing_does_not_keep_another_from_its_jobs() -> None:
    a, b, c = waiter("a", domain=b"a"), waiter("b", domain=b"b"), waiter("c", domain=b"b")
    waits = parked(a, b, c)
    assert arrive(waits, 2) == ["a", "b"]
    waits.park(a, a.command, 0)
    assert waits.leave(b) == [c]


# -- dates ----------------------------------------------------------------------------------------


@pytest.mark.req("FJ-12")
def test_a_date_is_waited_for_exactly() -> None:
    waits = parked(waiter("a"), waiter("b"), next_at_us=NOW_US + 7)
    assert waits.look_us(NOW_US) == NOW_US + 7
    assert names(waits.reach(NOW_US + 6)) == []
    assert names(waits.reach(NOW_US + 7)) == ["a"]
    assert waits.look_us(NOW_US) is None


def test_jobs_with_a_date_ahead_wake_nobody_before_it() -> None:
    waits = parked(waiter("a"), next_at_us=NOW_US + 9)
    assert arrive(waits, 1, NOW_US + 20) == []
    assert waits.look_us(NOW_US) == NOW_US + 9
    assert arrive(waits, 1, NOW_US + 4) == []
    assert waits.look_us(NOW_US) == NOW_US + 4
    assert names(waits.reach(NOW_US + 4)) == ["a"]


def test_a_date_far_ahead_is_looked_at_now_and_then_since_the_clock_may_be_set() -> None:
    waits = parked(waiter("a"), next_at_us=NOW_US + 10 * LOOK_US)
    assert waits.look_us(NOW_US) == NOW_US + LOOK_US
    assert waits.reach(NOW_US + LOOK_US) == []
    assert waits.look_us(NOW_US + LOOK_US) == NOW_US + 2 * LOOK_US


@given(st.data())
def test_nobody_waits_for_a_job_that_is_there(data: st.DataObject) -> None:
    """Jobs come and are taken in any order: when all have looked, nobody parked misses one."""
    waits: Lines[Waiter] = Lines()
    looking = [waiter(str(number), count=data.draw(st.integers(1, 3))) for number in range(6)]
    ready = 0
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["push", "look", "look", "gone"]))
        if step == "push":
            rows = data.draw(st.integers(1, 4))
            ready += rows
            looking += waits.arrive({"t": Arrival(rows, NOW_US)}, NOW_US)
        elif looking:
            # Those who look do so in the order in which they were woken, as the committer has it.
            one = looking.pop(0)
            if step == "look" and not ready:
                waits.park(one, one.command, 0)
            else:
                ready -= min(ready, one.command.count) if step == "look" else 0
                looking += waits.leave(one)
    for one in looking:
        if ready:
            ready -= min(ready, one.command.count)
            looking += waits.leave(one)
        else:
            waits.park(one, one.command, 0)
    assert ready == 0 or len(waits.tickets) == 0


# -- the parts ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 99)))))
def test_what_is_ranked_is_what_a_dict_says(steps: list[tuple[int, int | None]]) -> None:
    ranked: Ranked[int] = Ranked()
    expected: dict[int, int] = {}
    for thing, rank in steps:
        if rank is None:
            ranked.discard(thing)
            expected.pop(thing, None)
        else:
            ranked.put(thing, rank)
            expected[thing] = rank
        assert ranked.first() == min(expected.values(), default=None)
        assert len(ranked) == len(expected)
        assert (thing in ranked) == (thing in expected)
        assert ranked.rank(thing) == expected.get(thing)
    assert ranked.pop(-1) is None
    found = []
    while (popped := ranked.pop()) is not None:
        found.append(expected.pop(popped))
    assert found == sorted(found)
    assert expected == {}


def test_only_an_empty_answer_to_next_is_nothing() -> None:
    command = Next(table="t")
    assert found_nothing(command, taken(next_at_us=NOW_US))
    assert not found_nothing(command, taken(7, first_xid=3))
    assert not found_nothing(command, Done(master=bytes(16), seq=1))


class Table:
    """The dates of the jobs of a table."""

    def __init__(self, *dates_us: int) -> None:
        self.dates_us = list(dates_us)

    def first_date_us(self, table: str, after_us: int) -> int | None:
        return min((date for date in self.dates_us if date > after_us), default=None)


def listeners_of(table: Table) -> Listeners[str]:
    return Listeners(cast(Engine, table))


def test_dates_are_told_one_after_the_other() -> None:
    dates = listeners_of(Table(10, 20, 21))
    dates.look("t", 5)
    assert dates.look_us(5) == 10
    assert dates.reach(9) == []
    (told,) = dates.reach(10)
    assert (told.table, told.key, told.value, told.timestamp_us) == ("t", b"", DUE, 10)
    assert len(dates.reach(30)) == 1  # two dates at a time are one word
    assert dates.look_us(30) is None


def test_a_date_that_came_is_told_although_others_arrived_before_it_was() -> None:
    table = Table(10)
    dates = listeners_of(table)
    dates.look("t", 5)
    table.dates_us.append(15)
    dates.look("t", 12)  # the timer is late
    assert [told.timestamp_us for told in dates.reach(12)] == [12]
    assert dates.look_us(12) == 15


# -- messages -------------------------------------------------------------------------------------


def reader(table: str, waits: Waits[Wait]) -> Wait:
    """Returns a READ that found nothing and waits."""
    wait = Wait(command=Read(table=table, after=5), deadline_us=NOW_US)
    assert waits.settle(wait, NOTHING, 0)
    return wait


def test_all_who_wait_for_messages_of_a_table_are_woken_in_order() -> None:
    waits: Waits[Wait] = Waits()
    a, b, c, d = (reader(table, waits) for table in "tutv")
    waits.append(["t", "unknown"])
    assert (waits.take_woken(), waits.parked) == ([a, c], 2)
    waits.append(["t"])
    assert waits.take_woken() == []
    waits.wake_all()
    assert (waits.take_woken(), waits.parked) == ([b, d], 0)


def test_one_that_is_gone_is_not_woken() -> None:
    a, b = waiter("a"), waiter("b")
    waits = parked(a, b)
    assert waits.leave(a) == []
    assert arrive(waits, 2) == ["b"]
    assert waits.leave(a) == []  # once more does no harm
    assert len(waits.tickets) == 1


def test_what_is_ranked_anew_again_and_again_takes_no_more_memory() -> None:
    ranked: Ranked[str] = Ranked()
    for rank in range(10_000):
        ranked.put("a", rank)
        ranked.put("b", -rank)
        ranked.discard("b")
    assert len(ranked._heap) < 100
    assert ranked.first() == 9_999
