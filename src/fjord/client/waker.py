"""Hearing wake-ups: who waits for them goes on with the next one, or when its time is over.

A wake-up is a hint (see `fjord.wire.wakeups`): whoever is woken asks the daemon, or looks at its
files, and does so without one now and then.  After each look at the socket there is none for a
moment, so that whoever floods it costs a look a moment, and no more.
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

# Between two looks at the socket.
REST_US: Final = 20_000
# Datagrams of one look: more than the system keeps for a socket.
_BURST: Final = 512


class Ear:
    """A socket for wake-ups; tells those that matter from copies, and from whatever else comes."""

    def __init__(self, address: str | int, *, tables: Collection[str] | None = None) -> None:
        """Begins to hear.

        Args:
            address: as `fjord serve --wake` has it: a port, which any number of processes may
                hear, or an address with one, which one process hears.
            tables: those that matter; all unless given.

        Raises:
            FjordError: if the address is not to be had.
            ValueError: if it is none, or not on this machine.
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
        """Takes all that has come; says whether any of it is new and matters."""
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
        """Returns for how long the socket is not to be looked at."""
        return max(0, self._rests_until_us - self._clock.monotonic_us())


class Waker(Ear):
    """Wakes whoever waits when there may be something to do.

    with fjord.Waker(17997, tables=["pages"]) as waker:
        while True:
            look_for_work()
            waker.wait(60)  # so it looks once a minute, and whenever it is woken
    """

    def wait(self, timeout: float, *, stop: socket.socket | None = None) -> bool:
        """Returns True when it is woken, False when `timeout` seconds are over.

        Args:
            timeout: seconds; whatever was lost on its way is found out of after that.
            stop: ends the wait, too, as soon as there is something to read from it.
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
    """Calls what does the work of a job."""
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
            advice = f"; a port alone, {address[1]}, may be heard by any number of processes"
        raise FjordError(
            f"cannot hear wake-ups at {address[0]}:{address[1]}: {error.strerror}{advice}"
        ) from error
    return opened


def _readable(sockets: Collection[socket.socket], timeout_us: int) -> set[int]:
    """Returns which of these have something to read, by descriptor; none when time is over."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(-(-timeout_us // 1000))}
