from __future__ import annotations

from fjord.engine.group import Counts, read_counts, write_progress
from fjord.index.memory import MemoryIndex
from fjord.jobs import State
from fjord.tables.state import JobCounts, Tree


def test_jobs_come_and_go() -> None:
    counts = Counts({1: JobCounts(5, 1, 0)})
    counts.change(1, 0, 0, State.WAITING, 2)
    counts.change(1, State.WAITING, 3, State.TAKEN, 3)
    counts.change(1, State.TAKEN, 1, 0, 1)
    counts.change(2, 0, 0, State.DEAD, 1)
    assert counts.of(1) == JobCounts(4, 3, 0)
    assert counts.changed == {1: JobCounts(4, 3, 0), 2: JobCounts(0, 0, 1)}
    assert counts.of(3) == JobCounts(0, 0, 0)


def test_what_was_lost_does_not_make_a_count_negative() -> None:
    counts = Counts({})
    counts.change(1, State.TAKEN, 4, 0, 4)
    assert counts.of(1) == JobCounts(0, 0, 0)


def test_counts_are_kept_with_the_index() -> None:
    transaction = MemoryIndex(len(Tree)).begin()
    counts = {1: JobCounts(1, 2, 3), 2**32 - 1: JobCounts(4, 0, 0), -7: JobCounts(5, 9, 0)}
    write_progress(transaction, 1, 0, counts)
    assert read_counts(transaction) == {**counts, -7: JobCounts(5, 0, 0)}
    write_progress(transaction, 2, 0, {1: JobCounts(0, 0, 0), -7: JobCounts(0, 9, 0)})
    write_progress(transaction, 3, 0, {})
    assert read_counts(transaction) == {2**32 - 1: JobCounts(4, 0, 0)}
