"""A key/value table: its calls, which are pure and shared by all shells, and the asyncio shell."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

from fjord import commands, limits, values
from fjord.client import entries
from fjord.client.address import shown_at
from fjord.client.calls import Call, Result, check_names, done, expect, expect_rows, nothing_to_do
from fjord.client.entries import AnyKey, Change, Entry, Key, Seconds
from fjord.client.pages import Span, Walk
from fjord.client.schemas import Schemas
from fjord.clock import Stamps
from fjord.columns import Strings, repeat
from fjord.commands import Entries, Page, Reply
from fjord.errors import Code, LocalProtocolError, UnavailableError
from fjord.values import Type, Value

if TYPE_CHECKING:
    from fjord.client.async_listening import AsyncChanges
    from fjord.client.runner import AsyncRunner


class SetOptions(TypedDict, total=False):
    """How values are set."""

    ttl: Seconds | None  # expires this long after it was set or last touched
    expires_at: datetime | None
    overwrite: bool  # False: refuse if a key exists; default True
    persist: bool  # False: in memory only, until the process stops; default True


class SetOneOptions(SetOptions, total=False):
    """How one value is set."""

    also: Iterable[Key] | None  # the value's further keys from now on; None leaves them


class KvCalls:
    """Builds the calls of one table."""

    def __init__(self, table: str, stamps: Stamps, schemas: Schemas | None = None) -> None:
        self.table = table
        self.schemas = schemas  # of rows; None: the table has no rows
        self._stamps = stamps
        self._decode = schemas.decode if schemas else entries.decode_value
        self._decode_all = schemas.decode_all if schemas else entries.decode_values

    # -- writes -----------------------------------------------------------------------------------

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> Call[None]:
        also = options.pop("also", None)
        return self._set({key: value}, options, also)

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> Call[None]:
        return self._set(items, options) if items else nothing_to_do(None)

    def _set(
        self, items: Mapping[AnyKey, Value], options: SetOptions, also: Iterable[Key] | None = None
    ) -> Call[None]:
        encoded = list(map(values.encode, items.values()))
        command = commands.Set(
            table=self.table,
            keys=Strings.of(entries.encode_keys(items)),
            types=bytes([type_ for type_, _ in encoded]),
            values=Strings.of([data for _, data in encoded]),
            timestamps_us=repeat(self._stamps.next_us(), len(encoded)),
            also=None if also is None else self._keys(_listed(also)),
            **(_set_fields(options) if options else {}),
        )
        return Call(command, done)

    def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> Call[None]:
        encoded = entries.encode_keys(_listed(keys))
        if not encoded:
            return nothing_to_do(None)
        command = commands.Delete(
            table=self.table,
            keys=Strings.of(encoded),
            timestamp_us=self._stamps.next_us(),
            purge=purge,
        )
        return Call(command, done)

    def add(self, key: Key, amount: float) -> Call[Value]:
        type_, operand = values.encode(amount)
        if type_ not in (Type.INTEGER, Type.FLOAT):
            raise LocalProtocolError(Code.BAD_TYPE, "only an int or a float can be added")
        return self._modify(key, commands.Change.ADD, operand, type_)

    def flip(self, key: Key) -> Call[Value]:
        return self._modify(key, commands.Change.NOT)

    def truncate(self, key: Key, size: int) -> Call[Value]:
        _, operand = values.encode(size)
        return self._modify(key, commands.Change.TRUNCATE, operand)

    def _modify(
        self, key: Key, change: commands.Change, operand: bytes = b"", type_: int = Type.INTEGER
    ) -> Call[Value]:
        command = commands.Modify(
            table=self.table,
            key=entries.encode_key(key),
            change=change,
            operand=operand,
            operand_type=type_,
            timestamp_us=self._stamps.next_us(),
        )
        return Call(command, _first_value)

    def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> Call[None]:
        command = commands.Rename(
            table=self.table,
            key=entries.encode_key(key),
            to=entries.encode_key(to),
            timestamp_us=self._stamps.next_us(),
            overwrite=overwrite,
        )
        return Call(command, done)

    # -- reads ------------------------------------------------------------------------------------

    def get(self, key: Key, default: object, *, skip_worked: bool = False) -> Call[Any]:
        name = entries.encode_key(key)
        keys = Strings((0, len(name)), name)

        def read(reply: Reply) -> Any:
            found = _entries(reply, 1)
            type_ = found.types[0]
            return default if type_ == Entries.MISSING else self._decode(type_, found.values[0])

        return Call(commands.Get(table=self.table, keys=keys, skip_worked=skip_worked), read)

    def get_many(
        self, keys: Iterable[AnyKey], *, skip_worked: bool = False
    ) -> Call[dict[AnyKey, Value]]:
        wanted = _listed(keys)
        if not wanted:
            return nothing_to_do({})
        command = commands.Get(table=self.table, keys=self._keys(wanted), skip_worked=skip_worked)
        return Call(
            command,
            lambda reply: entries.read_values(wanted, _entries(reply, len(wanted)), self._decode),
        )

    def entry(self, key: Key) -> Call[Entry | None]:
        command = commands.Get(table=self.table, keys=self._keys([key]))

        def read(reply: Reply) -> Entry | None:
            found = _entries(reply, 1)
            if found.types[0] == Entries.MISSING:
                return None
            return entries.read_entry(found, 0, self._decode)

        return Call(command, read)

    def exists(self, key: Key) -> Call[bool]:
        command = commands.Get(table=self.table, keys=self._keys([key]), with_data=False)
        return Call(command, lambda reply: _entries(reply, 1).types[0] != Entries.MISSING)

    def touch_many(
        self,
        keys: Iterable[AnyKey],
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> Call[dict[AnyKey, Value]]:
        until_us = entries.microseconds(expires_at)
        if ttl is not None:
            until_us = max(until_us, self._stamps.next_us() + entries.duration_us(ttl))
        return self._touch(_listed(keys), extend=True, expires_at_us=until_us)

    def take_many(self, keys: Iterable[AnyKey], *, seconds: Seconds) -> Call[dict[AnyKey, Value]]:
        until_us = self._stamps.next_us() + entries.duration_us(seconds)
        return self._touch(_listed(keys), worked_until_us=until_us)

    def _touch(
        self,
        wanted: list[AnyKey],
        *,
        extend: bool = False,
        expires_at_us: int = 0,
        worked_until_us: int = 0,
    ) -> Call[dict[AnyKey, Value]]:
        if not wanted:
            return nothing_to_do({})
        command = commands.Touch(
            table=self.table,
            keys=self._keys(wanted),
            extend=extend,
            expires_at_us=expires_at_us,
            worked_until_us=worked_until_us,
        )
        return Call(
            command, lambda reply: entries.read_values(wanted, _entries(reply, len(wanted)))
        )

    # -- pages ------------------------------------------------------------------------------------

    def items(self, span: Span[AnyKey]) -> Walk[tuple[AnyKey, Value]]:
        def read(page: Page) -> list[tuple[AnyKey, Value]]:
            found = self._decode_all(bytes(page.entries.types), page.entries.values.rows())
            return list(zip(span.decode_keys(page.keys.rows()), found, strict=True))

        return Walk(self.table, span, read)

    def entries(self, span: Span[AnyKey]) -> Walk[tuple[AnyKey, Entry]]:
        def read(page: Page) -> list[tuple[AnyKey, Entry]]:
            keys = enumerate(span.decode_keys(page.keys.rows()))
            return [(key, entries.read_entry(page.entries, row, self._decode)) for row, key in keys]

        return Walk(self.table, span, read)

    def keys(self, span: Span[AnyKey]) -> Walk[AnyKey]:
        return Walk(
            self.table, span, lambda page: span.decode_keys(page.keys.rows()), with_data=False
        )

    # -- locks and listening ----------------------------------------------------------------------

    def lock(self, keys: Iterable[Key]) -> Call[None]:
        return Call(commands.Lock(table=self.table, keys=self._keys(_some(keys))), done)

    def unlock(self, keys: Iterable[Key]) -> Call[None]:
        return Call(commands.Unlock(table=self.table, keys=self._keys(_some(keys))), done)

    def listen(self, keys: Iterable[Key]) -> commands.Listen:
        return commands.Listen(table=self.table, keys=self._keys(_some(keys)))

    def _keys(self, keys: Iterable[Key]) -> Strings:
        return Strings.of(entries.encode_keys(keys))


def _set_fields(options: SetOptions) -> dict[str, Any]:
    check_names("set", options, SetOptions.__optional_keys__)
    return {
        "expires_at_us": entries.microseconds(options.get("expires_at")),
        "ttl_us": entries.duration_us(options.get("ttl")),
        "overwrite": options.get("overwrite", True),
        "persist": options.get("persist", True),
    }


def _listed(keys: Iterable[AnyKey]) -> list[AnyKey]:
    """Returns keys as a list; a single key would be split into characters."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise LocalProtocolError(Code.BAD_TYPE, "several keys must be a list; this is a single key")
    listed = list(keys)
    if len(listed) > limits.BATCH_ROWS_MAX:
        raise LocalProtocolError(
            Code.BAD_BATCH, f"a batch has at most {limits.BATCH_ROWS_MAX} keys; split it"
        )
    return listed


