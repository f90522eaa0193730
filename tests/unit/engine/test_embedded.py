from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Delete, Entries, Listen
from fjord.engine import Embedded, open_engine
from fjord.errors import ClosedError, Code, RefusedError
from tests.unit.engine.world import TABLE, set_command, settings

WAIT_SECONDS = 10.0


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    embedded = Embedded(open_engine(str(tmp_path)))
    yield embedded
    embedded.close()


def now_us() -> int:
    return settings().clock.wall_us()


def listen(*keys: bytes) -> Listen:
    return Listen(table=TABLE, keys=Strings.of(keys))


def test_a_listener_is_told_of_its_keys_only(embedded: Embedded) -> None:
    listener = embedded.listen(listen(b"a"))
    embedded.execute(set_command({b"a": b"1", b"b": b"2"}, timestamp_us=now_us()))
    change = listener.wait(WAIT_SECONDS)
    assert change is not None
    assert (change.table, change.key, change.value) == (TABLE, b"a", b"1")
    embedded.execute(Delete(table=TABLE, keys=Strings.of([b"a"]), timestamp_us=now_us() + 1))
    change = listener.wait(WAIT_SECONDS)
    assert change is not None
    assert change.type == Entries.MISSING
    assert listener.wait(0) is None


def test_a_closed_listener_ends(embedded: Embedded) -> None:
    listener = embedded.listen(listen(b"a"))
    threading.Thread(target=listener.close).start()
    assert list(listener) == []
    embedded.execute(set_command({b"a": b"1"}, timestamp_us=now_us()))
    with pytest.raises(ClosedError):
        listener.wait(0)


def test_closing_the_database_ends_its_listeners(tmp_path: Path) -> None:
    embedded = Embedded(open_engine(str(tmp_path)))
    listener = embedded.listen(listen(b"a"))
    threading.Thread(target=embedded.close).start()
    assert list(listener) == []


def test_a_listener_that_takes_nothing_is_told_that_it_was_too_slow(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LISTENED_KEYS_MAX", 3)
    listener = embedded.listen(listen(b"a"))
    for number in range(5):
        embedded.execute(set_command({b"a": b"%d" % number}, timestamp_us=now_us() + number))
    taken = [listener.wait(0) for _ in range(3)]
    assert [change.value for change in taken if change] == [b"0", b"1", b"2"]
    with pytest.raises(RefusedError) as refused:
        listener.wait(0)
    assert refused.value.code is Code.SLOW_CONSUMER


def test_what_is_due_is_done_without_being_asked(tmp_path: Path) -> None:
    """The ticker expires a value, and tells its listener, while nobody calls anything."""
    embedded = Embedded(open_engine(str(tmp_path)))
    listener = embedded.listen(listen(b"a"))
    command = set_command({b"a": b"1"}, timestamp_us=now_us())
    command.ttl_us = 50_000
    embedded.execute(command)
    assert listener.wait(WAIT_SECONDS) is not None
    change = listener.wait(WAIT_SECONDS)
    assert change is not None
    assert change.type == Entries.MISSING
    embedded.close()


def test_a_listener_hears_the_last_word_last(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call may be durable, and done, before the first one has told what it did."""
    listener = embedded.listen(listen(b"a"))
    sync, first = embedded._engine.sync, now_us()

    def overtaken() -> int:
        monkeypatch.undo()
        other = threading.Thread(
            target=embedded.execute, args=(set_command({b"a": b"2"}, timestamp_us=first + 1),)
        )
        other.start()
        other.join(WAIT_SECONDS)
        return sync()

    monkeypatch.setattr(embedded._engine, "sync", overtaken)
    embedded.execute(set_command({b"a": b"1"}, timestamp_us=first))
    heard = [listener.wait(WAIT_SECONDS), listener.wait(WAIT_SECONDS)]
    assert [change.value for change in heard if change] == [b"1", b"2"]
