"""The promises on streams, subscribers and snapshots, as functions that judge what happened."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.invariants.checkers import Checker, Terms
from tests.invariants.histories import History, Violation
from tests.invariants.isolating import isolation
from tests.invariants.marking import marks

STREAM_CHECKERS: Mapping[str, Checker] = MappingProxyType({"I7": marks, "I13": isolation})


def stream_violations(history: History) -> list[Violation]:
    """Returns everything that a history breaks of these rules."""
    return [found for check in STREAM_CHECKERS.values() for found in check(history, Terms())]
