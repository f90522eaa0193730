"""When a daemon seals: as soon as something is due, or when somebody asks for it.

    nothing due    nothing is looked at until something is written; then once a second at most
    due            a round on the thread for it, see `engine.rounds`; blocks are written by a
                   child process, and the loop only plans and takes note
    failed         logged and counted; the next round begins after a rest that grows

At the stop the child is ended, and the next start seals the same range again.  At the start the
same thread looks whether the blocks are there, and loads ahead what subscribers will read.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final, cast

from fjord import limits
from fjord.clock import Clock
from fjord.commands import Refusal, Reply, SealNow
from fjord.engine.rounds import Rounds
from fjord.errors import ClosedError, Code
from fjord.server import logs, warming
from fjord.server.alarm import Alarm
from fjord.server.origin import Origin
from fjord.server.turns import Turns
from fjord.server.worker import Beside

# Looking whether something is due is worth it only so often.
_LOOK_US: Final = 1_000_000
_WALL_LOOK_US: Final = round(limits.WALL_LOOK_SECONDS_MAX * 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What it works with."""

    rounds: Rounds
    turns: Turns
    beside: Beside  # one thread, which the committer ends
    loop: asyncio.AbstractEventLoop
    clock: Clock
    warming: warming.Parts


class Sealer:
    """Makes rounds of sealing beside the loop, one at a time."""

    def __init__(self, parts: Parts) -> None:
        self._rounds = parts.rounds
        self._turns = parts.turns
        self._beside = parts.beside
        self._clock = parts.clock
        self._warming = parts.warming
        self._alarm = Alarm(parts.loop, parts.clock, self.look)
        self._is_under_way = False
        self._is_stopped = False
        self._told_blocks = 0  # how many the log knows of

    def start(self) -> None:
        """Begins with what a start has to do beside serving."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None and not self._is_stopped:
                logs.note(logging.WARNING, "blocks could not be looked at", error=error)
            self.look()

        self._beside.put(_NOBODY, None, lambda: warming.warm_up(self._warming), finish)

    def look_soon(self) -> None:
        """Looks in a moment whether something is due."""
        self._alarm.set(self._clock.monotonic_us() + _LOOK_US)

    def seal(self, origin: Origin, request: Any, command: SealNow) -> None:
        """Seals everything; answers when that is done."""

        def finish(result: object, error: Exception | None) -> None:
            self._note_blocks()
            if error is not None:
                self._note_failure(error)
                result = _STOPPED if isinstance(error, ClosedError) else _FAILED
            elif isinstance(result, Refusal) and result.code is Code.FAILED:
                logs.note(logging.ERROR, "sealing failed", error=result.text)
            if origin.is_open:
                origin.answer(request, cast(Reply, result))
                origin.flush()
            else:
                origin.forget(request)
            self.look_soon()

        self._beside.put(origin, request, lambda: self._rounds.seal(command), finish)

    def stop(self) -> None:
        """Ends the round that is under way; who waits for one is told so."""
        self._is_stopped = True
        self._alarm.stop()
        self._rounds.stop()
        self._turns.stop()

    def look(self) -> None:
        """Begins a round if one is due, else looks again when it will be."""
        due_us = None if self._is_under_way else self._rounds.due_us()
        if due_us is None:
            return
        now_us = self._clock.wall_us()
        if due_us > now_us:
            self._alarm.set_wall(min(due_us, now_us + _WALL_LOOK_US))
        else:
            self._is_under_way = True
            self._beside.put(_NOBODY, None, self._rounds.round, self._finish_round)

    def _finish_round(self, result: object, error: Exception | None) -> None:
        self._is_under_way = False
        self._note_blocks()
        if error is not None:
            self._note_failure(error)
        self.look_soon()

    def _note_blocks(self) -> None:
        written, self._told_blocks = self._rounds.blocks - self._told_blocks, self._rounds.blocks
        if written:
            logs.note(logging.INFO, "blocks were written", count=written)

    def _note_failure(self, error: Exception) -> None:
        if not self._is_stopped:
            logs.note(logging.ERROR, "sealing failed", error=error)


class Nobody:
    """For whom a round is that is due by itself."""

    client = 0
    is_stalled = False
    is_open = True

    def answer(self, request: Any, reply: Reply) -> None: ...

    def flush(self) -> None: ...

    def forget(self, request: Any) -> None: ...


_NOBODY: Final = Nobody()
_STOPPED: Final = Refusal(code=Code.BUSY, text="the server stops; what is to be sealed stays")
_FAILED: Final = Refusal(code=Code.FAILED, text="sealing failed; the log says why")
