"""The calls of a stream: what users ask for turned into commands, replies into values.

Pure, and shared by all shells.  What belongs to one subscriber is in `subscriber_calls`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from fjord import kinds, limits
from fjord.client.calls import Call, Steps, check_name, done, expect, expect_rows, not_a
from fjord.client.declared_tables import ExpectedTable
from fjord.client.entries import AnyKey, Key, Seconds, date, encode_keys, microseconds
from fjord.client.node_calls import stats_call
from fjord.client.schemas import Columns, Row, Schemas, SchemasOf
from fjord.client.stream_append import (
    append_all,
    append_lists,
    append_one,
    append_parts,
    listed,
)
from fjord.client.stream_batch import MessageBatch
from fjord.client.stream_places import Cursor, Starting, check_seq, start_of
from fjord.client.stream_settings import StreamSettings, encode_settings
from fjord.columns import Strings
from fjord.commands import (
    Acted,
    BlockList,
    CreateTable,
    Done,
    Erase,
    ListBlocks,
    ListSubscribers,
    Nop,
    Position,
    ReplaceBlocks,
    Reply,
    SealNow,
    Subscribe,
    Subscribers,
    Unsubscribe,
)
from fjord.errors import Code, RemoteProtocolError, StaleSchemaError
from fjord.streams import Start, decode_settings
from fjord.values import PLAIN_TYPES, Value

# Messages: a list of values, or of rows; or for declared columns a list for each column.
Given = Iterable[Value | Row] | Columns


class SubscriberInfo(NamedTuple):
    """A subscriber as the server knows it."""

    name: str
    position: int  # its mark: everything up to this seq is processed
    epoch: int  # grows with each seek; one that is made again has another
    moved_at: datetime  # when its mark was last set
    is_asleep: bool


class BlockInfo(NamedTuple):
    """A cold block of a table: a file with rows of its history."""

    name: str  # path of its files, without their suffixes, below the location
    location: str  # of all blocks, as the node calls it
    first: int  # the seqs that it covers, both included
    last: int
    rows: int
    bytes: int  # of its file
    min_at: datetime  # when its first row was committed
    max_at: datetime  # and its last
    crc: int  # CRC32C of its file


class StreamCalls:
    """Builds the calls of one stream."""

    def __init__(self, table: str, schemas_of: SchemasOf = Schemas) -> None:
        self.table = check_name(table)
        self.schemas = schemas_of(table, decode_settings)

    def create(self, settings: StreamSettings) -> Call[None]:
        return Call(self._creation(settings), done)

    def declare(self, settings: StreamSettings) -> ExpectedTable:
        return ExpectedTable(self._creation(settings), settings.keys(), decode_settings)

    def _creation(self, settings: StreamSettings) -> CreateTable:
        encoded = encode_settings(settings)
        return CreateTable(name=self.table, kind=kinds.Kind.STREAM.number, settings=encoded)

    # -- writes -----------------------------------------------------------------------------------

    def append(self, value: Value | Row, key: Key) -> Call[int]:
        if not isinstance(value, Mapping):
            return Call(append_one(self.table, value, key), _seq)
        return self.append_many([value], [key] if key else None)

    def append_many(self, values: Given, keys: Iterable[Key] | None) -> Call[int]:
        """Returns the call that appends messages in one commit."""
        command = append_all(self.table, *self._encoded(values, keys))
        return Call(Nop(), _none) if command is None else Call(command, _seq)

    def append_parts(self, values: Given, keys: Iterable[Key] | None) -> Iterator[Call[int]]:
        """Returns the calls that append messages in as few commits as can be."""
        parts = append_parts(self.table, *self._encoded(values, keys))
        return (Call(command, _seq) for command in parts)

    def appending(self, values: Given, keys: Iterable[Key] | None) -> Steps[int]:
        """Appends messages in as few commits as can be; returns the seq of the last one."""
        given = values if isinstance(values, Mapping) else listed("values", values)
        named = None if keys is None else listed("keys", keys)
        last = 0
        if type(given) is list and (not given or type(given[0]) in PLAIN_TYPES):
            for command in append_lists(self.table, given, named):
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
        """Returns messages and their keys; rows are encoded, and may bring their keys."""
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
        return Call(self._erase([key]), lambda reply: not _missing(reply, 1))

    def delete_many(self, keys: Iterable[AnyKey]) -> Call[list[AnyKey]]:
        if isinstance(keys, str | bytes):
            raise TypeError("several keys are a list; this is a single one")
        wanted = list(keys)
        if not wanted:
            return Call(Nop(), _nothing)

        def read(reply: Reply) -> list[AnyKey]:
            return [wanted[place] for place in sorted(_missing(reply, len(wanted)))]

        return Call(self._erase(wanted), read)

    def _erase(self, keys: Iterable[Key]) -> Erase:
        return Erase(table=self.table, keys=Strings.of(encode_keys(keys)))

    # -- reads ------------------------------------------------------------------------------------

    def read(
        self, count: int, after: int | MessageBatch, wait: Seconds | None = None
    ) -> Call[MessageBatch]:
        if not isinstance(after, MessageBatch):
            cursor = Cursor(self.table, check_seq("after", after), schemas=self.schemas)
        else:
            until = 0 if after.end_of_snapshot else after.found.until
            cursor = Cursor(self.table, after.last_seq, until, schemas=self.schemas)
        return cursor.read(count, wait)

    def reader(self, start: Starting) -> Steps[Cursor]:
        """Finds out where a reader without a name begins."""
        where, at = start_of(start)
        if where is Start.END:
            numbers: dict[str, int] = yield stats_call()
            after = numbers["applied_seq"]
        elif where is Start.TIME:
            after = yield from self._locate(at)
        else:
            after = max(0, at - 1)
        return Cursor(self.table, after, schemas=self.schemas)

    def _locate(self, at_us: int) -> Steps[int]:
        """Only a subscriber begins at a moment, so there is one for as long as it takes."""
        name = f"reader-{uuid.uuid4().hex}"
        command = Subscribe(table=self.table, name=name, start=Start.TIME, at=at_us)
        position: Position = yield Call(command, read_position)
        yield Call(Unsubscribe(table=self.table, name=name), done)
        return position.seq

    # -- subscribers and blocks -------------------------------------------------------------------

    def subscribers(self) -> Steps[list[SubscriberInfo]]:
        found: list[SubscriberInfo] = []
        start = ""
        while True:
            command = ListSubscribers(table=self.table, start=start)
            page: Subscribers = yield Call(command, _subscribers)
            found += read_subscribers(page)
            if not page.next_name:
                return found
            if page.next_name <= start:
                raise _same_page()
            start = page.next_name


def blocks(table: str) -> Steps[list[BlockInfo]]:
    """Asks for the blocks of a table, a page at a time."""
    found: list[BlockInfo] = []
    after = 0
    while True:
        command = ListBlocks(table=table, after=after, count=limits.BLOCKS_LISTED_MAX)
        page: BlockList = yield Call(command, lambda reply: expect(reply, BlockList))
        found += _blocks(page)
        if not page.next_after:
            return found
        if page.next_after <= after:
            raise _same_page()
        after = page.next_after


def replace_call(table: str, names: Sequence[str], new: BlockInfo) -> Call[None]:
    """Returns the call that puts a block in the place of others."""
    if isinstance(names, str | bytes):
        raise not_a("names", "a list of names of blocks", names)
    command = ReplaceBlocks(
        table=table,
        names=list(names),
        name=new.name,
        rows=new.rows,
        size=new.bytes,
        min_us=microseconds(new.min_at),
        max_us=microseconds(new.max_at),
        crc=new.crc,
    )
    return Call(command, done)


def seal_call(table: str) -> Call[None]:
    return Call(SealNow(table=table), done)


# -- what replies say -----------------------------------------------------------------------------


def _seq(reply: Reply) -> int:
    return expect(reply, Done).seq


def _none(reply: Reply) -> int:
    done(reply)
    return 0


def _nothing(reply: Reply) -> list[AnyKey]:
    done(reply)
    return []


def _missing(reply: Reply, rows: int) -> set[int]:
    missing = set(expect(reply, Acted).missing)
    if missing and max(missing) >= rows:
        raise RemoteProtocolError(Code.BAD_BATCH, f"row {max(missing)} of {rows} is missing")
    return missing


def read_position(reply: Reply) -> Position:
    return expect(reply, Position)


def _subscribers(reply: Reply) -> Subscribers:
    return expect(reply, Subscribers)


def read_subscribers(page: Subscribers) -> list[SubscriberInfo]:
    """Returns the subscribers of a page."""
    expect_rows(len(page.names), len(page.seqs))
    return [
        SubscriberInfo(_text(name), seq, epoch, date(moved_us), bool(asleep))
        for name, seq, epoch, moved_us, asleep in zip(
            page.names.rows(), page.seqs, page.epochs, page.moved_us, page.asleep, strict=True
        )
    ]


def _blocks(page: BlockList) -> list[BlockInfo]:
    numbers = zip(*(getattr(page, name) for name in BlockList.NUMBERS), strict=True)
    return [
        BlockInfo(_text(name), page.location, first, last, rows, size, date(low), date(high), crc)
        for name, (first, last, rows, size, low, high, crc) in zip(
            page.names.rows(), numbers, strict=True
        )
    ]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _same_page() -> RemoteProtocolError:
    return RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same page again")
