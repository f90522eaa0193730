"""Changes as users see them, whatever they come from."""

from __future__ import annotations

from collections import deque

import pytest

from fjord.client.entries import Change, change_reader
from fjord.client.listening import Changes
from fjord.commands import Changed
from fjord.errors import ClosedError
from tests.unit.client.runners import Answering
from tests.unit.client.scripted import NOW_US
from tests.unit.client.shell_calls import Recorder, listen_of


class Prepared:
    """Changes that a test has put there."""

    def __init__(self, *found: bytes) -> None:
        self._found = deque(Changed("t", b"k", 2, value, NOW_US, 0) for value in found)
        self.closed = 0

    def wait(self, timeout: float | None) -> Changed | None:
        if self.closed or (timeout is None and not self._found):
            raise ClosedError
        return self._found.popleft() if self._found else None

    def close(self) -> None:
        self.closed += 1


def changes_of(prepared: Prepared) -> Changes[Change]:
    executor = Answering(Recorder([]).answer, lambda command: prepared)
    return Changes(executor, listen_of(b"k"), change_reader(["k"]))


def test_changes_are_iterated_and_waited_for() -> None:
    changes = changes_of(Prepared(b"1", b"2", b"3"))
    first = next(changes)
    assert (first.key, first.value) == ("k", "1")
    second = changes.wait(5)
    assert second is not None
    assert second.value == "2"
    assert [change.value for change in changes] == ["3"]
    assert changes.wait(0) is None


def test_leaving_the_block_closes_the_listening() -> None:
    prepared = Prepared()
    with changes_of(prepared) as changes:
        assert prepared.closed == 0
    assert prepared.closed == 1
    with pytest.raises(ClosedError):
        changes.wait()
