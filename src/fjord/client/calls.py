"""A call: the command to send, how to read its reply, and what happens when a connection breaks.

Every shell runs the same calls.  A command's row says whether it may be retried: see
`commands.layout.Retry`.  When a connection that holds locks breaks, the locks are gone and
nothing is retried: a caller that believes it holds a lock must be told.  BUSY is different:
nothing was done, so any command may be retried.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final, Generic, TypeVar

from fjord import commands, limits
from fjord.clock import Clock
from fjord.commands import Acted, Command, Done, Next, Nop, Read, Refusal, Reply, Retry
from fjord.errors import Code, FjordError, RemoteProtocolError, UnavailableError

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Kind = TypeVar("Kind", bound=Reply)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result_co]):
    """One request of a user."""

    command: Command
    read: Callable[[Reply], Result_co]  # assumes that the reply is not a refusal

    def result(self, reply: Reply) -> Result_co:
        """Returns the result for the user.

        Raises:
            RefusedError: if the command was refused.
            RemoteProtocolError: if the reply does not fit the command.
        """
        if isinstance(reply, Refusal):
            raise reply.error()
        return self.read(reply)


# An operation of several calls: yields each of them, is sent its result or its error, and returns
# the final result.  Every shell follows the same steps.
Steps = Generator[Call[Any], Any, Result]
# The same with pauses: a number that it yields is a pause in seconds.
PacedSteps = Generator[Call[Any] | float, Any, Result]


def expect(reply: Reply, kind: type[Kind]) -> Kind:
    """Returns a reply, checking its kind.

    Raises:
        RemoteProtocolError: if it is of another kind.
    """
    if not isinstance(reply, kind):
        text = f"a reply of the kind {type(reply).__name__}, not {kind.__name__}"
        raise RemoteProtocolError(Code.BAD_BATCH, text)
    return reply


def ask(command: Command, kind: type[Kind]) -> Call[Kind]:
    """Returns a call whose result is the reply itself."""
    return Call(command, lambda reply: expect(reply, kind))


def paging(command: Any, field: str, kind: type[Kind], following: str) -> Steps[list[Kind]]:
    """Asks for all pages; `following` of a page is `field` of the command for the next one."""
    pages: list[Kind] = []
    while True:
        page: Kind = yield ask(command, kind)
        pages.append(page)
        start = getattr(page, following)
        if not start:
            return pages
        if start <= getattr(command, field):
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same page again")
        command = replace(command, **{field: start})


def expect_rows(found: int, wanted: int) -> None:
    """Raises RemoteProtocolError unless a reply has the wanted number of rows."""
    if found != wanted:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply with {found} rows, not {wanted}")


def check_name(name: str) -> str:
    """Returns the name of a table or subscriber.

    Raises:
        RefusedError: if it is not valid.
    """
    problem = commands.name_problem(name)
    if problem is not None:
        raise problem.error()
    return name


def check_names(what: str, given: Iterable[str], known: Set[str]) -> None:
    """Raises TypeError if an option is unknown."""
    unknown = set(given) - known
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise TypeError(f"{what} has no {names}; there are {', '.join(sorted(known))}")


def check_whole(name: str, number: int) -> int:
    """Returns an option that is a whole number.

    Raises:
        TypeError: if it is something else.
    """
    try:
        found = operator.index(number)
    except TypeError:
        raise not_a(name, "a whole number", number) from None
    if isinstance(number, bool):
        raise not_a(name, "a whole number", number)
    return found


def check_dicts(name: str, wanted: str, rows: Sequence[object]) -> None:
    """Raises TypeError if a row is not a mapping."""
    if set(map(type, rows)) != {dict}:
        for row in rows:
            if not isinstance(row, Mapping):
                raise not_a(name, wanted, row)


def is_number(given: object) -> bool:
    """Says whether something is a number of any library, except True and False."""
    return isinstance(given, Real) and not isinstance(given, bool)


def not_a(name: str, wanted: str, found: object) -> TypeError:
    """Returns the error for an option of a wrong type."""
    return TypeError(f"{name} is {wanted}, not {type(found).__name__}")


def done(reply: Reply) -> None:
    if not isinstance(reply, Done):
        expect(reply, Done)


def nothing_to_do(result: Result) -> Call[Result]:
    """Returns a call that changes nothing, such as `set_many` without items, and its result."""

    def read(reply: Reply) -> Result:
        done(reply)
        return result

    return Call(Nop(), read)


def missing_rows(reply: Reply, rows: int) -> Sequence[int]:
    """Returns the places of the rows that did not exist.

    Raises:
        RemoteProtocolError: if it names a row that was not sent.
    """
    missing = expect(reply, Acted).missing
    if missing and max(missing) >= rows:
        raise RemoteProtocolError(Code.BAD_BATCH, f"row {max(missing)} of {rows} is missing")
    return missing


def stats_call() -> Call[dict[str, int]]:
    return Call(commands.Stats(), read_numbers)


def read_numbers(reply: Reply) -> dict[str, int]:
    """Returns the numbers of a reply, by name.

    Raises:
        RemoteProtocolError: if a name is not UTF-8.
    """
    found = expect(reply, commands.Numbers)
    return dict(zip(map(read_name, found.names.rows()), found.values, strict=True))


def read_number(reply: Reply, name: str) -> int:
    """Returns one number of a reply.

    Raises:
        RemoteProtocolError: if it is missing.
    """
    numbers = read_numbers(reply)
    if name not in numbers:
        raise RemoteProtocolError(Code.BAD_BATCH, f"numbers without {name}")
    return numbers[name]


def read_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(Code.BAD_NAME, f"a name that is not UTF-8: {error}") from error


# -- requests in flight ---------------------------------------------------------------------------


class Deadline:
    """When a call times out.

    The clock is read when the call begins, and then only after steps that may take long.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = self.left = seconds  # `left`: when the clock was last read
        self._clock = clock
        self._end_us = clock.monotonic_us() + round(seconds * 1_000_000)

    def left_seconds(self) -> float:
        self.left = (self._end_us - self._clock.monotonic_us()) / 1_000_000
        return self.left


