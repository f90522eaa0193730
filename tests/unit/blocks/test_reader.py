"""Reading out of blocks: everything in order, loaded once, ahead of need, and dropped again."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import pytest
from pyarrow import parquet as pq

from fjord import limits, ops
from fjord.blocks import reader
from fjord.blocks.reader import BlockReader
from fjord.blocks.store import Catalog, Store
from fjord.errors import CorruptionError
from fjord.history import Block
from fjord.ops import Opcode
from fjord.testing import SimClock
from tests.unit.blocks import cold_reads, scans, sealed
from tests.unit.blocks.cold_reads import read_from, settle, sizes, stats


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", cold_reads.PART_ROWS)


@pytest.fixture
def blocks(store: Store) -> list[Block]:
    return cold_reads.three_blocks(store)


@pytest.fixture
def cold(store: Store) -> Iterator[BlockReader]:
    found = BlockReader(store)
    yield found
    found.close()


# -- what is read ---------------------------------------------------------------------------------


@pytest.mark.req("JQ-03", "JQ-15", "JQ-17")
def test_all_messages_of_all_blocks_come_in_order(cold: BlockReader, blocks: list[Block]) -> None:
    after, found = 0, []
    while after < blocks[-1].last:
        messages = read_from(cold, blocks, after, count=7)
        assert 0 < messages.rows <= 7
        assert messages.first_seqs[0] == after + 1
        after = messages.after
        found += sealed.decoded(messages)
        assert messages.ended == (after == 90)
    assert [value for *_, value in found] == sealed.messages(90)
    assert [seq for seq, *_ in found] == list(range(1, 91))
    assert [wall for _, wall, *_ in found] == [
        sealed.WALL_US + number * 1_000_000 for number in range(3) for _ in range(30)
    ]


def test_bytes_bound_a_read_and_one_message_always_comes(
    cold: BlockReader, blocks: list[Block]
) -> None:
    some = cold.read(sealed.where(blocks[0]), sealed.read(bytes_max=30))
    one = cold.read(sealed.where(blocks[0]), sealed.read(bytes_max=1))
    assert (some.rows, one.rows) == (3, 1)


def test_other_seqs_between_messages_are_stepped_over(store: Store, cold: BlockReader) -> None:
    journal = sealed.Journal()
    journal.commit(sealed.append([b"x"] * 3, table=99))
    journal.commit(sealed.append([b"a"]), sealed.append([b"x"] * 3, table=99))
    journal.commit(sealed.append([b"b"]))
    journal.commit(sealed.append([b"x"] * 5, table=99))
    (block,) = journal.seal(store)
    messages = cold.read(sealed.where(block, after=2, until=500), sealed.read())
    assert [(seq, value) for seq, *_, value in sealed.decoded(messages)] == [(4, b"a"), (8, b"b")]
    assert (messages.after, messages.ended) == (13, False)  # nothing else is in the block
    nothing = cold.read(sealed.where(block, after=8, until=500), sealed.read())
    assert (nothing.rows, nothing.after, nothing.ended) == (0, 13, False)
    at_end = cold.read(sealed.where(block, after=8, until=10), sealed.read())
    assert (at_end.rows, at_end.after, at_end.ended) == (0, 10, True)


def test_latest_messages_and_tombstones_come_and_moves_do_not(
    store: Store, cold: BlockReader
) -> None:
    journal = sealed.Journal()
    columns: dict[str, Any] = {"type": b"\1\2", "key": [b"a", b"b"], "value": [b"one", b"two"]}
    journal.commit(scans.op(Opcode.STREAM_PUT, 2, columns))
    journal.commit(scans.op(Opcode.STREAM_MOVE, 2, {**columns, "row": [1, 2]}))
    journal.commit(scans.op(Opcode.STREAM_ERASE, 1, {"key": [b"a"]}))
    (block,) = journal.seal(store)
    messages = cold.read(sealed.where(block), sealed.read())
    assert [(seq, *rest) for seq, _, *rest in sealed.decoded(messages)] == [
        (1, 1, b"a", b"one"),
        (2, 2, b"b", b"two"),
        (5, ops.TOMBSTONE, b"a", b""),
    ]
    assert cold.count_after(sealed.where(block), 1) == 2
    assert cold.locate(sealed.where(block), sealed.WALL_US + 1_000_000) == 4


def test_a_moment_is_found_inside_of_a_block(store: Store, cold: BlockReader) -> None:
    journal = sealed.journal_of([7, 7, 7])
    (block,) = journal.seal(store)
    assert cold.locate(sealed.where(block), sealed.WALL_US + 1) == 7
    assert cold.locate(sealed.where(block), sealed.WALL_US + 1_000_001) == 14


# -- several readers ------------------------------------------------------------------------------


class SlowStore(Store):
    """A store that waits with opening data until it is told."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.may_open = threading.Event()
        self.opening = threading.Semaphore(0)
        self.opened = 0

    def open(self, name: str) -> IO[bytes]:
        self.opened += 1
        self.opening.release()
        assert self.may_open.wait(30)
        return super().open(name)


