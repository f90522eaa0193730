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
from fjord.blocks.reader import BlockReader
from fjord.blocks.store import Catalog, Store
from fjord.errors import CorruptionError
from fjord.history import Block
from fjord.ops import Opcode
from tests.unit.blocks import cold_reads, scans, sealed
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


def test_a_snapshot_ends_inside_of_a_block(cold: BlockReader, blocks: list[Block]) -> None:
    messages = cold.read(sealed.where(blocks[0], after=3, until=8), sealed.read())
    assert sealed.values(messages) == sealed.messages(5, 3)
    assert (messages.after, messages.until, messages.ended) == (8, 8, True)


def test_one_read_stays_in_its_part(cold: BlockReader, blocks: list[Block]) -> None:
    messages = cold.read(sealed.where(blocks[0], after=8), sealed.read())
    assert sealed.values(messages) == sealed.messages(2, 8)
    assert (messages.after, messages.until, messages.ended) == (10, 30, False)


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


def test_a_moment_is_found(cold: BlockReader, blocks: list[Block]) -> None:
    second = 1_000_000
    assert cold.locate(sealed.where(blocks[0]), 0) == 0
    assert cold.locate(sealed.where(blocks[0]), sealed.WALL_US) == 0
    assert cold.locate(sealed.where(blocks[1]), sealed.WALL_US + 1) == 30
    assert cold.locate(sealed.where(blocks[1]), sealed.WALL_US + second + 1) == 60  # its end


def test_a_moment_is_found_inside_of_a_block(store: Store, cold: BlockReader) -> None:
    journal = sealed.journal_of([7, 7, 7])
    (block,) = journal.seal(store)
    assert cold.locate(sealed.where(block), sealed.WALL_US + 1) == 7
    assert cold.locate(sealed.where(block), sealed.WALL_US + 1_000_001) == 14


@pytest.mark.parametrize(("after", "expected"), [(0, 30), (1, 29), (10, 20), (15, 15), (30, 0)])
def test_messages_ahead_are_counted(
    cold: BlockReader, blocks: list[Block], after: int, expected: int
) -> None:
    assert cold.count_after(sealed.where(blocks[0]), after) == expected


def test_moments_and_counts_load_no_part(cold: BlockReader, blocks: list[Block]) -> None:
    cold.count_after(sealed.where(blocks[0]), 5)
    cold.locate(sealed.where(blocks[0]), sealed.WALL_US)
    assert stats(cold) == (0, 0, 0)


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


def test_a_reader_that_is_closed_loads_nothing_ahead(store: Store, blocks: list[Block]) -> None:
    cold = BlockReader(store)
    read_from(cold, blocks, 0, count=1)
    cold.close()
    assert sealed.values(read_from(cold, blocks, 8)) == sealed.messages(2, 8)
    assert cold.stats()["cold_prefetches"] == 0
