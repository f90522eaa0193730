"""Requests that wait for jobs: a NEXT that finds nothing is answered when there is something.

A NEXT is run like any other command.  If it comes back with nothing and may wait, it is parked as
a `Taking`, which stands in for its session from then on: it stays a request under way, and is run
again by the rules of `engine.waits`.  Its reply leaves when it is durable, like any other reply.

    its time is over            run once more, and answered with whatever there is
    its connection is closed    forgotten; jobs that were taken for it already are given back
    its peer sends no more      answered with nothing: a worker that died looks like that
    its peer takes no replies   others have their turn; it is run again when the peer does
    the daemon stops            answered with nothing
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, cast

from fjord.clock import Clock
from fjord.commands import Fail, Next, Refusal, Reply, Taken
from fjord.engine.waits import Arrivals, Ranked, Waits, is_empty
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.counters import Counters
from fjord.server.origin import Origin, Patient, Submit


class Stage(enum.Enum):
    """How far a NEXT is."""

    RESUMED = enum.auto()  # it is run after it was aside, and may be parked then
    PARKED = enum.auto()
    WOKEN = enum.auto()  # it is run again, since there may be something
    ASIDE = enum.auto()  # its peer takes no replies
    LAST = enum.auto()  # it is run, and answered with whatever comes
    ENDED = enum.auto()  # it is run, but nobody may be there to work on what comes


class Taking:
    """A NEXT under way, in the place of the session that asked for it."""

    __slots__ = (
        *("_waiting", "client", "command", "deadline_us", "nothing", "origin", "request"),
        "stage",
    )

    def __init__(
        self, waiting: Waiting, origin: Origin, request: Any, command: Next, deadline_us: int
    ) -> None:
        self._waiting = waiting
        self.origin = origin
        self.client = origin.client
        self.request = request
        self.command = command
        self.deadline_us = deadline_us  # monotonic: when its wait is over
        self.nothing: Taken | None = None  # what it last came back with
        self.stage = Stage.PARKED

    @property
    def is_stalled(self) -> bool:
        return self.origin.is_stalled

    @property
    def is_open(self) -> bool:
        """One that is woken must not be held back, as others could take its jobs meanwhile."""
        return self.origin.is_open and self.stage is not Stage.WOKEN

    def answer(self, request: Any, reply: Reply) -> None:
        self._waiting.settle(self, reply)

    def flush(self) -> None:
        self.origin.flush()

    def forget(self, request: Any) -> None:
        self._waiting.set_aside(self)


class Nobody:
    """In whose name jobs are given back: takes every reply, and tells the log of refusals."""

    client = 0
    is_stalled = False
    is_open = True

    def answer(self, request: Any, reply: Reply) -> None:
        if type(reply) is Refusal:
            logs.note(logging.WARNING, "jobs could not be given back", code=reply.code)

    def flush(self) -> None: ...

    def forget(self, request: Any) -> None: ...


class Waiting:
    """All requests that wait for jobs."""

    def __init__(
        self,
        submit: Submit,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._submit = submit
        self._clock = clock
        self._counters = counters
        self._waits: Waits[Taking] = Waits()  # those that are parked or woken
        self.tickets = self._waits.tickets  # of the same
        self._by_origin: dict[Origin, dict[Taking, None]] = {}  # all that may wait
        self._deadlines: Ranked[Taking] = Ranked()  # of those that are parked
        self._aside: dict[Taking, None] = {}
        self._alarm = Alarm(loop, clock, self._look)
        self._is_stopped = False
        self.is_unplanned = False  # somebody was parked since the alarm was set

    # -- called by sessions -----------------------------------------------------------------------

    def begin(self, origin: Patient, request: Any, command: Next) -> None:
        """Runs a NEXT, and lets it wait if it finds nothing."""
        deadline_us = self._clock.monotonic_us() + command.wait_us if command.wait_us else 0
        self._submit(origin, request, command, None, partial(self._settle_first, deadline_us))

    def end(self, origin: Origin) -> None:
        """Lets a peer that sends no more wait no more."""
        found = list(self._by_origin.get(origin, ()))
        for taking in found:
            if taking.stage is Stage.RESUMED:
                taking.stage = Stage.LAST
            elif taking.stage is Stage.WOKEN:
                taking.stage = Stage.ENDED
            elif taking.stage in _IDLE:
                self._answer_nothing(taking)
        if found:
            origin.flush()

    def drop(self, origin: Origin) -> None:
        """Forgets what a connection waited for that is closed; what is run comes back first."""
        for taking in list(self._by_origin.get(origin, ())):
            if taking.stage in _IDLE:
                self._leave(taking)
                origin.forget(taking.request)

    # -- called by the committer ------------------------------------------------------------------

    def settle(self, taking: Taking, reply: Reply) -> None:
        """Takes a reply that is durable: parks the request, or answers it."""
        origin = taking.origin
        if type(reply) is Taken:
            if is_empty(reply) and self._may_wait(taking):
                self._park(taking, reply)
                return
            if reply.first_xid and (not origin.is_open or taking.stage is Stage.ENDED):
                self._give_back(taking.command.table, reply)
                assert taking.nothing is not None or not origin.is_open
                reply = taking.nothing or reply
        self._leave(taking)
        if origin.is_open:
            origin.answer(taking.request, reply)
        else:
            origin.forget(taking.request)

    def set_aside(self, taking: Taking) -> None:
        """Takes back one that was not run: its peer takes no replies, or is gone."""
        self._leave(taking)
        if taking.origin.is_open:
            taking.stage = Stage.ASIDE
            self._aside[taking] = None
            self._by_origin.setdefault(taking.origin, {})[taking] = None
        else:
            taking.origin.forget(taking.request)

    def release(self) -> None:
        """Runs again what was set aside, where the peer takes its replies by now."""
        for taking in [one for one in self._aside if not one.is_stalled]:
            del self._aside[taking]
            taking.stage = Stage.RESUMED
            self._submit(taking, taking.request, taking.command)

    def go_on(self, arrivals: Arrivals) -> None:
        """Wakes who may find something, after all replies of a group were given."""
        if self._waits.tickets:
            if arrivals:
                self._wake(self._waits.arrive(arrivals, self._clock.wall_us()))
            self._plan()

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
        self, deadline_us: int, origin: Patient, request: Any, command: Next, reply: Reply
    ) -> bool:
        """Takes the first reply, which is durable: says whether the request is answered with it."""
        if not origin.is_open:
            if type(reply) is Taken and reply.first_xid:
                self._give_back(command.table, reply)
            origin.forget(request)
            return False
        if not deadline_us or not is_empty(reply) or origin.is_ending or self._is_stopped:
            return True
        if self._clock.monotonic_us() >= deadline_us:
            return True
        self._park(Taking(self, origin, request, command, deadline_us), cast(Taken, reply))
        return False

    def _may_wait(self, taking: Taking) -> bool:
        return (
            taking.stage in _PARKING
            and taking.origin.is_open
            and not self._is_stopped
            and self._clock.monotonic_us() < taking.deadline_us
        )

    def _park(self, taking: Taking, reply: Taken) -> None:
        taking.nothing = reply
        taking.stage = Stage.PARKED
        self.is_unplanned = True
        self._by_origin.setdefault(taking.origin, {})[taking] = None
        self._waits.park(taking, reply.next_at_us)
        self._deadlines.put(taking, taking.deadline_us)
        self._counters.parked_waits = len(self._deadlines)

    def _wake(self, some: Iterable[Taking]) -> None:
        for taking in some:
            self._deadlines.discard(taking)
            taking.stage = Stage.WOKEN
            self._submit(taking, taking.request, taking.command)
        self._counters.parked_waits = len(self._deadlines)

    def _leave(self, taking: Taking) -> None:
        """Ends the wait of one, and wakes others if it was woken and they were not."""
        mine = self._by_origin.get(taking.origin)
        if mine is not None:
            mine.pop(taking, None)
            if not mine:
                del self._by_origin[taking.origin]
        self._aside.pop(taking, None)
        self._deadlines.discard(taking)
        self._wake(self._waits.leave(taking))

    def _answer_nothing(self, taking: Taking) -> None:
        self._leave(taking)
        assert taking.nothing is not None
        taking.origin.answer(taking.request, taking.nothing)

    def _give_back(self, table: str, taken: Taken) -> None:
        """Lets others have jobs whose worker is gone; their leases would last for long."""
        xids = range(taken.first_xid, taken.first_xid + len(taken.rows))
        self._submit(_NOBODY, None, Fail(table=table, xids=xids, counts=False))

    # -- dates and deadlines ----------------------------------------------------------------------

    def _plan(self) -> None:
        """Sets the alarm for the end of a wait, and for the next date."""
        self.is_unplanned = False
        deadline_us = self._deadlines.first()
        if deadline_us is not None:
            self._alarm.set(deadline_us)
        look_us = self._waits.look_us(self._clock.wall_us())
        if look_us is not None:
            self._alarm.set_wall(look_us)

    def _look(self) -> None:
        """Goes on with those whose time is over, and wakes others whose date has come."""
        monotonic_us = self._clock.monotonic_us()
        while (taking := self._deadlines.pop(monotonic_us)) is not None:
            self._leave(taking)
            taking.stage = Stage.LAST
            self._submit(taking, taking.request, taking.command)
        self._wake(self._waits.reach(self._clock.wall_us()))
        self._plan()


_NOBODY: Final = Nobody()
# Not with the committer.
_IDLE: Final = frozenset({Stage.PARKED, Stage.ASIDE})
# Whoever comes back with nothing at such a stage may be parked.
_PARKING: Final = frozenset({Stage.RESUMED, Stage.WOKEN})
