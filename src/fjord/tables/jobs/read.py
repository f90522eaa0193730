"""Looking at jobs without taking them: pages of a state, waiting ones by key, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fjord import commands, kinds, limits
from fjord.columns import Strings
from fjord.errors import Code, CorruptionError, RefusedError
from fjord.jobs import State as JobState
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.tables import catalog
from fjord.tables.jobs import layout, rules, take
from fjord.tables.jobs import rows as lookup
from fjord.tables.jobs.layout import XID, Death, JobRow, Lease
from fjord.tables.state import Decision, State, decides
from fjord.values import Type

_OF_GENERATION: Final = (b"began_us", b"first_row", b"schema", b"jobs")
_ALIVE: Final = Death(0, 0, b"")


@decides(commands.Peek)
def decide_peek(command: commands.Peek, state: State, now_us: int) -> Decision:
    rules.check_peek(command)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_page(state, [], b""))
    rules.check_fairness(command.domain, table)
    kind, count = JobState(command.state), command.count or limits.PAGE_ENTRIES_MAX
    prefix = table.prefix
    if command.domain and kind is JobState.WAITING:
        prefix += layout.lane_of(command.domain).to_bytes(8, "big")
    start = max(prefix, table.prefix + command.start)
    items = state.scan(layout.TREES[kind], start, end_of(prefix), count + 1)
    seen: list[_Seen] = []
    size = 0
    for key, data in items[:count]:
        one = _read(kind, key, data, state.lease_us, now_us)
        size += one.row.live_bytes
        if seen and size > limits.PAGE_BYTES_MAX:
            break
        seen.append(one)
    rest = items[len(seen) :]
    next_start = rest[0][0][PREFIX_BYTES:] if rest else b""
    return Decision(_page(state, [one for one in seen if _counts(one, now_us)], next_start))


@decides(commands.Find)
def decide_find(command: commands.Find, state: State, now_us: int) -> Decision:
    rules.check_keys(command.keys)
    if len(command.keys) > limits.PAGE_ENTRIES_MAX:
        text = f"at most {limits.PAGE_ENTRIES_MAX} jobs are looked at together"
        raise RefusedError(Code.BAD_COUNT, text)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_page(state, [], b""))
    rules.check_by_key(table)
    keys = list(dict.fromkeys(command.keys.rows()))
    rows = lookup.find(state, table.prefix, keys, list(map(layout.digest, keys)))
    seen = [_Seen(row) for row in rows if row is not None and not row.is_expired(now_us)]
    size = sum(one.row.live_bytes for one in seen)
    if size > limits.ANSWER_BYTES_MAX:
        text = f"these jobs have {size} bytes together; ask for fewer at a time"
        raise RefusedError(Code.TOO_LARGE, text)
    return Decision(_page(state, seen, b""))


@decides(commands.CountJobs)
def decide_count(command: commands.CountJobs, state: State, now_us: int) -> Decision:
    rules.check_domain(command.domain)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_numbers((0, 0, 0), None, {}))
    rules.check_fairness(command.domain, table)
    next_at_us = take.next_at_us(state, table, command.domain, now_us)
    further = _generations(state, table.id) if command.generations else {}
    return Decision(_numbers(state.job_counts(table.id), next_at_us, further))


def _generations(state: State, table_id: int) -> dict[bytes, int]:
    """Returns the numbers of the generations of a table, the oldest first."""
    found: dict[bytes, int] = {}
    for one in state.generations.get(table_id, ()):
        jobs = state.job_counts(-one.id).waiting
        numbers = (one.began_us, one.first_row, one.schema, jobs)
        for name, number in zip(_OF_GENERATION, numbers, strict=True):
            found[b"generation.%d.%s" % (one.number, name)] = number
    return found


def _numbers(
    counts: Sequence[int], next_at_us: int | None, further: Mapping[bytes, int]
) -> commands.Numbers:
    names = Strings.of([b"waiting", b"taken", b"dead", b"next_at_us", *further])
    return commands.Numbers(names=names, values=[*counts, next_at_us or 0, *further.values()])


class _Seen(NamedTuple):
    """A job that is shown."""

    row: JobRow
    xid: int = 0
    moment_us: int = 0
    death: Death = _ALIVE


def _read(kind: JobState, key: bytes, data: bytes, lease_us: int, now_us: int) -> _Seen:
    if kind is JobState.WAITING:
        return _Seen(layout.decode_ready(key, data))
    if kind is JobState.DEAD:
        death, row = layout.decode_dead(data)
        return _Seen(row, 0, death.died_us, death)
    lease, row = layout.decode_taken(data)
    return _Seen(row, XID.unpack_from(key, PREFIX_BYTES)[0], _until_us(lease, lease_us, now_us))


def _until_us(lease: Lease, lease_us: int, now_us: int) -> int:
    """Returns the wall time at which a lease is over, if the clock is not set meanwhile."""
    return now_us + lease.deadline_us - lease_us


def _counts(one: _Seen, now_us: int) -> bool:
    return bool(one.xid or one.death.died_us) or not one.row.is_expired(now_us)


def _values(state: State, seen: Sequence[_Seen]) -> list[bytes | None]:
    """Returns the values of jobs; None for a dead one whose value is damaged.

    Such a job must not hide the others, and why it is dead says what has become of its value.
    """
    pointers = [one.row.pointer for one in seen]
    try:
        return [*state.payloads(pointers)]
    except CorruptionError:
        if not all(one.death.died_us for one in seen):
            raise
    found: list[bytes | None] = []
    for pointer in pointers:
        try:
            found += state.payloads([pointer])
        except CorruptionError:
            found.append(None)
    return found


def _page(state: State, seen: Sequence[_Seen], next_start: bytes) -> commands.JobPage:
    rows, values = [one.row for one in seen], _values(state, seen)
    return commands.JobPage(
        rows=[row.row for row in rows],
        xids=[one.xid for one in seen],
        process_at_us=[row.process_at_us for row in rows],
        inserted_us=[row.inserted_us for row in rows],
        updated_us=[row.updated_us for row in rows],
        expires_at_us=[0 if row.is_overtaken else row.expires_at_us for row in rows],
        moments_us=[one.moment_us for one in seen],
        priorities=bytes([row.priority for row in rows]),
        timeouts=bytes([row.timeouts for row in rows]),
        types=bytes(
            [
                Type.VOID if value is None else row.type
                for row, value in zip(rows, values, strict=True)
            ]
        ),
        keys=Strings.of([row.key for row in rows]),
        domains=Strings.of([row.domain for row in rows]),
        values=Strings.of([value or b"" for value in values]),
        reasons=Strings.of([one.death.reason for one in seen]),
        next_start=next_start,
    )
