"""From the journal to blocks: every row once, cut at commits, the same again after any crash."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits, ops
from fjord.blocks import writer
from fjord.blocks.store import Catalog, Store
from fjord.errors import CorruptionError, FjordError
from fjord.history import Block, SealPlan
from fjord.ops import Opcode
from fjord.testing import SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.blocks import scans, sealed

WALL = datetime.fromtimestamp(sealed.WALL_US / 1_000_000, tz=UTC)


@pytest.mark.req("JQ-15", "JQ-17")
def test_messages_become_rows_with_all_that_they_have(store: Store) -> None:
    journal = sealed.Journal()
    journal.commit(sealed.append([b"one", b"two"], keys=[b"k", b""]))
    journal.commit(sealed.append([b"three"]))
    (block,) = journal.seal(store)
    common = {"op": "APPEND", "type": 1}
    assert sealed.block_rows(store, block.name) == [
        scans.row(1, ts=WALL, txn=2, key=b"k", value=b"one", **common),
        scans.row(2, ts=WALL, txn=2, key=b"", value=b"two", **common),
        scans.row(3, ts=WALL + timedelta(seconds=1), txn=3, key=b"", value=b"three", **common),
    ]
    assert block == Block(
        table=7,
        first=1,
        last=3,
        rows=3,
        bytes=store.size(block.name),
        min_us=sealed.WALL_US,
        max_us=sealed.WALL_US + 1_000_000,
        crc=store.checksum(block.name),
        name=f"events-7/{1:020d}-{3:020d}-{sealed.TAG:016x}",
    )


def test_values_are_summed_up_as_spark_would(store: Store) -> None:
    values = [b"", b"a", b"some more", bytes(1000)]
    journal = sealed.Journal()
    journal.commit(sealed.append(values))
    journal.commit(scans.op(Opcode.STREAM_ERASE, 1, {"key": [b"k"]}))
    (block,) = journal.seal(store)
    assert Catalog(store).read(block.name).value_crc == sum(map(zlib.crc32, values))


@pytest.mark.req("JQ-18")
def test_blocks_are_cut_at_commits_and_adjoin(store: Store) -> None:
    journal = sealed.journal_of([4, 4, 4, 20, 1])
    blocks = journal.seal(store, journal.range(block_rows=10))
    assert [(block.first, block.last, block.rows) for block in blocks] == [
        (1, 8, 8),
        (9, 12, 4),
        (13, 32, 20),  # one commit is never cut
        (33, 33, 1),
    ]


@pytest.mark.req("JQ-18")
def test_what_was_committed_together_is_in_one_block(store: Store) -> None:
    journal = sealed.Journal()
    other = sealed.append([b"x"], table=8)
    journal.commit(sealed.append([b"a"] * 3), other, sealed.append([b"a"] * 3))
    journal.commit(other)
    journal.commit(sealed.append([b"b"] * 3), other, sealed.append([b"b"] * 9), other)
    journal.commit(other, sealed.append([b"c"]))
    blocks = journal.seal(store, journal.range(block_rows=8))
    assert [(block.first, block.last, block.rows) for block in blocks] == [
        (1, 8, 6),
        (9, 22, 12),
        (23, 24, 1),
    ]
    for block in blocks:
        ends = {row["txn"] for row in sealed.block_rows(store, block.name)}
        assert max(ends) <= block.last


def test_blocks_that_were_cut_inside_of_a_commit_are_gone_on_behind(store: Store) -> None:
    """As those are that an earlier version left after a crash."""
    journal = sealed.Journal()
    journal.commit(sealed.append([b"a"] * 3), sealed.append([b"b"] * 3))
    journal.commit(sealed.append([b"c"] * 3))
    (early,) = journal.seal(store, journal.range(last=3))
    blocks = journal.seal(store, journal.range(block_rows=4))
    assert [(block.first, block.last, block.rows) for block in blocks] == [
        (1, 3, 3),
        (4, 6, 3),
        (7, 9, 3),
    ]
    assert blocks[0] == early


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_ranges_have_every_row_of_theirs_once(sizes: list[int], data: st.DataObject) -> None:
    journal = sealed.journal_of(sizes)
    edges = data.draw(st.lists(st.integers(1, journal.last), unique=True, max_size=3))
    store = sealed.memory_store()
    ranges = [
        journal.range(first=before + 1, last=after, tag=number, block_rows=5)
        for number, (before, after) in enumerate(
            pairwise(sorted({0, *edges, journal.last})), start=1
        )
    ]
    blocks = journal.seal(store, *ranges)
    rows = [row for block in blocks for row in sealed.block_rows(store, block.name)]
    assert [row["seq"] for row in rows] == list(range(1, journal.last + 1))
    assert [row["value"] for row in rows] == sealed.messages(journal.last)
    assert [block.first for block in blocks] == [1] + [block.last + 1 for block in blocks[:-1]]
    assert blocks[-1].last == journal.last


def test_a_part_has_a_bounded_number_of_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import parquet as pq

    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", 100)
    monkeypatch.setattr(limits, "BLOCK_PART_BYTES", 40_000)
    journal = sealed.journal_of([250, 1, 30])
    for _ in range(5):
        journal.commit(sealed.append([b"x" * 15_000]))
    store = sealed.memory_store()
    (block,) = journal.seal(store)
    with store.open(block.name) as file:
        found = pq.read_metadata(file)
        sizes = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    assert sum(sizes) == block.rows == 286
    assert max(sizes) <= 100
    assert len(sizes) >= 4


def test_memory_is_bounded_over_all_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of many parts is written early."""
    from pyarrow import parquet as pq

    monkeypatch.setattr(writer, "PENDING_BYTES_MAX", 10_000)
    monkeypatch.setattr(writer, "_PIECE_BYTES", 5_000)
    journal = sealed.Journal()
    for _ in range(4):
        journal.commit(*(sealed.append([b"x" * 2000], table=table) for table in (7, 8, 9)))
    store = sealed.memory_store()
    blocks = journal.seal(store, *(journal.range(table=table) for table in (7, 8, 9)))
    groups = []
    for block in blocks:
        with store.open(block.name) as file:
            groups.append(pq.read_metadata(file).num_row_groups)
    assert [block.rows for block in blocks] == [4, 4, 4]
    assert max(groups) > 1


