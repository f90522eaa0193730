"""Worker loops: the calls that take jobs, report them and give them back.

Pure except for the log; the shells run the calls.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar

from fjord import limits
from fjord.client.calls import Call, check_names, check_whole, not_a
from fjord.client.entries import Key, Seconds, delay_us, wait_us
from fjord.client.jobs.calls import JobCalls
from fjord.client.jobs.records import AnyJob, JobBatch, TakenJob
from fjord.errors import FjordError
from fjord.jobs import How
from fjord.wire import wakeups

_log = logging.getLogger(__name__)

# A wait without a job costs one request; `stop` is checked after it.
_WAIT_SECONDS: Final = 30
_DELAY_SECONDS_MAX: Final = 300
# Instead of polling more often, wait on the server: it is faster and costs less.
_POLL_US_MIN: Final = 10_000
_REASON_CHARACTERS: Final = 500


AnyWaker = TypeVar("AnyWaker", bound=AbstractContextManager[Any])


class Event(Protocol):
    """An event such as `threading.Event` or `asyncio.Event`."""

    def is_set(self) -> bool: ...


class WorkOptions(TypedDict, total=False):
    """How a worker takes jobs."""

    lease: Seconds | None  # for all jobs of a batch together
    domain: Key | None
    batch: int  # jobs at a time; default 1
    wait: Seconds  # length of one wait on the server; default 30 seconds
    wake: str | int | None  # address of wake-ups, instead of waiting on the server
    poll: Seconds  # with `wake`: how often to ask without one; default 30 seconds
    stop: Event | Callable[[], bool] | None  # ends the loop, after a job or a wait


class Shift(Generic[AnyJob]):
    """One worker loop, and its place in the batch."""

    def __init__(
        self, calls: JobCalls, make: Callable[[JobBatch[AnyJob], int], AnyJob], options: WorkOptions
    ) -> None:
        check_names("work", options, WorkOptions.__optional_keys__)
        self._calls = calls
        self._wake = options.get("wake")
        self.poll = _poll_seconds(options)
        wait = None if self._wake is not None else options.get("wait", _WAIT_SECONDS)
        if self._wake is None and not wait_us(wait):
            raise ValueError("wait must be more than 0 seconds: a worker does not poll")
        lease, domain = options.get("lease"), options.get("domain")
        batch = options.get("batch", 1)
        if check_whole("batch", batch) < 1:
            raise ValueError(f"batch is 1 or more, not {batch}")
        self.next_call: Call[JobBatch[AnyJob]] = calls.next(
            make, batch, domain=domain, lease=lease, wait=wait
        )
        self._stop = options.get("stop")
        if not (self._stop is None or callable(self._stop) or hasattr(self._stop, "is_set")):
            raise not_a("stop", "an event, or a function that says whether to end", self._stop)
        self._job: AnyJob | None = None  # the current one
        self._left: Sequence[int] = ()  # xids of jobs not begun

    def listen(self, hear: Callable[..., AnyWaker]) -> AbstractContextManager[AnyWaker | None]:
        """Begins to listen for wake-ups with `Waker` or `AsyncWaker`, if the worker uses them."""
        if self._wake is None:
            return contextlib.nullcontext()
        return hear(self._wake, tables=[self._calls.table])

    def is_over(self) -> bool:
        """Says whether the worker should stop."""
        if self._stop is None:
            return False
        return self._stop() if callable(self._stop) else self._stop.is_set()

    def hand_out(self, batch: JobBatch[AnyJob]) -> Iterator[AnyJob]:
        """Yields the jobs of a batch, until the worker should stop."""
        self._left = batch.xids
        for job in batch:
            self._job, self._left = job, self._left[1:]
            yield job
            if self.is_over():
                return

    def leave(self) -> list[Call[Any]]:
        """Returns the calls that report the unfinished jobs of a batch."""
        calls: list[Call[Any]] = []
        if self._job is not None and not self._job.is_settled:
            calls.append(self._calls.fail_many([self._job], reason="the worker left its loop"))
        if self._left:
            calls.append(self._calls.fail_many(self._left, count=False))
        self._job, self._left = None, ()
        return calls


def _poll_seconds(options: WorkOptions) -> float:
    """Returns how often a worker with wake-ups polls.

    Raises:
        ValueError: if the option is invalid, or contradicts another one.
    """
    wake = options.get("wake")
    if wake is None:
        if "poll" in options:
            raise ValueError("poll needs wake; without it, a worker waits on the server")
        return 0.0
    if "wait" in options:
        raise ValueError("a worker with wake does not wait on the server; give poll, not wait")
    wakeups.parse_address(wake)
    found_us = delay_us(options.get("poll", _WAIT_SECONDS), "poll")
    if not _POLL_US_MIN <= found_us <= limits.WAIT_US_MAX:
        low, high = _POLL_US_MIN / 1_000_000, limits.WAIT_US_MAX // 1_000_000
        raise ValueError(f"poll is from {low} to {high} seconds, not {options['poll']}")
    return found_us / 1_000_000


class Tally:
    """The results of a handler."""

    def __init__(self, calls: JobCalls, retry_delay: Seconds | None) -> None:
        delay_us(retry_delay, "retry_delay")  # an invalid delay is refused at once
        self._calls = calls
        self._retry_delay = retry_delay
        self.done = 0

    def finished(self, job: AnyJob) -> Call[list[AnyJob]] | None:
        """Returns the call after a handler has returned, None if the job is already settled."""
        return None if job.is_settled else self._calls.done_many([job])

    def failed(self, job: AnyJob, error: Exception) -> Call[list[AnyJob]] | None:
        """Returns the call after a handler has raised, None if the job is already settled."""
        _log.warning("job %r failed: %r", job.key, error, exc_info=error)
        if job.is_settled:
            return None
        delay = self._retry_delay
        if delay is None:
            delay = min(2**job.timeouts, _DELAY_SECONDS_MAX)
        return self._calls.fail_many([job], delay=delay, reason=repr(error)[:_REASON_CHARACTERS])

    def count(self, job: TakenJob) -> None:
        if job.outcome is How.DONE:
            self.done += 1
        elif job.outcome is How.TIMEOUT:
            _log.warning("the lease of job %r expired before its handler returned", job.key)


def lose(job: TakenJob, interruption: BaseException, error: FjordError) -> None:
    """Notes that a job could not be given back: it comes back when its lease expires."""
    job.outcome = How.TIMEOUT
    interruption.add_note(f"job {job.key!r} could not be given back: {error}")
