"""Using an engine inside a process: one lock, and one fsync for as many threads as wait for it."""

from __future__ import annotations

import threading

from fjord.commands import Command, Reply, Scan
from fjord.engine.engine import Engine
from fjord.engine.read_only import ReadOnlyEngine


class Embedded:
    """Runs commands of any thread on an engine; each reply is durable when it returns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running = threading.Lock()

    def execute(self, command: Command) -> Reply:
        if isinstance(command, Scan):
            return self._scan(command)
        with self._running:
            (reply,) = self._engine.run([command])
            seen_seq = self._engine.applied_seq
        if self._engine.durable_seq < seen_seq:
            self._engine.sync()
        return reply

    def close(self) -> None:
        with self._running:
            self._engine.close()

    def _scan(self, command: Scan) -> Reply:
        try:
            return self._engine.scan(command)
        except OSError:
            self._engine.check_usable()  # a scan beside close() finds its files closed
            raise


class EmbeddedReader:
    """The same for a directory that is open for reading only."""

    def __init__(self, engine: ReadOnlyEngine) -> None:
        self._engine = engine
        self._running = threading.Lock()

    def execute(self, command: Command) -> Reply:
        with self._running:
            if isinstance(command, Scan):
                return self._engine.scan(command)
            return self._engine.run([command])[0]

    def close(self) -> None:
        with self._running:
            self._engine.close()
