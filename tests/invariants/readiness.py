"""The second half of I16: who was surely ready, and was left behind for somebody less important.

A job is surely waiting from the end of the last event that changed it to the begin of the call
that took it.  What overlaps proves nothing, so a history of many workers is judged too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator
from math import inf
from typing import NamedTuple

from sortedcontainers import SortedKeyList  # type: ignore[import-untyped]

from tests.invariants.histories import (
    Event,
    Failed,
    History,
    Outcome,
    Pushed,
    Rescheduled,
    Revived,
    Taken,
    TimedOut,
    Violation,
)
from tests.invariants.terms import Terms


class _Waiting(NamedTuple):
    """A job that surely waits from one moment up to another."""

    rank: tuple[int, int, int]  # priority, process date, row
    since: float
    until: int
    take: Taken


def left_behind(history: History, terms: Terms) -> list[Violation]:
    """Returns the calls that handed out a job while a better one was surely ready."""
    lanes: dict[bytes, tuple[list[_Waiting], list[list[Taken]]]] = defaultdict(lambda: ([], []))
    for waiting in _surely_waiting(history, terms):
        lanes[waiting.take.domain if terms.by_domain else b""][0].append(waiting)
    for domain, answer in _answers(history, terms):
        lanes[domain][1].append(answer)
    return [problem for lane in lanes.values() for problem in _sweep(*lane)]


def _sweep(waiting: list[_Waiting], answers: list[list[Taken]]) -> Iterator[Violation]:
    """Goes through the calls in time, with all who surely wait when each begins."""
    arriving = sorted(waiting, key=lambda one: one.since, reverse=True)
    leaving = sorted(waiting, key=lambda one: one.until, reverse=True)
    present = SortedKeyList(key=lambda one: one.rank)
    for answer in sorted(answers, key=lambda answer: answer[0].began):
        first = answer[0]
        while arriving and arriving[-1].since < first.began:
            present.add(arriving.pop())
        while leaving and leaving[-1].until <= first.began:
            gone = leaving.pop()
            if gone in present:
                present.remove(gone)
        worst = max(answer, key=rank)
        wall_us = first.wall_us - (first.ended - first.began)
        for one in _ready_before(present, rank(worst), wall_us):
            if one.until > first.ended and one.take.call != first.call:
                text = f"{worst.key!r} was handed out while {one.take.key!r} was ready"
                yield Violation(rule="I16", text=text, events=(worst, one.take))
                break


def _ready_before(
    present: SortedKeyList, worst: tuple[int, int, int], wall_us: int
) -> Iterator[_Waiting]:
    """Yields those with a smaller rank whose date has come; in a priority they come first."""
    priority = -1
    while True:
        start = present.bisect_key_left((priority + 1, 0, 0))
        if start == len(present):
            return
        priority = present[start].rank[0]
        for one in present.islice(start):
            if one.rank[0] != priority or one.rank[1] > wall_us:
                break
            if one.rank >= worst:
                return
            yield one


def _surely_waiting(history: History, terms: Terms) -> Iterator[_Waiting]:
    """Yields a stretch of waiting for each take whose begin of waiting is known."""
    changes = _Changes(history, terms)
    previous: dict[int, Taken] = {}
    for take in sorted((e for e in history if isinstance(e, Taken)), key=lambda take: take.began):
        since = changes.last_end(take, previous.get(take.row))
        previous[take.row] = take
        if since is not None and since < take.began:
            yield _Waiting(rank(take), since, take.began, take)


class _Changes:
    """What gave jobs their places, by what it named them with."""

    def __init__(self, history: History, terms: Terms) -> None:
        self._merges = terms.merges
        self._ends: dict[Hashable, list[tuple[int, float]]] = defaultdict(list)
        for event in sorted(history, key=lambda event: event.began):
            for name in self._names(event):
                ends = self._ends[name]
                highest = max(ends[-1][1] if ends else 0.0, _end(event))
                ends.append((event.began, highest))

    def last_end(self, take: Taken, previous: Taken | None) -> float | None:
        """Returns when the last change of a job was over that was then taken.

        None: its lease was over at a moment that nobody noted, or nobody noted its push.
        """
        names: list[Hashable] = [("push", take.key if self._merges else take.value)]
        names += [("key", take.key), ("row", take.row)]
        found = [end for name in names if (end := self._end(name, take.ended)) is not None]
        if previous is not None:
            returned = self._end(("xid", previous.xid), take.ended)
            if returned is None:
                return None
            found += [returned, previous.ended]
        return max(found, default=None)

    def _end(self, name: Hashable, until: int) -> float | None:
        """Returns the largest end of the changes with that name which began before a moment."""
        ends = self._ends.get(name, [])
        position = bisect_left(ends, (until, 0.0))
        return ends[position - 1][1] if position else None

    def _names(self, event: Event) -> list[Hashable]:
        if getattr(event, "outcome", None) is Outcome.REFUSED:
            return []
        if isinstance(event, Pushed):
            return [("push", event.key if self._merges else event.value)]
        if isinstance(event, Rescheduled):
            return [("key", event.key)]
        if isinstance(event, TimedOut | Failed):
            return [("xid", event.xid)]
        return [("row", event.row)] if isinstance(event, Revived) else []


def _end(event: Event) -> float:
    """What was never answered may still happen at any time."""
    return inf if getattr(event, "outcome", None) is Outcome.UNKNOWN else event.ended


def _answers(history: History, terms: Terms) -> Iterator[tuple[bytes, list[Taken]]]:
    """Yields what each call handed out; in each domain apart, where there is fairness."""
    calls: dict[tuple[int, bytes], list[Taken]] = defaultdict(list)
    for event in history:
        if isinstance(event, Taken):
            calls[event.call, event.domain if terms.by_domain else b""].append(event)
    for (_, domain), takes in calls.items():
        yield domain, takes


def rank(take: Taken) -> tuple[int, int, int]:
    """Returns what jobs that are ready are ordered by."""
    return take.priority, take.process_at_us, take.row
