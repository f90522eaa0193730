"""An item set and taken again: Fjord as a Kestrel beside memcached and beanstalkd, alternately.

Memcached has no disk and no order; each pair has a key of its own there, which is read once.  It
shows the cost of the protocol and the client.  Beanstalkd is a queue on disk: put, reserve and
delete are three requests, over a plain socket.  Each pair is one item of 100 bytes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from pymemcache.client.base import Client
from rich.table import Table

from benchmarks import report, servers
from benchmarks.beanstalkd import Beanstalk
from benchmarks.loads import BATCH, VALUE
from benchmarks.scale import Scale

PAIRS = 2_000
PIPELINED_PAIRS = 20_000
MEMCACHED, BEANSTALKD, BEANSTALKD_SYNC = "memcached", "beanstalkd -F", "beanstalkd -f 0"
NEVER, PERIOD, ALWAYS = "never", "100 ms", "always"
SYNCS: dict[str, object] = {NEVER: "never", PERIOD: 100, ALWAYS: "always"}
BESIDE = ((NEVER, MEMCACHED), (NEVER, BEANSTALKD), (ALWAYS, BEANSTALKD_SYNC))
# Memcached only: keys are unique, and as long as the queue's name.
QUEUE = "cars00000000"


@dataclass(slots=True)
class Side:
    """A server, and its results so far."""

    name: str
    port: int
    keys: int = 0  # keys used so far
    seconds: dict[str, float] = field(default_factory=dict)
    pairs: dict[str, int] = field(default_factory=dict)

    @property
    def is_beanstalkd(self) -> bool:
        return self.name in (BEANSTALKD, BEANSTALKD_SYNC)

    def take_keys(self, count: int) -> list[str]:
        """Returns unused keys; for a queue always its name."""
        if self.name != MEMCACHED:
            return [QUEUE] * count
        self.keys += count
        return [f"cars{number:08}" for number in range(self.keys - count, self.keys)]

    def rate(self, load: str) -> float | None:
        if load not in self.seconds:
            return None
        return self.pairs[load] / self.seconds[load]


class Pair(Protocol):
    """Sets an item and takes it again."""

    def __call__(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load on a server."""

    name: str
    pairs: int
    run: Callable[[Side, int], None]
    beanstalkd: bool = True


def run(scale: Scale) -> None:
    with _sides() as sides:
        for load in LOADS:
            for _ in range(scale.rounds):
                for side in sides:
                    if load.beanstalkd or not side.is_beanstalkd:
                        _measure(side, load, scale)
    table = Table("set and get, pairs/s", *(side.name for side in sides))
    for load in LOADS:
        table.add_row(load.name, *(_shown(side.rate(load.name), ",.0f") for side in sides))
    report.console.print(table)
    by_name = {side.name: side for side in sides}
    ratios = Table("ratios", *(f"{one} / {other}" for one, other in BESIDE))
    for load in LOADS:
        ratios.add_row(load.name, *(_ratio(by_name, load, *pair) for pair in BESIDE))
    report.console.print(ratios)


def _measure(side: Side, load: Load, scale: Scale) -> None:
    pairs = max(scale.of(load.pairs), BATCH)
    start = time.perf_counter()
    load.run(side, pairs)
    seconds = time.perf_counter() - start
    side.seconds[load.name] = side.seconds.get(load.name, 0) + seconds
    side.pairs[load.name] = side.pairs.get(load.name, 0) + pairs


def _ratio(sides: dict[str, Side], load: Load, one: str, other: str) -> str:
    if one not in sides or other not in sides:
        return "-"
    ours, theirs = sides[one].rate(load.name), sides[other].rate(load.name)
    return "-" if ours is None or theirs is None else f"{ours / theirs:.2f}"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


@contextlib.contextmanager
def _sides() -> Iterator[list[Side]]:
    with contextlib.ExitStack() as running:
        sides = []
        for name, sync in SYNCS.items():
            config = json.dumps({"default": {"syncJournal": sync}})
            folder = running.enter_context(servers.data_directory())
            server = running.enter_context(servers.kestrel_server(folder, config))
            sides.append(Side(name, server.port))
        if servers.has_memcached():
            sides.append(Side(MEMCACHED, running.enter_context(servers.memcached_server())))
        else:
            report.console.print(f"no memcached to compare with: {servers.MEMCACHED_INSTALL}")
        if servers.has_beanstalkd():
            for name, syncs in ((BEANSTALKD, False), (BEANSTALKD_SYNC, True)):
                port = running.enter_context(servers.beanstalkd_server(syncs=syncs))
                sides.append(Side(name, port))
        else:
            report.console.print(f"no beanstalkd to compare with: {servers.BEANSTALKD_INSTALL}")
        yield sides


