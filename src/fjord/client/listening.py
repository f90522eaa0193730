"""Listening for changes, over a connection or in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, Self, TypeVar

from fjord import commands
from fjord.commands import Changed, Command, Reply
from fjord.errors import ClosedError

Told = TypeVar("Told")  # a change, as the listener gets it


class Listening(Protocol):
    """Changes of the requested keys or table."""

    def wait(self, timeout: float | None) -> Changed | None:
        """Returns the next change, None if none came in `timeout` seconds.

        Raises:
            ClosedError: if it was closed.
        """

    def close(self) -> None: ...


class Executor(Protocol):
    """A directory, or a connection to a daemon."""

    def execute(self, command: Command, /) -> Reply: ...

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        """Begins to listen.

        Raises:
            RefusedError: if that is refused.
        """

    def close(self) -> None: ...


class Changes(Generic[Told]):
    """An iterator of changes that ends when it is closed."""

    def __init__(
        self,
        executor: Executor,
        command: commands.Listen | commands.ListenJobs,
        read: Callable[[Changed], Told],
    ) -> None:
        self._listening = executor.listen(command)
        self._read = read

    def __iter__(self) -> Iterator[Told]:
        return self

    def __next__(self) -> Told:
        try:
            change = self.wait()
        except ClosedError as error:
            raise StopIteration from error
        assert change is not None
        return change

    def wait(self, timeout: float | None = None) -> Told | None:
        """Returns the next change, None if none comes within `timeout` seconds."""
        changed = self._listening.wait(timeout)
        return None if changed is None else self._read(changed)

    def close(self) -> None:
        """Stops listening, also while another thread waits for a change."""
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
