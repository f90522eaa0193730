"""Reading jobs without taking them: pages of a state, waiting jobs by key, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fjord import commands, kinds, limits
from fjord.columns import Strings
from fjord.errors import Code, CorruptionError, RefusedError
from fjord.jobs import State
from fjord.layouts import PREFIX_BYTES, end_of
from fjord.tables import catalog
from fjord.tables.jobs import layout, push, take
from fjord.tables.jobs import rows as job_rows
from fjord.tables.jobs.rows import Held
from fjord.tables.rules import check_keys, check_name
from fjord.tables.state import Decision, View, decides
from fjord.values import Type

_OF_GENERATION: Final = (b"began_us", b"first_row", b"schema", b"jobs")


@decides(commands.Peek)
def decide_peek(command: commands.Peek, state: View, now_us: int) -> Decision:
    _check_peek(command)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_page(state, []))
    job_rows.check_fairness(command.domain, table)
    kind, count = State(command.state), command.count or limits.PAGE_ENTRIES_MAX
    prefix = table.prefix
    if command.domain and kind is State.WAITING:
        prefix += layout.lane_of(command.domain).to_bytes(8, "big")
    start = max(prefix, table.prefix + command.start)
    tree = layout.TREES[kind]
    items = state.scan(tree, start, end_of(prefix), count + 1)
    seen: list[Held] = []
    size = 0
    for key, data in items[:count]:
        one = job_rows.held_in(tree, key, data)
        size += one.row.live_bytes
        if seen and size > limits.PAGE_BYTES_MAX:
            break
        seen.append(one)
    rest = items[len(seen) :]
    next_start = rest[0][0][PREFIX_BYTES:] if rest else b""
    if kind is State.WAITING:
        seen = [one for one in seen if not one.row.is_expired(now_us)]
    return Decision(_page(state, seen, next_start, now_us))


def _check_peek(command: commands.Peek) -> None:
    if command.state not in set(State):
        raise RefusedError(Code.BAD_VALUE, f"unknown job state {command.state}")
    if not 0 <= command.count <= limits.PAGE_ENTRIES_MAX:
        text = f"a count is at most {limits.PAGE_ENTRIES_MAX}; 0 means the maximum"
        raise RefusedError(Code.BAD_COUNT, text)
    if len(command.start) > limits.KV_KEY_BYTES_MAX:
        raise RefusedError(Code.BAD_CURSOR, "not a cursor for a page of jobs")
    job_rows.check_domain(command.domain)
    check_name(command.table)


@decides(commands.Find)
def decide_find(command: commands.Find, state: View, now_us: int) -> Decision:
    check_keys(command.keys, limits.JOB_KEY_BYTES_MAX)
    if len(command.keys) > limits.PAGE_ENTRIES_MAX:
        text = f"at most {limits.PAGE_ENTRIES_MAX} jobs can be read at a time"
        raise RefusedError(Code.BAD_COUNT, text)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_page(state, []))
    rows = push.find(state, table, list(dict.fromkeys(command.keys.rows())))
    seen = [job_rows.waiting(row) for row in rows if row is not None and not row.is_expired(now_us)]
    size = sum(one.row.live_bytes for one in seen)
    if size > limits.ANSWER_BYTES_MAX:
        text = f"these jobs have {size} bytes together; ask for fewer at a time"
        raise RefusedError(Code.TOO_LARGE, text)
    return Decision(_page(state, seen))


@decides(commands.CountJobs)
def decide_count(command: commands.CountJobs, state: View, now_us: int) -> Decision:
    job_rows.check_domain(command.domain)
    table = catalog.find(state, command.table, kinds.Kind.JOBS)
    if table is None:
        return Decision(_numbers((0, 0, 0), None, {}))
    job_rows.check_fairness(command.domain, table)
    next_at_us = take.next_at_us(state, table, command.domain, now_us)
    further = _generations(state, table.id) if command.generations else {}
    return Decision(_numbers(state.job_counts(table.id), next_at_us, further))


def _generations(state: View, table_id: int) -> dict[bytes, int]:
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


def _moment_us(one: Held, state: View, now_us: int) -> int:
    """Returns when a job died, or when its lease ends if the clock is not set meanwhile."""
    if one.state is State.TAKEN:
        return now_us + one.lease.deadline_us - state.lease_us
    return one.death.died_us


def _values(state: View, seen: Sequence[Held]) -> list[bytes | None]:
    """Returns the values of jobs, None for a dead job whose value is damaged.

    Such a job must not hide the others; its reason names the damage.
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


def _page(
    state: View, seen: Sequence[Held], next_start: bytes = b"", now_us: int = 0
) -> commands.JobPage:
    rows, values = [one.row for one in seen], _values(state, seen)
    return commands.JobPage(
        rows=[row.row for row in rows],
        xids=[one.at if one.state is State.TAKEN else 0 for one in seen],
        process_at_us=[row.process_at_us for row in rows],
        inserted_us=[row.inserted_us for row in rows],
        updated_us=[row.updated_us for row in rows],
        expires_at_us=[0 if row.is_overtaken else row.expires_at_us for row in rows],
        moments_us=[_moment_us(one, state, now_us) for one in seen],
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
