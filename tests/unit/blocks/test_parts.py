"""Parts of blocks in memory: loaded ahead, gone with their last reader, below a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.blocks import reader as parts
from fjord.blocks.reader import BlockReader
from fjord.blocks.store import Store
from fjord.history import Block
from fjord.testing import SimClock
from tests.unit.blocks import cold_reads, sealed
from tests.unit.blocks.cold_reads import read_from, settle, sizes, stats


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", cold_reads.PART_ROWS)


@pytest.fixture
def store() -> Store:
    return sealed.memory_store()


@pytest.fixture
def blocks(store: Store) -> list[Block]:
    return cold_reads.three_blocks(store)


@pytest.fixture
def cold(store: Store) -> Iterator[BlockReader]:
    found = BlockReader(store)
    yield found
    found.close()


# -- what is in memory ----------------------------------------------------------------------------


def test_looking_again_gives_the_same_and_loads_nothing(
    cold: BlockReader, blocks: list[Block]
) -> None:
    first = sealed.decoded(read_from(cold, blocks, 0, count=1))
    assert sealed.decoded(read_from(cold, blocks, 0, count=1)) == first
    settle(cold)
    assert stats(cold) == (1, 1, 0)


@pytest.mark.req("JQ-07", "JQ-42")
def test_the_next_part_is_loaded_near_the_end_of_this_one(
    cold: BlockReader, blocks: list[Block]
) -> None:
    read_from(cold, blocks, 0, count=7)
    settle(cold)
    assert stats(cold) == (1, 1, 0)
    read_from(cold, blocks, 7, count=1)
    settle(cold)
    assert stats(cold) == (2, 2, 1)
    read_from(cold, blocks, 8, count=2)
    read_from(cold, blocks, 10, count=1)
    settle(cold)
    assert stats(cold) == (1, 2, 1)


@pytest.mark.req("JQ-07", "JQ-42")
def test_the_first_part_of_the_next_block_is_loaded_ahead(
    cold: BlockReader, blocks: list[Block]
) -> None:
    read_from(cold, blocks, 28, count=2)
    settle(cold)
    assert stats(cold) == (2, 2, 1)
    assert sealed.values(read_from(cold, blocks, 30, count=1)) == sealed.messages(1, 30)
    assert stats(cold) == (1, 2, 1)


def test_nothing_is_loaded_behind_the_last_block(cold: BlockReader, blocks: list[Block]) -> None:
    assert read_from(cold, blocks, 88).ended
    settle(cold)
    assert stats(cold) == (1, 1, 0)


@pytest.mark.req("JQ-05", "JQ-06")
def test_a_part_leaves_memory_with_its_last_subscriber(
    cold: BlockReader, blocks: list[Block]
) -> None:
    read_from(cold, blocks, 0, count=1, subscriber="a")
    read_from(cold, blocks, 0, count=1, subscriber="b")
    assert stats(cold) == (1, 1, 0)
    read_from(cold, blocks, 40, count=1, subscriber="a")
    assert stats(cold) == (2, 2, 0)  # b is still in the first one
    read_from(cold, blocks, 40, count=1, subscriber="b")
    assert stats(cold) == (1, 2, 0)
    read_from(cold, blocks, 0, count=1, subscriber="b")
    assert stats(cold) == (2, 3, 0)


@pytest.mark.req("JQ-41")
def test_a_part_stays_while_somebody_is_about_to_enter_it(
    cold: BlockReader, blocks: list[Block]
) -> None:
    read_from(cold, blocks, 8, count=1, subscriber="behind")
    settle(cold)
    read_from(cold, blocks, 10, count=1, subscriber="ahead")
    assert stats(cold) == (2, 2, 1)
    read_from(cold, blocks, 70, count=1, subscriber="ahead")
    assert stats(cold) == (3, 3, 1)  # the second one was left by its last subscriber
    read_from(cold, blocks, 10, count=1, subscriber="behind")
    assert stats(cold) == (2, 3, 1)  # and was not loaded again
    read_from(cold, blocks, 70, count=1, subscriber="behind")
    assert stats(cold) == (1, 3, 1)


@pytest.mark.req("JQ-05", "JQ-06")
def test_a_subscriber_that_rests_holds_nothing(cold: BlockReader, blocks: list[Block]) -> None:
    read_from(cold, blocks, 8, subscriber="a")
    settle(cold)
    assert stats(cold) == (2, 2, 1)
    cold.rest("events", "b")
    cold.rest("other", "a")
    assert stats(cold)[0] == 2
    cold.rest("events", "a")
    assert cold.stats()["cold_parts"] == cold.stats()["cold_bytes"] == 0
    cold.rest("events", "a")


def test_parts_without_a_subscriber_stay_while_there_is_room(
    store: Store, blocks: list[Block]
) -> None:
    expected, size = sizes(store, blocks)
    cold = BlockReader(store, bytes_max=expected + 2 * size + size // 2)
    for after in (0, 10, 0, 20, 30, 40, 50):
        read_from(cold, blocks, after, count=1, subscriber="")
    assert stats(cold) == (3, 6, 0)
    for after in (50, 40, 30):
        read_from(cold, blocks, after, count=1, subscriber="")
    assert stats(cold) == (3, 6, 0)
    read_from(cold, blocks, 0, count=1, subscriber="")
    assert stats(cold) == (3, 7, 0)
    cold.close()


def test_memory_is_bounded_even_if_subscribers_want_more(store: Store, blocks: list[Block]) -> None:
    size, _ = sizes(store, blocks)
    cold = BlockReader(store, bytes_max=2 * size)
    for number in range(9):
        messages = read_from(cold, blocks, 10 * number, count=9, subscriber=f"s{number}")
        assert sealed.values(messages) == sealed.messages(9, 10 * number)
        settle(cold)
        assert cold.stats()["cold_bytes"] <= 2 * size
    cold.close()
    assert cold.stats()["cold_bytes"] == 0


def test_a_part_larger_than_the_bound_is_read_all_the_same(
    store: Store, blocks: list[Block]
) -> None:
    cold = BlockReader(store, bytes_max=1)
    assert sealed.values(read_from(cold, blocks, 0)) == sealed.messages(5)
    assert sealed.values(read_from(cold, blocks, 12)) == sealed.messages(5, 12)
    cold.close()


def test_what_was_loaded_for_nobody_does_not_stay(cold: BlockReader, blocks: list[Block]) -> None:
    read_from(cold, blocks, 8, subscriber="a")
    cold.rest("events", "a")
    settle(cold)
    assert cold.stats()["cold_parts"] == 0


# -- who has not read for a while -----------------------------------------------------------------


class Idle:
    """A reader with room for three parts, and a clock that the test sets."""

    def __init__(self, store: Store, blocks: list[Block]) -> None:
        self.clock = SimClock()
        expected, size = sizes(store, blocks)
        bytes_max = expected + 2 * size + size // 2
        self.cold = BlockReader(store, bytes_max=bytes_max, clock=self.clock)
        self._blocks = blocks

    def read(self, after: int, subscriber: str, count: int = 1) -> None:
        messages = read_from(self.cold, self._blocks, after, count=count, subscriber=subscriber)
        assert sealed.values(messages)[0] == sealed.messages(1, after)[0]
        settle(self.cold)

    def held(self) -> set[tuple[str, str]]:
        return set(self.cold._places)


@pytest.fixture
def idle(store: Store, blocks: list[Block]) -> Iterator[Idle]:
    found = Idle(store, blocks)
    yield found
    found.cold.close()


@pytest.mark.req("JQ-42")
def test_those_who_do_not_read_keep_nobody_from_loading_ahead(idle: Idle) -> None:
    idle.read(30, "first")
    idle.read(40, "second")
    idle.clock.advance(30)
    idle.read(0, "reader")
    idle.read(8, "reader")
    assert stats(idle.cold) == (3, 3, 0)  # all of them may go on, so there is no room
    idle.clock.advance(31)
    idle.read(10, "reader")
    idle.read(18, "reader")
    assert stats(idle.cold)[2] == 1
    assert idle.held() == {("events", "reader")}


def test_who_does_not_read_keeps_its_part_while_there_is_room(idle: Idle) -> None:
    idle.read(30, "first")
    idle.clock.advance(3600)
    idle.read(8, "reader")
    assert stats(idle.cold) == (3, 3, 1)
    idle.read(31, "first")
    assert stats(idle.cold) == (3, 3, 1)


def test_who_reads_now_and_then_is_not_idle(idle: Idle) -> None:
    idle.read(30, "first")
    idle.read(40, "second")
    idle.read(0, "reader")
    for number in range(5):
        idle.clock.advance(50)
        idle.read(31 + number, "first")
        idle.read(41 + number, "second")
        idle.read(1 + number, "reader")
    idle.read(8, "reader")
    assert stats(idle.cold) == (3, 3, 0)


def test_a_part_that_is_needed_takes_the_room_of_who_does_not_read(idle: Idle) -> None:
    idle.read(30, "first")
    idle.clock.advance(61)
    for after, subscriber in [(40, "a"), (50, "b"), (60, "c")]:
        idle.read(after, subscriber)
    assert idle.held() == {("events", "a"), ("events", "b"), ("events", "c")}
    assert stats(idle.cold) == (3, 4, 0)


def test_the_places_of_a_bounded_number_of_subscribers_are_known(
    cold: BlockReader, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_PLACES_MAX", 2)
    for after, subscriber in [(0, "a"), (10, "b"), (0, "a"), (20, "c")]:
        read_from(cold, blocks, after, count=1, subscriber=subscriber)
    assert [who[1] for who in cold._places] == ["a", "c"]
    assert stats(cold) == (2, 3, 0)  # with its place a subscriber lost its part


def test_nothing_is_kept_of_a_table_that_is_gone(cold: BlockReader, blocks: list[Block]) -> None:
    read_from(cold, blocks, 0, count=1, subscriber="a")
    read_from(cold, blocks, 10, count=1, subscriber="")
    cold.forget("event")
    assert stats(cold)[0] == 2
    cold.forget("events")
    assert cold.stats()["cold_parts"] == cold.stats()["cold_bytes"] == 0
    assert (len(cold._opened), cold._holds) == (0, {})
