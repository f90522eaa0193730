"""Selecting dead jobs, and reviving or discarding them in chunks.

Pure: the steps yield calls, and pauses between them; see `calls.PacedSteps`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict

from fjord.client.calls import Call, PacedSteps, check_names, check_whole, is_number, not_a
from fjord.client.entries import Key, Seconds, delay_us, encode_domain, encode_key, moment_us
from fjord.client.jobs.calls import DeadCounts, JobCalls, encode_reason
from fjord.client.jobs.records import DeadJob, Discarded, Found, JobWalk, Redriven, read_dead
from fjord.commands import JobPage
from fjord.jobs import State, domain_of

# Per call; other requests wait some milliseconds for it.
_CHUNK_ROWS: Final = 1_000
_NEVER_US: Final = 2**64


class DeadFilters(TypedDict, total=False):
    """Selects dead jobs that match all given filters."""

    key: Key | None
    key_prefix: Key | None
    domain: Key | None
    reason: str | None  # a substring
    before: datetime | None  # they died before then
    limit: int | None  # maximum number


class DeadOptions(DeadFilters, total=False):
    """Selects dead jobs, and says how fast to process them."""

    rows: Iterable[int] | None  # these jobs, instead of filters
    rate: float | None  # maximum number per second
    dry_run: bool  # True: nothing changes
    progress: Callable[[int], object] | None  # called with the number processed so far


class RedriveOptions(DeadOptions, total=False):
    """Options of `redrive`."""

    delay: Seconds | None  # they wait at least this long from now


class DiscardOptions(DeadOptions, total=False):
    """Options of `discard`."""

    all: bool  # required if there is no filter


def dead(calls: JobCalls, filters: DeadFilters) -> JobWalk[DeadJob]:
    """Walks through dead jobs."""
    check_names("dead", filters, DeadFilters.__optional_keys__)
    return _walk(calls.table, filters, lambda page, rows: read_dead(page, rows, calls.schemas))


def redrive(calls: JobCalls, options: RedriveOptions) -> PacedSteps[Redriven]:
    """Lets dead jobs wait again."""
    check_names("redrive", options, RedriveOptions.__optional_keys__)
    delay = options.get("delay")
    delay_us(delay)  # an invalid delay is refused before anything is sent
    rows = array("Q")
    found = yield from _sweep(calls.table, options, rows, lambda rows: calls.revive(rows, delay))
    return Redriven(matched=len(rows), revived=found.done, dropped=found.dropped, rows=rows)


def discard(calls: JobCalls, options: DiscardOptions) -> PacedSteps[Discarded]:
    """Deletes dead jobs."""
    check_names("discard", options, DiscardOptions.__optional_keys__)
    if not (options.get("all") or options.get("dry_run") or _narrows(options)):
        names = ", ".join([*DeadFilters.__annotations__, "rows"])
        raise ValueError(f"discard needs one of {names}; or all=True to delete all dead jobs")
    rows = array("Q")
    found = yield from _sweep(calls.table, options, rows, calls.discard)
    return Discarded(matched=len(rows), discarded=found.done, rows=rows)


def _narrows(options: DeadOptions) -> bool:
    """Says whether there is a filter; an empty prefix or reason matches every job."""
    exact = ("key", "domain", "before", "limit", "rows")
    if any(options.get(name) is not None for name in exact):
        return True
    return bool(options.get("key_prefix") or options.get("reason"))


def _walk(
    table: str, filters: DeadFilters, read: Callable[[JobPage, list[int]], list[Found]]
) -> JobWalk[Found]:
    limit = filters.get("limit")
    if limit is not None and check_whole("limit", limit) < 1:
        raise ValueError("limit must be 1 or more; leave it out for all")
    choose = _chooser(filters)
    return JobWalk(
        table, State.DEAD, lambda page: read(page, choose(page)), limit=limit, is_sparse=True
    )


def _sweep(
    table: str,
    options: DeadOptions,
    matched: array[int],
    act: Callable[[Sequence[int]], Call[DeadCounts]],
) -> PacedSteps[DeadCounts]:
    """Acts on dead jobs, a chunk at a time, and adds their rows to `matched`."""
    rate = _rate(options.get("rate"))
    # At most one second's worth.
    chunk_rows = _CHUNK_ROWS if rate is None else max(1, min(int(rate), _CHUNK_ROWS))
    progress = options.get("progress")
    given = _given_rows(options)
    walk = _walk(table, options, lambda page, places: [page.rows[place] for place in places])
    pages: Iterator[Call[list[int]] | list[int]]
    pages = iter(walk.next_call, None) if given is None else iter([given])
    done = dropped = 0
    pause = 0.0  # before the next chunk
    for page in pages:
        rows = page if isinstance(page, list) else (yield page)
        matched.extend(rows)
        for start in range(0, 0 if options.get("dry_run") else len(rows), chunk_rows):
            if pause:
                yield pause
            chunk = rows[start : start + chunk_rows]
            found: DeadCounts = yield act(chunk)
            done, dropped = done + found.done, dropped + found.dropped
            pause = len(chunk) / rate if rate else 0.0
            if progress is not None:
                progress(done)
    return DeadCounts(done, dropped)


def _rate(rate: float | None) -> float | None:
    given: Any = rate  # of any type
    if given is None:
        return None
    if not is_number(given):
        raise not_a("rate", "a number of jobs a second", given)
    if not 0 < given < math.inf:
        raise ValueError(
            f"rate must be more than 0 jobs a second, not {given}; leave it out for no limit"
        )
    return float(given)


def _given_rows(options: DeadOptions) -> list[int] | None:
    """Returns the given rows without duplicates; None if there are only filters."""
    given = options.get("rows")
    if given is None:
        return None
    others = [name for name in DeadFilters.__annotations__ if options.get(name) is not None]
    if others:
        raise ValueError(f"give either rows or {', '.join(others)}")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise not_a("rows", "a list of numbers", given)
    rows = list(dict.fromkeys(check_whole("each of rows", row) for row in given))
    if rows and not 0 <= min(rows) <= max(rows) < 2**64:
        raise ValueError("each of rows must be a number of at most 64 bits")
    return rows


def _chooser(filters: DeadFilters) -> Callable[[JobPage], list[int]]:
    """Returns a function that finds the matching places of a page; by columns, for speed."""
    wanted = filters.get("key")
    exact = None if wanted is None else encode_key(wanted)
    prefix = encode_key(filters.get("key_prefix") or b"")
    given = filters.get("domain")
    domain = None if given is None else encode_domain(given)
    reason = encode_reason(filters.get("reason") or "")
    before_us = moment_us(filters.get("before"), "before") or _NEVER_US

    def choose(page: JobPage) -> list[int]:
        columns = (page.keys.rows(), page.domains.rows(), page.reasons.rows(), page.moments_us)
        return [
            place
            for place, (key, said, why, died_us) in enumerate(zip(*columns, strict=True))
            if (exact is None or key == exact)
            and key.startswith(prefix)
            and reason in why
            and died_us < before_us
            and (domain is None or domain == (said or domain_of(key)))
        ]

    return choose
