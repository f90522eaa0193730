"""The real daemon in a warm process, with strace at its system calls.

Starting a daemon costs half a second, nearly all of it for imports.  Those of this module are
forked from a process that has imported everything, so one is there after some 20 ms:

    fork -> wait until strace is attached -> serve -> `ready`, or the end

A daemon here has small segments and a small index, so that a short script rotates and packs.
strace counts the calls of each name on its own, and those of each thread: the third `rename` is
a point in a daemon's life, "the 117th call" is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import typer

import fjord
from fjord import disk as disks
from fjord import limits
from fjord.cli.output import explained
from fjord.client.blocking.database import Database
from fjord.engine import EngineSettings, open_engine
from fjord.errors import ClosedError, RemoteProtocolError, UnavailableError
from fjord.journal.writer import Commit, Writer
from fjord.server import daemon
from tests.crash.world import KEYS, SEGMENT_BYTES, TABLE, Model, Step, read_all

INDEX_STEP_BYTES: Final = 1 * limits.MIB
# Nothing here takes as long; whoever waits longer than this waits for ever.
DEADLINE_SECONDS: Final = 60.0
RESTART_SECONDS_MAX: Final = 2.0
# What a client meets when its daemon is gone.
GONE = (UnavailableError, ClosedError, RemoteProtocolError)
# Calls that change what is on a disk, or tell a client that it is there.
DISK_CALLS: Final = (
    "fallocate",
    "fdatasync",
    "fsync",
    "ftruncate",
    "mkdir",
    "msync",
    "pwrite64",
    "rename",
    "unlink",
)
REPLY_CALLS: Final = ("write", "writev", "sendto", "sendmsg")
# What a daemon calls at each step of a script; everything else is rare.
ROUTINE_CALLS: Final = {"pwrite64", "fdatasync", *REPLY_CALLS}

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["fjord.cli", "fjord.server.daemon", "fjord.engine"])
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_CALL = re.compile(r"(\d+) +(\w+)\((?:\d+<([^>]*)>)?(.*)")


# -- in the daemon's process ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How one life of a daemon goes."""

    data: Path  # its directory
    log: Path  # what it says
    boot: str = ""  # the boot id that it sees, "" = the machine's
    file_bytes_max: int = 0  # RLIMIT_FSIZE, 0 = as it is
    flaw: str = ""  # the name of a bug that is planted

    def settings(self) -> EngineSettings:
        disk = RebootedDisk(self.boot) if self.boot else disks.LocalDisk()
        return EngineSettings(
            segment_bytes=SEGMENT_BYTES, index_step_bytes=INDEX_STEP_BYTES, disk=disk
        )


