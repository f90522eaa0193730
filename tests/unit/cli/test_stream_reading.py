"""Reading streams to an end, for ever, or only the last of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord.cli import stream as stream_reading
from fjord.cli.arguments import Node
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


def test_what_comes_is_followed_behind_the_end(stream: fjord.Stream) -> None:
    followed = stream_reading.batches(stream.reader(), count=11, wait=None, follow=True)
    seen = []
    for batch in followed:
        seen += [message.value for message in batch]
        if len(seen) == 10:
            stream.append("new")
    assert seen == [*range(10), "new"]


@pytest.mark.parametrize("count", [0, 1, 3, 9, 10, 11, 1000])
def test_the_last_are_found(db: fjord.Database, stream: fjord.Stream, count: int) -> None:
    db.kv("other").set_many({f"k{number}": number for number in range(100)})
    found, end_seq = stream_reading.last(stream, count)
    assert [one.value for one in found] == list(range(10))[10 - min(count, 10) :]
    seq = stream.append("new")
    assert [one.seq for one in stream.read(after=end_seq)] == [seq]


def test_a_tombstone_is_shown_as_one(
    db: fjord.Database, capsys: pytest.CaptureFixture[str]
) -> None:
    latest = db.create_stream("latest", mode="latest")
    latest.append_many([1, "two\n"], keys=["a", "b"])
    latest.delete("a")
    (two, gone) = latest.read().messages
    stream_reading.print_messages(Node(), [two, gone], follow=False)
    stream_reading.print_messages(Node(), [gone], follow=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[2:] for line in lines] == [
        ["b", "string", r"two\n"],
        ["a", "deleted", ""],
        ["a", "deleted", ""],
    ]
    stream_reading.print_messages(Node(as_json=True), [two, gone], follow=False)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["type"], one["deleted"]) for one in told] == [("string", False), (None, True)]
    assert told[0]["at"] == two.at.isoformat()
