"""Receiving wake-ups.

A wake-up is a hint (see `fjord.wire.wakeups`): a woken process asks the daemon, or checks its
files, and does so from time to time without one.  After each read the socket rests for a moment,
so that a flood of datagrams costs little.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Collection
from typing import Any, Final, Self

from fjord.clock import SystemClock
from fjord.errors import FjordError
from fjord.wire import wakeups
from fjord.wire.wakeups import Address, Heard

# Between two reads of the socket.
REST_US: Final = 20_000
# Datagrams of one read: more than the system buffers for a socket.
_BURST: Final = 512


class Ear:
    """A socket for wake-ups, which ignores duplicates and other datagrams."""

    def __init__(self, address: str | int, *, tables: Collection[str] | None = None) -> None:
        """Begins to listen.

        Args:
            address: as for `fjord serve --wake`: a port, on which any number of processes can
                listen, or a loopback address with a port, for one process.
            tables: react to these tables only; by default to all.

        Raises:
            FjordError: if the address cannot be used.
            ValueError: if it is not a loopback address or port.
        """
        self._tables = None if tables is None else frozenset(tables)
        self._heard = Heard()
        self._clock = SystemClock()
        self._rests_until_us = 0
        self.socket = _bind(wakeups.parse_address(address))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> bool:
        """Reads all datagrams; says whether any is a new wake-up for our tables."""
        self._rests_until_us = self._clock.monotonic_us() + REST_US
        is_woken = False
        for _ in range(_BURST):
            try:
                datagram = self.socket.recv(wakeups.WAKEUP_BYTES_MAX + 1)
            except BlockingIOError:
                break
            found = wakeups.decode(datagram)
            if found is not None and self._heard.is_new(found):
                is_woken |= self._tables is None or found.table in self._tables
        return is_woken

    def rest_us(self) -> int:
        """Returns how long the socket still rests."""
        return max(0, self._rests_until_us - self._clock.monotonic_us())


class Waker(Ear):
    """Waits until there may be something to do.

    with fjord.Waker(17997, tables=["pages"]) as waker:
        while True:
            look_for_work()  # at each wake-up, and at least once a minute
            waker.wait(60)
    """

    def wait(self, timeout: float, *, stop: socket.socket | None = None) -> bool:
        """Returns True at a wake-up, False after `timeout` seconds.

        Args:
            timeout: seconds; also the longest delay if a wake-up is lost.
            stop: a socket that ends the wait when it becomes readable.
        """
        until_us = self._clock.monotonic_us() + round(timeout * 1_000_000)
        others = [] if stop is None else [stop]
        while (left_us := until_us - self._clock.monotonic_us()) > 0:
            rest_us = self.rest_us()
            heard = [] if rest_us else [self.socket]
            ready = _readable([*heard, *others], min(rest_us or left_us, left_us))
            if stop is not None and stop.fileno() in ready:
                return False
            if ready and self.take():
                return True
        return False


def pause(seconds: float) -> None:
    SystemClock().pause(seconds)


def call_handler(handler: Callable[[Any], object], job: object) -> None:
    handler(job)


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if wakeups.is_shared(address):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        opened.close()
        advice = ""
        if error.errno == errno.EADDRINUSE:
            advice = f"; for several processes, give the port alone: {address[1]}"
        raise FjordError(
            f"cannot listen for wake-ups at {address[0]}:{address[1]}: {error.strerror}{advice}"
        ) from error
    return opened


def _readable(sockets: Collection[socket.socket], timeout_us: int) -> set[int]:
    """Returns the descriptors of readable sockets; none after the timeout."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(-(-timeout_us // 1000))}
