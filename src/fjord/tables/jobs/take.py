"""NEXT: hands out the most important jobs that are due (FJ-28, SJ-28).

One answer never mixes priorities below 200 with slower ones, and slow jobs are handed out only if
no fast one is due (SJ-09).  With fairness by domain, each domain with due jobs gets its turn, so
that a flood of one does not hold up the others (decision 18).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Final, NamedTuple

from fjord import commands, jobs, kinds, limits
from fjord.columns import Strings, repeat
from fjord.errors import Code, CorruptionError, RefusedError
from fjord.jobs import PRIORITY_MAX, SLOW_FROM, Fairness, How, State
from fjord.layouts import JOB_PLACE, JOB_REST, PREFIX_BYTES, end_of
from fjord.ops import Op, Opcode
from fjord.tables import catalog
from fjord.tables.jobs import keep, layout
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.lanes import Lane
from fjord.tables.jobs.layout import PLACE, REST, XID, Lease
from fjord.tables.jobs.rows import Held
from fjord.tables.rules import check_name
from fjord.tables.state import Decision, Table, Tree, View, decides

_SIZE: Final = JOB_REST.picked("size")
_HASH_AT: Final = JOB_REST.span("hash")


@decides(commands.Next)
def decide_next(command: commands.Next, state: View, now_us: int) -> Decision:
    _check_next(command)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_taken(state, []))
    job_rows.check_fairness(command.domain, table)
    settings, taken = jobs.decode_settings(table.settings), state.job_counts(table.id).taken
    if taken >= limits.TAKEN_MAX and not command.done and settings.merge:
        # In tables that merge, the keys of taken jobs are kept in memory, which is bounded.
        text = f"{taken} jobs of table {table.name} are taken already; finish some of them first"
        raise RefusedError(Code.QUOTA, text)
    count = command.count or limits.NEXT_COUNT_MAX
    found = _find(state, table, command.domain, now_us, count)
    gone = [layout.decode_ready(*item) for item in found.expired]
    removal = job_rows.remove_waiting(table.id, gone, How.EXPIRE)
    if not found.items:
        # If many jobs have expired there may be more behind them: ask again at once.
        ends_us = keep.next_end_us(state, table, command.domain, now_us)
        moment_us = now_us if found.is_cut else _earlier(found.next_at_us, ends_us)
        return Decision(_taken(state, [], next_at_us=moment_us or 0), removal)
    try:
        return _hand_out(command, state, table, found.items, removal, now_us)
    except (CorruptionError, OSError):
        return _bury_damaged(state, table, found.items, removal, now_us)


def _check_next(command: commands.Next) -> None:
    if not 0 <= command.count <= limits.NEXT_COUNT_MAX:
        text = f"a count is at most {limits.NEXT_COUNT_MAX}; 0 means the maximum"
        raise RefusedError(Code.BAD_COUNT, text)
    if not 0 <= command.wait_us <= limits.WAIT_US_MAX:
        raise RefusedError(Code.BAD_TIMEOUT, "a wait is at most an hour")
    job_rows.check_lease(command.lease_us)
    job_rows.check_domain(command.domain)
    check_name(command.table)


def next_at_us(state: View, table: Table, domain: bytes, now_us: int) -> int | None:
    """Returns when the next job of a table, or of one domain, may be handed out at the earliest.

    That is its first process date, or the end of a lease (FJ-13); None if there is nothing.
    """
    lane = _lane(table, domain)
    if lane is None:
        first_us = _first_of_lanes(state, table, now_us)
    else:
        first_us = first_date_us(state, table.prefix, lane)
    return _earlier(first_us, keep.next_end_us(state, table, domain, now_us))


def _lane(table: Table, domain: bytes) -> int | None:
    """Returns the requested lane: the only one, that of a domain, or None for all."""
    if jobs.decode_settings(table.settings).fairness is Fairness.NONE:
        return 0
    return layout.lane_of(domain) if domain else None


def _earlier(first_us: int | None, second_us: int | None) -> int | None:
    return min((date for date in (first_us, second_us) if date is not None), default=None)


def _first_of_lanes(state: View, table: Table, now_us: int) -> int | None:
    """Returns the first date of all lanes, and corrects what is known of them."""
    learn(state, table)
    while True:
        first = state.lanes.first(table.id, now_us)
        if first is None:
            return None
        lane, date_us = first
        bands = SLOW if lane[1] else FAST
        is_us = first_date_us(state, table.prefix, lane[0], bands)
        if is_us == date_us:
            return date_us
        state.lanes.correct(table.id, lane, is_us)


def later_us(state: View, table: Table, after_us: int) -> int | None:
    """Returns the first process date after another one.

    In a table with fairness: among the domains that have nothing ready.
    """
    if jobs.decode_settings(table.settings).fairness is Fairness.NONE:
        return first_after_us(state, table.prefix, 0, after_us)
    learn(state, table)
    return state.lanes.later_us(table.id, after_us)


def learn(state: View, table: Table) -> None:
    """Ensures that the lanes of a table are known."""
    if not state.lanes.is_known(table.id):
        state.lanes.learn(table.id, first_dates(state, table.prefix))


# -- which jobs -----------------------------------------------------------------------------------


def _find(state: View, table: Table, domain: bytes, now_us: int, limit: int) -> Due:
    """Returns up to `limit` jobs that are due, in the order of handing out."""
    lane = _lane(table, domain)
    if lane is not None:
        return _find_in_lane(state, table.prefix, lane, now_us, limit)
    learn(state, table)
    expired: list[Item] = []
    for slow in (False, True):
        round_ = _Round(state, table, now_us, slow=slow)
        items = round_.take(limit)
        expired += round_.expired
        if items or round_.is_cut:
            return Due(items, expired, None, is_cut=round_.is_cut)
    return Due([], expired, _first_of_lanes(state, table, now_us) if not expired else now_us)


def _find_in_lane(state: View, prefix: bytes, lane: int, now_us: int, limit: int) -> Due:
    fast = due(state, prefix, lane, FAST, now_us, limit)
    if fast.items or fast.is_cut:
        return fast._replace(items=_bounded(fast.items))
    slow = due(state, prefix, lane, SLOW, now_us, limit)
    next_at_us = _earlier(fast.next_at_us, slow.next_at_us)
    expired = fast.expired + slow.expired
    return Due(_bounded(slow.items), expired, next_at_us, is_cut=slow.is_cut)


class _Round:
    """Takes one job of each lane in turn, in rounds, until there are enough."""

    def __init__(self, state: View, table: Table, now_us: int, *, slow: bool) -> None:
        self._state = state
        self._table = table
        self._now_us = now_us
        self._slow = slow
        self.expired: list[Item] = []
        self.is_cut = False  # too many had expired to examine all lanes

    def take(self, limit: int) -> list[Item]:
        lanes, table_id = self._state.lanes, self._table.id
        turns = lanes.count(table_id, self._now_us, slow=self._slow)
        if not turns:
            return []
        share = -(-limit // turns)
        found: list[tuple[int, list[Item]]] = []
        for _ in range(turns):
            if len(found) >= limit or self.is_cut:  # the next lane comes first next time
                return self._one_of_each(found)
            lane = lanes.take(table_id, self._now_us, slow=self._slow)
            assert lane is not None
            got = self._due(lane[0], share)
            self.expired += got.expired
            self.is_cut = len(self.expired) >= EXPIRED_MAX
            if got.items:
                found.append((lane[0], got.items))
            elif not got.is_cut:
                lanes.correct(table_id, lane, got.next_at_us)
        self._fill_up(found, share, limit)
        return self._in_turn([items for _, items in found], limit)

    def _one_of_each(self, found: list[tuple[int, list[Item]]]) -> list[Item]:
        """Returns as many as fit an answer; the lanes of the others keep their turns."""
        items = _bounded([items[0] for _, items in found])
        for lane, _ in reversed(found[len(items) :]):
            self._state.lanes.put_back(self._table.id, (lane, self._slow))
        return items

    def _due(self, lane: int, limit: int) -> Due:
        bands = SLOW if self._slow else FAST
        return due(self._state, self._table.prefix, lane, bands, self._now_us, limit)

    def _fill_up(self, found: list[tuple[int, list[Item]]], share: int, limit: int) -> None:
        """Takes more from lanes that have more if others had less than their share."""
        while (missing := limit - sum(len(items) for _, items in found)) > 0:
            rich = [at for at, (_, items) in enumerate(found) if len(items) >= share]
            if not rich:
                return
            share += -(-missing // len(rich))
            for at in rich:
                found[at] = (found[at][0], self._due(found[at][0], share).items)

    def _in_turn(self, found: list[list[Item]], limit: int) -> list[Item]:
        """Returns the jobs of the lanes in rotation, and sets whose turn is next."""
        numbered = [[(number, item) for item in items] for number, items in enumerate(found)]
        turns = chain.from_iterable(zip_longest(*numbered))
        taken = list(islice((turn for turn in turns if turn is not None), limit))
        taken = taken[: len(_bounded([item for _, item in taken]))]
        for _ in range(taken[-1][0] + 1 if taken else 0):
            self._state.lanes.take(self._table.id, self._now_us, slow=self._slow)
        return [item for _, item in taken]


def _bounded(items: list[Item]) -> list[Item]:
    """Returns as many jobs as fit an answer, at least one."""
    sizes = [_SIZE.unpack_from(rest)[0] for _, rest in items]
    if sum(sizes) + len(items) * limits.JOB_KEY_BYTES_MAX <= limits.NEXT_BYTES_MAX:
        return items
    total = 0
    for at, (size, (_, rest)) in enumerate(zip(sizes, items, strict=True)):
        total += size + len(rest)
        if total > limits.NEXT_BYTES_MAX and at:
            return items[:at]
    return items


# -- handing out ----------------------------------------------------------------------------------


def _hand_out(
    command: commands.Next,
    state: View,
    table: Table,
    items: list[Item],
    removal: Sequence[Op],
    now_us: int,
) -> Decision:
    settings, count = jobs.decode_settings(table.settings), len(items)
    lease_us = command.lease_us or settings.lease_us
    first_xid = state.next_seq + sum(one.rows for one in removal)
    lease = Lease(state.lease_us + lease_us, lease_us, now_us, int(count == 1))
    overtaking: Sequence[Op] = ()
    if settings.merge:
        overtaking = _overtake(state, table, items, 0 if command.done else first_xid, lease)
    if command.done:
        reply = _taken(state, items)
        rows = [layout.decode_ready(*item) for item in items]
        op = job_rows.remove_waiting(table.id, rows, How.DONE)[0]
    else:
        reply = _taken(state, items, first_xid, now_us + lease_us)
        images = Strings.of([key[PREFIX_BYTES:] + rest for key, rest in items])
        dates = (repeat(lease.deadline_us, count), repeat(lease_us, count), repeat(now_us, count))
        op = Op(Opcode.JOB_TAKE, table.id, count, (*dates, reply.rows, images))
    return Decision(reply, [*removal, op, *overtaking])


def _overtake(
    state: View, table: Table, items: list[Item], first_xid: int, lease: Lease
) -> list[Op]:
    """Returns the op that marks the older of two taken jobs of a key as overtaken (FJ-32).

    The older one has the older client date; if it was pushed late, that is the one just handed out.
    Without a first xid, the jobs handed out are done at once.
    """
    known = state.taken_keys(table.id)
    if not known:
        return []
    hashes = [rest[_HASH_AT] for _, rest in items]
    again = [(at, known[hash_]) for at, hash_ in enumerate(hashes) if hash_ in known]
    keys = [table.prefix + XID.pack(xid) for _, xid in again]
    older, newer = [], []
    for (at, xid), data in zip(again, state.get_many(Tree.JOBS_TAKEN, keys), strict=True):
        if data is None:  # done meanwhile
            continue
        before, row = job_rows.taken(xid, data), layout.decode_ready(*items[at])
        if before.row.key != row.key or before.row.is_overtaken:
            continue
        if before.row.age < row.age:
            older.append(before)
        elif first_xid:
            older.append(Held(State.TAKEN, first_xid + at, row, lease))
            newer.append(before)
    return job_rows.overtake(table.id, older, newer)


def _bury_damaged(
    state: View, table: Table, items: list[Item], removal: Sequence[Op], now_us: int
) -> Decision:
    """Buries jobs whose values are damaged, so that they block nobody.

    The others are handed out to the next request.
    """
    dead, reasons = [], []
    for item in items:
        row = layout.decode_ready(*item)
        try:
            state.payloads([row.pointer])
        except (CorruptionError, OSError) as error:
            dead.append(job_rows.waiting(row))
            reasons.append(str(error).encode()[: limits.REASON_BYTES_MAX])
    burial = job_rows.bury(table.id, dead, reasons, died_us=now_us, how=How.FAIL)
    return Decision(_taken(state, [], next_at_us=now_us), [*removal, *burial])


# The columns of an empty list of jobs.
_NO_PLACES: Final[tuple[tuple[()], ...]] = ((),) * len(JOB_PLACE.codes)
_NO_RESTS: Final[tuple[tuple[()], ...]] = ((),) * len(JOB_REST.codes)


def _taken(
    state: View, items: list[Item], first_xid: int = 0, until_us: int = 0, next_at_us: int = 0
) -> commands.Taken:
    places = [PLACE.unpack_from(key, PREFIX_BYTES) for key, _ in items]
    _, priorities, dates, rows = zip(*places, strict=True) if items else _NO_PLACES
    rests = [REST.unpack_from(rest) for _, rest in items]
    (inserted, updated, expiries, held, _, _, timeouts, types, domain_bytes, segments, offsets,
     sizes, crcs) = zip(*rests, strict=True) if items else _NO_RESTS  # fmt: skip
    tails = [rest[REST.size :] for _, rest in items]
    if any(domain_bytes):
        keys = [tail[size:] for tail, size in zip(tails, domain_bytes, strict=True)]
        domains = [tail[:size] for tail, size in zip(tails, domain_bytes, strict=True)]
    else:
        keys, domains = tails, [b""] * len(tails)
    pointers = list(zip(segments, offsets, sizes, crcs, held, strict=True))
    values = state.payloads(pointers) if pointers else []
    return commands.Taken(
        first_xid=first_xid,
        until_us=until_us,
        next_at_us=next_at_us,
        rows=rows,
        process_at_us=dates,
        inserted_us=inserted,
        updated_us=updated,
        expires_at_us=expiries,
        priorities=bytes(priorities),
        timeouts=bytes(timeouts),
        types=bytes(types),
        keys=Strings.of(keys),
        domains=Strings.of(domains),
        values=Strings.of(values),
    )


# -------------------------------------------------------------------------------------------------
#
# Which jobs are due: by priority, then process date, then row; and when the next one will be.
#
# A *band* is the jobs of one lane and one priority.  They are sorted by date, so its due jobs come
# first, and looking at the first one tells whether there are any: nothing has to be promoted when a
# date is reached, and a million jobs for tomorrow cost nothing (FJ-10, FJ-11).


Item = tuple[bytes, bytes]  # of JOBS_READY

_BAND: Final = JOB_PLACE.picked("lane", "priority", order=">")
_DATE: Final = struct.Struct(">Q")
_EXPIRY_AT: Final = JOB_REST.span("expires_at_us")
_PRIORITY_AT: Final = PREFIX_BYTES + JOB_PLACE.span("priority").start
_DATE_AT: Final = PREFIX_BYTES + JOB_PLACE.span("process_at_us").start
# Up to this many expired jobs at a time are skipped and removed.
EXPIRED_MAX: Final = 20_000
# The priorities that one answer may mix: from, to before.
FAST: Final = (0, SLOW_FROM)
SLOW: Final = (SLOW_FROM, PRIORITY_MAX + 1)
ALL: Final = (0, PRIORITY_MAX + 1)
_NEVER: Final = bytes(8)  # an expiry meaning never


class Due(NamedTuple):
    """The due jobs of a lane or of a table."""

    items: list[Item]
    expired: list[Item]  # that were skipped
    next_at_us: int | None  # the first date of the bands in which nothing is due
    is_cut: bool = False  # too many had expired to examine everything


def due(
    state: View, prefix: bytes, lane: int, priorities: tuple[int, int], now_us: int, limit: int
) -> Due:
    """Returns the first due jobs in order, at most `limit`."""
    items: list[Item] = []
    expired: list[Item] = []
    later: list[int] = []
    for (key, rest), date_us in _bands(state, prefix, lane, priorities):
        if date_us > now_us:
            later.append(date_us)
            continue
        if len(items) + 1 == limit and rest[_EXPIRY_AT] == _NEVER:
            items.append((key, rest))  # the first one is known already
            break
        before = len(items)
        _take_due(state, key, now_us, items, expired, limit)
        if len(expired) >= EXPIRED_MAX:
            return Due(items, expired, None, is_cut=True)
        if len(items) >= limit:
            break
        if len(items) == before:  # everything due has expired
            later += _date_after(state, key, now_us)
    return Due(items, expired, min(later, default=None))


def _take_due(
    state: View, key: bytes, now_us: int, items: list[Item], expired: list[Item], limit: int
) -> None:
    """Adds up to `limit` due jobs of the band that begins with `key`."""
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
    state: View, prefix: bytes, lane: int, priorities: tuple[int, int] = ALL
) -> int | None:
    """Returns the first process date of a lane, due or not."""
    dates = [date_us for _, date_us in _bands(state, prefix, lane, priorities)]
    return min(dates, default=None)


def first_after_us(state: View, prefix: bytes, lane: int, after_us: int) -> int | None:
    """Returns the first process date of a lane after another date."""
    found: list[int] = []
    for (key, _), date_us in _bands(state, prefix, lane, ALL):
        found += [date_us] if date_us > after_us else _date_after(state, key, after_us)
    return min(found, default=None)


def _date_after(state: View, key: bytes, after_us: int) -> list[int]:
    """Returns the first later date of the band of this key; an empty list if there is none."""
    start = key[:_DATE_AT] + _DATE.pack(after_us + 1)
    items = state.scan(Tree.JOBS_READY, start, _end_of_band(key), 1)
    return [_date_us(item[0]) for item in items]


def first_dates(state: View, prefix: bytes) -> Iterator[tuple[Lane, int]]:
    """Yields the first process date of each lane, for its fast and its slow jobs."""
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
    state: View, prefix: bytes, lane: int, priorities: tuple[int, int]
) -> Iterator[tuple[Item, int]]:
    """Yields the first item and the first date of each non-empty band, in order."""
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
