"""How a forwarder is woken: by a PING from a writer, and by file system events.

The forwarder sets a flag before it sleeps, and checks the files once more.  A writer
checks the flag, which costs little, and sends a PING only if it is set.  So a PING costs nothing
while the forwarder works, and none is missed.

If configured, a writer also sends a wake-up over UDP with each PING, or with each write if it
cannot see the flag.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import socket
import uuid
from collections.abc import Iterator
from typing import Final

from fjord.client.spool.files import COMMON
from fjord.disk import OpenFile, is_full
from fjord.wire import Function, wakeups
from fjord.wire.fields import MAGIC_REQUEST, REQUEST, VERSION
from fjord.wire.wakeups import Address, Wakeup, What

# The message of the protocol, in one datagram.
PING: Final = REQUEST.pack(MAGIC_REQUEST, VERSION, Function.PING, 0, 0, 0)
_SOCKET: Final = "forwarder.sock"
_ADDRESS_BYTES_MAX: Final = 107  # of a Unix socket
_DATAGRAM_BYTES: Final = 64
_EVENTS_BYTES: Final = 64 * 1024

# Of inotify(7): a file was written to, made, or given its name; without waiting.
_MODIFY, _MOVED_TO, _CREATE = 0x02, 0x80, 0x100
_NONBLOCK: Final = os.O_NONBLOCK | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Flag(OpenFile):
    """One byte shared by processes: whether the forwarder is asleep and needs a PING.

    It is read and written by calls, not mapped: whoever cuts the file short must not be able to
    end the processes of others.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "asleep")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | COMMON, 0o600)

    def is_set(self) -> bool:
        return os.pread(self._fd, 1, 0) == b"\1"

    def put(self, *, is_set: bool) -> None:
        """Sets the flag; a full disk is ignored, since there are other ways to wake."""
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, b"\1" if is_set else b"\0", 0)


class Bell:
    """The writer's side: wakes a sleeping forwarder."""

    def __init__(self, directory: str, wake: Address | None = None) -> None:
        self._directory = directory
        self._wake = wake
        self._flag: Flag | None = None
        self.renew()
        # A full disk, or a forwarder that is another user, is no reason not to write: there are
        # file events too, and it looks for itself now and then.
        with contextlib.suppress(OSError):
            self._flag = Flag(directory)
        #: Says whether to ring; is asked after every write.  Without a flag it is not known who
        #: sleeps, and only a wake-up gets through.
        self.is_wanted = self._flag.is_set if self._flag else lambda: wake is not None

    def renew(self) -> None:
        """Takes a new sender number, after a fork."""
        self._identity = 0 if self._wake is None else uuid.uuid4().int >> 64
        self._numbers = itertools.count(1)

    def ring(self) -> None:
        """Sends a PING; failures are ignored, since the record is written."""
        if self._wake is not None:
            self._send_wakeup(self._wake)
        try:
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
                socket_address(self._directory) as address,
            ):
                sender.sendto(PING, address)
        except OSError as error:
            # Its buffer is full, it is another user's, or there is no descriptor left.
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED) and self._flag is not None:
                self._flag.put(is_set=False)  # it is gone, and looks at all files when it is back

    def _send_wakeup(self, address: Address) -> None:
        found = Wakeup(What.WRITTEN, wakeups.SPOOL, self._identity, next(self._numbers))
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with (
            contextlib.suppress(OSError),  # as with a PING that nobody hears
            socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
        ):
            if wakeups.is_shared(address):
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(wakeups.encode(found), address)


class Doorbell:
    """The forwarder's side: two descriptors for `poll`, and the flag."""

    def __init__(self, directory: str) -> None:
        self._flag: Flag | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._events = _watch(directory)
        try:
            with socket_address(directory, is_new=True) as address:
                self._socket.bind(address)
            self._flag = Flag(directory)
        except OSError as error:
            # A full disk gets empty by what is sent, so it must not be in the way, and neither is a
            # flag of another user; nobody rings, but there are file events, and looks now and then.
            if not is_full(error) and not isinstance(error, PermissionError):
                self.close()
                raise
        #: Readable when there is work.
        self.descriptors = [fd for fd in (self._socket.fileno(), self._events) if fd is not None]

    def sleep(self) -> None:
        """Asks writers for a PING.  The caller must check the files once more after this."""
        if self._flag is not None:
            self._flag.put(is_set=True)
        self._take_note()  # of the flag itself, which is a file too

    def wake(self) -> None:
        """Discards all PINGs and events so far."""
        if self._flag is not None:
            self._flag.put(is_set=False)
        self._take_note()

    def _take_note(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(_DATAGRAM_BYTES):
                pass
        if self._events is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._events, _EVENTS_BYTES):
                    pass

    def close(self) -> None:
        if self._flag is not None:
            self._flag.put(is_set=False)
            self._flag.close()
        self._socket.close()
        if self._events is not None:
            os.close(self._events)


def _watch(directory: str) -> int | None:
    """Returns a descriptor for file events of a directory; None if there are none."""
    fd: int = _libc.inotify_init1(_NONBLOCK)
    if fd < 0:
        return None
    wanted = _MODIFY | _MOVED_TO | _CREATE
    if _libc.inotify_add_watch(fd, os.fsencode(directory), wanted) < 0:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def socket_address(directory: str, *, is_new: bool = False) -> Iterator[str]:
    """Yields the address of the forwarder's socket, also if the path is too long for one.

    Args:
        is_new: what is left there of an earlier forwarder is removed.
    """
    path = os.path.join(directory, _SOCKET)
    if is_new:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_SOCKET}"
    finally:
        os.close(fd)
