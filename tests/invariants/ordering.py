"""I4, I5, I6 and I16: seqs, versions of a key, jobs of a producer, dates and priorities."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from fjord.jobs import SLOW_FROM, State
from tests.invariants.histories import (
    Event,
    History,
    Looked,
    Outcome,
    Pushed,
    Rescheduled,
    Revived,
    Taken,
    Violation,
)
from tests.invariants.readiness import left_behind, rank
from tests.invariants.terms import Terms, before, returns


def sequences(history: History, terms: Terms) -> list[Violation]:
    """I4: the seqs of one master ascend, xids too; a key has one waiting row."""
    found: list[Violation] = []
    masters: dict[bytes, list[tuple[Event, int, bool]]] = defaultdict(list)
    for event in history:
        if isinstance(event, Taken) and event.xid:
            masters[event.master].append((event, event.xid, True))
        elif isinstance(event, Pushed) and event.seq:
            masters[event.master].append((event, event.seq, False))
    for tokens in masters.values():
        found += _descents(tokens)
    xids = Counter((event.master, event.xid) for event in _takes(history) if event.xid)
    found += [
        Violation(rule="I4", text=f"xid {xid} was given out {count} times")
        for (_, xid), count in xids.items()
        if count > 1
    ]
    return found + [problem for event in history for problem in _doubled(event, terms)]


def _descents(tokens: list[tuple[Event, int, bool]]) -> Iterator[Violation]:
    """Yields tokens that are below one that was answered before they were asked for.

    A push that changed nothing may repeat the token of the one before it; an xid is always new.
    """
    answered = sorted(tokens, key=lambda token: token[0].ended)
    highest, position = 0, 0
    for event, seq, is_new in sorted(tokens, key=lambda token: token[0].began):
        while position < len(answered) and answered[position][0].ended < event.began:
            highest = max(highest, answered[position][1])
            position += 1
        if seq < highest or (is_new and seq == highest):
            text = f"seq {seq} came after seq {highest}"
            yield Violation(rule="I4", text=text, events=(event,))


def _doubled(event: Event, terms: Terms) -> Iterator[Violation]:
    if not isinstance(event, Looked):
        return
    rows = Counter(row.row for row in event.rows)
    keys = Counter(row.key for row in event.rows if row.state == State.WAITING)
    for row, count in rows.items():
        if count > 1:
            yield Violation(rule="I4", text=f"row {row} is there {count} times", events=(event,))
    for key, count in keys.items():
        if count > 1 and terms.merges:
            yield Violation(rule="I4", text=f"{key!r} waits {count} times", events=(event,))


def key_order(history: History, terms: Terms) -> list[Violation]:
    """I5: what is handed out for a key was not pushed before what was handed out for it before.

    But for two cases: a job that a worker had, while a newer one of its key was handed out too,
    may come back when that worker has failed; and a person may have brought it back.
    """
    if not terms.merges:
        return []
    pushes = {event.value: event for event in history if isinstance(event, Pushed)}
    returned = returns(history)
    revived: dict[int, Revived] = {}
    for event in history:
        if isinstance(event, Revived):
            revived.setdefault(event.row, event)
    by_key = defaultdict(list)
    for take in _takes(history):
        if take.value in pushes:
            by_key[take.key].append(take)
    found = []
    for takes in by_key.values():
        last: dict[bytes, Taken] = {}  # by value
        newest: Taken | None = None
        for take in sorted(takes, key=lambda take: take.began):
            push = pushes[take.value]
            is_older = newest is not None and before(push, pushes[newest.value])
            if newest is not None and is_older and before(newest, take):
                previous, brought = last.get(take.value), revived.get(take.row)
                back = returned.get(previous.xid) if previous else None
                was_out = previous is not None and (back is None or not before(back, newest))
                if not was_out and (brought is None or before(take, brought)):
                    text = f"{take.key!r}: {take.value!r} came after {newest.value!r}"
                    found.append(Violation(rule="I5", text=text, events=(newest, take)))
            last[take.value] = take
            newest = newest if is_older else take
    return found


def producer_order(history: History, terms: Terms) -> list[Violation]:
    """I6: jobs of one producer with one priority come in the order of their pushes.

    Left out are keys that were pushed more than once, or changed by hand: their place is that of
    several pushes.
    """
    changed = {event.key for event in history if isinstance(event, Rescheduled)}
    counts = Counter(event.key for event in history if isinstance(event, Pushed))
    firsts = _first_takes(history)
    lines = defaultdict(list)
    for push in (event for event in history if isinstance(event, Pushed)):
        take = firsts.get(push.value)
        if push.outcome is not Outcome.OK or take is None or push.key in changed:
            continue
        if counts[push.key] == 1 or not terms.merges:
            domain = take.domain if terms.by_domain else b""
            lines[push.producer, take.priority, domain].append((push, take))
    return [problem for line in lines.values() for problem in _line_problems(line, history)]


def _line_problems(line: Sequence[tuple[Pushed, Taken]], history: History) -> Iterator[Violation]:
    place = {id(event): position for position, event in enumerate(history)}
    pushed = sorted(line, key=lambda item: (item[0].began, place[id(item[0])]))
    for (one, first), (other, second) in pairwise(pushed):
        if before(one, other) and first.row > second.row:
            text = f"{other.key!r} got row {second.row} after {one.key!r} had got {first.row}"
            yield Violation(rule="I6", text=text, events=(one, other))
    # As long as dates ascend with the pushes, nobody may come before one that was pushed earlier.
    latest: Taken | None = None
    date_us = 0
    for _, take in pushed:
        if take.process_at_us < date_us:
            latest = None
        date_us = take.process_at_us
        if latest is not None and _came_first(take, latest, place):
            text = f"{take.key!r} came before {latest.key!r}, which was pushed before it"
            yield Violation(rule="I6", text=text, events=(take, latest))
        if latest is None or _came_first(latest, take, place):
            latest = take


def _came_first(one: Taken, other: Taken, place: dict[int, int]) -> bool:
    if one.call == other.call:
        return place[id(one)] < place[id(other)]
    return before(one, other)


def _first_takes(history: History) -> dict[bytes, Taken]:
    found: dict[bytes, Taken] = {}
    for take in sorted(_takes(history), key=lambda take: take.began):
        found.setdefault(take.value, take)
    return found


def dates(history: History, terms: Terms) -> list[Violation]:
    """I16: nothing comes before its date; by priority, date and row within what was ready."""
    found = [
        Violation(
            rule="I16",
            text=f"{take.key!r} came {take.process_at_us - take.wall_us} us before its date",
            events=(take,),
        )
        for take in _takes(history)
        if take.wall_us < take.process_at_us
    ]
    for _, group in groupby(_takes(history), key=lambda take: take.call):
        found += _answer_problems(list(group), terms)
    return found + left_behind(history, terms)


def _answer_problems(takes: list[Taken], terms: Terms) -> Iterator[Violation]:
    if len({take.priority >= SLOW_FROM for take in takes}) > 1:
        yield Violation(rule="I16", text="slow jobs came with others", events=tuple(takes))
    lanes = defaultdict(list)
    for take in takes:
        lanes[take.domain if terms.by_domain else b""].append(take)
    for lane in lanes.values():
        for one, other in pairwise(lane):
            if rank(one) > rank(other):
                text = f"{one.key!r} came before {other.key!r} in one answer"
                yield Violation(rule="I16", text=text, events=(one, other))


def _takes(history: History) -> Iterator[Taken]:
    return (event for event in history if isinstance(event, Taken))
