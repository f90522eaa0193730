"""A database: a name space of tables over something that executes commands."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from fjord import commands
from fjord.client.calls import Call, Result
from fjord.client.kv import Kv, KvCalls
from fjord.clock import Stamps, SystemClock
from fjord.commands import Command, Reply, Scan, Scanned


class Executor(Protocol):
    """A directory, or a connection to a daemon."""

    def execute(self, command: Command, /) -> Reply: ...

    def close(self) -> None: ...


class Database:
    """What `fjord.open` and `fjord.connect` return."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stamps = Stamps(SystemClock())

    def kv(self, table: str = commands.DEFAULT_TABLE) -> Kv:
        """Returns a key/value table; it comes into being with its first write."""
        return Kv(self._run, KvCalls(table, self._stamps))

    def scan(self, table: str, start_seq: int = 1, end_seq: int = 0) -> Iterator[Scanned]:
        """Yields the durable ops of a table, in order, in bounded pieces.

        The end is fixed when the scan begins: `end_seq`, or everything that is durable then.

        Raises:
            NotFoundError: if there is no such table.
        """
        while True:
            piece = self._run(scan_call(table, start_seq, end_seq))
            yield piece
            start_seq, end_seq = piece.next_seq, piece.end_seq
            if start_seq >= end_seq:
                return

    def close(self) -> None:
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, call: Call[Result]) -> Result:
        return call.result(self._executor.execute(call.command))


def scan_call(table: str, start_seq: int, end_seq: int) -> Call[Scanned]:
    return Call(Scan(table=table, start_seq=start_seq, end_seq=end_seq), _scanned)


def _scanned(reply: Reply) -> Scanned:
    assert isinstance(reply, Scanned)
    return reply
