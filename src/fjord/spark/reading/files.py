"""Files of blocks, as tasks of Spark open them: Parquet, from wherever fsspec can reach.

A file is checked before it is read: it must be as long as the node says, and have as many rows.
Its pages carry checksums, which are compared as they are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from fjord.blocks import parquet
from fjord.blocks.store import Store
from fjord.client.stream_calls import BlockInfo
from fjord.errors import CorruptionError, FjordError


class MissingBlockError(FjordError):
    """A block is not where it should be."""


@contextlib.contextmanager
def opened(block: BlockInfo, blocks: str = "") -> Iterator[Any]:
    """Opens the file of a block, as a `ParquetFile`.

    Args:
        block: as the node knows it.
        blocks: where blocks are, if not where the node says.

    Raises:
        MissingBlockError: if it is not there.
        CorruptionError: if it is another file than the node means, or damaged.
    """
    store = Store(blocks or block.location)
    path = store.path(block.name)
    try:
        size = store.size(block.name)
        source = parquet.opened(store, block.name)
    except FileNotFoundError as error:
        raise MissingBlockError(
            f"this machine does not see the block {path}. If it is there, but elsewhere for the "
            "machines that run Spark, say where with the option blocks"
        ) from error
    with contextlib.closing(source):
        if size != block.bytes:
            reason = f"it has {size} bytes, and the node says {block.bytes}"
            raise CorruptionError(path, min(size, block.bytes), reason)
        try:
            with pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True) as file:
                if file.metadata.num_rows != block.rows:
                    reason = f"it has {file.metadata.num_rows} rows, not {block.rows}"
                    raise CorruptionError(path, 0, reason)
                yield file
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk or the network, not the bytes
            raise CorruptionError(path, 0, f"it cannot be read as Parquet ({error})") from error
