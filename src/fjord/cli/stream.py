"""`fjord stream`: writes, reads and follows streams, and moves subscribers."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from fjord import limits
from fjord.cli import arguments, lines, output
from fjord.cli.arguments import Node, StreamName, TypeName, argument, noun, option, verb
from fjord.cli.output import Bar, tell
from fjord.client import bulk
from fjord.client.entries import Key
from fjord.declared.schema import Schema
from fjord.errors import Code, NotFoundError, UsageError
from fjord.text import type_name, value_text

if TYPE_CHECKING:
    from fjord.client.blocking.database import Database
    from fjord.client.blocking.streams import Stream
    from fjord.client.blocking.subscribers import Reader, Subscriber
    from fjord.client.messages import Message, MessageBatch
    from fjord.client.subscribers import SubscriberInfo


app = noun("stream", "Writes, reads and follows streams, and moves subscribers.")


Start = Annotated[
    str,
    option(
        "Where to begin: beginning, end, a seq, or a date; with --subscriber, only a new one.",
        shown="beginning",
    ),
]
Follow = Annotated[bool, option("Continue with new messages until Ctrl-C.", "-f", "--follow")]


# -- appending ------------------------------------------------------------------------------------


@verb(app, cls=arguments.Numeric)
def append(
    node: Node,
    table: StreamName,
    values: Annotated[
        list[str] | None,
        argument("VALUE", "One or more messages.", shown="the lines of standard input"),
    ] = None,
    key: Annotated[str, option("The key; required in mode latest.")] = "",
    type_: Annotated[TypeName, option("The type of the values.", "--type")] = TypeName.string,
    rows: Annotated[
        list[str] | None,
        option("A message as an object of its columns; may be repeated.", "--row", metavar="JSON"),
    ] = None,
    json_lines: Annotated[
        bool, option("Read JSON objects with key and value, or columns.", "--json-lines")
    ] = False,
) -> None:
    """Appends messages, and returns when they are on disk.

    Given values are appended all or none. Lines are appended as they arrive, for example from
    `tail -f`; bad ones are reported with their numbers, the rest is appended, and the exit code
    is 1. In JSON lines, bytes are {"base64": "..."}.

    Example: fjord stream append events "signed up" --key user:7

    Example: tail -f access.log | fjord stream append access

    Example: echo '{"key": "user:7", "value": 5}' | fjord stream append visits --json-lines

    Example: fjord stream append sites --row '{"uri": "http://example.com/a", "depth": 3}'
    """
    if rows and (values or json_lines):
        raise UsageError("--row gives the messages; give it without VALUE and --json-lines")
    if not rows and not values:
        _append_lines(node, table, key, None if json_lines else type_)
        return
    if json_lines:
        raise UsageError("--json-lines reads standard input; give it without values")
    given: list[Any] = [arguments.value(one, type_) for one in values or ()]
    with node.open() as db:
        if rows:
            schema = lines.schema_of(db, table)
            if key and schema.key:
                raise UsageError(f"the key of stream {table} is made of columns; give --row alone")
            given = [lines.row_of(text, schema) for text in rows]
        seq = db.stream(table).append_many(given, keys=[key] * len(given) if key else None)
    node.done(table=table, appended=len(given), bad=0, seq=seq)


def _append_lines(node: Node, table: str, key: str, type_: TypeName | None) -> None:
    with lines.opened(lines.STDIN) as (file, size), node.open() as db, Bar("appending") as bar:
        read = in_json(key, lines.schema_of(db, table)) if type_ is None else plain(key, type_)
        writer = bulk.message_writer(db.stream(table), partial(lines.tell_bad, "line"))
        bulk.write_lines(file, read, writer, lambda done: bar.update(done, size), as_they_come=True)
    appended, bad = writer.written, writer.bad
    text = f"{output.counted(appended, 'message')} appended, {output.counted(bad, 'bad line')}"
    node.done(text, table=table, appended=appended, bad=bad, seq=writer.result)
    output.exit_if(bad)


# -- reading --------------------------------------------------------------------------------------


@verb(app)
def read(
    node: Node,
    table: StreamName,
    subscriber: Annotated[
        str, option("Read from its mark, and move it; created if missing.", metavar="NAME")
    ] = "",
    start: Start = "",
    count: Annotated[
        int | None, option("Maximum number of messages.", "-n", "--count", min=1, shown="all")
    ] = None,
    wait: arguments.Wait = 0.0,
    follow: Follow = False,
    ack_: Annotated[bool, option("Move the mark of the subscriber.", "--ack/--no-ack")] = True,
) -> None:
    """Prints messages in order, up to the current end of the stream, or as they arrive.

    With --subscriber they are acknowledged when they are printed. Exit code 1 if somebody moves
    the subscriber meanwhile, or if there is no such table.

    Example: fjord stream read events --start 2026-01-31T12:00:00Z

    Example: fjord stream read events --subscriber billing -n 1000 --json

    Example: fjord stream read events --start end --follow
    """
    begin = arguments.start(start or "beginning")
    # Seeking to a date needs a subscriber, and creating one is a write.
    writes = bool(subscriber) or isinstance(begin, datetime)
    with node.open(read_only=not writes) as db, _until_stopped(follow):
        db.table(table)  # a missing table would look like an empty one
        stream = db.stream(table)
        named = stream.subscriber(subscriber, start=begin) if subscriber else None
        reader = named or stream.reader(start=begin)
        for batch in batches(reader, count=count, wait=wait or None, follow=follow):
            print_messages(node, batch, follow=follow)
            if named is not None and ack_ and len(batch):
                named.ack(batch)


@verb(app)
def tail(
    node: Node,
    table: StreamName,
    count: Annotated[
        int, option("Number of messages.", "-n", "--count", min=0, max=limits.READ_COUNT_MAX)
    ] = 10,
    follow: Follow = False,
) -> None:
    """Prints the last messages, with -f also new ones; exit code 1 if there is no such table.

    Example: fjord stream tail events -n 100

    Example: fjord stream tail events -f --json
    """
    with node.open(read_only=True) as db, _until_stopped(follow):
        db.table(table)
        stream = db.stream(table)
        found, end_seq = last(stream, count)
        print_messages(node, found, follow=follow)
        if follow:
            reader = stream.reader(start=end_seq + 1)
            for batch in batches(reader, count=None, wait=None, follow=True):
                print_messages(node, batch, follow=True)


def _until_stopped(follow: bool) -> AbstractContextManager[None]:
    if not follow:
        return contextlib.nullcontext()
    tell("following; press Ctrl-C to stop", style="dim")
    return contextlib.suppress(KeyboardInterrupt)


# -- the latest of each key -----------------------------------------------------------------------


@verb(app)
def get(node: Node, table: StreamName, key: arguments.Key) -> None:
    """Prints the message of a key, in mode latest; exit code 1 if there is none.

    Example: fjord stream get profiles user:7
    """
    with node.open(read_only=True) as db:
        entry = db.stream(table).entry(key)
        if entry is None:
            raise NotFoundError(Code.NOT_FOUND, f"stream {table} has no key {key}")
        at, type_ = output.date(entry.written_at), entry.type.name.lower()
        what = {"key": key, "at": at, "type": type_, "value": entry.value}
        node.print_value(entry.value, what)


@verb(app)
def delete(node: Node, table: StreamName, keys: arguments.Keys) -> None:
    """Deletes the messages of keys, in mode latest; subscribers receive tombstones.

    Exit code 1 if a key had none; the others are deleted.

    Example: fjord stream delete profiles user:7
    """
    with node.open() as db:
        missing = db.stream(table).delete_many(keys)
        deleted = [key for key in keys if key not in set(missing)]
        told = [f"stream {table} has no key {key}" for key in missing]
        node.end(told, table=table, deleted=deleted, missing=missing)


# -- subscribers ----------------------------------------------------------------------------------

Name = Annotated[str, argument("SUBSCRIBER", "The subscriber.")]


@verb(app)
def subscribers(
    node: Node,
    table: StreamName,
    lag: Annotated[bool, option("Also count the messages ahead of each.", "--lag")] = False,
) -> None:
    """Lists subscribers: their marks, when these were moved, and whether they sleep.

    Exit code 1 if there is no such table.

    Example: fjord stream subscribers events --lag
    """
    with node.open(read_only=not lag) as db:
        db.table(table)
        stream = db.stream(table)
        found = (_describe(stream, one, lag=lag) for one in stream.subscribers())
        names = ("name", "seq", "moved", "asleep", *(("lag",) if lag else ()))
        node.print_all(found, dict, names, lambda one: tuple(map(_subscriber_cell, one.values())))


def _describe(stream: Stream, one: SubscriberInfo, *, lag: bool) -> dict[str, object]:
    what: dict[str, object] = {
        "name": one.name,
        "seq": one.position,
        "moved_at": output.date(one.moved_at),
        "asleep": one.is_asleep,
    }
    return {**what, "lag": stream.subscriber(one.name).lag} if lag else what


def _subscriber_cell(what: object) -> str:
    return str(what).lower() if isinstance(what, bool) else str(what)


@verb(app)
def seek(
    node: Node,
    table: StreamName,
    name: Name,
    where: Annotated[str, argument("WHERE", "beginning, end, a seq, or a date.")],
) -> None:
    """Sets the mark of a subscriber, backwards too; exit code 1 if there is no such subscriber.

    Example: fjord stream seek events billing beginning

    Example: fjord stream seek events billing 2026-01-31T12:00:00Z
    """
    start = arguments.start(where)
    with node.open() as db:
        found = _existing(db, table, name)
        found.seek(start)
        node.done(table=table, name=name, seq=found.position)


@verb(app)
def ack(
    node: Node,
    table: StreamName,
    name: Name,
    seq: Annotated[int, argument("SEQ", "Everything up to here is processed.", min=0)],
) -> None:
    """Moves the mark of a subscriber forward; a mark beyond SEQ stays.

    Exit code 1 if there is no such subscriber, or no such seq yet.

    Example: fjord stream ack events billing 4711
    """
    with node.open() as db:
        found = _existing(db, table, name)
        found.ack(seq)
        node.done(table=table, name=name, seq=found.position)


@verb(app)
def unsubscribe(
    node: Node,
    table: StreamName,
    names: Annotated[list[str], argument("SUBSCRIBER", "One or more names.")],
) -> None:
    """Deletes subscribers and their marks; exit code 1 if there is no such subscriber.

    Example: fjord stream unsubscribe events billing
    """
    with node.open() as db:
        for name in names:
            _existing(db, table, name).delete()
        node.done(table=table, unsubscribed=names)


def _existing(db: Database, table: str, name: str) -> Subscriber:
    """Returns an existing subscriber; a mistyped name must not create one."""
    stream = db.stream(table)
    if name not in (one.name for one in stream.subscribers()):
        look = f"`fjord stream subscribers {table}` lists them"
        raise NotFoundError(Code.NOT_FOUND, f"{table} has no subscriber {name}; {look}")
    return stream.subscriber(name)


# -- reading: to the end, for ever, or only the last messages -------------------------------------


# Messages of one read: few enough to be printed soon, many enough to be quick.
BATCH: Final = 10_000
# How long one read of a followed stream waits.
FOLLOW_SECONDS: Final = 60.0
# Growth of the range in which the last messages are sought, each time there are too few.
_FARTHER: Final = 8


def batches(
    reader: Subscriber | Reader, *, count: int | None, wait: float | None, follow: bool
) -> Iterator[MessageBatch]:
    """Yields at most `count` messages, up to the end of the snapshot or for ever."""
    left = count
    while left is None or left:
        most = BATCH if left is None else min(left, BATCH)
        batch = reader.read(most, wait=FOLLOW_SECONDS if follow else wait)
        yield batch
        if left is not None:
            left -= len(batch)
        if batch.end_of_snapshot and not follow:
            return
        wait = None  # only the first read waits


def last(stream: Stream, count: int) -> tuple[list[Message], int]:
    """Returns the last messages of a stream, and the seq up to which it was read.

    Seqs are shared by all tables, so it reads from farther and farther back until there are
    enough.
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


