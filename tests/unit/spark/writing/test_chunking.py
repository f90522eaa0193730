"""Chunks of rows: as large as they may be, in order; and their columns as a client takes them."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fjord.blocks import rows as blocks_rows
from fjord.columns import Strings, decode_strings
from fjord.spark import sink

Rows = list[tuple[bytes, bytes, int]]


def batch_of(rows: Rows) -> pa.RecordBatch:
    keys, values, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "number": pa.array(numbers, pa.int64()),
        }
    )


def rows_of(batch: pa.RecordBatch) -> Rows:
    found = batch.to_pydict()
    return list(zip(found["key"], found["value"], found["number"], strict=True))


def size_of(rows: Rows) -> int:
    return sum(len(key) + len(value) for key, value, _ in rows)


def greedy(rows: Rows, rows_max: int, bytes_max: int) -> list[Rows]:
    """Returns what `chunks` should, row by row."""
    found: list[Rows] = []
    for row in rows:
        fits = found and len(found[-1]) < rows_max and size_of([*found[-1], row]) <= bytes_max
        if fits:
            found[-1].append(row)
        else:
            found.append([row])
    return found


@given(
    st.lists(
        st.lists(
            st.tuples(st.binary(max_size=3), st.binary(max_size=12), st.integers(0, 2**63 - 1)),
            max_size=9,
        ),
        max_size=6,
    ),
    st.integers(1, 8),
    st.integers(1, 24),
    st.integers(0, 2),
)
def test_chunks_are_as_large_as_they_may_be(
    batches: list[Rows], rows_max: int, bytes_max: int, cut: int
) -> None:
    # Batches that are parts of others have offsets that do not begin with 0.
    given_ = [batch_of(rows).slice(min(cut, len(rows))) for rows in batches]
    wanted = [row for batch in given_ for row in rows_of(batch)]
    found = list(sink.cut(given_, rows_max=rows_max, bytes_max=bytes_max))
    assert [rows_of(chunk) for chunk in found] == greedy(wanted, rows_max, bytes_max)
    for chunk in found:
        check_columns(chunk)


def check_columns(chunk: pa.RecordBatch) -> None:
    rows = rows_of(chunk)
    for name, expected in (("key", [row[0] for row in rows]), ("value", [row[1] for row in rows])):
        column = blocks_rows.strings_of(chunk[name])
        assert column.rows() == expected
        assert list(column.offsets) == list(accumulate(map(len, expected), initial=0))
        assert bytes(column.encode()) == Strings.of(expected).encode()
        sent, _ = decode_strings(memoryview(column.encode()), 0, len(expected))
        assert sent == column
    assert list(blocks_rows.numbers_of(chunk["number"], "Q")) == [row[2] for row in rows]
