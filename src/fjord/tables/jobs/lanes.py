"""Lanes in memory: which domains of tables with fairness have jobs, and whose turn it is.

Kept from the ops as they are applied, and learned from the index when a table is first asked for.
A date may be too early: what was taken away meanwhile is found out when the lane has its turn.  It
is never too late, also when a group of commands is taken back: then corrections are undone.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable

Lane = tuple[int, bool]  # hash of a domain; whether this is about its slow jobs

# Dates that no longer hold are left in a heap up to so many, and as many again as hold.
_STALE_MAX = 1000


class _Side:
    """The fast jobs of a table, or the slow ones."""

    def __init__(self) -> None:
        self.dates: dict[int, int] = {}  # lane -> first date
        self.ready: OrderedDict[int, None] = OrderedDict()  # in the order of their turns
        self._later: list[tuple[int, int]] = []  # dates and lanes, a heap
        self._now_us = 0  # up to where dates have come

    def lower(self, lane: int, date_us: int) -> None:
        """Takes note of a job."""
        known_us = self.dates.get(lane)
        if known_us is None or date_us < known_us:
            self.dates[lane] = date_us
            if lane not in self.ready:
                self._push(date_us, lane)

    def correct(self, lane: int, date_us: int | None) -> None:
        """Takes note of what a lane really has; one that is still due keeps its turn."""
        if date_us is None:
            self.ready.pop(lane, None)
            self.dates.pop(lane, None)
            return
        self.dates[lane] = date_us
        if date_us > self._now_us:
            self.ready.pop(lane, None)
        if lane not in self.ready:
            self._push(date_us, lane)

    def settle(self, now_us: int) -> None:
        """Makes lanes ready whose date has come, and no others, where the clock was set back."""
        if now_us < self._now_us:
            for lane in [lane for lane in self.ready if self.dates[lane] > now_us]:
                del self.ready[lane]
                self._push(self.dates[lane], lane)
        self._now_us = now_us
        later = self._later
        while later and later[0][0] <= now_us:
            date_us, lane = heapq.heappop(later)
            if self.dates.get(lane) == date_us and lane not in self.ready:
                self.ready[lane] = None

    def first(self, now_us: int) -> tuple[int, int] | None:
        """Returns date and lane of what is ready first, or will be."""
        self.settle(now_us)
        if self.ready:
            lane = next(iter(self.ready))
            return self.dates[lane], lane
        return self.later(now_us)

    def later(self, now_us: int) -> tuple[int, int] | None:
        """Returns the first date of the lanes that are not ready, and its lane."""
        self.settle(now_us)
        later = self._later
        while later:
            date_us, lane = later[0]
            if self.dates.get(lane) == date_us and lane not in self.ready:
                return date_us, lane
            heapq.heappop(later)
        return None

    def _push(self, date_us: int, lane: int) -> None:
        heapq.heappush(self._later, (date_us, lane))
        if len(self._later) > 2 * len(self.dates) + _STALE_MAX:
            self._later = [(at, one) for one, at in self.dates.items() if one not in self.ready]
            heapq.heapify(self._later)


class Lanes:
    """The lanes of all tables with fairness that somebody has asked for."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[_Side, _Side]] = {}  # fast, slow
        # By the group under way: lanes that were corrected, with their dates before, and tables
        # that were learned.
        self.changes: list[tuple[_Side, int, int] | int] = []

    # -- for decide -------------------------------------------------------------------------------

    def is_known(self, table: int) -> bool:
        return table in self._tables

    def learn(self, table: int, dates: Iterable[tuple[Lane, int]]) -> None:
        """Takes the first date of each lane."""
        sides = self._tables[table] = (_Side(), _Side())
        for (lane, slow), date_us in dates:
            sides[slow].lower(lane, date_us)
        self.changes.append(table)

    def take(self, table: int, now_us: int, *, slow: bool) -> Lane | None:
        """Returns the next lane that may have something due, and puts it last."""
        side = self._tables[table][slow]
        side.settle(now_us)
        if not side.ready:
            return None
        lane = next(iter(side.ready))
        side.ready.move_to_end(lane)
        return lane, slow

    def put_back(self, table: int, lane: Lane) -> None:
        """Makes a lane first that was taken, and had no turn."""
        self._tables[table][lane[1]].ready.move_to_end(lane[0], last=False)

    def count(self, table: int, now_us: int, *, slow: bool) -> int:
        """Returns how many lanes may have something due."""
        side = self._tables[table][slow]
        side.settle(now_us)
        return len(side.ready)

    def correct(self, table: int, lane: Lane, date_us: int | None) -> None:
        """Takes note that a lane has nothing due before this date, or nothing at all."""
        side = self._tables[table][lane[1]]
        self.changes.append((side, lane[0], side.dates[lane[0]]))
        side.correct(lane[0], date_us)

    def first(self, table: int, now_us: int) -> tuple[Lane, int] | None:
        """Returns the lane whose turn it is, or else the one with the first date; and its date."""
        found = [(side.first(now_us), slow) for slow, side in enumerate(self._tables[table])]
        dated = [(*first, bool(slow)) for first, slow in found if first is not None]
        if not dated:
            return None
        date_us, lane, slow = min(dated)
        return (lane, slow), date_us

    def later_us(self, table: int, now_us: int) -> int | None:
        """Returns when the next lane has something due that has nothing due now."""
        found = [side.later(now_us) for side in self._tables[table]]
        return min((first[0] for first in found if first is not None), default=None)

    def lanes(self, table: int) -> int:
        """Returns how many lanes have anything."""
        return max((len(side.dates) for side in self._tables.get(table, ())), default=0)

    # -- for the engine ---------------------------------------------------------------------------

    def lower(self, table: int, lane: Lane, date_us: int) -> None:
        """Takes note of a job that waits, if the table is known; else it will be learned."""
        sides = self._tables.get(table)
        if sides is not None:
            sides[lane[1]].lower(lane[0], date_us)

    def retain(self, tables: Collection[int]) -> None:
        """Forgets all other tables: they were dropped."""
        self._tables = {table: sides for table, sides in self._tables.items() if table in tables}

    def undo(self, mark: int = 0) -> None:
        """Goes back to what held before: nothing is later than it is."""
        for change in self.changes[mark:]:
            if isinstance(change, int):
                self._tables.pop(change, None)
            else:
                side, lane, date_us = change
                side.lower(lane, date_us)
        del self.changes[mark:]
