"""NEXT: the most important jobs that are due are handed out (FJ-28, SJ-28).

One answer never has jobs with priorities below and from 200 up, and the latter come only when none
of the former is due (SJ-09).  With fairness by domain each domain that has something ready gets its
turn, so that a flood of one does not hold up another (decision 18).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from fjord import commands, limits
from fjord.columns import Strings, repeat
from fjord.commands import Refusal
from fjord.jobs import Fairness, How
from fjord.ops import Op, Opcode
from fjord.tables import catalog, job_bands, job_ops, job_row, job_rules
from fjord.tables.job_bands import FAST, SLOW, Item
from fjord.tables.job_row import PLACE, PREFIX_BYTES, REST
from fjord.tables.state import Decision, Kind, Pointer, State, Table

# Expired jobs are passed over, and removed, up to so many of them at once.
_EXPIRED_MAX: Final = 20_000
_EXPIRES: Final = 2  # positions in REST
_SIZE: Final = 11


class _Found(NamedTuple):
    """What may be handed out."""

    items: list[Item]
    next_at_us: int | None


def decide_next(command: commands.Next, state: State, now_us: int) -> Decision:
    problem = job_rules.next_problem(command)
    if problem is not None:
        return Decision(problem)
    table = catalog.find(state, command.table, Kind.JOBS)
    if isinstance(table, Refusal):
        return Decision(table)
    if table is None:
        return Decision(_nothing(None))
    problem = job_rules.fairness_problem(command.domain, table)
    if problem is not None:
        return Decision(problem)
    count = command.count or limits.NEXT_COUNT_MAX
    limit = count
    while True:
        found = _find(state, table, command.domain, now_us, limit)
        live, expired = _split(found.items, now_us)
        if live or len(found.items) < limit or limit > _EXPIRED_MAX:
            break
        limit *= 2  # all of them were expired
    gone = [job_row.decode_ready(*item) for item in expired]
    removal = job_ops.remove_waiting(table.id, gone, How.EXPIRE)
    if not live:
        next_at_us = now_us if len(found.items) >= limit else found.next_at_us
        return Decision(_nothing(next_at_us), removal)
    return _hand_out(command, state, table, _bounded(live[:count]), removal, now_us)


def next_at_us(state: State, table: Table, domain: bytes) -> int | None:
    """Returns the first process date of a table, or of a domain of it; None if nothing waits."""
    if job_rules.settings_of(table).fairness is Fairness.NONE:
        return job_bands.first_date_us(state, table.prefix, 0)
    if domain:
        return job_bands.first_date_us(state, table.prefix, job_row.lane_of(domain))
    learn(state, table)
    return state.lanes.next_at_us(table.id)


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
    """Returns up to `limit` jobs that are due, expired ones too, in the order of handing out."""
    if job_rules.settings_of(table).fairness is Fairness.NONE:
        return _find_in_lane(state, table.prefix, 0, now_us, limit)
    if domain:
        lane = job_row.lane_of(domain)
        found = _find_in_lane(state, table.prefix, lane, now_us, limit)
        # Another domain may have the same hash.
        items = [item for item in found.items if _domain(item) == domain]
        return _Found(items, found.next_at_us)
    learn(state, table)
    for slow in (False, True):
        items = _go_round(state, table, now_us, limit, slow=slow)
        if items:
            return _Found(items, None)
    return _Found([], state.lanes.next_at_us(table.id))


def _find_in_lane(state: State, prefix: bytes, lane: int, now_us: int, limit: int) -> _Found:
    fast = job_bands.due(state, prefix, lane, FAST, now_us, limit)
    if fast.items:
        return _Found(fast.items, None)
    slow = job_bands.due(state, prefix, lane, SLOW, now_us, limit)
    dates = [date for date in (fast.next_at_us, slow.next_at_us) if date is not None]
    return _Found(slow.items, min(dates, default=None))


def _go_round(state: State, table: Table, now_us: int, limit: int, *, slow: bool) -> list[Item]:
    """Returns jobs of all lanes that have something due, one of each in turn."""
    lanes, prefix, priorities = state.lanes, table.prefix, SLOW if slow else FAST
    turns = lanes.count(table.id, now_us, slow=slow)
    share = max(1, limit // max(1, turns))
    found: list[list[Item]] = []
    total = 0
    for _ in range(turns):
        lane = lanes.take(table.id, now_us, slow=slow)
        if lane is None or total >= limit:
            break
        got = job_bands.due(state, prefix, lane[0], priorities, now_us, share)
        if got.items:
            found.append(got.items)
            total += len(got.items)
        else:
            lanes.correct(table.id, lane, got.next_at_us)
    for at, items in enumerate(found):
        if total < limit and len(items) == share:  # others had less than their share
            lane_number = PLACE.unpack_from(items[0][0], PREFIX_BYTES)[0]
            more = limit - total + share
            found[at] = job_bands.due(state, prefix, lane_number, priorities, now_us, more).items
            total += len(found[at]) - share
    in_turn = chain.from_iterable(zip_longest(*found))
    return [item for item in in_turn if item is not None][:limit]


def _domain(item: Item) -> bytes:
    return job_row.decode_ready(*item).domain_name


def _split(items: list[Item], now_us: int) -> tuple[list[Item], list[Item]]:
    """Returns the jobs that live, and those that have expired."""
    expiries = [REST.unpack_from(rest)[_EXPIRES] for _, rest in items]
    if not any(expiries):
        return items, []
    live = [
        item for item, expiry in zip(items, expiries, strict=True) if not expiry or expiry > now_us
    ]
    expired = [item for item, expiry in zip(items, expiries, strict=True) if 0 < expiry <= now_us]
    return live, expired


def _bounded(items: list[Item]) -> list[Item]:
    """Returns as many jobs as fit one answer, at least one."""
    size = 0
    for at, (_, rest) in enumerate(items):
        size += len(rest) + REST.unpack_from(rest)[_SIZE]
        if size > limits.NEXT_BYTES_MAX and at:
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
    if command.done:
        reply = _taken(state, items, 0, 0)
        rows = [job_row.decode_ready(*item) for item in items]
        op = job_ops.remove_waiting(table.id, rows, How.DONE)[0]
    else:
        reply = _taken(state, items, first_xid, now_us + lease_us)
        images = Strings.of([key[PREFIX_BYTES:] + rest for key, rest in items])
        columns = (
            repeat(state.lease_us + lease_us, count),
            repeat(lease_us, count),
            repeat(now_us, count),
            reply.rows,
            images,
        )
        op = Op(Opcode.JOB_TAKE, table.id, count, columns)
    return Decision(reply, [*removal, op])


def _taken(state: State, items: list[Item], first_xid: int, until_us: int) -> commands.Taken:
    places = [PLACE.unpack_from(key, PREFIX_BYTES) for key, _ in items]
    _, priorities, dates, rows = zip(*places, strict=True)
    (inserted, updated, expiries, _, _, _, timeouts, types, domain_bytes, segments, offsets,
     sizes, crcs) = zip(*[REST.unpack_from(rest) for _, rest in items], strict=True)  # fmt: skip
    tails = [rest[REST.size :] for _, rest in items]
    if any(domain_bytes):
        keys = [tail[size:] for tail, size in zip(tails, domain_bytes, strict=True)]
        domains = [tail[:size] for tail, size in zip(tails, domain_bytes, strict=True)]
    else:
        keys, domains = tails, [b""] * len(tails)
    values = state.payloads(list(map(Pointer, segments, offsets, sizes, crcs)))
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