def print_messages(node: Node, messages: Iterable[Message], *, follow: bool) -> None:
    """Prints messages; followed ones line by line, even on a terminal."""
    if follow and not node.as_json:
        for one in messages:
            output.print_line(*_cells(one))
    else:
        node.print_all(messages, describe, ("seq", "at", "key", "type", "value"), _cells)


def describe(message: Message) -> dict[str, object]:
    """Returns a message for `print_json`."""
    return {
        "seq": message.seq,
        "at": output.date(message.at),
        "key": message.key,
        "type": None if message.is_tombstone else type_name(message.value),
        "value": message.value,
        "deleted": message.is_tombstone,
    }


def _cells(message: Message) -> tuple[str, ...]:
    type_ = "deleted" if message.is_tombstone else type_name(message.value)
    at = message.at.isoformat()
    return str(message.seq), at, message.key, type_, value_text(message.value)


# -- messages from lines --------------------------------------------------------------------------


Line = tuple[Key, Any]  # a value, or a row
# Parses a line; None if it is empty.
Read = Callable[[bytes], Line | None]


def plain(key: str, type_: TypeName) -> Read:
    """Returns a parser of lines that are values."""

    def read(line: bytes) -> Line:
        lines.check_size(line)
        if type_ is TypeName.buffer:
            return key, line
        try:
            return key, arguments.value(line.decode(), type_)
        except UnicodeDecodeError as error:
            raise UsageError("it is not UTF-8; use --type buffer for any bytes") from error

    return read


def in_json(key: str, schema: Schema) -> Read:
    """Returns a parser of JSON lines; messages without a key get `key`."""
    read = lines.json_reader("message", _FIELDS, schema)

    def read_message(line: bytes) -> Line | None:
        found = read(line)
        return None if found is None else (found.get("key", key), found.get("value"))

    return read_message


_FIELDS: Final[dict[str, lines.Field]] = {"key": lines.key, "value": lines.value}
