"""Random work on a queue of Kestrel's, with restarts: its sums are true, and tell of every flip."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import names, reader
from fjord.testing import SimClock
from tests.unit.kestrel.directory import FOLDER, QUEUE, made_disk, opened, put, told

VERBS = {
    "add": (0, 60),
    "remove": (1, 4),
    "open": (1, 3),
    "kestrel_2": (0, 60),
    "kestrel_1": (0, 60),
}
VERBS |= dict.fromkeys(("rotate", "rewrite", "close", "crash", "power_cut"), (0, 0))
WORK = st.lists(
    st.one_of([st.tuples(st.just(verb), st.integers(*some)) for verb, some in VERBS.items()]),
    max_size=40,
)


class World:
    """A queue, and those who use its directory."""

    def __init__(self, memory: int, journal: int) -> None:
        self.disk, self.clock = made_disk(), SimClock()
        self.config = {"max_memory_size": memory, "max_journal_size": journal}
        self.start()

    def start(self) -> None:
        sizes: dict[str, Any] = {**self.config, "default_journal_size": 300}
        sizes["min_journal_compact_delay_ms"] = 0
        self.queue = opened(self.disk, self.clock, **sizes)
        assert self.queue.alerts == []

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
        put(self.disk, name, b"\x01" * size)

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
    memory: int, journal: int, work: list[tuple[str, int]], is_closed: bool, place: tuple[int, ...]
) -> None:
    world = World(memory, journal)
    for verb, number in work:
        getattr(world, "do_" + verb)(number)
        world.clock.advance(0.001)
        assert told(world.disk) == []
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
        assert told(world.disk) == [path.rpartition("/")[2]]
