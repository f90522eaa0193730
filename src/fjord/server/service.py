"""The common parts of long-running processes: event loop, signals, loopback, systemd."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from fjord import limits
from fjord.errors import FjordError
from fjord.server import logs
from fjord.server.http import HttpConnection, Pages, is_loopback

# Connections that wait to be accepted; others retry a second later.
BACKLOG: Final = 4096
# Parameters of mallopt(3) in glibc, and their values: a whole frame is allocated on the heap, and
# as much may be kept at its end.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_HEAP_BYTES: Final = 32 * limits.MIB


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a service until it ends."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def default_awake_us() -> int:
    """Returns the default: staying awake only pays if the client has a processor of its own."""
    return limits.AWAKE_US if len(os.sched_getaffinity(0)) > 1 else 0


def on_stop(act: Callable[[], None]) -> None:
    """Calls `act` on SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)


def check_host(host: str) -> None:
    """Refuses addresses that others could reach, since the server does not authenticate clients.

    Raises:
        FjordError: if the address is not a loopback one.
    """
    if not is_loopback(host):
        raise FjordError(
            f"refusing to listen on {host}: this version has neither authentication nor TLS, "
            "so it serves loopback addresses only (127.0.0.1, ::1)"
        )


def take_files() -> int:
    """Raises the limit of open files as far as the system allows; returns the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def listen(host: str, port: int) -> socket.socket:
    """Binds an address; early clients wait until it is served.

    Raises:
        FjordError: if it is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FjordError(f"cannot listen on {host}:{port}: {reason}") from error


async def serve_pages(listener: socket.socket, pages: Pages) -> asyncio.Server:
    """Serves pages over HTTP."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: HttpConnection(pages), sock=listener)


def notify(state: str) -> None:
    """Notifies systemd, if it has started this process and wants notifications."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        try:
            peer.sendto(state.encode(), address)
        except OSError as error:
            logs.note(logging.WARNING, "systemd could not be notified", error=error)


def keep_freed_buffers() -> bool:
    """Lets buffers of some MiB be reused; returns whether the C library supports it.

    By default it returns such a buffer to the kernel when it is freed, and every page of the next
    one is faulted in and zeroed again.  For batches of 1 MiB that takes longer than everything
    else.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(_TRIM_THRESHOLD, _HEAP_BYTES) and mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
    return bool(kept)
