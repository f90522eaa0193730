"""The Parquet file of one block: writing it, and reading its footer.

A file is a series of parts (row groups) of a bounded size, so that writing and reading take a
part's memory, however large the block is.  Rows are in the order of their seqs.  Growing numbers
are stored as differences, names as dictionaries, everything is compressed by zstd, and statistics
and page indexes let Spark skip what it does not need.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute
from pyarrow import parquet as pq

from fjord import limits
from fjord.blocks import rows
from fjord.blocks.files import Draft
from fjord.blocks.store import Metadata, Store
from fjord.errors import CorruptionError

VALUE_CRC_MASK: Final = 2**63 - 1
_DICTIONARIES: Final = ["op", "domain", "producer"]
_DIFFERENCES: Final = ("seq", "ts", "txn", "row")
# Values are never searched by their order.
_STATISTICS: Final = [name for name in rows.SCHEMA.names if name != "value"]
# A search for a key reads one wrong part in a hundred.
_KEY_FILTER: Final = {"bloom_filter_options": {"key": {"ndv": limits.BLOCK_PART_ROWS, "fpp": 0.01}}}
# Older versions of pyarrow cannot write filters.
_HAS_FILTERS: Final = _KEY_FILTER.keys() <= inspect.signature(pq.ParquetWriter).parameters.keys()


class Summary(NamedTuple):
    """The statistics of a written file."""

    rows: int
    min_seq: int
    max_seq: int
    min_ts: int
    max_ts: int
    value_crc: int

    @classmethod
    def joined(cls, parts: Sequence[Summary | Metadata]) -> Summary:
        """Returns the summary of rows that follow each other, in parts or in blocks."""
        return cls(
            sum(one.rows for one in parts),
            parts[0].min_seq,
            parts[-1].max_seq,
            min(one.min_ts for one in parts),
            max(one.max_ts for one in parts),
            sum(one.value_crc for one in parts) & VALUE_CRC_MASK,
        )


class BlockWriter:
    """Writes the rows of one block, a part at a time."""

    def __init__(self, draft: Draft, *, has_keys: bool) -> None:
        self._writer = pq.ParquetWriter(
            pa.PythonFile(draft, "w"),
            rows.SCHEMA,
            compression="zstd",
            use_dictionary=_DICTIONARIES,
            column_encoding=dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED"),
            write_statistics=_STATISTICS,
            write_page_index=True,
            write_page_checksum=True,
            # A filter without keys would only cost time.
            **(_KEY_FILTER if has_keys and _HAS_FILTERS else {}),
        )
        self._parts: list[Summary] = []

    def write_part(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Writes one part.

        Assumes that the batches have rows, at most as many as a part may have, in order.
        """
        part = pa.Table.from_batches(batches, rows.SCHEMA)
        self._writer.write_table(part, row_group_size=limits.BLOCK_PART_ROWS)
        moments = compute.min_max(part["ts"].cast(pa.int64())).as_py()
        first, last = part["seq"][0].as_py(), part["seq"][-1].as_py()
        crc = sum(map(_crc_sum, part["value"].chunks))
        written = Summary(part.num_rows, first, last, moments["min"], moments["max"], crc)
        self._parts.append(written)

    def close(self) -> Summary:
        """Writes the footer, and returns the summary of the file."""
        self._writer.close()
        return Summary.joined(self._parts)


def _crc_sum(values: Any) -> int:
    """Returns the sum of the CRC32 of all values; null counts nothing."""
    found = values.drop_null() if values.null_count else values
    return sum(map(zlib.crc32, rows.strings_of(found).rows())) if len(found) else 0


def has_keys(batches: Sequence[pa.RecordBatch]) -> bool:
    """Returns whether any row has a key that is not empty."""
    return any((compute.max(compute.binary_length(batch["key"])).as_py() or 0) for batch in batches)


class Part(NamedTuple):
    """The footer's description of one part."""

    rows: int
    min_seq: int
    max_seq: int
    max_us: int
    op: str  # the op of all of its rows, empty if they differ
    bytes: int  # approximate size of its messages in memory


def opened(store: Store, name: str) -> Any:
    """Opens a block's file, with Arrow itself where possible: faster, with fewer copies.

    Raises:
        FileNotFoundError: if it is not there.
    """
    path = store.local_path(name)
    return store.open(name) if path is None else pa.OSFile(path)


def read_footer(file: Any) -> tuple[Any, list[Part]]:
    """Returns the footer of a file, as pyarrow has it, and its parts.

    Assumes that its checksum was verified.
    """
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return metadata, [_part(group) for group in groups]


_POSITIONS: Final = [rows.SCHEMA.names.index(name) for name in ("seq", "ts", "op")]
# Numbers and offsets that the differences do not include: seq, ts, type and two strings.
_ROW_BYTES: Final = 8 + 8 + 1 + 4 + 4


def _part(group: Any) -> Part:
    seq, moment, op = (group.column(position).statistics for position in _POSITIONS)
    return Part(
        rows=group.num_rows,
        min_seq=seq.min,
        max_seq=seq.max,
        max_us=moment.max_raw,
        op=op.max if op.max == op.min else "",
        bytes=group.total_byte_size + group.num_rows * _ROW_BYTES,
    )


def read_part(file: Any, footer: Any, number: int, columns: Sequence[str], path: str) -> pa.Table:
    """Returns some columns of one part; names of ops are dictionaries.

    Raises:
        CorruptionError: if the checksum of a page is wrong; names `path`.
    """
    try:
        source = pq.ParquetFile(
            file,
            metadata=footer,
            read_dictionary=["op"],
            pre_buffer=False,
            buffer_size=limits.MIB,  # a column is not read as a whole before it is decoded
            page_checksum_verification=True,
        )
        return source.read_row_group(number, columns=list(columns), use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk, not the bytes
        raise CorruptionError(path, 0, f"a part of it cannot be read ({error})") from error
