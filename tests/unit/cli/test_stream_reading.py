"""Reading streams to an end, for ever, or only the last of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord.cli import stream as stream_reading
from fjord.client.blocking.subscribers import Reader


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path) as one:
        yield one


@pytest.fixture
def stream(db: fjord.Database, monkeypatch: pytest.MonkeyPatch) -> fjord.Stream:
    monkeypatch.setattr(stream_reading, "BATCH", 4)
    found = db.stream("s")
    found.append_many(list(range(10)))
    return found


def read(reader: Reader, count: int | None = None) -> list[list[object]]:
    found = stream_reading.batches(reader, count=count, wait=None, follow=False)
    return [[message.value for message in batch] for batch in found]


def test_reading_ends_after_as_many_as_are_wanted(stream: fjord.Stream) -> None:
    assert read(stream.reader(), 6) == [[0, 1, 2, 3], [4, 5]]
    assert read(stream.reader(), 100) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 11, 1000])
def test_the_last_are_found(db: fjord.Database, stream: fjord.Stream, count: int) -> None:
    db.kv("other").set_many({f"k{number}": number for number in range(100)})
    found, end_seq = stream_reading.last(stream, count)
    assert [one.value for one in found] == list(range(10))[10 - min(count, 10) :]
    seq = stream.append("new")
    assert [one.seq for one in stream.read(after=end_seq)] == [seq]
