"""The blocking client against a daemon that follows a script."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest

import fjord
from fjord.client.connection import Connection
from fjord.client.listening import Changes
from fjord.clock import SystemClock
from fjord.columns import Strings, repeat
from fjord.commands import (
    Change,
    Changed,
    Command,
    Get,
    Listen,
    Lock,
    Modify,
    Refusal,
    Set,
    Touch,
    Unlock,
)
from fjord.errors import (
    ClosedError,
    Code,
    FjordError,
    LocalProtocolError,
    LockedError,
    RemoteProtocolError,
    UnavailableError,
)
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
GET = Get(table="t", keys=KEYS)
ADD = Modify(table="t", key=b"k", change=Change.ADD, operand=bytes(8), timestamp_us=NOW_US)
SET = Set(
    table="t", keys=KEYS, types=b"\1", values=KEYS, timestamps_us=repeat(NOW_US, 1), overwrite=True
)
LOCK = Lock(table="t", keys=KEYS)
UNLOCK = Unlock(table="t", keys=KEYS)
LISTEN = Listen(table="t", keys=KEYS)


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


def test_a_client_says_who_it_is_and_gets_answers() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(SET) == TOKEN
        connection.close()
    (identity,) = server.clients
    assert len(identity) == 16
    assert [type(command) for command in server.commands] == [Set]


class CountingClock(SystemClock):
    """Says how often it was read."""

    reads = 0

    def monotonic_us(self) -> int:
        self.reads += 1
        return super().monotonic_us()


def test_a_call_reads_the_clock_once() -> None:
    clock = CountingClock()
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection._clock = clock
        for command in (SET, GET, ADD):
            connection.execute(command)
        connection.close()
    assert clock.reads == 3


def test_clients_have_names_of_their_own() -> None:
    with Scripted() as server:
        for _ in range(2):
            Connection(server.url, timeout=20).close()
    assert len(set(server.clients)) == 2


def test_a_closed_client_says_so() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection.close()
        with pytest.raises(ClosedError):
            connection.execute(GET)
        with pytest.raises(ClosedError):
            connection.listen(LISTEN)


def test_a_client_does_not_work_after_a_fork() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection._process = os.getpid() + 1
        with pytest.raises(ClosedError, match="fork"):
            connection.execute(GET)
        connection.close()


def test_a_timeout_must_be_one() -> None:
    with pytest.raises(FjordError, match="more than 0"):
        fjord.connect("fjord://127.0.0.1:1", timeout=0)


def test_nobody_there_is_said_at_once() -> None:
    with Scripted() as server:
        pass
    with pytest.raises(UnavailableError, match="fjord serve"):
        fjord.connect(server.url)


def test_a_peer_that_is_no_server_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_http, args=(listener,))
        thread.start()
        with pytest.raises(RemoteProtocolError, match="no Fjord server"):
            fjord.connect(f"fjord://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(timeout=20)


def answer_http(listener: socket.socket) -> None:
    stream, _ = listener.accept()
    with stream:
        stream.recv(1000)
        stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_what_cannot_be_sent_does_not_cost_the_connection() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        with pytest.raises(LocalProtocolError):
            connection.execute(Get(table="n" * 70_000, keys=KEYS))
        assert connection.execute(SET) == TOKEN
        connection.close()
    assert len(server.clients) == 1


# -- connections that break -----------------------------------------------------------------------


@pytest.mark.parametrize("answer", [CUT, say_and_cut(b"JR\0\1")], ids=["no-reply", "half-a-reply"])
def test_what_is_idempotent_is_sent_again_as_it_was(answer: Answer) -> None:
    with Scripted(first_is(answer)) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(SET) == TOKEN
        connection.close()
    assert server.asked == [(1, SET), (2, SET)]
    assert len(set(server.clients)) == 1


def test_what_is_not_is_sent_again_with_the_same_number() -> None:
    with Scripted(first_is(CUT)) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(ADD) == usual(ADD)
        assert connection.execute(ADD) == usual(ADD)
        connection.close()
    numbers = server.numbers
    assert numbers == [1, 1, 2]
    assert len(set(server.clients)) == 1


def test_tries_go_on_until_one_is_answered() -> None:
    def script(number: int, command: Command) -> Answer:
        return CUT if number < 4 else say(usual(command))

    with Scripted(script) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(ADD) == usual(ADD)
        connection.close()
    assert [number for number, _ in server.asked] == [1, 2, 3, 4]


def test_a_call_ends_when_its_time_is_over() -> None:
    with Scripted(lambda number, command: CUT) as server:
        connection = Connection(server.url, timeout=0.3)
        with pytest.raises(UnavailableError, match=r"within 0.3 s.*may or may not"):
            connection.execute(GET)
        connection.close()
    assert len(server.asked) > 1


def test_silence_is_no_answer() -> None:
    with Scripted(first_is(SILENCE)) as server:
        connection = Connection(server.url, timeout=0.3)
        with pytest.raises(UnavailableError, match="no answer"):
            connection.execute(GET)
        assert connection.execute(SET) == TOKEN  # on a new connection
        connection.close()
    assert [number for number, _ in server.asked] == [1, 2]


@pytest.mark.parametrize("code", [Code.IDLE_TIMEOUT, Code.BUSY, Code.READ_TIMEOUT])
def test_a_goodbye_of_the_server_is_a_reason_to_connect_again(code: Code) -> None:
    with Scripted(first_is(say_and_cut(last_words(code)))) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(ADD) == usual(ADD)
        connection.close()


def test_a_server_that_does_not_understand_is_not_asked_again() -> None:
    with Scripted(first_is(say_and_cut(last_words(Code.UNKNOWN_FUNCTION)))) as server:
        connection = Connection(server.url, timeout=20)
        with pytest.raises(RemoteProtocolError, match="UNKNOWN_FUNCTION"):
            connection.execute(ADD)
        connection.close()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "command", [LOCK, UNLOCK, Touch(table="t", keys=KEYS, worked_until_us=NOW_US)]
)
def test_what_is_never_sent_again_says_so(command: Command) -> None:
    with Scripted(first_is(CUT)) as server:
        connection = Connection(server.url, timeout=20)
        with pytest.raises(UnavailableError, match="is not retried"):
            connection.execute(command)
        connection.close()
    assert len(server.asked) == 1


def test_what_is_never_sent_again_is_not_sent_to_a_connection_that_is_gone() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(SET) == TOKEN
        server.cut_all()
        assert connection.execute(LOCK) == TOKEN
        connection.close()
    assert server.asked == [(1, SET), (2, LOCK)]


# -- busy servers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [SET, LOCK])
def test_a_busy_server_is_asked_again_on_the_same_connection(command: Command) -> None:
    with Scripted(first_is(say(BUSY))) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(command) == usual(command)
        connection.close()
    assert [number for number, _ in server.asked] == [1, 1]
    assert server.commands[0] == server.commands[1]


@pytest.mark.parametrize("unwelcome", [[], [2]], ids=["at once", "after another break"])
def test_a_number_is_kept_where_the_first_try_may_have_been_applied(unwelcome: list[int]) -> None:
    with Scripted(cut_then_busy(), unwelcome=unwelcome) as server:
        connection = Connection(server.url, timeout=20)
        assert connection.execute(ADD) == usual(ADD)
        connection.close()
    numbers = server.numbers
    assert numbers == [1, 1, 1]


def test_a_server_that_stays_busy_is_reported() -> None:
    with Scripted(lambda number, command: say(BUSY)) as server:
        connection = Connection(server.url, timeout=0.5)
        assert connection.execute(SET) == BUSY
        connection.close()
    assert len(server.asked) > 1


# -- locks ----------------------------------------------------------------------------------------


def test_with_locks_held_a_break_is_told_and_nothing_sent_again() -> None:
    def script(number: int, command: Command) -> Answer:
        return CUT if isinstance(command, Set) and number == 1 else say(usual(command))

    with Scripted(script) as server:
        connection = Connection(server.url, timeout=20)
        connection.execute(LOCK)
        with pytest.raises(UnavailableError, match="its locks are lost"):
            connection.execute(SET)
        assert connection.execute(SET) == TOKEN  # told once
        connection.close()
    assert server.asked == [(1, LOCK), (1, SET), (2, SET)]


def test_with_locks_held_nothing_is_sent_on_a_connection_that_is_gone() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection.execute(LOCK)
        server.cut_all()
        with pytest.raises(UnavailableError, match="its locks are lost"):
            connection.execute(SET)
        connection.close()
    assert server.commands == [LOCK]


def test_locks_given_free_do_not_hinder() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        connection.execute(LOCK)
        connection.execute(UNLOCK)
        server.cut_all()
        assert connection.execute(SET) == TOKEN
        connection.close()


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
        pytest.raises(UnavailableError, match="locks"),
        db.kv("t").locked("k"),
    ):
        server.cut_all()
        db.kv("t").get("k")
    assert server.commands == [LOCK]


# -- threads --------------------------------------------------------------------------------------


def test_many_threads_share_one_client() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        threads = [
            threading.Thread(target=lambda: [connection.execute(ADD) for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        connection.close()
    numbers = server.numbers
    assert numbers == list(range(1, 201))


def test_a_thread_does_not_wait_for_others_beyond_its_time() -> None:
    asked = threading.Event()

    def script(number: int, command: Command) -> Answer:
        asked.set()
        return SILENCE

    with Scripted(script) as server:
        connection = Connection(server.url, timeout=0.5)
        thread = threading.Thread(target=fails, args=(connection,))
        thread.start()
        assert asked.wait(20)
        with pytest.raises(UnavailableError):
            connection.execute(GET)
        thread.join(timeout=20)
        connection.close()


def fails(connection: Connection) -> None:
    with pytest.raises(UnavailableError):
        connection.execute(GET)


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
    assert isinstance(found[0], ClosedError)


def error_of(connection: Connection, command: Command = GET) -> BaseException:
    with pytest.raises(FjordError) as caught:
        connection.execute(command)
    return caught.value


# -- listening ------------------------------------------------------------------------------------


@pytest.mark.req("FJ-44")
def test_changes_come_before_with_and_after_the_reply() -> None:
    def script(number: int, command: Command) -> Answer:
        return say(change(b"1"), TOKEN, change(b"2"), change(b"3"))

    with Scripted(script) as server:
        connection = Connection(server.url, timeout=20)
        listening: Changes[Changed] = Changes(connection, LISTEN, lambda changed: changed)
        found = iter(listening)
        assert [next(found).value for _ in range(3)] == [b"1", b"2", b"3"]
        listening.close()
        assert list(found) == []
        connection.close()
    assert server.asked == [(2, LISTEN)]


def test_waiting_for_a_change_ends_with_its_timeout() -> None:
    with Scripted(lambda number, command: say(TOKEN, change(b"1"))) as server:
        connection = Connection(server.url, timeout=20)
        listening = connection.listen(LISTEN)
        assert listening.wait(20) == change(b"1")
        assert listening.wait(0) is None
        assert listening.wait(0.01) is None
        listening.close()
        with pytest.raises(ClosedError):
            listening.wait(0.01)
        connection.close()


def test_a_listener_whose_connection_breaks_is_told_to_listen_again() -> None:
    with Scripted(lambda number, command: say_and_cut(TOKEN, change(b"1"))) as server:
        connection = Connection(server.url, timeout=20)
        listening = connection.listen(LISTEN)
        assert listening.wait(20) == change(b"1")
        with pytest.raises(UnavailableError, match="listen again"):
            listening.wait(20)
        listening.close()
        connection.close()


def test_a_listener_that_is_too_slow_is_told_so() -> None:
    words = last_words(Code.SLOW_CONSUMER, "too slow")
    with Scripted(lambda number, command: say_and_cut(TOKEN, words)) as server:
        connection = Connection(server.url, timeout=20)
        listening = connection.listen(LISTEN)
        with pytest.raises(FjordError, match="SLOW_CONSUMER"):
            listening.wait(20)
        listening.close()
        connection.close()


def test_listening_can_be_refused_or_cut() -> None:
    refusal = Refusal(code=Code.LOCKED, text="no")
    with Scripted(first_is(say(refusal))) as server:
        connection = Connection(server.url, timeout=20)
        with pytest.raises(LockedError):
            connection.listen(LISTEN)
        connection.close()
    with Scripted(first_is(CUT)) as server:
        connection = Connection(server.url, timeout=20)
        with pytest.raises(UnavailableError, match="is not retried"):
            connection.listen(LISTEN)
        connection.close()


def test_closing_a_listener_wakes_the_thread_that_waits() -> None:
    with Scripted() as server:
        connection = Connection(server.url, timeout=20)
        listening: Changes[Changed] = Changes(connection, LISTEN, lambda changed: changed)
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(list(listening)))
        thread.start()
        listening.close()
        thread.join(timeout=20)
        assert found == [[]]
        connection.close()
