"""The file of a block: how columns are stored, and what its footer says of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from fjord.blocks import parquet, rows
from fjord.blocks.store import Store
from fjord.errors import CorruptionError
from tests.unit.blocks import scans, sealed

NAME = f"events-7/{1:020d}-{9:020d}-{5:016x}"


def batch_of(found: Sequence[bytes], *, key: bytes = b"k", first_seq: int = 1) -> pa.RecordBatch:
    op = sealed.append(found, keys=[key] * len(found))
    (batch,) = rows.record_batches([scans.piece([op], first_seq)], 1, 1_000_000)
    return batch


def write(store: Store, *parts: list[pa.RecordBatch]) -> parquet.Summary:
    draft = store.draft(NAME)
    writer = parquet.BlockWriter(draft, has_keys=parquet.has_keys(parts[0]))
    for part in parts:
        writer.write_part(part)
    summary = writer.close()
    draft.keep(NAME)
    draft.drop()
    return summary


def footer_of(store: Store) -> Any:
    with store.open(NAME) as file:
        return pq.read_metadata(file)


def columns_of(store: Store) -> dict[str, Any]:
    group = footer_of(store).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column for column in columns}


def test_columns_are_stored_for_what_they_hold(store: Store) -> None:
    write(store, [batch_of(sealed.messages(1000))])
    columns = columns_of(store)
    assert list(columns) == rows.SCHEMA.names
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    for name in ("seq", "ts", "txn", "row"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
    for name in ("op", "domain", "producer"):
        assert "RLE_DICTIONARY" in columns[name].encodings
    for name in ("key", "value"):
        assert "RLE_DICTIONARY" not in columns[name].encodings


def test_statistics_and_page_indexes_let_readers_skip(store: Store) -> None:
    write(store, [batch_of(sealed.messages(1000))])
    columns = columns_of(store)
    assert (columns["seq"].statistics.min, columns["seq"].statistics.max) == (1, 1000)
    assert columns["key"].statistics.max == b"k"
    assert columns["ts"].statistics.has_min_max
    assert columns["value"].statistics is None or not columns["value"].statistics.has_min_max
    assert columns["seq"].has_offset_index
    assert columns["seq"].has_column_index


def test_empty_keys_are_no_keys() -> None:
    assert parquet.has_keys([batch_of([b"x"], key=b""), batch_of([b"x"])])
    assert not parquet.has_keys([batch_of([b"x"], key=b"")])


def test_the_footer_says_what_parts_hold(store: Store) -> None:
    mixed = scans.piece([sealed.append([b"x"]), scans.kv_delete(b"k")], 20)
    (both,) = rows.record_batches([mixed], 1, 100)
    write(store, [batch_of([b"a", b"b"], first_seq=5)], [both])
    with store.open(NAME) as file:
        _, (one, two) = parquet.read_footer(file)
    assert (one.rows, one.min_seq, one.max_seq, one.op) == (2, 5, 6, "APPEND")
    assert (two.rows, two.min_seq, two.max_seq, two.op) == (2, 20, 21, "")
    assert one.max_us == scans.WALL_US
    assert two.max_us == scans.WALL_US + 1


def test_some_columns_of_one_part_are_read(store: Store) -> None:
    write(store, [batch_of([b"a", b"b"])], [batch_of([b"c"], first_seq=3)])
    with store.open(NAME) as file:
        footer, _ = parquet.read_footer(file)
        found = parquet.read_part(file, footer, 1, ["seq", "value"], "there")
    assert found.to_pylist() == [{"seq": 3, "value": b"c"}]


def test_a_page_that_is_damaged_is_met(store: Store) -> None:
    write(store, [batch_of(sealed.messages(10))])
    value = columns_of(store)["value"]
    with store.open(NAME) as file:
        footer, _ = parquet.read_footer(file)
        data = bytearray(file.seek(0) or file.read())
    data[value.data_page_offset + value.total_compressed_size - 1] ^= 1
    with pytest.raises(CorruptionError, match="a part of it cannot be read"):
        parquet.read_part(pa.BufferReader(bytes(data)), footer, 0, ["value"], "there")


def test_keys_that_are_there_have_a_filter(store: Store) -> None:
    found = sealed.messages(10_000)
    op = sealed.append(found, keys=found)
    batches = list(rows.record_batches([scans.piece([op])], 1, 1_000_000))
    sizes = []
    for has_keys in (True, False):
        draft = store.draft(NAME)
        writer = parquet.BlockWriter(draft, has_keys=has_keys)
        writer.write_part(batches)
        writer.close()
        sizes.append(draft.size)
        draft.drop()
    assert sizes[0] > sizes[1] + 10_000  # some bits for each key
