"""A table of jobs, and the jobs that a worker has taken from it."""

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
from fjord.client.schemas import Row
from fjord.errors import FjordError, UnavailableError
from fjord.values import PLAIN_TYPES, Value


class AsyncJob(TakenJob):
    """A job that this worker has until its lease is over."""

    __slots__ = ("_calls", "_runner")

    def __init__(
        self, runner: AsyncRunner, calls: JobCalls, batch: JobBatch[AsyncJob], place: int
    ) -> None:
        self._batch, self._place = batch, place
        self._runner = runner
        self._calls = calls

    async def done(self) -> None:
        """Says that its work is done, so that it is gone.

        Raises:
            StaleError: if its lease was over; others may have done its work again.
        """
        await self._runner.run(self._calls.done_one(self))

    async def touch(self, lease: Seconds | None = None) -> None:
        """Lets its lease last longer: `lease` seconds from now on, or as long as the last time.

        Raises:
            StaleError: if its lease was over.
        """
        await self._runner.run(self._calls.touch_one(self, lease))

    async def fail(self, **options: Unpack[FailOptions]) -> None:
        """Gives it back: it waits again, or is dead when that happened too often.

        Args:
            options:
                delay: seconds that it waits at least, from now on.
                reason: is kept with it if it is dead.
                count: False if this is nobody's failure.
                bury: True sends it to the dead letters at once.

        Raises:
            StaleError: if its lease was over.
        """
        await self._runner.run(self._calls.fail_one(self, **options))


