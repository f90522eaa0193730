"""The blocking client where it lets the server wait, against a daemon that follows a script."""

from __future__ import annotations

import threading
import time

import pytest

from fjord.client.connection import Connection
from fjord.commands import Command, Next, Read, Reply, Taken
from fjord.errors import ClosedError, UnavailableError
from tests.unit.client.job_samples import taken_of
from tests.unit.client.runners import Kind, connected
from tests.unit.client.scripted import BUSY, CUT, SILENCE, TOKEN, Answer, Scripted, say, usual
from tests.unit.client.test_socket import SET, both, error_of

NEXT = Next(table="t", count=1, wait_us=20_000_000)
TAKEN = taken_of(b"k")


def keys_of(reply: Reply) -> list[bytes]:
    assert isinstance(reply, Taken)
    return reply.keys.rows()


def silent_to_next(number: int, command: Command) -> Answer:
    return SILENCE if isinstance(command, Next | Read) else say(usual(command))


@pytest.mark.parametrize("waiting", [NEXT, Read(table="t", after=5, wait_us=20_000_000)])
def test_whoever_waits_does_not_hold_up_others(waiting: Command) -> None:
    asked = threading.Event()

    def script(number: int, command: Command) -> Answer:
        asked.set()
        return silent_to_next(number, command)

    found: list[BaseException] = []
    with Scripted(script) as server:
        connection = Connection(server.url, timeout=20)
        threads = [
            threading.Thread(target=lambda: found.append(error_of(connection, waiting)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        assert asked.wait(20)
        assert connection.execute(SET) == TOKEN
        connection.close()  # and whoever waits is told so
        for thread in threads:
            thread.join(timeout=20)
    assert [type(error) for error in found] == [ClosedError] * 3
    numbers = [number for number, command in server.asked if isinstance(command, type(waiting))]
    assert len(numbers) == len(set(numbers))
    assert 1 not in numbers


def test_a_connection_that_waited_is_used_again() -> None:
    with Scripted(lambda number, command: say(TAKEN)) as server:
        connection = Connection(server.url, timeout=20)
        for _ in range(3):
            assert keys_of(connection.execute(NEXT)) == [b"k"]
        assert keys_of(connection.execute(Next(table="t"))) == [b"k"]
        connection.close()
        with pytest.raises(ClosedError):
            connection.execute(NEXT)
    assert [number for number, _ in server.asked] == [2, 2, 2, 1]
    assert len(set(server.clients)) == 1


@both
def test_a_call_that_waits_has_its_own_time_beside(kind: Kind) -> None:
    begun = time.monotonic()
    with (
        Scripted(silent_to_next) as server,
        connected(kind, server, 0.2) as connection,
        pytest.raises(UnavailableError, match="no answer"),
    ):
        connection.execute(Next(table="t", wait_us=300_000))
    assert time.monotonic() - begun >= 0.5


@both
@pytest.mark.parametrize("answer", [CUT, say(BUSY)], ids=["cut", "busy"])
def test_what_waited_already_waits_the_rest_only(kind: Kind, answer: Answer) -> None:
    def script(number: int, command: Command) -> Answer:
        return answer if len(server.asked) == 1 else say(TAKEN)

    with Scripted(script) as server, connected(kind, server) as connection:
        assert keys_of(connection.execute(NEXT)) == [b"k"]
    first, second = server.commands
    assert isinstance(first, Next)
    assert isinstance(second, Next)
    assert 0 < second.wait_us < first.wait_us <= 20_000_000
