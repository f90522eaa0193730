"""Any one call of a disk fails: what an op says that it did is so, and what it refused is not."""

from __future__ import annotations

import contextlib
import errno
from collections import deque

import pytest

from fjord.errors import DurabilityError
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.directory import FOLDER, drained, made_disk, opened

# Files are rotated, packed, rewritten and erased all the time.
SIZES = {"max_memory_size": 150, "default_journal_size": 200, "max_journal_size": 600}


def make(disk: SimDisk, clock: SimClock) -> PersistentQueue:
    return opened(disk, clock, **SIZES, min_journal_compact_delay_ms=0)


class Life:
    """Works with a queue, and knows what must be in it."""

    def __init__(self, disk: SimDisk, clock: SimClock) -> None:
        self.queue = make(disk, clock)
        self.waiting: deque[bytes] = deque()
        self.unsure: bytes | None = None  # of the op that was never answered
        self.refusals = 0

    def work(self) -> None:
        for turn in range(3):
            for number in range(12):
                self._try(self._add, b"%d-%d" % (turn, number) * 5)
            for number in range(12):
                self._try(self._open_and_confirm if number % 3 == 1 else self._remove, b"")
        for number in range(3):
            self._try(self._add, b"last %d" % number)

    def _try(self, act: object, data: bytes) -> None:
        assert callable(act)
        self.unsure = data or (self.waiting[0] if self.waiting else None)
        try:
            act(data)
        except OSError:
            self.refusals += 1  # so it was not done
        self.unsure = None

    def _add(self, data: bytes) -> None:
        assert self.queue.add(data)
        self.waiting.append(data)

    def _remove(self, _: bytes) -> None:
        item = self.queue.remove()
        assert (item.data if item else None) == (self.waiting[0] if self.waiting else None)
        if item:
            self.waiting.popleft()

    def _open_and_confirm(self, _: bytes) -> None:
        item = self.queue.remove(opens=True)
        if item is None:
            assert not self.waiting
            return
        assert item.data == self.waiting[0]
        try:
            assert self.queue.confirm(item.xid)
        except OSError:
            assert self.queue.unremove(item.xid)
            raise
        self.waiting.popleft()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_what_is_refused_has_not_been_done_whichever_call_fails(code: int) -> None:
    kinds: set[str] = set()
    for call in range(1, 2000):
        disk, clock = made_disk(), SimClock()
        begun = len(disk.calls)
        disk.errors = {begun + call: code}
        try:
            life = Life(disk, clock)
        except (OSError, DurabilityError):
            continue
        with contextlib.suppress(DurabilityError):
            life.work()
        if len(disk.calls) < begun + call:
            assert call > 200
            assert {"create", "rename", "write", "remove"} <= kinds
            return
        kinds.add(disk.calls[begun + call - 1])
        disk.process_crash()
        again = drained(make(disk, clock))
        expected = [list(life.waiting)]
        if life.unsure is not None:
            without = [one for one in life.waiting if one != life.unsure]
            expected += [without, [*without, life.unsure]]
        assert again in expected, (call, disk.calls[begun + call - 1])
    raise AssertionError("it never ends")


def test_a_queue_goes_on_with_its_file_when_there_is_no_room_for_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, clock = made_disk(), SimClock()
    queue = make(disk, clock)
    assert all(queue.add(b"%03d" % number * 20) for number in range(2))
    queue.sync()
    before = disk.names(FOLDER)
    # The current file is large enough by now, so this is the first call of a rotation.
    disk.errors = {len(disk.calls) + 1: errno.ENOSPC}
    assert queue.add(b"a")
    assert disk.calls[-2:] == ["create", "write"]
    assert queue.add(b"b")  # it is not tried at every op
    assert disk.names(FOLDER) == before
    assert caplog.messages == ["files of a queue could not be replaced"]
    clock.advance(61)
    assert queue.add(b"c")
    assert queue.stats()["journal_rotations"] == 1
    assert drained(make(disk, clock))[2:] == [b"a", b"b", b"c"]
