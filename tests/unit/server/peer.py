"""A session between a transport that only records and a committer that only collects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

from fjord import limits
from fjord.columns import Buffer, Strings
from fjord.commands import Changed, Command, Done, Numbers, Reply, Scan, Span
from fjord.engine import Engine
from fjord.engine.news import NO_NEWS
from fjord.engine.waits import Arrivals, Listeners
from fjord.errors import Code
from fjord.server.alarm import Alarm
from fjord.server.bounds import Bounds, Memory
from fjord.server.committer import Committer, tell
from fjord.server.origin import Origin
from fjord.server.session import Session, Sessions, Shared
from fjord.tables.state import Table
from fjord.wire import Cursors
from tests.unit.server.asking import Waiting

DONE = Done(master=b"m" * 16, seq=1)
NEW_CLIENT = b"n" * 16


class Wire(asyncio.Transport):
    """Remembers what a session does to its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.untaken = 0  # bytes that the peer has not taken, as the test says
        self.is_open = True
        self.is_aborted = False
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.is_open
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == limits.OUTPUT_BYTES_MAX


class WatchedKeys:
    """Keys that are watched, each once."""

    def __init__(self) -> None:
        self.keys: set[tuple[str, bytes]] = set()

    def add(self, table: str, key: bytes) -> None:
        assert (table, key) not in self.keys
        self.keys.add((table, key))

    def discard(self, table: str, key: bytes) -> None:
        self.keys.remove((table, key))


class Source:
    """An engine that remembers which keys are watched, and knows of jobs what the test says."""

    def __init__(self) -> None:
        self.watched = WatchedKeys()
        self.tables: dict[str, Table] = {}
        self.dates_us: dict[str, list[int]] = {}
        self.left: list[int] = []

    @property
    def as_engine(self) -> Engine:
        return cast(Engine, self)

    def first_date_us(self, table: str, after_us: int) -> int | None:
        later = [date for date in self.dates_us.get(table, ()) if date > after_us]
        return min(later, default=None)

    def release(self, client: int) -> None:
        self.left.append(client)


class World(Waiting):
    """What sessions share, with a committer that runs nothing until it is told to."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        super().__init__(threads=0)
        bounds = bounds or Bounds()
        self.source = Source()
        self._dates = Alarm(self.loop.as_loop, self.clock, self._tell_dates)
        self.scans: list[Scan | Span] = []
        self.refused: list[Code] = []
        self.released = 0
        self.listeners: Listeners[Origin] = Listeners(self.source.as_engine)
        self.waits = self.waiting
        self.shared = Shared(
            engine=self.source.as_engine,
            committer=cast(Committer, self),
            loop=self.loop.as_loop,
            clock=self.clock,
            bounds=bounds,
            memory=Memory(self.clock, bounds.memory_bytes),
            counters=self.counters,
            sealer=None,
            sessions=Sessions(),
            new_client=lambda: NEW_CLIENT,
            cursors=Cursors(b"secret", bytes(16)),
            stats=lambda: Numbers(names=Strings.of([b"answer"]), values=[42]),
        )

    def tell(self, changes: Sequence[Changed]) -> None:
        tell(self.listeners.match(changes))

    def look_at_dates(self, table: str) -> None:
        self.listeners.look(table, self.clock.wall_us())
        self._plan_dates()

    def arrive(self, arrivals: Arrivals) -> None:
        """Lets jobs come, as the committer does when everything is durable."""
        self.tell(self.listeners.arrive(arrivals, self.clock.wall_us()))
        self._plan_dates()
        self.waits.news.append(NO_NEWS._replace(arrivals=arrivals))
        self.waits.go_on()

    def _plan_dates(self) -> None:
        look_us = self.listeners.look_us(self.clock.wall_us())
        if look_us is not None:
            self._dates.set_wall(look_us)

    def _tell_dates(self) -> None:
        self.tell(self.listeners.reach(self.clock.wall_us()))
        self._plan_dates()

    def scan(self, origin: Origin, request: Any, command: Scan | Span) -> None:
        self.scans.append(command)

    def note_refusal(self, code: Code) -> None:
        self.refused.append(code)

    def release(self) -> None:
        self.released += 1
        self.waits.release()

    def answer_all(self, reply: Reply = DONE) -> None:
        """Answers whatever was submitted, each as the committer would."""
        group, self.submitted[:] = list(self.submitted), []
        for origin, request, _, after, wait in group:
            found = reply if after is None else after(reply)
            if wait is None:
                origin.answer(request, found)
            else:
                self.waits.settle(wait, found)
        for origin, *_ in group:
            origin.flush()
        self.waits.go_on()

    def pass_time(self, seconds: float) -> None:
        """Looks at the deadlines as the daemon does, once a second."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            for session in self.shared.sessions:
                session.check_deadlines(self.clock.monotonic_us())


class Peer:
    """One session with both of its sides in hand."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.wire = Wire()
        self.session = Session(self.world.shared)
        self.session.connection_made(self.wire)

    @property
    def commands(self) -> Sequence[Command]:
        return [command for _, _, command, *_ in self.world.submitted]

    def send(self, *messages: Buffer) -> None:
        self.session.data_received(b"".join(messages))

    def replies(self) -> Iterator[int]:
        """Yields the identifiers of the replies, all of them without an error or a value."""
        for start in range(0, len(self.wire.sent), 17):
            yield int.from_bytes(self.wire.sent[start + 4 : start + 6], "big")
