"""Requests that may wait for jobs or messages, or that lead into cold blocks.

Such a request is run like any other.  The committer passes its reply here once it is durable.  If
the reply is empty, and the request may wait, it is parked by the rules of `engine.waits`, and run
again when something arrives.  If it leads into a block, that is read on another thread, and the
loop continues.

    its wait ends               a NEXT is run once more, and answered with whatever there is;
                                a READ gets an empty answer with its position
    its connection is closed    forgotten; jobs already taken for it are given back
    its peer ends its side      an empty answer: a worker that died looks like that
    its peer reads no replies   others have their turn; it is run again when the peer does
    the daemon stops            an empty answer

A subscriber is a row of the index: only a waiting request costs anything here.  Parts of blocks
that are kept in memory for subscribers are released when the connection that read them is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from fjord import commands
from fjord.clock import Clock
from fjord.commands import Command, Next, Read, Refusal, Reply
from fjord.engine.cold import Errand, LazyCold
from fjord.engine.news import News
from fjord.engine.waits import Stage, Wait, Waits
from fjord.errors import Code
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters
from fjord.server.origin import After, Origin
from fjord.server.threads import ThreadPool

# Subscribers inside blocks that are tracked per connection; others are released when idle.
_INSIDE_MAX: Final = 256


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingRequest(Wait):
    """A request that may wait, or lead into blocks, and its owner."""

    origin: Origin
    request: Any
    errand: Errand | None = None  # once it has come to a block


# Runs a command with the next group, see `Committer.submit`.
Submit = Callable[[Origin, Any, Command, After | None, WaitingRequest | None], None]


class WaitingRequests:
    """All requests that may wait or lead into blocks."""

    def __init__(
        self,
        submit: Submit,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
        readers: ThreadPool,
        cold: LazyCold | None,
    ) -> None:
        self._submit = submit
        # Gives back jobs that were taken for a worker that is gone.
        self.give_back: Callable[[commands.Fail], None] = lambda fail: None
        self._clock = clock
        self._counters = counters
        self._readers = readers  # of blocks
        self._cold = cold
        self._waits: Waits[WaitingRequest] = Waits()
        # All that are parked, woken or set aside.
        self.by_origin: dict[Origin, dict[WaitingRequest, None]] = {}
        # Tables and subscribers that were last read with inside blocks, the latest ones last.
        self._inside: dict[Origin, dict[tuple[str, str], None]] = {}
        self._alarm = Alarm(loop, clock, self._look)
        self.news: list[News] = []  # of groups that are durable with the next replies
        self.is_unplanned = False  # a request was parked since the alarm was set

    # -- called by sessions -----------------------------------------------------------------------

    def begin(self, origin: Origin, request: Any, command: Command) -> None:
        """Runs a command, and lets a NEXT or READ wait if it finds nothing."""
        wait_us = command.wait_us if isinstance(command, Next | Read) else 0
        deadline_us = self._clock.monotonic_us() + wait_us if wait_us else 0
        wait = WaitingRequest(
            origin=origin, request=request, command=command, deadline_us=deadline_us
        )
        self._submit(origin, request, command, None, wait)

    def end(self, origin: Origin) -> None:
        """Ends the waits of a peer that has ended its side."""
        found = list(self.by_origin.get(origin, ()))
        for wait in found:
            nothing = self._waits.end(wait)
            if nothing is not None:
                self._answer(wait, nothing)
        if found:
            origin.flush()

    def drop(self, origin: Origin) -> None:
        """Forgets the waits of a closed connection; running requests come back first."""
        for wait in list(self.by_origin.get(origin, ())):
            if self._waits.end(wait) is not None:
                self.forget(wait)
        for table, subscriber in self._inside.pop(origin, ()):
            self._rest(table, subscriber)

    # -- called by the committer ------------------------------------------------------------------

    def settle(self, wait: WaitingRequest, reply: Reply) -> None:
        """Handles a durable reply: answers, parks the request, or reads a block."""
        origin = wait.origin
        if type(reply) is not commands.Taken:
            found = self._follow(wait, reply)
            if found is None:
                self._ask(wait)
                return
            reply = found
        if wait.deadline_us and self._is_parked(wait, reply):
            return
        is_wanted = origin.is_open and wait.stage is not Stage.ENDED
        if type(reply) is commands.Taken and reply.first_xid and not is_wanted:
            self._give_back(wait, reply)
            reply = wait.nothing or reply
        self._answer(wait, reply)

    def set_aside(self, wait: WaitingRequest) -> bool:
        """Sets a request aside whose peer reads no replies, if others could take its jobs."""
        if wait.stage is not Stage.WOKEN or not isinstance(wait.command, Next):
            return False
        self._waits.set_aside(wait)
        self._run_woken()
        return True

    def forget(self, wait: WaitingRequest) -> None:
        """Drops a request that is not run, since its peer is gone."""
        if wait.nothing is not None:
            self._leave(wait)
        wait.origin.forget(wait.request)

    def release(self) -> None:
        """Runs requests again that were set aside, if the peer now reads its replies."""
        for wait in [one for one in self._waits.aside if not one.origin.is_stalled]:
            self._waits.resume(wait)
        self._run_woken()

    def go_on(self) -> None:
        """Wakes requests that the news may satisfy, after all replies of a group."""
        news, self.news = self.news, []
        self.is_unplanned = False
        if not self.by_origin:
            return
        for one in news:
            if one.arrivals:
                self._waits.arrive(one.arrivals, self._clock.wall_us())
            if one.appended:
                self._waits.append(one.appended)
        self._run_woken()
        self._plan()

    def stop(self) -> None:
        """Answers all waiting requests; from now on none waits."""
        self._waits.stop()
        for origin in list(self.by_origin):
            self.end(origin)
        self.close()

    def close(self) -> None:
        self._alarm.stop()

    # -- one request ------------------------------------------------------------------------------

    def _is_parked(self, wait: WaitingRequest, reply: Reply) -> bool:
        """Parks a request that found nothing and may wait; returns whether it did."""
        origin = wait.origin
        may_wait = origin.is_open and not origin.is_ending
        if not self._waits.settle(wait, reply, self._clock.monotonic_us(), may_wait=may_wait):
            return False
        self.by_origin.setdefault(origin, {})[wait] = None
        self._counters.parked_waits = self._waits.parked
        self.is_unplanned = True
        return True

    def _answer(self, wait: WaitingRequest, reply: Reply) -> None:
        if type(reply) is Refusal and reply.code is Code.CORRUPT:
            logs.note(logging.ERROR, "the requested data is damaged", error=reply.text)
        if not wait.origin.is_open:
            self.forget(wait)
            return
        if wait.nothing is not None:
            self._leave(wait)
        wait.origin.answer(wait.request, reply)

    def _leave(self, wait: WaitingRequest) -> None:
        """Ends the wait of one that was parked before."""
        mine = self.by_origin.get(wait.origin)
        if mine is not None:
            mine.pop(wait, None)
            if not mine:
                del self.by_origin[wait.origin]
        self._waits.leave(wait)
        self._run_woken()

    def _run(self, wait: WaitingRequest) -> None:
        command = wait.command if wait.errand is None else wait.errand.command
        self._submit(wait.origin, wait.request, command, None, wait)

    def _run_woken(self) -> None:
        for wait in self._waits.take_woken():
            self._run(wait)
        self._counters.parked_waits = self._waits.parked

    def _give_back(self, wait: WaitingRequest, taken: commands.Taken) -> None:
        """Gives back jobs whose worker is gone, instead of waiting for their leases to expire."""
        xids = range(taken.first_xid, taken.first_xid + len(taken.rows))
        table = cast(Next, wait.command).table
        self.give_back(commands.Fail(table=table, xids=xids, counts=False))

    # -- blocks -----------------------------------------------------------------------------------

    def _follow(self, wait: WaitingRequest, reply: Reply) -> Reply | None:
        """Returns the answer; None if a block must be read."""
        answer: Reply | None = reply
        if wait.errand is not None or type(reply) in (commands.InBlock, commands.Replies):
            wait.errand = wait.errand or Errand(wait.command)
            answer = wait.errand.take(reply)
        cold = self._cold
        if answer is not None and cold is not None and cold.reader is not None:
            cold.note(wait.command, answer)
        return answer

    def _ask(self, wait: WaitingRequest) -> None:
        """Reads a block on another thread, then answers or runs the command again."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None:
                logs.note(logging.ERROR, "a block cannot be read", error=error, trace=error)
                result = Refusal(code=Code.FAILED, text="reading a block failed; see the log")
            if result is None:
                self._run(wait)
                return
            if isinstance(result, commands.Messages) and isinstance(wait.command, Read):
                self._note_inside(wait.origin, wait.command)
            self._answer(wait, cast(Reply, result))
            wait.origin.flush()

        errand, cold = wait.errand, self._cold
        assert errand is not None
        self._readers.put(wait.origin, lambda: errand.look(cold), finish, lambda: self.forget(wait))

    def _note_inside(self, origin: Origin, command: Read) -> None:
        """Notes who holds parts of blocks, to release them when the connection is closed."""
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

    # -- dates and deadlines ----------------------------------------------------------------------

    def _plan(self) -> None:
        """Sets the alarm for the end of a wait, and for the next date."""
        self._alarm.set(self._waits.deadline_us())
        self._alarm.set_wall(self._waits.look_us(self._clock.wall_us()))

    def _look(self) -> None:
        """Ends expired waits, and wakes requests whose date has come."""
        over = self._waits.expire(self._clock.monotonic_us())
        for wait in over:
            assert wait.nothing is not None
            self._answer(wait, wait.nothing)
        for origin in dict.fromkeys(wait.origin for wait in over):
            origin.flush()
        self._waits.reach(self._clock.wall_us())
        self._run_woken()
        self._plan()
