"""Where readers of a stream are: where they begin, how far they are, where they stop.

A `Cursor` is pure.  It reads one snapshot after the other: what there is when the snapshot begins,
up to its end, and then what has come meanwhile.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from fjord import limits
from fjord.client.calls import Call, Steps, check_whole, expect, not_a
from fjord.client.entries import Seconds
from fjord.client.job_times import moment_us, wait_us
from fjord.client.schemas import Schemas
from fjord.client.stream_batch import MessageBatch, ReadBy
from fjord.commands import Messages, Read, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.streams import Start, decode_settings

#: Where to begin: "beginning", "end", the seq of the first message, or its moment.
Starting = str | int | datetime

#: How many messages a read returns at most, unless it is said.
COUNT: Final = 1000

_WORDS: Final = {"beginning": Start.BEGINNING, "end": Start.END}


def start_of(start: Starting, name: str = "start") -> tuple[Start, int]:
    """Returns where to begin as commands have it.

    Raises:
        ValueError: if there is no such place.
        TypeError: if it is nothing that names a place.
    """
    given: Any = start  # since users give what they like
    if isinstance(given, str):
        if given not in _WORDS:
            raise ValueError(f'{name} is "beginning", "end", a seq or a datetime, not {given!r}')
        return _WORDS[given], 0
    if isinstance(given, datetime):
        return Start.TIME, moment_us(given, name)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise not_a(name, '"beginning", "end", a seq or a datetime', given)
    return Start.SEQ, check_seq(name, given)


def check_seq(name: str, seq: int) -> int:
    """Returns a seq that may be one.

    Raises:
        ValueError: if it is negative, or has more than 63 bits.
    """
    found = check_whole(name, seq)
    if not 0 <= found < 2**63:
        raise ValueError(f"{name} is a seq: 0 or more, not {seq}")
    return found


def check_count(count: int) -> int:
    """Returns how many messages are asked for; a read returns no more than its bound."""
    if check_whole("n", count) < 1:
        raise ValueError(f"n is 1 or more, not {count}")
    return min(count, limits.READ_COUNT_MAX)


class Cursor:
    """How far a reader is, and how far its snapshot reaches."""

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
        self.after = after  # everything up to here was given
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
        command = Read(
            table=self.table,
            after=self.after,
            until=self.until,
            count=check_count(count),
            wait_us=wait_us(wait),
            subscriber=self.subscriber,
            once=once,
        )

        def read(reply: Reply) -> MessageBatch:
            found = expect(reply, Messages)
            _check(command, found)
            self.after = found.after
            is_begun = not once or found.until == command.until
            self.until = found.until if is_begun and not found.ended else 0
            return MessageBatch(self.table, found, read_by, self.schemas)

        return Call(command, read)

    def go(self, after: int) -> None:
        """Goes to another place; the snapshot stays if that is inside of it."""
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
            cursor.after, cursor.until = place  # what nobody was given comes again
            raise
        if batch.found.rows or batch.found.ended:
            return batch


def _check(command: Read, found: Messages) -> None:
    """Makes sure that a reader gets on."""
    if found.rows > command.count:
        text = f"{found.rows} messages, not {command.count} at most"
        raise RemoteProtocolError(Code.BAD_BATCH, text)
    stays = found.after == command.after and found.until == command.until
    if found.after < command.after or (not found.ended and stays):
        raise RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same messages again")
