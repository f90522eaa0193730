"""A stream: the blocking shell over `StreamCalls`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, overload

from fjord.client import stream_calls
from fjord.client.address import shown_at
from fjord.client.calls import Call, Result, Run, Steps, follow
from fjord.client.entries import AnyKey, Entry, Key, Seconds
from fjord.client.kv_calls import KvCalls
from fjord.client.pages import Row as Found
from fjord.client.pages import Span, Walk
from fjord.client.schemas import Row
from fjord.client.stream_batch import MessageBatch
from fjord.client.stream_calls import BlockInfo, Given, StreamCalls, SubscriberInfo
from fjord.client.stream_places import COUNT, Starting
from fjord.client.stream_settings import StreamSettings
from fjord.client.subscriber_calls import subscribe
from fjord.client.subscribers import Reader, Subscriber
from fjord.values import PLAIN_TYPES, Value

Default = TypeVar("Default")


class Stream:
    """Messages in order.  Every call returns when its effect is durable.

    In mode log it keeps every message; in mode latest the newest of each key, and is a map of
    those too.  Keys are str or bytes; values are None, bytes, str, int, float or bool, or, where
    columns are declared, rows: dicts of them.
    """

    def __init__(
        self,
        run: Run,
        calls: StreamCalls,
        entries: KvCalls,
        *,
        name: str = "",
        settings: StreamSettings | None = None,
    ) -> None:
        self._run = run
        self._calls = calls
        self._entries = entries
        self._name = name  # of the database
        # What is still to be said before messages are appended or read.
        self._declaration = calls.declare(settings) if settings else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._name)}>"

    # -- writes -----------------------------------------------------------------------------------

    def append(self, value: Value | Row, key: Key = "") -> int:
        """Adds a message; returns its seq.

        Args:
            value: the message, at most 1 MiB; a row, a dict of the columns, if they are declared.
            key: what it is about, at most 480 bytes; in mode latest it replaces the one before it
                with the same key, and must have one.  Where key columns are declared, they are it.

        Raises:
            RefusedError: if the server refuses; nothing was changed then.
        """
        if type(value) in PLAIN_TYPES:
            return self._ask(self._calls.append(value, key))
        return self._follow(self._calls.schemas.writing(lambda: self._calls.append(value, key)))

    def append_many(self, values: Given, keys: Iterable[Key] | None = None) -> int:
        """Adds messages in order; returns the seq of the last one, 0 if there is none.

        This is the fastest way, above all with a list of bytes.  Up to 100,000 messages and 8 MiB
        of keys and values are one commit, all or none; more are several commits, of which the
        first are there if a later one fails.

        Args:
            values: the messages.  For declared columns a list of rows, or, which is faster, a
                dict with a list for each column.
            keys: one for each of them; none unless given.

        Raises:
            RefusedError: if any message is refused; none of its commit is added then.
            ValueError: if there are not as many keys as values.
        """
        return self._follow(self._calls.appending(values, keys))

    def delete(self, key: Key) -> bool:
        """Takes the message of a key away, in mode latest; says whether there was one.

        Readers that have seen it, or have not, are told by a message without a value: a tombstone.
        """
        return self._ask(self._calls.delete(key))

    def delete_many(self, keys: Iterable[AnyKey]) -> list[AnyKey]:
        """Takes messages away, in one commit; returns the keys that had none."""
        return self._ask(self._calls.delete_many(keys))

    # -- reads ------------------------------------------------------------------------------------

    def subscriber(self, name: str, *, start: Starting = "beginning") -> Subscriber:
        """Returns the subscriber of that name; it is made if there is none.

        Args:
            name: 1 to 128 of A-Z a-z 0-9 _ -.
            start: where a new one begins: "beginning", "end", a seq, or a datetime with a time
                zone; one that is there stays where it is.
        """
        calls = self._ask(subscribe(self._calls.table, name, start, self._calls.schemas))
        return Subscriber(self._run, calls)

    def reader(self, *, start: Starting = "beginning") -> Reader:
        """Returns a reader that has no name, and of which nothing is kept."""
        return Reader(self._run, self._follow(self._calls.reader(start)))

    def read(
        self,
        n: int = COUNT,
        *,
        after: int | MessageBatch = 0,
        wait: Seconds | None = None,
    ) -> MessageBatch:
        """Returns messages behind a seq, at most `n`; perhaps none.

        Args:
            n: at most so many, and at most 100,000.
            after: the seq, or what was read before.
            wait: seconds that the server waits for the first one; it does not wait unless given.
        """
        return self._follow(self._calls.schemas.receiving(self._calls.read(n, after, wait)))

    # -- the latest of each key -------------------------------------------------------------------

    @overload
    def get(self, key: Key) -> Any: ...
    @overload
    def get(self, key: Key, default: Default) -> Any | Default: ...
    def get(self, key: Key, default: object = None) -> object:
        """Returns the value of a key, or `default` if there is none, in mode latest."""
        return self._look(self._entries.get_many([key])).get(key, default)

    def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        """Returns the values of those keys that have one."""
        return self._look(self._entries.get_many(keys))

    def entry(self, key: Key) -> Entry | None:
        """Returns the value of a key with its type and dates, None if there is none."""
        return self._look(self._entries.entry(key))

    def exists(self, key: Key) -> bool:
        """Says whether a key has a value, without fetching it."""
        return self._ask(self._entries.exists(key))

    @overload
    def items(self) -> Iterator[tuple[str, Any]]: ...
    @overload
    def items(self, prefix: AnyKey) -> Iterator[tuple[AnyKey, Any]]: ...
    def items(self, prefix: Key = "") -> Iterator[tuple[Key, Any]]:
        """Yields keys that begin with `prefix`, in order, and their values, a page at a time."""
        return self._walk(self._entries.items(Span(prefix=prefix)))

    @overload
    def keys(self) -> Iterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> Iterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> Iterator[Key]:
        """Yields keys that begin with `prefix`, in order, without their values."""
        return self._walk(self._entries.keys(Span(prefix=prefix)))

    def values(self, prefix: Key = "") -> Iterator[Any]:
        """Yields the values of keys that begin with `prefix`, in the order of the keys."""
        return (value for _, value in self.items(prefix))

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __contains__(self, key: Key) -> bool:
        return self.exists(key)

    def __getitem__(self, key: Key) -> Any:
        return self.get_many([key])[key]

    def __delitem__(self, key: Key) -> None:
        if not self.delete(key):
            raise KeyError(key)

    # -- looking ----------------------------------------------------------------------------------

    def subscribers(self) -> list[SubscriberInfo]:
        """Returns its subscribers, by name."""
        return self._follow(self._calls.subscribers())

    def blocks(self) -> list[BlockInfo]:
        """Returns the cold blocks that its history is in, in order."""
        return self._follow(stream_calls.blocks(self._calls.table))

    # -- inside -----------------------------------------------------------------------------------

    def _ask(self, call: Call[Result]) -> Result:
        """Runs a call for which the table must be as it was declared."""
        if self._declaration is not None:
            follow(self._run, self._declaration.steps())
            self._declaration = None
        return self._run(call)

    def _look(self, call: Call[Result]) -> Result:
        return self._follow(self._calls.schemas.reading(call))

    def _follow(self, steps: Steps[Result]) -> Result:
        return follow(self._ask, steps)

    def _walk(self, walk: Walk[Found]) -> Iterator[Found]:
        while (call := walk.next_call()) is not None:
            yield from self._look(call)
