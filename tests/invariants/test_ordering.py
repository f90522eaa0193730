"""I4, I5, I6 and I16 on histories that keep them, and on histories that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fjord.jobs import State
from tests.invariants.histories import Outcome, Pushed, Row, Violation
from tests.invariants.ordering import dates, key_order, producer_order, sequences
from tests.invariants.telling import SECOND, Tale, at_once
from tests.invariants.terms import Terms

TERMS = Terms()
FIFO = Terms(merges=False)
FAIR = Terms(by_domain=True)


def texts(found: list[Violation]) -> str:
    return "\n".join(map(str, found))


@pytest.fixture
def tale() -> Tale:
    return Tale()


# -- I4 -------------------------------------------------------------------------------------------


def test_seqs_that_ascend_are_fine(tale: Tale) -> None:
    tale.done(tale.take(tale.push("a"), tale.push("b")))
    tale.restart()
    tale.take(tale.push("c"))
    assert sequences(tale.history, TERMS) == []


def test_a_push_that_changed_nothing_may_repeat_a_token(tale: Tale) -> None:
    first = tale.push("a")
    tale.push("a", seq=first.seq, stamp_us=first.stamp_us - 1)
    assert sequences(tale.history, TERMS) == []


def test_pushes_at_the_same_time_may_be_numbered_either_way(tale: Tale) -> None:
    first, second = tale.push("a", seq=2), tale.push("b", seq=1)
    assert "seq 1 came after seq 2" in texts(sequences([first, second], TERMS))
    assert sequences([at_once(first, second), second], TERMS) == []


def test_a_number_that_comes_again_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push, xid=push.seq)
    assert "I4: seq 1 came after seq 1" in texts(sequences(tale.history, TERMS))


def test_another_master_has_numbers_of_its_own(tale: Tale) -> None:
    tale.push("a", seq=9)
    tale.push("b", seq=3, master=b"the next master.")
    assert sequences(tale.history, TERMS) == []


def test_an_xid_that_is_given_out_twice_is_reported(tale: Tale) -> None:
    one, other = tale.push("a"), tale.push("b")
    first = tale.take(one, xid=7)
    second = at_once(tale.take(other, xid=7), first)
    tale.history[-1] = second
    assert "xid 7 was given out 2 times" in texts(sequences(tale.history, TERMS))


def test_a_key_that_waits_twice_is_reported_where_keys_merge(tale: Tale) -> None:
    tale.look(tale.push("a"), tale.push("a"))
    assert "b'a' waits 2 times" in texts(sequences(tale.history, TERMS))
    assert sequences(tale.history, FIFO) == []


def test_a_key_may_wait_and_be_taken_at_a_time(tale: Tale) -> None:
    look = tale.look(tale.push("a"), tale.push("a"))
    first, *rest = look.rows
    tale.history[-1] = replace(look, rows=(first._replace(state=State.TAKEN), *rest))
    assert sequences(tale.history, TERMS) == []


def test_a_row_in_two_places_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    look = tale.look(push)
    tale.history[-1] = replace(
        look, rows=(*look.rows, Row(State.DEAD, push.seq, push.key, push.value))
    )
    assert "row 1 is there 2 times" in texts(sequences(tale.history, TERMS))


# -- I5 -------------------------------------------------------------------------------------------


def test_versions_of_a_key_come_in_order(tale: Tale) -> None:
    tale.take(tale.push("a"))
    again = tale.push("a")
    tale.time_out(tale.take(again))
    tale.take(again)
    assert key_order(tale.history, TERMS) == []


def test_an_older_row_after_a_newer_one_is_reported(tale: Tale) -> None:
    old, new = tale.push("a", "old"), tale.push("a", "new")
    tale.take(new)
    tale.take(old)
    assert "b'a': b'old' came after b'new'" in texts(key_order(tale.history, TERMS))
    assert key_order(tale.history, FIFO) == []


def test_an_old_row_that_came_back_although_a_newer_one_waited_is_reported(tale: Tale) -> None:
    old = tale.push("a", "old")
    lost = tale.take(old)
    new = tale.push("a", "new")
    tale.time_out(lost)
    tale.take(new)
    tale.take(old)
    assert "b'old' came after b'new'" in texts(key_order(tale.history, TERMS))


def test_an_old_row_may_come_back_when_the_newer_one_was_out_too(tale: Tale) -> None:
    old = tale.push("a")
    lost = tale.take(old)
    tale.take(tale.push("a"))
    tale.time_out(lost)
    tale.take(old)
    assert key_order(tale.history, TERMS) == []


def test_an_old_row_may_come_back_when_somebody_brings_it_back(tale: Tale) -> None:
    old = tale.push("a")
    lost = tale.take(old)
    tale.fail(lost, buries=True)
    tale.take(tale.push("a"))
    tale.revive(lost)
    tale.take(old)
    assert key_order(tale.history, TERMS) == []
    tale.revive(lost)
    assert key_order(tale.history, TERMS) == []


def test_a_row_that_goes_back_to_an_older_value_is_reported(tale: Tale) -> None:
    old, new = tale.push("a", "old"), tale.push("a", "new")
    tale.time_out(tale.take(new))
    tale.take(old, row=new.seq)
    assert "b'old' came after b'new'" in texts(key_order(tale.history, TERMS))


def test_an_old_row_with_a_newer_value_is_new(tale: Tale) -> None:
    old, new = tale.push("a", "old"), tale.push("a", "new")
    tale.take(new)
    tale.take(tale.push("a", "newest"), row=old.seq)
    assert key_order(tale.history, TERMS) == []


def test_a_late_push_is_a_later_version(tale: Tale) -> None:
    """What counts is the order in which pushes were accepted, and not their clients' dates."""
    tale.take(tale.push("a"))
    tale.take(tale.push("a", stamp_us=1))
    assert key_order(tale.history, TERMS) == []


