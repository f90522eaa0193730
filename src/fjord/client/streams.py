"""A stream: its calls, which are pure and shared by all shells, and the asyncio shell.

Subscribers are in `subscribers`.
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from fjord import commands, limits, values
from fjord.client import calls, entries, history, subscribers
from fjord.client.calls import Call, Steps, ask, done, expect, missing_rows
from fjord.client.declared_tables import ExpectedTable, StreamSettings, expected
from fjord.client.entries import AnyKey, Entry, Key, Seconds
from fjord.client.history import BlockInfo
from fjord.client.kv import AsyncItems, KvCalls
from fjord.client.messages import MessageBatch
from fjord.client.schemas import Columns, RowMap, Schemas, SchemasOf
from fjord.client.subscribers import (
    COUNT,
    AsyncReader,
    AsyncSubscriber,
    Cursor,
    Starting,
    SubscriberInfo,
)
from fjord.columns import Strings
from fjord.commands import Append, Reply
from fjord.errors import StaleSchemaError
from fjord.kinds import Kind
from fjord.streams import Start, decode_settings
from fjord.values import PLAIN_TYPES, Value

if TYPE_CHECKING:
    from fjord.client.runner import AsyncRunner


# Messages: a list of values or rows; or, for declared columns, a list for each column.
Given = Iterable[Value | RowMap] | Columns


class StreamCalls:
    """Builds the calls of one stream."""

    def __init__(self, table: str, schemas_of: SchemasOf = Schemas) -> None:
        self.table = calls.check_name(table)
        self.schemas = schemas_of(table, decode_settings)

    def create(self, settings: StreamSettings) -> Call[None]:
        return Call(self.declare(settings).command, done)

    def declare(self, settings: StreamSettings) -> ExpectedTable:
        return expected(self.table, Kind.STREAM, settings)

    # -- writes -----------------------------------------------------------------------------------

    def append(self, value: Value | RowMap, key: Key) -> Call[int]:
        if not isinstance(value, Mapping):
            return Call(append_one(self.table, value, key), _seq)
        return self.append_many([value], [key] if key else None)

    def append_many(self, values: Given, keys: Iterable[Key] | None) -> Call[int]:
        """Returns the call that appends messages in one commit."""
        types, data, named = _columns(*self._encoded(values, keys))
        if not types:
            return calls.nothing_to_do(0)
        return Call(_append(self.table, types, data, named), _seq)

    def append_parts(self, values: Given, keys: Iterable[Key] | None) -> Iterator[Call[int]]:
        """Returns the calls that append messages in as few commits as possible."""
        parts = append_parts(self.table, *self._encoded(values, keys))
        return (Call(command, _seq) for command in parts)

    def appending(self, values: Given, keys: Iterable[Key] | None) -> Steps[int]:
        """Appends messages in as few commits as possible; returns the seq of the last one."""
        given = values if isinstance(values, Mapping) else listed("values", values)
        named = None if keys is None else listed("keys", keys)
        last = 0
        if type(given) is list and (not given or type(given[0]) in PLAIN_TYPES):
            for command in append_parts(self.table, given, named):
                last = yield Call(command, _seq)
            return last
        build = partial(self.append_parts, given, named)
        try:
            for call in (yield from self.schemas.building(build)):
                last = yield call
        except StaleSchemaError:
            yield from self.schemas.learning()
            if last:
                raise  # the first ones are written
            for call in build():
                last = yield call
        return last

    def _encoded(
        self, given: Given, keys: Iterable[Key] | None
    ) -> tuple[Iterable[Value], Iterable[Key] | None]:
        """Returns messages and their keys; rows are encoded, and may contain their keys."""
        if isinstance(given, Mapping):
            rows, made = self.schemas.encode_columns(given)
        else:
            values: Any = listed("values", given)
            if not values or not isinstance(values[0], Mapping):
                return values, keys
            rows, made = self.schemas.encode(values)
        if not made:
            return rows, keys
        if keys is not None:
            raise TypeError("the key is made of columns of the row; append the row alone")
        return rows, made

    def delete(self, key: Key) -> Call[bool]:
        return Call(self._erase([key]), lambda reply: not missing_rows(reply, 1))

    def delete_many(self, keys: Iterable[AnyKey]) -> Call[list[AnyKey]]:
        wanted = entries.several_keys(keys)
        if not wanted:
            return calls.nothing_to_do([])

        def read(reply: Reply) -> list[AnyKey]:
            return [wanted[place] for place in sorted(set(missing_rows(reply, len(wanted))))]

        return Call(self._erase(wanted), read)

    def _erase(self, keys: Iterable[Key]) -> commands.Erase:
        return commands.Erase(table=self.table, keys=Strings.of(entries.encode_keys(keys)))

    # -- reads ------------------------------------------------------------------------------------

    def read(
        self, count: int, after: int | MessageBatch, wait: Seconds | None = None
    ) -> Steps[MessageBatch]:
        if not isinstance(after, MessageBatch):
            cursor = Cursor(self.table, subscribers.check_seq("after", after), schemas=self.schemas)
        else:
            until = 0 if after.end_of_snapshot else after.found.until
            cursor = Cursor(self.table, after.last_seq, until, schemas=self.schemas)
        batch: MessageBatch = yield cursor.read(count, wait)
        if batch.lacks_columns:
            yield from self.schemas.learning()
        return batch

    def reader(self, start: Starting) -> Steps[Cursor]:
        where, at = subscribers.start_of(start)
        if where is Start.END:
            numbers: dict[str, int] = yield calls.stats_call()
            after = numbers["applied_seq"]
        elif where is Start.TIME:
            after = yield from self._locate(at)
        else:
            after = max(0, at - 1)
        return Cursor(self.table, after, schemas=self.schemas)

    def _locate(self, at_us: int) -> Steps[int]:
        """Finds the seq of a date through a temporary subscriber; there is no other request."""
        name = f"reader-{uuid.uuid4().hex}"
        command = commands.Subscribe(table=self.table, name=name, start=Start.TIME, at=at_us)
        position: commands.Position = yield ask(command, commands.Position)
        yield Call(commands.Unsubscribe(table=self.table, name=name), done)
        return position.seq

    # -- subscribers and blocks -------------------------------------------------------------------

    def subscribers(self) -> Steps[list[SubscriberInfo]]:
        command = commands.ListSubscribers(table=self.table)
        pages = yield from calls.paging(command, "start", commands.Subscribers, "next_name")
        return [one for page in pages for one in subscribers.read_subscribers(page)]


# -- building appends: messages as columns, without a Python loop where possible ------------------
#
# Most appends have values of one type and no keys; then the work is a join and a sum.  Messages
# that exceed one commit are split into several commits, each as large as possible.


_SINGLE: Final = (str, bytes, bytearray, memoryview)


def append_one(table: str, value: Value, key: Key) -> Append:
    """Returns the command that appends one message."""
    type_, data = values.encode(value)
    name = entries.encode_key(key) if key else b""
    return Append(
        table=table,
        types=bytes((type_,)),
        keys=Strings((0, len(name)), name),
        values=Strings((0, len(data)), data),
    )


def append_parts(
    table: str, given: Iterable[Value], keys: Iterable[Key] | None
) -> Iterator[Append]:
    """Yields the commands that append messages in order, each as large as possible.

    Values that cannot be sent are found before the first one is made.
    """
    types, data, named = _columns(given, keys)
    rows = len(types)
    if rows <= limits.BATCH_ROWS_MAX:
        whole = _append(table, types, data, named)
        if len(whole.values.data) + len(whole.keys.data) <= limits.BATCH_BYTES_MAX:
            return iter((whole,)) if rows else iter(())
    return _parts(table, types, data, named)


def _parts(
    table: str, types: bytes, data: list[bytes], keys: list[bytes] | None
) -> Iterator[Append]:
    sizes = list(accumulate(map(len, data), initial=0))
    if keys is not None:
        named = accumulate(map(len, keys), initial=0)
        sizes = [size + other for size, other in zip(sizes, named, strict=True)]
    start = 0
    while start < len(types):
        most = min(len(types), start + limits.BATCH_ROWS_MAX)
        bound = sizes[start] + limits.BATCH_BYTES_MAX
        # A message that is too large is sent alone, and refused by the server.
        end = max(start + 1, bisect.bisect_right(sizes, bound, start, most + 1) - 1)
        part = slice(start, end)
        yield _append(table, types[part], data[part], None if keys is None else keys[part])
        start = end


def _append(table: str, types: bytes, data: list[bytes], keys: list[bytes] | None) -> Append:
    return Append(
        table=table,
        types=types,
        keys=entries.blank_column(len(types)) if keys is None else Strings.of(keys),
        values=Strings.of(data),
    )


def _columns(
    given: Iterable[Any], keys: Iterable[Key] | None
) -> tuple[bytes, list[bytes], list[bytes] | None]:
    """Returns types, values and keys, as bytes; None for keys that are all empty."""
    messages = listed("values", given)
    named = None if keys is None else listed("keys", keys)
    if named is not None and len(named) != len(messages):
        raise ValueError(f"keys: {len(named)} for {len(messages)} values")
    types, data = entries.value_column(messages)
    return types, data, None if named is None else entries.key_column(named)


def listed(name: str, given: Iterable[Any]) -> list[Any]:
    """Returns messages or keys as a list.

    Raises:
        TypeError: if it is a single one, which would be split into characters.
    """
    if isinstance(given, list):
        return given  # keeps the type of `Encoded` rows
    if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list; this is a single {type(given).__name__}")
    return list(given)


# -- replies --------------------------------------------------------------------------------------


def _seq(reply: Reply) -> int:
    return expect(reply, commands.Done).seq


# -- a stream for asyncio: the same calls as `fjord.Stream`, awaited ------------------------------


class AsyncStream(AsyncItems):
    """Messages in order.  Every call returns when its effect is durable.

    In mode log it keeps every message; in mode latest it keeps the newest of each key, and is
    also a map of those.  Keys are str or bytes; values are None, bytes, str, int, float or bool,
    or rows (dicts) if columns are declared.
    """

    def __init__(
        self,
        runner: AsyncRunner,
        stream: StreamCalls,
        entries: KvCalls,
        settings: StreamSettings | None = None,
    ) -> None:
        super().__init__(
            runner.declaring(stream.declare(settings)) if settings else runner, entries
        )
        self._follow = self._runner.follow
        self._stream = stream

    # -- writes -----------------------------------------------------------------------------------

    async def append(self, value: Value | RowMap, key: Key = "") -> int:
        """Adds a message; returns its seq.

        Args:
            value: the message, at most 1 MiB; a row (a dict) if columns are declared.
            key: at most 480 bytes.  In mode latest it is required, and the message replaces the
                previous one of the same key.  Leave it out if key columns are declared.

        Raises:
            RefusedError: if the server refuses; then nothing has changed.
        """
        if type(value) in PLAIN_TYPES:
            return await self._run(self._stream.append(value, key))
        steps = self._stream.schemas.writing(lambda: self._stream.append(value, key))
        return await self._follow(steps)

    async def append_many(self, values: Given, keys: Iterable[Key] | None = None) -> int:
        """Adds messages in order; returns the seq of the last one, 0 if there is none.

        This is the fastest way, especially with a list of bytes.  Up to 100,000 messages and
        8 MiB of keys and values are one commit, all or none; more are several commits, and if one
        fails, the earlier ones stay.

        Args:
            values: the messages.  For declared columns a list of rows or, faster, a dict with a
                list for each column.
            keys: one for each message; default: none.

        Raises:
            RefusedError: if any message is refused; then none of its commit is added.
            ValueError: if the numbers of keys and values differ.
        """
        return await self._follow(self._stream.appending(values, keys))

    async def delete(self, key: Key) -> bool:
        """Deletes the message of a key, in mode latest; says whether there was one.

        Readers receive a tombstone, a message without a value.
        """
        return await self._run(self._stream.delete(key))

    async def delete_many(self, keys: Iterable[AnyKey]) -> list[AnyKey]:
        """Deletes messages, in one commit; returns the keys that had none."""
        return await self._run(self._stream.delete_many(keys))

    # -- reads ------------------------------------------------------------------------------------

    async def subscriber(self, name: str, *, start: Starting = "beginning") -> AsyncSubscriber:
        """Returns a subscriber, which is created if it does not exist.

        Args:
            name: 1 to 128 of A-Z a-z 0-9 _ -.
            start: where a new one begins: "beginning", "end", a seq, or a datetime with a time
                zone; an existing one keeps its position.
        """
        call = subscribers.subscribe(self._stream.table, name, start, self._stream.schemas)
        return AsyncSubscriber(self._runner, await self._run(call))

    async def reader(self, *, start: Starting = "beginning") -> AsyncReader:
        """Returns a reader without a name, whose position is not stored."""
        return AsyncReader(self._runner, await self._follow(self._stream.reader(start)))

    async def read(
        self, n: int = COUNT, *, after: int | MessageBatch = 0, wait: Seconds | None = None
    ) -> MessageBatch:
        """Returns at most `n` messages after a seq, possibly none.

        Args:
            n: maximum number, at most 100,000.
            after: the seq, or the previous batch.
            wait: seconds that the server waits for the first message; default: none.
        """
        return await self._follow(self._stream.read(n, after, wait))

    # -- the latest of each key -------------------------------------------------------------------

    async def entry(self, key: Key) -> Entry | None:
        """Returns the value of a key with its type and dates, None if there is none."""
        return await self._look(self._calls.entry(key))

    def values(self, prefix: Key = "") -> AsyncIterator[Any]:
        """Yields the values of keys that begin with `prefix`, in the order of the keys."""
        return (value async for _, value in self.items(prefix))

    def __aiter__(self) -> AsyncIterator[str]:
        return self.keys()

    # -- dict methods of the blocking shell -------------------------------------------------------

    async def __adelitem__(self, key: Key) -> None:
        if not await self.delete(key):
            raise KeyError(key)

    # -- subscribers and blocks -------------------------------------------------------------------

    async def subscribers(self) -> list[SubscriberInfo]:
        """Returns its subscribers, by name."""
        return await self._follow(self._stream.subscribers())

    async def blocks(self) -> list[BlockInfo]:
        """Returns its cold blocks, in order."""
        return await self._follow(history.blocks(self._stream.table))
