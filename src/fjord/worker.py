"""A worker: threads that take jobs, run a command for each, and report how it ended.

Each thread has its own connection and at most one job.  While the command runs, the thread
touches the lease after each third of its length; if the lease is lost anyway, the command is
killed, since another worker may have the job.

An idle thread waits on the server, through a shared database that is closed to end all waits at
once, while finished jobs can still be reported.  Or it waits for wake-ups and polls from time to
time, which costs the server nothing while there is nothing to do.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Self

from fjord.client.blocking.database import Database
from fjord.client.waker import Waker
from fjord.clock import SystemClock
from fjord.errors import ClosedError, UnavailableError
from fjord.text import escaped, type_name, value_text

if TYPE_CHECKING:
    from fjord.client.blocking.jobs import Job, Jobs


# After this, plus the timeout of a call, an unreachable daemon is reported.
WAIT_SECONDS: Final = 60.0
BACKOFF_SECONDS_MAX: Final = 300.0


class Result(enum.StrEnum):
    """How the work on a job ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # its lease expired, and another worker may have it
    UNKNOWN = "unknown"  # it could not be reported; the job comes back when its lease expires
    GIVEN_BACK = "given back"  # the worker was stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What a worker does, and its callbacks."""

    table: str
    command: str
    lease: float
    domain: str | None = None
    workers: int = 1
    timeout: float | None = None  # how long a command may run
    backoff: float = 1.0  # how long a job waits after its first failure; doubled each time
    wake: str = ""  # address of wake-ups; empty: threads wait on the server
    poll: float = 30.0  # how often to ask without a wake-up
    once: bool = False  # each thread works on at most one job
    drain: bool = False  # a thread ends when no job is due
    out: int | None = None  # standard output of commands; None: that of this process
    # Called with a job, its result, the reason if it is not done, and the seconds that it took.
    on_result: Callable[[Job, Result, str, float], None]
    on_stop: Callable[[], None]  # the worker takes no new jobs
    on_unavailable: Callable[[str], None]  # the daemon cannot be reached


