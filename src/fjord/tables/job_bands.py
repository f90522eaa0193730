"""Which jobs are due: by priority, then process date, then row; and when the next one will be.

A *band* is the jobs of one lane and one priority.  They stand in the order of their dates, so its
due jobs come first, and one look at the first of them tells whether there are any: nothing has to
be promoted when a date is reached, and a million jobs for tomorrow cost nothing (FJ-10, FJ-11).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from fjord.jobs import PRIORITY_MAX, SLOW_FROM
from fjord.layouts import JOB_PLACE, JOB_REST, PREFIX_BYTES, end_of
from fjord.tables.state import Lane, State, Tree

Item = tuple[bytes, bytes]  # of JOBS_READY

_BAND: Final = JOB_PLACE.picked("lane", "priority", order=">")
_DATE: Final = struct.Struct(">Q")
_EXPIRY_AT: Final = JOB_REST.span("expires_at_us")
_PRIORITY_AT: Final = PREFIX_BYTES + JOB_PLACE.span("priority").start
_DATE_AT: Final = PREFIX_BYTES + JOB_PLACE.span("process_at_us").start
# Expired jobs are passed over, and removed, up to so many of them at once.
EXPIRED_MAX: Final = 20_000
# The priorities that may be in one answer together: from, to before.
FAST: Final = (0, SLOW_FROM)
SLOW: Final = (SLOW_FROM, PRIORITY_MAX + 1)
ALL: Final = (0, PRIORITY_MAX + 1)
_NEVER: Final = bytes(8)  # an expiry that is none


class Due(NamedTuple):
    """What is due of a lane."""

    items: list[Item]
    expired: list[Item]  # that were passed over
    next_at_us: int | None  # the first date of the bands in which nothing is due
    is_cut: bool = False  # so much had expired that not all was looked at


def due(
    state: State, prefix: bytes, lane: int, priorities: tuple[int, int], now_us: int, limit: int
) -> Due:
    """Returns the first jobs that are due, at most `limit`, in order."""
    items: list[Item] = []
    expired: list[Item] = []
    later: list[int] = []
    for (key, rest), date_us in _bands(state, prefix, lane, priorities):
        if date_us > now_us:
            later.append(date_us)
            continue
        if len(items) + 1 == limit and rest[_EXPIRY_AT] == _NEVER:
            items.append((key, rest))  # the one that is asked for is known already
            break
        before = len(items)
        _take_due(state, key, now_us, items, expired, limit)
        if len(expired) >= EXPIRED_MAX:
            return Due(items, expired, None, is_cut=True)
        if len(items) >= limit:
            break
        if len(items) == before:  # all that is due has expired
            start = key[:_DATE_AT] + _DATE.pack(now_us + 1)
            following = state.scan(Tree.JOBS_READY, start, _end_of_band(key), 1)
            later += [_date_us(item[0]) for item in following]
    return Due(items, expired, min(later, default=None))


def _take_due(
    state: State, key: bytes, now_us: int, items: list[Item], expired: list[Item], limit: int
) -> None:
    """Adds what is due of a band, which begins with `key`, up to `limit`."""
    start, stop = key, key[:_DATE_AT] + _DATE.pack(now_us + 1)
    while len(items) < limit and len(expired) < EXPIRED_MAX:
        wanted = limit - len(items)
        found = state.scan(Tree.JOBS_READY, start, stop, wanted)
        over: list[Item] = []
        if [rest[_EXPIRY_AT] for _, rest in found].count(_NEVER) < len(found):
            over = [item for item in found if 0 < _expiry_us(item) <= now_us]
        if over:
            expired += over
            gone = {item[0] for item in over}
            items += [item for item in found if item[0] not in gone]
        else:
            items += found
        if len(found) < wanted:
            return
        start = found[-1][0] + b"\0"


def first_date_us(
    state: State, prefix: bytes, lane: int, priorities: tuple[int, int] = ALL
) -> int | None:
    """Returns the first process date of a lane, due or not."""
    dates = [date_us for _, date_us in _bands(state, prefix, lane, priorities)]
    return min(dates, default=None)


def first_after_us(state: State, prefix: bytes, lane: int, after_us: int) -> int | None:
    """Returns the first process date of a lane that is later than another one."""
    found = []
    for (key, _), date_us in _bands(state, prefix, lane, ALL):
        if date_us <= after_us:
            start = key[:_DATE_AT] + _DATE.pack(after_us + 1)
            items = state.scan(Tree.JOBS_READY, start, _end_of_band(key), 1)
            found += [_date_us(item[0]) for item in items]
        else:
            found.append(date_us)
    return min(found, default=None)


def first_dates(state: State, prefix: bytes) -> Iterator[tuple[Lane, int]]:
    """Yields the first process date of all lanes, of their fast and of their slow jobs."""
    start, stop = prefix, end_of(prefix)
    found: dict[Lane, int] = {}
    last = None
    while items := state.scan(Tree.JOBS_READY, start, stop, 1):
        key = items[0][0]
        lane, priority = _BAND.unpack_from(key, PREFIX_BYTES)
        if lane != last:
            yield from found.items()
            found, last = {}, lane
        place, date_us = (lane, priority >= SLOW_FROM), _date_us(key)
        found[place] = min(date_us, found.get(place, date_us))
        end = _end_of_band(key)
        if end is None:
            break
        start = end
    yield from found.items()


def _bands(
    state: State, prefix: bytes, lane: int, priorities: tuple[int, int]
) -> Iterator[tuple[Item, int]]:
    """Yields the first item and the first date of each band that has any, in order."""
    priority, end = priorities
    stop = end_of(prefix + _BAND.pack(lane, end - 1))
    while priority < end:
        start = prefix + _BAND.pack(lane, priority)
        items = state.scan(Tree.JOBS_READY, start, stop, 1)
        if not items:
            return
        key = items[0][0]
        yield items[0], _date_us(key)
        priority = key[_PRIORITY_AT] + 1


def _expiry_us(item: Item) -> int:
    return int.from_bytes(item[1][_EXPIRY_AT], "little")


def _end_of_band(key: bytes) -> bytes | None:
    return end_of(key[:_DATE_AT])


def _date_us(key: bytes) -> int:
    date_us: int = _DATE.unpack_from(key, _DATE_AT)[0]
    return date_us
