"""The daemon: opens the directory, listens on loopback, stops in order."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvloop

from fjord import engine as engines
from fjord import limits
from fjord.clock import SystemClock
from fjord.engine import Engine, Settings
from fjord.errors import FjordError
from fjord.server.committer import Committer
from fjord.server.session import Session, Sessions

log = logging.getLogger("fjord.server")
_DEADLINE_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a daemon is started."""

    data: str  # the data directory
    host: str
    port: int  # 0 = any free one
    settings: Settings
    awake_us: int  # how long to stay awake after a reply, 0 = sleep at once
    on_ready: Callable[[str, int], None]  # told the address once it is served


def default_awake_us() -> int:
    """Staying awake pays only where the client has a processor of its own."""
    return limits.AWAKE_US if len(os.sched_getaffinity(0)) > 1 else 0


def check_host(host: str) -> None:
    """Refuses to listen where others could reach a server that does not ask who they are.

    Raises:
        FjordError: if the address is not a loopback one.
    """
    if host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise FjordError(
            f"refusing to listen on {host}: this version has neither authentication nor TLS, "
            "so it serves loopback addresses only (127.0.0.1, ::1)"
        )


def serve(options: Options) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        DurabilityError: if the disk failed; what was acknowledged before is kept.
        FjordError: if the directory cannot be opened, or the address not be listened on.
    """
    check_host(options.host)
    _raise_file_limit()
    listener = _listen(options)
    engine = engines.open_engine(options.data, options.settings)
    # What is loaded by now stays; the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Daemon(engine, options).run(listener))
        engine.close()
    finally:
        engine.abandon()


def _listen(options: Options) -> socket.socket:
    """Takes the address before the directory is opened; early clients wait until it is."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FjordError(f"cannot listen on {options.host}:{options.port}: {reason}") from error


def _raise_file_limit() -> None:
    """A connection is a file; take as many as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Daemon:
    """The parts of a running server."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._clock = SystemClock()
        self._sessions = Sessions()
        self._stop = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        committer = Committer(
            self._engine,
            loop,
            self._fail,
            clock=self._clock,
            awake_us=self._options.awake_us,
        )
        server = await loop.create_server(
            lambda: Session(committer, self._clock, self._sessions), sock=listener
        )
        host, port = server.sockets[0].getsockname()[:2]
        log.info("serving %s on %s:%s", self._options.data, host, port)
        self._options.on_ready(host, port)
        watch = asyncio.create_task(self._watch_deadlines())
        await self._stop.wait()
        watch.cancel()
        server.close()
        await self._finish(committer)
        if self._failure is not None:
            raise self._failure

    async def _finish(self, committer: Committer) -> None:
        """Answers what is under way, then closes the connections."""
        log.info("stopping")
        for session in self._sessions:
            session.stop()
        if self._failure is None:
            try:
                async with asyncio.timeout(limits.STOP_SECONDS_MAX):
                    await committer.drain()
                    await self._sessions.wait_gone()
            except TimeoutError:
                log.warning("%d clients do not take their replies", len(self._sessions))
        committer.close()

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(_DEADLINE_CHECK_SECONDS)
            now_us = self._clock.monotonic_us()
            for session in self._sessions:
                session.check_deadline(now_us)

    def _fail(self, error: Exception) -> None:
        is_ours = isinstance(error, FjordError)
        log.critical(
            "stopping because of a failure: %s", error, exc_info=None if is_ours else error
        )
        self._failure = self._failure or error
        self._stop.set()