class Worker:
    """The threads of a worker, and the signals that end them."""

    def __init__(
        self,
        options: WorkOptions,
        waiting: Database,
        own: Callable[[], contextlib.AbstractContextManager[Database]] | None,
    ) -> None:
        """Makes a worker.

        Args:
            options: what to do.
            waiting: the database in which threads wait for jobs; it is closed at the end.
            own: opens the database in which a thread reports its jobs; None: `waiting`.
        """
        self._options = options
        self._waiting = waiting
        self._own = own
        self._stop = threading.Event()  # no new jobs
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self._idle = 0  # threads without a job
        self.counts = dict.fromkeys(Result, 0)
        self.was_cut = False  # jobs were given back at the end

    def run(self) -> None:
        """Works until it is stopped, or there is nothing more to do.

        Raises:
            FjordError: if jobs cannot be taken; running ones are finished first.
        """
        with (
            _pair() as (told, telling),
            _signals_to(telling),
            _pair() as (woken, waking),
            _pair() as (self._ended, self._ending),
        ):
            self._wake = woken
            with concurrent.futures.ThreadPoolExecutor(self._options.workers) as pool:
                threads = [pool.submit(self._work) for _ in range(self._options.workers)]
                for thread in threads:
                    thread.add_done_callback(lambda _: telling.send(b"\0"))
                try:
                    self._watch(threads, told, waking)
                finally:
                    self._end()
            for thread in threads:
                thread.result()

    def _watch(
        self,
        threads: list[concurrent.futures.Future[None]],
        told: socket.socket,
        waking: socket.socket,
    ) -> None:
        """Waits for the end of all threads, and handles signals."""
        signals = 0
        while not all(thread.done() for thread in threads):
            signals += sum(number != 0 for number in told.recv(64))  # 0: a thread has ended
            if signals and not self._stop.is_set():
                self._end()
                self._options.on_stop()
            if signals > 1 and not self.was_cut:
                self.was_cut = True
                waking.send(b"\0")
            if self._stop.is_set() and self._is_free(threads):
                self._waiting.close()

    def _end(self) -> None:
        """Stops threads from taking jobs, including those that wait for a wake-up."""
        self._stop.set()
        self._ending.send(b"\0")

    def _is_free(self, threads: list[concurrent.futures.Future[None]]) -> bool:
        """Says whether the shared database can be closed."""
        if self._own is not None:
            return True
        with self._guard:
            return self._idle == sum(not thread.done() for thread in threads)

    # -- one thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            own = contextlib.nullcontext(self._waiting) if self._own is None else self._own()
            with own as db, self._listen() as waker:
                jobs = db.jobs(self._options.table)
                while not self._stop.is_set():
                    if not self._take(jobs, waker) or self._options.once:
                        return
        except BaseException:
            self._end()  # an error in one thread ends all
            raise

    def _listen(self) -> contextlib.AbstractContextManager[Waker | None]:
        if not self._options.wake:
            return contextlib.nullcontext()
        return Waker(self._options.wake, tables=[self._options.table])

    def _take(self, jobs: Jobs, waker: Waker | None) -> bool:
        """Works on the next job, if there is one; says whether to continue."""
        waits = not (self._options.once or self._options.drain)
        try:
            found = self._wait() if waits and waker is None else self._next(jobs)
        except UnavailableError as error:
            self._options.on_unavailable(f"{error}; retrying")
            return True
        for job in found:
            self._settle(jobs, job)
        if waits and waker is not None and not found:
            waker.wait(self._options.poll, stop=self._ended)
        return waits or len(found) > 0

    def _wait(self) -> Sequence[Job]:
        """Waits for a job; returns nothing after the timeout, or when it is stopped."""
        with self._guard:
            self._idle += 1
        try:
            # From here on a stop ends the wait, or prevents it.
            if self._stop.is_set():
                return ()
            return self._next(self._waiting.jobs(self._options.table), wait=WAIT_SECONDS)
        except ClosedError:
            if not self._stop.is_set():
                raise
            return ()
        finally:
            with self._guard:
                self._idle -= 1

    def _next(self, jobs: Jobs, wait: float | None = None) -> Sequence[Job]:
        return jobs.next(domain=self._options.domain, lease=self._options.lease, wait=wait)

    def _settle(self, jobs: Jobs, job: Job) -> None:
        """Works on a job, unless the worker was stopped, and reports the result."""
        elapsed = self._stopwatch()
        is_stopped = self._stop.is_set()
        if is_stopped:
            result, reason = Result.GIVEN_BACK, "the worker was stopped"
        else:
            result, reason = self._run_command(jobs, job)
        late: list[Job] = []
        try:
            if result is Result.DONE:
                late = jobs.done_many([job])
            elif result is Result.FAILED:
                late = jobs.fail_many([job], delay=self._backoff(job), reason=reason)
            elif result is Result.GIVEN_BACK:
                delay = 0 if is_stopped or self.was_cut else self._backoff(job)
                late = jobs.fail_many([job], delay=delay, count=False)
        except (ClosedError, UnavailableError) as error:
            result, reason = Result.UNKNOWN, str(error)
        if late:
            result, reason = Result.LOST, "its lease expired before"
        self._report(job, result, reason, elapsed())

    def _run_command(self, jobs: Jobs, job: Job) -> tuple[Result, str]:
        options = self._options
        try:
            process = JobProcess(options.command, job, wake=self._wake, out=options.out)
        except OSError as error:
            return Result.GIVEN_BACK, f"the command cannot be started: {error.strerror}"
        except ValueError as error:
            return Result.FAILED, f"the command cannot be started: {error}"
        with process:
            return self._watch_command(jobs, job, process, self._stopwatch())

    def _stopwatch(self) -> Callable[[], float]:
        """Returns a function that says how many seconds have passed since now."""
        begun_us = self._clock.monotonic_us()
        return lambda: (self._clock.monotonic_us() - begun_us) / 1_000_000

    def _watch_command(
        self, jobs: Jobs, job: Job, process: JobProcess, elapsed: Callable[[], float]
    ) -> tuple[Result, str]:
        """Waits for the end of a command, renewing the lease."""

        limit = self._options.timeout or float("inf")
        touch_at = self._options.lease / 3
        while True:
            code = process.wait(min(touch_at, limit), elapsed)
            if code is not None:
                break
            if self.was_cut:
                return Result.GIVEN_BACK, "the worker was stopped"
            if elapsed() >= limit:
                return Result.FAILED, f"it took more than {limit:g} seconds"
            touch_at = elapsed() + self._options.lease / 3
            try:
                if jobs.touch_many([job], lease=self._options.lease):
                    return Result.LOST, "its lease expired, and the command was killed"
            except UnavailableError as error:
                self._options.on_unavailable(f"{error}; the command keeps running")
        if code == 0:
            return Result.DONE, ""
        return Result.FAILED, reason_of(code, process.last_line)

    def _backoff(self, job: Job) -> float:
        return min(self._options.backoff * 2.0**job.timeouts, BACKOFF_SECONDS_MAX)

    def _report(self, job: Job, result: Result, reason: str, seconds: float) -> None:
        with self._guard:
            self.counts[result] += 1
            self._options.on_result(job, result, reason, seconds)


