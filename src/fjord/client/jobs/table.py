"""A jobs table, and jobs taken from it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from fjord.client.address import shown_at
from fjord.client.async_listening import AsyncChanges
from fjord.client.async_waker import AsyncWaker, call_handler
from fjord.client.calls import Call, Result
from fjord.client.declared_tables import JobSettings
from fjord.client.entries import AnyKey, Key, Seconds
from fjord.client.jobs import dead, records, work
from fjord.client.jobs.calls import FailOptions, Given, JobCalls
from fjord.client.jobs.dead import DeadFilters, DiscardOptions, RedriveOptions
from fjord.client.jobs.push import PushColumns, PushOptions
from fjord.client.jobs.records import DeadJob, Found, JobBatch, JobInfo, JobWalk, TakenJob
from fjord.client.jobs.work import Shift, Tally, WorkOptions
from fjord.client.runner import AsyncRunner
from fjord.client.schemas import RowMap
from fjord.commands import JobPage
from fjord.errors import FjordError, UnavailableError
from fjord.jobs import State
from fjord.values import PLAIN_TYPES, Value


class AsyncJob(TakenJob):
    """A job that this worker holds until its lease expires."""

    __slots__ = ("_calls", "_runner")

    def __init__(
        self, runner: AsyncRunner, calls: JobCalls, batch: JobBatch[AsyncJob], place: int
    ) -> None:
        self._batch, self._place = batch, place
        self._runner = runner
        self._calls = calls

    async def done(self) -> None:
        """Marks the job as done and removes it.

        Raises:
            StaleError: if its lease has expired; another worker may have it.
        """
        await self._runner.run(self._calls.done_one(self))

    async def touch(self, lease: Seconds | None = None) -> None:
        """Renews the lease, for `lease` seconds from now or for its previous length.

        Raises:
            StaleError: if its lease has expired.
        """
        await self._runner.run(self._calls.touch_one(self, lease))

    async def fail(self, **options: Unpack[FailOptions]) -> None:
        """Gives the job back: it waits again or, after too many failures, is dead.

        Args:
            options:
                delay: minimum seconds to wait from now.
                reason: kept with the job if it is dead.
                count: False if this is not a failure of the job.
                bury: True sends it to the dead letters at once.

        Raises:
            StaleError: if its lease has expired.
        """
        await self._runner.run(self._calls.fail_one(self, **options))


class AsyncJobs:
    """A jobs table.  Every call returns when its effect is durable.

    Keys are str or bytes; values are None, bytes, str, int, float or bool.
    """

    def __init__(
        self, runner: AsyncRunner, calls: JobCalls, settings: JobSettings | None = None
    ) -> None:
        self._runner = runner
        self._run = runner.run
        self._calls = calls
        # Declares the table before the first push or take.
        self._declared = runner.declaring(calls.declare(settings)) if settings else runner
        self._make = functools.partial(AsyncJob, runner, calls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._runner.name)}>"

    # -- pushing ----------------------------------------------------------------------------------

    async def push(
        self, key: Key | RowMap, value: Value | RowMap = None, **options: Unpack[PushOptions]
    ) -> None:
        """Adds a job, or merges it with a waiting job of the same key.

        Args:
            key: at most 1024 bytes; usually a URI.  In a table whose key is made of declared
                columns: the row, a dict of the columns.
            value: the data for the worker, at most 1 MiB; a row, if columns are declared.
            options:
                priority: 0 to 255, the smallest first; see `fjord.Priority`.
                delay: minimum seconds to wait, by the server's clock.
                process_at: the job is not handed out before this time.
                expires_at: the job is not handed out after this time.
                domain: default: the host of the URI in the key.

        Raises:
            RefusedError: if the server refuses; then nothing has changed.
            ValueError: if an option is invalid.
        """
        if type(key) in PLAIN_TYPES and type(value) in PLAIN_TYPES:
            await self._declared.run(self._calls.push(key, value, **options))
        else:
            await self._write(lambda: self._calls.push(key, value, **options))

    async def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
        """Adds jobs, all or none, in one commit.

        Give dicts with `key`, `value` and the options of `push`; or, fastest, columns:
        `push_many(keys=[...], values=[...], priority=10)`.  With columns, an option is one value
        for all jobs, or a list with one for each.

        A call takes at most 100,000 jobs and 8 MiB of keys and values.  A larger one is refused,
        since splitting it would no longer be all or none.

        Raises:
            RefusedError: if any job is refused; then none is added.
            ValueError: if an option is invalid, or the columns differ in length.
        """
        listed = jobs if jobs is None or isinstance(jobs, Sequence | Mapping) else list(jobs)
        await self._write(lambda: self._calls.push_many(listed, **columns))

    async def _push_columns(self, **columns: Any) -> None:
        """Adds jobs, all or none, as the columns of `commands.Push`; for imports."""
        await self._declared.run(self._calls.push_raw(columns))

    # -- taking -----------------------------------------------------------------------------------

    async def next(
        self,
        count: int = 1,
        *,
        domain: Key | None = None,
        lease: Seconds | None = None,
        wait: Seconds | None = None,
        done: bool = False,
    ) -> JobBatch[AsyncJob]:
        """Takes the next due jobs, most important first; possibly fewer than `count`.

        The result is a sequence of `Job`.  If it is empty, its `next_at` says when the next job
        is due.

        Args:
            count: maximum number of jobs.
            domain: take jobs of this domain only; for a table with fairness by domain.
            lease: length of the lease in seconds; default: the table's setting.
            wait: seconds that the server waits for the first job, at most 3600; default: none.
            done: takes the jobs for good: they are done at once.
        """
        return await self._take(
            self._calls.next(self._make, count, domain=domain, lease=lease, wait=wait, done=done)
        )

    async def done_many(self, jobs: Iterable[Given]) -> list[Given]:
        """Marks jobs as done; returns those whose leases had expired.

        Args:
            jobs: the result of `next`, or any jobs of this table, or their xids.
        """
        return await self._run(self._calls.done_many(jobs))

    async def touch_many(self, jobs: Iterable[Given], lease: Seconds | None = None) -> list[Given]:
        """Renews leases, like `Job.touch`; returns the jobs whose leases had expired."""
        return await self._run(self._calls.touch_many(jobs, lease))

    async def fail_many(self, jobs: Iterable[Given], **options: Unpack[FailOptions]) -> list[Given]:
        """Gives jobs back, like `Job.fail`; returns those whose leases had expired."""
        return await self._run(self._calls.fail_many(jobs, **options))

    # -- working ----------------------------------------------------------------------------------

    def work(self, **options: Unpack[WorkOptions]) -> AsyncGenerator[AsyncJob, None]:
        """Yields jobs as they become due, for ever, waiting on the server.

        A job is done when the loop continues, unless `done` or `fail` was called.  When the loop
        is left by `break` or an exception, the current job fails, which counts, and jobs of its
        batch that were not begun are given back.  So call `job.done()` before a `break` if the
        work is done, or `job.fail(count=False)` if it should not count.

        The loop does not extend leases: long work must call `job.touch()`.

        Args:
            options:
                lease: seconds for all jobs of a batch together.
                domain: take jobs of this domain only.
                batch: how many jobs to take at a time; default 1.
                wait: seconds of one wait on the server; default 30.
                wake: address of `fjord serve --wake`, as for `Waker`.  Then the worker does not
                    wait on the server, but takes jobs when it is woken.
                poll: with `wake`: also ask for jobs this often, in seconds; default 30.
                stop: an event, or a function that says whether to stop.  It is checked after each
                    job and each wait.

        Raises:
            StaleError: if a lease expired before the job was done.  This ends the loop; the rest
                of the batch is given back.
            UnavailableError: if the daemon cannot be reached.  This ends the loop; jobs come back
                when their leases expire.
        """
        return self._work(Shift(self._calls, self._make, options))

    async def _work(self, shift: Shift[AsyncJob]) -> AsyncGenerator[AsyncJob, None]:
        with shift.listen(AsyncWaker) as waker:
            while not shift.is_over():
                batch = await self._take(shift.next_call)
                if waker is not None and not batch:
                    await waker.wait(shift.poll)
                    continue
                try:
                    for job in shift.hand_out(batch):
                        yield job
                        if not job.is_settled:
                            await job.done()
                except UnavailableError:
                    raise  # more calls would end in the same way
                except BaseException:
                    await self._leave(shift)
                    raise
                await self._leave(shift)

    async def _leave(self, shift: Shift[AsyncJob]) -> None:
        for call in shift.leave():
            await self._run(call)

    async def run(
        self,
        handler: Callable[[AsyncJob], object],
        *,
        retry_delay: Seconds | None = None,
        **options: Unpack[WorkOptions],
    ) -> int:
        """Calls `handler` with each job as it becomes due; returns how many were done.

        A job is done when its handler returns.  If the handler raises, the job fails: it waits
        again or, after too many failures, is dead; the error is logged and kept as its reason.
        An error that ends the program, such as KeyboardInterrupt, gives the job back uncounted.

        If a lease expires before its handler returns, this is logged, and the worker continues;
        another worker may do the work again.  Leases are not extended: a slow handler must call
        `job.touch()`.

        Args:
            handler: does the work.
            retry_delay: seconds that a failed job waits; by default 1 after the first failure,
                doubled each time up to 300.
            options: those of `work`.

        Raises:
            UnavailableError: if the daemon cannot be reached.  This ends the worker; jobs come
                back when their leases expire.
        """
        tally = Tally(self._calls, retry_delay)
        async with contextlib.aclosing(self.work(**options)) as jobs:
            async for job in jobs:
                try:
                    await call_handler(handler, job)
                except Exception as error:  # noqa: BLE001 - whatever it is, the job has failed
                    call = tally.failed(job, error)
                except BaseException as interruption:
                    await self._give_back(job, interruption)
                    raise
                else:
                    call = tally.finished(job)
                if call is not None:
                    await self._run(call)
                tally.count(job)
        return tally.done

    async def _give_back(self, job: AsyncJob, interruption: BaseException) -> None:
        try:
            if not job.is_settled:
                await self._run(self._calls.fail_many([job], count=False))
        except FjordError as error:
            work.lose(job, interruption, error)

    # -- waiting jobs, by key ---------------------------------------------------------------------

    async def get(self, key: Key) -> JobInfo | None:
        """Returns the waiting job of `key`, None if there is none."""
        return await self._look(self._calls.get(key))

    async def cancel(self, key: Key) -> bool:
        """Takes the job that waits under `key` away; says whether there was one."""
        return await self._run(self._calls.cancel(key))

    async def cancel_many(self, keys: Iterable[AnyKey]) -> list[AnyKey]:
        """Takes waiting jobs away; returns the keys of those that waited."""
        return await self._run(self._calls.cancel_many(keys))

    async def reschedule(
        self,
        key: Key,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        process_at: datetime | None = None,
    ) -> bool:
        """Changes the waiting job of `key`; says whether there is one.

        Unlike a push, it can lower the priority or move the date earlier.
        """
        call = self._calls.reschedule(key, priority=priority, delay=delay, process_at=process_at)
        return await self._run(call)

    async def kick(self, key: Key) -> bool:
        """Makes the waiting job of `key` due now; says whether there is one."""
        return await self._run(self._calls.kick(key))

    async def bury(self, key: Key, reason: str = "") -> bool:
        """Sends the waiting job of `key` to the dead letters; says whether there is one."""
        return await self._run(self._calls.bury(key, reason))

    # -- reading ----------------------------------------------------------------------------------

    async def count(self) -> records.Counts:
        """Returns the numbers of waiting, taken and dead jobs."""
        return await self._run(self._calls.count())

    async def generations(self) -> list[records.Generation]:
        """Returns the generations of a table with a period, the current one last."""
        return await self._run(records.generations(self._calls.table))

    async def next_at(self, domain: Key | None = None) -> datetime | None:
        """Returns when the next job is due (perhaps in the past) or a lease expires, or None."""
        return await self._run(self._calls.next_at(domain))

    async def peek(self, count: int = 10, *, domain: Key | None = None) -> list[JobInfo]:
        """Returns the first waiting jobs, due or not, without taking them."""
        return [job async for job in self._walk(self._calls.peek(count, domain))]

    async def taken(self, count: int = 10) -> list[JobInfo]:
        """Returns taken jobs, those taken first."""
        return [job async for job in self._walk(self._calls.taken(count))]

    def pages(self, state: State) -> AsyncIterator[JobPage]:
        """Yields all waiting, taken or dead jobs, without taking them: many at a time, as columns.

        Jobs that are pushed or taken meanwhile may be missing, or come twice.
        """
        return self._walk(self._calls.pages(state))

    def dead(self, **filters: Unpack[DeadFilters]) -> AsyncIterator[DeadJob]:
        """Yields dead jobs, a page at a time, in the order of their pushes.

        Args:
            filters: by default all:
                key: those with this key.
                key_prefix: those whose keys begin with this.
                domain: those of this domain.
                reason: those with this in their reason.
                before: those that died before this time.
                limit: maximum number.
        """
        return self._walk(dead.dead(self._calls, filters))

    async def _walk(self, walk: JobWalk[Found]) -> AsyncIterator[Found]:
        while (call := walk.next_call()) is not None:
            for row in await self._look(call):
                yield row

    # -- dead jobs --------------------------------------------------------------------------------

    async def redrive(self, **options: Unpack[RedriveOptions]) -> records.Redriven:
        """Lets dead jobs wait again, as if they had never failed; by default all of them.

        A job that has expired, or whose key waits again, is dropped instead; the result says how
        many.

        Args:
            options: the filters of `dead`, and
                rows: these jobs, by row, instead of filters.
                rate: maximum number per second.
                delay: minimum seconds to wait from now.
                dry_run: changes nothing; the result says what would change.
                progress: called with the number revived so far.
        """
        return await self._runner.follow(dead.redrive(self._calls, options))

    async def discard(self, **options: Unpack[DiscardOptions]) -> records.Discarded:
        """Deletes dead jobs for good.

        Args:
            options: which ones, as in `redrive`, and
                all: required to delete all of them.

        Raises:
            ValueError: if neither a filter nor `all` is given.
        """
        return await self._runner.follow(dead.discard(self._calls, options))

    # -- listening --------------------------------------------------------------------------------

    def listen(self) -> AsyncChanges[records.Moment]:
        """Reports when jobs arrive, and when their process dates are reached.

        It begins with the first `async for`, `async with` or `wait`.
        Iterate over it, or `wait` with a timeout; `close` it, or use it in an `async with` block.
        It has its own connection.
        """
        return self._runner.listen(self._calls.listen(), records.read_moment)

    # -- inside -----------------------------------------------------------------------------------

    async def _write(self, build: Callable[[], Call[None]]) -> None:
        await self._declared.follow(self._calls.schemas.writing(build))

    async def _take(self, call: Call[JobBatch[AsyncJob]]) -> JobBatch[AsyncJob]:
        batch = await self._declared.run(call)
        if batch.lacks_columns:
            await self._runner.follow(self._calls.schemas.learning())
        return batch

    async def _look(self, call: Call[Result]) -> Result:
        return await self._runner.follow(self._calls.schemas.reading(call))
