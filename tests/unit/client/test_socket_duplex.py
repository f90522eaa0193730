"""One connection: replies of any size, in any pieces, within a deadline."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fjord import limits
from fjord.client.calls import Deadline
from fjord.client.connection import Duplex
from fjord.clock import SystemClock
from fjord.columns import Strings
from fjord.commands import Changed, Entries, Get, Listen
from fjord.wire import encode_change
from tests.unit.client.scripted import NOW_US, TOKEN, entries, reply_to
from tests.unit.wire.test_link import set_of

CLOCK = SystemClock()
GET = Get(table="t", keys=Strings.of([b"k"]))
LISTEN = Listen(table="t", keys=Strings.of([b"k"]))


def reply_of(size: int, identifier: int = 1) -> tuple[Entries, bytes]:
    """Returns a reply with values of so many bytes, and the message."""
    reply = entries(*[(1, bytes([size % 251]) * limits.MIB)] * (size // limits.MIB), (1, b"end"))
    return reply, reply_to(Get, identifier, reply)


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[Duplex]:
    """Connects to a server that talks like this."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                talk(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        duplex = Duplex(listener.getsockname(), CLOCK, Deadline(CLOCK, 20))
        try:
            yield duplex
        finally:
            duplex.close()
            thread.join()


@pytest.mark.parametrize("mebibytes", [0, 1, 9])
@pytest.mark.parametrize("piece", [10_000, 10_000_000])
def test_a_reply_comes_whole_in_whatever_pieces(mebibytes: int, piece: int) -> None:
    def talk(peer: socket.socket) -> None:
        for identifier in (1, 2):
            peer.recv(1000)
            _, message = reply_of(mebibytes * limits.MIB, identifier)
            for at in range(0, len(message), piece):
                peer.sendall(message[at : at + piece])

    wanted, _ = reply_of(mebibytes * limits.MIB)
    with serving(talk) as duplex:
        found = [duplex.exchange(GET, Deadline(CLOCK, 20)) for _ in range(2)]
    assert found == [wanted, wanted]


def test_what_comes_before_a_large_reply_is_kept() -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(listening + encode_change(1, change))
        peer.recv(1000)
        peer.sendall(encode_change(1, change) + reply_of(2 * limits.MIB, 2)[1])

    change = Changed("t", b"k", 1, b"v", NOW_US, 0)
    listening = reply_to(Listen, 1, TOKEN)
    with serving(talk) as duplex:
        duplex.exchange(LISTEN, Deadline(CLOCK, 20))
        assert duplex.exchange(GET, Deadline(CLOCK, 20)) == reply_of(2 * limits.MIB)[0]
        assert list(duplex.changes) == [change, change]


def test_what_comes_behind_a_reply_is_there_at_the_next_look() -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(reply_to(Listen, 1, TOKEN) + encode_change(1, change) * 2)
        peer.recv(1000)

    change = Changed("t", b"k", 1, b"v", NOW_US, 0)
    with serving(talk) as duplex:
        assert duplex.exchange(LISTEN, Deadline(CLOCK, 20)) == TOKEN
        assert duplex.is_over()  # as far as requests go that are sent once
        duplex.wait_for_changes(Deadline(CLOCK, 20))
        assert list(duplex.changes) == [change, change]
        assert not duplex.is_over()


def test_a_large_request_that_nobody_reads_is_no_answer_in_time() -> None:
    def talk(peer: socket.socket) -> None:
        done.wait(20)

    done = threading.Event()
    large = set_of(bytes(limits.MIB), 11)
    with serving(talk) as duplex:
        with pytest.raises(BlockingIOError):
            duplex.exchange(large, Deadline(CLOCK, 0.3))
        done.set()


def test_a_connection_that_ends_in_a_large_reply_is_broken() -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(reply_of(2 * limits.MIB)[1][:-1])

    with serving(talk) as duplex, pytest.raises(ConnectionResetError):
        duplex.exchange(GET, Deadline(CLOCK, 20))


def test_a_large_reply_that_takes_too_long_is_no_answer() -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(reply_of(2 * limits.MIB)[1][: limits.MIB])
        peer.recv(1000)  # until it is closed

    with serving(talk) as duplex, pytest.raises(BlockingIOError):
        duplex.exchange(GET, Deadline(CLOCK, 0.3))
