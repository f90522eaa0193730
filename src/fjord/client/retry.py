"""What a client does when a connection breaks: which commands are sent again, how, and when.

    AS_IS     reads, writes that carry their timestamp, marks that only go forward: twice is the
              same as once; and NEXT, since jobs that were handed out to nobody come back when
              their leases are over; and batches with an ADVANCE, which is refused the second time
    NUMBERED  everything else that may be sent again goes as a numbered batch; the server keeps
              the answers to numbers, so a retry is applied once
    NEVER     what belongs to one connection (locks, listening), worked-on marks, since the answer
              to the first try may be lost with the work it gave out, and what has a large answer

A connection that holds locks takes them with it, and then nothing is sent again: a caller that
believes it holds a lock must be told.  An answer of BUSY is different: nothing was done, so any
command may be sent again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from fjord import commands, limits
from fjord.clock import Clock
from fjord.commands import (
    Batch,
    Command,
    Fail,
    Next,
    Read,
    Refusal,
    Replies,
    Reply,
    SealNow,
    Taken,
)
from fjord.errors import Code, FjordError, RemoteProtocolError, UnavailableError


class Retry(enum.Enum):
    """How a command is sent again."""

    AS_IS = enum.auto()
    NUMBERED = enum.auto()
    NEVER = enum.auto()


def retry_of(command: Command) -> Retry:
    rule = _RULES[type(command)]
    return rule if isinstance(rule, Retry) else rule(command)


# What an answer has beside the value.
_ANSWER_BYTES: Final = 1024


def _retry_of_modify(command: commands.Modify) -> Retry:
    # The answer is the new value, and the server keeps no large ones.
    if command.change is commands.Change.TRUNCATE:
        size = int.from_bytes(command.operand, "little", signed=True)
        if size > limits.ANSWER_KEPT_BYTES_MAX - _ANSWER_BYTES:
            return Retry.NEVER
    return Retry.NUMBERED


def _retry_of_batch(command: Batch) -> Retry:
    # A writer that is farther already is refused, so the server need not keep the answer.  Locks
    # would be held by a connection that does not know of them; with a number they are refused.
    kinds = set(map(type, command.commands))
    is_fenced = commands.Advance in kinds and kinds.isdisjoint({commands.Lock, commands.Unlock})
    return Retry.AS_IS if is_fenced else Retry.NUMBERED


_RULES: Final[dict[type[Command], Retry | Callable[[Any], Retry]]] = {
    commands.Nop: Retry.AS_IS,
    commands.Set: lambda command: Retry.AS_IS if command.overwrite else Retry.NUMBERED,
    commands.Get: Retry.AS_IS,
    commands.Touch: lambda command: Retry.NEVER if command.worked_until_us else Retry.AS_IS,
    # A purge leaves no tombstone that could tell a second try from a first one.
    commands.Delete: lambda command: Retry.NUMBERED if command.purge else Retry.AS_IS,
    commands.Modify: _retry_of_modify,
    commands.Rename: Retry.NUMBERED,
    commands.Lock: Retry.NEVER,
    commands.Unlock: Retry.NEVER,
    commands.Range: Retry.AS_IS,
    commands.Listen: Retry.NEVER,
    commands.Unlisten: Retry.NEVER,
    commands.Push: Retry.NUMBERED,
    # Jobs of a reply that is lost come back when their leases are over.
    commands.Next: Retry.AS_IS,
    commands.Finish: Retry.NUMBERED,
    commands.Extend: Retry.NUMBERED,
    commands.Fail: Retry.NUMBERED,
    commands.Cancel: Retry.NUMBERED,
    commands.Reschedule: Retry.NUMBERED,
    commands.Bury: Retry.NUMBERED,
    commands.Revive: Retry.NUMBERED,
    commands.Discard: Retry.NUMBERED,
    commands.Peek: Retry.AS_IS,
    commands.Find: Retry.AS_IS,
    commands.CountJobs: Retry.AS_IS,
    commands.ListenJobs: Retry.NEVER,
    commands.Append: Retry.NUMBERED,
    commands.Erase: Retry.NUMBERED,
    commands.Read: Retry.AS_IS,
    commands.Subscribe: Retry.AS_IS,
    # A second try would find the mark where the first one has put it.
    commands.Acknowledge: lambda command: Retry.AS_IS if command.expected < 0 else Retry.NUMBERED,
    commands.Seek: Retry.AS_IS,
    commands.Rest: Retry.AS_IS,
    commands.Unsubscribe: Retry.NUMBERED,
    commands.ListSubscribers: Retry.AS_IS,
    commands.Lag: Retry.AS_IS,
    # One whose answer was lost is closed when its time is over.
    commands.OpenSnapshot: Retry.AS_IS,
    commands.CloseSnapshot: Retry.AS_IS,
    commands.AsOf: Retry.AS_IS,
    commands.ListBlocks: Retry.AS_IS,
    commands.SealNow: Retry.AS_IS,
    commands.Span: Retry.AS_IS,
    # Blocks that are replaced already stay so.
    commands.ReplaceBlocks: Retry.AS_IS,
    # Rows that are staged twice are committed once: the other stage is dropped when it is old.
    commands.Stage: Retry.AS_IS,
    commands.CommitStages: Retry.AS_IS,
    commands.AskWriter: Retry.AS_IS,
    # A second try may be refused; who hears of it asks where the writer is.
    commands.Advance: Retry.AS_IS,
    commands.CreateTable: Retry.NUMBERED,
    commands.DropTable: Retry.NUMBERED,
    commands.ListTables: Retry.AS_IS,
    commands.Stats: Retry.AS_IS,
    commands.Hello: Retry.NEVER,
    commands.Batch: _retry_of_batch,
    commands.Scan: Retry.AS_IS,
}


# A server says this of a batch of one too; who asked for one command knows of no batch.
_OF_THE_BATCH: Final = "command 1 of the batch: "


class Request:
    """A command under way, through as many connections and answers as it takes."""

    # Defaults of the class, since one of these is made for every call.
    is_unsure = False  # a connection broke with it: it may have been applied
    _pauses: Iterator[float] | None = None

    def __init__(self, command: Command, retry: Retry, *, is_wrapped: bool = False) -> None:
        self.command = command  # as it is sent
        self.can_repeat = retry is not Retry.NEVER  # after a connection broke
        self.is_wrapped = is_wrapped  # in a batch of one

    def wait_at_most(self, seconds: float) -> None:
        """A command that waits on the server, and is sent again, waits no longer than its caller.

        Otherwise the server would hand jobs to a call that is over.
        """
        command = self.command
        if isinstance(command, Next | Read) and command.wait_us:
            left_us = max(0, round(seconds * 1_000_000))
            self.command = replace(command, wait_us=min(command.wait_us, left_us))

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

    def answer(self, reply: Reply) -> Reply:
        """Returns the reply to the command as it was given."""
        if not self.is_wrapped:
            return reply
        if isinstance(reply, Refusal):
            if not reply.text.startswith(_OF_THE_BATCH):
                return reply
            return Refusal(code=reply.code, text=reply.text.removeprefix(_OF_THE_BATCH))
        if not isinstance(reply, Replies) or len(reply.replies) != 1:
            raise RemoteProtocolError(Code.BAD_BATCH, "not one reply to a batch of one")
        return reply.replies[0]


class Client:
    """Who a client is: the same over all of its connections."""

    def __init__(self, identity: bytes) -> None:
        self.hello = commands.Hello(client=identity)
        self._last_number = 0

    def request(self, command: Command) -> Request:
        """Returns a command in the form in which it is sent."""
        retry = retry_of(command)
        if retry is not Retry.NUMBERED:
            return Request(command, retry)
        inner = command.commands if isinstance(command, Batch) else [command]
        is_wrapped = not isinstance(command, Batch)
        return Request(self._numbered(inner), retry, is_wrapped=is_wrapped)

    def was_busy(self, request: Request) -> None:
        """The server was busy: nothing was done, so a batch gets a new number.

        With its old one it would be too old once many others have run ahead of it.
        """
        command = request.command
        if isinstance(command, Batch) and command.number and not request.is_unsure:
            request.command = self._numbered(command.commands)

    def _numbered(self, inner: Sequence[Command]) -> Batch:
        self._last_number += 1
        return Batch(commands=inner, client=self.hello.client, number=self._last_number)


class Locks:
    """Which locks a connection holds, as far as its client was told."""

    def __init__(self) -> None:
        self._held: set[tuple[str, bytes]] = set()

    def __bool__(self) -> bool:
        return bool(self._held)

    def note(self, command: Command, reply: Reply) -> None:
        """Takes notice of what was answered."""
        if isinstance(reply, Refusal):
            return
        if isinstance(command, commands.Lock):
            self._held.update((command.table, key) for key in command.keys.rows())
        elif isinstance(command, commands.Unlock):
            self._held.difference_update((command.table, key) for key in command.keys.rows())

    def lose(self) -> bool:
        """The connection is gone; returns whether locks went with it."""
        had = bool(self._held)
        self._held.clear()
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
    kind = type(command)
    if kind is Next or kind is Read:
        return command.wait_us / 1_000_000  # type: ignore[union-attr]
    return _SEAL_SECONDS if kind is SealNow else 0.0


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
    """When a call must be over."""

    __slots__ = ("_clock", "_end_us", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end_us = clock.monotonic_us() + round(seconds * 1_000_000)

    def left_seconds(self) -> float:
        return (self._end_us - self._clock.monotonic_us()) / 1_000_000


def check_welcome(reply: Reply) -> None:
    """Makes sure that the answer to HELLO is one.

    Raises:
        RemoteProtocolError: if the server does not want this client.
    """
    if isinstance(reply, Refusal):
        raise RemoteProtocolError(reply.code, reply.text)
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
