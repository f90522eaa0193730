"""Short words to write a history by hand: one thing after the other, a millisecond apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from fjord.jobs import State
from tests.invariants import histories

START_US = 1_700_000_000_000_000
SECOND = 1_000_000
LEASE_US = 60 * SECOND
MASTER = b"the master's id."


Told = TypeVar("Told", bound=histories.Event)


class Tale:
    """A history that is told; every line of it begins when the one before has ended."""

    def __init__(self) -> None:
        self.history: histories.History = []
        self.now = 1_000
        self._seq = 0
        self._calls = 0

    def push(self, key: str, value: str = "", **fields: Any) -> histories.Pushed:
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
        return self._tell(histories.Pushed, **told)

    def take(self, *pushes: histories.Pushed, **fields: Any) -> histories.Taken:
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
            take = histories.Taken(began=began, ended=began + 500, wall_us=self.wall_us, **told)
            self.history.append(take)
        return take

    def done(self, take: histories.Taken, **fields: Any) -> histories.Finished:
        return self._tell(histories.Finished, xid=take.xid, **fields)

    def stale(self, take: histories.Taken) -> histories.Finished:
        return self.done(take, outcome=histories.Outcome.REFUSED)

    def touch(self, take: histories.Taken, **fields: Any) -> histories.Touched:
        return self._tell(histories.Touched, **{"xid": take.xid, "lease_us": LEASE_US, **fields})

    def fail(self, take: histories.Taken, **fields: Any) -> histories.Failed:
        return self._tell(histories.Failed, xid=take.xid, **fields)

    def time_out(self, take: histories.Taken) -> histories.TimedOut:
        return self._tell(histories.TimedOut, xid=take.xid)

    def remove(self, key: str, how: str = "cancelled", **fields: Any) -> histories.Removed:
        return self._tell(histories.Removed, key=key.encode(), how=how, **fields)

    def reschedule(self, key: str) -> histories.Rescheduled:
        return self._tell(histories.Rescheduled, key=key.encode())

    def die(self, take: histories.Taken) -> histories.Died:
        return self._tell(histories.Died, row=take.row)

    def revive(self, take: histories.Taken) -> histories.Revived:
        return self._tell(histories.Revived, row=take.row, key=take.key)

    def look(self, *pushes: histories.Pushed, state: State = State.WAITING) -> histories.Looked:
        rows = tuple(histories.Row(state, push.seq, push.key, push.value) for push in pushes)
        return self._tell(histories.Looked, rows=rows)

    def restart(self) -> histories.Restarted:
        return self._tell(histories.Restarted)

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


def at_once(event: Told, other: histories.Event) -> Told:
    """Returns an event as if it had gone on from its begin to the end of another one."""
    return replace(event, ended=other.ended + 1)
