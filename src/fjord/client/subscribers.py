"""Readers of a stream: subscribers, which the server knows by name, and cursors without one.

The server keeps its mark: everything up to there is processed.  The client keeps a cursor, which
begins at the mark and runs ahead of it:

    ... processed ... | mark ... read, not acknowledged ... | cursor ... not read ...

An ack moves the mark forward.  A seek by any process sets it anywhere and invalidates all earlier
reads: the epoch grows, and acks with an old one are refused.  After that, and after a failed
transaction, the next read begins at the mark again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from fjord import commands, limits
from fjord.client import calls
from fjord.client.calls import Call, Steps, done, expect
from fjord.client.entries import Seconds, date, decode_key, moment_us, wait_us
from fjord.client.messages import Message, MessageBatch, ReadBy
from fjord.client.schemas import Schemas
from fjord.commands import Position, Reply
from fjord.errors import Code, RefusedError, RemoteProtocolError, StaleError
from fjord.streams import Start, decode_settings

if TYPE_CHECKING:
    from fjord.client.runner import AsyncRunner


#: What to ack: the result of a read, one message, or everything up to a seq.
Processed = MessageBatch | Message | int


def subscribe(
    table: str, name: str, start: Starting, schemas: Schemas | None = None
) -> Call[SubscriberCalls]:
    """Returns the call that creates a subscriber, or finds an existing one."""
    where, at = start_of(start)
    command = commands.Subscribe(table=table, name=calls.check_name(name), start=where, at=at)
    return Call(
        command, lambda reply: SubscriberCalls(table, name, expect(reply, Position), schemas)
    )


class SubscriberInfo(NamedTuple):
    """A subscriber as the server knows it."""

    name: str
    position: int  # its mark: everything up to this seq is processed
    epoch: int  # grows with each seek; one that is created again has another
    moved_at: datetime  # when its mark was last set
    is_asleep: bool


def read_subscribers(page: commands.Subscribers) -> list[SubscriberInfo]:
    """Returns the subscribers of a page."""
    calls.expect_rows(len(page.names), len(page.seqs))
    return [
        SubscriberInfo(decode_key(name), seq, epoch, date(moved_us), bool(asleep))
        for name, seq, epoch, moved_us, asleep in zip(
            page.names.rows(), page.seqs, page.epochs, page.moved_us, page.asleep, strict=True
        )
    ]


class SubscriberCalls:
    """Builds the calls of one subscriber, and keeps its state."""

    def __init__(
        self, table: str, name: str, position: Position, schemas: Schemas | None = None
    ) -> None:
        self.table = table
        self.name = name
        self._epoch = position.epoch
        self._mark = position.seq
        self._is_asleep = position.asleep
        self._is_lost = False  # the mark is unknown: it is fetched before the next read
        self._is_held = False  # a `taking` block has the first message after the mark
        self._cursor = Cursor(table, position.seq, subscriber=name, schemas=schemas)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, count: int, wait: Seconds | None, *, once: bool = False) -> Steps[MessageBatch]:
        if self._is_asleep:
            yield self.rest(asleep=False)
        if self._is_lost:
            yield from self.rewind()
        me = ReadBy(self.name, self._epoch)
        return (yield from read_on(self._cursor, count, wait, read_by=me, once=once))

    def read_first(self, wait: Seconds | None) -> Steps[MessageBatch]:
        """Reads the first message that is not acked, regardless of earlier reads.

        There is only one mark: acking a later message would ack all before it.
        """
        if self._is_held:
            raise RuntimeError(
                f"a `taking` block of subscriber {self.name} holds the first message of "
                f"{self.table}; leave that block first"
            )
        if not self._is_lost:
            self._cursor.go(self._mark)
        return (yield from self.read(1, wait, once=True))

    def hold(self, wait: Seconds | None) -> Steps[MessageBatch]:
        """Reads the first message for a `taking` block, which holds it until `let_go`."""
        batch = yield from self.read_first(wait)
        self._is_held = len(batch) > 0
        return batch

    def let_go(self) -> None:
        self._is_held = False

    def peek(self) -> Steps[Message | None]:
        """Reads the message that `pop` would take: the first one after the current mark."""
        here = self._cursor
        cursor = Cursor(self.table, 0, here.until, subscriber=self.name, schemas=here.schemas)
        cursor.go((yield from self.position()).position)
        return first_of((yield from read_on(cursor, 1, None, once=True)))

    def pop(self, wait: Seconds | None) -> Steps[Message | None]:
        while True:
            batch = yield from self.read_first(wait)
            if not len(batch):
                return None
            try:
                yield from self.ack(batch, is_exact=True)
            except StaleError:
                continue  # another process was faster
            return first_of(batch)

    def rewind(self) -> Steps[None]:
        """Goes back to the mark."""
        found = yield from self.position()
        self._epoch, self._mark = found.epoch, found.position
        self._cursor.go(found.position)
        self._is_lost = False

    def go_back(self, batch: MessageBatch) -> None:
        """Lets the last read come again, since it was not processed."""
        if len(batch) and batch.read_by == (self.name, self._epoch):
            self._cursor.after = batch.seqs[0] - 1

    def lose(self) -> None:
        self._is_lost = True

    # -- the mark ---------------------------------------------------------------------------------

    def ack(self, processed: Processed, *, is_exact: bool = False) -> Steps[None]:
        try:
            yield self._acknowledge(processed, is_exact=is_exact)
        except StaleError:
            self._is_lost = True
            raise

    def pledge(self, processed: Processed) -> Call[None]:
        """Returns the call that acks as part of a transaction.

        It is refused if another process has moved the mark, since results must be written once.
        Later calls of the same transaction build on it, so it counts as done; if the transaction
        fails, `lose` is called.
        """
        call = self._acknowledge(processed, is_exact=True)
        self._mark = max(self._mark, self._seq_of(processed))
        return call

    def _acknowledge(self, processed: Processed, *, is_exact: bool) -> Call[None]:
        epoch = self._epoch
        if isinstance(processed, MessageBatch) and processed.read_by is not None:
            epoch = processed.read_by.epoch
        command = commands.Acknowledge(
            table=self.table,
            name=self.name,
            seq=self._seq_of(processed),
            epoch=epoch,
            expected=self._mark if is_exact else -1,
        )
        return Call(command, self._note)

    def _seq_of(self, processed: Processed) -> int:
        if isinstance(processed, Message):
            return processed.seq
        if not isinstance(processed, MessageBatch):
            return check_seq("seq", processed)
        reader = processed.read_by.name if processed.read_by is not None else self.name
        if (processed.stream, reader) != (self.table, self.name):
            raise ValueError(
                f"this is subscriber {self.name} of {self.table}, but the batch was read by "
                f"{reader} of {processed.stream}"
            )
        return processed.last_seq

    def _note(self, reply: Reply) -> None:
        """Notes the mark, and skips messages that any process has acked."""
        self._mark = expect(reply, Position).seq
        if self._cursor.after < self._mark:
            self._cursor.go(self._mark)

    def seek(self, start: Starting) -> Call[None]:
        where, at = start_of(start)

        def read(reply: Reply) -> None:
            position = expect(reply, Position)
            self._epoch, self._mark = position.epoch, position.seq
            self._cursor.after, self._cursor.until = position.seq, 0
            self._is_lost = False

        return Call(commands.Seek(table=self.table, name=self.name, start=where, at=at), read)

    # -- other calls ------------------------------------------------------------------------------

    def position(self) -> Steps[SubscriberInfo]:
        command = commands.ListSubscribers(table=self.table, start=self.name, count=1)
        found: list[SubscriberInfo] = yield Call(
            command, lambda reply: read_subscribers(expect(reply, commands.Subscribers))
        )
        if not found or found[0].name != self.name:
            text = f"subscriber {self.name} of stream {self.table} no longer exists"
            raise RefusedError.of(Code.NOT_FOUND, text)
        return found[0]

    def lag(self) -> Call[int]:
        return Call(
            commands.Lag(table=self.table, name=self.name),
            lambda reply: calls.read_number(reply, "messages"),
        )

    def rest(self, *, asleep: bool) -> Call[None]:
        def read(reply: Reply) -> None:
            expect(reply, Position)
            self._is_asleep = asleep

        return Call(commands.Rest(table=self.table, name=self.name, asleep=asleep), read)

    def delete(self) -> Call[None]:
        return Call(commands.Unsubscribe(table=self.table, name=self.name), done)


def first_of(batch: MessageBatch) -> Message | None:
    """Returns the first message, None if there is none."""
    return batch.messages[0] if len(batch) else None


# -- positions in a stream ------------------------------------------------------------------------
#
# A `Cursor` is pure.  It reads one snapshot after another: the messages present when the snapshot
# begins, and then those that have arrived meanwhile.


#: Where to begin: "beginning", "end", the seq of the first message, or its date.
Starting = str | int | datetime

#: Default maximum of messages per read.
COUNT: Final = 1000

_WORDS: Final = {"beginning": Start.BEGINNING, "end": Start.END}


def start_of(start: Starting, name: str = "start") -> tuple[Start, int]:
    """Returns where to begin, as the fields of a command.

    Raises:
        ValueError: if it is not a valid position.
        TypeError: if it is of a wrong type.
    """
    given: Any = start  # of any type
    if isinstance(given, str):
        if given not in _WORDS:
            raise ValueError(f'{name} is "beginning", "end", a seq or a datetime, not {given!r}')
        return _WORDS[given], 0
    if isinstance(given, datetime):
        return Start.TIME, moment_us(given, name)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise calls.not_a(name, '"beginning", "end", a seq or a datetime', given)
    return Start.SEQ, check_seq(name, given)


def check_seq(name: str, seq: int, wanted: str = "a seq, 0 or more") -> int:
    """Returns a seq, or another number of that size.

    Raises:
        ValueError: if it is negative, or has more than 63 bits.
    """
    found = calls.check_whole(name, seq)
    if not 0 <= found < 2**63:
        raise ValueError(f"{name} must be {wanted}, not {seq}")
    return found


def check_count(count: int) -> int:
    """Returns how many messages to request; larger numbers are cut to the bound."""
    if calls.check_whole("n", count) < 1:
        raise ValueError(f"n is 1 or more, not {count}")
    return min(count, limits.READ_COUNT_MAX)


class Cursor:
    """A reader's position, and the end of its snapshot."""

    __slots__ = ("after", "schemas", "subscriber", "table", "until")

    def __init__(
        self,
        table: str,
        after: int,
        until: int = 0,
        *,
        subscriber: str = "",
        schemas: Schemas | None = None,
    ) -> None:
        self.table = table
        self.schemas = Schemas(table, decode_settings) if schemas is None else schemas
        self.after = after  # everything up to here was returned
        self.until = until  # the end of the snapshot; 0 = the next read begins one
        self.subscriber = subscriber  # who reads, if it has a name

    def read(
        self,
        count: int,
        wait: Seconds | None = None,
        *,
        read_by: ReadBy | None = None,
        once: bool = False,
    ) -> Call[MessageBatch]:
        """Returns the call that reads, and then goes on behind what was read.

        `once`: it begins no snapshot, since what is read next may be long in coming.
        """
        command = commands.Read(
            table=self.table,
            after=self.after,
            until=self.until,
            count=check_count(count),
            wait_us=0 if wait is None else wait_us(wait),
            subscriber=self.subscriber,
            once=once,
        )

        def read(reply: Reply) -> MessageBatch:
            found = expect(reply, commands.Messages)
            _check(command, found)
            self.after = found.after
            is_begun = not once or found.until == command.until
            self.until = found.until if is_begun and not found.ended else 0
            return MessageBatch(self.table, found, read_by, self.schemas)

        return Call(command, read)

    def go(self, after: int) -> None:
        """Goes to another position; the snapshot stays if it contains that."""
        self.after = after
        if self.until <= after:
            self.until = 0


