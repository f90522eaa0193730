"""What the checkers have to know of a table, and what comes before what."""

from __future__ import annotations

from dataclasses import dataclass

from fjord.jobs import Settings
from tests.invariants.histories import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Settings of the table whose history is judged."""

    merges: bool = True
    by_domain: bool = False  # fairness: there is one order in each domain
    debounce_us: int = Settings().debounce_us


def before(one: Event, other: Event) -> bool:
    """Says whether one event was over before the other began; else they may have overlapped."""
    return one.ended < other.began
