"""A UDP proxy for wake-ups: passes them on, or loses, doubles and reorders them."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from typing import Self

Datagrams = list[bytes]
# Told of a datagram; returns what is passed on instead, now.
Fate = Callable[[bytes], Datagrams]


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
        return port


class Mess:
    """Loses a third, doubles a third, and lets some be overtaken by those behind them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._late: Datagrams = []

    def __call__(self, datagram: bytes) -> Datagrams:
        kind = self._random.randrange(6)
        if kind < 2:
            return []
        if kind < 4:
            return [datagram, datagram]
        if kind == 4:
            self._late.append(datagram)
            return []
        overtaken, self._late = self._late, []
        return [datagram, *reversed(overtaken)]


class WakeProxy:
    """Hears wake-ups at one port of loopback, and passes them on to another."""

    def __init__(self, to: tuple[str, int], fate: Fate) -> None:
        self._to = to
        self._fate = fate
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self.came = self.passed = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"", self._socket.getsockname())  # it is over
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while datagram := self._socket.recv(2048):
            self.came += 1
            for one in self._fate(datagram):
                self.passed += 1
                self._socket.sendto(one, self._to)
