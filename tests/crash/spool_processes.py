"""A writer and a forwarder of a spool, each in a process of its own, with strace at its calls.

They come from the same warm process as the daemons of `tracing`, and are started and ended in the
same way.  The writer says the number of each record as soon as its call has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import fjord
from fjord.client.spool import files, reader, records
from fjord.client.spool.reader import FileReader, Load
from fjord.errors import DiskFullError
from fjord.forwarder import Forwarder
from tests.crash.spool_world import LOAD_ROWS, Tables, write
from tests.crash.tracing import DEADLINE_SECONDS, Life, TracedDaemon

# What writers and forwarders do to files, to each other and to the daemon.
SPOOL_CALLS: Final = (
    "bind",
    "close",
    "fallocate",
    "fdatasync",
    "flock",
    "fsync",
    "linkat",
    "mkdir",
    "newfstatat",
    "openat",
    "pwrite64",
    "recvfrom",
    "rename",
    "sendto",
    "unlink",
    "write",
)
# What is called for each record or load; all else is rare.
SPOOL_ROUTINE: Final = {
    "close",
    "fdatasync",
    "newfstatat",
    "openat",
    "pwrite64",
    "recvfrom",
    "sendto",
    "write",
}
REFUSED: Final = -1  # instead of the number of a record, for which there was no space
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing(Life):
    """How the life of a writer goes; `data` is the directory of the spool."""

    tables: Tables
    count: int
    first: int = 0  # the number of the first record
    sync: str = "none"
    period: float = files.PERIOD_SECONDS
    value: bytes = b""  # not empty: all records are messages with it, and what they hold is large


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding(Life):
    """How the life of a forwarder goes; `data` is the directory of the spool."""

    url: str
    bug: str = ""  # the name of one that is planted


def _erase_early() -> None:
    """Every load is erased when it is handed out, before anybody has it."""
    hand_out = FileReader._hand_out

    def erase(self: FileReader, part: slice, batch: records.Gathering) -> Load:
        load = hand_out(self, part, batch)
        for start, end in zip(load.starts, load.ends, strict=True):
            self.file.erase(start, end)
        return load

    FileReader._hand_out = erase  # type: ignore[method-assign]


def _forget_the_name() -> None:
    """Every forwarder calls a file by another name, so that the daemon cannot know it."""
    other = os.getpid()
    FileReader.writer = property(lambda self: f"spool:{self.header.identity.hex()}-{other}")  # type: ignore[method-assign,assignment]


# Bugs that a search must find.
BUGS: Final[dict[str, Callable[[], None]]] = {
    "erases early": _erase_early,
    "forgets the name": _forget_the_name,
}


def _begin(life: Life, pipe: Connection) -> None:
    with life.log.open("ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    logging.basicConfig(level=logging.INFO)
    # Where only a parent may trace its children, strace, who is none, has to be let in.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
    if life.file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_bytes_max,) * 2)
    pipe.send("here")
    pipe.recv()


def _write(life: Writing, pipe: Connection) -> None:
    _begin(life, pipe)
    pipe.send("ready")
    spool = fjord.spool(life.data, sync=life.sync, period=life.period)
    for number in range(life.first, life.first + life.count):
        try:
            if life.value:
                spool.stream(life.tables.stream).append(life.value, key=str(number))
            else:
                write(spool, life.tables, number)
        except DiskFullError:
            pipe.send(REFUSED)
        else:
            pipe.send(number)
    spool.close()


def _forward(life: Forwarding, pipe: Connection) -> None:
    _begin(life, pipe)
    if life.bug:
        BUGS[life.bug]()
    for module in (records, reader):
        vars(module)["ROWS_MAX"] = LOAD_ROWS
    pipe.send("ready")
    forwarder = Forwarder(str(life.data), life.url)
    asyncio.run(forwarder.run(until_empty=True))


class TracedWriter(TracedDaemon):
    """A process that writes to a spool until it is done, or killed."""

    main = staticmethod(_write)

    def next_told(self) -> int:
        """Waits for one more record."""
        assert self._pipe.poll(DEADLINE_SECONDS), self.log()
        return int(self._pipe.recv())

    def send_kill(self) -> None:
        """SIGKILL, and what it was told before can still be read."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)

    def told(self) -> list[int]:
        """Waits for its end; returns the numbers of all records that it was told are written."""
        found = []
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                found.append(int(self._pipe.recv()))
        return found


class TracedForwarder(TracedDaemon):
    """A process that forwards until nothing is left, or until it is killed."""

    main = staticmethod(_forward)


def is_killed(code: int) -> bool:
    return code == -signal.SIGKILL


def folder_of(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made
