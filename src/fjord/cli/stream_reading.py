"""Reading streams for people and pipes: to an end, for ever, or only the last of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from fjord.cli import output

if TYPE_CHECKING:
    from fjord.client.stream_batch import Message, MessageBatch
    from fjord.client.streams import Stream

# Messages of one read: few enough to be printed soon, many enough to be quick.
BATCH: Final = 10_000
# A read that waits is asked anew after so long.
FOLLOW_SECONDS: Final = 60.0
# How much farther the end of a stream is looked for, each time that there was not enough.
_FARTHER: Final = 8


class Reads(Protocol):
    """A subscriber, or a reader without a name."""

    def read(self, n: int = ..., *, wait: float | None = ...) -> MessageBatch: ...


def batches(
    reader: Reads, *, count: int | None, wait: float | None, follow: bool
) -> Iterator[MessageBatch]:
    """Yields what there is up to the end of the snapshot, or for ever; at most `count` messages."""
    left = count
    while left is None or left:
        most = BATCH if left is None else min(left, BATCH)
        batch = reader.read(most, wait=FOLLOW_SECONDS if follow else wait)
        yield batch
        if left is not None:
            left -= len(batch)
        if batch.end_of_snapshot and not follow:
            return
        wait = None  # only the first one is waited for


def last(stream: Stream, count: int) -> tuple[list[Message], int]:
    """Returns the last messages of a stream, and the seq up to which they were looked for.

    Seqs are those of all tables, so nobody knows where to begin: it is looked back farther and
    farther until there are enough.
    """
    end = stream.reader(start="end").position
    span = count
    while True:
        after = max(0, end - span)
        found, end_seq = _last_after(stream, after, count)
        if len(found) == count or not after:
            return found, end_seq
        span *= _FARTHER


def _last_after(stream: Stream, after: int, count: int) -> tuple[list[Message], int]:
    found: deque[Message] = deque(maxlen=count)
    place: int | MessageBatch = after
    while True:
        batch = stream.read(BATCH, after=place)
        found.extend(batch.messages)
        if batch.end_of_snapshot:
            return list(found), batch.last_seq
        place = batch


# -- how messages are shown -----------------------------------------------------------------------


def print_messages(messages: Iterable[Message], *, as_json: bool, follow: bool = False) -> None:
    """Prints messages; those that are followed line by line, though it be on a terminal."""
    if as_json:
        for one in messages:
            output.print_json(describe(one))
    elif follow:
        for one in messages:
            output.print_line(*_cells(one))
    else:
        output.print_rows(_NAMES, map(_cells, messages), as_json=False)


def describe(message: Message) -> dict[str, object]:
    """Returns a message for `print_json`."""
    return {
        "seq": message.seq,
        "at": output.date(message.at),
        "key": message.key,
        "type": None if message.is_tombstone else output.type_name(message.value),
        "value": message.value,
        "deleted": message.is_tombstone,
    }


_NAMES: Final = ("seq", "at", "key", "type", "value")


def _cells(message: Message) -> tuple[str, ...]:
    type_ = "deleted" if message.is_tombstone else output.type_name(message.value)
    at = message.at.isoformat()
    return str(message.seq), at, message.key, type_, output.shown(message.value)
