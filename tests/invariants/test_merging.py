"""I15 on histories that keep it, and on histories that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.invariants.histories import DISCARDED, SUPERSEDED, History, Outcome
from tests.invariants.merging import merging
from tests.invariants.telling import SECOND, Tale
from tests.invariants.terms import Terms

HOUR = 3600 * SECOND


def found(history: History, *, merges: bool = True) -> str:
    return "\n".join(map(str, merging(history, Terms(merges=merges, debounce_us=HOUR))))


@pytest.fixture
def tale() -> Tale:
    return Tale()


def test_a_job_that_was_pushed_once_comes_as_it_was_pushed(tale: Tale) -> None:
    tale.wait(1)
    push = tale.push("a", process_at_us=tale.wall_us + SECOND)
    tale.wait(2)
    tale.take(push)
    assert not found(tale.history)


def test_two_pushes_come_to_what_the_rule_says(tale: Tale) -> None:
    first = tale.push("a", priority=20, expires_at_us=tale.wall_us + 9 * SECOND)
    tale.wait(1)
    second = tale.push("a", priority=30, expires_at_us=tale.wall_us + SECOND)
    tale.take(second, inserted_us=first.stamp_us, priority=20, expires_at_us=first.expires_at_us)
    assert not found(tale.history)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"inserted_us": 5}, "inserted_us is 5 and not"),
        ({"expires_at_us": 7}, "expires_at_us is 7 and not 0"),
        ({"priority": 30}, "priority is 30 and not 20"),
        ({"process_at_us": 9}, "process_at_us is 9 and not"),
        ({"value": b"old"}, "value is b'old' and not b'new'"),
        ({"timeouts": 2}, "timeouts is 2 and not 0"),
    ],
)
def test_each_field_that_breaks_the_rule_is_reported(
    tale: Tale, wrong: dict[str, Any], text: str
) -> None:
    first = tale.push("a", "old", priority=20, expires_at_us=tale.wall_us + 9 * SECOND)
    second = tale.push("a", "new", priority=30)
    right = {"inserted_us": first.stamp_us, "priority": 20}
    tale.take(second, **right)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(second, **{**right, **wrong})
    assert text in found(tale.history)


def test_a_client_whose_clock_is_ahead_delays_nothing(tale: Tale) -> None:
    push = tale.push("a", stamp_us=tale.wall_us + 30 * SECOND)
    tale.take(push, inserted_us=push.wall_us, process_at_us=push.wall_us)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(push)
    assert "inserted_us is" in found(tale.history)


def test_a_date_is_capped(tale: Tale) -> None:
    first = tale.push("a")
    second = tale.push("a", process_at_us=first.stamp_us + 2 * HOUR)
    tale.wait(2 * HOUR)
    tale.take(second, inserted_us=first.stamp_us, process_at_us=first.stamp_us + HOUR)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(second, inserted_us=first.stamp_us)
    assert "process_at_us is" in found(tale.history)


def test_an_older_client_date_changes_nothing(tale: Tale) -> None:
    first = tale.push("a", "new")
    tale.push("a", "old", stamp_us=first.stamp_us - 1, priority=1)
    tale.take(first)
    assert not found(tale.history)


def test_an_older_client_date_that_won_is_reported(tale: Tale) -> None:
    first = tale.push("a", "new")
    late = tale.push("a", "old", stamp_us=first.stamp_us - 1)
    tale.take(late)
    assert "value is b'old' and not b'new'" in found(tale.history)


def test_a_job_that_has_expired_is_not_merged_with(tale: Tale) -> None:
    tale.push("a", priority=1, expires_at_us=tale.wall_us + SECOND)
    tale.wait(2)
    tale.take(tale.push("a"))
    assert not found(tale.history)


def test_a_job_that_is_out_is_not_merged_with(tale: Tale) -> None:
    tale.take(tale.push("a", priority=1))
    tale.take(tale.push("a", priority=50))
    assert not found(tale.history)


def test_one_that_times_out_is_dropped_for_the_one_that_waits(tale: Tale) -> None:
    take = tale.take(tale.push("a", priority=1))
    newer = tale.push("a", priority=50)
    tale.time_out(take)
    tale.take(newer)
    assert not found(tale.history)
    tale.history.pop()
    tale.take(replace(newer, priority=1))
    assert "priority is 1 and not 50" in found(tale.history)


@pytest.mark.parametrize("is_done", [True, False])
def test_one_that_times_out_is_dropped_for_one_that_was_taken(tale: Tale, is_done: bool) -> None:
    old = tale.push("a")
    take = tale.take(old)
    newer = tale.take(tale.push("a", stamp_us=old.stamp_us + 1))
    if is_done:
        tale.done(newer)
    tale.time_out(take)
    assert not found(tale.history)
    tale.take(old, row=take.row, timeouts=1)
    assert "was handed out and did not wait" in found(tale.history)


def test_one_that_times_out_waits_again_where_only_a_late_push_waits(tale: Tale) -> None:
    newer = tale.push("a", priority=1)
    take = tale.take(newer)
    tale.push("a", stamp_us=newer.stamp_us - 1)
    tale.time_out(take)
    tale.take(newer, timeouts=1)
    assert not found(tale.history)


def test_one_that_times_out_waits_again_where_the_newer_one_has_expired(tale: Tale) -> None:
    old = tale.push("a")
    take = tale.take(old)
    tale.push("a", expires_at_us=tale.wall_us + SECOND)
    tale.wait(2)
    tale.time_out(take)
    tale.take(old, timeouts=1)
    assert not found(tale.history)


def test_what_nobody_pushed_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push)
    tale.take(push)
    assert "b'a' was handed out and did not wait" in found(tale.history)


@pytest.mark.parametrize("how", [SUPERSEDED, DISCARDED])
def test_one_that_goes_beside_a_waiting_one_leaves_that_as_it_is(tale: Tale, how: str) -> None:
    tale.take(tale.push("a", priority=1))
    newer = tale.push("a")
    tale.remove("a", how)
    tale.take(newer)
    assert not found(tale.history)


def test_what_was_cancelled_is_not_merged_with(tale: Tale) -> None:
    tale.push("a", priority=1)
    tale.remove("a")
    tale.take(tale.push("a"))
    assert not found(tale.history)


@pytest.mark.parametrize(
    "how", ["failed", "timed out", "revived", "rescheduled", "removed", "unanswered"]
)
def test_what_is_moved_by_other_rules_is_not_judged(tale: Tale, how: str) -> None:
    push = tale.push("a")
    if how == "failed":
        tale.fail(tale.take(push))
    elif how == "timed out":
        tale.time_out(tale.take(push))
    elif how == "revived":
        tale.revive(tale.take(push))
    elif how == "rescheduled":
        tale.reschedule("a")
    elif how == "removed":
        tale.remove("a", outcome=Outcome.UNKNOWN)
    else:
        tale.push("a", outcome=Outcome.UNKNOWN)
    tale.take(push, process_at_us=1)
    assert not found(tale.history)


def test_what_is_done_is_gone(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.done(take)
    tale.fail(take)
    tale.take(push)
    assert "did not wait" in found(tale.history)


def test_what_is_perhaps_done_may_come_back(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.done(take, outcome=Outcome.UNKNOWN)
    tale.fail(take)
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_what_failed_perhaps_may_come_back(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    tale.fail(take, outcome=Outcome.UNKNOWN)
    tale.take(push, timeouts=1)
    assert not found(tale.history)


def test_what_failed_too_late_does_not_come_back(tale: Tale) -> None:
    push = tale.push("a")
    tale.fail(tale.take(push), outcome=Outcome.REFUSED)
    tale.take(push)
    assert "did not wait" in found(tale.history)


def test_a_refused_push_changes_nothing(tale: Tale) -> None:
    push = tale.push("a")
    tale.push("a", outcome=Outcome.REFUSED, priority=1)
    tale.take(push)
    assert not found(tale.history)


def test_without_merging_there_is_no_such_rule(tale: Tale) -> None:
    tale.push("a", priority=1)
    tale.take(tale.push("a"))
    assert not found(tale.history, merges=False)
