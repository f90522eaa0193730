"""A jobs table for asyncio: the same calls as `fjord.Jobs`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Unpack

from fjord import commands
from fjord.client import job_dead, job_generations, job_work
from fjord.client.address import shown_at
from fjord.client.async_listening import AsyncChanges
from fjord.client.async_waker import AsyncWaker
from fjord.client.calls import AsyncRun, Call, Result, follow_async
from fjord.client.entries import AnyKey, Key, Seconds
from fjord.client.job_calls import FailOptions, Given, JobCalls
from fjord.client.job_dead import DeadFilters, DeadWalk, DiscardOptions, Plan, RedriveOptions
from fjord.client.job_entries import (
    Counts,
    DeadJob,
    Discarded,
    JobBatch,
    JobInfo,
    Moment,
    Redriven,
    TakenJob,
    read_moment,
)
from fjord.client.job_generations import Generation
from fjord.client.job_pages import Found, JobWalk
from fjord.client.job_push import PushColumns, PushOptions
from fjord.client.job_settings import JobSettings
from fjord.client.job_work import Shift, Tally, WorkOptions
from fjord.client.schemas import Row
from fjord.commands import Changed
from fjord.errors import FjordError, UnavailableError
from fjord.values import PLAIN_TYPES, Value

AsyncListenJobs = Callable[[commands.ListenJobs, Callable[[Changed], Moment]], AsyncChanges[Moment]]


class AsyncJob(TakenJob):
    """A job that this worker has until its lease is over; as `fjord.Job`, awaited."""

    __slots__ = ("_calls", "_run")

    def __init__(
        self, run: AsyncRun, calls: JobCalls, batch: JobBatch[AsyncJob], place: int
    ) -> None:
        self._batch, self._place = batch, place
        self._run = run
        self._calls = calls

    async def done(self) -> None:
        await self._run(self._calls.done_one(self))

    async def touch(self, lease: Seconds | None = None) -> None:
        await self._run(self._calls.touch_one(self, lease))

    async def fail(self, **options: Unpack[FailOptions]) -> None:
        await self._run(self._calls.fail_one(self, **options))


class AsyncJobs:
    """A table of jobs; each method is that of `fjord.Jobs`, awaited."""

    def __init__(
        self,
        run: AsyncRun,
        calls: JobCalls,
        listen: AsyncListenJobs,
        *,
        name: str = "",
        settings: JobSettings | None = None,
    ) -> None:
        self._run = run
        self._calls = calls
        self._listen = listen
        self._name = name  # of the database
        # What is still to be said before jobs are pushed or taken.
        self._declaration = calls.declare(settings) if settings else None
        self._make = functools.partial(AsyncJob, run, calls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.table!r}{shown_at(self._name)}>"

    # -- pushing ----------------------------------------------------------------------------------

    async def push(
        self, key: Key | Row, value: Value | Row = None, **options: Unpack[PushOptions]
    ) -> None:
        if type(key) in PLAIN_TYPES and type(value) in PLAIN_TYPES:
            await self._ask(self._calls.push(key, value, **options))
        else:
            await self._write(lambda: self._calls.push(key, value, **options))

    async def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
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
        return await self._take(
            self._calls.next(self._make, count, domain=domain, lease=lease, wait=wait, done=done)
        )

    async def done_many(self, jobs: Iterable[Given]) -> list[Given]:
        return await self._run(self._calls.done_many(jobs))

    async def touch_many(self, jobs: Iterable[Given], lease: Seconds | None = None) -> list[Given]:
        return await self._run(self._calls.touch_many(jobs, lease))

    async def fail_many(self, jobs: Iterable[Given], **options: Unpack[FailOptions]) -> list[Given]:
        return await self._run(self._calls.fail_many(jobs, **options))

    # -- working ----------------------------------------------------------------------------------

    def work(self, **options: Unpack[WorkOptions]) -> AsyncGenerator[AsyncJob, None]:
        """Yields jobs as they become due, for `async for`; ends as `fjord.Jobs.work` does.

        Leaving the loop fails the job that was worked on, unless `done` or `fail` was said before.
        Python closes a loop that was left only after a while; inside of `async with
        contextlib.aclosing(...)` what was not finished is given back at once.
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
        tally = Tally(self._calls, retry_delay)
        async with contextlib.aclosing(self.work(**options)) as jobs:
            async for job in jobs:
                try:
                    working = handler(job)
                    if inspect.isawaitable(working):
                        await working
                except Exception as error:  # noqa: BLE001 - whatever it is, the job has failed
                    call = tally.failed(job, error)
                except BaseException as interruption:
                    await self._give_back(tally.interrupted(job), job, interruption)
                    raise
                else:
                    call = tally.finished(job)
                if call is not None:
                    await self._run(call)
                tally.count(job)
        return tally.done

    async def _give_back(
        self, call: Call[list[AsyncJob]] | None, job: AsyncJob, interruption: BaseException
    ) -> None:
        try:
            if call is not None:
                await self._run(call)
        except FjordError as error:
            job_work.lose(job, interruption, error)

    # -- waiting jobs, by key ---------------------------------------------------------------------

    async def get(self, key: Key) -> JobInfo | None:
        return await self._look(self._calls.get(key))

    async def cancel(self, key: Key) -> bool:
        return await self._run(self._calls.cancel(key))

    async def cancel_many(self, keys: Iterable[AnyKey]) -> list[AnyKey]:
        return await self._run(self._calls.cancel_many(keys))

    async def reschedule(
        self,
        key: Key,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        process_at: datetime | None = None,
    ) -> bool:
        call = self._calls.reschedule(key, priority=priority, delay=delay, process_at=process_at)
        return await self._run(call)

    async def kick(self, key: Key) -> bool:
        return await self._run(self._calls.kick(key))

    async def bury(self, key: Key, reason: str = "") -> bool:
        return await self._run(self._calls.bury(key, reason))

    # -- looking ----------------------------------------------------------------------------------

    async def count(self) -> Counts:
        return await self._run(self._calls.count())

    async def generations(self) -> list[Generation]:
        return await self._run(job_generations.generations(self._calls.table))

    async def next_at(self, domain: Key | None = None) -> datetime | None:
        return await self._run(self._calls.next_at(domain))

    async def peek(self, count: int = 10, *, domain: Key | None = None) -> list[JobInfo]:
        return [job async for job in self._walk(self._calls.peek(count, domain))]

    async def taken(self, count: int = 10) -> list[JobInfo]:
        return [job async for job in self._walk(self._calls.taken(count))]

    def dead(self, **filters: Unpack[DeadFilters]) -> AsyncIterator[DeadJob]:
        return self._walk(job_dead.dead(self._calls, filters))

    async def _walk(self, walk: JobWalk[Found] | DeadWalk[Found]) -> AsyncIterator[Found]:
        while (call := walk.next_call()) is not None:
            for row in await self._look(call):
                yield row

    # -- dead jobs --------------------------------------------------------------------------------

    async def redrive(self, **options: Unpack[RedriveOptions]) -> Redriven:
        return await self._follow(job_dead.redrive(self._calls, options))

    async def discard(self, **options: Unpack[DiscardOptions]) -> Discarded:
        return await self._follow(job_dead.discard(self._calls, options))

    async def _follow(self, plan: Plan[Result]) -> Result:
        found: Any = None
        while True:
            try:
                step = plan.send(found)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, Call):
                found = await self._run(step)
            else:
                await asyncio.sleep(step)

    # -- listening --------------------------------------------------------------------------------

    def listen(self) -> AsyncChanges[Moment]:
        """Tells of jobs from the first `async for`, `async with` or `wait` on."""
        return self._listen(self._calls.listen(), read_moment)

    # -- inside -----------------------------------------------------------------------------------

    async def _write(self, build: Callable[[], Call[None]]) -> None:
        await follow_async(self._ask, self._calls.schemas.writing(build))

    async def _take(self, call: Call[JobBatch[AsyncJob]]) -> JobBatch[AsyncJob]:
        batch = await self._ask(call)
        if batch.lacks_columns:
            await follow_async(self._run, self._calls.schemas.learning())
        return batch

    async def _look(self, call: Call[Result]) -> Result:
        return await follow_async(self._run, self._calls.schemas.reading(call))

    async def _ask(self, call: Call[Result]) -> Result:
        if self._declaration is not None:
            await follow_async(self._run, self._declaration.steps())
            self._declaration = None
        return await self._run(call)
