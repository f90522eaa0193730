"""A call: the command to send, and how to read its reply.  Every shell runs the same calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fjord.commands import Command, Done, Refusal, Reply

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result_co]):
    """One request of a user."""

    command: Command
    read: Callable[[Reply], Result_co]  # assumes that the reply is no refusal

    def result(self, reply: Reply) -> Result_co:
        """Returns what the user gets.

        Raises:
            RefusedError: if the command was refused.
        """
        if isinstance(reply, Refusal):
            raise reply.error()
        return self.read(reply)


class Run(Protocol):
    """Runs a call to its end."""

    def __call__(self, call: Call[Result], /) -> Result: ...


class AsyncRun(Protocol):
    """Runs a call to its end, and lets others run meanwhile."""

    async def __call__(self, call: Call[Result], /) -> Result: ...


def done(reply: Reply) -> None:
    assert isinstance(reply, Done)
