"""Short words to write a history by hand: one thing after the other, a millisecond apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from fjord.jobs import State
from tests.invariants.histories import (
    Died,
    Event,
    Failed,
    Finished,
    History,
    Looked,
    Outcome,
    Pushed,
    Removed,
    Rescheduled,
    Restarted,
    Revived,
    Row,
    Taken,
    TimedOut,
    Touched,
)

START_US = 1_700_000_000_000_000
SECOND = 1_000_000
LEASE_US = 60 * SECOND
MASTER = b"the master's id."


Told = TypeVar("Told", bound=Event)


class Tale:
    """A history that is told; every line of it begins when the one before has ended."""

    def __init__(self) -> None:
        self.history: History = []
        self.now = 1_000
        self._seq = 0
        self._calls = 0

    def push(self, key: str, value: str = "", **fields: Any) -> Pushed:
        """A push; its value is that of its key and number, if none is given."""
        self._seq += 1
        told = {
            "key": key.encode(),
            "value": (value or f"{key}{self._seq}").encode(),
            "seq": self._seq,
            "stamp_us": self.wall_us,
            "process_at_us": self.wall_us,
            "master": MASTER,
            **fields,
        }
        return self._tell(Pushed, **told)

    def take(self, *pushes: Pushed, **fields: Any) -> Taken:
        """One answer of NEXT: jobs as they were pushed; returns the last one."""
        self._calls += 1
        began = self._begin()
        for push in pushes:
            self._seq += 1
            told = {
                "call": self._calls,
                "xid": self._seq,
                "row": push.seq,
                "key": push.key,
                "value": push.value,
                "priority": push.priority,
                "process_at_us": max(push.process_at_us, push.stamp_us),
                "inserted_us": push.stamp_us,
                "expires_at_us": push.expires_at_us,
                "lease_us": LEASE_US,
                "master": MASTER,
                **fields,
            }
            take = Taken(began=began, ended=began + 500, wall_us=self.wall_us, **told)
            self.history.append(take)
        return take

    def done(self, take: Taken, **fields: Any) -> Finished:
        return self._tell(Finished, xid=take.xid, **fields)

    def stale(self, take: Taken) -> Finished:
        return self.done(take, outcome=Outcome.REFUSED)

    def touch(self, take: Taken, **fields: Any) -> Touched:
        return self._tell(Touched, **{"xid": take.xid, "lease_us": LEASE_US, **fields})

    def fail(self, take: Taken, **fields: Any) -> Failed:
        return self._tell(Failed, xid=take.xid, **fields)

    def time_out(self, take: Taken) -> TimedOut:
        return self._tell(TimedOut, xid=take.xid)

    def remove(self, key: str, how: str = "cancelled", **fields: Any) -> Removed:
        return self._tell(Removed, key=key.encode(), how=how, **fields)

    def reschedule(self, key: str) -> Rescheduled:
        return self._tell(Rescheduled, key=key.encode())

    def die(self, take: Taken) -> Died:
        return self._tell(Died, row=take.row)

    def revive(self, take: Taken) -> Revived:
        return self._tell(Revived, row=take.row, key=take.key)

    def look(self, *pushes: Pushed, state: State = State.WAITING) -> Looked:
        rows = tuple(Row(state, push.seq, push.key, push.value) for push in pushes)
        return self._tell(Looked, rows=rows)

    def restart(self) -> Restarted:
        return self._tell(Restarted)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    @property
    def wall_us(self) -> int:
        return START_US + self.now

    def _begin(self) -> int:
        self.now += 1_000
        return self.now - 500

    def _tell(self, kind: type[Told], **fields: Any) -> Told:
        began = self._begin()
        event = kind(**{"began": began, "ended": began + 500, "wall_us": self.wall_us, **fields})
        self.history.append(event)
        return event


def at_once(event: Told, other: Event) -> Told:
    """Returns an event as if it had gone on from its begin to the end of another one."""
    return replace(event, ended=other.ended + 1)
