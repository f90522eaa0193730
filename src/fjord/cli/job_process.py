"""One command that works on one job: its value on standard input, the rest in the environment.

A row of declared columns is a JSON object of them there, and FJORD_TYPE is row.

The command has a process group of its own, so that Ctrl-C on a terminal reaches the worker only,
and what the command started ends with it.  Whoever waits for it is woken by its end, by what it
says on standard error, or by a wake-up from outside; nothing is polled.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self

from fjord.cli import output

if TYPE_CHECKING:
    from fjord.client.jobs import Job

GRACE_SECONDS: Final = 5.0  # between SIGTERM and SIGKILL
# Of what a command said, as much as may hold the line that is kept with a job.
_TAIL_BYTES: Final = 500
_PIPE_BYTES: Final = 1 << 16


class HasFileno(Protocol):
    """Something that can be waited for."""

    def fileno(self) -> int: ...


class JobProcess:
    """A command that was started for a job; in a `with` block, at whose end it has ended."""

    def __init__(self, command: str, job: Job, *, wake: HasFileno, out: int | None) -> None:
        """Starts it.

        Args:
            command: what the shell runs.
            job: what it works on.
            wake: readable when the wait for it should be broken off.
            out: where its standard output goes; None: where that of this process goes.

        Raises:
            OSError: if it cannot be started.
            ValueError: if the job's key or domain has a zero byte, which no environment can hold.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._selector.close()
        self._errors.close()
        os.close(self._ended)

    def wait(self, seconds: float, elapsed: Callable[[], float]) -> int | None:
        """Waits for its end; returns its exit code.

        None if it runs on after `seconds`, as `elapsed` counts them, or something has woken us.
        """
        while (code := self._process.poll()) is None:
            events = self._selector.select(max(0.0, seconds - elapsed()))
            for key, _ in events:
                if key.data is not None:
                    key.data()
            is_woken = any(key.fileobj is self._wake for key, _ in events)
            if self._process.poll() is None and (is_woken or elapsed() >= seconds):
                return None
        self._pass_on()  # what it said at last
        return code

    def end(self) -> None:
        """Ends it if it runs, with all that it started: SIGTERM, and soon SIGKILL."""
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
        """What it said last on standard error."""
        lines = self._tail.split(b"\n")
        return next((line for line in reversed(lines) if line.strip()), b"")

    @property
    def _errors(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    def _pass_on(self) -> None:
        """Passes on what the command said on standard error, as much as a pipe holds."""
        try:
            data = os.read(self._errors.fileno(), _PIPE_BYTES)
        except BlockingIOError:
            return  # there was nothing
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if not data:
            with contextlib.suppress(KeyError):  # its end was seen before
                self._selector.unregister(self._errors)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
            os.killpg(self._process.pid, number)


def environment_of(job: Job) -> dict[str, str]:
    """Returns what a command is told of its job."""
    return {
        "FJORD_TABLE": job.table,
        "FJORD_KEY": job.key,
        "FJORD_TYPE": output.type_name(job.value),
        "FJORD_XID": str(job.xid),
        "FJORD_PRIORITY": str(job.priority),
        "FJORD_DOMAIN": job.domain,
        "FJORD_TIMEOUTS": str(job.timeouts),
    }


def reason_of(code: int, last_line: bytes) -> str:
    """Returns why a job failed, for the dead letters."""
    what = f"exit code {code}" if code > 0 else f"signal {_signal_name(-code)}"
    said = output.escaped(last_line.decode(errors="replace").strip())
    return f"{what}: {said}" if said else what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)  # a real-time signal has no name


def bytes_of(value: Any) -> bytes:
    """Returns a value as a command reads it."""
    return value if isinstance(value, bytes) else output.shown(value).encode()


def _file_of(value: Any) -> IO[bytes]:
    """Returns a file to be read from; unlike a pipe, nobody has to write it meanwhile."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(bytes_of(value))
    file.seek(0)
    return file
