"""Writing to a spool: one `write` for each call, without waiting.

Any number of processes may write to one spool.  Threads of one process share a `Spool`; so do
a process and what it forks, since each line is one write to the end of the file.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, Self, Unpack

from fjord import commands, errors, limits, values
from fjord.client import calls, entries, schemas
from fjord.client.entries import AnyKey, Key
from fjord.client.jobs.calls import JobCalls, job_fields
from fjord.client.jobs.push import PushColumns, PushOptions
from fjord.client.kv import KvCalls, SetOneOptions, SetOptions
from fjord.client.spool import files
from fjord.client.spool.bell import Bell
from fjord.client.spool.files import COMMON, HEADER_BYTES, line_of
from fjord.client.spool.records import APPEND, DELETE, HEAD, PUSH, SET, of_command
from fjord.client.streams import StreamCalls
from fjord.clock import Stamps, SystemClock
from fjord.columns import repeat
from fjord.commands import Append, Command, Delete, Nop, Push, Set
from fjord.disk import OpenFile, is_full
from fjord.jobs import Priority
from fjord.values import Value
from fjord.wire import wakeups

# If somebody removes a file by hand, records written to it for this long are lost too.
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
    """Opens or creates a directory in which writes wait for `fjord forward` to send them.

    Args:
        path: the directory.
        sync: what a write waits for: "none", "each" or "group".
        period: seconds after which a new file is begun.
        wake: the address of `fjord forward --wake`; by default no wake-ups are sent.

    Raises:
        DirectoryError: if the directory cannot be made.
        ValueError: if an option cannot be meant.
    """
    if sync not in tuple(Sync):
        raise ValueError(f"sync must be one of {', '.join(Sync)}, not {sync!r}")
    if not 1 <= period <= 7 * 24 * 3600:
        raise ValueError(f"period must be from 1 second to 7 days, not {period}")
    return Spool(
        os.path.abspath(path),
        sync=Sync(sync),
        period_us=round(period * 1_000_000),
        wake=None if wake is None else wakeups.parse_address(wake),
    )


class Spool:
    """Tables to write to without a daemon.  Every call returns when its record is in a file."""

    def __init__(
        self, path: str, *, sync: Sync, period_us: int, wake: wakeups.Address | None = None
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
        """Closes the file, so that the forwarder can delete it when it is sent."""
        with self._guard:
            self._is_closed = True
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Returns the current file, reopened if the period is over or the file was removed."""
        appender = self._appender
        slot = files.slot_of(now_us, self._period_us)
        if appender is None or appender.slot != slot or self._problem or appender.is_removed():
            appender = self._turn(now_us)
        self._checked_us = min(now_us + CHECK_US, (slot + 1) * self._period_us)
        return appender

    def _turn(self, now_us: int) -> Appender:
        """Opens the current file."""
        if self._is_closed:
            raise errors.ClosedError("this spool is closed; open it again")
        if self._problem:
            raise errors.DurabilityError(
                f"{self._problem}; check the disk, and open the spool again"
            )
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
        """Syncs and closes the file."""
        if self._appender is None:
            return
        with self._syncing:
            appender, self._appender = self._appender, None
            try:
                if self._is_shared and not self._problem:
                    appender.sync()
                    self._synced = self._written
            except OSError as error:
                raise self._fail(error) from error  # also for others that wait for this sync
            finally:
                appender.close()

    def _share_sync(self, ticket: int) -> None:
        """Returns when a line is on disk; one thread syncs for all that wait."""
        with self._syncing:
            if self._synced >= ticket:
                return
            written = self._written  # before the sync: what is written meanwhile waits for the next
            try:
                if self._appender is None or self._problem:
                    raise self._lost()  # or the sync of another thread failed
                self._appender.sync()
            except OSError as error:
                raise self._fail(error) from error
            self._synced = written

    def _fail(self, error: OSError) -> errors.DurabilityError:
        """Notes a failed sync, which is never retried: success would mean nothing."""
        self._problem = f"the disk of the spool {self.path} failed ({error.strerror})"
        self._checked_us = 0
        return self._lost()

    def _lost(self) -> errors.DurabilityError:
        return errors.DurabilityError(f"{self._problem}; the record may or may not be kept")

    def _failed(self, error: OSError, what: str) -> errors.FjordError:
        if is_full(error):
            return _full(self.path)
        return errors.DurabilityError(
            f"the spool {self.path} cannot be written to ({error.strerror}); {what}"
        )

    def _renew_locks(self) -> None:
        """Replaces the locks after a fork, since a thread that is gone may hold them."""
        # A signal handler may interrupt this, and write too.
        self._guard = threading.RLock()
        self._syncing = threading.RLock()
        self._stamps.renew()
        self._bell.renew()


