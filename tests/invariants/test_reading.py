"""I1 and I2 on histories that keep them, and on histories that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fjord.jobs import State
from tests.invariants.histories import Outcome, Violation
from tests.invariants.reading import keeping, sending
from tests.invariants.telling import SECOND, Tale
from tests.invariants.terms import Terms

TERMS = Terms()
FIFO = Terms(merges=False)


def texts(found: list[Violation]) -> str:
    return "\n".join(map(str, found))


@pytest.fixture
def tale() -> Tale:
    return Tale()


# -- I1 -------------------------------------------------------------------------------------------


def test_what_was_handed_out_is_kept(tale: Tale) -> None:
    for key in "abc":
        tale.done(tale.take(tale.push(key)))
    assert keeping(tale.history, TERMS) == []


@pytest.mark.parametrize("state", [State.WAITING, State.TAKEN, State.DEAD])
def test_what_is_still_there_at_the_end_is_kept(tale: Tale, state: State) -> None:
    tale.look(tale.push("a"), state=state)
    assert keeping(tale.history, TERMS) == []


def test_a_push_that_a_later_one_of_its_key_replaced_is_kept(tale: Tale) -> None:
    tale.push("a")
    tale.look(tale.push("a"))
    assert keeping(tale.history, TERMS) == []


def test_a_late_push_of_an_older_date_gives_way_to_the_newer_one(tale: Tale) -> None:
    newer = tale.push("a")
    tale.push("a", stamp_us=newer.stamp_us - SECOND)
    tale.look(newer)
    assert keeping(tale.history, TERMS) == []


def test_a_late_push_after_the_newer_one_was_handed_out_is_a_job_of_its_own(tale: Tale) -> None:
    newer = tale.push("a")
    tale.take(newer)
    tale.push("a", "late", stamp_us=newer.stamp_us - SECOND)
    tale.look()
    assert "lost the postfix: 1 of 2" in texts(keeping(tale.history, TERMS))


@pytest.mark.parametrize("how", ["timed out", "failed", "handed out again"])
def test_a_late_push_gives_way_to_a_newer_one_that_came_back(tale: Tale, how: str) -> None:
    newer = tale.push("a")
    take = tale.take(newer)
    if how == "timed out":
        tale.time_out(take)
    elif how == "failed":
        tale.fail(take)
    else:
        tale.wait(100)
    tale.push("a", "late", stamp_us=newer.stamp_us - SECOND)
    tale.take(newer, timeouts=1)
    tale.look()
    assert keeping(tale.history, TERMS) == []


def test_a_push_that_may_have_replaced_another_excuses_it(tale: Tale) -> None:
    tale.push("a")
    tale.push("a", outcome=Outcome.UNKNOWN)
    tale.look()
    assert keeping(tale.history, TERMS) == []


def test_a_refused_push_replaces_nothing(tale: Tale) -> None:
    tale.push("a")
    tale.push("a", outcome=Outcome.REFUSED)
    tale.look()
    assert "I1: lost the whole" in texts(keeping(tale.history, TERMS))


@pytest.mark.parametrize("how", ["cancelled", "expired", "discarded"])
def test_what_was_taken_away_is_not_lost(tale: Tale, how: str) -> None:
    tale.push("a")
    tale.remove("a", how)
    tale.look()
    assert keeping(tale.history, TERMS) == []


def test_what_was_pushed_after_its_key_was_taken_away_is_expected(tale: Tale) -> None:
    tale.remove("a")
    tale.push("a")
    tale.look()
    assert "lost the whole" in texts(keeping(tale.history, TERMS))


def test_what_has_expired_is_not_lost(tale: Tale) -> None:
    tale.push("a", expires_at_us=tale.wall_us + SECOND)
    tale.wait(2)
    tale.look()
    assert keeping(tale.history, TERMS) == []


def test_what_has_not_expired_yet_is_expected(tale: Tale) -> None:
    tale.push("a", expires_at_us=tale.wall_us + 10 * SECOND)
    tale.wait(2)
    tale.look()
    assert "lost the whole: 1 of 1" in texts(keeping(tale.history, TERMS))


@pytest.mark.parametrize(
    ("lost", "where"),
    [
        ("ab", ["prefix: 2 of 6"]),
        ("cd", ["middle: 2 of 6"]),
        ("f", ["postfix: 1 of 6"]),
        ("abcdef", ["whole: 6 of 6"]),
        ("adf", ["prefix: 1 of 6", "middle: 1 of 6", "postfix: 1 of 6"]),
    ],
)
def test_a_report_says_where_the_lost_ones_were(tale: Tale, lost: str, where: list[str]) -> None:
    pushes = [tale.push(key) for key in "abcdef"]
    tale.look(*[push for push in pushes if push.key.decode() not in lost])
    found = [str(one).removeprefix("I1: lost the ") for one in keeping(tale.history, TERMS)]
    assert [text.split(" acknowledged")[0] for text in found] == where


def test_an_unanswered_push_is_not_expected(tale: Tale) -> None:
    tale.push("a", outcome=Outcome.UNKNOWN)
    tale.look()
    assert keeping(tale.history, TERMS) == []


def test_a_read_before_the_push_does_not_count(tale: Tale) -> None:
    push = tale.push("a")
    look = tale.look(push)
    late = replace(push, began=look.ended + 1, ended=look.ended + 2)
    assert "lost the whole" in texts(keeping([look, late], TERMS))


def test_without_merging_every_push_counts(tale: Tale) -> None:
    tale.push("a", "first")
    tale.look(tale.push("a", "second"))
    assert "lost the prefix: 1 of 2" in texts(keeping(tale.history, FIFO))


# -- I2 -------------------------------------------------------------------------------------------


def test_what_was_sent_may_be_read_again_and_again(tale: Tale) -> None:
    push = tale.push("a")
    tale.time_out(tale.take(push))
    tale.take(push)
    tale.look(push)
    assert sending(tale.history, TERMS) == []


def test_an_unanswered_push_may_be_read(tale: Tale) -> None:
    tale.take(tale.push("a", outcome=Outcome.UNKNOWN))
    assert sending(tale.history, TERMS) == []


def test_a_value_out_of_nowhere_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push, value=b"something else")
    assert "b'something else' was never sent" in texts(sending(tale.history, TERMS))


def test_a_value_under_another_key_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    tale.take(push, key=b"b")
    assert "never sent" in texts(sending(tale.history, TERMS))


def test_a_refused_push_that_is_read_is_reported(tale: Tale) -> None:
    tale.look(tale.push("a", outcome=Outcome.REFUSED))
    assert "was refused and read" in texts(sending(tale.history, TERMS))


def test_an_unanswered_push_in_two_rows_is_reported(tale: Tale) -> None:
    push = tale.push("a", outcome=Outcome.UNKNOWN)
    tale.take(push, row=1)
    tale.take(push, row=2)
    assert "sent once and is in the rows [1, 2]" in texts(sending(tale.history, FIFO))


def test_a_value_that_is_read_before_it_was_sent_is_reported(tale: Tale) -> None:
    push = tale.push("a")
    take = tale.take(push)
    late = replace(push, began=take.ended + 1, ended=take.ended + 2)
    assert "never sent" in texts(sending([take, late], TERMS))


def test_pushes_that_cannot_be_told_apart_are_no_history(tale: Tale) -> None:
    tale.push("a", "same")
    tale.push("b", "same")
    with pytest.raises(ValueError, match="value of its own"):
        sending(tale.history, TERMS)
