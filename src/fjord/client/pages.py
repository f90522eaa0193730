"""Walking through a table in key order, a page at a time.

A `Walk` is pure: it returns the next call to run.  The shells run a call whenever a page is used
up, so only one page is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, cast

from fjord import limits
from fjord.client import entries
from fjord.client.calls import Call, Result, expect
from fjord.client.entries import AnyKey, Key
from fjord.commands import JobPage, Page, Peek, Range, Reply
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError


@dataclass(frozen=True, kw_only=True)  # with slots, Span[str]() fails in Python 3.11
class Span(Generic[AnyKey]):
    """Selects entries; keys are returned as bytes if any field is bytes, otherwise as text."""

    start: AnyKey | None = None  # the first key
    stop: AnyKey | None = None  # the key to stop before
    prefix: AnyKey | None = None  # keys that begin with this
    match: AnyKey | None = None  # keys that contain a match of this RE2 pattern
    limit: int | None = None  # maximum number of entries
    skip_worked: bool = False  # leave out values that are worked on

    def bounds(self) -> tuple[bytes, bytes]:
        """Returns the first key, and the key to stop before; empty = the end."""
        start, stop = _encoded(self.start), _encoded(self.stop)
        if self.prefix is None:
            return start, stop
        prefix = entries.encode_key(self.prefix)
        end = successor(prefix)
        return max(start, prefix), min(stop, end) if stop and end else stop or end

    def decode_keys(self, keys: list[bytes]) -> list[AnyKey]:
        given = (self.start, self.stop, self.prefix, self.match)
        if any(isinstance(one, bytes | bytearray | memoryview) for one in given):
            return cast(list[AnyKey], keys)
        return cast(list[AnyKey], [entries.decode_key(key) for key in keys])


class PageWalk(Generic[Result]):
    """Asks for one page after another; each says where the next one begins."""

    def __init__(
        self,
        command: Range | Peek,
        read: Callable[[Any], list[Result]],
        limit: int | None,
        *,
        is_sparse: bool = False,
    ) -> None:
        """Begins a walk.

        Args:
            command: asks for the first page.
            read: returns the rows of a page.
            limit: maximum number of rows.
            is_sparse: `read` leaves rows out, so whole pages are requested.
        """
        self._command = command
        self._read = read
        self._left = limit
        self._is_sparse = is_sparse
        self._is_over = False

    def next_call(self) -> Call[list[Result]] | None:
        """Returns the call for the next page, None if there is no more."""
        if self._is_over:
            return None
        count = limits.PAGE_ENTRIES_MAX
        if self._left is not None and not self._is_sparse:
            count = min(self._left, count)
        return Call(
            replace(self._command, count=count), lambda reply: self._read_page(reply, count)
        )

    def _read_page(self, reply: Reply, count: int) -> list[Result]:
        page: Page | JobPage
        start = self._command.start
        if isinstance(self._command, Range):
            page = expect(reply, Page)
            next_start, is_again = page.next_key, page.next_key <= start
        else:
            page = expect(reply, JobPage)
            next_start, is_again = page.next_start, page.next_start == start
        if len(page.keys) > count:
            text = f"a page of {len(page.keys)} rows, not {count} at most"
            raise RemoteProtocolError(Code.BAD_BATCH, text)
        if next_start and is_again:
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same page again")
        found = self._read(page)[: self._left]  # if that fails, the page can be requested again
        if self._left is not None:
            self._left -= len(found)
        self._is_over = not next_start or self._left == 0
        self._command.start = next_start
        return found


class Walk(PageWalk[Result]):
    """Goes through the entries of a span."""

    def __init__(
        self,
        table: str,
        span: Span[AnyKey],
        read: Callable[[Page], list[Result]],
        *,
        with_data: bool = True,
    ) -> None:
        if span.limit is not None and span.limit < 1:
            raise LocalProtocolError(Code.BAD_COUNT, "a limit is at least 1; leave it out for all")
        start, stop = span.bounds()
        command = Range(
            table=table,
            start=start,
            stop=stop,
            regex=_encoded(span.match),
            with_data=with_data,
            skip_worked=span.skip_worked,
        )
        super().__init__(command, read, span.limit)
        # An empty span, such as a prefix outside of start and stop, needs no request.
        self._is_over = bool(stop) and span.prefix is not None and start >= stop


def successor(prefix: bytes) -> bytes:
    """Returns the first key after all that begin with `prefix`; empty = none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b""


def _encoded(key: Key | None) -> bytes:
    return b"" if key is None else entries.encode_key(key)
