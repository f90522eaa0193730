"""I14 on histories that keep it, and on histories that do not."""

from __future__ import annotations

import pytest

from tests.invariants.histories import History, Outcome
from tests.invariants.leasing import leases
from tests.invariants.telling import LEASE_US, SECOND, Tale, at_once
from tests.invariants.terms import Terms

LEASE_SECONDS = LEASE_US / SECOND


def found(history: History, *, merges: bool = True) -> str:
    return "\n".join(map(str, leases(history, Terms(merges=merges))))


@pytest.fixture
def tale() -> Tale:
    return Tale()


# -- one worker at a time -------------------------------------------------------------------------


def test_a_job_that_is_taken_and_done_is_fine(tale: Tale) -> None:
    tale.done(tale.take(tale.push("a")))
    assert not found(tale.history)


def test_a_job_that_two_workers_have_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push)
    tale.take(push, timeouts=1)
    assert "I14: row 1 has the xids 2 and 3 at a time" in found(tale.history)


def test_a_job_may_be_taken_again_when_its_lease_is_over(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push)
    tale.wait(LEASE_SECONDS)
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_a_touch_makes_a_lease_longer(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.wait(LEASE_SECONDS - 1)
    tale.touch(take)
    tale.wait(10)
    tale.take(push, timeouts=1)
    assert "at a time" in found(tale.history)


def test_a_touch_that_came_too_late_makes_nothing_longer(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.wait(LEASE_SECONDS)
    tale.touch(take, outcome=Outcome.REFUSED)
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_a_lease_that_was_noted_as_over_needs_no_clock(tale: Tale) -> None:
    push = tale.push("a")
    tale.time_out(tale.take(push, lease_us=0))
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_a_restart_ends_no_lease(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push)
    tale.restart()
    tale.take(push, timeouts=1)
    assert "at a time" in found(tale.history)


# -- done once ------------------------------------------------------------------------------------


def test_a_job_that_is_done_twice_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    first = tale.take(push)
    tale.wait(LEASE_SECONDS)
    second = tale.take(push, timeouts=1)
    tale.done(second)
    assert not found(tale.history)
    tale.done(first)
    assert "row 1 was done 2 times" in found(tale.history)


def test_a_stale_xid_that_is_accepted_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    first = tale.take(push)
    tale.wait(LEASE_SECONDS)
    tale.take(push, timeouts=1)
    tale.stale(first)
    assert not found(tale.history)
    tale.touch(first)
    assert f"the stale xid {first.xid} was accepted" in found(tale.history)


def test_an_xid_that_is_accepted_after_it_failed_is_reported(tale: Tale) -> None:
    take = tale.take(tale.push("a"))
    tale.fail(take)
    tale.done(take)
    assert f"xid {take.xid} was accepted after its end" in found(tale.history)


def test_an_xid_that_is_accepted_after_its_timeout_is_reported(tale: Tale) -> None:
    take = tale.take(tale.push("a"))
    tale.time_out(take)
    tale.done(take)
    assert "accepted after its end" in found(tale.history)


def test_a_late_done_and_a_timeout_that_overlap_may_come_either_way(tale: Tale) -> None:
    take = tale.take(tale.push("a"))
    over = tale.time_out(take)
    done = tale.done(take)
    assert not found([*tale.history[:2], at_once(over, done), done])


def test_an_xid_out_of_nowhere_that_is_accepted_is_reported(tale: Tale) -> None:
    take = tale.take(tale.push("a"))
    tale.history.remove(take)
    tale.done(take)
    assert "was never given out" in found(tale.history)


def test_a_job_that_comes_after_it_was_done_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.done(tale.take(push))
    tale.restart()
    tale.wait(LEASE_SECONDS)
    tale.take(push, timeouts=1)
    assert "row 1 was handed out after it was done" in found(tale.history)


def test_a_job_that_is_seen_after_it_was_done_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.done(tale.take(push))
    tale.look(push)
    assert "row 1 is there after it was done" in found(tale.history)


def test_a_done_without_an_answer_proves_nothing(tale: Tale) -> None:
    push = tale.push("a")
    tale.done(tale.take(push), outcome=Outcome.UNKNOWN)
    tale.wait(LEASE_SECONDS)
    tale.done(tale.take(push, timeouts=1))
    assert not found(tale.history)


def test_a_job_that_is_done_as_it_is_taken_is_done(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push, xid=0, done=True)
    assert not found(tale.history)
    tale.take(push)
    assert "row 1 was handed out after it was done" in found(tale.history)


def test_the_same_key_may_be_done_once_for_each_row(tale: Tale) -> None:
    tale.done(tale.take(tale.push("a")))
    tale.done(tale.take(tale.push("a")))
    assert not found(tale.history)


# -- timeouts are counted -------------------------------------------------------------------------


def test_every_timeout_is_counted(tale: Tale) -> None:
    push = tale.push("a")
    for timeouts in range(4):
        tale.time_out(tale.take(push, timeouts=timeouts))
    assert not found(tale.history)


@pytest.mark.parametrize(("second", "text"), [(0, "0 times"), (2, "2 times")])
def test_a_timeout_that_is_missed_or_counted_twice_is_reported(
    tale: Tale, second: int, text: str
) -> None:
    push = tale.push("a")
    tale.time_out(tale.take(push))
    tale.take(push, timeouts=second)
    assert f"row 1 timed out {text}, expected 1" in found(tale.history)


def test_a_first_time_with_a_count_is_reported(tale: Tale) -> None:
    tale.take(tale.push("a"), timeouts=1)
    assert "expected 0" in found(tale.history)


def test_a_failure_counts_unless_it_says_otherwise(tale: Tale) -> None:
    push = tale.push("a")
    tale.fail(tale.take(push))
    tale.fail(tale.take(push, timeouts=1), counts=False)
    tale.take(push, timeouts=1)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(push, timeouts=2)
    assert "timed out 2 times, expected 1" in found(tale.history)


def test_a_failure_without_an_answer_may_have_been_a_timeout(tale: Tale) -> None:
    push = tale.push("a")
    tale.fail(tale.take(push), counts=False, outcome=Outcome.UNKNOWN)
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_a_push_on_the_waiting_job_sets_the_count_to_zero(tale: Tale) -> None:
    push = tale.push("a")
    tale.time_out(tale.take(push))
    again = tale.push("a")
    tale.take(again, row=push.seq)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(again, row=push.seq, timeouts=1)
    assert "timed out 1 times, expected 0" in found(tale.history)


def test_a_push_while_it_is_out_belongs_to_another_row(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.push("a")
    tale.time_out(take)
    tale.take(push, timeouts=1)
    assert not found(tale.history)
    assert not found(tale.history, merges=False)


def test_a_job_that_came_back_from_the_dead_begins_at_zero(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.fail(take, buries=True)
    tale.die(take)
    tale.revive(take)
    tale.take(push)
    assert not found(tale.history)
