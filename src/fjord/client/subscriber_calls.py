"""What a subscriber knows of itself, and the calls that it makes; pure, and shared by all shells.

The server keeps its mark: everything up to there is processed.  The client keeps a cursor, which
begins at the mark and runs ahead of it:

    ... processed ... | mark ... read, not acknowledged ... | cursor ... not read ...

An acknowledgement moves the mark forward.  A seek, by whomever, sets it anywhere and makes all that
was read before worthless: its epoch grows, and what carries an old one is refused.  Then, and
after a transaction that failed, the next read begins at the mark again.
"""

from __future__ import annotations

from typing import Final

from fjord.client.calls import Call, Steps, check_name, done, expect
from fjord.client.entries import Seconds
from fjord.client.schemas import Schemas
from fjord.client.stream_batch import Message, MessageBatch, ReadBy
from fjord.client.stream_calls import SubscriberInfo, read_position, read_subscribers
from fjord.client.stream_places import Cursor, Starting, check_seq, read_on, start_of
from fjord.commands import (
    Acknowledge,
    Lag,
    ListSubscribers,
    Numbers,
    Position,
    Reply,
    Rest,
    Seek,
    Subscribe,
    Subscribers,
    Unsubscribe,
)
from fjord.errors import Code, RefusedError, RemoteProtocolError, StaleError

#: What is acknowledged: what a read returned, one message, or everything up to a seq.
Processed = MessageBatch | Message | int

_MESSAGES: Final = b"messages"


def subscribe(
    table: str, name: str, start: Starting, schemas: Schemas | None = None
) -> Call[SubscriberCalls]:
    """Returns the call that makes a subscriber, or finds the one that is there."""
    where, at = start_of(start)
    command = Subscribe(table=table, name=check_name(name), start=where, at=at)
    return Call(command, lambda reply: SubscriberCalls(table, name, read_position(reply), schemas))


class SubscriberCalls:
    """Builds the calls of one subscriber, and takes notice of what comes of them."""

    def __init__(
        self, table: str, name: str, position: Position, schemas: Schemas | None = None
    ) -> None:
        self.table = table
        self.name = name
        self._epoch = position.epoch
        self._mark = position.seq
        self._is_asleep = position.asleep
        self._is_lost = False  # the mark may be anywhere: it is asked for before the next read
        self._is_held = False  # a `taking` block has the first message behind the mark
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
        """Reads the first message that is not acknowledged, whatever was read before.

        There is one mark: acknowledging a later message would acknowledge all before it.
        """
        if self._is_held:
            raise RuntimeError(
                f"a `taking` block of subscriber {self.name} holds the first message of "
                f"{self.table}; leave that block before you take another one"
            )
        if not self._is_lost:
            self._cursor.go(self._mark)
        return (yield from self.read(1, wait, once=True))

    def hold(self, wait: Seconds | None) -> Steps[MessageBatch]:
        """Reads the first message for a `taking` block, which has it until `let_go`."""
        batch = yield from self.read_first(wait)
        self._is_held = len(batch) > 0
        return batch

    def let_go(self) -> None:
        self._is_held = False

    def peek(self) -> Steps[Message | None]:
        """Reads what `pop` would take: the first message behind the mark, wherever that is now."""
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
                continue  # somebody else was faster, and has this one
            return first_of(batch)

    def rewind(self) -> Steps[None]:
        """Goes back to the mark."""
        found = yield from self.position()
        self._epoch, self._mark = found.epoch, found.position
        self._cursor.go(found.position)
        self._is_lost = False

    def go_back(self, batch: MessageBatch) -> None:
        """Takes notice that what was read just now was not worked on: it comes again."""
        if len(batch) and batch.read_by == (self.name, self._epoch):
            self._cursor.after = batch.seqs[0] - 1

    def lose(self) -> None:
        """Takes notice that the mark may not be where it should."""
        self._is_lost = True

    # -- the mark ---------------------------------------------------------------------------------

    def ack(self, processed: Processed, *, is_exact: bool = False) -> Steps[None]:
        try:
            yield self._acknowledge(processed, is_exact=is_exact)
        except StaleError:
            self._is_lost = True
            raise

    def pledge(self, processed: Processed) -> Call[None]:
        """Returns the call that acknowledges as part of a transaction.

        It is refused if anybody else has moved the mark, since what follows from messages is to
        be written once.  Other calls of the same transaction may build on it, so it counts as
        done; if the transaction fails, `lose` is called.
        """
        call = self._acknowledge(processed, is_exact=True)
        self._mark = max(self._mark, self._seq_of(processed))
        return call

    def _acknowledge(self, processed: Processed, *, is_exact: bool) -> Call[None]:
        epoch = self._epoch
        if isinstance(processed, MessageBatch) and processed.read_by is not None:
            epoch = processed.read_by.epoch
        command = Acknowledge(
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
        """Takes notice of the mark; what is processed, by whomever, need not be read."""
        self._mark = read_position(reply).seq
        if self._cursor.after < self._mark:
            self._cursor.go(self._mark)

    def seek(self, start: Starting) -> Call[None]:
        where, at = start_of(start)

        def read(reply: Reply) -> None:
            position = read_position(reply)
            self._epoch, self._mark = position.epoch, position.seq
            self._cursor.after, self._cursor.until = position.seq, 0
            self._is_lost = False

        return Call(Seek(table=self.table, name=self.name, start=where, at=at), read)

    # -- what else the server knows ---------------------------------------------------------------

    def position(self) -> Steps[SubscriberInfo]:
        command = ListSubscribers(table=self.table, start=self.name, count=1)
        found: list[SubscriberInfo] = yield Call(
            command, lambda reply: read_subscribers(expect(reply, Subscribers))
        )
        if not found or found[0].name != self.name:
            text = f"stream {self.table} has no subscriber {self.name} any more"
            raise RefusedError.of(Code.NOT_FOUND, text)
        return found[0]

    def lag(self) -> Call[int]:
        return Call(Lag(table=self.table, name=self.name), _messages)

    def rest(self, *, asleep: bool) -> Call[None]:
        def read(reply: Reply) -> None:
            read_position(reply)
            self._is_asleep = asleep

        return Call(Rest(table=self.table, name=self.name, asleep=asleep), read)

    def delete(self) -> Call[None]:
        return Call(Unsubscribe(table=self.table, name=self.name), done)


def first_of(batch: MessageBatch) -> Message | None:
    """Returns the first message, None if there is none."""
    return batch.messages[0] if len(batch) else None


def _messages(reply: Reply) -> int:
    found = expect(reply, Numbers)
    numbers = dict(zip(found.names.rows(), found.values, strict=True))
    if _MESSAGES not in numbers:
        raise RemoteProtocolError(Code.BAD_BATCH, "numbers without messages")
    return numbers[_MESSAGES]
