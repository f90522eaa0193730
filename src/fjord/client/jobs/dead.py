"""Dead jobs by the many: which ones are meant, and reviving or discarding them bit by bit.

Pure: what is yielded are the calls to run, and pauses between them; see `calls.PacedSteps`.
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

# So many at a time: others wait behind such a call for some milliseconds.
_CHUNK_ROWS: Final = 1_000
_NEVER_US: Final = 2**64


class DeadFilters(TypedDict, total=False):
    """Which dead jobs are meant; those that fit all that is given."""

    key: Key | None  # their key
    key_prefix: Key | None  # what their keys begin with
    domain: Key | None
    reason: str | None  # is part of their reason
    before: datetime | None  # they died before then
    limit: int | None  # at most so many


class DeadOptions(DeadFilters, total=False):
    """The same, and how fast something is done to them."""

    rows: Iterable[int] | None  # these, instead of any filter
    rate: float | None  # at most so many a second
    dry_run: bool  # True: nothing changes
    progress: Callable[[int], object] | None  # is told how many were done so far


class RedriveOptions(DeadOptions, total=False):
    """The same, for those that shall wait again."""

    delay: Seconds | None  # they wait at least so long, from now on


class DiscardOptions(DeadOptions, total=False):
    """The same, for those that shall be gone."""

    all: bool  # True: really all of them, if there is no filter


def dead(calls: JobCalls, filters: DeadFilters) -> JobWalk[DeadJob]:
    """Walks through dead jobs."""
    check_names("dead", filters, DeadFilters.__optional_keys__)
    return _walk(calls.table, filters, lambda page, rows: read_dead(page, rows, calls.schemas))


def redrive(calls: JobCalls, options: RedriveOptions) -> PacedSteps[Redriven]:
    """Lets dead jobs wait again."""
    check_names("redrive", options, RedriveOptions.__optional_keys__)
    delay = options.get("delay")
    delay_us(delay)  # what cannot be meant is refused before anything is asked
    rows = array("Q")
    found = yield from _sweep(calls.table, options, rows, lambda rows: calls.revive(rows, delay))
    return Redriven(matched=len(rows), revived=found.done, dropped=found.dropped, rows=rows)


def discard(calls: JobCalls, options: DiscardOptions) -> PacedSteps[Discarded]:
    """Throws dead jobs away."""
    check_names("discard", options, DiscardOptions.__optional_keys__)
    if not (options.get("all") or options.get("dry_run") or _narrows(options)):
        names = ", ".join([*DeadFilters.__annotations__, "rows"])
        raise ValueError(f"discard needs one of {names}; or all=True to throw all dead jobs away")
    rows = array("Q")
    found = yield from _sweep(calls.table, options, rows, calls.discard)
    return Discarded(matched=len(rows), discarded=found.done, rows=rows)


def _narrows(options: DeadOptions) -> bool:
    """Says whether anything is left out; an empty prefix or reason fits every job."""
    exact = ("key", "domain", "before", "limit", "rows")
    if any(options.get(name) is not None for name in exact):
        return True
    return bool(options.get("key_prefix") or options.get("reason"))


def _walk(
    table: str, filters: DeadFilters, read: Callable[[JobPage, list[int]], list[Found]]
) -> JobWalk[Found]:
    """Goes through the dead once, a page at a time, and reads those that are meant."""
    limit = filters.get("limit")
    if limit is not None and check_whole("limit", limit) < 1:
        raise ValueError("a limit is at least 1; leave it out for all")
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
    # At most what a second may see.
    chunk_rows = _CHUNK_ROWS if rate is None else max(1, min(int(rate), _CHUNK_ROWS))
    progress = options.get("progress")
    given = _given_rows(options)
    walk = _walk(table, options, lambda page, places: [page.rows[place] for place in places])
    pages: Iterator[Call[list[int]] | list[int]]
    pages = iter(walk.next_call, None) if given is None else iter([given])
    done = dropped = 0
    pause = 0.0  # so that the next chunk does not come too early
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
    given: Any = rate  # since users give what they like
    if given is None:
        return None
    if not is_number(given):
        raise not_a("rate", "a number of jobs a second", given)
    if not 0 < given < math.inf:
        raise ValueError(
            f"rate is more than 0 jobs a second, not {given}; leave it out for no bound"
        )
    return float(given)


def _given_rows(options: DeadOptions) -> list[int] | None:
    """Returns the rows that were given, each once; None if there is but a filter."""
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
        raise ValueError("each of rows is a number of at most 64 bits")
    return rows


def _chooser(filters: DeadFilters) -> Callable[[JobPage], list[int]]:
    """Returns how to find places that are meant; by columns, since most may not be."""
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
