"""A jobs table as users see it: the blocking shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fjord import commands
from fjord.client.blocking import runner as runner_module
from fjord.client.blocking.jobs import Job, Jobs
from fjord.client.declared_tables import JobSettings
from fjord.client.jobs.records import Moment
from fjord.client.listening import Listening
from fjord.commands import CountJobs, Fail, Finish, Next, Push, Refusal, Reply, Welcome
from fjord.errors import (
    Code,
    DiskFullError,
    RefusedError,
    RemoteProtocolError,
    StaleError,
    UnavailableError,
)
from fjord.jobs import How
from fjord.testing import SimClock
from tests.unit.client.job_samples import (
    ACTED,
    CREATED,
    NOW,
    SAMPLES,
    Backend,
    Dead,
    acted,
    dead_page,
    make_calls,
    numbers_of,
    shown,
    taken_of,
)
from tests.unit.client.runners import runner
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.shell_calls import Recorder, Sample
from tests.unit.client.test_listening import Prepared

LEFT = b"the worker left its loop"


def over(backend: Recorder | Backend, settings: JobSettings | None = None) -> Jobs:
    return Jobs(runner(backend.answer), make_calls(), settings)


def read_all(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else shown(result)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_call_sends_its_command_and_reads_the_answer(sample: Sample) -> None:
    recorder = Recorder(sample.replies)
    result = read_all(sample.call(over(recorder)))
    assert recorder.sent == sample.sent
    assert result == sample.result
    assert type(result) is type(sample.result)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_reply_of_another_kind_is_the_peers_mistake(sample: Sample) -> None:
    wrong = Welcome(client=b"c" * 16, master=b"m" * 16, version="1")
    with pytest.raises(RemoteProtocolError, match="of the kind Welcome"):
        read_all(sample.call(over(Recorder([wrong]))))


def test_a_table_says_its_name_and_where_it_is() -> None:
    jobs = over(Recorder([]))
    assert repr(jobs) == "<Jobs 't'>"
    named = Jobs(runner(Recorder([]).answer, "fjord://host:1"), make_calls())
    assert repr(named) == "<Jobs 't' at fjord://host:1>"


# -- declaring ------------------------------------------------------------------------------------


def test_settings_are_declared_before_jobs_are_pushed_or_taken() -> None:
    stops = iter([False, True])
    uses: list[tuple[Callable[[Jobs], object], Reply]] = [
        (lambda jobs: jobs.push("k"), TOKEN),
        (lambda jobs: jobs.push_many(keys=["k"]), TOKEN),
        (lambda jobs: jobs.next(), taken_of()),
        (lambda jobs: list(jobs.work(stop=lambda: next(stops))), taken_of()),
    ]
    for use, reply in uses:
        recorder = Recorder([TOKEN, reply])
        jobs = over(recorder, {"lease": 60})
        assert recorder.sent == []
        use(jobs)
        assert recorder.sent[0] == CREATED
        assert len(recorder.sent) == 2


def test_a_declared_table_is_not_declared_again() -> None:
    recorder = Recorder([numbers_of(), TOKEN, TOKEN, TOKEN])
    jobs = over(recorder, {"lease": 60})
    jobs.count()
    jobs.push("k")
    jobs.push("l")
    assert [type(one) for one in recorder.sent] == [CountJobs, type(CREATED), Push, Push]


def test_a_declaration_that_is_refused_is_made_again_by_the_next_call() -> None:
    refusal = Refusal(code=Code.DISK_FULL, text="full")
    recorder = Recorder([refusal, TOKEN, TOKEN])
    jobs = over(recorder, {"lease": 60})
    with pytest.raises(DiskFullError):
        jobs.push("k")
    jobs.push("k")
    assert [type(one) for one in recorder.sent] == [type(CREATED), type(CREATED), Push]


def test_without_settings_nothing_is_declared() -> None:
    for settings in (None, JobSettings()):
        recorder = Recorder([TOKEN])
        over(recorder, settings).push("k")
        assert [type(one) for one in recorder.sent] == [Push]


# -- one job --------------------------------------------------------------------------------------


def test_a_job_is_done_touched_and_failed() -> None:
    recorder = Recorder([taken_of(b"k"), ACTED, ACTED, ACTED])
    (job,) = over(recorder).next()
    job.touch(lease=60)
    assert not job.is_settled
    job.done()
    assert job.outcome is How.DONE
    job.fail(delay=30, reason="why", bury=True)
    assert recorder.sent[1:] == [
        commands.Extend(table="t", xids=[70], lease_us=60_000_000),
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[70], delay_us=30_000_000, reason=b"why", buries=True),
    ]


def test_a_job_whose_lease_is_over_says_so() -> None:
    (job,) = over(Recorder([taken_of(b"k"), acted(0)])).next()
    with pytest.raises(StaleError, match="job 'k'"):
        job.done()
    assert job.outcome is How.TIMEOUT


def test_refusals_are_raised() -> None:
    refusal = Refusal(code=Code.EMPTY_KEY, text="a job has a key")
    with pytest.raises(RefusedError) as caught:
        over(Recorder([refusal])).push("")
    assert caught.value.code is Code.EMPTY_KEY


# -- loops ----------------------------------------------------------------------------------------


def test_a_job_is_done_when_the_loop_goes_on() -> None:
    backend = Backend(taken_of(b"a", b"b"), taken_of(), taken_of(b"c", first_xid=80))
    loop = over(backend).work(batch=2, lease=60, stop=backend.stop)
    seen = [(job.key, len(backend.sent)) for job in loop]
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert backend.sent == [Finish(table="t", xids=[xid]) for xid in (70, 71, 80)]
    waiting = Next(table="t", count=2, lease_us=60_000_000, wait_us=30_000_000)
    assert backend.asked == [waiting] * 4


def test_a_job_that_was_settled_in_the_loop_is_left_alone() -> None:
    backend = Backend(taken_of(b"a", b"b"))
    for job in over(backend).work(batch=2, stop=backend.stop):
        if job.key == "a":
            job.fail(count=False)
        else:
            job.done()
    assert backend.sent == [
        Fail(table="t", xids=[70], counts=False),
        Finish(table="t", xids=[71]),
    ]


def test_an_error_in_the_loop_fails_the_job_and_gives_the_others_back() -> None:
    backend = Backend(taken_of(b"a", b"b", b"c"))
    with pytest.raises(KeyError):
        for job in over(backend).work(batch=3):
            if job.key == "b":
                raise KeyError
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], reason=LEFT),
        Fail(table="t", xids=[72], counts=False),
    ]


def test_leaving_the_loop_fails_a_job_that_was_not_settled() -> None:
    backend = Backend(taken_of(b"a"), taken_of(b"b", first_xid=71))
    for _ in over(backend).work():
        break
    for job in over(backend).work():
        job.done()
        break
    assert backend.sent == [
        Fail(table="t", xids=[70], reason=LEFT),
        Finish(table="t", xids=[71]),
    ]


def test_a_worker_that_took_too_long_is_told_and_gives_the_others_back() -> None:
    backend = Backend(taken_of(b"a", b"b"), stale=[70])
    with pytest.raises(StaleError, match="job 'a'"):
        list(over(backend).work(batch=2))
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], counts=False),
    ]


def test_a_daemon_that_is_gone_ends_the_loop_at_once() -> None:
    class Gone(Backend):
        def answer(self, command: commands.Command) -> commands.Reply:
            if isinstance(command, Finish):
                self.sent.append(command)
                raise UnavailableError("nobody there")
            return super().answer(command)

    backend = Gone(taken_of(b"a", b"b"))
    with pytest.raises(UnavailableError):
        list(over(backend).work(batch=2))
    assert backend.sent == [Finish(table="t", xids=[70])]


def test_a_stop_ends_the_loop_after_the_job() -> None:
    backend = Backend(taken_of(b"a", b"b"))
    for _ in over(backend).work(batch=2, stop=backend.stop):
        backend.stop.set()
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], counts=False),
    ]
    assert list(over(backend).work(stop=backend.stop)) == []


def test_options_are_refused_before_the_loop_begins() -> None:
    with pytest.raises(ValueError, match="does not poll"):
        over(Recorder([])).work(wait=0)


# -- handlers -------------------------------------------------------------------------------------


def test_a_handler_works_on_one_job_after_the_other() -> None:
    backend = Backend(taken_of(b"a", b"b", b"c"))
    seen: list[str] = []

    def handler(job: Job) -> None:
        seen.append(job.key)
        if job.key == "b":
            raise ValueError("no")

    assert over(backend).run(handler, batch=3, stop=backend.stop) == 2
    assert seen == ["a", "b", "c"]
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], delay_us=1_000_000, reason=b"ValueError('no')"),
        Finish(table="t", xids=[72]),
    ]


def test_a_handler_may_settle_its_job_itself() -> None:
    backend = Backend(taken_of(b"a", b"b"))

    def handler(job: Job) -> None:
        if job.key == "a":
            job.done()
            raise ValueError("after it was done")
        job.fail(bury=True)

    assert over(backend).run(handler, batch=2, stop=backend.stop) == 1
    assert backend.sent == [
        Finish(table="t", xids=[70]),
        Fail(table="t", xids=[71], buries=True),
    ]


def test_a_lost_lease_does_not_end_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend(taken_of(b"a", b"b"), stale=[70])
    assert over(backend).run(lambda job: None, batch=2, stop=backend.stop) == 1
    assert "the lease of job 'a' expired" in caplog.text


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_gives_jobs_back_uncounted(ending: type[BaseException]) -> None:
    def handler(job: Job) -> None:
        raise ending

    backend = Backend(taken_of(b"a", b"b"))
    with pytest.raises(ending):
        over(backend).run(handler, batch=2)
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

    def handler(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        over(Gone(taken_of(b"a"))).run(handler)
    assert caught.value.__notes__ == ["job 'a' could not be given back: nobody there"]


def test_a_worker_may_wait_longer_or_shorter_after_a_failure() -> None:
    def handler(job: Job) -> None:
        raise ValueError("no")

    backend = Backend(taken_of(b"a"))
    assert over(backend).run(handler, retry_delay=0, stop=backend.stop) == 0
    assert backend.sent == [Fail(table="t", xids=[70], reason=b"ValueError('no')")]


# -- the rest -------------------------------------------------------------------------------------


def test_pages_are_asked_for_only_when_they_are_needed() -> None:
    sample = next(one for one in SAMPLES if one.name == "dead over pages")
    recorder = Recorder(sample.replies)
    rows = over(recorder).dead()
    assert recorder.sent == []
    assert next(rows).key == "k"
    assert len(recorder.sent) == 1


def test_a_rate_is_kept_by_pausing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock(NOW_US)
    recorder = Recorder([dead_page(Dead(b"k"), Dead(b"l"), Dead(b"m")), ACTED, ACTED, ACTED])

    monkeypatch.setattr(runner_module, "pause", clock.pause)
    found = over(recorder).redrive(rate=0.5)
    assert found.revived == 3
    assert clock.monotonic_us() == 4_000_000


def test_listening_names_the_table_and_tells_of_moments() -> None:
    asked: list[commands.Listen | commands.ListenJobs] = []

    def listen(command: commands.Listen | commands.ListenJobs) -> Listening:
        asked.append(command)
        return Prepared(b"arrived", b"due")

    listening = runner(Recorder([]).answer, listen=listen)
    with Jobs(listening, make_calls()).listen() as moments:
        assert list(moments) == [Moment("arrived", NOW), Moment("due", NOW)]
        assert moments.wait(0) is None
    assert asked == [commands.ListenJobs(table="t")]
