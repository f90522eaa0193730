"""A line: one connection at a time; what it does where it is closed by another thread.

How it sends again is shown in test_socket.py, through the connection that has it.
"""

from __future__ import annotations

import threading
import uuid

import pytest

from fjord.client.address import parse_url
from fjord.client.calls import Client, Deadline, InFlight
from fjord.client.connection import Line
from fjord.clock import SystemClock
from fjord.errors import ClosedError
from tests.unit.client.scripted import TOKEN, Scripted
from tests.unit.client.test_socket import SET


def line_to(server: Scripted, closing: threading.Event) -> Line:
    return Line(parse_url(server.url), Client(uuid.uuid4().bytes), closing, timeout=20)


def soon() -> Deadline:
    return Deadline(SystemClock(), 20)


def test_a_line_connects_when_it_is_first_used() -> None:
    with Scripted() as server:
        line = line_to(server, threading.Event())
        line.interrupt()  # there is nothing to interrupt
        line.disconnect()
        assert server.clients == []
        request = InFlight(Client(b"c" * 16), SET)
        assert line.run(request, soon()) == TOKEN
        assert len(server.clients) == 1
        line.disconnect()
        assert line.run(request, soon()) == TOKEN
        assert len(server.clients) == 2
        line.disconnect()


def test_a_line_that_is_interrupted_goes_on_unless_it_is_closed() -> None:
    closing = threading.Event()
    with Scripted() as server:
        line = line_to(server, closing)
        request = InFlight(Client(b"c" * 16), SET)
        assert line.run(request, soon()) == TOKEN
        line.interrupt()
        assert line.run(request, soon()) == TOKEN
        closing.set()
        line.interrupt()
        with pytest.raises(ClosedError):
            line.run(request, soon())


def test_no_connection_is_made_for_a_line_that_is_closed() -> None:
    closing = threading.Event()
    closing.set()
    with Scripted() as server:
        line = line_to(server, closing)
        with pytest.raises(ClosedError):
            line.run(InFlight(Client(b"c" * 16), SET), soon())
        assert server.commands == []
