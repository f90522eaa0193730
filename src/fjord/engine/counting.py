"""How many jobs each table has, kept with the index: META "jobs" | table id -> three u64."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from fjord import limits
from fjord.index import Transaction
from fjord.tables.state import JobCounts, Tree

_KEY: Final = b"jobs"
_TABLE = struct.Struct(">I")
_COUNTS = struct.Struct(">QQQ")
NONE: Final = JobCounts()


# What is counted by the index itself.
_TREES: Final = {
    "subscribers": Tree.SUBSCRIBERS,
    "versions": Tree.VERSIONS,  # what is kept for snapshots
    "appends": Tree.STREAM_OPS,  # that are found in the journal
    "blocks": Tree.BLOCKS,
}


class Counts:
    """Counts as they were, and what has changed of them since."""

    def __init__(self, known: Mapping[int, JobCounts]) -> None:
        self._known = known
        self.changed: dict[int, JobCounts] = {}

    def of(self, table: int) -> JobCounts:
        return self.changed.get(table) or self._known.get(table, NONE)

    def change(self, table: int, before: int, fewer: int, after: int, more: int) -> None:
        """Counts jobs that left a state (jobs.State; 0 = none) and jobs that came to one."""
        counts = [0, *self.of(table)]
        counts[before] -= fewer
        counts[after] += more
        # What was lost to damage was never counted, so this may ask for too much.
        self.changed[table] = JobCounts._make(max(0, count) for count in counts[1:])


def of_trees(transaction: Transaction) -> dict[str, int]:
    return {name: transaction.count(tree) for name, tree in _TREES.items()}


def read(transaction: Transaction) -> dict[int, JobCounts]:
    items = transaction.scan(Tree.META, _KEY, _KEY + b"\xff" * 5, limits.TABLES_MAX)
    return {
        _TABLE.unpack_from(key, len(_KEY))[0]: JobCounts._make(_COUNTS.unpack(data))
        for key, data in items
    }


def write(transaction: Transaction, changed: Mapping[int, JobCounts]) -> None:
    if not changed:
        return
    items = [(_KEY + _TABLE.pack(table), counts) for table, counts in changed.items()]
    kept = [(key, _COUNTS.pack(*counts)) for key, counts in items if any(counts)]
    if kept:
        transaction.put_many(Tree.META, kept)
    transaction.delete_many(Tree.META, [key for key, counts in items if not any(counts)])


def known_of(held: Sequence[int], first_seq: int) -> int:
    """Returns how many rows a journal that begins at this seq has heard of."""
    return sum(seq >= first_seq for seq in held)
