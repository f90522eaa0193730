"""Requests that may wait for jobs or messages, or that cold blocks say the rest of.

Such a request is run like any other.  The committer hands its reply over once it is durable.  If
that is nothing, and the request may wait, it is parked by the rules of `engine.waits`, and run
again when something came.  If it leads into a block, that is read on another thread, and the loop
goes on.

    its time is over            a NEXT is run once more, and answered with whatever there is;
                                a READ is answered with nothing, and where to read on
    its connection is closed    forgotten; jobs that were taken for it already are given back
    its peer sends no more      answered with nothing: a worker that died looks like that
    its peer takes no replies   others have their turn; it is run again when the peer does
    the daemon stops            answered with nothing

A subscriber is a row of the index: only a request that waits costs something here.  Parts of blocks
that are in memory for subscribers go when the connection is closed that read with them.
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

# Subscribers inside blocks that are known of one connection; those beyond go when they are idle.
_INSIDE_MAX: Final = 256


@dataclass(slots=True, kw_only=True, eq=False)
class WaitingRequest(Wait):
    """A request that may wait, or lead into blocks, and whose it is."""

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
        # All that are parked, woken or aside.
        self.by_origin: dict[Origin, dict[WaitingRequest, None]] = {}
        # Tables and subscribers that were last read with inside blocks, the latest ones last.
        self._inside: dict[Origin, dict[tuple[str, str], None]] = {}
        self._alarm = Alarm(loop, clock, self._look)
        self.news: list[News] = []  # of groups that are durable with the next replies
        self.is_unplanned = False  # somebody was parked since the alarm was set

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
        """Lets a peer that sends no more wait no more."""
        found = list(self.by_origin.get(origin, ()))
        for wait in found:
            nothing = self._waits.end(wait)
            if nothing is not None:
                self._answer(wait, nothing)
        if found:
            origin.flush()

    def drop(self, origin: Origin) -> None:
        """Forgets what a connection waited for that is closed; what is run comes back first."""
        for wait in list(self.by_origin.get(origin, ())):
            if self._waits.end(wait) is not None:
                self.forget(wait)
        for table, subscriber in self._inside.pop(origin, ()):
            self._rest(table, subscriber)

    # -- called by the committer ------------------------------------------------------------------

    def settle(self, wait: WaitingRequest, reply: Reply) -> None:
        """Takes a reply that is durable: answers, parks the request, or asks a block."""
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
        """Takes back one whose peer takes no replies, if others could have its jobs meanwhile."""
        if wait.stage is not Stage.WOKEN or not isinstance(wait.command, Next):
            return False
        self._waits.set_aside(wait)
        self._run_woken()
        return True

    def forget(self, wait: WaitingRequest) -> None:
        """Takes leave of one that is not run, since nobody is there any more."""
        if wait.nothing is not None:
            self._leave(wait)
        wait.origin.forget(wait.request)

    def release(self) -> None:
        """Runs again what was set aside, where the peer takes its replies by now."""
        for wait in [one for one in self._waits.aside if not one.origin.is_stalled]:
            self._waits.resume(wait)
        self._run_woken()

    def go_on(self) -> None:
        """Wakes who may find something in the news, after all replies of a group were given."""
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
        """Answers all who wait; from now on nobody waits."""
        self._waits.stop()
        for origin in list(self.by_origin):
            self.end(origin)
        self.close()

    def close(self) -> None:
        self._alarm.stop()

    # -- one request ------------------------------------------------------------------------------

    def _is_parked(self, wait: WaitingRequest, reply: Reply) -> bool:
        """Parks a request that found nothing and may wait for more; says whether it did."""
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
            logs.note(logging.ERROR, "what was asked for is damaged", error=reply.text)
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
        """Lets others have jobs whose worker is gone; their leases would last for long."""
        xids = range(taken.first_xid, taken.first_xid + len(taken.rows))
        table = cast(Next, wait.command).table
        self.give_back(commands.Fail(table=table, xids=xids, counts=False))

    # -- blocks -----------------------------------------------------------------------------------

    def _follow(self, wait: WaitingRequest, reply: Reply) -> Reply | None:
        """Returns what to answer; None if it takes a look into a block."""
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

    # -- dates and deadlines ----------------------------------------------------------------------

    def _plan(self) -> None:
        """Sets the alarm for the end of a wait, and for the next date."""
        self._alarm.set(self._waits.deadline_us())
        self._alarm.set_wall(self._waits.look_us(self._clock.wall_us()))

    def _look(self) -> None:
        """Goes on with those whose time is over, and wakes others whose date has come."""
        over = self._waits.expire(self._clock.monotonic_us())
        for wait in over:
            assert wait.nothing is not None
            self._answer(wait, wait.nothing)
        for origin in dict.fromkeys(wait.origin for wait in over):
            origin.flush()
        self._waits.reach(self._clock.wall_us())
        self._run_woken()
        self._plan()
