"""Metadata: what it says, neighbours, and checksums that are compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fjord.blocks.store import Catalog, Store, decode_metadata
from fjord.errors import CorruptionError
from fjord.history import Block
from tests.unit.blocks import sealed


@pytest.fixture
def blocks(store: Store) -> list[Block]:
    """Three blocks of ten messages each."""
    journal = sealed.journal_of([10, 10, 10])
    return journal.seal(store, journal.range(block_rows=10))


@pytest.mark.req("JQ-16")
def test_metadata_says_what_a_block_is(store: Store, blocks: list[Block]) -> None:
    found = json.loads(store.read_metadata(blocks[1].name))
    crc = found.pop("crc32c")
    assert crc == store.checksum(blocks[1].name)
    assert found.pop("value_crc") > 0
    assert found == {
        "table": "events",
        "table_id": 7,
        "kind": 3,
        "shard": sealed.SHARD.hex(),
        "first": 11,
        "last": 20,
        "min_seq": 11,
        "max_seq": 20,
        "min_ts": sealed.WALL_US + 1_000_000,
        "max_ts": sealed.WALL_US + 1_000_000,
        "rows": 10,
        "bytes": store.size(blocks[1].name),
        "path": blocks[1].name + ".parquet",
        "previous": blocks[0].name,
        "next": blocks[2].name,
    }


@pytest.mark.req("JQ-15", "JQ-16")
def test_neighbours_lead_from_one_end_to_the_other(store: Store, blocks: list[Block]) -> None:
    catalog = Catalog(store)
    names = [block.name for block in blocks]
    assert [catalog.next(name) for name in names] == [*names[1:], ""]
    assert [catalog.previous(name) for name in names] == ["", *names[:-1]]


@pytest.mark.req("JQ-15")
def test_blocks_are_listed_in_order_by_table(store: Store, blocks: list[Block]) -> None:
    other = sealed.Journal()
    other.commit(sealed.append([b"x"], table=70))
    other.seal(store, other.range(table=70, name="events-old"))
    catalog = Catalog(store)
    assert [one.block(one.path[:-8]) for one in catalog.list("events")] == blocks
    assert [one.table for one in catalog.list("events-old")] == ["events-old"]
    assert len(catalog.list()) == 4
    assert catalog.list("nothing") == []


def damage(store: Store, name: str, data: bytes) -> None:
    draft = store.draft(name)
    draft.write(data)
    draft.keep(name)
    draft.drop()


def read(store: Store, name: str) -> bytes:
    with store.open(name) as file:
        return file.read()


@pytest.mark.parametrize("position", [0, 4, 100, -5, -1])
def test_a_flipped_bit_is_found_and_named(store: Store, blocks: list[Block], position: int) -> None:
    data = bytearray(read(store, blocks[1].name))
    data[position] ^= 1
    damage(store, blocks[1].name, bytes(data))
    with pytest.raises(
        CorruptionError, match=r"its checksum is [0-9a-f]{8}, its metadata"
    ) as found:
        Catalog(store).verify(blocks[1].name)
    assert found.value.path == store.path(blocks[1].name)


def test_a_file_of_another_length_is_damaged(store: Store, blocks: list[Block]) -> None:
    damage(store, blocks[0].name, read(store, blocks[0].name)[:-1])
    with pytest.raises(CorruptionError, match=r"bytes, its metadata says"):
        Catalog(store).verify(blocks[0].name)


def test_metadata_without_data_is_damage(store: Store, blocks: list[Block]) -> None:
    metadata = store.read_metadata(blocks[0].name)
    store.remove(blocks[0].name)
    store.write_metadata(blocks[0].name, metadata)
    with pytest.raises(CorruptionError, match="the file does not"):
        Catalog(store).verify(blocks[0].name)


def test_a_block_that_is_not_there_is_not_damage(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        Catalog(store).verify(f"events-7/{1:020d}-{9:020d}-{5:016x}")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'"text"', b"7"],
    ids=["nothing", "half", "list", "empty", "no text", "deep", "text", "number"],
)
def test_metadata_that_is_none_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="there is damaged at byte 0: it is not the metadata"):
        decode_metadata(data, "there")


def test_metadata_of_the_wrong_type_is_damage(store: Store, blocks: list[Block]) -> None:
    found = json.loads(store.read_metadata(blocks[0].name))
    with pytest.raises(CorruptionError, match="member rows is of the wrong type"):
        decode_metadata(json.dumps({**found, "rows": "10"}).encode(), "there")


def test_members_of_a_later_version_are_left_out(store: Store, blocks: list[Block]) -> None:
    found = json.loads(store.read_metadata(blocks[0].name))
    decoded = decode_metadata(json.dumps({**found, "more": [1]}).encode(), "there")
    assert decoded == Catalog(store).read(blocks[0].name)


def test_linking_brings_no_block_back_that_retention_took(
    store: Store, blocks: list[Block]
) -> None:
    """The metadata is read, the block goes, the metadata is written."""
    catalog = Catalog(store)
    metadata = store.read_metadata(blocks[0].name)
    store.remove(blocks[0].name)
    store.write_metadata(blocks[0].name, metadata)
    catalog.link(blocks[0].name, blocks[2].name)
    assert not store.exists(blocks[0].name)


def test_damaged_metadata_keeps_no_other_block_from_being_added(
    store: Store, blocks: list[Block]
) -> None:
    store.write_metadata(blocks[0].name, b"{")
    catalog = Catalog(store)
    catalog.add(blocks[1].name, replace(catalog.read(blocks[1].name), next=""))
    assert store.read_metadata(blocks[0].name) == b"{"
    assert catalog.read(blocks[1].name).next == ""
