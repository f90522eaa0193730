"""A key/value table: the blocking shell over `KvCalls`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar, Unpack, cast, overload

from fjord.client.address import shown_at
from fjord.client.calls import Run
from fjord.client.entries import AnyKey, Change, Entry, Key, Seconds, change_reader
from fjord.client.kv_calls import KvCalls, SetOneOptions, SetOptions
from fjord.client.listening import Changes, Listen
from fjord.client.pages import Row, Span, Walk
from fjord.errors import UnavailableError
from fjord.values import Value

Default = TypeVar("Default")


class Kv:
    """A key/value table.  Every call returns when its effect is durable.

    Keys are str or bytes; values are None, bytes, str, int, float or bool.
    """

    def __init__(self, run: Run, calls: KvCalls, listen: Listen, *, name: str = "") -> None:
        self._run = run
        self._calls = calls
        self._listen = listen
        self._name = name  # of the database

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._name)}>"

    # -- writes -----------------------------------------------------------------------------------

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        """Gives `key` a value.

        Args:
            key: the key, at most 480 bytes.
            value: the value, at most 1 MiB.
            options:
                ttl: seconds that it lives, from now and again from each touch.
                expires_at: the moment until which it lives.
                overwrite: False refuses if the key has a value.
                persist: False keeps it in memory only, until the server stops.
                also: further keys of the same value, instead of those that it had.

        Raises:
            ExistsError: if the key is there and `overwrite` is off.
            LockedError: if another client has locked the key.
        """
        self._run(self._calls.set(key, value, **options))

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        """Gives values to many keys, all or none, in one commit."""
        self._run(self._calls.set_many(items, **options))

    def delete(self, key: Key, *, purge: bool = False) -> None:
        """Takes the value of `key` away; a missing key is no error.

        Args:
            key: any key of the value; its others are gone too.
            purge: also removes the trace that keeps older writes from bringing it back.
        """
        self._run(self._calls.delete_many([key], purge=purge))

    def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> None:
        """Takes the values of many keys away, in one commit."""
        self._run(self._calls.delete_many(keys, purge=purge))

    def add(self, key: Key, amount: float) -> int | float:
        """Adds to a number where it is, and returns the new one.

        Raises:
            NotFoundError: if there is no such key.
            RefusedError: if it is no number, or the result has more than 64 bits.
        """
        return cast(float, self._run(self._calls.add(key, amount)))

    def flip(self, key: Key) -> bool:
        """Turns True into False and False into True, and returns the new one."""
        return cast(bool, self._run(self._calls.flip(key)))

    def truncate(self, key: Key, size: int) -> str | bytes:
        """Keeps the first `size` bytes of a str or bytes, and returns the new value."""
        return cast(str | bytes, self._run(self._calls.truncate(key, size)))

    def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> None:
        """Gives a value another key; its other keys, its expiry and its dates stay.

        Raises:
            NotFoundError: if there is no such key.
            ExistsError: if `to` has a value and `overwrite` is off.
        """
        self._run(self._calls.rename(key, to, overwrite=overwrite))

    # -- reads ------------------------------------------------------------------------------------

    @overload
    def get(self, key: Key, *, skip_worked: bool = False) -> Value: ...
    @overload
    def get(self, key: Key, default: Default, *, skip_worked: bool = False) -> Value | Default: ...
    def get(self, key: Key, default: object = None, *, skip_worked: bool = False) -> object:
        """Returns the value of `key`, or `default` if there is none, or it is worked on."""
        found = self._run(self._calls.get_many([key], skip_worked=skip_worked))
        return found.get(key, default)

    def get_many(self, keys: Iterable[AnyKey], *, skip_worked: bool = False) -> dict[AnyKey, Value]:
        """Returns the values of those keys that have one."""
        return self._run(self._calls.get_many(keys, skip_worked=skip_worked))

    def entry(self, key: Key) -> Entry | None:
        """Returns the value of `key` with its type, dates and state, None if there is none."""
        return self._run(self._calls.entry(key))

    def exists(self, key: Key) -> bool:
        """Says whether `key` has a value, without fetching it."""
        return self._run(self._calls.exists(key))

    @overload
    def touch(
        self, key: Key, *, ttl: Seconds | None = None, expires_at: datetime | None = None
    ) -> Value: ...
    @overload
    def touch(
        self,
        key: Key,
        default: Default,
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> Value | Default: ...
    def touch(
        self,
        key: Key,
        default: object = None,
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> object:
        """Lets a value live longer, and returns it; `default` if there is none.

        It lives for its own TTL from now, for `ttl` seconds, or until `expires_at`, whichever is
        the longest; never shorter than before, and one that never expires stays so.  A value may
        be None itself: another default tells the two apart.
        """
        call = self._calls.touch_many([key], ttl=ttl, expires_at=expires_at)
        return self._run(call).get(key, default)

    @overload
    def take(self, key: Key, *, seconds: Seconds = 60) -> Value: ...
    @overload
    def take(self, key: Key, default: Default, *, seconds: Seconds = 60) -> Value | Default: ...
    def take(self, key: Key, default: object = None, *, seconds: Seconds = 60) -> object:
        """Marks a value as worked on, and returns it; `default` if there is none to take.

        There is none if the key has no value, or others work on it.  A value may be None itself:
        another default tells the two apart.  The mark ends after `seconds`, or when the key gets
        a new value.
        """
        return self._run(self._calls.take_many([key], seconds=seconds)).get(key, default)

    def take_many(self, keys: Iterable[AnyKey], *, seconds: Seconds = 60) -> dict[AnyKey, Value]:
        """Marks values as worked on; returns those that were there and that nobody works on."""
        return self._run(self._calls.take_many(keys, seconds=seconds))

    # -- in the order of keys ---------------------------------------------------------------------

    def range(
        self,
        start: AnyKey,
        stop: AnyKey | None = None,
        *,
        limit: int | None = None,
        skip_worked: bool = False,
    ) -> Iterator[tuple[AnyKey, Value]]:
        """Yields keys and values from `start` up to before `stop`, a page at a time.

        Keys are of the kind that the bounds are: str or bytes.
        """
        span = Span(start=start, stop=stop, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    def match(
        self, pattern: AnyKey, *, limit: int | None = None, skip_worked: bool = False
    ) -> Iterator[tuple[AnyKey, Value]]:
        """Yields keys in which a regular expression (RE2) is found, and their values.

        It is matched on bytes.  One that begins with ^ and a literal looks at those keys only.
        """
        span = Span(match=pattern, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    @overload
    def keys(self) -> Iterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> Iterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> Iterator[Key]:
        """Yields the keys that begin with `prefix`, without their values."""
        return self._walk(self._calls.keys(Span(prefix=prefix)))

    def entries(self, span: Span[AnyKey]) -> Iterator[tuple[AnyKey, Entry]]:
        """Yields keys and entries of a span: bounds, prefix, regular expression and limit."""
        return self._walk(self._calls.entries(span))

    def _walk(self, walk: Walk[Row]) -> Iterator[Row]:
        while (call := walk.next_call()) is not None:
            yield from self._run(call)

    # -- locks and changes ------------------------------------------------------------------------

    def lock(self, *keys: Key) -> None:
        """Keeps other clients from writing these keys, until `unlock` or the connection's end.

        Raises:
            LockedError: if one of them is locked; none is locked then.
        """
        self._run(self._calls.lock(keys))

    def unlock(self, *keys: Key) -> None:
        """Gives keys free that this client has locked."""
        self._run(self._calls.unlock(keys))

    @contextlib.contextmanager
    def locked(self, *keys: Key) -> Iterator[None]:
        """Locks keys for the length of a `with` block."""
        self.lock(*keys)
        try:
            yield
        except UnavailableError:
            raise  # the locks went with the connection
        except BaseException:
            self.unlock(*keys)
            raise
        self.unlock(*keys)

    def listen(self, *keys: Key) -> Changes[Change]:
        """Tells of every change of these keys from now on.

        Iterate over it, or `wait` with a timeout; `close` it, or use it in a `with` block.  It
        has a connection of its own.
        """
        return Changes(self._listen(self._calls.listen(keys)), change_reader(keys))

    # -- like a dict ------------------------------------------------------------------------------

    def __contains__(self, key: Key) -> bool:
        return self.exists(key)

    def __getitem__(self, key: Key) -> Value:
        return self.get_many([key])[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self.set(key, value)

    def __delitem__(self, key: Key) -> None:
        self.delete(key)
