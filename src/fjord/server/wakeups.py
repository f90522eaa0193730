"""Wake-ups that the daemon sends: they say that a table has news, once it is durable.

    ran: note ---> durable: tell ---> sent, and the table rests for a moment
                                       ^                     |
                                       +---- more came ------+---- nothing came: forgotten

Sending never waits.  What the system does not accept is lost: this is counted, and receivers then
only wait until they poll by themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Iterable
from typing import Final

from fjord.clock import Clock
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters
from fjord.wire import wakeups
from fjord.wire.wakeups import Address, Wakeup, What

# A table gets one wake-up in this time.
REST_US: Final = 10_000
# One datagram for a thousand processes takes the system 0.6 ms, and the loop also serves requests:
# after each datagram it sends nothing for so many times as long, except what may be sent at once.
SHARE: Final = 10


class Sender:
    """Sends datagrams to some addresses, and counts them."""

    def __init__(self, addresses: Iterable[Address], identity: int, counters: Counters) -> None:
        self._identity = identity  # random, chosen at the start of the daemon
        self._counters = counters
        self._number = 0
        self._targets = [(_open(address), address) for address in addresses]

    def send(self, table: str, what: What) -> None:
        self._number += 1
        datagram = wakeups.encode(Wakeup(what, table, self._identity, self._number))
        for opened, address in self._targets:
            try:
                opened.sendto(datagram, address)
            except OSError as error:
                self._counters.wakeups_lost += 1
                to = "{}:{}".format(*address)
                logs.note(logging.WARNING, "a wake-up could not be sent", to=to, error=error)
            else:
                self._counters.wakeups += 1

    def close(self) -> None:
        for opened, _ in self._targets:
            opened.close()


class Wakeups:
    """Wake-ups to send, and when; true while there is unsent news."""

    def __init__(self, sender: Sender, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock
        self._news: dict[str, What] = {}  # by table; ran, and perhaps not durable
        self._resting: dict[str, int] = {}  # tables, and until when: those that began first, first
        self._held: dict[str, What] = {}  # news of resting tables
        self._paid_us = 0  # when the time spent on sending is compensated
        self._alarm = Alarm(loop, clock, self._look)

    def __bool__(self) -> bool:
        return bool(self._news)

    def note(self, table: str, what: What) -> None:
        """Records news of what ran."""
        self._news.setdefault(table, what)

    def tell(self) -> None:
        """Sends the news, or holds it for a moment; everything is durable."""
        news, self._news = self._news, {}
        now_us = self._clock.monotonic_us()
        for table, what in news.items():
            if table not in self._resting:
                self._resting[table] = now_us + REST_US
                if self._may_send():
                    self._send(table, what)
                    continue
            self._held.setdefault(table, what)
        self._plan()

    def close(self) -> None:
        self._alarm.stop()
        self._sender.close()

    def _look(self) -> None:
        """Releases tables that have rested, or sends what came meanwhile."""
        now_us = self._clock.monotonic_us()
        begun = itertools.takewhile(lambda item: item[1] <= now_us, self._resting.items())
        for table, _ in list(begun):
            if table in self._held:
                if not self._may_send():
                    break
                self._send(table, self._held.pop(table))
                del self._resting[table]
                self._resting[table] = now_us + REST_US
            else:
                del self._resting[table]
        self._plan()

    def _send(self, table: str, what: What) -> None:
        begun_us = self._clock.monotonic_us()
        self._sender.send(table, what)
        took_us = self._clock.monotonic_us() - begun_us
        self._paid_us = max(self._paid_us, begun_us) + SHARE * took_us

    def _may_send(self) -> bool:
        return self._paid_us <= self._clock.monotonic_us() + REST_US

    def _plan(self) -> None:
        until_us = next(iter(self._resting.values()), None)
        if until_us is not None:
            self._alarm.set(max(until_us, self._paid_us - REST_US))


def _open(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    if wakeups.is_shared(address):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    return opened