@contextlib.contextmanager
def _signals_to(writer: socket.socket) -> Iterator[None]:
    """Delivers SIGTERM and SIGINT as bytes, so that a thread can wait for them without a race."""
    writer.setblocking(False)
    numbers = signal.SIGTERM, signal.SIGINT
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    wakeup = signal.set_wakeup_fd(writer.fileno())
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    reader, writer = socket.socketpair()
    with reader, writer:
        yield reader, writer


# -------------------------------------------------------------------------------------------------
#
# A command for one job: the value is its standard input, the rest is in the environment.
#
# A row of declared columns is a JSON object, and FJORD_TYPE is row.
#
# The command has its own process group, so that Ctrl-C on a terminal reaches the worker only, and
# its children are killed with it.  The waiting thread is woken by its end, by its output on
# standard error, or by a wake-up from outside; nothing is polled.


GRACE_SECONDS: Final = 5.0  # between SIGTERM and SIGKILL
# The end of standard error that is kept, for the reason of a failed job.
_TAIL_BYTES: Final = 500
_PIPE_BYTES: Final = 1 << 16


class JobProcess:
    """A running command; it is killed at the end of the `with` block."""

    def __init__(self, command: str, job: Job, *, wake: socket.socket, out: int | None) -> None:
        """Starts the command.

        Args:
            command: the shell command.
            job: the job to work on.
            wake: becomes readable to interrupt `wait`.
            out: its standard output; None: that of this process.

        Raises:
            OSError: if it cannot be started.
            ValueError: if the job's key or domain has a zero byte, which an environment cannot
                hold.
        """
        self._tail = b""
        self._wake = wake
        with _file_of(job.value) as value:
            self._process = subprocess.Popen(  # noqa: S603 - it is what the user wants to be run
                ["/bin/sh", "-c", command],
                stdin=value,
                stdout=out,
                stderr=subprocess.PIPE,
                env=os.environ | environment_of(job),
                process_group=0,
            )
        self._ended = os.pidfd_open(self._process.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ended, selectors.EVENT_READ, None)
        self._selector.register(self._errors, selectors.EVENT_READ, self._pass_on)
        self._selector.register(wake, selectors.EVENT_READ, None)
        os.set_blocking(self._errors.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._selector.close()
        self._errors.close()
        os.close(self._ended)

    def wait(self, seconds: float, elapsed: Callable[[], float]) -> int | None:
        """Waits for its end; returns its exit code.

        None if it still runs after `seconds` of `elapsed`, or if the wait was interrupted.
        """
        while (code := self._process.poll()) is None:
            events = self._selector.select(max(0.0, seconds - elapsed()))
            for key, _ in events:
                if key.data is not None:
                    key.data()
            is_woken = any(key.fileobj is self._wake for key, _ in events)
            if self._process.poll() is None and (is_woken or elapsed() >= seconds):
                return None
        self._pass_on()  # its last output
        return code

    def end(self) -> None:
        """Kills it with its children if it runs: SIGTERM, then SIGKILL."""
        if self._process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    @property
    def last_line(self) -> bytes:
        """The last line of its standard error."""
        lines = self._tail.split(b"\n")
        return next((line for line in reversed(lines) if line.strip()), b"")

    @property
    def _errors(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    def _pass_on(self) -> None:
        """Passes on the output on standard error, up to the size of a pipe."""
        try:
            data = os.read(self._errors.fileno(), _PIPE_BYTES)
        except BlockingIOError:
            return  # there was nothing
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if not data:
            with contextlib.suppress(KeyError):  # already unregistered
                self._selector.unregister(self._errors)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
            os.killpg(self._process.pid, number)


def environment_of(job: Job) -> dict[str, str]:
    """Returns the environment variables for a job."""
    return {
        "FJORD_TABLE": job.table,
        "FJORD_KEY": job.key,
        "FJORD_TYPE": type_name(job.value),
        "FJORD_XID": str(job.xid),
        "FJORD_PRIORITY": str(job.priority),
        "FJORD_DOMAIN": job.domain,
        "FJORD_TIMEOUTS": str(job.timeouts),
    }


def reason_of(code: int, last_line: bytes) -> str:
    """Returns the reason of a failure, for the dead letters."""
    what = f"exit code {code}" if code > 0 else f"signal {_signal_name(-code)}"
    said = escaped(last_line.decode(errors="replace").strip())
    return f"{what}: {said}" if said else what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)  # a real-time signal has no name


def bytes_of(value: Any) -> bytes:
    """Returns a value as the standard input of a command."""
    return value if isinstance(value, bytes) else value_text(value).encode()


def _file_of(value: Any) -> IO[bytes]:
    """Returns a file with a value; unlike a pipe, it needs no writer."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(bytes_of(value))
    file.seek(0)
    return file
