"""The memory that sessions share."""

from __future__ import annotations

from fjord.server.sessions import Memory
from fjord.testing import SimClock


class Keeper:
    """Keeps what the test says."""

    def __init__(self) -> None:
        self.kept = 0
        self.looks = 0

    def kept_bytes(self) -> int:
        self.looks += 1
        return self.kept


def test_what_is_kept_counts_beside_requests() -> None:
    memory, keeper = Memory(SimClock(), 100), Keeper()
    memory.used_bytes += 60
    memory.note(keeper.kept_bytes, 30)
    assert not memory.is_exceeded()
    keeper.kept = 50
    memory.note(keeper.kept_bytes, 50)
    assert memory.used_bytes == 110
    assert memory.is_exceeded()
    memory.note(keeper.kept_bytes, 0)
    assert memory.used_bytes == 60


def test_a_keeper_is_looked_at_again_before_anybody_is_refused_but_not_all_the_time() -> None:
    clock = SimClock()
    memory, keeper = Memory(clock, 100), Keeper()
    clock.advance(1)
    keeper.kept = 200
    memory.note(keeper.kept_bytes, 200)
    assert all(memory.is_exceeded() for _ in range(1000))
    assert keeper.looks == 1
    keeper.kept = 0
    clock.advance(1)
    assert not memory.is_exceeded()
