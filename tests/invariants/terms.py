"""What the checkers have to know of a table, and what comes before what."""

from __future__ import annotations

from dataclasses import dataclass

from fjord.jobs import Settings
from tests.invariants.histories import Event, Failed, History, Outcome, TimedOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Settings of the table whose history is judged."""

    merges: bool = True
    by_domain: bool = False  # fairness: there is one order in each domain
    debounce_us: int = Settings().debounce_us


def returns(history: History) -> dict[int, TimedOut | Failed]:
    """Returns what gave jobs back, or may have, by their xids; the first of each."""
    found: dict[int, TimedOut | Failed] = {}
    for event in history:
        if isinstance(event, TimedOut) or (
            isinstance(event, Failed) and event.outcome is not Outcome.REFUSED
        ):
            found.setdefault(event.xid, event)
    return found


def before(one: Event, other: Event) -> bool:
    """Says whether one event was over before the other began; else they may have overlapped."""
    return one.ended < other.began