@pytest.mark.req("JQ-43")
def test_readers_of_one_part_load_it_once(store: Store, blocks: list[Block]) -> None:
    slow = SlowStore(store.location)
    cold = BlockReader(slow)
    with ThreadPoolExecutor(8) as pool:
        reads = [
            pool.submit(read_from, cold, blocks, 0, subscriber=f"s{number}") for number in range(8)
        ]
        assert slow.opening.acquire(timeout=30)
        slow.may_open.set()
        found = [sealed.values(one.result()) for one in reads]
    assert found == [sealed.messages(5)] * 8
    assert stats(cold) == (1, 1, 0)
    assert slow.opened == 3  # checksum, footer, part
    cold.close()


@pytest.mark.req("JQ-43")
def test_many_threads_read_all_there_is(store: Store, blocks: list[Block]) -> None:
    cold = BlockReader(store, bytes_max=3 * sizes(store, blocks)[0])

    def read_all(subscriber: str) -> list[bytes]:
        after, found = 0, []
        while after < 90:
            messages = read_from(cold, blocks, after, count=3, subscriber=subscriber)
            found += sealed.values(messages)
            after = messages.after
        return found

    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(read_all, ["a", "b", "c", "", "", "d"]):
            assert found == sealed.messages(90)
    for subscriber in "abcd":
        cold.rest("events", subscriber)
    settle(cold)
    assert cold._holds == {}
    cold.close()
    assert cold.stats()["cold_bytes"] == 0


def test_a_failed_load_is_tried_again(store: Store, blocks: list[Block]) -> None:
    class BrokenStore(Store):
        breaks = True

        def open(self, name: str) -> IO[bytes]:
            if self.breaks:
                raise PermissionError(13, "Permission denied", name)
            return super().open(name)

    broken = BrokenStore(store.location)
    cold = BlockReader(broken)
    with pytest.raises(PermissionError):
        read_from(cold, blocks, 0)
    broken.breaks = False
    assert sealed.values(read_from(cold, blocks, 0)) == sealed.messages(5)
    cold.close()


# -- damage ---------------------------------------------------------------------------------------


def flip(store: Store, name: str, position: int) -> None:
    with store.open(name) as file:
        data = bytearray(file.read())
    data[position] ^= 0x10
    draft = store.draft(name)
    draft.write(data)
    draft.keep(name)
    draft.drop()


@pytest.mark.parametrize("position", [0, 50, 500, -30, -1])
def test_a_damaged_block_is_refused_with_its_name(
    store: Store, cold: BlockReader, blocks: list[Block], position: int
) -> None:
    flip(store, blocks[1].name, position)
    assert sealed.values(read_from(cold, blocks, 28, count=2)) == sealed.messages(2, 28)
    settle(cold)  # loading ahead meets the damage, and leaves it to who reads
    for _ in range(2):
        with pytest.raises(CorruptionError, match=blocks[1].name):
            read_from(cold, blocks, 30)
        with pytest.raises(CorruptionError, match=blocks[1].name):
            cold.count_after(sealed.where(blocks[1]), 30)
    assert sealed.values(read_from(cold, blocks, 60)) == sealed.messages(5, 60)


