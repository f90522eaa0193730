"""What an op says of dates to come: when something expires, when leases end, when jobs are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fjord.columns import Strings
from fjord.jobs import SLOW_FROM
from fjord.ops import Op
from fjord.tables.jobs import layout
from fjord.tables.jobs.lanes import Lane
from fjord.tables.meaning import MEANING
from fjord.tables.state import Tree


def schedule_of(op: Op) -> tuple[Tree, int] | None:
    """Returns in which tree an op has put a date, and the earliest one; None if in none."""
    due = MEANING[op.opcode].due
    if due is None:
        return None
    tree, name = due
    column = op.column(name)
    if isinstance(column, Strings):
        column = [layout.expiry_of(image) for image in column.rows()]
    earliest = _earliest(column)
    return None if earliest is None else (tree, earliest)


def _earliest(dates: Sequence[int]) -> int | None:
    if len(dates) == 1:
        return dates[0] or None
    return min((date for date in dates if date), default=None) if any(dates) else None


class Arrival(NamedTuple):
    """Jobs that began to wait, or wait otherwise."""

    rows: int
    first_us: int  # the earliest process date

    def joined(self, other: Arrival) -> Arrival:
        return Arrival(self.rows + other.rows, min(self.first_us, other.first_us))


def arrival_of(op: Op) -> Arrival:
    """Returns what an op lets wait."""
    dates = op.column("process_at_us")
    assert not isinstance(dates, Strings)
    return Arrival(op.rows, dates[0] if op.rows == 1 else min(dates))


def lanes_of(op: Op) -> Iterator[tuple[Lane, int]]:
    """Yields lane and process date of the jobs that an op lets wait."""
    places: Iterator[tuple[int, int, int]]
    if "lane" in op.opcode.position:
        places = zip(*map(op.column, ("lane", "priority", "process_at_us")), strict=True)
    else:
        images = op.column("image")
        assert isinstance(images, Strings)
        places = (layout.PLACE.unpack_from(image)[:3] for image in images.rows())
    for lane, priority, date_us in places:
        yield (lane, priority >= SLOW_FROM), date_us
