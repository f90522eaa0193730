"""Random work on a queue of Kestrel's, with restarts: it is what a plain list is.

After every op the files are read as Kestrel reads them, and mean what is in memory.
"""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import config as configs
from fjord.kestrel import reader
from fjord.kestrel.codec import Dialect
from fjord.kestrel.collection import Collection
from fjord.testing import SimClock, SimDisk
from tests.unit.kestrel.vectors import Replayed

FOLDER, QUEUE = "/kestrel", "cars"

WORK = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60)),
        st.tuples(st.just("adds"), st.integers(1, 12)),
        st.tuples(st.just("remove"), st.integers(1, 4)),
        st.tuples(st.just("open"), st.integers(1, 3)),
        st.tuples(st.just("confirm"), st.integers(0, 3)),
        st.tuples(st.just("unremove"), st.integers(0, 3)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=60,
)


def on_disk(disk: SimDisk) -> Replayed:
    """Returns what a reader of the files finds."""
    state = Replayed()
    found = reader.survey(disk, FOLDER, QUEUE)
    for op, _, _ in chain.from_iterable(file.ops() for file in found.files):
        state.apply(op)
    assert [file.broken for file in found.files] == [None] * len(found.files)
    assert (state.missed, state.displaced) == (0, 0)
    return state


class Twins:
    """A queue and its model."""

    def __init__(self, dialect: Dialect, memory: int, journal: int, empty: int) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        given = {
            "maxMemorySize": memory,
            "maxJournalSize": journal,
            "defaultJournalSize": empty,
            "minJournalCompactDelay": 0,
            "dialect": dialect,
        }
        self.config = configs.read({"default": given})
        self.memory = memory
        self.waiting: list[bytes] = []
        self.open: dict[int, bytes] = {}
        self.count = 0
        self.start()

    def start(self) -> None:
        self.queues = Collection(self.disk, FOLDER, self.config, self.clock)
        for xid in sorted(self.open, reverse=True):
            self.waiting.insert(0, self.open.pop(xid))

    def do(self, verb: str, number: int) -> None:
        getattr(self, "do_" + verb)(number)
        assert self.disk.exists(f"{FOLDER}/{QUEUE}") or not self.count
        self.check()

    def do_add(self, size: int) -> None:
        self.count += 1
        data = (b"%d." % self.count) + b"x" * size
        assert self.queues.add(QUEUE, data)
        self.waiting.append(data)

    def do_adds(self, count: int) -> None:
        for _ in range(count):
            self.do_add(30)

    def do_remove(self, count: int) -> None:
        for _ in range(count):
            item = self.queues.remove(QUEUE)
            assert (item and item.data) == (self.waiting.pop(0) if self.waiting else None)

    def do_open(self, count: int) -> None:
        for _ in range(count):
            item = self.queues.remove(QUEUE, opens=True)
            assert (item and item.data) == (self.waiting.pop(0) if self.waiting else None)
            if item:
                assert item.xid not in (0, *self.open)
                self.open[item.xid] = bytes(item.data)

    def do_confirm(self, which: int) -> None:
        xid = self.pick(which)
        assert self.queues.confirm(QUEUE, xid) == (self.open.pop(xid, None) is not None)

    def do_unremove(self, which: int) -> None:
        xid = self.pick(which)
        assert self.queues.unremove(QUEUE, xid) == (xid in self.open)
        if xid in self.open:
            self.waiting.insert(0, self.open.pop(xid))

    def do_flush(self, _: int) -> None:
        self.queues.flush(QUEUE)
        self.waiting.clear()

    def do_close(self, _: int) -> None:
        self.queues.close()
        self.start()

    def do_crash(self, _: int) -> None:
        self.disk.process_crash()
        self.start()

    def pick(self, which: int) -> int:
        """Returns the xid of an open item, or one that nobody has."""
        return [*self.open, 4711][which % (len(self.open) + 1)]

    def check(self) -> None:
        state = on_disk(self.disk)
        assert [bytes(item.data) for item in state.queue] == self.waiting
        assert {xid: bytes(item.data) for xid, item in state.open.items()} == self.open
        stats = self.queues.stats(QUEUE)
        if stats:
            assert stats["items"] == len(self.waiting)
            assert stats["bytes"] == sum(map(len, self.waiting))
            assert stats["open_transactions"] == len(self.open)


@pytest.mark.req("KJ-19")
@given(
    dialect=st.sampled_from(Dialect),
    memory=st.sampled_from([0, 40, 150, 10_000]),
    journal=st.sampled_from([200, 600, 10_000]),
    empty=st.sampled_from([1, 200, 10_000]),
    work=WORK,
)
def test_a_queue_is_a_list(
    dialect: Dialect, memory: int, journal: int, empty: int, work: list[tuple[str, int]]
) -> None:
    twins = Twins(dialect, memory, journal, empty)
    for verb, number in work:
        twins.do(verb, number)
    twins.do_crash(0)
    twins.check()
    assert [item.data for item in iter(lambda: twins.queues.remove(QUEUE), None)] == (twins.waiting)
