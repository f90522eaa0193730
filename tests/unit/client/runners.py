"""Runners over a function that answers: what the shells are tried with."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, cast

from fjord import commands
from fjord.client.async_connection import AsyncConnection
from fjord.client.blocking.runner import Runner
from fjord.client.connection import Connection
from fjord.client.listening import Listening
from fjord.client.runner import AsyncRunner
from fjord.commands import Command, Reply
from tests.unit.client.scripted import Scripted

Result = TypeVar("Result")
Answer = Callable[[Command], Reply]
Listen = Callable[[commands.Listen | commands.ListenJobs], Listening]


def no_listening(command: commands.Listen | commands.ListenJobs) -> Listening:
    raise AssertionError(command)


class Answering:
    """Executes commands by asking a function."""

    def __init__(self, answer: Answer, listen: Listen = no_listening) -> None:
        self.execute = answer
        self.listen = listen

    def close(self) -> None:
        pass


class AsyncAnswering:
    """The same for asyncio."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.address = ("127.0.0.1", 1)
        self.name = "fjord://127.0.0.1:1"

    async def execute(self, command: Command) -> Reply:
        return self._answer(command)


def runner(answer: Answer, name: str = "", listen: Listen = no_listening) -> Runner:
    return Runner(Answering(answer, listen), name)


def async_runner(answer: Answer, name: str = "") -> AsyncRunner:
    return AsyncRunner(cast(AsyncConnection, AsyncAnswering(answer)), name)


# -- connections ----------------------------------------------------------------------------------


class InThread:
    """A connection for asyncio with the calls of the blocking one: its loop runs in a thread."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = self._run(opened(url, timeout))

    def execute(self, command: Command) -> Reply:
        return self._run(self._connection.execute(command))

    def close(self) -> None:
        self._run(closed(self._connection))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=20)
        self._loop.close()

    def _run(self, steps: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(timeout=30)


async def opened(url: str, timeout: float) -> AsyncConnection:
    connection = AsyncConnection(url, timeout=timeout)
    await connection.open()
    return connection


async def closed(connection: AsyncConnection) -> None:
    connection.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


Kind = type[Connection] | type[InThread]


@contextlib.contextmanager
def connected(kind: Kind, server: Scripted, timeout: float = 20) -> Iterator[Connection | InThread]:
    with contextlib.closing(kind(server.url, timeout=timeout)) as connection:
        yield connection
