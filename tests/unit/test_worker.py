"""One command for one job, in a process of its own."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fjord
from fjord.client.blocking.jobs import Job
from fjord.values import Value
from fjord.worker import JobProcess, bytes_of, reason_of

LONG = 60.0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with fjord.open(tmp_path / "data") as db:
        db.jobs("jobs").push("key", b"value")
        (one,) = db.jobs("jobs").next()
        yield one


@pytest.fixture
def waking() -> Iterator[tuple[socket.socket, socket.socket]]:
    reader, writer = socket.socketpair()
    with reader, writer:
        yield reader, writer


@pytest.fixture
def start(job: Job, waking: tuple[socket.socket, socket.socket]) -> Callable[[str], JobProcess]:
    return lambda command: JobProcess(command, job, wake=waking[0], out=None)


def elapsed() -> Callable[[], float]:
    begun = time.monotonic()
    return lambda: time.monotonic() - begun


def test_it_ends_with_its_exit_code(start: Callable[[str], JobProcess]) -> None:
    for code in (0, 1, 77):
        with start(f"exit {code}") as process:
            assert process.wait(LONG, elapsed()) == code
            assert process.wait(LONG, elapsed()) == code


@pytest.mark.parametrize(
    ("said", "last"),
    [("", b""), ("one\\n", b"one"), ("one\\ntwo", b"two"), ("one\\ntwo\\n\\n  \\n", b"two")],
)
def test_its_last_line_is_kept_and_all_are_passed_on(
    start: Callable[[str], JobProcess],
    capfdbinary: pytest.CaptureFixture[bytes],
    said: str,
    last: bytes,
) -> None:
    with start(f"printf '{said}' >&2") as process:
        assert process.wait(LONG, elapsed()) == 0
        assert process.last_line.strip() == last
    assert capfdbinary.readouterr().err == said.encode().decode("unicode_escape").encode()


def test_a_command_that_never_stops_talking_is_no_reason_to_wait_for_ever(
    start: Callable[[str], JobProcess], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with start("yes >&2") as process:
        assert process.wait(0.3, elapsed()) is None
    assert capfdbinary.readouterr().err.startswith(b"y\ny\n")


def test_a_wait_is_over_in_time_or_when_woken(
    start: Callable[[str], JobProcess], waking: tuple[socket.socket, socket.socket]
) -> None:
    with start("exec sleep 60") as process:
        assert process.wait(0.1, elapsed()) is None
        waking[1].send(b"\0")
        begun = time.monotonic()
        assert process.wait(LONG, elapsed()) is None
        assert time.monotonic() - begun < LONG / 2


def test_the_end_of_a_block_ends_the_command_and_what_it_started(
    start: Callable[[str], JobProcess], tmp_path: Path
) -> None:
    with start(f"sleep 60 & echo $! >{tmp_path}/child; echo begun >&2; wait") as process:
        while process.last_line != b"begun":
            assert process.wait(0.05, elapsed()) is None
        child = int((tmp_path / "child").read_text())
        assert os.getpgid(child) != os.getpgid(0)
        ended = os.pidfd_open(child)
        assert select.select([ended], [], [], 0)[0] == []
    assert select.select([ended], [], [], LONG)[0] == [ended]
    os.close(ended)


def test_a_command_that_ignores_sigterm_is_killed(
    start: Callable[[str], JobProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjord.worker.GRACE_SECONDS", 0.2)
    command = "trap '' TERM; echo begun >&2; while true; do sleep 0.1; done"
    with start(command) as process:
        while process.last_line != b"begun":
            assert process.wait(0.05, elapsed()) is None
        process.end()
        assert process.wait(LONG, elapsed()) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        (1, b"", "exit code 1"),
        (7, b"no such page", "exit code 7: no such page"),
        (7, b" a\x1b[31m\xff ", "exit code 7: a\\x1b[31m\ufffd"),
        (-11, b"", "signal SIGSEGV"),
        (-40, b"x", "signal 40: x"),
    ],
)
def test_a_reason_is_one_clean_line(code: int, line: bytes, reason: str) -> None:
    assert reason_of(code, line) == reason


@pytest.mark.parametrize(
    ("value", "data"),
    [(None, b""), (b"\0", b"\0"), ("\u00e5", b"\xc3\xa5"), (5, b"5"), (False, b"false")],
)
def test_a_value_is_read_as_bytes(value: Value, data: bytes) -> None:
    assert bytes_of(value) == data
