"""A jobs table for asyncio: it does what the blocking one does."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fjord import commands
from fjord.client.blocking.jobs import Job, Jobs
from fjord.client.declared_tables import JobSettings
from fjord.client.jobs.table import AsyncJob, AsyncJobs
from fjord.commands import CreateTable, Extend, Fail, Finish, Push
from fjord.errors import StaleError, UnavailableError
from fjord.jobs import How
from tests.unit.client.job_samples import (
    ACTED,
    CREATED,
    SAMPLES,
    Backend,
    Dead,
    acted,
    dead_page,
    make_calls,
    shown,
    taken_of,
)
from tests.unit.client.runners import async_runner
from tests.unit.client.scripted import TOKEN
from tests.unit.client.shell_calls import Recorder, Sample
from tests.unit.client.test_async_connection import run

LEFT = b"the worker left its loop"


def over(backend: Recorder | Backend, settings: JobSettings | None = None) -> AsyncJobs:
    return AsyncJobs(async_runner(backend.answer), make_calls(), settings)


async def finished(result: Any) -> Any:
    if isinstance(result, AsyncIterator):
        return [row async for row in result]
    return shown(await result)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = asyncio.run(finished(sample.call(over(recorder))))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize(("blocking", "awaited"), [(Jobs, AsyncJobs), (Job, AsyncJob)])
def test_both_shells_have_the_same_methods_with_the_same_parameters(
    blocking: type, awaited: type
) -> None:
    def described(kind: type, name: str) -> list[tuple[Any, ...]]:
        found = inspect.signature(getattr(kind, name)).parameters.values()
        notes = [str(one.annotation).replace("AsyncJob", "Job") for one in found]
        return [
            (one.name, one.kind, one.default, note) for one, note in zip(found, notes, strict=True)
        ]

    names = [name for name in vars(blocking) if not name.startswith("_")]
    assert [name for name in vars(awaited) if not name.startswith("_")] == names
    assert names
    for name in names:
        assert described(awaited, name) == described(blocking, name)


def test_a_table_says_its_name_and_where_it_is() -> None:
    named = AsyncJobs(async_runner(Recorder([]).answer, "fjord://host:1"), make_calls())
    assert repr(named) == "<AsyncJobs 't' at fjord://host:1>"


def test_settings_are_declared_once() -> None:
    async def main() -> None:
        jobs = over(recorder, {"lease": 60})
        await jobs.push("k")
        await jobs.push_many(keys=["k"])
        await jobs.next()

    recorder = Recorder([TOKEN, TOKEN, TOKEN, taken_of()])
    run(main())
    assert recorder.sent[0] == CREATED
    assert [type(one) for one in recorder.sent].count(CreateTable) == 1
    assert isinstance(recorder.sent[1], Push)


def test_a_job_is_done_touched_and_failed() -> None:
    async def main() -> None:
        (job,) = await over(recorder).next()
        await job.touch(lease=60)
        assert not job.is_settled
        await job.done()
        assert job.outcome is How.DONE
        await job.fail(delay=30, reason="why")
        with pytest.raises(StaleError, match="job 'k'"):
            await job.done()

    recorder = Recorder([taken_of(b"k"), ACTED, ACTED, ACTED, acted(0)])
    run(main())
    assert recorder.sent[1:] == [
        Extend(table="t", xids=[70], lease_us=60_000_000),
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[70], delay_us=30_000_000, reason=b"why"),
        Finish(table="t", xids=[70]),
    ]


# -- loops ----------------------------------------------------------------------------------------


def test_a_job_is_done_when_the_loop_goes_on() -> None:
    async def main() -> None:
        loop = over(backend).work(batch=2, stop=backend.stop)
        seen = [(job.key, len(backend.sent)) async for job in loop]
        assert seen == [("a", 0), ("b", 1), ("c", 2)]

    backend = Backend(taken_of(b"a", b"b"), taken_of(), taken_of(b"c", first_xid=80))
    run(main())
    assert backend.sent == [Finish(table="t", xids=[xid]) for xid in (70, 71, 80)]
    assert len(backend.asked) == 4


def test_a_loop_that_is_closed_fails_its_job_and_gives_the_others_back() -> None:
    async def main() -> None:
        with pytest.raises(KeyError):
            async with contextlib.aclosing(over(backend).work(batch=3)) as jobs:
                async for job in jobs:
                    if job.key == "b":
                        raise KeyError

    backend = Backend(taken_of(b"a", b"b", b"c"))
    run(main())
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], reason=LEFT),
        Fail(table="t", xids=[72], counts=False),
    ]


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


def test_a_worker_that_took_too_long_is_told_and_gives_the_others_back() -> None:
    async def main() -> None:
        with pytest.raises(StaleError, match="job 'a'"):
            async for _ in over(backend).work(batch=2):
                pass

    backend = Backend(taken_of(b"a", b"b"), stale=[70])
    run(main())
    assert backend.sent == [Finish(table="t", xids=[70]), Fail(table="t", xids=[71], counts=False)]


def test_a_daemon_that_is_gone_ends_the_loop_at_once() -> None:
    class Gone(Backend):
        def answer(self, command: commands.Command) -> commands.Reply:
            if isinstance(command, Finish):
                self.sent.append(command)
                raise UnavailableError("nobody there")
            return super().answer(command)

    async def main() -> None:
        with pytest.raises(UnavailableError):
            async for _ in over(backend).work(batch=2):
                pass

    backend = Gone(taken_of(b"a", b"b"))
    run(main())
    assert backend.sent == [Finish(table="t", xids=[70])]


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


def test_what_ends_the_program_is_told_of_jobs_that_could_not_be_given_back() -> None:
    class Gone(Backend):
        def answer(self, command: commands.Command) -> commands.Reply:
            if isinstance(command, Fail):
                raise UnavailableError("nobody there")
            return super().answer(command)

    async def handler(job: AsyncJob) -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError) as caught:
            await over(Gone(taken_of(b"a"))).run(handler)
        assert caught.value.__notes__ == ["job 'a' could not be given back: nobody there"]

    run(main())


# -- the rest -------------------------------------------------------------------------------------


def test_a_rate_is_kept_by_pausing() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        found = await over(recorder).redrive(rate=50)
        assert found.revived == 60
        assert loop.time() - begun >= 1

    recorder = Recorder([dead_page(*[Dead(b"k")] * 60), ACTED, ACTED])
    run(main())
    assert len(recorder.sent) == 3


def test_listening_names_the_table() -> None:
    moments = over(Recorder([])).listen()
    assert moments._command == commands.ListenJobs(table="t")
