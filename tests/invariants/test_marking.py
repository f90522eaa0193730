"""I7 on histories that keep it, and on histories that do not."""

from __future__ import annotations

import pytest

from tests.invariants.histories import Outcome
from tests.invariants.marking import marks
from tests.invariants.stream_histories import How
from tests.invariants.stream_telling import StreamTale
from tests.invariants.telling import at_once
from tests.invariants.terms import Terms

SUBSCRIBE, ACKNOWLEDGE, SEEK, LOOK = How.SUBSCRIBE, How.ACKNOWLEDGE, How.SEEK, How.LOOK


def found(tale: StreamTale) -> str:
    return "\n".join(map(str, marks(tale.history, Terms())))


@pytest.fixture
def tale() -> StreamTale:
    """A subscriber that was made, and has read a little."""
    begun = StreamTale()
    begun.position(SUBSCRIBE, 0)
    begun.position(ACKNOWLEDGE, 5)
    return begun


def test_a_mark_goes_forward(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 9)
    tale.restart()
    tale.position(LOOK, 9)
    assert not found(tale)


def test_a_mark_that_goes_back_is_reported(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 9)
    tale.restart()
    tale.position(LOOK, 5)
    assert found(tale) == "I7: s went from 9 to 5 without a seek"


def test_a_mark_goes_back_by_a_seek(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 1)
    tale.position(LOOK, 2, 1)
    tale.position(ACKNOWLEDGE, 4, 1)
    tale.position(LOOK, 4, 1)
    assert not found(tale)


def test_a_seek_that_is_forgotten_is_reported(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 1)
    tale.position(LOOK, 5, 0)
    assert "s went from epoch 1 to 0" in found(tale)


def test_an_epoch_that_nobody_made_is_reported(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 2)
    assert found(tale) == "\n".join(["I7: s went from epoch 0 to 2 by 1 seeks"] * 2)


def test_a_refused_seek_makes_no_epoch(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 1, outcome=Outcome.REFUSED)
    tale.position(LOOK, 2, 1)
    assert "by 0 seeks" in found(tale)
    assert "is at 2, where nobody has set it" in found(tale)


def test_a_seek_without_an_answer_may_count(tale: StreamTale) -> None:
    tale.position(SEEK, 0, 0, outcome=Outcome.UNKNOWN)
    tale.position(LOOK, 2, 1)
    assert not found(tale)


@pytest.mark.parametrize("seq", [5, 9])
def test_an_acknowledgement_without_an_answer_counts_or_not(tale: StreamTale, seq: int) -> None:
    tale.position(ACKNOWLEDGE, 9, outcome=Outcome.UNKNOWN)
    tale.position(LOOK, seq)
    assert not found(tale)


def test_a_mark_that_moves_by_itself_is_reported(tale: StreamTale) -> None:
    tale.position(LOOK, 7)
    assert found(tale) == "I7: s is at 7, where nobody has set it"


def test_a_mark_beyond_the_tail_is_reported(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 9, tail=8)
    assert found(tale) == "I7: s is at 9, and the tail is 8"


def test_an_acknowledgement_that_did_not_count_is_reported(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 5, asked=8)
    assert "s is at 5 after 8 was acknowledged" in found(tale)


def test_a_late_acknowledgement_leaves_the_mark_where_it_is(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 5, asked=3)
    tale.position(LOOK, 5)
    assert not found(tale)


def test_an_acknowledgement_of_an_old_epoch_is_reported(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 1)
    tale.position(ACKNOWLEDGE, 8, 1, given=0)
    assert "s took an acknowledgement of epoch 0 in epoch 1" in found(tale)


def test_an_old_acknowledgement_does_not_explain_a_mark(tale: StreamTale) -> None:
    tale.position(SEEK, 2, 1)
    tale.position(LOOK, 5, 1)
    assert found(tale) == "I7: s is at 5, where nobody has set it"


def test_one_of_two_poppers_moves_the_mark(tale: StreamTale) -> None:
    tale.position(ACKNOWLEDGE, 6, expected=5)
    tale.position(ACKNOWLEDGE, 6, expected=5, outcome=Outcome.REFUSED)
    assert not found(tale)
    tale.position(ACKNOWLEDGE, 6, expected=5)
    assert found(tale) == "I7: s was moved from 5 by two"


def test_what_happens_at_once_may_come_in_any_order(tale: StreamTale) -> None:
    looked = tale.position(LOOK, 5)
    tale.position(ACKNOWLEDGE, 9)
    tale.history.remove(looked)
    tale.history.append(at_once(looked, tale.history[-1]))
    assert not found(tale)


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.UNKNOWN])
def test_one_that_is_made_again_begins_anew(tale: StreamTale, outcome: Outcome) -> None:
    tale.leave(outcome=outcome)
    tale.position(SUBSCRIBE, 0)
    assert not found(tale)


def test_one_that_was_not_taken_away_does_not_begin_anew(tale: StreamTale) -> None:
    tale.leave(outcome=Outcome.REFUSED)
    tale.position(SUBSCRIBE, 0)
    assert "s went from 5 to 0 without a seek" in found(tale)


def test_subscribers_have_marks_of_their_own(tale: StreamTale) -> None:
    tale.position(SUBSCRIBE, 0, name="t")
    tale.position(LOOK, 0, name="t")
    assert not found(tale)
