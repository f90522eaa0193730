"""I13 on histories that keep it, and on histories that do not."""

from __future__ import annotations

import pytest

from tests.invariants.histories import Outcome
from tests.invariants.isolating import isolation
from tests.invariants.stream_telling import StreamTale
from tests.invariants.telling import at_once
from tests.invariants.terms import Terms


def found(tale: StreamTale) -> str:
    return "\n".join(map(str, isolation(tale.history, Terms())))


@pytest.fixture
def tale() -> StreamTale:
    """Seqs 1 and 2 are one transaction over two maps."""
    begun = StreamTale()
    begun.write(("kv", "a", "a1"), ("map", "b", "b1"))
    return begun


# -- snapshots of maps ----------------------------------------------------------------------------


def test_a_snapshot_shows_what_there_was(tale: StreamTale) -> None:
    snapshot = tale.open()
    tale.write(("kv", "a", None), ("map", "c", "c2"))
    tale.see(snapshot, "kv", a="a1")
    tale.see(snapshot, "map", b="b1")
    tale.see(tale.open(), "kv")
    assert not found(tale)


def test_a_later_write_that_shows_is_reported(tale: StreamTale) -> None:
    snapshot = tale.open()
    tale.write(("kv", "a", "a2"))
    tale.see(snapshot, "kv", a="a2")
    assert found(tale) == "I13: at 2 kv has b'a' = b'a2' and not b'a1'"


def test_an_entry_that_is_missing_is_reported(tale: StreamTale) -> None:
    tale.see(tale.open(), "map")
    assert found(tale) == "I13: at 2 map has b'b' = None and not b'b1'"


def test_an_entry_that_nobody_wrote_is_reported(tale: StreamTale) -> None:
    tale.see(tale.open(), "kv", a="a1", x="x9")
    assert found(tale) == "I13: at 2 kv has b'x' = b'x9' and not None"


def test_half_of_a_transaction_is_reported(tale: StreamTale) -> None:
    tale.open(1)
    assert "the snapshot 1 has half of a transaction" in found(tale)


def test_a_snapshot_from_too_early_is_reported(tale: StreamTale) -> None:
    tale.open(0)
    assert found(tale) == "I13: the snapshot 0 lacks a write from before"


def test_a_snapshot_from_later_is_reported(tale: StreamTale) -> None:
    tale.open(3)
    tale.write(("kv", "a", "a2"))
    assert found(tale) == "I13: the snapshot 3 has a write from later"


def test_a_write_at_the_same_time_may_be_in_it_or_not(tale: StreamTale) -> None:
    tale.open(2)
    opened = tale.history.pop()
    write = tale.write(("kv", "a", "a2"))
    tale.history.append(at_once(opened, write))
    assert not found(tale)


@pytest.mark.parametrize("counts", [True, False])
def test_a_write_without_an_answer_is_there_or_not(tale: StreamTale, counts: bool) -> None:
    tale.write(("kv", "a", "a2"), ("map", "b", None), outcome=Outcome.UNKNOWN)
    snapshot = tale.open()
    if counts:
        tale.see(snapshot, "kv", a="a2")
        tale.see(snapshot, "map")
    else:
        tale.see(snapshot, "kv", a="a1")
        tale.see(snapshot, "map", b="b1")
    assert not found(tale)


def test_a_write_without_an_answer_is_not_there_by_half(tale: StreamTale) -> None:
    tale.write(("kv", "a", "a2"), ("map", "b", "b2"), outcome=Outcome.UNKNOWN)
    snapshot = tale.open()
    tale.see(snapshot, "kv", a="a2")
    tale.see(snapshot, "map", b="b1")
    assert found(tale) == "I13: at 4 there is b'a' of a transaction and not b'b'"


def test_a_write_without_an_answer_may_be_overwritten(tale: StreamTale) -> None:
    tale.write(("kv", "a", "a2"), ("map", "b", "b2"), outcome=Outcome.UNKNOWN)
    tale.write(("map", "b", "b3"))
    snapshot = tale.open()
    tale.see(snapshot, "kv", a="a2")
    tale.see(snapshot, "map", b="b3")
    assert not found(tale)


def test_a_refused_write_is_never_there(tale: StreamTale) -> None:
    tale.write(("kv", "a", "a2"), outcome=Outcome.REFUSED)
    tale.see(tale.open(), "kv", a="a2")
    assert "kv has b'a' = b'a2' and not b'a1'" in found(tale)


# -- passes over a log ----------------------------------------------------------------------------


@pytest.fixture
def log() -> StreamTale:
    """Three messages of a log: 1, 2 and 3; the last two are one transaction."""
    begun = StreamTale()
    begun.write(("log", "k", "one"))
    begun.write(("log", "k", "two"), ("log", "", "three"))
    return begun


