"""Blocks that become one: the same rows in the same order, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyarrow import parquet as pq

from fjord import limits
from fjord.blocks import writer
from fjord.blocks.store import Catalog, Store
from fjord.blocks.writer import Rewritten
from fjord.errors import CorruptionError, FjordError
from fjord.history import Block, data_path, metadata_path
from fjord.testing import SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.blocks import sealed

TAG = 0x77


def sealed_blocks(store: Store, sizes: list[int]) -> list[Block]:
    """Writes a block for each commit of so many messages."""
    journal = sealed.journal_of(sizes)
    return journal.seal(store, journal.range(block_rows=1))


def rows_of(store: Store, *names: str) -> list[dict[str, object]]:
    return [row for name in names for row in sealed.block_rows(store, name)]


def made(store: Store, blocks: list[Block], tag: int = TAG) -> Rewritten:
    found = writer.rewrite(store, [block.name for block in blocks], tag=tag)
    writer.publish(store, found, wall_us=5)
    return found


def test_rows_stay_as_they_are(store: Store) -> None:
    blocks = sealed_blocks(store, [3, 1, 7, 2])
    old = [Catalog(store).read(block.name) for block in blocks]
    new = made(store, blocks[1:])
    assert new.name == f"events-7/{4:020d}-{13:020d}-{TAG:016x}"
    assert rows_of(store, new.name) == rows_of(store, *(block.name for block in blocks[1:]))
    found = Catalog(store).verify(new.name)
    assert found == new.metadata
    assert (found.first, found.last, found.rows) == (4, 13, 10)
    assert (found.min_ts, found.max_ts) == (old[1].min_ts, old[3].max_ts)
    assert found.value_crc == sum(one.value_crc for one in old[1:])
    assert found.shard == old[0].shard
    assert found.previous == blocks[0].name


def test_parts_are_put_together_up_to_a_full_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = sealed_blocks(store, [3, 3, 3, 3, 3])
    monkeypatch.setattr(limits, "BLOCK_PART_ROWS", 7)
    new = made(store, blocks)
    with store.open(new.name) as file:
        footer = pq.ParquetFile(file).metadata
        sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert sizes == [6, 6, 3]
    monkeypatch.setattr(limits, "BLOCK_PART_BYTES", 1)
    other = made(store, blocks, tag=8)
    with store.open(other.name) as file:
        assert pq.ParquetFile(file).metadata.num_row_groups == 5
    assert rows_of(store, other.name) == rows_of(store, new.name)


def test_nobody_sees_it_before_it_is_published(store: Store) -> None:
    blocks = sealed_blocks(store, [3, 3])
    names = store.names()
    found = writer.rewrite(store, [block.name for block in blocks], tag=TAG)
    assert store.names() == names
    assert not store.has_data(found.name)
    store.drop_unfinished("events-7")  # as a node does that seals meanwhile
    writer.publish(store, found, wall_us=5)
    assert store.names() == sorted([*names, found.name])
    again = writer.rewrite(store, [block.name for block in blocks], tag=TAG)
    store.drop_rewrites("events-7", before_us=5)  # it is younger, and there are no locks
    with pytest.raises(FileExistsError):
        writer.publish(store, again, wall_us=6)
    assert Catalog(store).verify(found.name) == found.metadata
    store.drop_rewrites("events-7")
    with pytest.raises(FileNotFoundError):
        writer.publish(store, again._replace(name=found.name[:-1] + "0"), wall_us=6)
    assert list(store.announced("events-7")) == []


@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_what_was_published_in_vain_goes_if_it_is_not_in_use(kind: str) -> None:
    store = Store("/cold", disk=SimDisk()) if kind == "folder" else sealed.memory_store()
    blocks = sealed_blocks(store, [3, 3])
    names = [block.name for block in blocks]
    used, unused, young = (made(store, blocks, tag=number).name for number in (1, 2, 3))
    store.announce(young, 50)
    assert store.announced("events-7") == {used: 5, unused: 5, young: 50}
    writer.sweep(store, "events-7", lambda: [used], before_us=50)
    assert store.names() == sorted([*names, used, young])
    assert not store.has_data(unused)
    assert store.announced("events-7") == {young: 50}
    writer.sweep(store, "events-7", lambda: [used], before_us=51)
    assert store.names() == sorted([*names, used])
    assert store.announced("events-7") == {}
    writer.sweep(store, "events-7", lambda: pytest.fail("nothing is announced"), before_us=99)


def test_a_damaged_block_is_not_rewritten() -> None:
    disk = SimDisk()
    store = Store("/cold", disk=disk)
    blocks = sealed_blocks(store, [3, 3])
    file = disk.open(store.path(blocks[1].name), writable=True)
    file.write(40, b"?")
    file.sync()
    before = disk.names("/cold/events-7")
    with pytest.raises(CorruptionError, match="checksum"):
        writer.rewrite(store, [block.name for block in blocks], tag=TAG)
    assert disk.names("/cold/events-7") == before
    store.remove(blocks[1].name)
    with pytest.raises(FileNotFoundError):
        writer.rewrite(store, [block.name for block in blocks], tag=TAG)


@pytest.mark.parametrize("change", ["rows", "value_crc", "min_seq", "max_ts"])
def test_what_does_not_hold_what_the_metadata_says_is_not_kept(store: Store, change: str) -> None:
    blocks = sealed_blocks(store, [3, 3])
    metadata = Catalog(store).read(blocks[0].name)
    wrong = replace(metadata, **{change: getattr(metadata, change) + 1_000_000_000})
    store.write_metadata(blocks[0].name, wrong.encode())
    with pytest.raises(CorruptionError, match="would contain"):
        writer.rewrite(store, [block.name for block in blocks], tag=TAG)


def test_blocks_that_do_not_follow_each_other_are_refused(store: Store) -> None:
    names = [block.name for block in sealed_blocks(store, [3, 3])]
    with pytest.raises(FjordError, match="does not follow"):
        writer.rewrite(store, names[::-1], tag=TAG)


def test_the_chain_is_mended(store: Store) -> None:
    blocks = sealed_blocks(store, [1, 2, 3, 4])
    names = [block.name for block in blocks]
    new = made(store, blocks[1:3])
    catalog = Catalog(store)
    order = [names[0], new.name, names[3]]
    for _ in range(2):
        writer.relink(catalog, order)
        assert [catalog.next(name) for name in order] == [new.name, names[3], ""]
        assert [catalog.previous(name) for name in order] == ["", names[0], new.name]
    store.remove(names[0])
    writer.relink(catalog, order)
    assert catalog.previous(new.name) == ""


def test_a_crash_at_any_step_leaves_the_old_blocks_and_nothing_half() -> None:
    """Power goes at every call in turn; then they are rewritten once more."""
    for number in range(1, 200):
        disk = SimDisk()
        store = Store("/cold", disk=disk)
        blocks = sealed_blocks(store, [2, 3])
        before = rows_of(store, *(block.name for block in blocks))
        disk.crash_after(number)
        try:
            made(store, blocks)
            is_done = True
        except SimCrash:
            is_done = False
        disk.power_cut()
        assert rows_of(store, *(block.name for block in blocks)) == before
        for name in store.names():
            Catalog(store).verify(name)  # what is there is whole
        store.drop_rewrites("events-7")
        # Whatever is there beside the old blocks is announced, and so can be told and removed.
        names = [block.name for block in blocks]
        writer.sweep(store, "events-7", names.copy, before_us=6)
        files = {data_path(block.name).split("/")[1] for block in blocks}
        files |= {metadata_path(block.name).split("/")[1] for block in blocks}
        assert {*disk.names("/cold/events-7")} - {*files} == set()
        assert rows_of(store, made(store, blocks).name) == before
        assert not [name for name in disk.names("/cold/events-7") if "rewritten" in name]
        if is_done:
            return
    pytest.fail("there is no end to it")