class Client:
    """A client's identity, which outlives its connections."""

    def __init__(self, identity: bytes) -> None:
        self.hello = commands.Hello(client=identity)
        self.last_number = 0  # of a request


class InFlight:
    """A command in flight, across retries."""

    # Class attributes, since an instance is made for every call.
    is_unsure = False  # a connection broke: it may have been applied
    number = 0  # makes a retry safe; 0 = not needed
    _pauses: Iterator[float] | None = None

    def __init__(self, client: Client, command: Command) -> None:
        rule = type(command).row.retry
        retry = rule if type(rule) is Retry else rule(command)  # type: ignore[operator]
        self._client = client
        self.command = command  # as sent
        self.can_repeat = retry is not Retry.NEVER  # after a connection broke
        if retry is Retry.NUMBERED:
            client.last_number = self.number = client.last_number + 1

    def was_busy(self) -> None:
        """Numbers the request anew: nothing was done, and its old number could become too old."""
        if self.number and not self.is_unsure:
            self._client.last_number = self.number = self._client.last_number + 1

    def wait_at_most(self, seconds: float) -> None:
        """Shortens the wait of a retry, so that the server hands no jobs to a call that is over."""
        command = self.command
        if isinstance(command, Next | Read) and command.wait_us:
            left_us = max(0, round(seconds * 1_000_000))
            self.command = replace(command, wait_us=min(command.wait_us, left_us))

    def pause_seconds(self, *, at_once: bool = False) -> float:
        """Returns how long to wait before the next try; with `at_once`, 0 before the second.

        A broken connection may only have been idle for too long.
        """
        if self._pauses is None:
            self._pauses = pauses()
            if at_once:
                return 0.0
        return next(self._pauses)


class Locks(set[tuple[str, bytes]]):
    """The locks that a connection holds, as table and key."""

    def note(self, command: Command, reply: Reply) -> None:
        if isinstance(reply, Refusal):
            return
        if isinstance(command, commands.Lock):
            self.update((command.table, key) for key in command.keys.rows())
        if isinstance(command, commands.Unlock):
            self.difference_update((command.table, key) for key in command.keys.rows())

    def lose(self) -> bool:
        """Forgets all locks; returns whether there were any."""
        had = bool(self)
        self.clear()
        return had


# Codes with which a server closes a connection.
_GOODBYES: Final = {Code.BUSY, Code.IDLE_TIMEOUT, Code.READ_TIMEOUT, Code.SLOW_CONSUMER}


def is_final(error: Exception) -> bool:
    """Says whether another connection would end in the same way."""
    return isinstance(error, FjordError) and not (
        isinstance(error, RemoteProtocolError) and error.code in _GOODBYES
    )


def undoing(command: Command, reply: Reply) -> Command | None:
    """Returns the command that undoes a reply whose caller is gone, if needed."""
    if (
        not isinstance(command, Next)
        or not isinstance(reply, commands.Taken)
        or not reply.first_xid
    ):
        return None
    xids = range(reply.first_xid, reply.first_xid + len(reply.types))
    return commands.Fail(table=command.table, xids=xids, counts=False)


def pauses(
    first: float = limits.RECONNECT_SECONDS_FIRST, most: float = limits.RECONNECT_SECONDS_MAX
) -> Iterator[float]:
    """Yields the seconds to wait before each retry."""
    seconds = first
    while True:
        yield seconds
        seconds = min(2 * seconds, most)


def check_welcome(reply: Reply) -> None:
    """Checks the reply to HELLO.

    Raises:
        RemoteProtocolError: if the server refuses this client.
    """
    if isinstance(reply, Refusal):
        text = f"{reply.text} (the daemon and this client may be of different versions)"
        raise RemoteProtocolError(reply.code, text if reply.code is Code.BAD_BATCH else reply.text)
    if not isinstance(reply, commands.Welcome):
        raise RemoteProtocolError(Code.FAILED, "the peer does not know HELLO")


# -- errors ---------------------------------------------------------------------------------------


def broken(name: str, reason: object, *, locks_lost: bool = False) -> UnavailableError:
    """Returns the error of a command that is not retried."""
    what = (
        "its locks are lost, and nothing is retried while locks are held"
        if locks_lost
        else "a command of this kind is not retried"
    )
    return UnavailableError(
        f"the connection to {name} broke ({reason}); the command may or may not have been "
        f"applied; {what}"
    )


def too_late(name: str, seconds: float, reason: object) -> UnavailableError:
    """Returns the error of a command that timed out."""
    return UnavailableError(
        f"no reply from {name} within {seconds:g} s ({reason}); is `fjord serve` running? The "
        "command may or may not have been applied"
    )


def nobody(name: str, reason: object) -> UnavailableError:
    """Returns the error of a failed first connection."""
    return UnavailableError(f"no daemon answers at {name} ({reason}); is `fjord serve` running?")


def deaf(name: str, reason: object) -> UnavailableError:
    """Returns the error of a listener with a broken connection."""
    return UnavailableError(
        f"the connection to {name} broke ({reason}); changes may have been missed: listen again, "
        "then read what you listen to"
    )
