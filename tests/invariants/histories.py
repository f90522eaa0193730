"""What was asked of one jobs table and what came of it, as records that a checker can judge.

A history is a list of events of one table.  Whoever records one (a simulation, a crash test, a
worker process that may be killed) notes three times with every event:

    began, ended   monotonic: before the request left, after its answer came; microseconds, or
                   simply a counter where one thing happens after the other.  Of two events only
                   this is known: the one that ended before the other began came first.
    wall_us        the wall clock when it ended; process dates are compared with it.

A request that was never answered has the outcome UNKNOWN: it happened once, or not at all.
Every push has a value of its own, so that what is read tells which push it came from.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from fjord.jobs import State


class Outcome(enum.StrEnum):
    """What is known of a request."""

    OK = "ok"
    REFUSED = "refused"  # it changed nothing, for sure; a stale xid too
    UNKNOWN = "unknown"  # no answer came


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened between two moments."""

    began: int
    ended: int
    wall_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed(Event):
    """A producer pushed a job; its dates are absolute, as the server resolves them."""

    key: bytes
    value: bytes
    producer: str = ""
    outcome: Outcome = Outcome.OK
    master: bytes = b""  # of the answer's token
    seq: int = 0
    stamp_us: int = 0  # the client's date
    priority: int = 100
    process_at_us: int = 0
    expires_at_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Event):
    """A worker was given a job; all of one answer have the same `call`."""

    call: int
    xid: int
    row: int
    key: bytes
    value: bytes
    worker: str = ""
    master: bytes = b""
    domain: bytes = b""
    priority: int = 100
    process_at_us: int = 0
    inserted_us: int = 0
    expires_at_us: int = 0
    timeouts: int = 0
    lease_us: int = 0
    done: bool = False  # taken and done at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """A worker said that a job is done; REFUSED: its lease was over."""

    xid: int
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched(Event):
    """A worker asked for more time."""

    xid: int
    lease_us: int
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """A worker gave a job back."""

    xid: int
    outcome: Outcome = Outcome.OK
    counts: bool = True
    buries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Event):
    """A lease was over, as the journal or a simulated clock says.

    Whoever cannot know leaves it out: a job that is handed out again after its lease says enough.
    """

    xid: int


# Why a job is gone that did not wait.
SUPERSEDED = "superseded"  # a newer one of its key waits
DISCARDED = "discarded"  # it was dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(Event):
    """The waiting job of a key is gone; SUPERSEDED and DISCARDED: another one of that key."""

    key: bytes
    how: str  # cancelled, expired, buried, or one of these two
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescheduled(Event):
    """Priority or date of a waiting job were changed by hand."""

    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Event):
    """A job went to the dead letters."""

    row: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revived(Event):
    """A dead job waits again."""

    row: int
    key: bytes = b""


class Row(NamedTuple):
    """A job as somebody saw it who took nothing."""

    state: int
    row: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked(Event):
    """Somebody looked at all jobs of the table at one moment."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(Event):
    """The server began again: after a clean stop, a crash or a power cut."""

    how: str = "crash"


History = list[Event]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that a history breaks."""

    rule: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


# -- as lines of text, for processes that may be killed --------------------------------------------


def to_line(event: Event) -> str:
    """Returns an event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, **_plain(asdict(event))})


def from_line(line: str) -> Event:
    """Reads an event.

    Raises:
        ValueError: if the line is none, or was cut short.
    """
    found = json.loads(line)
    kind = _EVENTS.get(found.pop("event", ""))
    if kind is None:
        raise ValueError(f"not an event: {line}")
    return kind(**{field.name: _full(field.name, found[field.name]) for field in fields(kind)})


def from_lines(lines: Iterable[str]) -> History:
    """Reads what several processes wrote, in the order in which it ended.

    A process that was killed leaves half a line at its end: its event has no outcome that anybody
    could have acted on, and is left out.
    """
    events = [from_line(line) for line in lines if line.endswith("}\n")]
    return sorted(events, key=lambda event: (event.ended, event.began))


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in found.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [list(map(_plain_value, row)) for row in value] if isinstance(value, tuple) else value


def _full(name: str, value: Any) -> Any:
    if name in _BYTES:
        return value.encode("latin-1")
    if name == "outcome":
        return Outcome(value)
    if name == "rows":
        return tuple(
            Row(State(state), row, key.encode("latin-1"), data.encode("latin-1"))
            for state, row, key, data in value
        )
    return value


_BYTES = frozenset({"key", "value", "master", "domain"})
_EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Pushed,
        Taken,
        Finished,
        Touched,
        Failed,
        TimedOut,
        Removed,
        Rescheduled,
        Died,
        Revived,
        Looked,
        Restarted,
    )
}
