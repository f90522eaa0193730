"""The daemon: opens the directory, listens on loopback, and shuts down in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import fjord
from fjord import engine as engines
from fjord import limits
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.engine import Engine, EngineSettings
from fjord.errors import FjordError
from fjord.server import exposition, logs, sealer, service
from fjord.server.bounds import Bounds, Memory
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.server.http import Answer, Pages
from fjord.server.metrics import Metrics
from fjord.server.sealer import Sealer
from fjord.server.session import Session, Sessions, Shared
from fjord.server.wakeups import Sender, Wakeups
from fjord.wire import Cursors
from fjord.wire.wakeups import Address

# Deadlines are checked this often, or four times within the shortest of them.
_CHECK_SECONDS: Final = 1.0
# The number of new objects after which the garbage collector looks for cycles.  A large batch makes
# many objects, and none of them is part of a cycle.
_GC_THRESHOLD: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """The options of a daemon."""

    data: str  # the data directory
    host: str
    port: int  # 0 = any free one
    http: tuple[str, int] | None = None  # where to serve metrics, None = nowhere
    wake: Sequence[Address] = ()  # destinations of wake-ups
    settings: EngineSettings
    blocks: str = ""  # location of cold blocks, empty = as before, or in the data directory
    bounds: Bounds = field(default_factory=Bounds)
    awake_us: int  # how long to stay awake after a reply, 0 = sleep at once
    # Called with the address once it is served, and that of HTTP.
    on_ready: Callable[[tuple[str, int], tuple[str, int] | None], None]


def serve(options: DaemonOptions) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        DurabilityError: if the disk failed; what was acknowledged before is kept.
        FjordError: if the directory cannot be opened, or the address cannot be used.
    """
    addresses = [(options.host, options.port), *([options.http] if options.http else [])]
    for host, _ in addresses:
        service.check_host(host)
    os.umask(0o077)
    if os.geteuid() == 0:
        logs.note(logging.WARNING, "running as root; use a user of its own")
    options = replace(options, bounds=_fit_files(options.bounds))
    # Addresses are bound before the directory is opened; early clients wait until it is.
    listeners = [service.listen(*address) for address in addresses]
    engine = engines.open_engine(options.data, options.settings)
    # Objects loaded by now stay; the collector need not examine them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    try:
        service.keep_freed_buffers()
        service.run(_Daemon(engine, options).run(listeners))
        engine.close()
    finally:
        engine.abandon()


def _fit_files(bounds: Bounds) -> Bounds:
    """Raises the limit of open files, and allows as many connections as fit."""
    room = max(1, service.take_files() - limits.FILES_RESERVED)
    if room >= bounds.connections:
        return bounds
    logs.note(logging.WARNING, "the limit of open files limits connections", connections=room)
    return replace(bounds, connections=room)


