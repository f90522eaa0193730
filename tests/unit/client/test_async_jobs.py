"""A jobs table for asyncio: what the blocking one does not have."""

from __future__ import annotations

import asyncio

import pytest

from fjord.client.declared_tables import JobSettings
from fjord.client.jobs.table import AsyncJob, AsyncJobs
from fjord.commands import Fail, Finish
from tests.unit.client.job_samples import Backend, make_calls, taken_of
from tests.unit.client.runners import async_runner
from tests.unit.client.shell_calls import Recorder
from tests.unit.client.test_async_connection import run

LEFT = b"the worker left its loop"


def over(backend: Recorder | Backend, settings: JobSettings | None = None) -> AsyncJobs:
    return AsyncJobs(async_runner(backend.answer), make_calls(), settings)


# -- loops ----------------------------------------------------------------------------------------


def test_a_loop_that_is_only_left_is_closed_by_the_event_loop() -> None:
    async def main() -> None:
        async for _ in over(backend).work(batch=2):
            break

    backend = Backend(taken_of(b"a", b"b"))
    run(main())
    assert backend.sent == [
        Fail(table="t", xids=[70], reason=LEFT),
        Fail(table="t", xids=[71], counts=False),
    ]


# -- handlers -------------------------------------------------------------------------------------


def test_handlers_may_be_coroutines_or_plain_functions() -> None:
    async def awaited(job: AsyncJob) -> None:
        await asyncio.sleep(0)
        seen.append(job.key)
        if job.key == "b":
            raise ValueError("no")

    async def main() -> None:
        assert await over(backend).run(awaited, batch=2, stop=backend.stop) == 1
        assert await over(other).run(lambda job: seen.append(job.key), stop=other.stop) == 1

    seen: list[str] = []
    backend, other = Backend(taken_of(b"a", b"b")), Backend(taken_of(b"c"))
    run(main())
    assert seen == ["a", "b", "c"]
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], delay_us=1_000_000, reason=b"ValueError('no')"),
    ]
    assert other.sent == [Finish(table="t", xids=[70])]


def test_a_worker_that_is_cancelled_gives_jobs_back_uncounted() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handler(job: AsyncJob) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(over(backend).run(handler, batch=2))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    backend = Backend(taken_of(b"a", b"b"))
    run(main())
    assert backend.sent == [
        Fail(table="t", xids=[70], counts=False),
        Fail(table="t", xids=[71], counts=False),
    ]