class RebootedDisk(disks.LocalDisk):
    """The disk of a machine that is believed to have been started anew."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def boot_id(self) -> str:
        return self._boot


def _live(life: Life, pipe: Connection) -> None:
    """Serves as `fjord serve` does, and ends as it does."""
    with life.log.open("ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    logging.basicConfig(level=logging.INFO)
    # Where only a parent may trace its children, strace, who is none, has to be let in.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    if life.flaw:
        FLAWS[life.flaw]()
    if life.file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_bytes_max,) * 2)
    pipe.send("here")
    pipe.recv()
    options = daemon.DaemonOptions(
        data=str(life.data),
        host="127.0.0.1",
        port=0,
        settings=life.settings(),
        awake_us=0,
        on_ready=lambda at, _: pipe.send(f"fjord://{at[0]}:{at[1]}"),
    )
    try:
        with explained():
            daemon.serve(options)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _acknowledge_before_the_sync() -> None:
    def pretend(self: Writer) -> int:
        self.durable_seq = self.committed_seq
        return self.durable_seq

    Writer.sync = pretend  # type: ignore[method-assign]


def _sync_again() -> None:
    def insist(self: disks.LocalFile) -> None:
        try:
            os.fdatasync(self.fileno())
        except OSError:
            os.fdatasync(self.fileno())

    disks.LocalFile.sync = insist  # type: ignore[method-assign]


def _write_late() -> None:
    """Every frame waits in memory until the next one comes."""
    append, write = Writer.append, disks.LocalFile.write
    held: list[tuple[disks.LocalFile, int, bytes]] = []

    def hold(self: disks.LocalFile, offset: int, data: bytes) -> None:
        held.append((self, offset, data))
        if len(held) > 1:
            write(*held.pop(0))

    def append_late(self: Writer, commit: Commit) -> None:
        disks.LocalFile.write = hold  # type: ignore[method-assign]
        try:
            append(self, commit)
        finally:
            disks.LocalFile.write = write  # type: ignore[method-assign]

    Writer.append = append_late  # type: ignore[method-assign]


# Bugs that a search must find.
FLAWS: Final[dict[str, Callable[[], None]]] = {
    "acknowledges before the sync": _acknowledge_before_the_sync,
    "syncs again": _sync_again,
    "writes late": _write_late,
}


# -- in the process of the test -------------------------------------------------------------------


class TracedDaemon:
    """One life of a daemon, from its start to whatever ends it."""

    main: Callable[[Any, Connection], None] = staticmethod(_live)  # what its process does

    def __init__(self, life: Life, *strace: str) -> None:
        self.life = life
        self.url = ""
        self._options = strace  # options of strace; without any it is not traced
        self._trace = life.log.with_suffix(".strace")
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=self.main, args=(life, theirs), daemon=True)
        self._strace: subprocess.Popen[str] | None = None
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGKILL)

    @property
    def is_ready(self) -> bool:
        """Says whether it came as far as to serve."""
        return bool(self.url)

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when it is gone."""
        return self._process.sentinel

    def kill(self) -> int:
        """SIGKILL: no goodbye, no flush."""
        return self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Waits until it ends by itself; returns the exit code, or minus a signal."""
        self._process.join(DEADLINE_SECONDS)
        code = self._process.exitcode
        assert code is not None, f"it still runs: {self.log()}"
        self._pipe.close()
        if self._strace is not None:
            self._strace.communicate(timeout=DEADLINE_SECONDS)
            self._strace = None
        return code

    def log(self) -> str:
        return self.life.log.read_text()

    def calls(self) -> list[TracedCall]:
        """Returns the calls that strace saw; the daemon must have ended."""
        return parse_trace(self._trace.read_text())

    def attach(self, *strace: str) -> None:
        """Traces it from now on, with these options; the counting of calls begins here."""
        assert self._strace is None
        command = ["strace", "-f", "-y", "-s", "0", "-o", str(self._trace), *strace]
        self._strace = subprocess.Popen(
            [*command, "-p", str(self._process.pid)], stderr=subprocess.PIPE, text=True
        )
        assert self._strace.stderr is not None
        said = self._strace.stderr.readline()
        assert "attached" in said, said

    def _start(self) -> None:
        assert self._pipe.poll(DEADLINE_SECONDS)
        assert self._pipe.recv() == "here"
        if self._options:
            self.attach(*self._options)
        self._pipe.send("go on")
        assert wait([self._pipe, self._process.sentinel], DEADLINE_SECONDS), self.log()
        with contextlib.suppress(EOFError, ConnectionResetError):  # it ended before it could serve
            self.url = self._pipe.recv()

    def _end(self, number: signal.Signals) -> int:
        pid = self._process.pid
        if self._process.exitcode is None and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return self.wait()


class Point(NamedTuple):
    """The n-th call of a name."""

    name: str
    number: int

    def inject(self, what: str, *, for_ever: bool = False) -> tuple[str, ...]:
        """Returns options with which strace does `what` there, and notes all calls."""
        when = f"{self.number}+" if for_ever else str(self.number)
        return (*trace(), "-e", f"inject={self.name}:{what}:when={when}")


@contextlib.contextmanager
def noted(text: str) -> Iterator[None]:
    """Adds to whatever fails inside how it is played again."""
    try:
        yield
    except BaseException as error:
        error.add_note(text)
        raise


class TracedCall(NamedTuple):
    """A system call as strace saw it."""

    thread: int
    name: str
    path: str  # of its first file, "" if it has none
    rest: str  # further arguments, and the result

    @property
    def is_injected(self) -> bool:
        return self.rest.endswith("(INJECTED)")


def trace(*more: str) -> tuple[str, str]:
    """Returns options with which strace notes what a daemon does to a disk."""
    return ("-e", "trace=" + ",".join([*DISK_CALLS, *REPLY_CALLS, *more]))


def parse_trace(text: str) -> list[TracedCall]:
    found = map(_CALL.match, text.splitlines())
    return [
        TracedCall(int(match[1]), match[2], match[3] or "", match[4]) for match in found if match
    ]


def points(calls: Sequence[TracedCall]) -> list[Point]:
    """Returns the points at which strace can stop the thread that made the first call."""
    seen: Counter[str] = Counter()
    found = []
    for call in calls:
        if call.thread == calls[0].thread:
            seen[call.name] += 1
            found.append(Point(call.name, seen[call.name]))
    return found


def chosen(found: Sequence[Point], step: int) -> list[Point]:
    """Returns all points that are rare, and every so many-th of the others."""
    return [
        point
        for number, point in enumerate(found)
        if point.name not in ROUTINE_CALLS or number % step == 0
    ]


@contextlib.contextmanager
def connected(traced: TracedDaemon) -> Iterator[Database]:
    """A client that gives up as soon as its daemon is gone, instead of waiting for another."""
    with connected_to(traced.url, os.dup(traced.sentinel)) as db:
        yield db


@contextlib.contextmanager
def connected_to(url: str, sentinel: int) -> Iterator[Database]:
    """The same for a daemon at `url`; the sentinel, closed here, is readable when it is gone."""
    over, ours = os.pipe()
    try:
        with fjord.connect(url) as db:
            watch = threading.Thread(target=_close_when_gone, args=(sentinel, over, db))
            watch.start()
            try:
                yield db
            finally:
                os.write(ours, b".")
                watch.join()
    finally:
        for descriptor in (over, ours, sentinel):
            os.close(descriptor)


def _close_when_gone(sentinel: int, over: int, db: Database) -> None:
    if over not in wait([sentinel, over]):
        db.close()


class Player:
    """A client that plays scripts, and knows what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: Model = {}
        self.attempted: Model = {}  # what would hold if the step under way counted

    def play(self, traced: TracedDaemon, script: Sequence[Step]) -> bool:
        """Plays a script; says whether the daemon lived to its end."""
        try:
            with connected(traced) as db:
                for step in script:
                    self.take(db, step)
        except GONE:
            return False
        return True

    def take(self, db: Database, step: Step) -> None:
        self.attempted = step.change(self.acknowledged)
        table = db.kv(TABLE)
        if step.values is None:
            table.delete_many(step.keys)
        else:
            table.set_many(dict(zip(step.keys, step.values, strict=True)))
        self.acknowledged = self.attempted

    def check(self, life: Life) -> None:
        """Asserts that what was acknowledged is there, or one whole step more; twice."""
        for _ in range(2):  # the second restart sees what the first one left
            begun = time.monotonic()
            engine = open_engine(str(life.data), life.settings())
            took = time.monotonic() - begun
            try:
                self._settle(read_all(engine))
            finally:
                engine.abandon()
            assert took < RESTART_SECONDS_MAX, f"{took:.1f} s"

    def _settle(self, found: Model) -> None:
        expected = (self.acknowledged, self.attempted)
        wrong = [
            [key.decode() for key in KEYS if model.get(key) != found.get(key)] for model in expected
        ]
        assert not all(wrong), f"wrong are {wrong[0]}; with one step more, {wrong[1]}"
        self.acknowledged = self.attempted = found  # what was read must stay
