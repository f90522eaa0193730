"""The listener, told of progress as Spark tells it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fjord
from fjord.spark import progress as offsets
from fjord.spark.progress import Offset, ProgressListener, Publication


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path) as one:
        one.create_stream("events").append_many([b"x"] * 10)
        shared = SimpleNamespace(stream=one.stream, close=lambda: None)
        monkeypatch.setattr(fjord, "connect", lambda *_, **__: shared)
        yield one


def progress(*texts: str | None, run: str = "run") -> Any:
    sources = [SimpleNamespace(endOffset=text) for text in texts]
    return SimpleNamespace(progress=SimpleNamespace(sources=sources, runId=run))


def offset(database: fjord.Database, seq: int, *, epoch: int | None = None) -> str:
    (found,) = database.stream("events").subscribers()
    publication = Publication(
        server="fjord://h:1",
        table="events",
        name="spark",
        epoch=found.epoch if epoch is None else epoch,
    )
    return json.dumps(offsets.encode(Offset(seq=seq, publication=publication)))


def test_the_mark_follows_every_batch(database: fjord.Database) -> None:
    subscriber = database.stream("events").subscriber("spark")
    told = ProgressListener()
    for seq in (5, 7, 7, 12):
        told.onQueryProgress(progress(offset(database, seq)))
        assert subscriber.position == seq
    told.onQueryTerminated(SimpleNamespace(runId="run"))
    assert told._marks == {}


def test_other_sources_are_none_of_its_business(database: fjord.Database) -> None:
    subscriber = database.stream("events").subscriber("spark")
    told = ProgressListener()
    plain = json.dumps(offsets.encode(Offset(seq=5)))
    told.onQueryProgress(progress(None, "null", "{}", "5", plain, '{"topic": {"p": 3}, "p": 1}'))
    told.onQueryStarted(None)
    told.onQueryIdle(None)
    told.onQueryTerminated(SimpleNamespace(runId="other"))
    assert subscriber.position == 0


def test_a_query_that_was_overtaken_moves_nothing(database: fjord.Database, caplog: Any) -> None:
    subscriber = database.stream("events").subscriber("spark")
    old = offset(database, 8)
    told = ProgressListener()
    told.onQueryProgress(progress(offset(database, 4)))
    subscriber.seek("beginning")  # as another query does that claims the name
    told.onQueryProgress(progress(old))
    ProgressListener().onQueryProgress(progress(old))
    assert subscriber.position == 0
    assert caplog.text.count("the mark of subscriber spark of events is not moved") == 2


def test_a_session_has_one_listener() -> None:
    added: list[Any] = []
    spark: Any = SimpleNamespace(streams=SimpleNamespace(addListener=added.append))
    offsets.publish_progress(spark)
    offsets.publish_progress(spark)
    assert len(added) == 1
