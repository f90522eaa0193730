"""I17: a start leaves what it finds, and the journal alone tells the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from tests.invariants.histories import Violation

Tree = Iterable[tuple[bytes, bytes]]


def digest(trees: Sequence[Tree]) -> str:
    """Returns a hash of everything that trees hold; lengths are hashed too, so nothing shifts."""
    found = hashlib.sha256()
    for number, tree in enumerate(trees):
        for key, value in tree:
            found.update(b"%d %d %d " % (number, len(key), len(value)))
            found.update(key + value)
    return found.hexdigest()


def recovery(digests: Mapping[str, str]) -> list[Violation]:
    """I17: the live state, what a start made of it, what the next one did, and a replay agree.

    `digests` has them by name, the live one first.
    """
    (live, expected), *others = digests.items()
    return [
        Violation(rule="I17", text=f"{name} is not {live}: {found[:12]}, expected {expected[:12]}")
        for name, found in others
        if found != expected
    ]