def _some(keys: Iterable[Key]) -> list[Key]:
    listed = _listed(keys)
    if not listed:
        raise LocalProtocolError(Code.EMPTY_KEY, "give at least one key")
    return listed


def _entries(reply: Reply, rows: int) -> Entries:
    found = expect(reply, Entries)
    if len(found.types) != rows:
        expect_rows(len(found.types), rows)
    return found


def _first_value(reply: Reply) -> Value:
    found = _entries(reply, 1)
    return entries.decode_value(found.types[0], found.values[0])


# -- the shell ------------------------------------------------------------------------------------


Default = TypeVar("Default")


class AsyncKeyedTable:
    """A table whose values are read by their keys."""

    def __init__(self, runner: AsyncRunner, calls: KvCalls) -> None:
        self._runner = runner
        self._run = runner.run
        self._calls = calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._runner.name)}>"

    @overload
    async def get(self, key: Key) -> Any: ...
    @overload
    async def get(self, key: Key, default: Default) -> Any | Default: ...
    async def get(self, key: Key, default: object = None) -> object:
        """Returns the value of a key, or `default` if there is none."""
        return await self._look(self._calls.get(key, default))

    async def get_many(self, keys: Iterable[AnyKey]) -> dict[AnyKey, Any]:
        """Returns the values of those keys that have one."""
        return await self._look(self._calls.get_many(keys))

    async def exists(self, key: Key) -> bool:
        """Says whether a key has a value, without fetching it."""
        return await self._look(self._calls.exists(key))

    @overload
    def keys(self) -> AsyncIterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> AsyncIterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> AsyncIterator[Key]:
        """Yields the keys that begin with `prefix`, in order, without their values."""
        return self._walk(self._calls.keys(Span(prefix=prefix)))

    # -- dict methods of the blocking shell -------------------------------------------------------

    async def __acontains__(self, key: Key) -> bool:
        return await self.exists(key)

    async def __agetitem__(self, key: Key) -> Any:
        found = await self.get_many([key])
        return found[key]

    # -- inside -----------------------------------------------------------------------------------

    async def _look(self, call: Call[Result]) -> Result:
        if self._calls.schemas is None:
            return await self._run(call)
        return await self._runner.follow(self._calls.schemas.reading(call))

    async def _walk(self, walk: Walk[Result]) -> AsyncIterator[Result]:
        while (call := walk.next_call()) is not None:
            for row in await self._look(call):
                yield row


