"""A call: the command to send, and how to read its reply.  Every shell runs the same calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from typing import Any, Generic, TypeVar

from fjord.commands import Acted, Command, Done, Nop, Numbers, Refusal, Reply, name_problem
from fjord.errors import Code, RemoteProtocolError

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Kind = TypeVar("Kind", bound=Reply)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result_co]):
    """One request of a user."""

    command: Command
    read: Callable[[Reply], Result_co]  # assumes that the reply is no refusal

    def result(self, reply: Reply) -> Result_co:
        """Returns what the user gets.

        Raises:
            RefusedError: if the command was refused.
            RemoteProtocolError: if the reply is not one to this command.
        """
        if isinstance(reply, Refusal):
            raise reply.error()
        return self.read(reply)


# What takes several calls: it yields each of them, is sent its result or its error, and returns
# the result of all.  Every shell follows the same steps.
Steps = Generator[Call[Any], Any, Result]


def expect(reply: Reply, kind: type[Kind]) -> Kind:
    """Returns a reply that is of the kind that its command is answered with.

    Raises:
        RemoteProtocolError: if it is of another kind.
    """
    if not isinstance(reply, kind):
        text = f"a reply of the kind {type(reply).__name__}, not {kind.__name__}"
        raise RemoteProtocolError(Code.BAD_BATCH, text)
    return reply


def ask(command: Command, kind: type[Kind]) -> Call[Kind]:
    """Returns a call whose result is the reply itself, of the kind that it should be."""
    return Call(command, lambda reply: expect(reply, kind))


def expect_rows(found: int, wanted: int) -> None:
    """Makes sure that a reply has a row for each one that was asked for.

    Raises:
        RemoteProtocolError: if it has more, or fewer.
    """
    if found != wanted:
        raise RemoteProtocolError(Code.BAD_BATCH, f"a reply with {found} rows, not {wanted}")


def check_name(name: str) -> str:
    """Returns the name of a table, or of a subscriber.

    Raises:
        RefusedError: if it is none, as a server would say it.
    """
    problem = name_problem(name)
    if problem is not None:
        raise problem.error()
    return name


def check_names(what: str, given: Iterable[str], known: Set[str]) -> None:
    """Makes sure that options are known, since nothing else looks at their names.

    Raises:
        TypeError: if one is not.
    """
    unknown = set(given) - known
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        raise TypeError(f"{what} has no {names}; there are {', '.join(sorted(known))}")


def check_whole(name: str, number: int) -> int:
    """Returns a whole number, for an option that is one.

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


def is_number(given: object) -> bool:
    """Says whether something is a number, of whatever library, and not True or False."""
    return isinstance(given, Real) and not isinstance(given, bool)


def not_a(name: str, wanted: str, found: object) -> TypeError:
    """Returns the error that says what an option is, and what was given."""
    return TypeError(f"{name} is {wanted}, not {type(found).__name__}")


def done(reply: Reply) -> None:
    expect(reply, Done)


def nothing_to_do(result: Result) -> Call[Result]:
    """Returns a call that changes nothing, such as `set_many` without items, and its result."""

    def read(reply: Reply) -> Result:
        done(reply)
        return result

    return Call(Nop(), read)


def missing_rows(reply: Reply, rows: int) -> Sequence[int]:
    """Returns which of some rows were not there.

    Raises:
        RemoteProtocolError: if it names a row that was not sent.
    """
    missing = expect(reply, Acted).missing
    if missing and max(missing) >= rows:
        raise RemoteProtocolError(Code.BAD_BATCH, f"row {max(missing)} of {rows} is missing")
    return missing


def read_number(reply: Reply, name: str) -> int:
    """Returns one of the numbers of a reply.

    Raises:
        RemoteProtocolError: if it is not among them.
    """
    found = expect(reply, Numbers)
    numbers = dict(zip(found.names.rows(), found.values, strict=True))
    if name.encode() not in numbers:
        raise RemoteProtocolError(Code.BAD_BATCH, f"numbers without {name}")
    return numbers[name.encode()]
