"""How many jobs each table has, kept with the index.

    META  "jobs" | table id u32        -> waiting, taken, dead: u64 each
    META  "jobs-of" | generation u32   -> jobs u64, 0, 0

In memory, generations stand among the tables, under their ids with a minus.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from fjord import layouts, limits
from fjord.index import Transaction
from fjord.tables import generations
from fjord.tables.generations import Generations
from fjord.tables.jobs import keep, layout
from fjord.tables.state import Generation, JobCounts, Tree

_KEY: Final = b"jobs"
_GENERATION: Final = b"jobs-of"
_COUNTS = struct.Struct(">QQQ")
NONE: Final = JobCounts()
# Where jobs of generations are counted, whatever their state: those that are there, and, in memory
# only, all that came since the start.
_LIVE: Final = 1
_EVER: Final = 2
_PAGE: Final = 10_000
_COUNTED_MAX: Final = limits.TABLES_MAX * (1 + limits.GENERATIONS_MAX)


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

    def copy(self) -> Counts:
        """Returns counts that do not change with these."""
        found = Counts(self._known)
        found.changed = self.changed.copy()
        return found

    def of(self, table: int) -> JobCounts:
        found = self.changed.get(table)
        return self._known.get(table, NONE) if found is None else found

    def look_at(self, listed: Iterable[Generation]) -> None:
        """Lets generations count as changed, so that they are looked at."""
        self.changed |= {-one.id: self.of(-one.id) for one in listed}

    def forget(self, ids: Iterable[int]) -> None:
        """Counts nothing any more of generations that are gone."""
        self.changed |= dict.fromkeys((-id_ for id_ in ids), NONE)

    def change(self, table: int, before: int, fewer: int, after: int, more: int) -> None:
        """Counts jobs that left a state (jobs.State; 0 = none) and jobs that came to one."""
        counts = [0, *self.of(table)]
        counts[before] -= fewer
        counts[after] += more
        _, waiting, taken, dead = counts
        # What was lost to damage was never counted, so this may ask for too much.
        self.changed[table] = JobCounts(max(0, waiting), max(0, taken), max(0, dead))


def change_rows(
    counts: Counts, listed: Sequence[Generation], rows: Sequence[int], change: int
) -> None:
    """Counts jobs that came to generations of a table, or left them; each counts as waiting."""
    for generation, number in generations.count_by_id(listed, rows).items():
        if change > 0:
            counts.change(-generation, 0, 0, _LIVE, number)
            counts.change(-generation, 0, 0, _EVER, number)
        else:
            counts.change(-generation, _LIVE, number, 0, 0)


def recount(transaction: Transaction, known: Generations) -> dict[int, JobCounts]:
    """Counts the jobs of all generations that are in an index.

    Where one begins is said again when the journal is packed, and then stands behind jobs that
    are in it; so a rebuild cannot count them one after the other.
    """
    found = Counts({})
    for table, listed in known.items():
        found.changed |= dict.fromkeys((-one.id for one in listed), NONE)
        for rows in _rows(transaction, layouts.prefix_of(table)) if listed else ():
            change_rows(found, listed, rows, 1)
    return found.changed


def _rows(transaction: Transaction, prefix: bytes) -> Iterator[list[int]]:
    """Yields the rows of all jobs of a table, some at a time."""
    stop = layouts.end_of(prefix)
    for tree in layout.STATES:
        for items in layouts.pages(transaction.scan, tree, prefix, stop, _PAGE):
            yield [layout.row_of(keep.parts(tree, *item)[1]) for item in items]


def of_trees(transaction: Transaction) -> dict[str, int]:
    return {name: transaction.count(tree) for name, tree in _TREES.items()}


def read(transaction: Transaction) -> dict[int, JobCounts]:
    found = {}
    for prefix, sign in ((_KEY, 1), (_GENERATION, -1)):
        items = transaction.scan(Tree.META, prefix, prefix + b"\xff" * 5, _COUNTED_MAX)
        for key, data in items:
            if len(key) == len(prefix) + layouts.PREFIX.size:
                id_ = sign * layouts.PREFIX.unpack_from(key, len(prefix))[0]
                found[id_] = JobCounts._make(_COUNTS.unpack(data))
    return found


def of_tables(counts: Mapping[int, JobCounts]) -> list[JobCounts]:
    """Returns the counts of tables, without those of their generations."""
    return [one for id_, one in counts.items() if id_ > 0]


def write(transaction: Transaction, changed: Mapping[int, JobCounts]) -> None:
    kept: list[tuple[bytes, bytes]] = []
    gone: list[bytes] = []
    for id_, counts in changed.items():
        key = (_KEY if id_ > 0 else _GENERATION) + layouts.prefix_of(abs(id_))
        found = counts if id_ > 0 else JobCounts(counts.waiting)
        if any(found):
            kept.append((key, _COUNTS.pack(*found)))
        else:
            gone.append(key)
    if kept:
        transaction.put_many(Tree.META, kept)
    if gone:
        transaction.delete_many(Tree.META, gone)


def known_of(held: Sequence[int], first_seq: int) -> int:
    """Returns how many rows a journal that begins at this seq has heard of."""
    return sum(seq >= first_seq for seq in held)
