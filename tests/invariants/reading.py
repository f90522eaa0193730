"""I1 and I2: what was acknowledged is read, and nothing is read that was not sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from tests.invariants.histories import (
    Event,
    History,
    Looked,
    Outcome,
    Pushed,
    Removed,
    Taken,
    Violation,
)
from tests.invariants.terms import Terms, before, returns


def keeping(history: History, terms: Terms) -> list[Violation]:
    """I1: an acknowledged push is read later, or superseded, or was taken away, or has expired.

    Assumes that the history ends with a look at everything, or with an empty table.
    """
    reads, returned = _reads_by_value(history), returns(history)
    by_key = defaultdict(list)
    for push in _pushes(history):
        by_key[push.key].append(push)
    removed = {event.key: event for event in history if isinstance(event, Removed)}
    end_us = max((event.wall_us for event in history), default=0)
    expected: list[tuple[Pushed, bool]] = []
    for push in sorted(_pushes(history), key=lambda push: (push.seq, push.began)):
        if push.outcome is not Outcome.OK:
            continue
        is_read = any(not before(read, push) for read in reads.get(push.value, ()))
        gone = removed.get(push.key)
        is_excused = (
            (gone is not None and not before(gone, push))
            or 0 < push.expires_at_us <= end_us
            or (terms.merges and _is_superseded(push, by_key[push.key], reads, returned))
        )
        if is_read or not is_excused:
            expected.append((push, is_read))
    return list(_lost_runs(expected))


def sending(history: History, terms: Terms) -> list[Violation]:
    """I2: what is read was sent before and not refused, under its key, and is in one row only."""
    pushes = {push.value: push for push in _pushes(history)}
    if len(pushes) < sum(1 for _ in _pushes(history)):
        raise ValueError("every push needs a value of its own")
    found, rows = [], defaultdict(set)
    for read, key, value, row in _reads(history):
        push = pushes.get(value)
        rows[value].add(row)
        if push is None or push.key != key or before(read, push):
            found.append(_violation("I2", f"{key!r}: {value!r} was never sent", read))
        elif push.outcome is Outcome.REFUSED:
            found.append(_violation("I2", f"{key!r}: {value!r} was refused and read", push, read))
    return found + [
        _violation("I2", f"{value!r} was sent once and is in the rows {sorted(where)}")
        for value, where in rows.items()
        if len(where) > 1
    ]


def _is_superseded(
    push: Pushed,
    others: Sequence[Pushed],
    reads: dict[bytes, list[Event]],
    returned: Mapping[int, Event],
) -> bool:
    """Says whether another push of the key may have taken the place of this one.

    The newer client date wins; of equal ones the later push.
    """
    for other in others:
        if other is push or other.outcome is Outcome.REFUSED or other.stamp_us < push.stamp_us:
            continue
        if other.stamp_us == push.stamp_us and before(other, push):
            continue
        if not _is_out_of_its_way(push, reads.get(other.value, ()), returned):
            return True
    return False


def _is_out_of_its_way(push: Pushed, reads: Iterable[Event], returned: Mapping[int, Event]) -> bool:
    """Says whether what these reads are of was handed out before a push, and not back by then."""
    takes = [read for read in reads if isinstance(read, Taken)]
    gone = [take for take in takes if before(take, push)]
    came_back = [take for take in gone if take.xid in returned]
    is_back = any(not before(push, returned[take.xid]) for take in came_back)
    return bool(gone) and not is_back and all(before(read, push) for read in reads)


def _lost_runs(expected: Sequence[tuple[Pushed, bool]]) -> Iterator[Violation]:
    """Yields each run of pushes that are lost, and says where among the others it is."""
    position = 0
    for is_read, run in groupby(expected, key=lambda item: item[1]):
        pushes = tuple(push for push, _ in run)
        start, position = position, position + len(pushes)
        if is_read:
            continue
        where = "middle"
        if start == 0:
            where = "prefix"
        if position == len(expected):
            where = "postfix" if start else "whole"
        keys = ", ".join(repr(push.key) for push in pushes[:10])
        text = f"lost the {where}: {len(pushes)} of {len(expected)} acknowledged pushes: {keys}"
        yield Violation(rule="I1", text=text, events=pushes)


def _pushes(history: Iterable[Event]) -> Iterator[Pushed]:
    return (event for event in history if isinstance(event, Pushed))


def _reads(history: History) -> Iterator[tuple[Event, bytes, bytes, int]]:
    for event in history:
        if isinstance(event, Taken):
            yield event, event.key, event.value, event.row
        elif isinstance(event, Looked):
            for row in event.rows:
                yield event, row.key, row.value, row.row


def _reads_by_value(history: History) -> dict[bytes, list[Event]]:
    found = defaultdict(list)
    for read, _, value, _ in _reads(history):
        found[value].append(read)
    return found


def _violation(rule: str, text: str, *events: Event) -> Violation:
    return Violation(rule=rule, text=text, events=events)
