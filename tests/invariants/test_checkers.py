"""All checkers together, I17, and how events are written down by processes that may be killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.invariants import histories
from tests.invariants.checkers import CHECKERS, CONCURRENT, Terms, digest, recovery, violations
from tests.invariants.histories import Event, Outcome
from tests.invariants.stream_checkers import STREAM_CHECKERS, stream_violations
from tests.invariants.stream_histories import How
from tests.invariants.stream_telling import StreamTale
from tests.invariants.telling import Tale

TREES = [[(b"a", b"1"), (b"b", b"2")], [(b"c", b"3")]]


def told() -> Tale:
    """A day in the life of a table, with every event in it."""
    tale = Tale()
    first, other = tale.push("a", producer="p"), tale.push("b", producer="p")
    lost, kept = tale.take(first), tale.take(other)
    tale.touch(kept)
    tale.time_out(lost)
    again = tale.take(first, timeouts=1)
    tale.fail(again)
    tale.die(again)
    tale.restart()
    tale.revive(again)
    tale.reschedule("a")
    tale.done(tale.take(first))
    tale.done(kept)
    tale.push("c")
    tale.remove("c")
    last = tale.push("d", outcome=Outcome.UNKNOWN)
    tale.look(last)
    return tale


def test_a_good_day_breaks_nothing() -> None:
    assert violations(told().history) == []
    assert violations(told().history, Terms(merges=False), CONCURRENT) == []


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("I1", lambda tale: tale.push("lost")),
        ("I2", lambda tale: tale.take(tale.push("x"), value=b"y")),
        ("I4", lambda tale: tale.push("x", seq=1)),
        ("I5", lambda tale: [tale.take(one) for one in reversed([tale.push("x"), tale.push("x")])]),
        ("I6", lambda tale: tale.take(*reversed([tale.push(k, producer="q") for k in "xy"]))),
        ("I14", lambda tale: tale.take(*[tale.push("x")] * 2)),
        ("I15", lambda tale: tale.take(tale.push("x"), inserted_us=1)),
        ("I16", lambda tale: tale.take(tale.push("x", process_at_us=tale.wall_us + 10**9))),
    ],
)
def test_each_rule_is_among_them(rule: str, spoil: Callable[[Tale], object]) -> None:
    tale = told()
    spoil(tale)
    assert rule in {one.rule for one in violations(tale.history)}


def test_there_is_one_checker_for_each_promise_on_jobs() -> None:
    assert list(CHECKERS) == ["I1", "I2", "I4", "I5", "I6", "I14", "I15", "I16"]
    assert set(CHECKERS) - set(CONCURRENT) == {"I15"}


# -- I17 ------------------------------------------------------------------------------------------


def test_states_that_agree_are_fine() -> None:
    same = digest(TREES)
    assert recovery({"live": same, "opened": same, "opened again": same, "replayed": same}) == []


@pytest.mark.parametrize("name", ["opened", "opened again", "replayed"])
def test_a_state_that_differs_is_reported(name: str) -> None:
    digests = dict.fromkeys(["live", "opened", "opened again", "replayed"], digest(TREES))
    (found,) = recovery({**digests, name: digest([])})
    assert str(found).startswith(f"I17: {name} is not live")


@pytest.mark.parametrize(
    "other",
    [
        [[(b"a", b"1")], [(b"b", b"2"), (b"c", b"3")]],
        [[(b"a", b"1b"), (b"", b"2")], [(b"c", b"3")]],
        [[(b"a", b"1"), (b"b", b"3")], [(b"c", b"3")]],
        [TREES[0]],
    ],
    ids=["another tree", "another border", "another value", "one tree less"],
)
def test_whatever_differs_gives_another_digest(other: list[list[tuple[bytes, bytes]]]) -> None:
    assert digest(other) != digest(TREES)


# -- lines ----------------------------------------------------------------------------------------


def test_every_event_goes_through_a_line_of_text() -> None:
    history = told().history
    # Those of streams are only ever recorded in the process that judges them.
    here = [kind for kind in Event.__subclasses__() if kind.__module__ == histories.__name__]
    assert {type(event).__name__ for event in history} == {kind.__name__ for kind in here}
    lines = [histories.to_line(event) + "\n" for event in history]
    assert histories.from_lines(lines) == history


def test_any_bytes_go_through_a_line_of_text() -> None:
    push = replace(Tale().push("a"), key=bytes(range(256)))
    assert histories.from_line(histories.to_line(push)) == push


def test_lines_of_several_processes_are_put_in_order() -> None:
    history = told().history
    lines = [histories.to_line(event) + "\n" for event in reversed(history)]
    assert histories.from_lines(lines) == history


def test_half_a_line_is_left_out() -> None:
    push = Tale().push("a")
    line = histories.to_line(push)
    assert histories.from_lines([line + "\n", line[:20]]) == [push]


def test_a_line_that_is_no_event_is_refused() -> None:
    with pytest.raises(ValueError, match="not an event"):
        histories.from_line('{"event": "Danced"}')


# -- streams --------------------------------------------------------------------------------------


def test_the_rules_of_streams_are_judged_together() -> None:
    tale = StreamTale()
    tale.write(("log", "a", "1"))
    tale.read("log", (1, "a", "1"))
    tale.position(How.SUBSCRIBE, 0)
    assert stream_violations(tale.history) == []
    tale.read("log")
    tale.position(How.LOOK, 7)
    assert {found.rule for found in stream_violations(tale.history)} == set(STREAM_CHECKERS)
