"""Who asks the committer for something, and gets the reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fjord.commands import Command, Reply

# Called with the reply right after the command ran, before any other command; gives the reply
# that is sent.
After = Callable[[Reply], Reply]
# Called with origin, request, command and reply once all is durable; False: it answers by itself.
Settle = Callable[[Any, Any, Any, Reply], bool]


class Origin(Protocol):
    """Who asked, and gets the reply."""

    @property
    def client(self) -> int:
        """A number that lives as long as the connection."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Says that replies wait to be taken, or that nobody is there to take them."""
        ...

    @property
    def is_open(self) -> bool:
        """Says that somebody is there; else what is stalled is forgotten."""
        ...

    def answer(self, request: Any, reply: Reply) -> None:
        """Takes the reply to what it asked with `request`; it is sent with `flush`."""
        ...

    def flush(self) -> None: ...

    def forget(self, request: Any) -> None:
        """Takes note that a request is not run, since nobody is there any more."""
        ...


class Patient(Origin, Protocol):
    """Who can wait for a reply: a session."""

    @property
    def is_ending(self) -> bool:
        """Says that the peer sends no more, so that nothing waits for it."""
        ...


class Submit(Protocol):
    """Runs a command with the next group: the committer."""

    def __call__(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        settle: Settle | None = None,
        /,
    ) -> None: ...
