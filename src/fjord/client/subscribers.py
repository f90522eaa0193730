"""Reading a stream: the blocking shells over `SubscriberCalls` and `Cursor`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from fjord.client.calls import Run, follow
from fjord.client.entries import Seconds
from fjord.client.stream_batch import Message, MessageBatch
from fjord.client.stream_places import COUNT, Cursor, Starting, read_on
from fjord.client.subscriber_calls import Processed, SubscriberCalls, first_of


class _Reads(Protocol):
    def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch: ...


def _batches(reader: _Reads, n: int, wait: Seconds | None) -> Iterator[MessageBatch]:
    while len(batch := reader.read(n, wait=wait)):
        yield batch


class Reader:
    """Reads a stream from some place on, and keeps its place itself; nothing is acknowledged."""

    def __init__(self, run: Run, cursor: Cursor) -> None:
        self._run = run
        self._cursor = cursor

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._cursor.table!r} after seq {self.position}>"

    @property
    def position(self) -> int:
        """Everything up to this seq was given."""
        return self._cursor.after

    def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        """Returns the next messages, at most `n`; perhaps none.

        Args:
            n: at most so many, and at most 100,000.
            wait: seconds that the server waits for the first one, at most 3600; it does not wait
                unless given.
        """
        return follow(self._run, read_on(self._cursor, n, wait))

    def batches(self, n: int = COUNT, *, wait: Seconds | None = None) -> Iterator[MessageBatch]:
        """Yields messages, at most `n` at a time, until there are no more.

        With `wait` it ends when none has come for so many seconds.
        """
        return _batches(self, n, wait)


class Subscriber:
    """Reads a stream under a name; how far it has come is kept by the server.

    It is for one thread at a time.  Several processes may use one name: those that `pop` get each
    message once, all others should not share it.
    """

    def __init__(self, run: Run, calls: SubscriberCalls) -> None:
        self._run = run
        #: What a transaction needs to acknowledge for it.
        self.calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.calls.table!r}>"

    @property
    def name(self) -> str:
        return self.calls.name

    # -- reading ----------------------------------------------------------------------------------

    def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        """Returns the next messages, in order, at most `n`; perhaps none.

        They come again in another process, or after `rewind`, until they are acknowledged.

        Args:
            n: at most so many, and at most 100,000.
            wait: seconds that the server waits for the first one, at most 3600; it does not wait
                unless given.

        Raises:
            NotFoundError: if the subscriber was deleted.
        """
        return follow(self._run, self.calls.read(n, wait))

    def batches(self, n: int = COUNT, *, wait: Seconds | None = None) -> Iterator[MessageBatch]:
        """Yields messages, at most `n` at a time, until there are no more; acknowledge each.

        With `wait` it ends when none has come for so many seconds.
        """
        return _batches(self, n, wait)

    def peek(self) -> Message | None:
        """Returns the message that `pop` would take, and moves nothing; None if there is none.

        It is the first one that is not acknowledged, whatever was read.
        """
        return follow(self._run, self.calls.peek())

    def pop(self, *, wait: Seconds | None = None) -> Message | None:
        """Takes the first message that is not acknowledged: returns it once that is durable.

        Others that pop under the same name get other messages.  What was read and not acknowledged
        comes again, as after `rewind`.  A message is lost if the process ends before it has worked
        on it; use `taking` where that must not be.

        Args:
            wait: seconds that the server waits for one; it does not wait unless given.

        Raises:
            RuntimeError: inside of a `taking` block, which has that message.
        """
        return follow(self._run, self.calls.pop(wait))

    @contextlib.contextmanager
    def taking(self, *, wait: Seconds | None = None) -> Iterator[Message | None]:
        """Gives the first message that is not acknowledged, or None, to a `with` block.

        It is acknowledged when the block ends well.  If the block raises, it is the next message
        again.

        Raises:
            RuntimeError: inside of another such block, which has that message.
        """
        batch = follow(self._run, self.calls.hold(wait))
        try:
            yield first_of(batch)
        except BaseException:
            self.calls.go_back(batch)
            raise
        finally:
            self.calls.let_go()
        if len(batch):
            self.ack(batch)

    # -- the mark ---------------------------------------------------------------------------------

    def ack(self, processed: Processed) -> None:
        """Says that messages are processed: all up to the end of a batch, a message, or a seq.

        Raises:
            StaleError: if somebody has sought meanwhile; the next read begins where that led.
            RefusedError: if there is no such seq yet.
        """
        follow(self._run, self.calls.ack(processed))

    def seek(self, start: Starting) -> None:
        """Goes to another place, also back: "beginning", "end", a seq or a moment.

        What was read before can no longer be acknowledged, by whomever.
        """
        self._run(self.calls.seek(start))

    def rewind(self) -> None:
        """Goes back to the mark: what was read and not acknowledged comes again."""
        follow(self._run, self.calls.rewind())

    @property
    def position(self) -> int:
        """Its mark, as the server has it: everything up to this seq is processed."""
        return follow(self._run, self.calls.position()).position

    @property
    def lag(self) -> int:
        """How many messages are ahead of its mark."""
        return self._run(self.calls.lag())

    # -- its end ----------------------------------------------------------------------------------

    def sleep(self) -> None:
        """Says that it will not read for a while: the server keeps nothing in memory for it."""
        self._run(self.calls.rest(asleep=True))

    def wake(self) -> None:
        """Says that it is about to read; a read does so too."""
        self._run(self.calls.rest(asleep=False))

    def close(self) -> None:
        """Lets it sleep, with its mark where it is."""
        self.sleep()

    def delete(self) -> None:
        """Takes it away, with its mark.

        Raises:
            NotFoundError: if it is not there any more.
        """
        self._run(self.calls.delete())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:  # else the connection may be gone, and sleep is a courtesy
            self.close()