class _Daemon:
    """The parts of a running server."""

    def __init__(self, engine: Engine, options: DaemonOptions) -> None:
        self._engine = engine
        self._options = options
        self._clock = SystemClock()
        self._begun_us = self._clock.monotonic_us()
        self._sessions = Sessions()
        self._counters = Counters()
        self._memory = Memory(self._clock, options.bounds.memory_bytes)
        self._blocks = sealer.attach(engine, options.blocks)
        self._sealer: Sealer | None = None
        self._wakeups: Wakeups | None = None
        self._stop = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self, listeners: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        service.on_stop(self._stop.set)
        committer = Committer(
            self._engine,
            loop,
            self._clock,
            self._counters,
            on_failure=self._fail,
            cold=self._blocks and self._blocks.cold,
        )
        committer.awake_us = self._options.awake_us
        if self._options.wake:
            identity = int.from_bytes(LocalDisk().new_uuid()[:8], "big")
            sender = Sender(self._options.wake, identity, self._counters)
            self._wakeups = Wakeups(sender, loop, self._clock)
            committer.send_wakeups(self._wakeups)
        if self._blocks is not None:
            self._sealer = Sealer(self._engine, self._blocks, committer, loop, self._clock)
            committer.on_writes = self._sealer.look
        metrics = self._make_metrics(committer)
        shared = self._share(committer, metrics)
        server = await loop.create_server(
            lambda: Session(shared), sock=listeners[0], backlog=service.BACKLOG
        )
        http = await self._serve_http(listeners[1:], metrics)
        self._say_ready(server, http)
        if self._sealer is not None:
            self._sealer.start()
        watch = asyncio.create_task(self._watch_deadlines())
        await self._stop.wait()
        server.close()
        await self._finish(committer)
        watch.cancel()
        if http is not None:
            http.close()
        service.notify("STOPPING=1")
        logs.note(logging.INFO, "stopped")
        if self._failure is not None:
            raise self._failure

    def _make_metrics(self, committer: Committer) -> Metrics:
        return Metrics(
            engine=self._engine.stats,
            blocks=self._block_stats,
            job_counts=self._engine.job_counts,
            counters=self._counters,
            memory=self._memory,
            listeners=committer.listeners,
            sessions=self._sessions,
            uptime_us=lambda: self._clock.monotonic_us() - self._begun_us,
        )

    def _block_stats(self) -> dict[str, int]:
        if self._blocks is None or self._sealer is None:
            return {}
        return self._sealer.rounds.stats() | self._blocks.cold.stats()

    def _share(self, committer: Committer, metrics: Metrics) -> Shared:
        disk = LocalDisk()
        return Shared(
            engine=self._engine,
            committer=committer,
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            bounds=self._options.bounds,
            memory=self._memory,
            counters=self._counters,
            sealer=self._sealer,
            sessions=self._sessions,
            new_client=disk.new_uuid,
            cursors=Cursors(disk.new_uuid() + disk.new_uuid(), self._engine.master),
            stats=metrics.numbers,
        )

    async def _serve_http(
        self, listeners: list[socket.socket], metrics: Metrics
    ) -> asyncio.Server | None:
        if not listeners:
            return None
        found = {
            "/metrics": lambda: exposition.page(metrics.collect()),
            "/healthz": self._show_health,
        }
        pages = Pages(found, seconds_max=self._options.bounds.message_seconds)
        return await service.serve_pages(listeners[0], pages)

    def _say_ready(self, server: asyncio.Server, http: asyncio.Server | None) -> None:
        host, port = server.sockets[0].getsockname()[:2]
        http_address = None if http is None else http.sockets[0].getsockname()[:2]
        stats = self._engine.stats()
        logs.note(
            logging.INFO,
            "serving",
            data=self._options.data,
            address=f"{host}:{port}",
            http="off" if http_address is None else "{}:{}".format(*http_address),
            wake=",".join("{}:{}".format(*address) for address in self._options.wake) or "off",
            version=fjord.__version__,
            seq=self._engine.durable_seq,
            segments=stats["segments"],
            tables=stats["tables"],
        )
        self._options.on_ready((host, port), http_address)
        service.notify("READY=1")

    def _show_health(self) -> Answer:
        if self._failure is not None:
            return Answer(status=503, body=b"failed: the log says why\n")
        if self._stop.is_set():
            return Answer(status=503, body=b"stopping\n")
        if self._engine.space.is_full:
            return Answer(status=503, body=b"disk full: writes are refused\n")
        return Answer(status=200, body=b"ok\n")

    async def _finish(self, committer: Committer) -> None:
        """Answers running requests, then closes the connections."""
        logs.note(logging.INFO, "stopping", connections=len(self._sessions))
        if self._sealer is not None:
            self._sealer.stop()
        for session in list(self._sessions):
            session.stop()
        if self._failure is None:
            try:
                async with asyncio.timeout(limits.STOP_SECONDS_MAX):
                    await committer.drain()
                    await self._sessions.wait_gone()
            except TimeoutError:
                logs.note(
                    logging.WARNING, "clients do not read replies", clients=len(self._sessions)
                )
        committer.close()
        if self._wakeups is not None:
            self._wakeups.close()
        if self._blocks is not None:
            self._blocks.cold.close()

    async def _watch_deadlines(self) -> None:
        bounds = self._options.bounds
        pause = min(_CHECK_SECONDS, bounds.message_seconds / 4, bounds.idle_seconds / 4)
        while True:
            await asyncio.sleep(pause)
            now_us = self._clock.monotonic_us()
            for session in list(self._sessions):
                session.check_deadlines(now_us)

    def _fail(self, error: Exception) -> None:
        trace = None if isinstance(error, FjordError) else error
        logs.note(logging.CRITICAL, "stopping because of a failure", error=error, trace=trace)
        self._failure = self._failure or error
        self._stop.set()
