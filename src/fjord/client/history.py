"""History: scans of a table's durable ops, spans, and cold blocks.

A scan is pure, like `pages`: it returns the next call to run.  Each piece says where the next one
begins, and where the scan ends, which the first piece fixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from fjord import commands, limits
from fjord.client import arrow, calls, entries
from fjord.client.calls import Call, Steps, ask, done, expect, not_a
from fjord.client.entries import Key
from fjord.client.subscribers import check_seq
from fjord.commands import BlockList, Reply, Scan, Scanned, ScannedArrow, Span, Spanned
from fjord.errors import Code, RemoteProtocolError
from fjord.ops import Opcode

Piece = TypeVar("Piece")
#: Kinds of ops, or their names, such as "STREAM_APPEND".
Kinds = Iterable[Opcode | str]


class ScanWalk(Generic[Piece]):
    """Asks for one piece after another."""

    def __init__(self, command: Scan, read: Callable[[Scan, Any], Piece]) -> None:
        self._next: Scan | None = command
        self._read = read

    def next_call(self) -> Call[Piece] | None:
        """Returns the call for the next piece, None if there is no more."""
        command = self._next
        if command is None:
            return None

        def read(reply: Reply) -> Piece:
            found: Scanned | ScannedArrow
            found = expect(reply, ScannedArrow) if command.arrow else expect(reply, Scanned)
            is_over = found.next_seq >= found.end_seq
            self._next = None
            if not is_over:
                self._next = replace(command, start_seq=found.next_seq, end_seq=found.end_seq)
            return self._read(command, found)

        return Call(command, read)


def scan_of(
    table: str, start_seq: int, end_seq: int, *, ops: Kinds | None, key_prefix: Key
) -> Scan:
    """Returns the command for the first piece."""
    return Scan(
        table=table,
        start_seq=start_seq,
        end_seq=end_seq,
        opcodes=_opcodes(ops),
        key_prefix=entries.encode_key(key_prefix),
    )


def stored(command: Scan) -> ScanWalk[Scanned]:
    """Scans ops as they are stored."""
    return ScanWalk(command, lambda _, found: found)


def as_arrow(command: Scan, columns: Sequence[str], *, is_remote: bool) -> ScanWalk[Any]:
    """Scans rows as pyarrow tables; a server sends Arrow, rows of a directory are converted here.

    Raises:
        TypeError: if columns are not a list of names.
    """
    if isinstance(columns, str | bytes):
        raise not_a("columns", "a list of names", columns)
    if is_remote:
        command = replace(command, arrow=True, columns=tuple(columns))

    def read(command: Scan, found: Scanned | ScannedArrow) -> Any:
        return arrow.scanned_table(found, command.start_seq, columns, command.key_prefix)

    return ScanWalk(command, read)


def _opcodes(given: Kinds | None) -> bytes:
    """Returns kinds of ops as opcodes.

    Raises:
        ValueError: if there is no such kind.
        TypeError: if they are not a list.
    """
    if given is None:
        return b""
    if isinstance(given, str | bytes):
        raise not_a("ops", 'a list such as ["STREAM_APPEND"]', given)
    return bytes([_opcode(one) for one in given])


def _opcode(given: Opcode | str) -> int:
    try:
        return Opcode[given] if isinstance(given, str) else Opcode(given)
    except (KeyError, ValueError):
        names = ", ".join(one.name for one in Opcode)
        raise ValueError(f"there are no ops {given!r}; there are {names}") from None


# -- spans: where a batch of a table's history ends.  Pure, and shared by all shells --------------
#
# A server searches a bounded part of the journal at a time.  If that is not enough, the rest is
# requested from there, within the room that the batch still has.  The first commit of the rest is
# always returned; it is dropped again if the batch has no room for it.


EPOCH_BYTES: Final = 16
_NO_EPOCH: Final = bytes(EPOCH_BYTES)
_BOUND: Final = "0 (no bound) or more"


class SpanInfo(NamedTuple):
    """A batch of a table's history: the rows after a seq, up to the end of a commit."""

    seq: int  # of the last commit with rows of the table; its beginning, if there are none
    rows: int
    bytes: int  # of their stored ops
    at: datetime | None  # when the last commit was written; None if there are no rows
    durable_seq: int  # everything up to here can be read
    first_seq: int  # where the journal begins
    epoch: str  # identifies the writer of `seq`; empty: nobody has written it yet


class SpanBounds(TypedDict, total=False):
    """Bounds of a batch."""

    until: int  # the last seq; 0 = everything durable
    rows_max: int  # 0 = any number
    bytes_max: int
    before: datetime | None  # only commits written before this time
    epoch: str  # of the previous span


