"""State in memory only: values with persist=0, locks, and what is derived from the index.

A group may be refused after some of its commands have changed this; the changes are then undone.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, Generic, TypeVar

from sortedcontainers import SortedList  # type: ignore[import-untyped]

from fjord import limits
from fjord.index import Transaction
from fjord.layouts import Items
from fjord.ops import Op
from fjord.tables.generations import Generations
from fjord.tables.jobs.keep import taken_keys_of
from fjord.tables.jobs.lanes import Lanes
from fjord.tables.kv.decide import linked_of
from fjord.tables.state import JobCounts, Moment, Table, Tree, VolatileValue, volatile_bytes

Held = TypeVar("Held")
Learned = TypeVar("Learned")
Tables = Mapping[str, Table]  # by name
# Keys of finished jobs are kept up to this number, plus the number of taken jobs.
_DONE_MAX = 10_000
NO_JOBS: Final = JobCounts()


def job_stats(counts: Mapping[int, JobCounts]) -> dict[str, int]:
    """Returns how many jobs all tables have together; ids below 0 are generations."""
    tables = [one for id_, one in counts.items() if id_ > 0]
    waiting, taken, dead = map(sum, zip(NO_JOBS, *tables, strict=True))
    return {"jobs_waiting": waiting, "jobs_taken": taken, "jobs_dead": dead}


class _Undoable(Generic[Held]):
    """A map from index keys whose last changes can be undone."""

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, Held | None]] = []  # of the group, with the previous values

    def change(self, changes: Mapping[bytes, Held | None]) -> None:
        """Stores values under their keys; None removes one."""
        for key, value in changes.items():
            self.changes.append((key, self._put(key, value)))

    def undo(self, mark: int = 0) -> None:
        """Undoes the changes of the group after a mark."""
        while len(self.changes) > mark:
            self._put(*self.changes.pop())

    def _put(self, key: bytes, value: Held | None) -> Held | None:
        """Changes one entry; returns the previous value."""
        raise NotImplementedError


class Volatile(_Undoable[VolatileValue]):
    """Values with persist=0."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[bytes, VolatileValue] = {}
        self.bytes = 0
        self._ordered = SortedList()

    def between(self, start: bytes, stop: bytes | None, limit: int) -> list[bytes]:
        """Returns up to `limit` keys in order from `start` to before `stop`."""
        found = self._ordered.irange(start, stop, inclusive=(True, False))
        return list(islice(found, limit))

    def _put(self, key: bytes, value: VolatileValue | None) -> VolatileValue | None:
        old = self.values.pop(key, None)
        if value is not None:
            self.values[key] = value
            self.bytes += volatile_bytes(key, value)
            if old is None:
                self._ordered.add(key)
        if old is not None:
            self.bytes -= volatile_bytes(key, old)
            if value is None:
                self._ordered.remove(key)
        return old


class Locks(_Undoable[int]):
    """The locks; each lives with the connection of its client."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[bytes, int] = {}
        self._held: dict[int, set[bytes]] = {}  # by client

    def release(self, client: int) -> None:
        """Releases the locks of a client that is gone."""
        for key in self._held.pop(client, ()):
            del self.holders[key]

    def _put(self, key: bytes, value: int | None) -> int | None:
        old = self.holders.pop(key, None)
        if old is not None:
            self._held[old].discard(key)
        if value is not None:
            self.holders[key] = value
            self._held.setdefault(value, set()).add(key)
        return old


class _Learned(Generic[Learned]):
    """Data derived from tables, read from the index when it is first asked for.

    It is updated from the ops as they are applied, and forgotten if those are undone.
    """

    def __init__(self) -> None:
        self._tables: dict[int, Learned] = {}
        self.changes: list[int] = []  # tables changed by the current group

    def _learn(self, table: int, known: Learned) -> Learned:
        self._tables[table] = known
        self.changes.append(table)
        return known

    def retain(self, tables: Collection[int]) -> None:
        """Forgets all other tables; they were dropped."""
        self._tables = {table: known for table, known in self._tables.items() if table in tables}

    def undo(self, mark: int = 0) -> None:
        """Forgets the tables that the group has changed after a mark."""
        for table in self.changes[mark:]:
            self._tables.pop(table, None)
        del self.changes[mark:]


class TakenKeys(_Learned[dict[bytes, int]]):
    """The keys of taken jobs, for tables that merge: hash of the key -> xid.

    Finished jobs stay until there are too many: the caller checks whether an xid still exists.
    """

    def of(self, table: int, taken: int) -> dict[bytes, int] | None:
        """Returns the keys of a table with so many taken jobs; None if they have to be read."""
        known = self._tables.get(table)
        most = 2 * taken + _DONE_MAX if taken else 0
        return None if known is None or len(known) > most else known

    def learn(self, table: int, keys: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
        return self._learn(table, dict(keys))

    def note(self, op: Op, seq: int) -> None:
        """Records taken jobs, if the table is known; else it is read from the index later."""
        known = self._tables.get(op.table)
        if known is not None:
            known.update(taken_keys_of(op, seq))
            self.changes.append(op.table)


class LinkedKeys(_Learned[dict[bytes, list[bytes]]]):
    """The further keys of values, by the key that they lead to; some may be out of date."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[int, int] = {}  # how many further keys are known, by table

    def of(self, table: int) -> Mapping[bytes, Sequence[bytes]] | None:
        return self._tables.get(table)

    def learn(
        self, table: int, links: Iterable[tuple[bytes, bytes]]
    ) -> Mapping[bytes, Sequence[bytes]]:
        self._rows[table] = 0
        known = self._learn(table, {})
        self._add(table, known, links)
        return known

    def note(self, op: Op) -> None:
        """Records new further keys, if those of the table are known."""
        known = self._tables.get(op.table)
        if known is not None:
            self.changes.append(op.table)
            self._add(op.table, known, linked_of(op))

    def _add(
        self, table: int, known: dict[bytes, list[bytes]], links: Iterable[tuple[bytes, bytes]]
    ) -> None:
        for target, key in links:
            known.setdefault(target, []).append(key)
            self._rows[table] += 1
        if self._rows[table] > limits.LINKS_MAX:
            del self._tables[table]  # too many to keep: they are read again when needed