class AsyncItems(AsyncKeyedTable):
    """A table that can be read in key order."""

    @overload
    def items(self) -> AsyncIterator[tuple[str, Any]]: ...
    @overload
    def items(self, prefix: AnyKey) -> AsyncIterator[tuple[AnyKey, Any]]: ...
    def items(self, prefix: Key = "") -> AsyncIterator[tuple[Key, Any]]:
        """Yields keys that begin with `prefix`, with their values, in key order, page by page."""
        return self._walk(self._calls.items(Span(prefix=prefix)))


class AsyncKv(AsyncKeyedTable):
    """A key/value table.  Every call returns when its effect is durable.

    Keys are str or bytes; values are None, bytes, str, int, float or bool.
    """

    # -- writes -----------------------------------------------------------------------------------

    async def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        """Sets the value of `key`.

        Args:
            key: the key, at most 480 bytes.
            value: the value, at most 1 MiB.
            options:
                ttl: seconds until it expires, counted anew from each touch.
                expires_at: when it expires.
                overwrite: False refuses if the key has a value.
                persist: False keeps it in memory only, until the server stops.
                also: further keys of the same value, replacing earlier ones.

        Raises:
            ExistsError: if the key exists and `overwrite` is False.
            LockedError: if another client has locked the key.
        """
        await self._run(self._calls.set(key, value, **options))

    async def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        """Sets the values of many keys, all or none, in one commit."""
        await self._run(self._calls.set_many(items, **options))

    async def delete(self, key: Key, *, purge: bool = False) -> None:
        """Deletes the value of `key`; a missing key is no error.

        Args:
            key: any key of the value; its other keys are deleted too.
            purge: leaves no tombstone, so a delayed older write can bring the value back.
        """
        await self._run(self._calls.delete_many([key], purge=purge))

    async def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> None:
        """Deletes the values of many keys, in one commit."""
        await self._run(self._calls.delete_many(keys, purge=purge))

    async def add(self, key: Key, amount: float) -> int | float:
        """Adds to a number atomically, and returns the result.

        Raises:
            NotFoundError: if there is no such key.
            RefusedError: if it is not a number, or the result does not fit 64 bits.
        """
        return cast(float, await self._run(self._calls.add(key, amount)))

    async def flip(self, key: Key) -> bool:
        """Inverts a boolean, and returns the new value."""
        return cast(bool, await self._run(self._calls.flip(key)))

    async def truncate(self, key: Key, size: int) -> str | bytes:
        """Keeps the first `size` bytes of a str or bytes, and returns the new value."""
        return cast(str | bytes, await self._run(self._calls.truncate(key, size)))

    async def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> None:
        """Gives a value another key; its other keys, its expiry and its dates stay.

        Raises:
            NotFoundError: if there is no such key.
            ExistsError: if `to` has a value and `overwrite` is False.
        """
        await self._run(self._calls.rename(key, to, overwrite=overwrite))

    # -- reads ------------------------------------------------------------------------------------

    @overload
    async def get(self, key: Key, *, skip_worked: bool = False) -> Value: ...
    @overload
    async def get(
        self, key: Key, default: Default, *, skip_worked: bool = False
    ) -> Value | Default: ...
    async def get(self, key: Key, default: object = None, *, skip_worked: bool = False) -> object:
        """Returns the value of `key`; `default` if there is none, or if it is skipped."""
        return await self._run(self._calls.get(key, default, skip_worked=skip_worked))

    async def get_many(
        self, keys: Iterable[AnyKey], *, skip_worked: bool = False
    ) -> dict[AnyKey, Value]:
        """Returns the values of those keys that have one."""
        return await self._run(self._calls.get_many(keys, skip_worked=skip_worked))

    async def entry(self, key: Key) -> Entry | None:
        """Returns the value of `key` with its type, dates and state, None if there is none."""
        return await self._run(self._calls.entry(key))

    @overload
    async def touch(
        self, key: Key, *, ttl: Seconds | None = None, expires_at: datetime | None = None
    ) -> Value: ...
    @overload
    async def touch(
        self,
        key: Key,
        default: Default,
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> Value | Default: ...
    async def touch(
        self,
        key: Key,
        default: object = None,
        *,
        ttl: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> object:
        """Extends the life of a value, and returns it; `default` if there is none.

        It expires after its own TTL from now, after `ttl` seconds, or at `expires_at`, whichever
        is latest, and never earlier than before; one that never expires stays so.  A value may be
        None itself: give another default to tell the two apart.
        """
        call = self._calls.touch_many([key], ttl=ttl, expires_at=expires_at)
        found = await self._run(call)
        return found.get(key, default)

    @overload
    async def take(self, key: Key, *, seconds: Seconds = 60) -> Value: ...
    @overload
    async def take(
        self, key: Key, default: Default, *, seconds: Seconds = 60
    ) -> Value | Default: ...
    async def take(self, key: Key, default: object = None, *, seconds: Seconds = 60) -> object:
        """Marks a value as worked on, and returns it; `default` if there is none to take.

        There is none if the key has no value, or others work on it.  A value may be None itself:
        give another default to tell the two apart.  The mark ends after `seconds`, or when the
        key gets a new value.
        """
        found = await self._run(self._calls.take_many([key], seconds=seconds))
        return found.get(key, default)

    async def take_many(
        self, keys: Iterable[AnyKey], *, seconds: Seconds = 60
    ) -> dict[AnyKey, Value]:
        """Marks existing values that nobody works on as worked on, and returns them."""
        return await self._run(self._calls.take_many(keys, seconds=seconds))

    # -- in the order of keys ---------------------------------------------------------------------

    def range(
        self,
        start: AnyKey,
        stop: AnyKey | None = None,
        *,
        limit: int | None = None,
        skip_worked: bool = False,
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        """Yields keys and values from `start` up to, but not including, `stop`, page by page.

        Keys are str or bytes, like the bounds.
        """
        span = Span(start=start, stop=stop, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    def match(
        self, pattern: AnyKey, *, limit: int | None = None, skip_worked: bool = False
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        """Yields keys that contain a match of a regular expression (RE2), and their values.

        It matches bytes.  One that begins with ^ and a literal reads only keys that begin with it.
        """
        span = Span(match=pattern, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    def entries(self, span: Span[AnyKey]) -> AsyncIterator[tuple[AnyKey, Entry]]:
        """Yields keys and entries of a span: bounds, prefix, regular expression and limit."""
        return self._walk(self._calls.entries(span))

    # -- locks and changes ------------------------------------------------------------------------

    async def lock(self, *keys: Key) -> None:
        """Keeps other clients from writing these keys, until `unlock` or the connection's end.

        Raises:
            LockedError: if one of them is locked; none is locked then.
        """
        await self._run(self._calls.lock(keys))

    async def unlock(self, *keys: Key) -> None:
        """Unlocks keys that this client has locked."""
        await self._run(self._calls.unlock(keys))

    @contextlib.asynccontextmanager
    async def locked(self, *keys: Key) -> AsyncIterator[None]:
        """Locks keys for the length of an `async with` block."""
        await self.lock(*keys)
        try:
            yield
        except UnavailableError:
            raise  # the locks went with the connection
        except BaseException:
            await self.unlock(*keys)
            raise
        await self.unlock(*keys)

    def listen(self, *keys: Key) -> AsyncChanges[Change]:
        """Reports changes of these keys from the first `async for`, `async with` or `wait` on.

        Iterate over it, or `wait` with a timeout; `close` it, or use it in an `async with` block.
        It has its own connection.
        """
        return self._runner.listen(self._calls.listen(keys), entries.change_reader(keys))

    # -- like a dict, in the blocking shell -------------------------------------------------------

    async def __agetitem__(self, key: Key) -> Value:
        found = await self.get_many([key])
        return found[key]

    async def __asetitem__(self, key: Key, value: Value) -> None:
        await self.set(key, value)

    async def __adelitem__(self, key: Key) -> None:
        await self.delete(key)
