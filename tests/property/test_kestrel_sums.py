"""Random work on a queue of Kestrel's, with restarts: its sums are true, and tell of every flip."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import inspect, names, reader
from fjord.kestrel.config import QueueConfig
from fjord.kestrel.journal import Journal
from fjord.kestrel.queue import PersistentQueue
from fjord.testing import SimClock, SimDisk

FOLDER, QUEUE = "/kestrel", "cars"

WORK = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 60)),
        st.tuples(st.just("remove"), st.integers(1, 4)),
        st.tuples(st.just("open"), st.integers(1, 3)),
        st.tuples(st.just("rotate"), st.just(0)),
        st.tuples(st.just("rewrite"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("power_cut"), st.just(0)),
        st.tuples(st.just("kestrel_2"), st.integers(0, 60)),
        st.tuples(st.just("kestrel_1"), st.integers(0, 60)),
    ),
    max_size=40,
)


class World:
    """A queue, and those who use its directory."""

    def __init__(self, memory: int, journal: int) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        self.disk.make_directory(FOLDER)
        self.disk.sync_directory("/")
        self.config = QueueConfig(
            max_memory_size=memory,
            max_journal_size=journal,
            default_journal_size=300,
            min_journal_compact_delay_ms=0,
        )
        self.start()

    def start(self) -> None:
        journal = Journal(self.disk, FOLDER, QUEUE, now_ms=lambda: self.clock.wall_us() // 1000)
        self.queue = PersistentQueue(QUEUE, self.config, self.clock, journal)
        assert self.queue.alerts == []

    def told(self) -> list[str]:
        (report,) = inspect.verify([reader.survey(self.disk, FOLDER, QUEUE)])
        return [one.path for one in report.files if one.is_damaged]

    def do_add(self, size: int) -> None:
        assert self.queue.add(b"x" * size)

    def do_remove(self, count: int) -> None:
        for _ in range(count):
            self.queue.remove()

    def do_open(self, count: int) -> None:
        for _ in range(count):
            self.queue.remove(opens=True)

    def do_rotate(self, _: int) -> None:
        self.queue._rotate()

    def do_rewrite(self, _: int) -> None:
        if not self.queue.waiting.is_behind:
            self.queue.rewrite()

    def do_close(self, _: int) -> None:
        self.queue.close()
        self.check_all_summed()
        self.start()

    def do_crash(self, _: int) -> None:
        self.disk.process_crash()
        self.start()

    def do_power_cut(self, _: int) -> None:
        self.queue.sync()
        self.disk.power_cut()
        self.start()

    def do_kestrel_2(self, size: int) -> None:
        """It removes what is temporary when it opens a queue, and may replace any file then."""
        self.disk.process_crash()
        for name in self.disk.names(FOLDER):
            self.disk.remove(f"{FOLDER}/{name}")
            if names.TEMPORARY not in name:
                self.write(name, size)
        self.start()

    def do_kestrel_1(self, size: int) -> None:
        """It knows the current file alone, and leaves all others."""
        self.disk.process_crash()
        known = reader.read_sums(self.disk, FOLDER, QUEUE).get(reader.CURRENT)
        if known is None or known.size != size:  # or else that would be bad luck
            self.disk.remove(f"{FOLDER}/{QUEUE}")
            self.write(QUEUE, size)
        self.start()

    def write(self, name: str, size: int) -> None:
        """Makes a file of removes: they mean nothing to an empty queue."""
        with contextlib.closing(self.disk.open(f"{FOLDER}/{name}", create=True)) as file:
            file.write(0, b"\x01" * size)
            file.sync()

    def check_all_summed(self) -> None:
        known = reader.read_sums(self.disk, FOLDER, QUEUE)
        found = reader.survey(self.disk, FOLDER, QUEUE).files
        assert [one.size for one in found if one.size] == [
            known[number].size for number in sorted(known, key=lambda one: (one < 0, one))
        ]


@given(
    memory=st.sampled_from([60, 200, 10_000]),
    journal=st.sampled_from([300, 10_000]),
    work=WORK,
    is_closed=st.booleans(),
    place=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 7)),
)
def test_sums_are_true_and_every_flip_is_told(
    memory: int,
    journal: int,
    work: list[tuple[str, int]],
    is_closed: bool,
    place: tuple[int, int, int],
) -> None:
    world = World(memory, journal)
    for verb, number in work:
        getattr(world, "do_" + verb)(number)
        world.clock.advance(0.001)
        assert world.told() == []
    if is_closed:
        world.queue.close()
    known = reader.read_sums(world.disk, FOLDER, QUEUE)
    which, at, bit = place
    paths = {one.path: one.sum for one in reader.survey(world.disk, FOLDER, QUEUE).files}
    held = [(path, one) for path, one in paths.items() if one is not None]
    assert len(held) == len(known)
    if held:
        path, summed = held[which % len(held)]
        world.disk.flip_bit(path, at % summed.size, bit)
        assert world.told() == [path]
