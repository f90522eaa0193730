"""What a client does when a connection breaks: which commands are sent again, how, and when.

How, the row of each command says: see `commands.layout.Retry`.

A connection that holds locks takes them with it, and then nothing is sent again: a caller that
believes it holds a lock must be told.  An answer of BUSY is different: nothing was done, so any
command may be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from fjord import commands, limits
from fjord.clock import Clock
from fjord.commands import Command, Fail, Next, Refusal, Reply, Retry, SealNow, Taken
from fjord.errors import Code, FjordError, RemoteProtocolError, UnavailableError


class InFlight:
    """A command under way, through as many connections and answers as it takes."""

    # Defaults of the class, since one of these is made for every call.
    is_unsure = False  # a connection broke with it: it may have been applied
    _pauses: Iterator[float] | None = None

    def __init__(self, command: Command, retry: Retry, number: int) -> None:
        self.command = command  # as it is sent
        self.can_repeat = retry is not Retry.NEVER  # after a connection broke
        self.number = number  # makes a retry safe; 0 = it needs none

    def wait_at_most(self, seconds: float) -> None:
        """A command that waits on the server, and is sent again, waits no longer than its caller.

        Otherwise the server would hand jobs to a call that is over.
        """
        command: Any = self.command
        wait_us = getattr(command, "wait_us", 0)
        if wait_us:
            left_us = max(0, round(seconds * 1_000_000))
            self.command = replace(command, wait_us=min(wait_us, left_us))

    def pause_seconds(self, *, at_once: bool = False) -> float:
        """Returns how long to wait before the next try; `at_once`: not at all if it is the second.

        A connection that broke may only have been idle for too long, so one new one is tried
        without a pause.
        """
        if self._pauses is None:
            self._pauses = pauses()
            if at_once:
                return 0.0
        return next(self._pauses)


class Client:
    """Who a client is: the same over all of its connections."""

    def __init__(self, identity: bytes) -> None:
        self.hello = commands.Hello(client=identity)
        self._last_number = 0

    def request(self, command: Command) -> InFlight:
        """Returns a command in the form in which it is sent."""
        rule = type(command).row.retry
        retry = rule if type(rule) is Retry else rule(command)  # type: ignore[operator]
        if retry is not Retry.NUMBERED:
            return InFlight(command, retry, 0)
        self._last_number += 1
        return InFlight(command, retry, self._last_number)

    def was_busy(self, request: InFlight) -> None:
        """The server was busy: nothing was done, so the request gets a new number.

        With its old one it would be too old once many others have run ahead of it.
        """
        if request.number and not request.is_unsure:
            self._last_number += 1
            request.number = self._last_number


class Locks(set[tuple[str, bytes]]):
    """Which locks a connection holds, table and key, as far as its client was told."""

    def note(self, command: Command, reply: Reply) -> None:
        """Takes notice of what was answered."""
        if isinstance(reply, Refusal):
            return
        if isinstance(command, commands.Lock):
            self.update((command.table, key) for key in command.keys.rows())
        if isinstance(command, commands.Unlock):
            self.difference_update((command.table, key) for key in command.keys.rows())

    def lose(self) -> bool:
        """The connection is gone; returns whether locks went with it."""
        had = bool(self)
        self.clear()
        return had


# With these words a server ends a connection, not what it was asked for.
_GOODBYES: Final = {Code.BUSY, Code.IDLE_TIMEOUT, Code.READ_TIMEOUT, Code.SLOW_CONSUMER}


def is_final(error: Exception) -> bool:
    """Says whether another connection would end in the same way."""
    return isinstance(error, FjordError) and not (
        isinstance(error, RemoteProtocolError) and error.code in _GOODBYES
    )


# Blocks are written for as long as that takes; who asks for it has nothing else to wait for.
_SEAL_SECONDS: Final = limits.WAIT_US_MAX / 1_000_000


def wait_seconds(command: Command) -> float:
    """Returns how long a command lets the server wait, beyond the time that a call may take."""
    if type(command) is SealNow:
        return _SEAL_SECONDS
    wait_us: int = getattr(command, "wait_us", 0)
    return wait_us / 1_000_000


def undoing(command: Command, reply: Reply) -> Command | None:
    """Returns what is to be sent after a reply that nobody waits for any more."""
    if not isinstance(command, Next) or not isinstance(reply, Taken) or not reply.first_xid:
        return None
    xids = range(reply.first_xid, reply.first_xid + len(reply.types))
    return Fail(table=command.table, xids=xids, counts=False)


def is_busy(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code is Code.BUSY


def pauses() -> Iterator[float]:
    """Yields how many seconds to wait before each further try."""
    seconds = limits.RECONNECT_SECONDS_FIRST
    while True:
        yield seconds
        seconds = min(2 * seconds, limits.RECONNECT_SECONDS_MAX)


class Deadline:
    """When a call must be over.

    The clock is read when the call begins, and then only after something that may have taken time.
    """

    __slots__ = ("_clock", "_end_us", "left", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = self.left = seconds  # `left`: when the clock was last read
        self._clock = clock
        self._end_us = clock.monotonic_us() + round(seconds * 1_000_000)

    def left_seconds(self) -> float:
        self.left = (self._end_us - self._clock.monotonic_us()) / 1_000_000
        return self.left


def check_welcome(reply: Reply) -> None:
    """Makes sure that the answer to HELLO is one.

    Raises:
        RemoteProtocolError: if the server does not want this client.
    """
    if isinstance(reply, Refusal):
        text = f"{reply.text} (the daemon and this client may be of different versions)"
        raise RemoteProtocolError(reply.code, text if reply.code is Code.BAD_BATCH else reply.text)
    if not isinstance(reply, commands.Welcome):
        raise RemoteProtocolError(Code.FAILED, "the peer does not know HELLO")


# -- what users are told --------------------------------------------------------------------------


def broken(name: str, reason: object, *, locks_lost: bool = False) -> UnavailableError:
    """Returns the error of a command that is not sent again."""
    what = (
        "the locks that it held are lost, and nothing is sent again while locks are held"
        if locks_lost
        else "a command of this kind is not sent again"
    )
    return UnavailableError(
        f"the connection to {name} broke ({reason}); the command may or may not have been "
        f"applied; {what}"
    )


def too_late(name: str, seconds: float, reason: object) -> UnavailableError:
    """Returns the error of a command that was tried until its time was over."""
    return UnavailableError(
        f"no answer from {name} within {seconds:g} s ({reason}); is `fjord serve` running? The "
        "command may or may not have been applied"
    )


def nobody(name: str, reason: object) -> UnavailableError:
    """Returns the error of a first connection that fails."""
    return UnavailableError(f"no daemon answers at {name} ({reason}); is `fjord serve` running?")


def deaf(name: str, reason: object) -> UnavailableError:
    """Returns the error of a listener whose connection broke."""
    return UnavailableError(
        f"the connection to {name} broke ({reason}); changes may have been missed: listen again, "
        "then read what you listen to"
    )
