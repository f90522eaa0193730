"""Hearing wake-ups: what wakes, what does not, and how little a flood costs."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fjord.client import waker
from fjord.client.async_waker import AsyncWaker
from fjord.client.waker import Waker
from fjord.errors import FjordError
from fjord.wire.wakeups import EVERYBODY, SPOOL, Wakeup, What, encode

LONG = 60.0  # more than any of this takes; who is woken does not wait for it
SHORT = 0.05  # for those that are not woken


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
        return port


class Sender:
    """Sends datagrams to a port."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)

    def send(self, number: int = 1, table: str = "pages", what: What = What.ARRIVED) -> None:
        self.send_bytes(encode(Wakeup(what, table, 7, number)))

    def send_bytes(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self.address)

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def sender() -> Iterator[Sender]:
    found = Sender("127.0.0.1", free_port())
    yield found
    found.close()


@contextmanager
def hearing(sender: Sender, *tables: str) -> Iterator[Waker]:
    host, port = sender.address
    with Waker(f"{host}:{port}", tables=tables or None) as found:
        yield found


def test_only_what_matters_and_is_new_wakes(sender: Sender) -> None:
    with hearing(sender, "pages", "mails") as found:
        sender.send(1, "others")
        sender.send_bytes(b"FW")
        sender.send_bytes(b"")
        sender.send_bytes(b"x" * 5000)
        sender.send(2, SPOOL, What.WRITTEN)
        assert not found.wait(SHORT)
        sender.send(3, "mails")
        assert found.wait(LONG)
        sender.send(3, "mails")  # a copy
        assert not found.wait(SHORT)


def test_a_flood_costs_one_look_in_a_while(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    take = Waker.take

    def counted(self: Waker) -> bool:
        looks.append(self._clock.monotonic_us())
        return take(self)

    monkeypatch.setattr(Waker, "take", counted)
    with hearing(sender, "pages") as found:
        stop = threading.Event()

        def flood() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                sender.send(number, "others")
                sender.send_bytes(b"noise")

        thread = threading.Thread(target=flood)
        thread.start()
        assert not found.wait(0.5)
        stop.set()
        thread.join(LONG)
    between = [after - before for before, after in itertools.pairwise(looks)]
    assert looks
    assert [took_us for took_us in between if took_us < waker.REST_US] == []


def test_a_socket_that_says_stop_ends_the_wait(sender: Sender) -> None:
    reader, writer = socket.socketpair()
    with hearing(sender) as found, reader, writer:
        writer.send(b"\0")
        assert not found.wait(LONG, stop=reader)
        sender.send()
        assert not found.wait(LONG, stop=reader)  # it stays told


def test_a_port_alone_is_heard_by_any_number() -> None:
    port = free_port(EVERYBODY)
    sender = Sender(EVERYBODY, port)
    with Waker(port) as one, Waker(str(port)) as other:
        sender.send()
        assert one.wait(LONG)
        assert other.wait(LONG)
    sender.close()


def test_an_address_is_heard_by_one(sender: Sender) -> None:
    with (
        hearing(sender),
        pytest.raises(FjordError, match=r"for several processes, give the port alone"),
    ):
        Waker("{}:{}".format(*sender.address))


def test_ipv6_has_loopback_too() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
        other.bind(("::1", 0))
        port = other.getsockname()[1]
    with (
        Waker(f"[::1]:{port}") as found,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other,
    ):
        other.sendto(encode(Wakeup(What.DUE, "t", 1, 1)), ("::1", port))
        assert found.wait(LONG)


@pytest.mark.parametrize("address", ["192.0.2.1:5", "nowhere", 0])
def test_what_is_no_address_opens_nothing(address: str | int) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="wake-ups"):
        Waker(address)
    assert len(os.listdir("/proc/self/fd")) == len(before)


# -- asyncio --------------------------------------------------------------------------------------


def test_it_works_with_asyncio(sender: Sender) -> None:
    async def main() -> list[bool]:
        with AsyncWaker("{}:{}".format(*sender.address), tables=["pages"]) as found:
            woken = [await found.wait(SHORT)]
            sender.send(1)
            woken.append(await found.wait(LONG))
            waiting = asyncio.create_task(found.wait(LONG))
            sender.send(2, "others")
            sender.send(1)
            sender.send(3)
            woken.append(await waiting)
            sender.send(3)
            woken.append(await found.wait(SHORT))
        return woken

    assert asyncio.run(main()) == [False, True, True, False]