class Memory:
    """The state of an engine beside its index."""

    def __init__(self) -> None:
        self.volatile = Volatile()
        self.locks = Locks()
        self.lanes = Lanes()
        self.taken_keys = TakenKeys()
        self.linked_keys = LinkedKeys()
        self.undoable: tuple[Any, ...] = (
            self.volatile,
            self.locks,
            self.lanes,
            self.taken_keys,
            self.linked_keys,
        )
        self.counts: dict[int, JobCounts] = {}  # of jobs, by table
        self.generations: Generations = {}  # of tables with a period
        self.given_back_seq = 0  # the space before it is returned to the disk
        self.is_secure = False  # data is overwritten before it is removed
        self.deaths: collections.Counter[int] = collections.Counter()  # since the start, by table
        self.snapshots: Mapping[int, Moment] = {}  # the open ones, the oldest first
        self.location = ""  # where cold blocks are

    def retain(self, tables: Tables) -> None:
        """Forgets derived data of all other tables; they were dropped."""
        left = {table.id for table in tables.values()}
        self.lanes.retain(left)
        self.taken_keys.retain(left)
        self.linked_keys.retain(left)

    def marks(self) -> list[int]:
        """Returns the current point of the group, for `undo`."""
        return [len(part.changes) for part in self.undoable]

    def undo(self, marks: Iterable[int] = repeat(0)) -> None:
        """Returns to a point of the group, or to its beginning."""
        for part, mark in zip(self.undoable, marks, strict=False):
            part.undo(mark)

    def stats(self) -> dict[str, int]:
        return {
            "volatile_values": len(self.volatile.values),
            "volatile_bytes": self.volatile.bytes,
            "locks": len(self.locks.holders),
            "snapshots": len(self.snapshots),
            **job_stats(self.counts),
        }


# -- index writes collected in memory, to be written later or dropped -----------------------------
#
# Replay collects the writes of many frames, since apply never reads: only the last write of a key
# counts.  A batch collects those of its commands, and each command sees the previous ones.


TREE_COUNT = len(Tree)


class Gathered:
    """Items to put into the trees, and to delete from them."""

    def __init__(self) -> None:
        self._trees: list[dict[bytes, bytes | None]] = [{} for _ in range(TREE_COUNT)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._trees))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        self._trees[tree].update(items)

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        self._trees[tree].update(dict.fromkeys(keys))

    def write(self, transaction: Transaction) -> None:
        """Writes everything, in the order of the keys."""
        for tree, items in enumerate(self._trees):
            if items:
                gone = sorted(key for key, value in items.items() if value is None)
                kept = sorted((key, value) for key, value in items.items() if value is not None)
                transaction.delete_many(tree, gone)
                transaction.put_many(tree, kept)


class Overlay(Gathered):
    """Collected writes that can be read, on top of their transaction."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self._transaction = transaction

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        items, found = self._trees[tree], self._transaction.get_many(tree, keys)
        if not items:
            return found
        return [items.get(key, below) for key, below in zip(keys, found, strict=True)]

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        items = self._trees[tree]
        # Each deletion here may hide one of the entries below.
        below = self._transaction.scan(tree, start, stop, limit + len(items))
        over = sorted(
            (key, value)
            for key, value in items.items()
            if value is not None and key >= start and (stop is None or key < stop)
        )
        kept = (item for item in below if item[0] not in items)
        return list(heapq.merge(kept, over))[:limit]
