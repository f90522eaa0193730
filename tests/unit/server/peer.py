"""A session between a transport that only records and a committer that only collects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from fjord import limits
from fjord.columns import Buffer, Strings
from fjord.commands import Changed, Command, Done, Numbers, Reply, Scan, Span
from fjord.errors import Code
from fjord.server import job_events, reading
from fjord.server.bounds import Bounds, Memory
from fjord.server.counters import Counters
from fjord.server.job_events import JobEvents
from fjord.server.listeners import Listeners
from fjord.server.origin import After, Origin, Settle
from fjord.server.reading import Reads
from fjord.server.session import Session
from fjord.server.sessions import Sessions, Shared
from fjord.server.worker import Beside
from fjord.tables.state import Table
from fjord.testing import SimClock
from fjord.wire import Cursors
from tests.unit.server.sim_loop import SimLoop

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


class Keys:
    """Remembers which keys are watched."""

    def __init__(self) -> None:
        self.watched: set[tuple[str, bytes]] = set()

    def watch(self, table: str, key: bytes) -> None:
        assert (table, key) not in self.watched
        self.watched.add((table, key))

    def unwatch(self, table: str, key: bytes) -> None:
        self.watched.remove((table, key))


class Jobs:
    """What is known of jobs, as the test says."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.dates_us: dict[str, list[int]] = {}
        self.counts: dict[str, tuple[int, int, int]] = {}  # waiting, taken, dead
        self.deaths: dict[str, int] = {}

    def first_date_us(self, table: str, after_us: int) -> int | None:
        later = [date for date in self.dates_us.get(table, ()) if date > after_us]
        return min(later, default=None)

    def job_counts(self) -> dict[str, tuple[int, int, int]]:
        return self.counts

    def job_deaths(self) -> dict[str, int]:
        return self.deaths


class World:
    """What sessions share, with a committer that runs nothing until it is told to."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        bounds = bounds or Bounds()
        self.clock = SimClock()
        self.loop = SimLoop(self.clock)
        self.keys = Keys()
        self.jobs = Jobs()
        self.failures: list[Exception] = []
        self.submitted: list[tuple[Origin, Any, Command, After | None]] = []
        self.settles: dict[int, Settle] = {}  # of what was submitted, by the id of its request
        self.scans: list[Scan | Span] = []
        self.refused: list[Code] = []
        self.released = 0
        self.left: list[int] = []
        counters, listeners = Counters(), Listeners(self.keys)
        self.shared = Shared(
            loop=self.loop.as_loop,
            runner=self,
            clock=self.clock,
            bounds=bounds,
            memory=Memory(self.clock, bounds.memory_bytes),
            counters=counters,
            listeners=listeners,
            jobs=self._follow_jobs(counters, listeners),
            reads=self._follow_reads(counters),
            sealer=None,
            sessions=Sessions(),
            new_client=lambda: NEW_CLIENT,
            cursors=Cursors(b"secret", bytes(16)),
            stats=lambda: Numbers(names=Strings.of([b"answer"]), values=[42]),
            version="1.2.3",
        )

    def _follow_jobs(self, counters: Counters, listeners: Listeners) -> JobEvents:
        parts = job_events.Parts(
            source=self.jobs,
            loop=self.loop.as_loop,
            clock=self.clock,
            counters=counters,
            listeners=listeners,
            submit=self.submit,
            tell=self.tell,
            on_failure=self.failures.append,
        )
        return JobEvents(parts)

    def _follow_reads(self, counters: Counters) -> Reads:
        parts = reading.Parts(
            loop=self.loop.as_loop,
            clock=self.clock,
            counters=counters,
            submit=self.submit,
            beside=Beside(self.loop.as_loop, "fjord-cold", threads=0),
            cold=None,
        )
        return Reads(parts)

    def tell(self, changes: Sequence[Changed]) -> None:
        listeners = self.shared.listeners
        listeners.tell(listeners.match(changes))

    def submit(
        self,
        origin: Origin,
        request: Any,
        command: Command,
        after: After | None = None,
        settle: Settle | None = None,
    ) -> None:
        self.submitted.append((origin, request, command, after))
        if settle is not None:
            self.settles[id(request)] = settle

    def scan(self, origin: Origin, request: Any, command: Scan | Span) -> None:
        self.scans.append(command)

    def note_refusal(self, code: Code) -> None:
        self.refused.append(code)

    def release(self) -> None:
        self.released += 1
        self.shared.jobs.release()

    def leave(self, client: int) -> None:
        self.left.append(client)

    def answer_all(self, reply: Reply = DONE) -> None:
        """Answers whatever was submitted, each as the committer would."""
        group, self.submitted[:] = list(self.submitted), []
        for origin, request, command, after in group:
            settle = self.settles.pop(id(request), None)
            found = reply if after is None else after(reply)
            if settle is None or settle(origin, request, command, found):
                origin.answer(request, found)
        for origin, _, _, _ in group:
            origin.flush()

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
        return [command for _, _, command, _ in self.world.submitted]

    def send(self, *messages: Buffer) -> None:
        self.session.data_received(b"".join(messages))

    def replies(self) -> Iterator[int]:
        """Yields the identifiers of the replies, all of them without an error or a value."""
        for start in range(0, len(self.wire.sent), 17):
            yield int.from_bytes(self.wire.sent[start + 4 : start + 6], "big")