class AsyncJobs:
    """A table of jobs.  Every call returns when its effect is durable.

    Keys are str or bytes; values are None, bytes, str, int, float or bool.
    """

    def __init__(
        self, runner: AsyncRunner, calls: JobCalls, settings: JobSettings | None = None
    ) -> None:
        self._runner = runner
        self._run = runner.run
        self._calls = calls
        # Jobs are pushed and taken where the table is as it is declared.
        self._declared = runner.declaring(calls.declare(settings)) if settings else runner
        self._make = functools.partial(AsyncJob, runner, calls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._runner.name)}>"

    # -- pushing ----------------------------------------------------------------------------------

    async def push(
        self, key: Key | Row, value: Value | Row = None, **options: Unpack[PushOptions]
    ) -> None:
        """Adds a job, or merges it with the one that waits under the same key.

        Args:
            key: what the job is about, at most 1024 bytes; usually a URI.  Of a table whose key
                is made of declared columns: the row, a dict of the columns.
            value: what its worker needs to know, at most 1 MiB; a row, if columns are declared.
            options:
                priority: 0 to 255, the smallest first; see `fjord.Priority`.
                delay: seconds that it waits at least, by the clock of the server.
                process_at: the moment before which it is not handed out.
                expires_at: the moment from which on it is not handed out.
                domain: whose job it is; unless given, the host of the URI in the key.

        Raises:
            RefusedError: if the server refuses; nothing was changed then.
            ValueError: if an option cannot be meant.
        """
        if type(key) in PLAIN_TYPES and type(value) in PLAIN_TYPES:
            await self._declared.run(self._calls.push(key, value, **options))
        else:
            await self._write(lambda: self._calls.push(key, value, **options))

    async def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
        """Adds jobs, all or none, in one commit.

        They are dicts with the keys `key`, `value` and the options of `push`; or columns, which
        is the fastest way: `push_many(keys=[...], values=[...], priority=10)`.  In columns
        each option is one for all jobs, or a list of one for each.

        One call has at most 100,000 jobs and 8 MiB of keys and values.  A larger one is not
        split, since it would no longer be all or none: it is refused.

        Raises:
            RefusedError: if any of the jobs is refused; none is added then.
            ValueError: if an option cannot be meant, or the columns differ in length.
        """
        listed = jobs if jobs is None or isinstance(jobs, Sequence | Mapping) else list(jobs)
        await self._write(lambda: self._calls.push_many(listed, **columns))

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
        """Takes the next jobs that are due, most important first; perhaps fewer than `count`.

        The result is a sequence of `Job`.  If it is empty, its `next_at` says when the next job
        is due.

        Args:
            count: at most so many.
            domain: of this domain only; for a table with fairness by domain.
            lease: seconds until they are handed out again, unless they are done; the setting of
                the table unless given.
            wait: seconds that the server waits for the first one, at most 3600; it does not wait
                unless given.
            done: they are done at once, and nothing is left to say of them.
        """
        return await self._take(
            self._calls.next(self._make, count, domain=domain, lease=lease, wait=wait, done=done)
        )

    async def done_many(self, jobs: Iterable[Given]) -> list[Given]:
        """Says that jobs are done; returns those whose leases were over.

        Args:
            jobs: what `next` returned, as it is; or any jobs of this table, or their xids.
        """
        return await self._run(self._calls.done_many(jobs))

    async def touch_many(self, jobs: Iterable[Given], lease: Seconds | None = None) -> list[Given]:
        """Lets leases last longer, as `Job.touch` does; returns those jobs whose were over."""
        return await self._run(self._calls.touch_many(jobs, lease))

    async def fail_many(self, jobs: Iterable[Given], **options: Unpack[FailOptions]) -> list[Given]:
        """Gives jobs back, as `Job.fail` does; returns those whose leases were over."""
        return await self._run(self._calls.fail_many(jobs, **options))

    # -- working ----------------------------------------------------------------------------------

    def work(self, **options: Unpack[WorkOptions]) -> AsyncGenerator[AsyncJob, None]:
        """Yields jobs as they become due, for ever; waits on the server.

        A job is done when the loop goes on to the next one, unless it was said to be done or
        failed inside of the loop.  When the loop is left, by an exception or by `break`, the job
        that was worked on has failed, which counts, and those of its batch that were not begun
        are given back.  So say `job.done()` before a `break` if its work is done, or
        `job.fail(count=False)` if it is nobody's failure.

        Leases are not extended by the loop: whose work takes longer calls `job.touch()`.

        Args:
            options:
                lease: seconds for all jobs of a batch together.
                domain: of this domain only.
                batch: how many jobs are taken at a time; 1 unless given.
                wait: seconds that one wait on the server takes; 30 unless given.
                wake: where `fjord serve --wake` sends wake-ups to, as `Waker` has it.  Then the
                    worker does not wait on the server, and asks when it is woken.
                poll: with `wake`: seconds after which it asks all the same; 30 unless given.
                stop: an event, or a function that says whether to end.  It is asked after each
                    job, and after each wait.

        Raises:
            StaleError: if the lease of a job was over before its work was.  This ends the loop;
                the rest of the batch is given back.
            UnavailableError: if the daemon cannot be reached.  This ends the loop; jobs come back
                when their leases are over.
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

        A job whose handler returns is done.  If the handler raises, the job has failed: it waits
        again, and dies when that happened too often; the error is logged and kept as its reason.
        An error that ends the program, such as KeyboardInterrupt, gives it back uncounted.

        A lease that was over before its handler was is logged, and the worker goes on: others may
        have done the work again.  Leases are not extended: a handler that takes longer calls
        `job.touch()`.

        Args:
            handler: does the work.
            retry_delay: seconds that a job waits after a failure; unless given, 1 after the
                first, then twice as many each time, up to 300.
            options: those of `work`.

        Raises:
            UnavailableError: if the daemon cannot be reached.  This ends the worker; jobs come
                back when their leases are over.
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
        """Returns the job that waits under `key`, None if there is none."""
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
        """Changes the job that waits under `key`; says whether there is one.

        Unlike a push, it may make a job less important, or let it come earlier.
        """
        call = self._calls.reschedule(key, priority=priority, delay=delay, process_at=process_at)
        return await self._run(call)

    async def kick(self, key: Key) -> bool:
        """Makes the job that waits under `key` due now; says whether there is one."""
        return await self._run(self._calls.kick(key))

    async def bury(self, key: Key, reason: str = "") -> bool:
        """Sends the job that waits under `key` to the dead letters; says whether there is one."""
        return await self._run(self._calls.bury(key, reason))

    # -- looking ----------------------------------------------------------------------------------

    async def count(self) -> records.Counts:
        """Returns how many jobs wait, are taken and are dead."""
        return await self._run(self._calls.count())

    async def generations(self) -> list[records.Generation]:
        """Returns the generations of a table with a period, the current one last."""
        return await self._run(records.generations(self._calls.table))

    async def next_at(self, domain: Key | None = None) -> datetime | None:
        """Returns when the next job is due, perhaps in the past, or its lease is over; or None."""
        return await self._run(self._calls.next_at(domain))

    async def peek(self, count: int = 10, *, domain: Key | None = None) -> list[JobInfo]:
        """Returns the first waiting jobs, due or not, and takes none."""
        return [job async for job in self._walk(self._calls.peek(count, domain))]

    async def taken(self, count: int = 10) -> list[JobInfo]:
        """Returns jobs that workers have, those that were taken first."""
        return [job async for job in self._walk(self._calls.taken(count))]

    def dead(self, **filters: Unpack[DeadFilters]) -> AsyncIterator[DeadJob]:
        """Yields dead jobs, a page at a time, in the order in which they were pushed.

        Args:
            filters: which ones, all of them unless given:
                key: those with this key.
                key_prefix: those whose keys begin with this.
                domain: those of this domain.
                reason: those with this in their reason.
                before: those that died before this moment.
                limit: at most so many.
        """
        return self._walk(dead.dead(self._calls, filters))

    async def _walk(self, walk: JobWalk[Found]) -> AsyncIterator[Found]:
        while (call := walk.next_call()) is not None:
            for row in await self._look(call):
                yield row

    # -- dead jobs --------------------------------------------------------------------------------

    async def redrive(self, **options: Unpack[RedriveOptions]) -> records.Redriven:
        """Lets dead jobs wait again, as if they had never failed: all of them, unless told which.

        One that has expired, or whose key waits again meanwhile, is dropped instead; the result
        says how many.

        Args:
            options: the filters of `dead`, and
                rows: the numbers of these jobs, instead of any filter; nothing is searched.
                rate: at most so many a second.
                delay: seconds that they wait at least, from now on.
                dry_run: nothing changes; the result says what would.
                progress: is called with the number of those revived so far.
        """
        return await self._runner.follow(dead.redrive(self._calls, options))

    async def discard(self, **options: Unpack[DiscardOptions]) -> records.Discarded:
        """Throws dead jobs away, for good.

        Args:
            options: which ones, as in `redrive`, and
                all: True for all of them; it must be said, since nothing brings them back.

        Raises:
            ValueError: if it is not told which.
        """
        return await self._runner.follow(dead.discard(self._calls, options))

    # -- listening --------------------------------------------------------------------------------

    def listen(self) -> AsyncChanges[records.Moment]:
        """Tells when jobs arrive, and when their process dates are reached.

        It does so from the first `async for`, `async with` or `wait` on.
        Iterate over it, or `wait` with a timeout; `close` it, or use it in an `async with` block.
        It has a connection of its own.
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