def _full(path: str) -> errors.DiskFullError:
    return errors.DiskFullError(
        errors.Code.DISK_FULL,
        f"the disk of the spool {path} is full; this record was not accepted (accepted ones "
        "will be sent): free some space, and write it again",
    )


_spools: weakref.WeakSet[Spool] = weakref.WeakSet()


def _after_fork() -> None:
    for spool in _spools:
        spool._renew_locks()


os.register_at_fork(after_in_child=_after_fork)


# -------------------------------------------------------------------------------------------------
#
# Writing to spool files: any number of processes append to one, and none waits for another.
#
# A writer has a shared lock on a file for as long as it has it open.  When it has got the lock it
# looks whether the name still means this file, since the forwarder may just have removed it.
#
# A file is written to in one period only, so that what is in a later one was written later; if it
# is still there when its name comes round again, it gets another name, and is only sent.  So does
# one from before the machine was last started: a power cut may have taken its end, also what the
# daemon has of it, and would take for that what is written to those offsets again.  Who renames
# has a lock on the directory, so that only one does; and its own lock on the file keeps the
# forwarder away.


class Appender(OpenFile):
    """A file that is open for writing, shared with other writers."""

    def __init__(self, directory: str, now_us: int, period_us: int, *, flags: int = 0) -> None:
        self.slot = files.slot_of(now_us, period_us)
        name = files.name_of(self.slot)
        path = os.path.join(directory, name)
        flags |= os.O_RDWR | os.O_APPEND | COMMON
        while True:
            try:
                fd = os.open(path, flags)
            except FileNotFoundError:
                _make(directory, name, now_us)
                continue
            self._fd = fd  # from here on it is closed with the object
            if _hold(fd, path) and not self._put_away(directory, path, period_us):
                return
            self.close()

    def write(self, line: bytes) -> int:
        """Appends a line; returns how much was written: less if the disk is full."""
        return os.write(self._fd, line)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def is_removed(self) -> bool:
        """Says whether somebody has removed the file, so that its records are lost."""
        return os.fstat(self._fd).st_nlink == 0

    def _put_away(self, directory: str, path: str, period_us: int) -> bool:
        """Renames a file of an earlier cycle or boot; False if it is not one."""
        header = files.decode_header(os.pread(self._fd, HEADER_BYTES, 0))
        if header is None:
            return False  # damaged; the forwarder mends it
        if header.is_of_this_boot and files.slot_of(header.created_us, period_us) == self.slot:
            return False
        with _locked(directory):
            if files.is_at(os.fstat(self._fd), path):
                os.rename(path, os.path.join(directory, files.named("old", header.identity)))
                files.sync_directory(directory)
        return True


def _make(directory: str, name: str, now_us: int) -> None:
    """Creates a file with its header, unless another writer was faster."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fresh = files.prepare(directory, files.new_header(now_us))
    try:
        os.link(fresh, os.path.join(directory, name), follow_symlinks=False)
    except FileExistsError:
        return  # it is there now, whoever has made it
    except FileNotFoundError:
        return  # the forwarder took it for a leftover; once more
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
    files.sync_directory(directory)


def _hold(fd: int, path: str) -> bool:
    """Takes the writer's lock; False if the file was renamed or removed."""
    fcntl.flock(fd, fcntl.LOCK_SH)
    ours = os.fstat(fd)
    if not stat.S_ISREG(ours.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return files.is_at(ours, path)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# -- tables of a spool: the writes of a connection, without replies -------------------------------
#
# Single rows are packed here, field by field, since a front end waits for this; many
# rows are one command, built as for a connection.


Write = Callable[[bytes, int], None]  # a record, and when it was written

_SET_OPTIONS: Final = SetOneOptions.__optional_keys__ | SetOptions.__optional_keys__
_pack = HEAD.pack
_PRIORITY: Final = int(Priority.DEFAULT)
# An expiry that comes from a TTL ends such a stretch, so that many values expire together and the
# forwarder sends them as one command.
_EXPIRY_STEP_US: Final = 100_000


class _Table:
    """The common part of the tables."""

    def __init__(self, write: Write, stamps: Stamps, table: str) -> None:
        self._write = write
        self._stamps = stamps
        self._next_us = stamps.next_us
        self._name = calls.check_name(table)
        self._table = table.encode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"a spool only writes, without replies: it has no {name}; use fjord.connect for that"
        )


