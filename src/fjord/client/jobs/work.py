"""Worker loops: what they ask for, what they leave behind, and what they say of each job.

Pure but for the log; the shells run what is built here.
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

# A wait that finds nothing costs one request, and a stop is seen when it is over.
_WAIT_SECONDS: Final = 30
_DELAY_SECONDS_MAX: Final = 300
# Who wants to ask more often waits on the server, which is faster and costs less.
_POLL_US_MIN: Final = 10_000
_REASON_CHARACTERS: Final = 500


AnyWaker = TypeVar("AnyWaker", bound=AbstractContextManager[Any])


class Event(Protocol):
    """Something that is set once, as `threading.Event` and `asyncio.Event` are."""

    def is_set(self) -> bool: ...


class WorkOptions(TypedDict, total=False):
    """How a worker takes jobs."""

    lease: Seconds | None  # for all jobs of a batch together
    domain: Key | None
    batch: int  # so many at a time; 1 unless given
    wait: Seconds  # how long one wait on the server takes; 30 seconds unless given
    wake: str | int | None  # where to hear wake-ups, instead of waiting on the server
    poll: Seconds  # with `wake`: how often to ask without one; 30 seconds unless given
    stop: Event | Callable[[], bool] | None  # ends the loop, after a job or a wait


class Shift(Generic[AnyJob]):
    """One worker loop: where it is in its batch."""

    def __init__(
        self, calls: JobCalls, make: Callable[[JobBatch[AnyJob], int], AnyJob], options: WorkOptions
    ) -> None:
        check_names("work", options, WorkOptions.__optional_keys__)
        self._calls = calls
        self._wake = options.get("wake")
        self.poll = _poll_seconds(options)
        wait = None if self._wake is not None else options.get("wait", _WAIT_SECONDS)
        if self._wake is None and not wait_us(wait):
            raise ValueError("a worker waits more than 0 seconds: it does not poll")
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
        self._job: AnyJob | None = None  # the one that is worked on
        self._left: Sequence[int] = ()  # xids of those that nobody has begun

    def listen(self, hear: Callable[..., AnyWaker]) -> AbstractContextManager[AnyWaker | None]:
        """Begins to hear wake-ups of the table, with `Waker` or `AsyncWaker`; None: it waits."""
        if self._wake is None:
            return contextlib.nullcontext()
        return hear(self._wake, tables=[self._calls.table])

    def is_over(self) -> bool:
        """Says whether the worker shall take no more."""
        if self._stop is None:
            return False
        return self._stop() if callable(self._stop) else self._stop.is_set()

    def hand_out(self, batch: JobBatch[AnyJob]) -> Iterator[AnyJob]:
        """Yields the jobs of a batch, until the worker shall take no more."""
        self._left = batch.xids
        for job in batch:
            self._job, self._left = job, self._left[1:]
            yield job
            if self.is_over():
                return

    def leave(self) -> list[Call[Any]]:
        """Returns what is to be said of a batch that is not worked to its end."""
        calls: list[Call[Any]] = []
        if self._job is not None and not self._job.is_settled:
            calls.append(self._calls.fail_many([self._job], reason="the worker left its loop"))
        if self._left:
            calls.append(self._calls.fail_many(self._left, count=False))
        self._job, self._left = None, ()
        return calls


def _poll_seconds(options: WorkOptions) -> float:
    """Returns how often a worker that is woken asks by itself.

    Raises:
        ValueError: if that cannot be meant, or contradicts another option.
    """
    wake = options.get("wake")
    if wake is None:
        if "poll" in options:
            raise ValueError("poll goes with wake; without, a worker waits on the server")
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
    """What becomes of the jobs that a handler is given."""

    def __init__(self, calls: JobCalls, retry_delay: Seconds | None) -> None:
        delay_us(retry_delay, "retry_delay")  # what cannot be meant is refused at once
        self._calls = calls
        self._retry_delay = retry_delay
        self.done = 0

    def finished(self, job: AnyJob) -> Call[list[AnyJob]] | None:
        """Returns what is to be said of a job whose handler returned, None if it was said."""
        return None if job.is_settled else self._calls.done_many([job])

    def failed(self, job: AnyJob, error: Exception) -> Call[list[AnyJob]] | None:
        """Returns what is to be said of a job whose handler raised, None if it was said."""
        _log.warning("job %r failed: %r", job.key, error, exc_info=error)
        if job.is_settled:
            return None
        delay = self._retry_delay
        if delay is None:
            delay = min(2**job.timeouts, _DELAY_SECONDS_MAX)
        return self._calls.fail_many([job], delay=delay, reason=repr(error)[:_REASON_CHARACTERS])

    def count(self, job: TakenJob) -> None:
        """Takes notice of what became of a job."""
        if job.outcome is How.DONE:
            self.done += 1
        elif job.outcome is How.TIMEOUT:
            _log.warning("the lease of job %r was over before its handler was", job.key)


def lose(job: TakenJob, interruption: BaseException, error: FjordError) -> None:
    """A job could not be given back: it comes back by itself when its lease is over."""
    job.outcome = How.TIMEOUT
    interruption.add_note(f"job {job.key!r} could not be given back: {error}")
