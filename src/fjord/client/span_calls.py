"""Spans: where a batch of a table's history ends.  Pure, and shared by all shells.

A server looks at a bounded part of the journal at a time.  If that was not enough, the rest is
asked for from there on, with what the batch still has room for.  The first commit of such a rest
comes in any case; it is left out again if the batch that there is has no room for it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, TypedDict, Unpack

from fjord.client.calls import Call, Steps, check_names, check_whole, expect, not_a
from fjord.client.entries import date_or_none
from fjord.client.job_times import moment_us
from fjord.client.stream_places import check_seq
from fjord.commands import Reply, Span, Spanned
from fjord.errors import Code, RemoteProtocolError

EPOCH_BYTES: Final = 16
_NO_EPOCH: Final = bytes(EPOCH_BYTES)


class SpanInfo(NamedTuple):
    """A batch of a table's history: the rows behind a seq, up to the end of a commit."""

    seq: int  # of the last commit that has rows of the table; where it began, if there are none
    rows: int
    bytes: int  # of their ops, as they are stored
    at: datetime | None  # when the last commit was written; None if there are no rows
    durable_seq: int  # everything up to here can be asked for
    first_seq: int  # where the journal begins
    epoch: str  # names the writer of `seq`; empty: nobody has written it yet


class SpanBounds(TypedDict, total=False):
    """What bounds a batch."""

    until: int  # the last seq that counts; 0 = all that is durable
    rows_max: int  # 0 = any number
    bytes_max: int
    before: datetime | None  # only commits that were written before this moment
    epoch: str  # what the span said that ended where this one begins


def span_of(table: str, after: int, **bounds: Unpack[SpanBounds]) -> Span:
    """Returns the first command for a batch.

    Raises:
        ValueError, TypeError: if something in it cannot be meant.
    """
    check_names("a span", bounds, SpanBounds.__optional_keys__)
    return Span(
        table=table,
        after=check_seq("after", after),
        until=check_seq("until", bounds.get("until", 0)),
        rows_max=_bound("rows_max", bounds.get("rows_max", 0)),
        bytes_max=_bound("bytes_max", bounds.get("bytes_max", 0)),
        before_us=moment_us(bounds.get("before"), "before"),
        epoch=_epoch(bounds.get("epoch", "")),
    )


def spanned(command: Span) -> Steps[SpanInfo]:
    """Asks until all of the batch was looked at."""
    found: Spanned = yield Call(command, _read)
    last, examined = found, command.after
    while last.is_more:
        if last.examined <= examined:
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server looked at the same part again")
        examined = last.examined
        rest = _rest(command, found, examined)
        if rest is None:
            break
        last = yield Call(rest, _read)
        if found.rows and not _fits(rest, last):
            break
        found = _joined(found, last)
    return SpanInfo(
        seq=found.seq,
        rows=found.rows,
        bytes=found.size,
        at=date_or_none(found.wall_us),
        durable_seq=last.durable_seq,
        first_seq=last.first_seq,
        epoch="" if found.epoch == _NO_EPOCH else found.epoch.hex(),
    )


def _rest(command: Span, found: Spanned, after: int) -> Span | None:
    """Returns what asks for more behind a seq; None if the batch is full."""
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


def _joined(found: Spanned, further: Spanned) -> Spanned:
    if not further.rows:
        return found
    return replace(further, rows=found.rows + further.rows, size=found.size + further.size)


def _read(reply: Reply) -> Spanned:
    return expect(reply, Spanned)


def _bound(name: str, given: int) -> int:
    found = check_whole(name, given)
    if not 0 <= found < 2**63:
        raise ValueError(f"{name} is 0, which is no bound, or more, not {given}")
    return found


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
