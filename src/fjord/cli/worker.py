"""A ready worker: threads that take jobs, run a command for each, and say how it ended.

Each thread has a connection of its own and at most one job.  While the command runs, the thread
touches the lease at a third of its length; a lease that is lost all the same ends the command,
since somebody else may have the job.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fjord.cli import output
from fjord.cli.failing import tell
from fjord.cli.job_process import JobProcess, reason_of
from fjord.client.database import Database
from fjord.clock import SystemClock
from fjord.errors import StaleError, UnavailableError

if TYPE_CHECKING:
    from fjord.client.jobs import Job, Jobs

# A thread that waits for a job cannot be woken, and a job may be on its way to it; so it asks
# anew, to see that it should stop.
WAIT_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 300.0


class Result(enum.StrEnum):
    """How the work on a job ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # its lease was over, and somebody else may have it
    UNKNOWN = "unknown"  # the daemon could not be told; the job comes back after its lease
    GIVEN_BACK = "given back"  # we were told to stop at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker should do."""

    table: str
    command: str
    lease: float
    domain: str | None = None
    workers: int = 1
    timeout: float | None = None  # how long a command may run
    backoff: float = 1.0  # how long a job waits after its first failure; twice as long each time
    once: bool = False  # each thread works on one job at most
    drain: bool = False  # a thread ends when nothing is due
    as_json: bool = False


class Crew:
    """All threads of a worker, and the signals that end them."""

    def __init__(
        self, orders: Orders, database: Callable[[], AbstractContextManager[Database]]
    ) -> None:
        self._orders = orders
        self._database = database  # what each thread works with
        self._stop = threading.Event()  # no new jobs
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self.counts = dict.fromkeys(Result, 0)
        self.was_cut = False  # jobs were given back at the end

    def run(self) -> None:
        """Works until it is told to stop, or there is nothing more to do.

        Raises:
            FjordError: if jobs cannot be taken; running ones are finished first.
        """
        with _signals() as told, _pair() as (woken, waking):
            self._wake = woken
            with concurrent.futures.ThreadPoolExecutor(self._orders.workers) as pool:
                threads = [pool.submit(self._work) for _ in range(self._orders.workers)]
                for thread in threads:
                    thread.add_done_callback(lambda _: told.send(b"\0"))
                try:
                    self._watch(threads, told, waking)
                finally:
                    self._stop.set()
            for thread in threads:
                thread.result()

    def _watch(
        self, threads: list[concurrent.futures.Future[None]], told: _Told, waking: socket.socket
    ) -> None:
        """Waits for the end of all threads, and for signals meanwhile."""
        signals = 0
        while not all(thread.done() for thread in threads):
            signals += sum(number != 0 for number in told.receive())  # 0: a thread has ended
            if signals and not self._stop.is_set():
                self._stop.set()
                tell("no new jobs; a second signal gives back those under way", style="dim")
            if signals > 1 and not self.was_cut:
                self.was_cut = True
                waking.send(b"\0")

    # -- one thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with self._database() as db:
                jobs = db.jobs(self._orders.table)
                while not self._stop.is_set():
                    if not self._take(jobs) or self._orders.once:
                        return
        except BaseException:
            self._stop.set()  # one that cannot go on ends all
            raise

    def _take(self, jobs: Jobs) -> bool:
        """Works on the next job, if there is one; says whether to go on."""
        waits = not (self._orders.once or self._orders.drain)
        try:
            found = jobs.next(
                domain=self._orders.domain,
                lease=self._orders.lease,
                wait=WAIT_SECONDS if waits else None,
            )
        except UnavailableError as error:
            tell(f"fjord: {error}; trying again")
            return True
        for job in found:
            self._settle(job)
        return waits or len(found) > 0

    def _settle(self, job: Job) -> None:
        """Works on a job, and says what came of it."""
        begun_us = self._clock.monotonic_us()
        result, reason = self._run_command(job)
        try:
            if result is Result.DONE:
                job.done()
            elif result is Result.FAILED:
                job.fail(delay=self._backoff(job), reason=reason)
            elif result is Result.GIVEN_BACK:
                job.fail(delay=0 if self.was_cut else self._backoff(job), count=False)
        except StaleError:
            result, reason = Result.LOST, "its lease was over before"
        except UnavailableError as error:
            result, reason = Result.UNKNOWN, str(error)
        self._report(job, result, reason, (self._clock.monotonic_us() - begun_us) / 1_000_000)

    def _run_command(self, job: Job) -> tuple[Result, str]:
        out = sys.stderr.fileno() if self._orders.as_json else None
        try:
            process = JobProcess(self._orders.command, job, wake=self._wake, out=out)
        except OSError as error:
            return Result.GIVEN_BACK, f"the command cannot be started: {error.strerror}"
        except ValueError as error:
            return Result.FAILED, f"the command cannot be started: {error}"
        with process:
            return self._watch_command(job, process)

    def _watch_command(self, job: Job, process: JobProcess) -> tuple[Result, str]:
        """Waits for the end of a command, and touches the lease meanwhile."""
        begun_us = self._clock.monotonic_us()

        def elapsed() -> float:
            return (self._clock.monotonic_us() - begun_us) / 1_000_000

        limit = self._orders.timeout or float("inf")
        touch_at = self._orders.lease / 3
        while True:
            code = process.wait(min(touch_at, limit), elapsed)
            if code is not None:
                break
            if self.was_cut:
                return Result.GIVEN_BACK, "the worker was stopped"
            if elapsed() >= limit:
                return Result.FAILED, f"it took more than {limit:g} seconds"
            touch_at = elapsed() + self._orders.lease / 3
            try:
                job.touch()
            except StaleError:
                return Result.LOST, "its lease was over, and the command was ended"
            except UnavailableError as error:
                tell(f"fjord: {error}; the command runs on")
        if code == 0:
            return Result.DONE, ""
        return Result.FAILED, reason_of(code, process.last_line)

    def _backoff(self, job: Job) -> float:
        return min(self._orders.backoff * 2.0**job.timeouts, BACKOFF_SECONDS_MAX)

    def _report(self, job: Job, result: Result, reason: str, seconds: float) -> None:
        key = job.key
        with self._guard:
            self.counts[result] += 1
            if self._orders.as_json:
                output.print_json(
                    {
                        "key": key,
                        "xid": job.xid,
                        "result": result,
                        "reason": reason,
                        "seconds": round(seconds, 3),
                    }
                )
            else:
                tell(f"{result} {key}: {reason}" if reason else f"{result} {key}")


class _Told:
    """What the main thread waits for: bytes that are numbers of signals, or 0."""

    def __init__(self, reader: socket.socket, writer: socket.socket) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.send(data)

    def receive(self) -> bytes:
        return self._reader.recv(64)


@contextlib.contextmanager
def _signals() -> Iterator[_Told]:
    """Lets SIGTERM and SIGINT arrive as bytes, for which a thread can wait without a race."""
    with _pair() as (reader, writer):
        writer.setblocking(False)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        wakeup = signal.set_wakeup_fd(writer.fileno())
        try:
            yield _Told(reader, writer)
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    reader, writer = socket.socketpair()
    with reader, writer:
        yield reader, writer
