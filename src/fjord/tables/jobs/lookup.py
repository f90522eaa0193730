"""Finding waiting jobs by key, and a free slot for a key that does not wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fjord.layouts import end_of
from fjord.tables.jobs import layout
from fjord.tables.jobs.layout import COLLIDED, NO_PROBE, Row
from fjord.tables.state import State, Tree


def find(
    state: State, prefix: bytes, keys: Sequence[bytes], hashes: Sequence[bytes]
) -> list[Row | None]:
    """Returns the job that waits under each key, expired ones too; None where there is none."""
    places = state.get_many(Tree.JOBS_KEYS, [prefix + hash_ + b"\0" for hash_ in hashes])
    return resolve(state, prefix, keys, hashes, places)


def resolve(
    state: State,
    prefix: bytes,
    keys: Sequence[bytes],
    hashes: Sequence[bytes],
    places: Sequence[bytes | None],
) -> list[Row | None]:
    """The same, where it is known already what the first slot of each key holds."""
    found = [prefix + place for place in places if place]
    rests = iter(state.get_many(Tree.JOBS_READY, found))
    rows: list[Row | None] = [
        layout.decode_ready(prefix + place, _there(next(rests))) if place else None
        for place in places
    ]
    for at, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if row is not None and row.key != key:
            rows[at] = None
    if has_collisions(state, prefix):
        for at, row in enumerate(rows):
            if row is None:
                rows[at] = _find_collided(state, prefix, keys[at], hashes[at])
    return rows


def has_collisions(state: State, prefix: bytes) -> bool:
    """Says whether two keys of the table may have the same hash."""
    stop = end_of(prefix)
    return bool(state.scan(Tree.JOBS_KEYS, prefix + COLLIDED, stop, 1))


class FreeSlots:
    """Finds a probe for each key that begins to wait; no two of them get the same."""

    def __init__(
        self,
        state: State,
        prefix: bytes,
        hashes: Sequence[bytes],
        *,
        without: Collection[bytes] = (),
    ) -> None:
        self._state = state
        self._prefix = prefix
        self._is_simple = len(set(hashes)) == len(hashes)  # no two of them want the same slot
        self._without = without  # slots that count as free
        self._given: set[bytes] = set()

    def probe(self, hash_: bytes, first: bytes | None) -> int | None:
        """Returns a free probe, None if there is none; `first` is what the first slot holds."""
        if first is None and self._is_simple:
            return 0
        for probe in range(NO_PROBE):
            slot = layout.slot(hash_, probe)
            if slot not in self._given and (slot in self._without or self._is_free(slot)):
                self._given.add(slot)
                return probe
        return None

    def _is_free(self, slot: bytes) -> bool:
        return self._state.get_many(Tree.JOBS_KEYS, [self._prefix + slot])[0] is None


def _find_collided(state: State, prefix: bytes, key: bytes, hash_: bytes) -> Row | None:
    start = prefix + COLLIDED + hash_
    items = state.scan(Tree.JOBS_KEYS, start, start + b"\xff", NO_PROBE)
    places = [prefix + place for _, place in items]
    for place, rest in zip(places, state.get_many(Tree.JOBS_READY, places), strict=True):
        row = layout.decode_ready(place, _there(rest))
        if row.key == key:
            return row
    return None


def _there(rest: bytes | None) -> bytes:
    """What a slot leads to is there, since both go together."""
    assert rest is not None
    return rest
