"""Who is told of what; how sessions use it is shown in test_own_requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fjord.commands import Changed
from fjord.engine.waits import Listeners
from fjord.server.committer import tell
from fjord.server.sessions import Itself, Origin
from tests.unit.server.peer import Source


class Ear(Itself):
    """Remembers how many messages it was given at a time."""

    def __init__(self) -> None:
        self.pushed: list[int] = []

    def push(self, messages: Sequence[bytes]) -> None:
        self.pushed.append(len(messages))


@pytest.fixture
def keys() -> Source:
    return Source()


def listeners_of(keys: Source) -> Listeners[Origin]:
    return Listeners(keys.as_engine)


def changed(key: bytes, table: str = "t") -> Changed:
    return Changed(table, key, 1, b"v", 5, 0)


def test_all_changes_for_a_listener_are_pushed_at_once(keys: Source) -> None:
    listeners, ear, other = listeners_of(keys), Ear(), Ear()
    listeners.add(ear, 1, "t", [b"a", b"b"])
    listeners.add(other, 1, "t", [b"b"])
    assert tell(listeners.match([changed(b"a"), changed(b"b")])) == 3
    assert (ear.pushed, other.pushed) == ([2], [1])


def test_it_knows_how_many_keys_are_listened_to(keys: Source) -> None:
    listeners, ear = listeners_of(keys), Ear()
    assert listeners.keys == 0
    assert listeners.add(ear, 1, "t", [b"a", b"b"]) == 2
    assert listeners.add(ear, 1, "t", [b"b", b"c"]) == 1
    assert listeners.keys == 3
    assert ear in listeners
    assert listeners.end(ear, 2) is None
    assert listeners.end(ear, 1) == 3
    assert listeners.keys == 0
    assert ear not in listeners
    assert keys.watched.keys == set()