def test_a_pass_in_pieces_gives_every_message_once(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), (2, "k", "two"), next_after=2, is_end=False)
    log.write(("log", "", "four"))
    log.read("log", (3, "", "three"), after=2, until=3)
    log.read("log", (4, "", "four"), after=3)
    log.read("log", after=4)
    assert not found(log)


def test_a_message_that_is_left_out_is_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), (3, "", "three"))
    text = "lacks Message(seq=2, key=b'k', value=b'two')"
    assert found(log) == f"I13: up to 3, log {text}"


def test_a_message_that_comes_twice_is_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), (1, "k", "one"), next_after=1, is_end=False)
    assert found(log) == "I13: log came out of order: [1, 1]"


def test_messages_out_of_order_are_reported(log: StreamTale) -> None:
    log.read("log", (2, "k", "two"), (1, "k", "one"), next_after=2, is_end=False)
    assert found(log) == "I13: log came out of order: [2, 1]"


def test_messages_beyond_the_bounds_are_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), (2, "k", "two"), after=1, next_after=2, is_end=False)
    assert "log has messages that are not from 1 to 2: [1, 2]" in found(log)


def test_another_value_is_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "uno"), next_after=1, is_end=False)
    assert "has Message(seq=1, key=b'k', value=b'uno') and not Message(seq=1" in found(log)


def test_a_pass_that_ends_inside_a_transaction_is_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), (2, "k", "two"), until=2)
    assert found(log) == "I13: a pass that ends at 2 has half a transaction"


def test_a_pass_that_ends_too_early_is_reported(log: StreamTale) -> None:
    log.read("log", (1, "k", "one"), next_after=1)
    assert found(log) == "I13: a pass ended at 1 and not at 3"


@pytest.mark.parametrize("fields", [{"after": 2, "next_after": 1}, {"next_after": 4}])
def test_a_pass_that_goes_astray_is_reported(log: StreamTale, fields: dict[str, int]) -> None:
    messages = [] if "after" in fields else [(1, "k", "one"), (2, "k", "two"), (3, "", "three")]
    log.read("log", *messages, is_end=False, **{"until": 3, **fields})
    assert "a pass went from" in found(log)


def test_what_is_retired_may_be_gone_and_nothing_else(log: StreamTale) -> None:
    log.retire("log", 1)
    log.read("log", (2, "k", "two"), (3, "", "three"))
    assert not found(log)
    log.read("log", (3, "", "three"))
    assert "lacks Message(seq=2" in found(log)


def test_a_message_without_an_answer_may_come(log: StreamTale) -> None:
    log.write(("log", "", "four"), outcome=Outcome.UNKNOWN)
    log.read("log", after=3)
    log.read("log", (4, "", "four"), after=3)
    assert not found(log)
    log.read("log", (4, "", "five"), after=3)
    assert "has Message(seq=4, key=b'', value=b'five')" in found(log)


# -- passes over a stream that keeps the latest ---------------------------------------------------


def test_revisions_collapse(log: StreamTale) -> None:
    log.read("log", (2, "k", "two"), (3, "", "three"), keeps_all=False)
    assert not found(log)
    log.read("log", (1, "k", "one"), (2, "k", "two"), (3, "", "three"), keeps_all=False)
    assert "has Message(seq=1, key=b'k', value=b'one')" in found(log)


def test_a_key_that_is_written_again_stays_in_the_pass_that_began(log: StreamTale) -> None:
    log.write(("log", "k", "four"))
    log.read("log", (2, "k", "two"), (3, "", "three"), until=3, keeps_all=False)
    assert not found(log)
    log.read("log", (3, "", "three"), until=3, keeps_all=False)
    assert "up to 3, log lacks Message(seq=2" in found(log)


@pytest.mark.parametrize("told", [True, False])
def test_a_tombstone_may_be_told(log: StreamTale, told: bool) -> None:
    log.write(("log", "k", None))
    gone = [(4, "k", None)] if told else []
    log.read("log", (3, "", "three"), *gone, keeps_all=False)
    assert not found(log)


def test_a_key_that_was_taken_away_and_comes_is_reported(log: StreamTale) -> None:
    log.write(("log", "k", None))
    log.read("log", (2, "k", "two"), (3, "", "three"), keeps_all=False)
    assert "has Message(seq=2, key=b'k', value=b'two')" in found(log)


def test_a_write_without_an_answer_may_replace_a_message(log: StreamTale) -> None:
    log.write(("log", "k", "four"), outcome=Outcome.UNKNOWN)
    log.read("log", (3, "", "three"), (4, "k", "four"), keeps_all=False)
    assert not found(log)
