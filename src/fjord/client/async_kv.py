"""A key/value table for asyncio: the same calls as `fjord.Kv`, awaited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar, Unpack, cast, overload

from fjord import commands
from fjord.client.address import shown_at
from fjord.client.async_listening import AsyncChanges
from fjord.client.calls import AsyncRun
from fjord.client.entries import AnyKey, Change, Entry, Key, Seconds, change_reader
from fjord.client.kv_calls import KvCalls, SetOneOptions, SetOptions
from fjord.client.pages import Row, Span, Walk
from fjord.commands import Changed
from fjord.errors import UnavailableError
from fjord.values import Value

Default = TypeVar("Default")
AsyncListen = Callable[[commands.Listen, Callable[[Changed], Change]], AsyncChanges[Change]]


class AsyncKv:
    """A key/value table; each method is that of `fjord.Kv`, awaited."""

    def __init__(
        self, run: AsyncRun, calls: KvCalls, listen: AsyncListen, *, name: str = ""
    ) -> None:
        self._run = run
        self._calls = calls
        self._listen = listen
        self._name = name  # of the database

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._name)}>"

    # -- writes -----------------------------------------------------------------------------------

    async def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        await self._run(self._calls.set(key, value, **options))

    async def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        await self._run(self._calls.set_many(items, **options))

    async def delete(self, key: Key, *, purge: bool = False) -> None:
        await self._run(self._calls.delete_many([key], purge=purge))

    async def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> None:
        await self._run(self._calls.delete_many(keys, purge=purge))

    async def add(self, key: Key, amount: float) -> int | float:
        return cast(float, await self._run(self._calls.add(key, amount)))

    async def flip(self, key: Key) -> bool:
        return cast(bool, await self._run(self._calls.flip(key)))

    async def truncate(self, key: Key, size: int) -> str | bytes:
        return cast(str | bytes, await self._run(self._calls.truncate(key, size)))

    async def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> None:
        await self._run(self._calls.rename(key, to, overwrite=overwrite))

    # -- reads ------------------------------------------------------------------------------------

    @overload
    async def get(self, key: Key, *, skip_worked: bool = False) -> Value: ...
    @overload
    async def get(
        self, key: Key, default: Default, *, skip_worked: bool = False
    ) -> Value | Default: ...
    async def get(self, key: Key, default: object = None, *, skip_worked: bool = False) -> object:
        found = await self._run(self._calls.get_many([key], skip_worked=skip_worked))
        return found.get(key, default)

    async def get_many(
        self, keys: Iterable[AnyKey], *, skip_worked: bool = False
    ) -> dict[AnyKey, Value]:
        return await self._run(self._calls.get_many(keys, skip_worked=skip_worked))

    async def entry(self, key: Key) -> Entry | None:
        return await self._run(self._calls.entry(key))

    async def exists(self, key: Key) -> bool:
        return await self._run(self._calls.exists(key))

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
        call = self._calls.touch_many([key], ttl=ttl, expires_at=expires_at)
        return (await self._run(call)).get(key, default)

    @overload
    async def take(self, key: Key, *, seconds: Seconds = 60) -> Value: ...
    @overload
    async def take(
        self, key: Key, default: Default, *, seconds: Seconds = 60
    ) -> Value | Default: ...
    async def take(self, key: Key, default: object = None, *, seconds: Seconds = 60) -> object:
        return (await self._run(self._calls.take_many([key], seconds=seconds))).get(key, default)

    async def take_many(
        self, keys: Iterable[AnyKey], *, seconds: Seconds = 60
    ) -> dict[AnyKey, Value]:
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
        span = Span(start=start, stop=stop, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    def match(
        self, pattern: AnyKey, *, limit: int | None = None, skip_worked: bool = False
    ) -> AsyncIterator[tuple[AnyKey, Value]]:
        span = Span(match=pattern, limit=limit, skip_worked=skip_worked)
        return self._walk(self._calls.items(span))

    @overload
    def keys(self) -> AsyncIterator[str]: ...
    @overload
    def keys(self, prefix: AnyKey) -> AsyncIterator[AnyKey]: ...
    def keys(self, prefix: Key = "") -> AsyncIterator[Key]:
        return self._walk(self._calls.keys(Span(prefix=prefix)))

    def entries(self, span: Span[AnyKey]) -> AsyncIterator[tuple[AnyKey, Entry]]:
        return self._walk(self._calls.entries(span))

    async def _walk(self, walk: Walk[Row]) -> AsyncIterator[Row]:
        while (call := walk.next_call()) is not None:
            for row in await self._run(call):
                yield row

    # -- locks and changes ------------------------------------------------------------------------

    async def lock(self, *keys: Key) -> None:
        await self._run(self._calls.lock(keys))

    async def unlock(self, *keys: Key) -> None:
        await self._run(self._calls.unlock(keys))

    @contextlib.asynccontextmanager
    async def locked(self, *keys: Key) -> AsyncIterator[None]:
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
        """Tells of changes from the first `async for`, `async with` or `wait` on."""
        return self._listen(self._calls.listen(keys), change_reader(keys))
