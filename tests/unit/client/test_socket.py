"""The blocking client against a daemon that follows a script; and what the asyncio one has too."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing

import pytest

import fjord
from fjord import commands, errors
from fjord.client.connection import Connection
from fjord.client.listening import Changes
from fjord.columns import Strings, repeat
from fjord.commands import Changed, Command
from tests.unit.client.runners import InThread, Kind, connected
from tests.unit.client.scripted import (
    BUSY,
    CUT,
    NOW_US,
    SILENCE,
    TOKEN,
    Answer,
    Scripted,
    cut_then_busy,
    last_words,
    say,
    say_and_cut,
    usual,
)

KEYS = Strings.of([b"k"])
GET = commands.Get(table="t", keys=KEYS)
ADD = commands.Modify(
    table="t", key=b"k", change=commands.Change.ADD, operand=bytes(8), timestamp_us=NOW_US
)
SET = commands.Set(
    table="t", keys=KEYS, types=b"\1", values=KEYS, timestamps_us=repeat(NOW_US, 1), overwrite=True
)
LOCK = commands.Lock(table="t", keys=KEYS)
UNLOCK = commands.Unlock(table="t", keys=KEYS)
LISTEN = commands.Listen(table="t", keys=KEYS)

both = pytest.mark.parametrize("kind", [Connection, InThread])


def first_is(answer: Answer) -> Callable[[int, Command], Answer]:
    """A script in which the first request gets `answer`, and all others the usual one."""
    is_first = threading.Event()

    def script(number: int, command: Command) -> Answer:
        if is_first.is_set():
            return say(usual(command))
        is_first.set()
        return answer

    return script


def change(value: bytes) -> Changed:
    return Changed("t", b"k", 1, value, NOW_US, 0)


# -- one connection -------------------------------------------------------------------------------


@both
def test_a_client_says_who_it_is_and_gets_answers(kind: Kind) -> None:
    with Scripted() as server:
        for _ in range(2):
            with connected(kind, server) as connection:
                assert connection.execute(SET) == TOKEN
    assert [len(identity) for identity in server.clients] == [16, 16]
    assert len(set(server.clients)) == 2
    assert server.commands == [SET, SET]


def test_a_closed_client_says_so() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection.close()
        with pytest.raises(errors.ClosedError):
            connection.execute(GET)
        with pytest.raises(errors.ClosedError):
            connection.listen(LISTEN)


def test_a_client_does_not_work_after_a_fork() -> None:
    with Scripted() as server, closing(Connection(server.url, timeout=20)) as connection:
        connection._process = os.getpid() + 1
        with pytest.raises(errors.ClosedError, match="fork"):
            connection.execute(GET)


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(errors.FjordError, match="more than 0"):
        fjord.connect("fjord://127.0.0.1:1", timeout=0)
    with Scripted() as server:
        pass
    with pytest.raises(errors.UnavailableError, match="fjord serve"):
        fjord.connect(server.url)


@both
def test_what_cannot_be_sent_does_not_cost_the_connection(kind: Kind) -> None:
    with Scripted() as server, connected(kind, server) as connection:
        with pytest.raises(errors.LocalProtocolError):
            connection.execute(commands.Get(table="n" * 70_000, keys=KEYS))
        assert connection.execute(SET) == TOKEN
    assert len(server.clients) == 1


# -- connections that break -----------------------------------------------------------------------


@both
@pytest.mark.parametrize("answer", [CUT, say_and_cut(b"JR\0\1")], ids=["no-reply", "half-a-reply"])
def test_what_is_idempotent_is_sent_again_as_it_was(kind: Kind, answer: Answer) -> None:
    with Scripted(first_is(answer)) as server, connected(kind, server) as connection:
        assert connection.execute(SET) == TOKEN
    assert server.asked == [(1, SET), (2, SET)]
    assert len(set(server.clients)) == 1


@both
def test_what_is_not_is_sent_again_with_the_same_number(kind: Kind) -> None:
    with Scripted(first_is(CUT)) as server, connected(kind, server) as connection:
        assert connection.execute(ADD) == usual(ADD)
        assert connection.execute(ADD) == usual(ADD)
    assert server.numbers == [1, 1, 2]
    assert len(set(server.clients)) == 1


@both
def test_tries_go_on_until_one_is_answered(kind: Kind) -> None:
    def script(number: int, command: Command) -> Answer:
        return CUT if number < 4 else say(usual(command))

    with Scripted(script) as server, connected(kind, server) as connection:
        assert connection.execute(ADD) == usual(ADD)
    assert [number for number, _ in server.asked] == [1, 2, 3, 4]
    assert server.numbers == [1, 1, 1, 1]


@both
def test_a_call_ends_when_its_time_is_over(kind: Kind) -> None:
    with (
        Scripted(lambda number, command: CUT) as server,
        connected(kind, server, 0.3) as connection,
        pytest.raises(errors.UnavailableError, match=r"within 0.3 s.*may or may not"),
    ):
        connection.execute(GET)
    assert len(server.asked) > 1


@both
def test_silence_is_no_answer(kind: Kind) -> None:
    with Scripted(first_is(SILENCE)) as server, connected(kind, server, 0.3) as connection:
        with pytest.raises(errors.UnavailableError, match="no answer"):
            connection.execute(GET)
        assert connection.execute(SET) == TOKEN  # on a new connection
    assert [number for number, _ in server.asked] == [1, 2]


@both
@pytest.mark.parametrize(
    "code", [errors.Code.IDLE_TIMEOUT, errors.Code.BUSY, errors.Code.READ_TIMEOUT]
)
def test_a_goodbye_of_the_server_is_a_reason_to_connect_again(
    kind: Kind, code: errors.Code
) -> None:
    script = first_is(say_and_cut(last_words(code)))
    with Scripted(script) as server, connected(kind, server) as connection:
        assert connection.execute(ADD) == usual(ADD)


@both
def test_a_server_that_does_not_understand_is_not_asked_again(kind: Kind) -> None:
    with (
        Scripted(first_is(say_and_cut(last_words(errors.Code.UNKNOWN_FUNCTION)))) as server,
        connected(kind, server) as connection,
        pytest.raises(errors.RemoteProtocolError, match="UNKNOWN_FUNCTION"),
    ):
        connection.execute(ADD)
    assert len(server.asked) == 1


@both
@pytest.mark.parametrize(
    "command", [LOCK, UNLOCK, commands.Touch(table="t", keys=KEYS, worked_until_us=NOW_US)]
)
def test_what_is_never_sent_again_says_so(kind: Kind, command: Command) -> None:
    with (
        Scripted(first_is(CUT)) as server,
        connected(kind, server) as connection,
        pytest.raises(errors.UnavailableError, match="is not retried"),
    ):
        connection.execute(command)
    assert len(server.asked) == 1


def test_what_is_never_sent_again_is_not_sent_to_a_connection_that_is_gone() -> None:
    with Scripted() as server, connected(Connection, server) as connection:
        assert connection.execute(SET) == TOKEN
        server.cut_all()
        assert connection.execute(LOCK) == TOKEN
    assert server.asked == [(1, SET), (2, LOCK)]


# -- busy servers ---------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("command", [SET, LOCK, ADD])
def test_a_busy_server_is_asked_again_on_the_same_connection(kind: Kind, command: Command) -> None:
    with Scripted(first_is(say(BUSY))) as server, connected(kind, server) as connection:
        assert connection.execute(command) == usual(command)
    assert server.asked == [(1, command)] * 2
    assert server.numbers == ([1, 2] if command is ADD else [])


@both
@pytest.mark.parametrize("unwelcome", [[], [2]], ids=["at once", "after another break"])
def test_a_number_is_kept_where_the_first_try_may_have_been_applied(
    kind: Kind, unwelcome: list[int]
) -> None:
    script = cut_then_busy()
    with Scripted(script, unwelcome=unwelcome) as server, connected(kind, server) as connection:
        assert connection.execute(ADD) == usual(ADD)
    assert server.numbers == [1, 1, 1]


@both
def test_a_server_that_stays_busy_is_reported(kind: Kind) -> None:
    with (
        Scripted(lambda number, command: say(BUSY)) as server,
        connected(kind, server, 0.5) as connection,
    ):
        assert connection.execute(SET) == BUSY
    assert len(server.asked) > 1


# -- locks ----------------------------------------------------------------------------------------


@both
def test_with_locks_held_a_break_is_told_and_nothing_sent_again(kind: Kind) -> None:
    def script(number: int, command: Command) -> Answer:
        return CUT if command == SET and number == 1 else say(usual(command))

    with Scripted(script) as server, connected(kind, server) as connection:
        connection.execute(LOCK)
        with pytest.raises(errors.UnavailableError, match="its locks are lost"):
            connection.execute(SET)
        assert connection.execute(SET) == TOKEN  # told once
    assert server.asked == [(1, LOCK), (1, SET), (2, SET)]


@both
def test_locks_lost_while_nothing_was_asked_are_told_to_the_next_call(kind: Kind) -> None:
    with Scripted() as server, connected(kind, server) as connection:
        connection.execute(LOCK)
        server.cut_all()
        with pytest.raises(errors.UnavailableError, match="its locks are lost"):
            connection.execute(GET)
        assert server.commands == [LOCK]
        connection.execute(LOCK)
        connection.execute(UNLOCK)
        server.cut_all()
        assert connection.execute(SET) == TOKEN


def test_a_block_with_locks_gives_them_free_also_after_an_error() -> None:
    with Scripted() as server, fjord.connect(server.url) as db:
        with pytest.raises(KeyError), db.kv("t").locked("k"):
            raise KeyError
        with db.kv("t").locked("k"):
            pass
    assert server.commands == [LOCK, UNLOCK, LOCK, UNLOCK]


def test_a_block_whose_locks_are_lost_raises_why() -> None:
    with (
        Scripted() as server,
        fjord.connect(server.url) as db,
        pytest.raises(errors.UnavailableError, match="locks"),
        db.kv("t").locked("k"),
    ):
        server.cut_all()
        db.kv("t").get("k")
    assert server.commands == [LOCK]


# -- threads --------------------------------------------------------------------------------------


def test_a_thread_does_not_wait_for_others_beyond_its_time() -> None:
    asked = threading.Event()

    def script(number: int, command: Command) -> Answer:
        asked.set()
        return SILENCE

    with Scripted(script) as server, closing(Connection(server.url, timeout=0.5)) as connection:
        thread = threading.Thread(target=error_of, args=(connection,))
        thread.start()
        assert asked.wait(20)
        assert isinstance(error_of(connection), errors.UnavailableError)
        thread.join(timeout=20)


def test_closing_ends_tries_that_are_under_way() -> None:
    asked = threading.Event()

    def script(number: int, command: Command) -> Answer:
        if number == 6:
            asked.set()
        return CUT

    found: list[BaseException] = []
    with Scripted(script) as server:
        connection = Connection(server.url, timeout=60)
        thread = threading.Thread(target=lambda: found.append(error_of(connection)))
        thread.start()
        assert asked.wait(20)
        connection.close()
        thread.join(timeout=20)
    assert isinstance(found[0], errors.ClosedError)


def error_of(connection: Connection, command: Command = GET) -> BaseException:
    with pytest.raises(errors.FjordError) as caught:
        connection.execute(command)
    return caught.value


# -- listening ------------------------------------------------------------------------------------


@pytest.mark.req("FJ-44")
def test_changes_come_before_with_and_after_the_reply() -> None:
    def script(number: int, command: Command) -> Answer:
        return say(change(b"1"), TOKEN, change(b"2"), change(b"3"))

    with Scripted(script) as server, closing(Connection(server.url, timeout=20)) as connection:
        listening: Changes[Changed] = Changes(connection, LISTEN, lambda changed: changed)
        found = iter(listening)
        assert [next(found).value for _ in range(3)] == [b"1", b"2", b"3"]
        listening.close()
        assert list(found) == []
    assert server.asked == [(2, LISTEN)]


def test_a_listener_waits_in_time_and_is_told_to_listen_again_after_a_break() -> None:
    with (
        Scripted(lambda number, command: say(TOKEN, change(b"1"))) as server,
        closing(Connection(server.url, timeout=20)) as connection,
    ):
        listening = connection.listen(LISTEN)
        assert listening.wait(20) == change(b"1")
        assert listening.wait(0) is None
        assert listening.wait(0.01) is None
        server.cut_all()
        with pytest.raises(errors.UnavailableError, match="listen again"):
            listening.wait(20)
        listening.close()
        with pytest.raises(errors.ClosedError):
            listening.wait(0.01)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (say(commands.Refusal(code=errors.Code.LOCKED, text="no")), errors.LockedError),
        (CUT, errors.UnavailableError),
    ],
)
def test_listening_can_be_refused_or_cut(answer: Answer, error: type[Exception]) -> None:
    with (
        Scripted(first_is(answer)) as server,
        closing(Connection(server.url, timeout=20)) as connection,
        pytest.raises(error),
    ):
        connection.listen(LISTEN)


def test_closing_a_listener_wakes_the_thread_that_waits() -> None:
    with Scripted() as server, closing(Connection(server.url, timeout=20)) as connection:
        listening: Changes[Changed] = Changes(connection, LISTEN, lambda changed: changed)
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(list(listening)))
        thread.start()
        listening.close()
        thread.join(timeout=20)
        assert found == [[]]
