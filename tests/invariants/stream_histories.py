"""What was asked of streams, maps, subscribers and snapshots, as records that a checker can judge.

These are events like those of `histories`, with the same three times, but of several tables: what
one transaction writes, and what one snapshot shows, is spread over them.  Every write has values
of its own, so that what is read tells which write it came from.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from tests.invariants.histories import Event, Outcome


class Change(NamedTuple):
    """What a write does to one key, or one message that it adds."""

    table: str
    key: bytes
    value: bytes | None  # None: it is taken away
    seq: int = 0  # 0: nobody was told


class Message(NamedTuple):
    """A message as a reader got it."""

    seq: int
    key: bytes
    value: bytes | None  # None: a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote(Event):
    """A transaction: all of its changes or none."""

    changes: tuple[Change, ...]
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Event):
    """Somebody got a snapshot: by name, or as the first answer of a pass over a stream."""

    snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saw(Event):
    """Somebody read all that a table maps keys to, as of a snapshot."""

    snapshot: int
    table: str
    entries: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed(Event):
    """A reader of a stream got one answer of a pass."""

    table: str
    after: int  # where it was
    until: int  # the end of the snapshot
    messages: tuple[Message, ...]
    next_after: int  # where it is now
    is_end: bool = False  # of the snapshot
    keeps_all: bool = True  # the stream keeps every message, not only the newest of each key


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired(Event):
    """Messages up to a seq are old enough to go."""

    table: str
    last: int


class How(enum.StrEnum):
    """Why somebody was told where a subscriber is."""

    SUBSCRIBE = "subscribe"  # it was made
    ACKNOWLEDGE = "acknowledge"
    SEEK = "seek"
    LOOK = "look"  # it was asked for, or was there already


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned(Event):
    """Where a subscriber was set, or found."""

    name: str
    how: How
    outcome: Outcome = Outcome.OK
    asked: int = 0  # ACKNOWLEDGE: the seq
    given: int = 0  # ACKNOWLEDGE: the epoch that it was asked with
    expected: int = -1  # ACKNOWLEDGE: where the mark had to be
    seq: int = 0  # as answered, like the next two
    epoch: int = 0
    tail: int = -1  # the newest seq that there was when the answer came; -1 = not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribed(Event):
    """A subscriber was taken away."""

    name: str
    outcome: Outcome = Outcome.OK
