"""Group commit: everything that arrived while the last fsync ran is the next group.

    submit -> waiting -> run (decide, apply, write, commit) -> sync -> replies leave

The engine runs on the loop's thread and never across an await.  Only fdatasync runs elsewhere,
and not even that when the group is one small request: handing it over costs more than it gains.
Nobody waits for a timer.

A processor that sleeps takes a while to wake, as long as half an fsync where it is a virtual one.
So the loop stays awake for a moment after each reply, in case the client has another request.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from fjord import limits
from fjord.clock import Clock
from fjord.commands import Command, Refusal, Reply, Scan
from fjord.engine import Engine
from fjord.errors import Code

log = logging.getLogger("fjord.server")


class Origin(Protocol):
    """Who asked, and gets the reply."""

    def answer(self, reply: Reply) -> None:
        """Takes the reply; it is sent with `flush`."""
        ...

    def flush(self) -> None: ...

    def is_stalled(self) -> bool:
        """Says that replies wait to be taken; until then nothing more is run for it."""
        ...


Pending = tuple[Origin, Command]


class Committer:
    """Runs the commands of all sessions on one engine."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[Exception], None],
        *,
        clock: Clock,
        awake_us: int,
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._on_failure = on_failure
        self._clock = clock
        self._awake_us = awake_us  # 0 = sleep at once
        self._awake_until_us = 0
        self._is_awake = False
        self._waiting: deque[Pending] = deque()
        self._held: list[Pending] = []  # of peers that do not take their replies
        self._scheduled = False
        self._syncing = False
        self._scans = 0
        self._drained: asyncio.Future[None] | None = None
        self._worker = _Worker("fjord-sync")
        self._scanner = _Worker("fjord-scan")

    def submit(self, origin: Origin, command: Command) -> None:
        if isinstance(command, Scan):
            self._scan(origin, command)
            return
        self._waiting.append((origin, command))
        self._schedule()

    def release(self) -> None:
        """Goes on with what was held, since a peer has taken its replies, or is gone."""
        self._waiting.extendleft(reversed(self._held))
        self._held.clear()
        self._schedule()

    async def drain(self) -> None:
        """Returns when everything that was submitted is answered."""
        self._drained = self._loop.create_future()
        self._note_idle()
        await self._drained

    def close(self) -> None:
        self._worker.close()
        self._scanner.close()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._run_group)

    def _run_group(self) -> None:
        self._scheduled = False
        group = self._take_group()
        if not group:
            return
        try:
            replies = self._engine.run_some([command for _, command in group])
            self._waiting.extendleft(reversed(group[len(replies) :]))
            group = group[: len(replies)]
            if self._engine.durable_seq >= self._engine.applied_seq:
                self._deliver(group, replies)
            elif len(group) == 1 and self._engine.unsynced_bytes <= limits.INLINE_SYNC_BYTES_MAX:
                self._engine.sync()
                self._deliver(group, replies)
            else:
                self._syncing = True
                self._worker.put(self._engine.sync, self._after_sync(group, replies))
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is acknowledged
            self._on_failure(error)

    def _take_group(self) -> list[Pending]:
        group: list[Pending] = []
        while self._waiting and len(group) < limits.GROUP_COMMANDS_MAX:
            pending = self._waiting.popleft()
            (self._held if pending[0].is_stalled() else group).append(pending)
        return group

    def _after_sync(
        self, group: Sequence[Pending], replies: Sequence[Reply]
    ) -> Callable[[object, Exception | None], None]:
        def finish(result: object, error: Exception | None) -> None:
            self._syncing = False
            if error is None:
                self._deliver(group, replies)
            else:
                self._on_failure(error)

        return lambda result, error: self._call_back(finish, result, error)

    def _deliver(self, group: Sequence[Pending], replies: Sequence[Reply]) -> None:
        for (origin, _), reply in zip(group, replies, strict=True):
            origin.answer(reply)
        for origin, _ in group:
            origin.flush()
        self._schedule()
        self._note_idle()
        if self._awake_us:
            self._awake_until_us = self._clock.monotonic_us() + self._awake_us
            if not self._is_awake:
                self._is_awake = True
                self._loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        """Lets the loop look for requests once more instead of going to sleep."""
        if self._clock.monotonic_us() < self._awake_until_us:
            self._loop.call_soon(self._stay_awake)
        else:
            self._is_awake = False

    def _scan(self, origin: Origin, command: Scan) -> None:
        self._scans += 1

        def finish(result: object, error: Exception | None) -> None:
            self._scans -= 1
            if error is not None:
                log.error("a scan failed: %s", error)
                result = Refusal(code=Code.FAILED, text="the scan failed; the log says why")
            origin.answer(cast(Reply, result))
            origin.flush()
            self._note_idle()

        self._scanner.put(
            lambda: self._engine.scan(command),
            lambda result, error: self._call_back(finish, result, error),
        )

    def _call_back(
        self,
        finish: Callable[[object, Exception | None], None],
        result: object,
        error: Exception | None,
    ) -> None:
        self._loop.call_soon_threadsafe(finish, result, error)

    def _note_idle(self) -> None:
        if self._drained is None or self._drained.done():
            return
        if not (self._waiting or self._held or self._syncing or self._scans or self._scheduled):
            self._drained.set_result(None)


class _Worker:
    """A thread that does one thing after the other and says when each is done."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[
            tuple[Callable[[], object], Callable[[object, Exception | None], None]] | None
        ] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(
        self,
        work: Callable[[], object],
        done: Callable[[object, Exception | None], None],
    ) -> None:
        self._queue.put((work, done))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - whoever gave the work gets the error
                done(None, error)
            else:
                done(result, None)