# -- loads ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pairs(side: Side) -> Iterator[Pair]:
    """Connects, by pymemcache or as to a beanstalkd."""
    if side.is_beanstalkd:
        with Beanstalk(side.port) as tube:

            def put_and_take(key: str) -> None:
                tube.put_many([VALUE])
                _expect(tube.take())

            yield put_and_take
        return
    client = Client(("127.0.0.1", side.port), no_delay=True, default_noreply=False)

    def set_and_get(key: str) -> None:
        client.set(key, VALUE)
        _expect(client.get(key))

    try:
        yield set_and_get
    finally:
        client.close()


def one_in_flight(side: Side, pairs: int) -> None:
    with _pairs(side) as pair:
        for key in side.take_keys(pairs):
            pair(key)


def in_threads(count: int) -> Callable[[Side, int], None]:
    """Returns a load of several connections, each in a thread of its own."""

    def run_all(side: Side, pairs: int) -> None:
        keys = side.take_keys(pairs)
        threads = [
            threading.Thread(target=_run_some, args=(side, keys[number::count]))
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run_all


def _run_some(side: Side, keys: list[str]) -> None:
    with _pairs(side) as pair:
        for key in keys:
            pair(key)


def on_sockets(count: int) -> Callable[[Side, int], None]:
    """Returns a load of plain sockets: one request is sent to each, then all replies are read."""

    def run_all(side: Side, pairs: int) -> None:
        with contextlib.ExitStack() as opened:
            lines = [opened.enter_context(_Line(side.port)) for _ in range(count)]
            for _ in range(pairs // count):
                keys = side.take_keys(count)
                for line, key in zip(lines, keys, strict=True):
                    line.send(_set(key))
                for line in lines:
                    line.expect(_STORED)
                for line, key in zip(lines, keys, strict=True):
                    line.send(_get(key))
                for line, key in zip(lines, keys, strict=True):
                    line.expect(_value(key))

    return run_all


def pipelined(side: Side, pairs: int) -> None:
    """Sends many sets in one go and reads all replies, then the same with gets."""
    if side.is_beanstalkd:
        with Beanstalk(side.port) as tube:
            for _ in range(0, pairs, BATCH):
                tube.put_many([VALUE] * BATCH)
                for _ in range(BATCH):
                    _expect(tube.take())
        return
    with _Line(side.port) as line:
        for _ in range(0, pairs, BATCH):
            keys = side.take_keys(BATCH)
            line.send(b"".join(map(_set, keys)))
            line.expect(_STORED * BATCH)
            line.send(b"".join(map(_get, keys)))
            line.expect(b"".join(map(_value, keys)))


_STORED = b"STORED\r\n"


def _set(key: str) -> bytes:
    return b"set %b 0 0 %d\r\n%b\r\n" % (key.encode(), len(VALUE), VALUE)


def _get(key: str) -> bytes:
    return b"get %b\r\n" % key.encode()


def _value(key: str) -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (key.encode(), len(VALUE), VALUE)


class _Line(contextlib.AbstractContextManager["_Line"]):
    """A plain socket that knows the expected replies."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def expect(self, wanted: bytes) -> None:
        found = self._socket.recv(len(wanted), socket.MSG_WAITALL)
        if found != wanted:
            raise RuntimeError(f"{found[:100]!r} instead of {wanted[:100]!r}")

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _expect(found: object) -> None:
    if found != VALUE:
        raise RuntimeError(f"another item than was set: {found!r}")


LOADS = (
    Load(name="1 connection, pymemcache", pairs=PAIRS, run=one_in_flight),
    Load(name="8 threads, pymemcache", pairs=PAIRS, run=in_threads(8)),
    Load(name="64 threads, pymemcache", pairs=PAIRS, run=in_threads(64)),
    Load(name="8 plain sockets", pairs=2 * PAIRS, run=on_sockets(8), beanstalkd=False),
    Load(name="64 plain sockets", pairs=2 * PAIRS, run=on_sockets(64), beanstalkd=False),
    Load(name="1,000 in one write", pairs=PIPELINED_PAIRS, run=pipelined),
)
