"""Who asks the committer for something, and gets the reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fjord.commands import Reply

# Called with the reply right after the command ran, before any other command; gives the reply
# that is sent.
After = Callable[[Reply], Reply]


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
