"""A database: a name space of tables over something that executes commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self, Unpack

from fjord import commands
from fjord.client import node_calls
from fjord.client.address import shown_at
from fjord.client.calls import Call, Result
from fjord.client.job_calls import JobCalls
from fjord.client.job_settings import JobSettings
from fjord.client.jobs import Jobs
from fjord.client.kv import Kv
from fjord.client.kv_calls import KvCalls
from fjord.client.listening import Listening
from fjord.client.node_calls import TableInfo
from fjord.client.transaction import Transaction
from fjord.clock import Stamps, SystemClock
from fjord.commands import Command, Reply, Scanned


class Executor(Protocol):
    """A directory, or a connection to a daemon."""

    def execute(self, command: Command, /) -> Reply: ...

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        """Begins to listen.

        Raises:
            RefusedError: if that is refused.
        """
        ...

    def close(self) -> None: ...


class Database:
    """What `fjord.open` and `fjord.connect` return."""

    def __init__(self, executor: Executor, *, name: str = "") -> None:
        self._executor = executor
        self._name = name  # its address, or its directory
        self._clock = SystemClock()
        self._stamps = Stamps(self._clock)

    def __repr__(self) -> str:
        return f"<Database{shown_at(self._name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> Kv:
        """Returns a key/value table; it comes into being with its first write."""
        calls = KvCalls(table, self._stamps)
        return Kv(self._run, calls, self._executor.listen, name=self._name)

    def jobs(self, table: str, **settings: Unpack[JobSettings]) -> Jobs:
        """Returns a jobs table; it comes into being with its first job.

        Settings that are given here are declared before jobs are first pushed or taken.

        Args:
            table: its name.
            settings:
                merge: False: a plain queue, in which keys need not differ, nor be there.
                fairness: "domain" hands out jobs of one domain after the other.
                lease: seconds that a worker may take, unless it says otherwise; 3600.
                timeouts_max: a job that fails or times out more often is dead; 5.
                debounce: pushing a job again moves it at most so many seconds beyond the moment
                    at which it was first pushed; 3600.

        Raises:
            ValueError: if a setting cannot be meant.
        """
        return Jobs(
            self._run,
            JobCalls(table, self._stamps),
            self._executor.listen,
            clock=self._clock,
            name=self._name,
            settings=settings,
        )

    def create_jobs(self, table: str, **settings: Unpack[JobSettings]) -> Jobs:
        """Makes a jobs table, and returns it; one that is there, and is the same, is no error.

        Raises:
            ExistsError: if it is there with other settings.
        """
        self._run(JobCalls(table, self._stamps).create(settings))
        return self.jobs(table)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Gathers the writes of a `with` block, and does all of them or none at its end.

        An exception inside the block ends it, and nothing is sent.

        Raises:
            RefusedError: if any of the writes is refused; none is done then.
        """
        gathered = Transaction(self._stamps, name=self._name)
        yield gathered
        gathered.results = self._run(gathered.call())

    def tables(self) -> list[TableInfo]:
        """Returns the tables that there are, by name."""
        return self._run(node_calls.tables_call())

    def table(self, name: str) -> TableInfo:
        """Returns one table.

        Raises:
            NotFoundError: if there is no such table.
        """
        return self._run(node_calls.table_call(name))

    def drop(self, name: str) -> None:
        """Takes a table away with all that is in it.

        Raises:
            NotFoundError: if there is no such table.
        """
        self._run(node_calls.drop_call(name))

    def stats(self) -> dict[str, int]:
        """Returns the numbers by which a node is watched."""
        return self._run(node_calls.stats_call())

    def ping(self) -> float:
        """Asks for an answer; returns how many seconds it took."""
        begun_us = self._clock.monotonic_us()
        self._run(node_calls.ping_call())
        return (self._clock.monotonic_us() - begun_us) / 1_000_000

    def scan(self, table: str, start_seq: int = 1, end_seq: int = 0) -> Iterator[Scanned]:
        """Yields the durable ops of a table, in order, in bounded pieces.

        The end is fixed when the scan begins: `end_seq`, or everything that is durable then.

        Raises:
            NotFoundError: if there is no such table.
        """
        while True:
            piece = self._run(node_calls.scan_call(table, start_seq, end_seq))
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
