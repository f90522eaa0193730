"""Which keys and tables are watched, and what of a write concerns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fjord.engine import Engine
from fjord.testing import SimClock
from tests.unit.engine.job_records import push
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import TABLE, delete, open_at, set_command, write


@pytest.fixture
def engine(tmp_path: Path, clock: SimClock) -> Iterator[Engine]:
    engine = open_at(tmp_path, clock)
    yield engine
    engine.abandon()


def written(engine: Engine) -> list[str]:
    return sorted(engine.take_news().written)


def test_tables_are_told_of_only_when_somebody_wants_to_know(
    engine: Engine, clock: SimClock
) -> None:
    assert not engine.watched
    write(engine, clock, {b"key": b"value"})
    assert written(engine) == []
    engine.watched.watch_tables()
    assert engine.watched
    write(engine, clock, {b"key": b"other", b"more": b"value"})
    assert written(engine) == [TABLE]
    assert written(engine) == []
    delete(engine, clock, b"key")
    assert written(engine) == [TABLE]
    assert not engine.take_news().changed  # nobody listens to a key


def test_jobs_and_messages_are_told_of_elsewhere(engine: Engine, clock: SimClock) -> None:
    engine.watched.watch_tables()
    engine.run([push(b"key", now_us=clock.wall_us()), append_command("events", [(b"", b"one")])])
    assert written(engine) == []


def test_keys_are_told_of_beside_tables(engine: Engine, clock: SimClock) -> None:
    engine.watched.watch_tables()
    engine.watched.add(TABLE, b"key")
    write(engine, clock, {b"key": b"value", b"more": b"value"})
    news = engine.take_news()
    assert [change.key for change in news.changed] == [b"key"]
    assert set(news.written) == {TABLE}
    engine.watched.discard(TABLE, b"key")
    write(engine, clock, {b"key": b"again"})
    assert not engine.take_news().changed


def test_values_in_memory_only_are_told_of(engine: Engine, clock: SimClock) -> None:
    engine.watched.watch_tables()
    command = set_command({b"key": b"value"}, timestamp_us=clock.wall_us(), table="other")
    engine.run([replace(command, persist=False)])
    assert written(engine) == ["other"]
