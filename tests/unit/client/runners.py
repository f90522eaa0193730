"""Runners over a function that answers: what the shells are tried with."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fjord import commands
from fjord.client.async_connection import AsyncConnection
from fjord.client.blocking.runner import Runner
from fjord.client.listening import Listening
from fjord.client.runner import AsyncRunner
from fjord.commands import Command, Reply

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
