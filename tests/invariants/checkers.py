"""The promises on jobs, as functions that are given what happened and say what was wrong with it.

A checker is pure: it knows no engine and no clock, only a history (`histories`) and the settings
of the table (`Terms`).  It says what the history proves to be wrong, and nothing that could have
been otherwise: of two things that overlapped, either may have been first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tests.invariants.histories import History, Violation
from tests.invariants.leasing import leases
from tests.invariants.merging import merging
from tests.invariants.ordering import dates, key_order, producer_order, sequences
from tests.invariants.reading import keeping, sending
from tests.invariants.recovering import digest, recovery
from tests.invariants.terms import Terms

Checker = Callable[[History, Terms], list[Violation]]

CHECKERS: Mapping[str, Checker] = MappingProxyType(
    {
        "I1": keeping,
        "I2": sending,
        "I4": sequences,
        "I5": key_order,
        "I6": producer_order,
        "I14": leases,
        "I15": merging,
        "I16": dates,
    }
)
# The rule of merging is worked out step by step, which needs to know what came after what.
CONCURRENT = tuple(rule for rule in CHECKERS if rule != "I15")


def violations(
    history: History, terms: Terms | None = None, rules: tuple[str, ...] = tuple(CHECKERS)
) -> list[Violation]:
    """Returns everything that a history breaks of these rules."""
    return [found for rule in rules for found in CHECKERS[rule](history, terms or Terms())]


__all__ = ["CHECKERS", "CONCURRENT", "Terms", "digest", "recovery", "violations"]