def read_on(
    cursor: Cursor,
    count: int,
    wait: Seconds | None,
    *,
    read_by: ReadBy | None = None,
    once: bool = False,
) -> Steps[MessageBatch]:
    """Reads until there is a message, or the end of the snapshot."""
    while True:
        place = cursor.after, cursor.until
        call = cursor.read(count, wait, read_by=read_by, once=once)
        try:
            batch: MessageBatch = yield call
            if batch.lacks_columns:
                yield from cursor.schemas.learning()
        except BaseException:
            cursor.after, cursor.until = place  # read it again
            raise
        if batch.found.rows or batch.found.ended:
            return batch


def _check(command: commands.Read, found: commands.Messages) -> None:
    if found.rows > command.count:
        text = f"{found.rows} messages, not {command.count} at most"
        raise RemoteProtocolError(Code.BAD_BATCH, text)
    stays = found.after == command.after and found.until == command.until
    if found.after < command.after or (not found.ended and stays):
        raise RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same messages again")


# -------------------------------------------------------------------------------------------------
#
# Reading a stream with asyncio: the same as `fjord.Reader` and `fjord.Subscriber`, awaited.


class AsyncReader:
    """Reads a stream without a subscriber; its position is kept only in memory."""

    def __init__(self, runner: AsyncRunner, cursor: Cursor) -> None:
        self._runner = runner
        self._cursor = cursor

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._cursor.table!r} after seq {self.position}>"

    @property
    def position(self) -> int:
        """Everything up to this seq was returned."""
        return self._cursor.after

    async def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        """Returns at most `n` next messages, possibly none.

        Args:
            n: maximum number, at most 100,000.
            wait: seconds that the server waits for the first message, at most 3600; default: none.
        """
        return await self._runner.follow(read_on(self._cursor, n, wait))

    async def batches(
        self, n: int = COUNT, *, wait: Seconds | None = None
    ) -> AsyncIterator[MessageBatch]:
        """Yields messages, at most `n` at a time, until there are no more.

        With `wait` it ends when none has arrived for this many seconds.
        """
        while len(batch := await self.read(n, wait=wait)):
            yield batch