def test_versions_that_were_pushed_at_once_may_come_either_way(tale: Tale) -> None:
    old, new = tale.push("a"), tale.push("a")
    one, other = tale.take(new), tale.take(old)
    assert key_order([at_once(old, new), new, one, other], TERMS) == []


# -- I6 -------------------------------------------------------------------------------------------


def test_jobs_of_one_producer_come_as_they_were_pushed(tale: Tale) -> None:
    pushes = [tale.push(key, producer="p") for key in "abcd"]
    tale.take(*pushes[:3])
    tale.take(pushes[3])
    assert producer_order(tale.history, TERMS) == []


def test_a_later_job_that_comes_first_is_reported(tale: Tale) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", producer="p")
    tale.take(second)
    tale.take(first)
    assert "b'b' came before b'a'" in texts(producer_order(tale.history, TERMS))


def test_the_order_inside_one_answer_counts(tale: Tale) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", producer="p")
    tale.take(second, first)
    assert "b'b' came before b'a'" in texts(producer_order(tale.history, TERMS))


def test_rows_that_are_not_in_the_order_of_the_pushes_are_reported(tale: Tale) -> None:
    first, second = tale.push("a", producer="p", seq=5), tale.push("b", producer="p", seq=4)
    tale.take(second, first)
    assert "b'b' got row 4 after b'a' had got 5" in texts(producer_order(tale.history, TERMS))


@pytest.mark.parametrize(
    "other",
    [
        {"producer": "q"},
        {"producer": "p", "priority": 10},
        {"producer": "p", "process_at_us": 0, "stamp_us": 0},
    ],
    ids=["another producer", "another priority", "an earlier date"],
)
def test_nothing_is_promised_between(tale: Tale, other: dict[str, Any]) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", **other)
    tale.take(second)
    tale.take(first)
    assert producer_order(tale.history, TERMS) == []


def test_a_clock_that_was_set_back_between_two_pushes_excuses_nobody_else(tale: Tale) -> None:
    """The second push has an earlier date: it comes after the first, which was taken before."""
    first = tale.push("a", producer="p")
    tale.take(first)
    earlier = first.process_at_us - SECOND
    second = tale.push("b", producer="p", process_at_us=earlier, stamp_us=earlier)
    third = tale.push("c", producer="p", process_at_us=earlier, stamp_us=earlier)
    tale.take(second)
    tale.take(third)
    assert producer_order(tale.history, TERMS) == []
    del tale.history[-2:]
    tale.take(third)
    tale.take(second)
    assert "b'c' came before b'b'" in texts(producer_order(tale.history, TERMS))


def test_a_job_that_came_back_is_judged_by_its_first_time(tale: Tale) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", producer="p")
    lost = tale.take(first)
    tale.take(second)
    tale.time_out(lost)
    tale.take(first)
    assert producer_order(tale.history, TERMS) == []


@pytest.mark.parametrize("how", ["pushed again", "rescheduled"])
def test_a_job_that_was_moved_is_not_judged(tale: Tale, how: str) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", producer="p")
    if how == "rescheduled":
        tale.reschedule("a")
    else:
        tale.push("a", producer="p")
    tale.take(second)
    tale.take(first)
    assert producer_order(tale.history, TERMS) == []


def test_with_fairness_there_is_an_order_in_each_domain(tale: Tale) -> None:
    first, second = tale.push("a", producer="p"), tale.push("b", producer="p")
    tale.take(second, domain=b"x")
    tale.take(first, domain=b"y")
    assert producer_order(tale.history, FAIR) == []
    assert producer_order(tale.history, TERMS) != []


# -- I16 ------------------------------------------------------------------------------------------


def push_at(tale: Tale, key: str, seconds: float, priority: int = 100) -> Pushed:
    date_us = tale.wall_us + round(seconds * SECOND)
    return tale.push(key, process_at_us=date_us, priority=priority)


def test_dates_and_priorities_that_are_kept_are_fine(tale: Tale) -> None:
    later, now, first = push_at(tale, "a", 5), tale.push("b"), tale.push("c", priority=1)
    tale.take(first, now)
    tale.wait(6)
    tale.take(later)
    assert dates(tale.history, TERMS) == []