def copy(source: Store, name: str, target: Store, as_name: str = "") -> None:
    """Copies the files of a block, in the place of another one if need be."""
    with source.open(name) as file:
        draft = target.draft(name)
        draft.write(file.read())
    draft.keep(as_name or name)
    draft.drop()
    target.write_metadata(as_name or name, source.read_metadata(name))


def test_another_block_in_the_place_of_one_is_refused(
    store: Store, cold: BlockReader, blocks: list[Block]
) -> None:
    kept = sealed.memory_store()
    copy(store, blocks[1].name, kept)
    copy(store, blocks[0].name, store, blocks[1].name)
    read_from(cold, blocks, 28, count=2)
    settle(cold)  # which loads the wrong one ahead
    place = sealed.where(blocks[1])
    for call in (
        lambda: cold.read(place, sealed.read(subscriber="s")),
        lambda: cold.count_after(place, 30),
        lambda: cold.locate(place, 0),
    ):
        with pytest.raises(CorruptionError, match=f"{blocks[1].name}.*the journal says"):
            call()
    copy(kept, blocks[1].name, store)
    assert sealed.values(read_from(cold, blocks, 30)) == sealed.messages(5, 30)


@pytest.mark.parametrize("change", [{"first": 2}, {"last": 31}, {"rows": 29}])
def test_metadata_that_does_not_fit_is_refused(
    store: Store, cold: BlockReader, blocks: list[Block], change: dict[str, int]
) -> None:
    catalog = Catalog(store)
    metadata = dataclasses.replace(catalog.read(blocks[0].name), **change)  # type: ignore[arg-type]
    store.write_metadata(blocks[0].name, metadata.encode())
    with pytest.raises(CorruptionError, match=blocks[0].name):
        read_from(cold, blocks, 0)


def test_damage_that_comes_later_is_met_too(
    store: Store, cold: BlockReader, blocks: list[Block]
) -> None:
    """A block is checked once as a whole; after that its pages speak for themselves."""
    read_from(cold, blocks, 0, count=1)
    with store.open(blocks[0].name) as file:
        values = pq.read_metadata(file).row_group(2).column(14)
    flip(store, blocks[0].name, values.data_page_offset + values.total_compressed_size - 1)
    with pytest.raises(CorruptionError, match=blocks[0].name):
        read_from(cold, blocks, 20)


def test_a_block_that_is_gone_is_not_there(
    store: Store, cold: BlockReader, blocks: list[Block]
) -> None:
    store.remove(blocks[0].name)
    with pytest.raises(FileNotFoundError):
        read_from(cold, blocks, 0)
    read_from(cold, blocks, 30, count=1)
    store.remove(blocks[1].name)
    assert sealed.values(read_from(cold, blocks, 31, count=2)) == sealed.messages(2, 31)
    with pytest.raises(FileNotFoundError):
        read_from(cold, blocks, 40)


# -- what is in memory ----------------------------------------------------------------------------


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


def test_nothing_is_kept_of_a_table_that_is_gone(cold: BlockReader, blocks: list[Block]) -> None:
    read_from(cold, blocks, 0, count=1, subscriber="a")
    read_from(cold, blocks, 10, count=1, subscriber="")
    cold.forget("event")
    assert stats(cold)[0] == 2
    cold.forget("events")
    assert cold.stats()["cold_parts"] == cold.stats()["cold_bytes"] == 0
    assert (len(cold._opened), cold._holds) == (0, {})


def test_the_places_of_a_bounded_number_of_subscribers_are_known(
    cold: BlockReader, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PLACES_MAX", 2)
    for after, subscriber in [(0, "a"), (10, "b"), (0, "a"), (20, "c")]:
        read_from(cold, blocks, after, count=1, subscriber=subscriber)
    assert [who[1] for who in cold._places] == ["a", "c"]
    assert stats(cold) == (2, 3, 0)  # with its place a subscriber lost its part
