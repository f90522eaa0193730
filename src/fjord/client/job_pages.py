"""Walking through the jobs of one state, a page at a time; pure, as `pages` is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fjord import limits
from fjord.client.calls import Call, check_whole, expect
from fjord.client.entries import Key, encode_domain
from fjord.commands import JobPage, Peek, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.jobs import State

Found = TypeVar("Found")


class JobWalk(Generic[Found]):
    """Asks for one page after the other."""

    def __init__(
        self,
        table: str,
        state: State,
        read: Callable[[JobPage], list[Found]],
        *,
        limit: int | None = None,
        domain: Key | None = None,
    ) -> None:
        if limit is not None and check_whole("count", limit) < 1:
            raise ValueError(f"at least one job is asked for, not {limit}")
        self._table = table
        self._state = state
        self._read = read
        self._left = limit
        self._domain = encode_domain(domain)
        self._start = b""
        self._is_over = False

    def next_call(self) -> Call[list[Found]] | None:
        """Returns the call for the next page, None if there is no more."""
        if self._is_over:
            return None
        left = limits.PAGE_ENTRIES_MAX if self._left is None else self._left
        command = Peek(
            table=self._table,
            state=self._state,
            start=self._start,
            count=min(left, limits.PAGE_ENTRIES_MAX),
            domain=self._domain,
        )
        return Call(command, lambda reply: self._read_page(reply, command.count))

    def _read_page(self, reply: Reply, count: int) -> list[Found]:
        page = expect(reply, JobPage)
        rows = len(page.types)
        if rows > count:
            raise RemoteProtocolError(Code.BAD_BATCH, f"a page of {rows} jobs, not {count} at most")
        if page.next_start and page.next_start == self._start:
            raise RemoteProtocolError(Code.BAD_CURSOR, "the server gave the same page again")
        found = self._read(page)  # if that fails, the same page can be asked for again
        if self._left is not None:
            self._left -= rows
        self._is_over = not page.next_start or self._left == 0
        self._start = page.next_start
        return found
