"""The forwarder as a service: signals, systemd, the log, and pages over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import fjord
from fjord import limits
from fjord.client.forwarder import Forwarder, Progress
from fjord.client.spool import alerts, files
from fjord.clock import SystemClock
from fjord.errors import DurabilityError
from fjord.server import exposition, logs, service
from fjord.server.exposition import Metric, count, count_by, gauge
from fjord.server.http import Answer, Pages

_SHOWN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a forwarder is started."""

    directory: str
    url: str
    is_once: bool  # True: it ends when all is sent
    period: float  # seconds
    poll: float  # seconds
    wake: str  # where to hear wake-ups, empty = nowhere
    http: tuple[str, int] | None  # where to serve metrics, None = nowhere
    on_ready: Callable[[tuple[str, int] | None], None]  # told the address of HTTP
    show: Callable[[int, int | None], None]  # told how many bytes are sent, and of how many


def run(options: Options) -> tuple[Progress, bool]:
    """Forwards until SIGTERM or SIGINT, or until all is sent.

    Returns:
        What was done, and whether that is all there was; not so after a signal.

    Raises:
        DirectoryError: if the directory cannot be used.
        DurabilityError: if its disk failed; what is in it stays there.
        FjordError: if the address for HTTP cannot be listened on.
    """
    files.check_owner(options.directory)
    os.umask(0o077)
    listener = None if options.http is None else service.listen(*options.http)
    running = _Service(options)
    with _explained(options.directory):
        service.run(running.run(listener))
    return running.forwarder.progress, not running.is_stopped


@contextlib.contextmanager
def _explained(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DurabilityError(
            f"the spool {directory} failed: {error}; what is in it and not sent stays there"
        ) from error


class _Service:
    """The parts of a running forwarder."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = SystemClock()
        self._begun_us = self._clock.monotonic_us()
        self.is_stopped = False
        self.forwarder = Forwarder(
            options.directory,
            options.url,
            period=options.period,
            poll=options.poll,
            wake=options.wake or None,
        )

    async def run(self, listener: socket.socket | None) -> None:
        service.on_stop(self._stop)
        http = None if listener is None else await service.serve_pages(listener, self._pages())
        showing = asyncio.create_task(self._show())
        try:
            await self.forwarder.run(
                until_empty=self._options.is_once, on_ready=lambda: self._say_ready(http)
            )
        finally:
            showing.cancel()
            if http is not None:
                http.close()
        service.notify("STOPPING=1")
        logs.note(logging.INFO, "stopped", records=self.forwarder.progress.records)

    def _stop(self) -> None:
        self.is_stopped = True
        logs.note(logging.INFO, "stopping")
        self.forwarder.stop()

    def _say_ready(self, http: asyncio.Server | None) -> None:
        address = None if http is None else http.sockets[0].getsockname()[:2]
        logs.note(
            logging.INFO,
            "forwarding",
            spool=self._options.directory,
            to=self._options.url,
            http="off" if address is None else "{}:{}".format(*address),
            wake=self._options.wake or "off",
            version=fjord.__version__,
        )
        self._options.on_ready(address)
        service.notify("READY=1")

    async def _show(self) -> None:
        """Shows how far it is, to who has asked for all to be sent and looks at it."""
        while self._options.is_once and sys.stderr.isatty():
            await asyncio.sleep(_SHOWN_SECONDS)
            self.forwarder.look()
            progress = self.forwarder.progress
            self._options.show(progress.bytes, progress.bytes + progress.waiting_bytes)

    # -- pages ------------------------------------------------------------------------------------

    def _pages(self) -> Pages:
        return Pages(
            {"/metrics": self._show_metrics, "/healthz": self._show_health},
            seconds_max=limits.MESSAGE_SECONDS_MAX,
        )

    def _show_metrics(self) -> Answer:
        self.forwarder.look()  # else what waits is what waited some seconds ago
        uptime_us = self._clock.monotonic_us() - self._begun_us
        progress, now_us = self.forwarder.progress, self._clock.wall_us()
        return page(progress, uptime_us, now_us)

    def _show_health(self) -> Answer:
        """A daemon that is away is no fault of the forwarder, which waits for it."""
        if self.is_stopped:
            return Answer(status=503, body=b"stopping\n")
        return Answer(status=200, body=b"ok\n")


# -- the numbers by which a forwarder is watched; docs/operations.md explains each ----------------


def page(progress: Progress, uptime_us: int, now_us: int) -> Answer:
    """Returns the page for Prometheus."""
    return exposition.page(_metrics(progress, uptime_us, now_us))


def _metrics(progress: Progress, uptime_us: int, now_us: int) -> Iterator[Metric]:
    def name(last: str) -> str:
        return f"fjord_forwarder_{last}"

    yield gauge(name("uptime_seconds"), "Since the start.", uptime_us / 1e6)
    yield count(name("records"), "Records that arrived.", progress.records)
    yield count(name("bytes"), "Bytes of spool files that arrived.", progress.bytes)
    yield count(name("batches"), "Batches that arrived.", progress.batches)
    yield count(name("retries"), "Pauses since nothing could be sent.", progress.retries)
    yield count(name("files_deleted"), "Files sent whole, and deleted.", progress.files_deleted)
    yield count_by(name("set_aside"), "Records that were set aside.", "why", _reasons(progress))
    yield gauge(name("waiting_bytes"), "Bytes that wait.", progress.waiting_bytes)
    yield gauge(name("waiting_files"), "Files in which something waits.", progress.waiting_files)
    age_us = max(0, now_us - progress.oldest_us) if progress.oldest_us else 0
    yield gauge(name("oldest_seconds"), "Age of the oldest record that waits.", age_us / 1e6)
    yield gauge(name("problem"), "1 while nothing can be sent.", bool(progress.problem))
    found = Counter(alert.rule for alert in progress.alerts)
    yield exposition.by_labels(
        name("alerts"),
        "What somebody has to look at.",
        ["rule"],
        [((rule,), found[rule]) for rule in alerts.RULES],
    )


def _reasons(progress: Progress) -> dict[str, int]:
    """Returns how many records were set aside: torn and damaged ones, and refused ones by code."""
    found = {fate.value: number for fate, number in progress.set_aside.items()}
    return found | {code.value: number for code, number in progress.refused.items()}
