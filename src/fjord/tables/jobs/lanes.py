"""Lanes in memory: the domains that have jobs in tables with fairness, and whose turn it is.

Maintained from the ops as they are applied, and read from the index when a table is first asked
for.  A date may be too early: jobs that are gone by then are noticed when the lane has its turn.
It is never too late, even when a group of commands is rolled back: corrections are then undone.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable

Lane = tuple[int, bool]  # hash of a domain; whether this is about its slow jobs

# A heap keeps up to this many outdated dates beyond the number of valid ones.
_STALE_MAX = 1000


class _Side:
    """The fast jobs of a table, or the slow ones."""

    def __init__(self) -> None:
        self.dates: dict[int, int] = {}  # lane -> first date
        self.ready: OrderedDict[int, None] = OrderedDict()  # in the order of their turns
        self._later: list[tuple[int, int]] = []  # dates and lanes, a heap
        self._now_us = 0  # dates up to here have been handled

    def lower(self, lane: int, date_us: int) -> None:
        """Records a job."""
        known_us = self.dates.get(lane)
        if known_us is None or date_us < known_us:
            self.dates[lane] = date_us
            if lane not in self.ready:
                self._push(date_us, lane)

    def correct(self, lane: int, date_us: int | None) -> None:
        """Records the real first date of a lane; one that is still due keeps its turn."""
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
        """Makes exactly those lanes ready whose date has come, even if the clock was set back."""
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
    """The lanes of all tables with fairness that were asked for."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[_Side, _Side]] = {}  # fast, slow
        # Of the current group: corrected lanes with their previous dates, and the ids of tables
        # that were read from the index.
        self.changes: list[tuple[_Side, int, int] | int] = []

    # -- for decide -------------------------------------------------------------------------------

    def is_known(self, table: int) -> bool:
        return table in self._tables

    def learn(self, table: int, dates: Iterable[tuple[Lane, int]]) -> None:
        """Sets the first date of each lane."""
        sides = self._tables[table] = (_Side(), _Side())
        for (lane, slow), date_us in dates:
            sides[slow].lower(lane, date_us)
        self.changes.append(table)

    def take(self, table: int, now_us: int, *, slow: bool) -> Lane | None:
        """Returns the next lane that may have due jobs, and moves it to the end."""
        side = self._tables[table][slow]
        side.settle(now_us)
        if not side.ready:
            return None
        lane = next(iter(side.ready))
        side.ready.move_to_end(lane)
        return lane, slow

    def put_back(self, table: int, lane: Lane) -> None:
        """Moves a lane to the front that was taken but not used."""
        self._tables[table][lane[1]].ready.move_to_end(lane[0], last=False)

    def count(self, table: int, now_us: int, *, slow: bool) -> int:
        """Returns how many lanes may have due jobs."""
        side = self._tables[table][slow]
        side.settle(now_us)
        return len(side.ready)

    def correct(self, table: int, lane: Lane, date_us: int | None) -> None:
        """Records that a lane has nothing due before this date, or nothing at all."""
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
        """Returns when the next lane that has nothing due now will have something."""
        found = [side.later(now_us) for side in self._tables[table]]
        return min((first[0] for first in found if first is not None), default=None)

    def lanes(self, table: int) -> int:
        """Returns how many lanes have jobs."""
        return max((len(side.dates) for side in self._tables.get(table, ())), default=0)

    # -- for the engine ---------------------------------------------------------------------------

    def lower(self, table: int, lane: Lane, date_us: int) -> None:
        """Records a waiting job, if the table is known; else it is read from the index later."""
        sides = self._tables.get(table)
        if sides is not None:
            sides[lane[1]].lower(lane[0], date_us)

    def retain(self, tables: Collection[int]) -> None:
        """Forgets all other tables; they were dropped."""
        self._tables = {table: sides for table, sides in self._tables.items() if table in tables}

    def undo(self, mark: int = 0) -> None:
        """Restores the state at a mark, so that no date is too late."""
        for change in self.changes[mark:]:
            if isinstance(change, int):
                self._tables.pop(change, None)
            else:
                side, lane, date_us = change
                side.lower(lane, date_us)
        del self.changes[mark:]
