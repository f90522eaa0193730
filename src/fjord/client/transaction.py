"""Transactions: writes gathered and sent as one batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, Unpack

from fjord import commands, limits
from fjord.client.address import shown_at
from fjord.client.blocking.jobs import Jobs
from fjord.client.blocking.kv import Kv
from fjord.client.blocking.streams import Stream
from fjord.client.blocking.subscribers import Subscriber
from fjord.client.calls import Call, Steps, done, expect, expect_rows, nothing_to_do
from fjord.client.entries import AnyKey, Key, Seconds
from fjord.client.jobs.calls import FailOptions, JobCalls
from fjord.client.jobs.push import PushColumns, PushOptions
from fjord.client.jobs.records import TakenJob
from fjord.client.kv import KvCalls, SetOneOptions, SetOptions
from fjord.client.schemas import RowMap, Schemas, SchemasOf, UnknownSchemaError
from fjord.client.streams import Given, StreamCalls, listed
from fjord.client.subscribers import AsyncSubscriber, Processed, SubscriberCalls
from fjord.clock import Stamps
from fjord.commands import Batch, Nop, Replies, Reply, Stats
from fjord.errors import Code, LocalProtocolError, StaleSchemaError
from fjord.values import Value


class Transaction:
    """Writes to any tables, applied all or none, and visible at the same moment.

    Nothing is sent before the end, so a transaction can write but not read.  Rows of a table with
    still unknown columns are checked at the end, when these are fetched from the server.
    """

    def __init__(self, stamps: Stamps, *, name: str = "", schemas_of: SchemasOf = Schemas) -> None:
        self._stamps = stamps
        self._name = name  # of the database
        self._schemas_of = schemas_of
        self._calls: list[Call[object]] = []
        # Writes of rows with unknown columns, by their places.
        self._later: dict[int, tuple[Schemas, partial[Any]]] = {}
        self._schemas: set[Schemas] = set()  # of the tables that rows are written to
        self._subscribers: list[SubscriberCalls] = []  # with acks in this transaction
        #: What each write returned, in their order; filled when the transaction is done.
        self.results: Sequence[Any] = ()

    def __repr__(self) -> str:
        return f"<Transaction of {len(self._calls)} writes{shown_at(self._name)}>"

    def kv(self, table: str = commands.DEFAULT_TABLE) -> TransactionKv:
        """Returns a key/value table to write to."""
        return TransactionKv(self, KvCalls(table, self._stamps))

    def jobs(self, table: str) -> TransactionJobs:
        """Returns a jobs table to push to, and to report jobs."""
        return TransactionJobs(self, JobCalls(table, self._stamps, self._schemas_of))

    def stream(self, table: str) -> TransactionStream:
        """Returns a stream to append to."""
        return TransactionStream(self, StreamCalls(table, self._schemas_of))

    def ack(self, subscriber: Subscriber | AsyncSubscriber, processed: Processed) -> None:
        """Acks messages in the same commit as the other writes.

        So the results of messages are written once: if another process has moved the subscriber
        meanwhile, the whole transaction is refused with a StaleError.  When a transaction fails
        for any reason, the subscriber reads from its mark again.
        """
        self._subscribers.append(subscriber.calls)
        self.add(subscriber.calls.pledge(processed))

    def fail(self) -> None:
        """Lets subscribers read from their marks again, since the transaction failed."""
        for calls in self._subscribers:
            calls.lose()

    def steps(self) -> Steps[Sequence[Any]]:
        """Fetches unknown columns, and sends the writes.

        Raises:
            StaleSchemaError: if the columns of a table have changed meanwhile.
        """
        for place, (schemas, build) in self._later.items():
            self._calls[place] = yield from schemas.building(build)
        try:
            found: Sequence[Any] = yield self.call()
        except StaleSchemaError:
            for schemas in self._schemas:
                schemas.forget()
            raise
        return found

    def call(self) -> Call[Sequence[Any]]:
        """Returns the call that sends all writes."""
        calls = self._calls
        if not calls:
            return nothing_to_do([])

        def read(reply: Reply) -> Sequence[Any]:
            found = expect(reply, Replies).replies
            expect_rows(len(found), len(calls))
            return [call.result(answer) for call, answer in zip(calls, found, strict=True)]

        return Call(Batch(commands=[call.command for call in calls]), read)

    def write(self, schemas: Schemas, build: partial[Any]) -> None:
        """Adds a write that may hold rows, which are copied."""
        self._schemas.add(schemas)
        try:
            self.add(build())
        except UnknownSchemaError:
            arguments, options = copy.deepcopy((build.args, build.keywords))
            self.add(_UNKNOWN)
            later = partial(build.func, *arguments, **options)
            self._later[len(self._calls) - 1] = schemas, later
        except (LocalProtocolError, TypeError):
            schemas.forget()  # the columns may have changed
            raise

    def add(self, call: Call[object]) -> None:
        if isinstance(call.command, Nop):
            return  # set_many of nothing
        if len(self._calls) >= limits.BATCH_COMMANDS_MAX:
            raise LocalProtocolError(
                Code.BAD_BATCH, f"a transaction has at most {limits.BATCH_COMMANDS_MAX} writes"
            )
        self._calls.append(call)


# Stands for a write that is built once the columns are known.
_UNKNOWN: Final[Call[object]] = Call(Stats(), done)


_NO_READING: Final = (
    "a transaction only writes: read outside of it; inside, append and delete, and ack with "
    "tx.ack(subscriber, batch)"
)
_NO_TAKING: Final = (
    "a transaction only writes: take and read jobs outside of it; inside, push, and report jobs "
    "with done_many, touch_many and fail_many"
)
_WRITES_ONLY: Final = (
    "a transaction only writes: read, lock and listen outside of it, or use add, flip, truncate "
    "and rename, which change a value in place"
)


AnyCalls = TypeVar("AnyCalls", bound=KvCalls | JobCalls | StreamCalls)


class _Writes(Generic[AnyCalls]):
    """The writes of a table; its other methods are refused."""

    _table: type  # that it resembles
    _why: str  # the error for other methods

    def __init__(self, transaction: Transaction, calls: AnyCalls) -> None:
        self._add, self._write = transaction.add, transaction.write
        self._calls = calls

    if not TYPE_CHECKING:  # a type checker must not see it

        def __getattr__(self, name: str) -> NoReturn:
            known = hasattr(self._table, name) and not name.startswith("_")
            raise AttributeError(self._why if known else f"a transaction has no {name}")


class TransactionKv(_Writes[KvCalls]):
    """The writes of a key/value table, for a transaction; like those of `fjord.Kv`."""

    _table, _why = Kv, _WRITES_ONLY

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        self._add(self._calls.set(key, value, **options))

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        self._add(self._calls.set_many(items, **options))

    def delete(self, key: Key, *, purge: bool = False) -> None:
        self._add(self._calls.delete_many([key], purge=purge))

    def delete_many(self, keys: Iterable[Key], *, purge: bool = False) -> None:
        self._add(self._calls.delete_many(keys, purge=purge))

    def add(self, key: Key, amount: float) -> None:
        self._add(self._calls.add(key, amount))

    def flip(self, key: Key) -> None:
        self._add(self._calls.flip(key))

    def truncate(self, key: Key, size: int) -> None:
        self._add(self._calls.truncate(key, size))

    def rename(self, key: Key, to: Key, *, overwrite: bool = False) -> None:
        self._add(self._calls.rename(key, to, overwrite=overwrite))

    def __setitem__(self, key: Key, value: Value) -> None:
        self.set(key, value)

    __delitem__ = delete

    if not TYPE_CHECKING:

        def __getitem__(self, key: Key) -> NoReturn:
            raise TypeError(_WRITES_ONLY)

        __contains__ = __getitem__


class TransactionJobs(_Writes[JobCalls]):
    """The writes of a jobs table, for a transaction; like those of `fjord.Jobs`.

    If a lease has expired, the whole transaction is refused with a StaleError: the results of a
    job are written once, by the worker that still holds it.
    """

    _table, _why = Jobs, _NO_TAKING

    def push(
        self, key: Key | RowMap, value: Value | RowMap = None, **options: Unpack[PushOptions]
    ) -> None:
        self._write(self._calls.schemas, partial(self._calls.push, key, value, **options))

    def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
        listed = jobs if jobs is None or isinstance(jobs, Sequence | Mapping) else list(jobs)
        self._write(self._calls.schemas, partial(self._calls.push_many, listed, **columns))

    def done_many(self, jobs: Iterable[TakenJob | int]) -> None:
        self._add(self._calls.done_many(jobs, strict=True))

    def touch_many(self, jobs: Iterable[TakenJob | int], lease: Seconds | None = None) -> None:
        self._add(self._calls.touch_many(jobs, lease))

    def fail_many(self, jobs: Iterable[TakenJob | int], **options: Unpack[FailOptions]) -> None:
        self._add(self._calls.fail_many(jobs, **options))

    def cancel(self, key: Key) -> None:
        self._add(self._calls.cancel(key))

    def cancel_many(self, keys: Iterable[Key]) -> None:
        self._add(self._calls.cancel_many(keys))

    def reschedule(
        self,
        key: Key,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        process_at: datetime | None = None,
    ) -> None:
        self._add(
            self._calls.reschedule(key, priority=priority, delay=delay, process_at=process_at)
        )

    def kick(self, key: Key) -> None:
        self._add(self._calls.kick(key))

    def bury(self, key: Key, reason: str = "") -> None:
        self._add(self._calls.bury(key, reason))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("done", "touch", "fail"):
                raise AttributeError(f"a transaction has no {name}: use {name}_many([job])")
            super().__getattr__(name)


class TransactionStream(_Writes[StreamCalls]):
    """The writes of a stream, for a transaction; like those of `fjord.Stream`.

    All of `append_many` is one commit, and has at most 100,000 messages and 8 MiB.
    """

    _table, _why = Stream, _NO_READING

    def append(self, value: Value | RowMap, key: Key = "") -> None:
        self._write(self._calls.schemas, partial(self._calls.append, value, key))

    def append_many(self, values: Given, keys: Iterable[Key] | None = None) -> None:
        given = values if isinstance(values, Mapping) else listed("values", values)
        named = None if keys is None else listed("keys", keys)
        self._write(self._calls.schemas, partial(self._calls.append_many, given, named))

    def delete(self, key: Key) -> None:
        self._add(self._calls.delete(key))

    def delete_many(self, keys: Iterable[Key]) -> None:
        self._add(self._calls.delete_many(keys))
