"""A simulated day of a website: edits of pages, and other events.

Everything follows from one seed, so every run has the same day.  A few pages are edited all the
time and most hardly ever (Zipf's law), the evening is busier than the night, some edits are urgent
and some can wait, and some pages are broken for good.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import fjord

SEED: Final = 2026
HOURS: Final = 24
EDITS: Final = 20_000
EVENTS: Final = 200_000
PAGES: Final = 2_000
SITES: Final = 25
# Edits come in small pushes, as from a web server.
EDITS_PER_PUSH: Final = 20
EVENTS_PER_APPEND: Final = 1_000
# One page of this many can never be fetched.
BROKEN_EVERY: Final = 97

# How much happens in each hour, relative to the others.
_CURVE: Final = (
    3,
    2,
    1,
    1,
    1,
    2,
    4,
    7,
    9,
    10,
    10,
    11,
    12,
    11,
    10,
    10,
    11,
    13,
    15,
    17,
    16,
    13,
    9,
    5,
)
# Kinds of edits: how many of 100, their priority, and how long they may wait at most, in seconds.
_KINDS: Final = (
    (2, fjord.Priority.NOW, 0.0),
    (6, fjord.Priority.IMPORTANT, 0.1),
    (12, fjord.Priority.NEW_PAGE, 0.2),
    (55, fjord.Priority.DEFAULT, 0.5),
    (20, fjord.Priority.UPDATES, 1.0),
    (5, fjord.Priority.SLOW, 2.0),
)
_VERBS: Final = ("view", "view", "view", "view", "search", "click", "share")


@dataclass(frozen=True, slots=True)
class Edits:
    """One push: columns, as `push_many` takes them."""

    keys: list[str]
    values: list[str]
    priorities: list[int]
    delays: list[float]


@dataclass(frozen=True, slots=True)
class Events:
    """One append."""

    keys: list[str]
    values: list[bytes]


@dataclass(slots=True)
class Fed:
    """What was written to the spool, and what went wrong meanwhile."""

    versions: list[str] = field(default_factory=list)  # of all edits, in order
    events: int = 0
    keys: set[str] = field(default_factory=set)  # pages with events
    dead: int = 0  # jobs that failed too often
    dropped: set[int] = field(default_factory=set)  # rows of jobs that a worker had when it died
    away_seconds: float = 0.0  # how long the daemon was gone

    @property
    def edits(self) -> int:
        return len(self.versions)


class Day:
    """What happens, hour by hour."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._pages = [page(number) for number in range(PAGES)]
        self._weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(PAGES)))
        self._kinds = list(itertools.accumulate(share for share, _, _ in _KINDS))
        self._versions = itertools.count(1)

    def edits(self, hour: int) -> Iterator[Edits]:
        """Yields the pushes of an hour."""
        count = _share(EDITS, hour)
        for begun in range(0, count, EDITS_PER_PUSH):
            size = min(EDITS_PER_PUSH, count - begun)
            kinds = self._random.choices(_KINDS, cum_weights=self._kinds, k=size)
            yield Edits(
                keys=self._some_pages(size),
                values=[f"version {next(self._versions)}" for _ in range(size)],
                priorities=[priority for _, priority, _ in kinds],
                delays=[self._random.uniform(0, longest) for _, _, longest in kinds],
            )

    def events(self, hour: int) -> Iterator[Events]:
        """Yields the appends of an hour."""
        count = _share(EVENTS, hour)
        for begun in range(0, count, EVENTS_PER_APPEND):
            size = min(EVENTS_PER_APPEND, count - begun)
            verbs = self._random.choices(_VERBS, k=size)
            users = self._random.choices(range(50_000), k=size)
            yield Events(
                keys=self._some_pages(size),
                values=[
                    json.dumps({"hour": hour, "user": user, "what": verb}).encode()
                    for user, verb in zip(users, verbs, strict=True)
                ],
            )

    def _some_pages(self, count: int) -> list[str]:
        return self._random.choices(self._pages, cum_weights=self._weights, k=count)


def page(number: int) -> str:
    """Returns the address of a page; its host is the domain of its jobs."""
    return f"https://site{number % SITES:02}.example/page/{number}"


def is_broken(address: str) -> bool:
    return int(address.rpartition("/")[2]) % BROKEN_EVERY == BROKEN_EVERY - 1


def _share(total: int, hour: int) -> int:
    """Returns the share of an hour; the shares of all hours add up to the total."""
    done, now = sum(_CURVE[:hour]), sum(_CURVE[: hour + 1])
    return total * now // sum(_CURVE) - total * done // sum(_CURVE)
