"""Who sends a request and gets the reply: a session, as the rest of the server knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fjord.commands import Reply

# Called with the reply right after the command ran, before any other command; gives the reply
# that is sent.
After = Callable[[Reply], Reply]


class Origin(Protocol):
    """What sends a request and gets the reply: a session."""

    def __hash__(self) -> int: ...

    client: int  # lives as long as the connection
    is_stalled: bool  # replies wait to be taken, or nobody is there to take them
    is_open: bool  # somebody is there; else what is stalled is forgotten
    is_ending: bool  # the peer sends no more, so nothing waits for it

    def answer(self, request: Any, reply: Reply) -> None:
        """Takes the reply to what it asked with `request`; it is sent with `flush`."""

    def flush(self) -> None: ...

    def forget(self, request: Any) -> None:
        """Takes note that a request is not run, since nobody is there any more."""

    def push(self, messages: Sequence[bytes]) -> None:
        """Sends changes that it listens to."""
