"""A session between a transport that only records and a committer that only collects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Command, Done, Numbers, Reply, Scan
from fjord.errors import Code
from fjord.server.bounds import Bounds, Memory
from fjord.server.committer import After, Origin
from fjord.server.counters import Counters
from fjord.server.listeners import Listeners
from fjord.server.session import Session
from fjord.server.sessions import Sessions, Shared
from fjord.testing import SimClock
from fjord.wire import Cursors

DONE = Done(master=bytes(16), seq=1)
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


class World:
    """What sessions share, with a committer that runs nothing until it is told to."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        bounds = bounds or Bounds()
        self.clock = SimClock()
        self.keys = Keys()
        self.submitted: list[tuple[Origin, Any, Command, After | None]] = []
        self.scans: list[Scan] = []
        self.refused: list[Code] = []
        self.released = 0
        self.left: list[int] = []
        self.shared = Shared(
            runner=self,
            clock=self.clock,
            bounds=bounds,
            memory=Memory(self.clock, bounds.memory_bytes),
            counters=Counters(),
            listeners=Listeners(self.keys),
            sessions=Sessions(),
            new_client=lambda: NEW_CLIENT,
            cursors=Cursors(b"secret", bytes(16)),
            stats=lambda: Numbers(names=Strings.of([b"answer"]), values=[42]),
            version="1.2.3",
        )

    def submit(
        self, origin: Origin, request: Any, command: Command, after: After | None = None
    ) -> None:
        self.submitted.append((origin, request, command, after))

    def scan(self, origin: Origin, request: Any, command: Scan) -> None:
        self.scans.append(command)

    def note_refusal(self, code: Code) -> None:
        self.refused.append(code)

    def release(self) -> None:
        self.released += 1

    def leave(self, client: int) -> None:
        self.left.append(client)

    def answer_all(self, reply: Reply = DONE) -> None:
        """Answers whatever was submitted, each as the committer would."""
        group, self.submitted[:] = list(self.submitted), []
        for origin, request, _, after in group:
            origin.answer(request, reply if after is None else after(reply))
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

    def send(self, *messages: bytes) -> None:
        self.session.data_received(b"".join(messages))

    def replies(self) -> Iterator[int]:
        """Yields the identifiers of the replies, all of them without an error or a value."""
        for start in range(0, len(self.wire.sent), 17):
            yield int.from_bytes(self.wire.sent[start + 4 : start + 6], "big")
