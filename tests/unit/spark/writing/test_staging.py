"""Sending chunks: in order, one under way while the next is made; the first error ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from fjord.errors import Code, RefusedError
from fjord.spark import sink


def test_one_chunk_is_under_way_while_the_next_is_made() -> None:
    log: list[str] = []

    def send(chunk: pa.RecordBatch) -> int:
        log.append(f"sent {chunk['value'][0]}")
        return len(log)

    def chunks() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            log.append(f"made {number}")
            yield pa.record_batch({"value": [number]})

    stages, rows = sink.send_all(send, chunks())
    sent = [entry for entry in log if entry.startswith("sent")]
    assert sent == ["sent 0", "sent 1", "sent 2", "sent 3"]
    assert (len(set(stages)), rows) == (4, 4)
    for number in range(2, 4):  # one that is made waits for the one before the last
        assert log.index(f"sent {number - 2}") < log.index(f"made {number}")


def test_a_chunk_that_is_refused_ends_it() -> None:
    sent: list[int] = []

    def send(chunk: pa.RecordBatch) -> int:
        sent.append(chunk["value"][0].as_py())
        if len(sent) == 2:
            raise RefusedError(Code.DISK_FULL, "no room")
        return len(sent)

    chunks = (pa.record_batch({"value": [number]}) for number in range(10))
    with pytest.raises(RefusedError, match="no room"):
        sink.send_all(send, chunks)
    assert sent == [0, 1]
