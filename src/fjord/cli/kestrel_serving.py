"""`fjord kestrel serve` as a service: its configuration, signals, systemd and the log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import fjord
from fjord.clock import SystemClock
from fjord.disk import Disk, LocalDisk
from fjord.errors import DirectoryError, DurabilityError, UsageError
from fjord.kestrel import config as configuration
from fjord.kestrel import reading
from fjord.kestrel.collection import Collection
from fjord.kestrel.config import Configuration
from fjord.kestrel.serving import Backend, Options, Server
from fjord.kestrel.serving_directory import DirectoryBackend
from fjord.kestrel.serving_jobs import JobsBackend
from fjord.server import logs, service

Address = tuple[str, int]

# What a configuration says of the server, and not of queues.  Times are milliseconds.
_OPEN_MAX: Final = "maxOpenTransactions"
_IDLE: Final = "clientTimeout"
_SWEEP: Final = "expirationTimerFrequency"
_NUMBER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a server is started."""

    directory: str  # of queues, empty = those of a daemon
    to: str  # the daemon
    at: Address
    text_at: Address | None  # None = nowhere
    config: str  # a file, empty = none
    whole_keys: bool
    item_bytes_max: int
    connections_max: int
    on_ready: Callable[[Address, Address | None], None]  # told where it is served


def serve(serving: Serving) -> None:
    """Serves until SIGTERM, SIGINT or a `shutdown`.

    Raises:
        UsageError: if the configuration is none.
        DurabilityError: if the disk failed; what was answered before is kept.
        FjordError: if the directory cannot be opened, or the address not be listened on.
    """
    config, given = read(serving.config)
    options = _options(serving, given)
    os.umask(0o077)
    if os.geteuid() == 0:
        logs.note(logging.WARNING, "running as root; use a user of its own")
    # Addresses are taken before the directory is opened; early clients wait until it is.
    addresses = [serving.at, *([serving.text_at] if serving.text_at else [])]
    listeners = [service.listen(*address) for address in addresses]
    if not serving.directory:
        service.run(_run_jobs(serving, options, listeners))
        return
    collection = _opened(serving.directory, config)
    for alert in collection.alerts():
        logs.note(logging.ERROR, "a queue was damaged", alert=alert)
    backend = DirectoryBackend(collection, config, read_config=lambda: read(serving.config)[0])
    try:
        service.run(_run(serving, backend, options, listeners))
    except OSError as error:
        raise DurabilityError(f"the queues in {serving.directory} failed: {error}") from error


async def _run_jobs(serving: Serving, options: Options, listeners: list[socket.socket]) -> None:
    backend = await JobsBackend.connect(serving.to, SystemClock())
    await _run(serving, backend, options, listeners)


async def _run(
    serving: Serving, backend: Backend, options: Options, listeners: list[socket.socket]
) -> None:
    server = Server(backend, SystemClock(), options)
    service.on_stop(server.stop)
    await server.start(*listeners)
    at = [listener.getsockname()[:2] for listener in listeners]
    text_at = at[1] if len(at) > 1 else None
    logs.note(
        logging.INFO,
        "serving queues",
        queues=serving.directory or serving.to,
        memcache="{}:{}".format(*at[0]),
        text="{}:{}".format(*text_at) if text_at else "off",
        version=fjord.__version__,
    )
    serving.on_ready(at[0], text_at)
    service.notify("READY=1")
    await server.run()
    service.notify("STOPPING=1")
    logs.note(logging.INFO, "stopped")


def read(path: str) -> tuple[Configuration, dict[str, int]]:
    """Returns the configuration of queues in a file, and what it says of the server.

    Answers wait for the disk, unless the file says that they do not.

    Raises:
        UsageError: if there is no such file, or it is no configuration.
    """
    given = _parsed(path) if path else {}
    ours = {name: given.pop(name) for name in (_OPEN_MAX, _IDLE, _SWEEP) if name in given}
    numbers: dict[str, int] = {
        name: _number(name, value) for name, value in ours.items() if value is not None
    }
    config = configuration.read(given)
    if "sync_journal_ms" in config.default:
        return config, numbers
    default = {**config.default, "sync_journal_ms": 0}
    return (
        Configuration(default=default, queues=config.queues, aliases=config.aliases),
        numbers,
    )


def _parsed(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise UsageError(f"{path} is no JSON object")
    return given


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _NUMBER_MAX:
        raise UsageError(f"{name} is a number from 1 to {_NUMBER_MAX}, not {value!r}")
    return value


def _options(serving: Serving, given: dict[str, int]) -> Options:
    idle_ms, sweep_ms = given.get(_IDLE), given.get(_SWEEP)
    return Options(
        open_max=given.get(_OPEN_MAX, Options().open_max),
        item_bytes_max=serving.item_bytes_max,
        connections_max=serving.connections_max,
        whole_keys=serving.whole_keys,
        idle_seconds=None if idle_ms is None else idle_ms / 1000,
        sweep_seconds=None if sweep_ms is None else sweep_ms / 1000,
    )


def _opened(directory: str, config: Configuration) -> Collection:
    disk = LocalDisk()
    try:
        _make_directory(disk, os.path.abspath(directory))
        return Collection(disk, directory, config, SystemClock())
    except OSError as error:
        raise DirectoryError(f"cannot open {directory}: {error.strerror or error}") from error


def _make_directory(disk: Disk, directory: str) -> None:
    """Ensures that a directory is there, and that a power cut leaves it there.

    Any level above may have been made just now, so until there is a queue all of them are synced;
    one that may not be read was not made by us.
    """
    disk.make_directory(directory)
    if reading.queues(disk, directory):
        return
    with contextlib.suppress(PermissionError):
        while True:
            disk.sync_directory(directory)
            if directory == os.path.dirname(directory):
                break
            directory = os.path.dirname(directory)