def test_a_job_before_its_date_is_reported(tale: Tale) -> None:
    tale.take(push_at(tale, "a", 5))
    assert "I16: b'a' came 4998000 us before its date" in texts(dates(tale.history, TERMS))


@pytest.mark.parametrize("together", [True, False])
def test_a_less_important_job_that_comes_first_is_reported(tale: Tale, together: bool) -> None:
    one, other = tale.push("a", priority=20), tale.push("b", priority=10)
    if together:
        tale.take(one, other)
        assert "b'a' came before b'b' in one answer" in texts(dates(tale.history, TERMS))
    else:
        tale.take(one)
        tale.take(other)
        assert "b'a' was handed out while b'b' was ready" in texts(dates(tale.history, TERMS))


def test_a_later_date_that_comes_first_is_reported(tale: Tale) -> None:
    one, other = tale.push("a"), tale.push("b")
    tale.wait(1)
    tale.take(other)
    tale.take(one)
    assert "b'b' was handed out while b'a' was ready" in texts(dates(tale.history, TERMS))


def test_a_job_that_was_not_due_is_passed_over(tale: Tale) -> None:
    important, now = push_at(tale, "a", 5, priority=1), tale.push("b")
    tale.take(now)
    tale.wait(6)
    tale.take(important)
    assert dates(tale.history, TERMS) == []


def test_a_job_of_a_later_date_does_not_hide_one_of_the_next_priority(tale: Tale) -> None:
    push_at(tale, "a", 5, priority=1)
    one, other = tale.push("b", priority=2), tale.push("c", priority=3)
    tale.take(other)
    tale.take(one)
    assert "b'c' was handed out while b'b' was ready" in texts(dates(tale.history, TERMS))


def test_what_overlapped_proves_nothing(tale: Tale) -> None:
    one, other = tale.push("a", priority=10), tale.push("b", priority=20)
    late, early = tale.take(other), tale.take(one)
    assert dates([one, other, late, early], TERMS) != []
    assert dates([one, other, at_once(late, early), early], TERMS) == []


def test_a_job_whose_push_was_not_answered_yet_may_be_passed_over(tale: Tale) -> None:
    other = tale.push("b", priority=20)
    one = tale.push("a", priority=10)
    late, early = tale.take(other), tale.take(one)
    assert dates([other, at_once(one, late), late, early], TERMS) == []


def test_a_job_that_was_out_is_not_ready(tale: Tale) -> None:
    important, other = tale.push("a", priority=1), tale.push("b")
    lost = tale.take(important)
    tale.take(other)
    tale.time_out(lost)
    tale.take(important)
    assert dates(tale.history, TERMS) == []


def test_a_job_that_came_back_is_ready_again(tale: Tale) -> None:
    important, other = tale.push("a", priority=1), tale.push("b")
    tale.time_out(tale.take(important))
    tale.take(other)
    tale.take(important)
    assert "b'b' was handed out while b'a' was ready" in texts(dates(tale.history, TERMS))


def test_a_job_whose_failure_came_too_late_was_still_out(tale: Tale) -> None:
    important, other = tale.push("a", priority=1), tale.push("b")
    tale.fail(tale.take(important), outcome=Outcome.REFUSED)
    tale.take(other)
    tale.take(important)
    assert dates(tale.history, TERMS) == []


def test_a_job_that_became_more_important_meanwhile_was_not_before(tale: Tale) -> None:
    one, other = tale.push("a", priority=50), tale.push("b", priority=20)
    tale.take(other)
    again = tale.push("a", priority=10)
    tale.take(again, row=one.seq)
    assert dates(tale.history, TERMS) == []


def test_slow_jobs_with_others_are_reported(tale: Tale) -> None:
    tale.take(tale.push("a"), tale.push("b", priority=200))
    assert "slow jobs came with others" in texts(dates(tale.history, TERMS))


def test_slow_jobs_alone_are_fine(tale: Tale) -> None:
    tale.take(tale.push("a", priority=200), tale.push("b", priority=255))
    assert dates(tale.history, TERMS) == []


def test_each_domain_has_its_own_order(tale: Tale) -> None:
    one, other = tale.push("a", priority=20), tale.push("b", priority=10)
    tale.take(one, domain=b"x")
    tale.take(other, domain=b"y")
    assert dates(tale.history, FAIR) == []
    assert dates(tale.history, TERMS) != []


def test_without_merging_jobs_of_one_key_are_told_apart(tale: Tale) -> None:
    one, other = tale.push("", "one"), tale.push("", "other")
    tale.push("", "more")
    tale.take(other)
    tale.take(one)
    assert "was handed out while" in texts(dates(tale.history, FIFO))


def test_a_restart_excuses_no_disorder(tale: Tale) -> None:
    one, other = tale.push("a", priority=10), tale.push("b", priority=20)
    tale.take(other)
    tale.restart()
    tale.take(one)
    assert "b'b' was handed out while b'a' was ready" in texts(dates(tale.history, TERMS))
