"""`fjord kestrel serve` as a service: its configuration, signals, systemd and the log."""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final

import fjord
from fjord import aio, limits
from fjord import disk as disks
from fjord.clock import SystemClock
from fjord.disk import LocalDisk
from fjord.errors import DirectoryError, DurabilityError, UsageError
from fjord.kestrel import config as configuration
from fjord.kestrel import reader
from fjord.kestrel.backends import Backend, DirectoryBackend, JobsBackend
from fjord.kestrel.collection import RESERVE_BYTES, Collection
from fjord.kestrel.config import Configuration, ServerConfig, Standing
from fjord.kestrel.server import Server, ServerOptions
from fjord.server import logs, service

Address = tuple[str, int]

# Files that a server has open beside those of its queues, with some connections.
_FILES_LEAST: Final = 32
_CONNECTIONS_LEAST: Final = 4
# New objects after which the collector looks for cycles.  A queue that is read has many.
_GC_THRESHOLD: Final = 50_000


def serve(
    directory: str,
    to: str,
    addresses: Sequence[Address],
    config_file: str,
    options: ServerOptions,
    *,
    on_ready: Callable[[Sequence[Address]], None],
) -> None:
    """Serves until SIGTERM, SIGINT or a `shutdown`.

    Args:
        directory: of queues; empty: those of a daemon.
        to: the daemon.
        addresses: for memcache, and for the text protocol if that is served.
        config_file: empty: none.
        options: what the command line says; the configuration says the rest.
        on_ready: called with the addresses.

    Raises:
        UsageError: if the configuration is none.
        DurabilityError: if the disk failed; what was answered before is kept.
        FjordError: if the directory cannot be opened, or the address not be listened on.
    """
    config, settings = read(config_file)
    options = replace(options, **asdict(settings))
    options, queues_max = _fit_files(directory, config, options)
    os.umask(0o077)
    if os.geteuid() == 0:
        logs.note(logging.WARNING, "running as root; use a user of its own")
    # Addresses are taken before the directory is opened; early clients wait until it is.
    listeners = [service.listen(*address) for address in addresses]
    if not directory:
        service.run(_run(None, to, options, listeners, on_ready))
        return
    standing = _standing(directory, settings)
    # What is loaded by now stays, and items that wait are part of no cycle.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    collection = _opened(directory, config, queues_max)
    for alert in collection.alerts():
        logs.note(logging.ERROR, "a queue was damaged", alert=alert)
    backend = DirectoryBackend(collection, config, read_config=lambda: read(config_file)[0])
    try:
        service.run(_run(backend, directory, options, listeners, on_ready, standing))
    except OSError as error:
        raise DurabilityError(f"the queues in {directory} failed: {error}") from error


async def _run(
    backend: Backend | None,
    place: str,
    options: ServerOptions,
    listeners: list[socket.socket],
    on_ready: Callable[[Sequence[Address]], None],
    standing: Standing | None = None,
) -> None:
    backend = backend or JobsBackend(await aio.connect(place), SystemClock())
    server = Server(backend, SystemClock(), options, standing)
    service.on_stop(server.stop)
    await server.start(*listeners)
    at = [listener.getsockname()[:2] for listener in listeners]
    memcache, text = [f"{host}:{port}" for host, port in at] + ["off"] * (2 - len(at))
    queues, version = place, fjord.__version__
    logs.note(
        logging.INFO, "serving queues", queues=queues, memcache=memcache, text=text, version=version
    )
    on_ready(at)
    service.notify("READY=1")
    await server.run()
    service.notify("STOPPING=1")
    logs.note(logging.INFO, "stopped")


def read(path: str) -> tuple[Configuration, ServerConfig]:
    """Returns the configuration of queues in a file, and what it says of the server.

    Answers wait for the disk, unless the file says that they do not.

    Raises:
        UsageError: if there is no such file, or it is no configuration.
    """
    settings, given = configuration.read_server(_parsed(path) if path else {})
    config = configuration.read(given)
    return replace(config, default={"sync_journal_ms": 0, **config.default}), settings


def _parsed(path: str) -> dict[str, object]:
    with reader.readable(path), open(path, encoding="utf-8") as file:
        try:
            given = json.load(file)
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise UsageError(f"{path} is not a JSON object")
    return given


def _standing(directory: str, settings: ServerConfig) -> Standing:
    """Returns the status to begin with: that of the file, if there is one."""
    clock, grace_us = SystemClock(), settings.grace_ms * 1000
    path, first = settings.status_file, settings.default_status
    if path is None:
        return Standing(clock, first, grace_us=grace_us)
    if os.path.realpath(os.path.dirname(path)) == os.path.realpath(directory):
        raise UsageError(f"statusFile {path} would be taken for a queue; put it somewhere else")
    disk = LocalDisk()
    with reader.readable(path):
        kept, found = configuration.read_status(disk, path)
    if kept is None and found:
        logs.note(logging.ERROR, "the file keeps no status", path=path, found=found, status=first)
    return Standing(
        clock,
        kept or first,
        grace_us=grace_us,
        keep=lambda wanted: configuration.write_status(disk, path, wanted),
    )


def shares(files: int, connections_max: int, queues: int = 0) -> tuple[int, int]:
    """Returns how many connections and queues a number of open files allows.

    A connection is a file.  A queue has one that is written to, and may have one that is read, so
    connections give way to the queues that are there.
    """
    room = max(4, files - limits.FILES_RESERVED)
    left = max(_CONNECTIONS_LEAST, room - 2 * queues)
    connections = min(connections_max, room * 3 // 4, left)
    return connections, (room - connections) // 2


def _fit_files(
    directory: str, config: Configuration, options: ServerOptions
) -> tuple[ServerOptions, int]:
    """Takes as many files as the system allows; returns how many connections and queues that gives.

    Raises:
        DirectoryError: if the queues that are there need more.
    """
    files, wanted = service.take_files(), options.connections_max
    found = reader.queues(LocalDisk(), directory) if directory else []
    count = sum(config.of(name).keep_journal for name in found)
    if count + _FILES_LEAST > files:
        raise DirectoryError(
            f"{directory} has {count} queues, and each has a file open: a server needs "
            f"{count + _FILES_LEAST} open files at least, and the system allows it {files}; allow "
            "more, with ulimit -n or LimitNOFILE= of systemd"
        )
    connections, queues = shares(files, wanted, count)
    if connections < wanted:
        text = "few files may be open, so few connections and queues"
        logs.note(logging.WARNING, text, connections=connections, queues=queues)
    return replace(options, connections_max=connections), queues


def _opened(directory: str, config: Configuration, queues_max: int) -> Collection:
    disk, clock = LocalDisk(), SystemClock()
    with reader.readable(directory):
        disk.make_directory(directory)
        if not reader.queues(disk, directory):  # so it may have been made just now
            disks.sync_upwards(disk, os.path.abspath(directory))
        reserve = RESERVE_BYTES
        return Collection(
            disk, directory, config, clock, reserve_bytes=reserve, queues_max=queues_max
        )