def span_of(table: str, after: int, **bounds: Unpack[SpanBounds]) -> Span:
    """Returns the first command for a batch.

    Raises:
        ValueError, TypeError: if a bound is invalid.
    """
    calls.check_names("a span", bounds, SpanBounds.__optional_keys__)
    return Span(
        table=table,
        after=check_seq("after", after),
        until=check_seq("until", bounds.get("until", 0)),
        rows_max=check_seq("rows_max", bounds.get("rows_max", 0), _BOUND),
        bytes_max=check_seq("bytes_max", bounds.get("bytes_max", 0), _BOUND),
        before_us=entries.moment_us(bounds.get("before"), "before"),
        epoch=_epoch(bounds.get("epoch", "")),
    )


def spanned(command: Span) -> Steps[SpanInfo]:
    """Asks until all of the batch was looked at."""
    found: Spanned = yield ask(command, Spanned)
    last, examined = found, command.after
    while last.is_more:
        if last.examined <= examined:
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server looked at the same part again")
        examined = last.examined
        rest = _rest(command, found, examined)
        if rest is None:
            break
        last = yield ask(rest, Spanned)
        if found.rows and not _fits(rest, last):
            break
        if last.rows:
            found = replace(last, rows=found.rows + last.rows, size=found.size + last.size)
    return SpanInfo(
        seq=found.seq,
        rows=found.rows,
        bytes=found.size,
        at=entries.date_or_none(found.wall_us),
        durable_seq=last.durable_seq,
        first_seq=last.first_seq,
        epoch="" if found.epoch == _NO_EPOCH else found.epoch.hex(),
    )


def _rest(command: Span, found: Spanned, after: int) -> Span | None:
    """Returns the command that continues after a seq; None if the batch is full."""
    rows_left, bytes_left = command.rows_max - found.rows, command.bytes_max - found.size
    if (command.rows_max and rows_left <= 0) or (command.bytes_max and bytes_left <= 0):
        return None
    return replace(
        command,
        after=after,
        rows_max=rows_left if command.rows_max else 0,
        bytes_max=bytes_left if command.bytes_max else 0,
        epoch=b"",
    )


def _fits(rest: Span, found: Spanned) -> bool:
    has_room = not rest.rows_max or found.rows <= rest.rows_max
    return has_room and (not rest.bytes_max or found.size <= rest.bytes_max)


def _epoch(given: str) -> bytes:
    if not isinstance(given, str):
        raise not_a("epoch", "what a span said, 32 hexadecimal digits or nothing", given)
    try:
        found = bytes.fromhex(given)
    except ValueError:
        found = b"?"
    if len(found) not in (0, EPOCH_BYTES):
        raise ValueError(f"epoch is what a span said, 32 hexadecimal digits, not {given[:40]!r}")
    return found


# -- cold blocks ----------------------------------------------------------------------------------


class BlockInfo(NamedTuple):
    """A cold block of a table: a file with rows of its history."""

    name: str  # path of its files below the location, without suffixes
    location: str  # of all blocks, as the node names it
    first: int  # the seqs that it covers, both included
    last: int
    rows: int
    bytes: int  # of its file
    min_at: datetime  # when its first row was committed
    max_at: datetime  # and its last
    crc: int  # CRC32C of its file


def blocks(table: str) -> Steps[list[BlockInfo]]:
    """Asks for the blocks of a table, a page at a time."""
    command = commands.ListBlocks(table=table, count=limits.BLOCKS_LISTED_MAX)
    pages = yield from calls.paging(command, "after", BlockList, "next_after")
    return [block for page in pages for block in _blocks(page)]


def replace_call(table: str, names: Sequence[str], new: BlockInfo) -> Call[None]:
    """Returns the call that replaces blocks with one."""
    if isinstance(names, str | bytes):
        raise not_a("names", "a list of names of blocks", names)
    command = commands.ReplaceBlocks(
        table=table,
        names=list(names),
        name=new.name,
        rows=new.rows,
        size=new.bytes,
        min_us=entries.microseconds(new.min_at),
        max_us=entries.microseconds(new.max_at),
        crc=new.crc,
    )
    return Call(command, done)


def _blocks(page: BlockList) -> list[BlockInfo]:
    numbers = zip(*(getattr(page, name) for name in BlockList.NUMBERS), strict=True)
    return [
        BlockInfo(
            entries.decode_key(name),
            page.location,
            first,
            last,
            rows,
            size,
            entries.date(low),
            entries.date(high),
            crc,
        )
        for name, (first, last, rows, size, low, high, crc) in zip(
            page.names.rows(), numbers, strict=True
        )
    ]
