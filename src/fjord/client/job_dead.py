"""Dead jobs by the many: which ones are meant, and reviving or discarding them bit by bit.

A `Plan` is pure: it yields the calls to run, and is sent their results; a number that it yields
is a pause in seconds.  The shells only run it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, TypeVar

from fjord.client.calls import Call, check_names
from fjord.client.entries import Key, Seconds, encode_key
from fjord.client.job_calls import JobCalls, encode_reason
from fjord.client.job_entries import Discarded, Redriven
from fjord.client.job_pages import JobWalk
from fjord.client.job_times import delay_us, moment_us
from fjord.commands import JobPage
from fjord.jobs import State, domain_of

Result = TypeVar("Result")
Plan = Generator[Call[Any] | float, Any, Result]

# So many at a time: others wait behind such a call for some milliseconds.
_CHUNK_ROWS: Final = 1_000
_NEVER_US: Final = 2**64


class DeadOptions(TypedDict, total=False):
    """Which dead jobs are meant; those that fit all that is given."""

    key_prefix: Key | None  # what their keys begin with
    domain: Key | None
    reason: str | None  # is part of their reason
    before: datetime | None  # they died before then
    limit: int | None  # at most so many
    rate: float | None  # at most so many a second
    dry_run: bool  # True: nothing changes
    progress: Callable[[int], object] | None  # is told how many were done so far


class RedriveOptions(DeadOptions, total=False):
    """The same, for those that shall wait again."""

    delay: Seconds | None  # they wait at least so long, from now on


def redrive(calls: JobCalls, options: RedriveOptions) -> Plan[Redriven]:
    """Lets dead jobs wait again."""
    check_names("redrive", options, RedriveOptions.__optional_keys__)
    delay = options.get("delay")
    delay_us(delay)  # what cannot be meant is refused before anything is asked
    sweep = _Sweep(calls.table, options)
    revived = yield from sweep.run(lambda rows: calls.revive(rows, delay))
    return Redriven(matched=len(sweep.rows), revived=revived, rows=sweep.rows)


def discard(calls: JobCalls, options: DeadOptions) -> Plan[Discarded]:
    """Throws dead jobs away."""
    check_names("discard", options, DeadOptions.__optional_keys__)
    sweep = _Sweep(calls.table, options)
    discarded = yield from sweep.run(calls.discard)
    return Discarded(matched=len(sweep.rows), discarded=discarded, rows=sweep.rows)


class _Sweep:
    """Goes through the dead once."""

    def __init__(self, table: str, options: DeadOptions) -> None:
        self._limit = options.get("limit")
        self._rate = options.get("rate")
        if self._limit is not None and self._limit < 1:
            raise ValueError("a limit is at least 1; leave it out for all")
        if self._rate is not None and not self._rate > 0:
            raise ValueError("a rate is more than 0 jobs a second")
        rate = _CHUNK_ROWS if self._rate is None else int(self._rate)
        self._chunk_rows = max(1, min(rate, _CHUNK_ROWS))  # at most what a second may see
        self._is_dry = options.get("dry_run", False)
        self._progress = options.get("progress")
        self._walk = JobWalk(table, State.DEAD, _chooser(options))
        self.rows = array("Q")  # of those that matched

    def run(self, act: Callable[[Sequence[int]], Call[int]]) -> Plan[int]:
        """Acts on what matches, a chunk at a time; returns for how many that was done."""
        done = 0
        pause = 0.0  # so that the next chunk does not come too early
        while (left := self._left()) != 0 and (call := self._walk.next_call()) is not None:
            rows = (yield call)[:left]
            self.rows.extend(rows)
            for start in range(0, 0 if self._is_dry else len(rows), self._chunk_rows):
                if pause:
                    yield pause
                chunk = rows[start : start + self._chunk_rows]
                done += yield act(chunk)
                pause = len(chunk) / self._rate if self._rate else 0.0
                if self._progress is not None:
                    self._progress(done)
        return done

    def _left(self) -> int | None:
        return None if self._limit is None else self._limit - len(self.rows)


def _chooser(options: DeadOptions) -> Callable[[JobPage], list[int]]:
    """Returns how to find the rows that are meant; by columns, since most may not be."""
    prefix = encode_key(options.get("key_prefix") or b"")
    given = options.get("domain")
    domain = None if given is None else encode_key(given)
    reason = encode_reason(options.get("reason") or "")
    before_us = moment_us(options.get("before"), "before") or _NEVER_US

    def choose(page: JobPage) -> list[int]:
        columns = (page.rows, page.keys.rows(), page.domains.rows(), page.reasons.rows())
        return [
            row
            for row, key, said, why, died_us in zip(*columns, page.moments_us, strict=True)
            if key.startswith(prefix)
            and reason in why
            and died_us < before_us
            and (domain is None or domain == (said or domain_of(key)))
        ]

    return choose
