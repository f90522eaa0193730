"""A daemon's cold blocks: reading them, and writing them when they are due.

    nothing due    nothing is checked until something is written; then once a second at most
    due            a round on the sealer's thread, see `engine.sealing`; a child process writes
                   the blocks, and the loop only plans and records them
    failed         logged and counted; the next round begins after a growing delay

At the stop the child is ended, and the next start seals the same range again.

Positions of subscribers and the list of blocks are in the index, so requests are served at once
after a start.  Then the sealer's thread checks the metadata files of all blocks, and for recently
active subscribers it loads the part of a block that they read next; a bounded number of them, the
latest first.

Blocks need large, optional libraries: without them a daemon works, but closed history stays in the
journal.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, cast

from fjord import commands, limits
from fjord.blocks.child import NodeBlocks, missing_libraries
from fjord.clock import Clock
from fjord.commands import Command, Read, Refusal, Reply
from fjord.engine import Engine
from fjord.engine.cold import Errand, LazyCold
from fjord.engine.sealing import Rounds, Turn, in_turn
from fjord.errors import ClosedError, Code, RefusedError
from fjord.history import Block
from fjord.server import logs
from fjord.server.alarm import Alarm
from fjord.server.committer import Committer
from fjord.server.origin import Origin

# How often to check whether something is due, at most.
_LOOK_US: Final = 1_000_000
_WALL_LOOK_US: Final = round(limits.WALL_LOOK_SECONDS_MAX * 1_000_000)
# Subscribers that are examined, and those for which a part of a block is loaded.
_LOOKED_AT_MAX: Final = 10_000
_LOADED_MAX: Final = 32
# A subscriber that has not moved for this long may no longer exist.
_RECENT_US: Final = 3600 * 1_000_000
# Names that are logged.
_NAMED_MAX: Final = 5

# When it moved, of which table, its name, its mark.
Active = tuple[int, str, str, int]


class ColdBlocks(NamedTuple):
    """Blocks at a location."""

    shelf: NodeBlocks
    cold: LazyCold


def attach(engine: Engine, location: str = "") -> ColdBlocks | None:
    """Gives an engine cold blocks; None if that is not possible, which is logged.

    Without a location they are where they were before, or in the data directory.
    """
    missing = missing_libraries()
    if missing:
        logs.note(logging.WARNING, "cold blocks are not available", missing=", ".join(missing))
        return None
    shelf = NodeBlocks(engine.attach_blocks(location))
    return ColdBlocks(shelf, LazyCold(shelf.make_cold))


class Sealer:
    """Runs rounds of sealing beside the loop, one at a time."""

    def __init__(
        self,
        engine: Engine,
        blocks: ColdBlocks,
        committer: Committer,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._pool = committer.sealing
        self._clock = clock
        self._turns = Turns(loop, committer)
        self.rounds = Rounds(engine, blocks.shelf, self._turns, clock)
        self._warm_up = WarmUp(engine, blocks, self._turns, clock)
        self._alarm = Alarm(loop, clock, self.look)
        self._is_under_way = False
        self._is_stopped = False
        self._told_blocks = 0  # how many the log knows of

    def start(self) -> None:
        """Begins the checks of a start."""

        def finish(result: object, error: Exception | None) -> None:
            if error is not None and not self._is_stopped:
                logs.note(logging.WARNING, "blocks could not be checked", error=error)
            self.look()

        self._pool.put(None, self._warm_up.run, finish)

    def seal(self, origin: Origin, request: Any, command: commands.SealNow) -> None:
        """Seals everything, then answers."""

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

        self._pool.put(
            origin, lambda: self.rounds.seal(command), finish, lambda: origin.forget(request)
        )

    def stop(self) -> None:
        """Ends the current round; requests that wait for one are refused."""
        self._is_stopped = True
        self._alarm.stop()
        self.rounds.stop()
        self._turns.stop()

    def look(self) -> None:
        """Begins a round if one is due, else checks again when it will be."""
        due_us = None if self._is_under_way else self.rounds.due_us()
        if due_us is None:
            return
        now_us = self._clock.wall_us()
        if due_us > now_us:
            self._alarm.set_wall(min(due_us, now_us + _WALL_LOOK_US))
        else:
            self._is_under_way = True
            self._pool.put(None, self.rounds.round, self._finish_round)

    def look_soon(self) -> None:
        self._alarm.set(self._clock.monotonic_us() + _LOOK_US)

    def _finish_round(self, result: object, error: Exception | None) -> None:
        self._is_under_way = False
        self._note_blocks()
        if error is not None:
            self._note_failure(error)
        self.look_soon()

    def _note_blocks(self) -> None:
        written, self._told_blocks = self.rounds.blocks - self._told_blocks, self.rounds.blocks
        if written:
            logs.note(logging.INFO, "blocks were written", count=written)

    def _note_failure(self, error: Exception) -> None:
        if not self._is_stopped:
            logs.note(logging.ERROR, "sealing failed", error=error)


_STOPPED: Final = Refusal(code=Code.BUSY, text="the server stops; the next start seals the rest")
_FAILED: Final = Refusal(code=Code.FAILED, text="sealing failed; the log says why")


class Turns:
    """Lets other threads use the engine, which belongs to the loop's thread.

    A call is passed to the loop, runs after a group of commands, and returns once everything that
    it has written is durable.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self._loop = loop
        self._committer = committer
        self._changing = threading.Lock()
        self._under_way: set[Future[None]] = set()
        self._is_stopped = False

    def __call__(self, call: Callable[[], None]) -> None:
        """Makes a call; not on the loop's own thread.

        Raises:
            ClosedError: if the daemon stops; the call may have been made all the same.
        """
        future: Future[None] = Future()

        def run() -> None:
            try:
                call()
            except RefusedError as error:  # nothing was changed, and the engine goes on
                self._end(future, error)
            except Exception as error:
                self._end(future, error)
                raise

        with self._changing:
            if self._is_stopped:
                raise ClosedError
            self._under_way.add(future)
        self._loop.call_soon_threadsafe(self._committer.call, run, lambda: self._end(future))
        future.result()

    def stop(self) -> None:
        """Ends all waiting calls."""
        with self._changing:
            self._is_stopped = True
            under_way = list(self._under_way)
        for future in under_way:
            self._end(future, ClosedError())

    def _end(self, future: Future[None], error: Exception | None = None) -> None:
        """Ends a call once: by its answer, by its error, or by a stop."""
        with self._changing:
            if future not in self._under_way:
                return
            self._under_way.remove(future)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class WarmUp:
    """The checks of a start: whether the blocks exist, and who will read from them."""

    def __init__(self, engine: Engine, blocks: ColdBlocks, turn: Turn, clock: Clock) -> None:
        self._engine = engine
        self._blocks = blocks
        self._turn = turn
        self._clock = clock

    def run(self) -> None:
        """Checks all blocks, then loads ahead; on its own thread."""
        ends: dict[str, int] = {}  # where the blocks of a table end
        missing: list[str] = []
        for table in in_turn(self._turn, lambda: list(self._engine.tables)):
            blocks = self._blocks_of(table)
            if blocks:
                ends[table] = blocks[-1].last
                missing += self._blocks.shelf.missing(blocks)
        if missing:
            shown = ", ".join(missing[:_NAMED_MAX])
            logs.note(logging.WARNING, "blocks are missing", count=len(missing), first=shown)
        for active in heapq.nlargest(_LOADED_MAX, self._active(ends)):
            self._load(active)

    def _blocks_of(self, table: str) -> list[Block]:
        engine = self._engine
        return in_turn(
            self._turn, lambda: engine.sealing.blocks(table) if table in engine.tables else []
        )

    def _active(self, ends: Mapping[str, int]) -> Iterator[Active]:
        """Yields subscribers that are awake, inside blocks, and recently active."""
        since_us = self._clock.wall_us() - _RECENT_US
        looked_at = 0
        for table, end in ends.items():
            for page in self._pages(table):
                rows = zip(page.names.rows(), page.seqs, page.moved_us, page.asleep, strict=True)
                for name, seq, moved_us, asleep in rows:
                    if not asleep and seq < end and moved_us >= since_us:
                        yield moved_us, table, name.decode(), seq
                looked_at += len(page.names)
                if looked_at >= _LOOKED_AT_MAX:
                    return

    def _pages(self, name: str) -> Iterator[commands.Subscribers]:
        start = ""
        while (table := self._engine.tables.get(name)) is not None and table.is_log:
            page = self._run(commands.ListSubscribers(table=name, start=start))
            if not isinstance(page, commands.Subscribers):
                return  # it is not a stream, or was dropped
            yield page
            start = page.next_name
            if not start:
                return

    def _load(self, active: Active) -> None:
        """Reads the next message of a subscriber, so that the following ones are in memory."""
        _, table, name, seq = active
        errand = Errand(Read(table=table, after=seq, count=1, subscriber=name))
        if errand.take(self._run(errand.command)) is None:
            errand.look(self._blocks.cold)  # errors of a block are reported to its readers

    def _run(self, command: Command) -> Reply:
        return in_turn(self._turn, lambda: self._engine.run([command])[0])