def test_many_ranges_take_several_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RANGES_MAX", 2)
    journal = sealed.Journal()
    tables = range(7, 12)
    journal.commit(*(sealed.append([b"%d" % table], table=table) for table in tables))
    store = sealed.memory_store()
    blocks = journal.seal(store, *(journal.range(table=table) for table in tables))
    assert [block.table for block in blocks] == list(tables)


# -- once more ------------------------------------------------------------------------------------


def test_blocks_that_are_there_are_kept() -> None:
    journal = sealed.journal_of([10, 10, 10])
    store = Store("/cold", disk=journal.disk)
    wanted = journal.range(block_rows=10)
    blocks = journal.seal(store, wanted)
    assert isinstance(journal.disk, SimDisk)
    before = len(journal.disk.calls)
    assert journal.seal(store, wanted) == blocks
    assert set(journal.disk.calls[before:]) <= {"make_directory", "sync_directory", "create"}


@pytest.mark.parametrize("number", range(3))
def test_a_damaged_block_is_written_again(store: Store, number: int) -> None:
    journal = sealed.journal_of([10, 10, 10])
    wanted = journal.range(block_rows=10)
    blocks = journal.seal(store, wanted)
    draft = store.draft(blocks[number].name)
    draft.write(b"nonsense")
    draft.keep(blocks[number].name)
    draft.drop()
    assert journal.seal(store, wanted) == blocks
    for block in blocks:
        assert Catalog(store).verify(block.name).block(block.name) == block


def test_the_block_before_the_range_is_told_of_the_first_one(store: Store) -> None:
    journal = sealed.journal_of([10, 10])
    (first,) = journal.seal(store, journal.range(last=10))
    (second,) = journal.seal(store, journal.range(first=11, tag=9, previous=first.name))
    assert Catalog(store).next(first.name) == second.name
    assert Catalog(store).previous(second.name) == first.name


def test_a_crash_at_any_step_loses_nothing() -> None:
    """Power goes at every call in turn; then the same range is written again."""
    sizes = [10, 10, 5]
    reference = sealed.journal_of(sizes)
    expected = reference.seal(sealed.memory_store(), reference.range(block_rows=10))
    for number in range(1, 200):
        journal = sealed.journal_of(sizes)
        disk = journal.disk
        assert isinstance(disk, SimDisk)
        store = Store("/cold", disk=disk)
        wanted = journal.range(block_rows=10)
        disk.crash_after(number)
        try:
            journal.seal(store, wanted)
            is_done = True
        except SimCrash:
            is_done = False
        disk.power_cut()
        for name in store.names():
            Catalog(store).verify(name)  # what is there is whole
        if is_done:
            assert store.names() == [block.name for block in expected]
        assert journal.seal(store, wanted) == expected
        names = [block.name for block in expected]
        assert [Catalog(store).next(name) for name in names] == [*names[1:], ""]
        assert not [name for name in disk.names("/cold/events-7") if "unfinished" in name]
        if is_done:
            return
    pytest.fail("there is no end to it")


def test_a_full_disk_is_an_error_and_leaves_nothing_half() -> None:
    journal = sealed.journal_of([10_000])
    disk = journal.disk
    assert isinstance(disk, SimDisk)
    store = Store("/cold", disk=disk)
    disk.capacity = disk.used_bytes() + 1000
    with pytest.raises(OSError, match="No space"):
        journal.seal(store)
    assert disk.names("/cold/events-7") == []
    disk.capacity = None
    assert len(journal.seal(store)) == 1


# -- what is refused ------------------------------------------------------------------------------


def test_damage_in_the_journal_stops_it_with_file_and_offset(store: Store) -> None:
    journal = sealed.journal_of([10, 10])
    disk = journal.disk
    assert isinstance(disk, SimDisk)
    segment = f"{journal.directory}/{1:010d}.seg"
    disk.flip_bit(segment, 300)
    with pytest.raises(CorruptionError, match=segment):
        journal.seal(store)
    assert store.names() == []


def test_a_journal_that_is_not_there_is_not_one_without_rows() -> None:
    journal = sealed.journal_of([1])
    for directory, last in (("/nowhere", 1), (journal.directory, 2)):
        plan = SealPlan(sealed.SHARD, [journal.range(last=last)])
        with pytest.raises(CorruptionError, match=r"ends before seq|not readable"):
            writer.write_blocks(directory, plan, sealed.memory_store(), disk=journal.disk)


def test_an_op_of_a_later_version_is_refused_and_not_left_out(store: Store) -> None:
    journal = sealed.journal_of([1])
    unknown = b"\x7f" + ops.encode(sealed.append([b"x"]))[0][1:]
    journal.commit_bytes([unknown], rows=1)
    with pytest.raises(FjordError, match=r"\[127\] are unknown"):
        journal.seal(store)
    assert store.names() == []


def test_a_plan_of_another_journal_is_refused() -> None:
    journal = sealed.journal_of([1])
    plan = SealPlan(b"another journal!", [journal.range()])
    with pytest.raises(CorruptionError, match="another journal"):
        writer.write_blocks(journal.directory, plan, sealed.memory_store(), disk=journal.disk)
