"""Reading a data directory beside its writer, or without one; it never disturbs the writer.

A reader sees what the index has committed, and answers only what is durable: it waits for the
writer's published durable seq, or syncs itself if there is no writer.  If the directory has no
trusted index (a copy, another boot after a crash) the journal is replayed into memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from fjord import errors, limits
from fjord.commands import Command, Read, Refusal, Reply, Scan, Span
from fjord.engine import group, opening
from fjord.engine import layout as layouts
from fjord.engine.layout import Clean, Layout
from fjord.engine.memory import Memory, job_stats
from fjord.engine.opening import EngineSettings
from fjord.engine.scan import Past, look
from fjord.errors import Code
from fjord.index import Index, IndexDamagedError, Transaction
from fjord.journal.reader import Journal
from fjord.tables import catalog
from fjord.tables.state import Tree
from fjord.tables.streams import history

_READ_ONLY: Final = Refusal(code=Code.READ_ONLY, text="the database was opened with read_only=True")
_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 0.001
# A reader assigns no seqs, so it has no token of its own.
_NO_MASTER: Final = bytes(16)


class ReadOnlyEngine:
    """A data directory, open for reading."""

    def __init__(self, path: str, settings: EngineSettings | None = None) -> None:
        """Opens a directory.

        Raises:
            DirectoryError: if it is not a data directory, or cannot be read.
        """
        self._settings = settings or EngineSettings()
        self._layout = Layout(path)
        self.location = ""  # where cold blocks are, once attached
        try:
            if not layouts.has_journal(self._settings.disk, self._layout):
                raise errors.DirectoryError(f"{self._layout.root} is not a Fjord data directory")
            self._journal = Journal(self._settings.disk, self._layout.journal)
            self._index = self._attach()
        except OSError as error:
            raise errors.DirectoryError(f"{self._layout.root} cannot be opened: {error}") from error

    def attach_blocks(self, given: str = "") -> str:
        """Makes cold blocks readable from now on; returns their location."""
        disk, layout = self._settings.disk, self._layout
        self.location = layouts.blocks_location(disk, layout, given, read_only=True)
        return self.location

    def run(self, wanted: Sequence[Command]) -> list[Reply]:
        """Answers reads at one durable moment; refuses everything else."""
        for _ in range(1, _ATTEMPTS):
            # The writer may pack a segment meanwhile; its rows are then elsewhere.
            with contextlib.suppress(FileNotFoundError):
                return self._run(wanted)
            self._journal.refresh()
        return self._run(wanted)

    def _run(self, wanted: Sequence[Command]) -> list[Reply]:
        with self._durable_view() as (transaction, applied_seq):
            memory = Memory()
            group.read_memory(memory, transaction)
            memory.location = self.location
            known = group.Known(
                self._journal,
                memory,
                group.read_tables(transaction),
                _NO_MASTER,
                applied_seq + 1,
                lease_us=self._lease_us() if any(type(one).row.leases for one in wanted) else 0,
            )
            snapshot = group.IndexView(transaction, known)
            now_us = self._settings.clock.wall_us()
            return [self._answer(command, snapshot, now_us) for command in wanted]

    def scan(self, command: Scan | Span) -> Reply:
        """Answers from the journal, up to what was durable when the scan began."""
        with self._durable_view() as (transaction, applied_seq):
            known = group.read_tables(transaction)
            blocks = [block for block, _ in history.all_items(transaction.scan)]
            items = transaction.scan(Tree.META, *catalog.takeover_range(), limits.TAKEOVERS_MAX)
            # A writer of blocks records for each table how far it is, before a segment is removed.
            seals = bool(transaction.scan(Tree.HISTORY, b"", None, 1))
        firsts = {block.table: block.first for block in reversed(blocks)}
        lasts = {block.table: block.last for block in blocks}
        takeovers = catalog.takeovers(items)
        self._journal.refresh()
        past = Past(self._journal, known, applied_seq, firsts, lasts, takeovers, seals)
        return look(past, command)

    def stats(self) -> dict[str, int]:
        """Returns the statistics of a directory that are visible without its writer."""
        with self._durable_view() as (transaction, applied_seq):
            known, live_bytes = group.read_tables(transaction), group.read_live(transaction)
            counts = group.read_counts(transaction)
        self._journal.refresh()
        return {
            "applied_seq": applied_seq,
            "first_seq": self._journal.first_seq,
            "segments": len(self._journal.segments),
            "live_bytes": live_bytes,
            "tables": len(known),
            **job_stats(counts),
        }

    def _lease_us(self) -> int:
        """Returns the current lease time, as far as it is known outside the writer."""
        self._journal.refresh()
        first_seq, last = self._journal.segments[-1].first_seq, None
        for located in self._journal.frames(first_seq, durable_seq=0):
            last = located.frame
        if last is None:
            return self._journal.segments[-1].lease_us
        return last.lease_us + max(0, self._settings.clock.wall_us() - last.wall_us)

    def close(self) -> None:
        self._index.close()
        self._journal.close()

    @staticmethod
    def _answer(command: Command, snapshot: group.IndexView, now_us: int) -> Reply:
        if not type(command).row.reads:
            return _READ_ONLY
        try:
            if isinstance(command, Read):
                command = replace(command, once=True)  # a snapshot would be a write
            reply: Reply = type(command).row.decide(command, snapshot, now_us).reply
            return reply
        except errors.RefusedError as error:
            return Refusal.of(error)
        except errors.CorruptionError as error:
            return Refusal(code=Code.CORRUPT, text=str(error))

    @contextlib.contextmanager
    def _durable_view(self) -> Iterator[tuple[Transaction, int]]:
        """Opens a view of the index in which everything is durable.

        A view that is behind what was published before it was opened belongs to an index that is
        being rebuilt, or that was replaced; then another one is opened.
        """
        deadline_us = self._deadline_us()
        while True:
            published_seq = self._published_seq()
            transaction = self._index.view()
            try:
                applied_seq = group.read_applied(transaction)
                if applied_seq >= published_seq:
                    self._wait_for(applied_seq)
                    yield transaction, applied_seq
                    return
            finally:
                transaction.abort()
            self._pause(deadline_us)
            self._index.close()
            self._index = self._attach()

    def _wait_for(self, applied_seq: int) -> None:
        """Waits until `applied_seq` is durable, by the writer or by this process."""
        deadline_us = self._deadline_us()
        while self._published_seq() < applied_seq:
            if not self._settings.disk.is_locked(self._layout.lock):
                self._sync_journal()
                return
            self._pause(deadline_us)

    def _published_seq(self) -> int:
        durable_seq, failed = layouts.read_published(self._settings.disk, self._layout)
        if failed:
            raise errors.DurabilityError
        return durable_seq

    def _deadline_us(self) -> int:
        wait_us = int(limits.DURABLE_WAIT_SECONDS_MAX * 1_000_000)
        return self._settings.clock.monotonic_us() + wait_us

    def _pause(self, deadline_us: int) -> None:
        if self._settings.clock.monotonic_us() > deadline_us:
            raise errors.UnavailableError("the writer is rebuilding its index, or stuck; try again")
        self._settings.clock.pause(_PAUSE_SECONDS)

    def _sync_journal(self) -> None:
        """Does the sync that a killed writer did not get to."""
        self._journal.refresh()
        path = self._journal.path(self._journal.segments[-1].segment)
        try:
            with contextlib.closing(self._settings.disk.open(path)) as file:
                file.sync()
        except OSError as error:
            raise errors.DurabilityError(f"{path} cannot be synced: {error}") from error

    def _attach(self) -> Index:
        disk, indexes = self._settings.disk, opening.indexes_of(self._settings, self._layout)
        clean = layouts.read_mark(disk, self._layout.clean, Clean)
        if opening.is_index_trusted(disk, self._layout, indexes, clean):
            with contextlib.suppress(IndexDamagedError):
                return indexes.open(read_only=True)
        known_seq = layouts.known_seq(disk, self._layout)
        self._journal.refresh()
        tail = opening.read_tail(self._journal, known_seq)
        return opening.replayed(self._settings, self._journal, tail.last_seq)
