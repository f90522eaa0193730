"""NEXT: the most important jobs that are due are handed out (FJ-28, SJ-28).

One answer never has jobs with priorities below and from 200 up, and the latter come only when none
of the former is due (SJ-09).  With fairness by domain each domain that has something ready gets its
turn, so that a flood of one does not hold up another (decision 18).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, zip_longest
from typing import Final, NamedTuple

from fjord import commands, kinds, limits
from fjord.columns import Strings, repeat
from fjord.commands import Refusal
from fjord.errors import CorruptionError
from fjord.jobs import Fairness, How
from fjord.jobs import State as JobState
from fjord.layouts import JOB_REST, PREFIX_BYTES
from fjord.ops import Op, Opcode
from fjord.tables import catalog, job_bands, job_leases, job_ops, job_row, job_rules
from fjord.tables.job_bands import FAST, SLOW, Item
from fjord.tables.job_finish import held_of
from fjord.tables.job_ops import Held
from fjord.tables.job_row import PLACE, REST, XID, Lease
from fjord.tables.state import Decision, State, Table, Tree, decides

_SIZE: Final = JOB_REST.picked("size")
_HASH_AT: Final = JOB_REST.span("hash")


class _Found(NamedTuple):
    """What may be handed out."""

    items: list[Item]
    expired: list[Item]
    next_at_us: int | None
    is_cut: bool = False  # there may be more behind what has expired


@decides(commands.Next)
def decide_next(command: commands.Next, state: State, now_us: int) -> Decision:
    problem = job_rules.next_problem(command)
    if problem is not None:
        return Decision(problem)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return Decision(_nothing(None))
    problem = job_rules.fairness_problem(command.domain, table)
    if problem is not None:
        return Decision(problem)
    problem = job_rules.taken_problem(command, table, state.job_counts(table.id).taken)
    if problem is not None:
        return Decision(problem)
    count = command.count or limits.NEXT_COUNT_MAX
    found = _find(state, table, command.domain, now_us, count)
    gone = [job_row.decode_ready(*item) for item in found.expired]
    removal = job_ops.remove_waiting(table.id, gone, How.EXPIRE)
    if not found.items:
        # Where much has expired there may be more behind it: ask again at once.
        ends_us = job_leases.next_end_us(state, table, command.domain, now_us)
        moment_us = now_us if found.is_cut else _earlier(found.next_at_us, ends_us)
        return Decision(_nothing(moment_us), removal)
    try:
        return _hand_out(command, state, table, found.items, removal, now_us)
    except (CorruptionError, OSError):
        return _bury_damaged(state, table, found.items, removal, now_us)


def next_at_us(state: State, table: Table, domain: bytes, now_us: int) -> int | None:
    """Returns when the next job of a table, or of a domain of it, may be handed out, or could be.

    That is its first process date, or the end of a lease (FJ-13); None if there is nothing.
    """
    ends_us = job_leases.next_end_us(state, table, domain, now_us)
    return _earlier(_first_date_us(state, table, domain, now_us), ends_us)


def _earlier(first_us: int | None, second_us: int | None) -> int | None:
    return min((date for date in (first_us, second_us) if date is not None), default=None)


def _first_date_us(state: State, table: Table, domain: bytes, now_us: int) -> int | None:
    if job_rules.settings_of(table).fairness is Fairness.NONE:
        return job_bands.first_date_us(state, table.prefix, 0)
    if domain:
        return job_bands.first_date_us(state, table.prefix, job_row.lane_of(domain))
    return _first_of_lanes(state, table, now_us)


def _first_of_lanes(state: State, table: Table, now_us: int) -> int | None:
    """Returns the first date of all lanes; what is known of them is corrected on the way."""
    learn(state, table)
    while True:
        first = state.lanes.first(table.id, now_us)
        if first is None:
            return None
        lane, date_us = first
        bands = SLOW if lane[1] else FAST
        is_us = job_bands.first_date_us(state, table.prefix, lane[0], bands)
        if is_us == date_us:
            return date_us
        state.lanes.correct(table.id, lane, is_us)


def later_us(state: State, table: Table, after_us: int) -> int | None:
    """Returns the first process date later than another one.

    Where the table has fairness: of the domains that have nothing ready.
    """
    if job_rules.settings_of(table).fairness is Fairness.NONE:
        return job_bands.first_after_us(state, table.prefix, 0, after_us)
    learn(state, table)
    return state.lanes.later_us(table.id, after_us)


def learn(state: State, table: Table) -> None:
    """Ensures that it is known which lanes of a table have jobs."""
    if not state.lanes.is_known(table.id):
        state.lanes.learn(table.id, job_bands.first_dates(state, table.prefix))


# -- which jobs -----------------------------------------------------------------------------------


def _find(state: State, table: Table, domain: bytes, now_us: int, limit: int) -> _Found:
    """Returns up to `limit` jobs that are due, in the order of handing out."""
    if job_rules.settings_of(table).fairness is Fairness.NONE:
        return _find_in_lane(state, table.prefix, 0, now_us, limit)
    if domain:
        return _find_in_lane(state, table.prefix, job_row.lane_of(domain), now_us, limit)
    learn(state, table)
    expired: list[Item] = []
    for slow in (False, True):
        round_ = _Round(state, table, now_us, slow=slow)
        items = round_.take(limit)
        expired += round_.expired
        if items or round_.is_cut:
            return _Found(items, expired, None, is_cut=round_.is_cut)
    return _Found([], expired, _first_of_lanes(state, table, now_us) if not expired else now_us)


def _find_in_lane(state: State, prefix: bytes, lane: int, now_us: int, limit: int) -> _Found:
    fast = job_bands.due(state, prefix, lane, FAST, now_us, limit)
    if fast.items or fast.is_cut:
        return _Found(_bounded(fast.items), fast.expired, None, is_cut=fast.is_cut)
    slow = job_bands.due(state, prefix, lane, SLOW, now_us, limit)
    next_at_us = _earlier(fast.next_at_us, slow.next_at_us)
    expired = fast.expired + slow.expired
    return _Found(_bounded(slow.items), expired, next_at_us, is_cut=slow.is_cut)


class _Round:
    """One job of each lane in turn, and round again, until there are enough."""

    def __init__(self, state: State, table: Table, now_us: int, *, slow: bool) -> None:
        self._state = state
        self._table = table
        self._now_us = now_us
        self._slow = slow
        self.expired: list[Item] = []
        self.is_cut = False  # so much had expired that not all lanes were looked at

    def take(self, limit: int) -> list[Item]:
        lanes, table_id = self._state.lanes, self._table.id
        turns = lanes.count(table_id, self._now_us, slow=self._slow)
        if not turns:
            return []
        share = -(-limit // turns)
        found: list[tuple[int, list[Item]]] = []
        for _ in range(turns):
            if len(found) >= limit or self.is_cut:  # the next lane is first next time
                return self._one_of_each(found)
            lane = lanes.take(table_id, self._now_us, slow=self._slow)
            assert lane is not None
            got = self._due(lane[0], share)
            self.expired += got.expired
            self.is_cut = len(self.expired) >= job_bands.EXPIRED_MAX
            if got.items:
                found.append((lane[0], got.items))
            elif not got.is_cut:
                lanes.correct(table_id, lane, got.next_at_us)
        self._fill_up(found, share, limit)
        return self._in_turn([items for _, items in found], limit)

    def _one_of_each(self, found: list[tuple[int, list[Item]]]) -> list[Item]:
        """Returns as many as fit one answer; the lanes of the others keep their turns."""
        items = _bounded([items[0] for _, items in found])
        for lane, _ in reversed(found[len(items) :]):
            self._state.lanes.put_back(self._table.id, (lane, self._slow))
        return items

    def _due(self, lane: int, limit: int) -> job_bands.Due:
        bands = SLOW if self._slow else FAST
        return job_bands.due(self._state, self._table.prefix, lane, bands, self._now_us, limit)

    def _fill_up(self, found: list[tuple[int, list[Item]]], share: int, limit: int) -> None:
        """Takes more of the lanes that have more, where others had less than their share."""
        while (missing := limit - sum(len(items) for _, items in found)) > 0:
            rich = [at for at, (_, items) in enumerate(found) if len(items) >= share]
            if not rich:
                return
            share += -(-missing // len(rich))
            for at in rich:
                found[at] = (found[at][0], self._due(found[at][0], share).items)

    def _in_turn(self, found: list[list[Item]], limit: int) -> list[Item]:
        """Returns the jobs one of each lane in turn; the turn after the last one is next."""
        turns = chain.from_iterable(zip_longest(*map(_numbered, range(len(found)), found)))
        taken = list(islice((turn for turn in turns if turn is not None), limit))
        taken = taken[: len(_bounded([item for _, item in taken]))]
        for _ in range(taken[-1][0] + 1 if taken else 0):
            self._state.lanes.take(self._table.id, self._now_us, slow=self._slow)
        return [item for _, item in taken]


def _numbered(number: int, items: list[Item]) -> list[tuple[int, Item]]:
    return [(number, item) for item in items]


def _bounded(items: list[Item]) -> list[Item]:
    """Returns as many jobs as fit one answer, at least one."""
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
    state: State,
    table: Table,
    items: list[Item],
    removal: Sequence[Op],
    now_us: int,
) -> Decision:
    settings, count = job_rules.settings_of(table), len(items)
    lease_us = command.lease_us or settings.lease_us
    first_xid = state.next_seq + sum(one.rows for one in removal)
    lease = Lease(state.lease_us + lease_us, lease_us, now_us, int(count == 1))
    overtaking: Sequence[Op] = ()
    if settings.merge:
        overtaking = _overtake(state, table, items, 0 if command.done else first_xid, lease)
    if command.done:
        reply = _taken(state, items, 0, 0)
        rows = [job_row.decode_ready(*item) for item in items]
        op = job_ops.remove_waiting(table.id, rows, How.DONE)[0]
    else:
        reply = _taken(state, items, first_xid, now_us + lease_us)
        images = Strings.of([key[PREFIX_BYTES:] + rest for key, rest in items])
        columns = (
            repeat(lease.deadline_us, count),
            repeat(lease_us, count),
            repeat(now_us, count),
            reply.rows,
            images,
        )
        op = Op(Opcode.JOB_TAKE, table.id, count, columns)
    return Decision(reply, [*removal, op, *overtaking])


def _overtake(
    state: State, table: Table, items: list[Item], first_xid: int, lease: Lease
) -> list[Op]:
    """Returns the op by which the older jobs are overtaken where keys are taken once more (FJ-32).

    The older one of two is that with the older client's date, which may be the one that is handed
    out just now: it was pushed late.  Without a first xid these are done at once.
    """
    known = state.taken_keys(table.id)
    if not known:
        return []
    hashes = [rest[_HASH_AT] for _, rest in items]
    again = [(at, known[hash_]) for at, hash_ in enumerate(hashes) if hash_ in known]
    keys = [table.prefix + XID.pack(xid) for _, xid in again]
    older, newer = [], []
    for (at, xid), data in zip(again, state.get_many(Tree.JOBS_TAKEN, keys), strict=True):
        if data is None:  # it is done by now
            continue
        before, row = held_of(xid, data), job_row.decode_ready(*items[at])
        if before.row.key != row.key or before.row.is_overtaken:
            continue
        if before.row.age < row.age:
            older.append(before)
        elif first_xid:
            older.append(Held(JobState.TAKEN, first_xid + at, row, lease))
            newer.append(before)
    return job_ops.overtake(table.id, older, newer)


def _bury_damaged(
    state: State, table: Table, items: list[Item], removal: Sequence[Op], now_us: int
) -> Decision:
    """Sends jobs to the dead letters whose values are damaged, so that they hold up nobody.

    The others are handed out to whoever asks next, which may be at once.
    """
    dead, reasons = [], []
    for item in items:
        row = job_row.decode_ready(*item)
        try:
            state.payloads([row.pointer])
        except (CorruptionError, OSError) as error:
            dead.append(job_ops.waiting(row))
            reasons.append(str(error).encode()[: limits.REASON_BYTES_MAX])
    burial = job_ops.bury(table.id, dead, reasons, died_us=now_us, how=How.FAIL)
    return Decision(_nothing(now_us), [*removal, *burial])


def _taken(state: State, items: list[Item], first_xid: int, until_us: int) -> commands.Taken:
    places = [PLACE.unpack_from(key, PREFIX_BYTES) for key, _ in items]
    _, priorities, dates, rows = zip(*places, strict=True)
    (inserted, updated, expiries, held, _, _, timeouts, types, domain_bytes, segments, offsets,
     sizes, crcs) = zip(*[REST.unpack_from(rest) for _, rest in items], strict=True)  # fmt: skip
    tails = [rest[REST.size :] for _, rest in items]
    if any(domain_bytes):
        keys = [tail[size:] for tail, size in zip(tails, domain_bytes, strict=True)]
        domains = [tail[:size] for tail, size in zip(tails, domain_bytes, strict=True)]
    else:
        keys, domains = tails, [b""] * len(tails)
    pointers = list(zip(segments, offsets, sizes, crcs, held, strict=True))
    values = state.payloads(pointers)
    return commands.Taken(
        first_xid=first_xid,
        until_us=until_us,
        next_at_us=0,
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


def _nothing(next_at_us: int | None) -> commands.Taken:
    none = Strings.of([])
    return commands.Taken(
        first_xid=0,
        until_us=0,
        next_at_us=next_at_us or 0,
        rows=(),
        process_at_us=(),
        inserted_us=(),
        updated_us=(),
        expires_at_us=(),
        priorities=b"",
        timeouts=b"",
        types=b"",
        keys=none,
        domains=none,
        values=none,
    )