class AsyncSubscriber:
    """Reads a stream under a name; the server stores its mark.

    It is for one task at a time.  Its properties are awaited too: `await subscriber.lag`.

    Several processes that `pop` may share a name, and get each message once; other readers should
    not share one.
    """

    def __init__(self, runner: AsyncRunner, subscriber: SubscriberCalls) -> None:
        self._run, self._follow = runner.run, runner.follow
        #: Used by transactions.
        self.calls = subscriber

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.calls.table!r}>"

    @property
    def name(self) -> str:
        return self.calls.name

    # -- reading ----------------------------------------------------------------------------------

    async def read(self, n: int = COUNT, *, wait: Seconds | None = None) -> MessageBatch:
        """Returns at most `n` next messages in order, possibly none.

        Until they are acked, they come again in another process or after `rewind`.

        Args:
            n: maximum number, at most 100,000.
            wait: seconds that the server waits for the first message, at most 3600; default: none.

        Raises:
            NotFoundError: if the subscriber was deleted.
        """
        return await self._follow(self.calls.read(n, wait))

    async def batches(
        self, n: int = COUNT, *, wait: Seconds | None = None
    ) -> AsyncIterator[MessageBatch]:
        """Yields batches of at most `n` messages, until there are no more; ack each.

        With `wait` it ends when none has arrived for this many seconds.
        """
        while len(batch := await self.read(n, wait=wait)):
            yield batch

    async def peek(self) -> Message | None:
        """Returns the message that `pop` would take, without moving anything, or None.

        It is the first one that is not acked, regardless of earlier reads.
        """
        return await self._follow(self.calls.peek())

    async def pop(self, *, wait: Seconds | None = None) -> Message | None:
        """Acks the first message that is not acked, and returns it once that is durable.

        Others that pop under the same name get other messages.  Messages read but not acked come
        again, as after `rewind`.  The message is lost if the process ends before processing it;
        use `taking` to avoid that.

        Args:
            wait: seconds that the server waits for a message; default: none.

        Raises:
            RuntimeError: inside a `taking` block, which holds that message.
        """
        return await self._follow(self.calls.pop(wait))

    @contextlib.asynccontextmanager
    async def taking(self, *, wait: Seconds | None = None) -> AsyncIterator[Message | None]:
        """Gives the first message that is not acked, or None, to an `async with` block.

        It is acked when the block succeeds.  If the block raises, it comes again.

        Raises:
            RuntimeError: inside another such block, which holds that message.
        """
        batch = await self._follow(self.calls.hold(wait))
        try:
            yield first_of(batch)
        except BaseException:
            self.calls.go_back(batch)
            raise
        finally:
            self.calls.let_go()
        if len(batch):
            await self.ack(batch)

    # -- the mark ---------------------------------------------------------------------------------

    async def ack(self, processed: Processed) -> None:
        """Marks messages as processed: all up to the end of a batch, a message, or a seq.

        Raises:
            StaleError: if another process has moved the mark; the next read begins there.
            RefusedError: if there is no such seq yet.
        """
        await self._follow(self.calls.ack(processed))

    async def seek(self, start: Starting) -> None:
        """Moves the mark, backwards too: to "beginning", "end", a seq or a date.

        Earlier reads, of any process, can no longer be acked.
        """
        await self._run(self.calls.seek(start))

    async def rewind(self) -> None:
        """Goes back to the mark: messages read but not acked come again."""
        await self._follow(self.calls.rewind())

    @property
    async def position(self) -> int:
        """Its mark on the server: everything up to this seq is processed."""
        found = await self._follow(self.calls.position())
        return found.position

    @property
    async def lag(self) -> int:
        """How many messages are after its mark."""
        return await self._run(self.calls.lag())

    # -- its end ----------------------------------------------------------------------------------

    async def sleep(self) -> None:
        """Pauses loading ahead: the server keeps nothing in memory for it."""
        await self._run(self.calls.rest(asleep=True))

    async def wake(self) -> None:
        """Resumes loading ahead; a read does so too."""
        await self._run(self.calls.rest(asleep=False))

    async def close(self) -> None:
        """Lets it sleep; its mark stays."""
        await self.sleep()

    async def delete(self) -> None:
        """Deletes the subscriber and its mark.

        Raises:
            NotFoundError: if it no longer exists.
        """
        await self._run(self.calls.delete())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # otherwise the connection may be gone, and sleeping is optional
            await self.close()
