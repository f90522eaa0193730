"""Requests that read streams: they may wait for messages, and may lead into cold blocks.

A READ is run like any other command.  If it comes back with nothing and may wait, it is parked by
its table as a `Reading`, which stands in for its session from then on; whatever is appended there
runs all of them again, once it is durable.  If it comes back with a block, that is read on another
thread, and the loop goes on; so it is with other requests that blocks say the rest of.

    its time is over            answered with nothing, and where to read on
    its connection is closed    forgotten
    its peer sends no more      answered with nothing
    the daemon stops            answered with nothing

A subscriber is a row of the index: only a request that waits costs something here.  Parts of blocks
that are in memory for subscribers go when the connection is closed that read with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from fjord.clock import Clock
from fjord.commands import Command, InBlock, Messages, Read, Refusal, Replies, Reply
from fjord.engine.cold import Errand, LazyCold
from fjord.engine.waits import Ranked, Readers, is_read_empty
from fjord.errors import Code
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters
from fjord.server.origin import Origin, Patient, Submit
from fjord.server.worker import Beside

# Subscribers inside blocks that are known of one connection; those beyond go when they are idle.
_INSIDE_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What it works with."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    counters: Counters
    submit: Submit
    beside: Beside  # threads that read blocks
    cold: LazyCold | None


class Reading:
    """A request under way, in the place of the session that asked for it."""

    __slots__ = (
        *("_reads", "client", "command", "deadline_us", "errand", "nothing", "origin"),
        "request",
    )

    def __init__(self, reads: Reads, origin: Origin, request: Any, command: Command) -> None:
        self._reads = reads
        self.origin = origin
        self.client = origin.client
        self.request = request
        self.command = command
        self.errand = Errand(command)
        self.deadline_us = 0  # monotonic: when its wait is over; 0 = it does not wait
        self.nothing: Reply | None = None  # what it came back with, while it is parked

    @property
    def is_stalled(self) -> bool:
        return self.origin.is_stalled

    @property
    def is_open(self) -> bool:
        return self.origin.is_open

    def answer(self, request: Any, reply: Reply) -> None:
        self._reads.settle(self, reply)

    def flush(self) -> None:
        self.origin.flush()

    def forget(self, request: Any) -> None:
        self._reads.forget(self)


class Reads:
    """All requests that read streams."""

    def __init__(self, parts: Parts) -> None:
        self._submit = parts.submit
        self._clock = parts.clock
        self._counters = parts.counters
        self._beside = parts.beside
        self._cold = parts.cold
        self._parked: Readers[Reading] = Readers()
        self._by_origin: dict[Origin, dict[Reading, None]] = {}  # all that may wait
        self._deadlines: Ranked[Reading] = Ranked()  # of those that are parked
        # Tables and subscribers that were last read with inside blocks, the latest ones last.
        self._inside: dict[Origin, dict[tuple[str, str], None]] = {}
        self.appended: set[str] = set()  # tables, of which nobody who waits knows yet
        self._alarm = Alarm(parts.loop, parts.clock, self._look)
        self._is_stopped = False

    # -- called by sessions -----------------------------------------------------------------------

    def begin(self, origin: Patient, request: Any, command: Command) -> None:
        """Runs a command, and lets a READ wait if it finds nothing."""
        wait_us = command.wait_us if type(command) is Read else 0
        deadline_us = self._clock.monotonic_us() + wait_us if wait_us else 0
        self._submit(origin, request, command, None, partial(self._settle_first, deadline_us))

    def end(self, origin: Origin) -> None:
        """Lets a peer that sends no more wait no more."""
        found = list(self._by_origin.get(origin, ()))
        for reading in found:
            reading.deadline_us = 0
            if reading.nothing is not None:
                self._answer(reading, reading.nothing)
        if found:
            origin.flush()

    def drop(self, origin: Origin) -> None:
        """Forgets what a connection waited for that is closed; what is run comes back first."""
        for reading in list(self._by_origin.get(origin, ())):
            if reading.nothing is not None:
                self.forget(reading)
        for table, subscriber in self._inside.pop(origin, ()):
            self._rest(table, subscriber)

    # -- called by the committer ------------------------------------------------------------------

    def settle(self, reading: Reading, reply: Reply) -> None:
        """Takes a reply that is durable: answers, parks the request, or asks a block."""
        answer = reading.errand.take(reply)
        if answer is None:
            self._ask(reading)
            return
        if self._cold is not None:
            self._cold.note(reading.command, answer)
        if is_read_empty(reading.command, answer) and self._may_wait(reading):
            self._park(reading, answer)
        else:
            self._answer(reading, answer)

    def forget(self, reading: Reading) -> None:
        """Takes leave of one that is not run, since nobody is there any more."""
        self._leave(reading)
        reading.origin.forget(reading.request)

    def note(self, appended: Iterable[str]) -> None:
        """Takes note of streams that got messages."""
        self.appended.update(appended)

    def go_on(self) -> None:
        """Runs again who waits for what came, after all replies of a group were given."""
        if self.appended:
            appended, self.appended = self.appended, set()
            for reading in self._parked.wake(appended):
                self._deadlines.discard(reading)
                reading.nothing = None
                self._submit(reading, reading.request, reading.errand.command)
            self._counters.parked_reads = len(self._deadlines)

    def stop(self) -> None:
        """Answers all who wait; from now on nobody waits."""
        self._is_stopped = True
        for origin in list(self._by_origin):
            self.end(origin)
        self.close()

    def close(self) -> None:
        self._alarm.stop()

    # -- one request ------------------------------------------------------------------------------

    def _settle_first(
        self, deadline_us: int, origin: Patient, request: Any, command: Command, reply: Reply
    ) -> bool:
        """Takes the first reply, which is durable: says whether the request is answered with it."""
        is_block = type(reply) is InBlock or (
            type(reply) is Replies and InBlock in map(type, reply.replies)
        )
        if is_block or (deadline_us and is_read_empty(command, reply)):
            reading = Reading(self, origin, request, command)
            if deadline_us and not origin.is_ending and not self._is_stopped:
                reading.deadline_us = deadline_us
                self._by_origin.setdefault(origin, {})[reading] = None
            self.settle(reading, reply)
            return False
        if self._cold is not None:
            self._cold.note(command, reply)
        if not origin.is_open:
            origin.forget(request)
            return False
        if type(reply) is Refusal:
            _note_damage(reply)
        return True

    def _may_wait(self, reading: Reading) -> bool:
        return reading.origin.is_open and self._clock.monotonic_us() < reading.deadline_us

    def _park(self, reading: Reading, reply: Reply) -> None:
        reading.nothing = reply
        self._parked.park(cast(Read, reading.command).table, reading)
        self._deadlines.put(reading, reading.deadline_us)
        self._counters.parked_reads = len(self._deadlines)
        self._alarm.set(reading.deadline_us)

    def _ask(self, reading: Reading) -> None:
        """Reads a block on another thread, then answers or runs the command again."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None:
                logs.note(logging.ERROR, "a block cannot be read", error=error, trace=error)
                result = Refusal(code=Code.FAILED, text="reading a block failed; see the log")
            if result is None:
                self._submit(reading, reading.request, reading.errand.command)
            else:
                if isinstance(result, Messages) and isinstance(reading.command, Read):
                    self._note_inside(reading.origin, reading.command)
                self._answer(reading, cast(Reply, result))
                reading.flush()

        errand, cold = reading.errand, self._cold
        self._beside.put(reading, reading.request, lambda: errand.look(cold), finish)

    def _note_inside(self, origin: Origin, command: Read) -> None:
        """Takes note of who holds parts of blocks, for the moment when its connection is closed."""
        if not command.subscriber:
            return
        if not origin.is_open:
            self._rest(command.table, command.subscriber)
            return
        mine = self._inside.setdefault(origin, {})
        mine.pop((command.table, command.subscriber), None)
        mine[command.table, command.subscriber] = None
        if len(mine) > _INSIDE_MAX:
            del mine[next(iter(mine))]

    def _rest(self, table: str, subscriber: str) -> None:
        if self._cold is not None:
            self._cold.rest(table, subscriber)

    def _answer(self, reading: Reading, reply: Reply) -> None:
        if type(reply) is Refusal:
            _note_damage(reply)
        self._leave(reading)
        if reading.origin.is_open:
            reading.origin.answer(reading.request, reply)
        else:
            reading.origin.forget(reading.request)

    def _leave(self, reading: Reading) -> None:
        """Ends the wait of one."""
        if reading.nothing is not None:
            reading.nothing = None
            self._parked.leave(cast(Read, reading.command).table, reading)
            self._deadlines.discard(reading)
            self._counters.parked_reads = len(self._deadlines)
        mine = self._by_origin.get(reading.origin)
        if mine is not None:
            mine.pop(reading, None)
            if not mine:
                del self._by_origin[reading.origin]

    def _look(self) -> None:
        """Answers those whose time is over."""
        origins: dict[Origin, None] = {}
        while (reading := self._deadlines.pop(self._clock.monotonic_us())) is not None:
            assert reading.nothing is not None
            origins[reading.origin] = None
            self._answer(reading, reading.nothing)
        for origin in origins:
            origin.flush()
        deadline_us = self._deadlines.first()
        if deadline_us is not None:
            self._alarm.set(deadline_us)


def _note_damage(refusal: Refusal) -> None:
    if refusal.code is Code.CORRUPT:
        logs.note(logging.ERROR, "what was asked for is damaged", error=refusal.text)
