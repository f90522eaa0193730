"""I15: what several pushes of a waiting key come to, worked out from the pushes alone.

For histories in which one thing happens after the other, with the server's clock in `wall_us`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.invariants import histories
from tests.invariants.terms import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What a waiting job is by the rule."""

    inserted_us: int
    updated_us: int
    expires_at_us: int  # 0 = never
    priority: int
    process_at_us: int
    value: bytes


def pushed(push: histories.Pushed) -> Waiting:
    """Returns the job that a push makes where none waits."""
    # A client whose clock is ahead has its say in which push is the last one, no more.
    inserted_us = min(push.stamp_us, push.wall_us)
    return Waiting(
        inserted_us=inserted_us,
        updated_us=push.stamp_us,
        expires_at_us=push.expires_at_us,
        priority=push.priority,
        process_at_us=max(push.process_at_us or push.wall_us, inserted_us),
        value=push.value,
    )


def merged(old: Waiting, push: histories.Pushed, debounce_us: int) -> Waiting:
    """Returns what a waiting job becomes by a push of its key."""
    if push.stamp_us < old.updated_us:
        return old
    new = pushed(push)
    never = 0 in (old.expires_at_us, new.expires_at_us)
    cap_us = max(old.process_at_us, old.inserted_us + debounce_us)
    return replace(
        new,
        inserted_us=old.inserted_us,
        expires_at_us=0 if never else max(old.expires_at_us, new.expires_at_us),
        priority=min(old.priority, new.priority),
        process_at_us=min(max(old.process_at_us, new.process_at_us), cap_us),
    )


def merging(history: histories.History, terms: Terms) -> list[histories.Violation]:
    """I15: a job that is handed out is what the pushes of its key come to."""
    if not terms.merges:
        return []
    fold = _Fold(terms.debounce_us)
    return [problem for event in history if (problem := fold.step(event)) is not None]


class _Fold:
    """Which jobs wait, key by key; those that a hand has moved are not judged."""

    def __init__(self, debounce_us: int) -> None:
        self._debounce_us = debounce_us
        self._waiting: dict[bytes, Waiting] = {}
        self._unsure: set[bytes] = set()
        self._keys: dict[int, bytes] = {}  # xid -> key
        self._stamps: dict[bytes, int] = {}  # value -> client's date
        self._updated: dict[int, int] = {}  # xid -> the newest client's date of that job
        self._rows: dict[int, int] = {}  # xid -> row
        self._overtaken: set[int] = set()  # xids: a newer job of the key was taken meanwhile

    def step(self, event: histories.Event) -> histories.Violation | None:
        if isinstance(event, histories.Taken):
            return self._take(event)
        if isinstance(event, histories.Pushed):
            self._push(event)
        elif isinstance(event, histories.Removed):
            self._remove(event)
        elif isinstance(event, histories.Rescheduled | histories.Revived):
            self._unsure.add(event.key)
        elif isinstance(event, histories.Failed | histories.TimedOut):
            self._give_back(event)
        elif isinstance(event, histories.Finished) and event.outcome is histories.Outcome.OK:
            self._keys.pop(event.xid, None)
        return None

    def _give_back(self, event: histories.Failed | histories.TimedOut) -> None:
        """Jobs wait again, with a date that is not known here; or are dead.

        Where a newer one of its key waits, or was taken meanwhile, a job is dropped; one that was
        pushed late is not newer.
        """
        outcome = event.outcome if isinstance(event, histories.Failed) else histories.Outcome.OK
        key = self._keys.get(event.xid)
        if key is None or outcome is histories.Outcome.REFUSED:
            return
        if outcome is histories.Outcome.OK:
            del self._keys[event.xid]
        if event.xid in self._overtaken:
            return
        waiting = self._waits(key, event.wall_us)
        if waiting is None or waiting.updated_us < self._updated[event.xid]:
            self._unsure.add(key)

    def _remove(self, removed: histories.Removed) -> None:
        if removed.how in (histories.SUPERSEDED, histories.DISCARDED):
            return
        if removed.outcome is histories.Outcome.UNKNOWN:
            self._unsure.add(removed.key)
            return
        self._waiting.pop(removed.key, None)
        self._unsure.discard(removed.key)

    def _push(self, push: histories.Pushed) -> None:
        if push.outcome is histories.Outcome.REFUSED:
            return
        self._stamps[push.value] = push.stamp_us
        if push.outcome is histories.Outcome.UNKNOWN:
            self._unsure.add(push.key)
            return
        old = self._waits(push.key, push.wall_us)
        if old is not None:
            self._waiting[push.key] = merged(old, push, self._debounce_us)
        else:
            self._waiting[push.key] = pushed(push)

    def _waits(self, key: bytes, wall_us: int) -> Waiting | None:
        """Returns the job that waits under a key; one that has expired counts as not there."""
        found = self._waiting.get(key)
        if found is None or not found.expires_at_us or wall_us < found.expires_at_us:
            return found
        return None

    def _overtake(self, take: histories.Taken) -> None:
        """Of two jobs of a key that are taken at a time, the older one does not wait again."""
        for xid, key in self._keys.items():
            if key == take.key and xid not in self._overtaken:
                ages = {one: (self._updated[one], self._rows[one]) for one in (xid, take.xid)}
                self._overtaken.add(min(ages, key=ages.__getitem__))

    def _take(self, take: histories.Taken) -> histories.Violation | None:
        self._updated[take.xid] = self._stamps.get(take.value, 0)
        self._rows[take.xid] = take.row
        self._overtake(take)
        if not take.done:
            self._keys[take.xid] = take.key
        expected = self._waiting.pop(take.key, None)
        if take.key in self._unsure:
            self._unsure.discard(take.key)
            return None
        if expected is None:
            text = f"{take.key!r} was handed out and did not wait"
            return histories.Violation(rule="I15", text=text, events=(take,))
        found = {
            "inserted_us": take.inserted_us,
            "expires_at_us": take.expires_at_us,
            "priority": take.priority,
            "process_at_us": take.process_at_us,
            "value": take.value,
        }
        wrong = [
            f"{name} is {value!r} and not {getattr(expected, name)!r}"
            for name, value in found.items()
            if value != getattr(expected, name)
        ]
        if take.timeouts:
            wrong.append(f"timeouts is {take.timeouts} and not 0")
        if not wrong:
            return None
        text = f"{take.key!r}: {', '.join(wrong)}"
        return histories.Violation(rule="I15", text=text, events=(take,))