class SpoolJobs(_Table):
    """A jobs table to push to; like `fjord.Jobs`."""

    def push(self, key: Key, value: Value = None, **options: Unpack[PushOptions]) -> None:
        """Adds a job, or merges it with a waiting job of its key; see `Jobs.push`.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
            ValueError: if an option cannot be meant.
        """
        try:
            type_, data = values.encode(value)
            name = entries.encode_key(key)
        except errors.LocalProtocolError as error:
            raise (schemas.no_rows() if _is_row(key, value) else error) from None
        if len(name) > limits.JOB_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _bad_size(len(name), len(data), limits.JOB_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        if not options:
            priority, due, expires_us, domain = _PRIORITY, 0, 0, b""
        else:
            priority, due, expires_us, domain = _job_fields(options, stamp_us)
        table = self._table
        head = _pack(
            PUSH, type_, priority, len(table), len(name), len(domain), stamp_us, due, expires_us
        )
        self._write(head + table + name + domain + data, stamp_us)

    def push_many(
        self, jobs: Iterable[Mapping[str, Any]] | None = None, **columns: Unpack[PushColumns]
    ) -> None:
        """Adds jobs, all or none; see `Jobs.push_many`."""
        table = JobCalls(self._name, self._stamps, schemas.NoSchemas)
        command = table.push_many(jobs, **columns).command
        if isinstance(command, Push):
            stamp_us = command.timestamps_us[0]
            if command.relative:
                dates = [delay and stamp_us + delay for delay in command.process_at_us]
                command = replace(command, process_at_us=dates, relative=False)
            _write_command(self._write, command, stamp_us)


class SpoolStream(_Table):
    """A stream to append to; like `fjord.Stream`."""

    def append(self, value: Value, key: Key = "") -> None:
        """Adds a message; see `Stream.append`.  Its seq is not known before it arrives.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
        """
        try:
            type_, data = values.encode(value)
            name = entries.encode_key(key) if key else b""
        except errors.LocalProtocolError as error:
            raise (schemas.no_rows() if _is_row(key, value) else error) from None
        if len(name) > limits.KV_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _bad_size(len(name), len(data), limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        table = self._table
        head = _pack(APPEND, type_, 0, len(table), len(name), 0, stamp_us, 0, 0)
        self._write(head + table + name + data, stamp_us)

    def append_many(self, values: Iterable[Value], keys: Iterable[Key] | None = None) -> None:
        """Adds messages in order; see `Stream.append_many`.

        Many messages are several records; if one fails, the earlier ones are written.
        """
        for call in StreamCalls(self._name, schemas.NoSchemas).append_parts(values, keys):
            command = call.command
            assert isinstance(command, Append)
            stamp_us = self._next_us()
            dates = repeat(stamp_us, len(command.types))
            _write_command(self._write, replace(command, timestamps_us=dates), stamp_us)


class SpoolKv(_Table):
    """A key/value table to write to; like `fjord.Kv`."""

    def set(self, key: Key, value: Value, **options: Unpack[SetOneOptions]) -> None:
        """Sets the value of `key`; see `Kv.set`.

        Raises:
            DiskFullError: if the disk is full; nothing was written then.
            ValueError: if an option asks for an answer, or for a value that is not kept.
        """
        if options and options.get("also") is not None:
            _check_options(options)
            self._write_set(self._calls().set(key, value, **options).command)
            return
        type_, data = values.encode(value)
        name = entries.encode_key(key)
        if not 0 < len(name) <= limits.KV_KEY_BYTES_MAX or len(data) > limits.VALUE_BYTES_MAX:
            raise _bad_size(len(name), len(data), limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        ttl_us, expires_us = _life(options, stamp_us) if options else (0, 0)
        table = self._table
        head = _pack(SET, type_, 0, len(table), len(name), 0, stamp_us, ttl_us, expires_us)
        self._write(head + table + name + data, stamp_us)

    def set_many(self, items: Mapping[AnyKey, Value], **options: Unpack[SetOptions]) -> None:
        """Sets the values of many keys, all or none; see `Kv.set_many`."""
        _check_options(options)
        self._write_set(self._calls().set_many(items, **options).command)

    def delete(self, key: Key) -> None:
        """Deletes the value of `key`; see `Kv.delete`."""
        name = entries.encode_key(key)
        if not 0 < len(name) <= limits.KV_KEY_BYTES_MAX:
            raise _bad_size(len(name), 0, limits.KV_KEY_BYTES_MAX)
        stamp_us = self._next_us()
        table = self._table
        head = _pack(DELETE, 0, 0, len(table), len(name), 0, stamp_us, 0, 0)
        self._write(head + table + name, stamp_us)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Deletes the values of many keys, in one commit."""
        command = self._calls().delete_many(keys).command
        if isinstance(command, Delete):
            _write_command(self._write, command, command.timestamp_us)

    def _calls(self) -> KvCalls:
        return KvCalls(self._name, self._stamps)

    def _write_set(self, command: Command) -> None:
        if isinstance(command, Nop):
            return  # set_many of nothing
        assert isinstance(command, Set)
        stamp_us = command.timestamps_us[0]
        expires_us = _expiry(command.ttl_us, command.expires_at_us, stamp_us)
        command = replace(command, expires_at_us=expires_us)
        _write_command(self._write, command, stamp_us)


def _is_row(*given: object) -> bool:
    return any(isinstance(one, Mapping) for one in given)


def _write_command(write: Write, command: Push | Append | Set | Delete, stamp_us: int) -> None:
    """Writes a command of many rows, refusing sizes that the daemon would refuse."""
    keys, size = command.keys, len(command.keys.data)
    is_push = type(command) is Push
    key_bytes_max = limits.JOB_KEY_BYTES_MAX if is_push else limits.KV_KEY_BYTES_MAX
    key_bytes, value_bytes = keys.lengths(), 0
    if isinstance(command, Set | Delete) and not min(key_bytes):
        raise _bad_size(0, 0, key_bytes_max)
    if not isinstance(command, Delete):
        size += len(command.values.data)
        value_bytes = max(command.values.lengths())
    if max(key_bytes) > key_bytes_max or value_bytes > limits.VALUE_BYTES_MAX:
        raise _bad_size(max(key_bytes), value_bytes, key_bytes_max)
    if isinstance(command, Push):
        size += len(command.domains.data)
    elif isinstance(command, Set) and command.also is not None:
        size += len(command.also.data)
    if len(keys) > limits.BATCH_ROWS_MAX or size > limits.BATCH_BYTES_MAX:
        raise errors.LocalProtocolError(
            errors.Code.TOO_LARGE,
            f"one call has at most {limits.BATCH_ROWS_MAX} rows and {limits.BATCH_BYTES_MAX} bytes "
            "of keys and values; split it",
        )
    write(of_command(command, stamp_us), stamp_us)


def _job_fields(options: PushOptions, stamp_us: int) -> tuple[int, int, int, bytes]:
    """Returns priority, process date, expiry and domain from options."""
    priority, due, is_relative, expires_us, domain = job_fields(options)
    if due and is_relative:
        due += stamp_us
    if len(domain) > limits.DOMAIN_BYTES_MAX:
        text = f"a domain has at most {limits.DOMAIN_BYTES_MAX} bytes"
        raise errors.LocalProtocolError(errors.Code.BAD_DOMAIN, text)
    return priority, due, expires_us, domain


def _life(options: SetOneOptions, stamp_us: int) -> tuple[int, int]:
    """Returns TTL and expiry from options."""
    _check_options(options)
    ttl_us = entries.duration_us(options.get("ttl"))
    return ttl_us, _expiry(ttl_us, entries.microseconds(options.get("expires_at")), stamp_us)


def _expiry(ttl_us: int, expires_us: int, stamp_us: int) -> int:
    """Returns when a value expires; 0 = never."""
    latest_us = stamp_us + limits.EXPIRY_AHEAD_US_MAX
    if ttl_us > limits.EXPIRY_AHEAD_US_MAX or expires_us > latest_us:
        raise errors.LocalProtocolError(
            errors.Code.BAD_TIMEOUT, "a value expires at most 30 days from now"
        )
    if expires_us or not ttl_us:
        return expires_us
    exact_us = stamp_us + ttl_us
    return min(exact_us + -exact_us % _EXPIRY_STEP_US, latest_us)


def _check_options(options: Mapping[str, Any]) -> None:
    if not options.keys() <= _SET_OPTIONS:
        calls.check_names("set", options, _SET_OPTIONS)
    if not options.get("overwrite", True):
        raise ValueError("a spool cannot tell whether a key exists; leave out overwrite=False")
    if not options.get("persist", True):
        raise ValueError("records of a spool are kept on disk; leave out persist=False")


def _bad_size(key_bytes: int, value_bytes: int, key_bytes_max: int) -> errors.LocalProtocolError:
    code, text = errors.Code.EMPTY_KEY, "a key has at least one byte"
    if value_bytes > limits.VALUE_BYTES_MAX:
        code = errors.Code.VALUE_TOO_LARGE
        text = f"a value has at most {limits.VALUE_BYTES_MAX} bytes"
    elif key_bytes > key_bytes_max:
        code, text = errors.Code.KEY_TOO_LONG, f"a key has at most {key_bytes_max} bytes"
    return errors.LocalProtocolError(code, text)
