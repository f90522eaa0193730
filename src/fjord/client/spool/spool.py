"""A spool that is written to: one `write` for each call, and nothing to wait for.

Any number of processes may write to one spool.  Threads of one process share a `Spool`; so do
a process and what it forks, since each line is one write to the end of the file.
"""

from __future__ import annotations

import enum
import os
import threading
import weakref
from types import TracebackType
from typing import Final, Self

from fjord import commands
from fjord.client.spool import files
from fjord.client.spool.appender import Appender
from fjord.client.spool.lines import line_of
from fjord.client.spool.tables import SpoolJobs, SpoolKv, SpoolStream
from fjord.client.spool.waking import Bell
from fjord.clock import Stamps, SystemClock
from fjord.disk import is_full
from fjord.errors import ClosedError, Code, DiskFullError, DurabilityError, FjordError
from fjord.wire import wakeups
from fjord.wire.wakeups import Address

# Whoever removes a file by hand takes what is written to it for so long afterwards, too.
CHECK_US: Final = 100_000


class Sync(enum.StrEnum):
    """What a write waits for."""

    NONE = "none"  # nothing: it survives the process, and perhaps not a power cut
    EACH = "each"  # the disk
    GROUP = "group"  # the disk, together with other threads that write at the same time


def open_spool(
    path: str | os.PathLike[str],
    *,
    sync: str = Sync.NONE,
    period: float = files.PERIOD_SECONDS,
    wake: str | int | None = None,
) -> Spool:
    """Opens or makes a directory in which writes wait for `fjord forward` to send them.

    Args:
        path: the directory.
        sync: what a write waits for: "none", "each" or "group".
        period: seconds after which another file is begun.
        wake: where `fjord forward --wake` hears wake-ups; none are sent unless given.

    Raises:
        DirectoryError: if the directory cannot be made.
        ValueError: if an option cannot be meant.
    """
    if sync not in tuple(Sync):
        raise ValueError(f"sync is one of {', '.join(Sync)}, not {sync!r}")
    if not 1 <= period <= 7 * 24 * 3600:
        raise ValueError(f"period is from 1 second to 7 days, not {period}")
    return Spool(
        os.path.abspath(path),
        sync=Sync(sync),
        period_us=round(period * 1_000_000),
        wake=None if wake is None else wakeups.parse_address(wake),
    )


class Spool:
    """Tables to write to, daemon or not.  Every call returns when its record is in a file."""

    def __init__(
        self, path: str, *, sync: Sync, period_us: int, wake: Address | None = None
    ) -> None:
        self.path = path
        self._sync = sync
        self._period_us = period_us
        self._stamps = Stamps(SystemClock())
        self._appender: Appender | None = None
        self._checked_us = 0  # when to look next whether this is still the file to write to
        self._is_closed = False
        self._problem = ""  # a disk that failed: nothing is written any more
        self._written = self._synced = 0  # lines, for those who share a sync
        files.make_directory(path)
        files.check_owner(path)
        self._bell = Bell(path, wake)
        self._is_wanted = self._bell.is_wanted
        self._is_shared = sync is Sync.GROUP
        self._renew_locks()
        _spools.add(self)

    def __repr__(self) -> str:
        return f"<Spool {self.path!r}>"

    def jobs(self, table: str) -> SpoolJobs:
        """Returns a jobs table to push to."""
        return SpoolJobs(self._write, self._stamps, table)

    def stream(self, table: str) -> SpoolStream:
        """Returns a stream to append to."""
        return SpoolStream(self._write, self._stamps, table)

    def kv(self, table: str = commands.DEFAULT_TABLE) -> SpoolKv:
        """Returns a key/value table to write to."""
        return SpoolKv(self._write, self._stamps, table)

    def close(self) -> None:
        """Gives the file free, so that the forwarder can delete it when it is sent."""
        with self._guard:
            self._is_closed = True
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- writing ----------------------------------------------------------------------------------

    def _write(self, record: bytes, stamp_us: int) -> None:
        line = line_of(record)
        try:
            with self._guard:
                appender = self._appender
                if appender is None or stamp_us >= self._checked_us:
                    appender = self._check(stamp_us)
                written = appender.write(line)
                self._written = ticket = self._written + 1
        except OSError as error:
            raise self._failed(error, "the record may or may not be kept") from error
        if written != len(line):
            raise _full(self.path)
        if self._is_shared:
            self._share_sync(ticket)
        if self._is_wanted():
            self._bell.ring()

    def _check(self, now_us: int) -> Appender:
        """Returns the file of the moment: another one, also if the one that it has was removed."""
        appender = self._appender
        slot = files.slot_of(now_us, self._period_us)
        if appender is None or appender.slot != slot or self._problem or appender.is_removed():
            appender = self._turn(now_us)
        self._checked_us = min(now_us + CHECK_US, (slot + 1) * self._period_us)
        return appender

    def _turn(self, now_us: int) -> Appender:
        """Goes on to the file of the moment."""
        if self._is_closed:
            raise ClosedError("this spool is closed; open it again")
        if self._problem:
            raise DurabilityError(f"{self._problem}; look after the disk, and open the spool again")
        self._drop()
        flags = os.O_DSYNC if self._sync is Sync.EACH else 0
        try:
            appender = Appender(self.path, now_us, self._period_us, flags=flags)
            if self._sync is not Sync.NONE:
                files.sync_directory(self.path)  # another writer may have made it, just now
        except OSError as error:
            raise self._failed(error, "this record was not accepted") from error
        self._appender = appender
        return appender

    def _drop(self) -> None:
        """Closes the file; whoever still waits for the disk then has it."""
        if self._appender is None:
            return
        with self._syncing:
            appender, self._appender = self._appender, None
            try:
                if self._is_shared and not self._problem:
                    appender.sync()
                    self._synced = self._written
            except OSError as error:
                self._fail(error)  # those who wait for this sync are told, too
                raise self._lost() from error
            finally:
                appender.close()

    def _share_sync(self, ticket: int) -> None:
        """Returns when the disk has a line; whoever comes first waits for all who came before."""
        with self._syncing:
            if self._synced >= ticket:
                return
            written = self._written  # before the sync: what is written meanwhile waits for the next
            try:
                if self._appender is None or self._problem:
                    raise self._lost()  # also where the sync of another thread has failed
                self._appender.sync()
            except OSError as error:
                self._fail(error)
                raise self._lost() from error
            self._synced = written

    def _fail(self, error: OSError) -> None:
        """What failed once is not asked again: the next answer would mean nothing."""
        self._problem = f"the disk of the spool {self.path} failed ({error.strerror})"
        self._checked_us = 0

    def _lost(self) -> DurabilityError:
        return DurabilityError(f"{self._problem}; the record may or may not be kept")

    def _failed(self, error: OSError, what: str) -> FjordError:
        if is_full(error):
            return _full(self.path)
        return DurabilityError(
            f"the spool {self.path} cannot be written to ({error.strerror}); {what}"
        )

    def _renew_locks(self) -> None:
        """A thread that is not there after a fork may have had them."""
        # A signal handler may come in between, and write too.
        self._guard = threading.RLock()
        self._syncing = threading.RLock()
        self._stamps.renew()
        self._bell.renew()


def _full(path: str) -> DiskFullError:
    return DiskFullError(
        Code.DISK_FULL,
        f"the disk of the spool {path} is full; this record was not accepted, and all that were "
        "will be sent: free space, and write it again",
    )


_spools: weakref.WeakSet[Spool] = weakref.WeakSet()


def _after_fork() -> None:
    for spool in _spools:
        spool._renew_locks()


os.register_at_fork(after_in_child=_after_fork)
