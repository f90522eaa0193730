"""The one writer: decide, apply, append, commit; then sync, and only then answer.

    run(commands)   decides and applies each, writes frames, commits the index: replies, not sent
    sync()          makes all of it durable; a reply may leave when `durable_seq` has reached
                    `applied_seq` as it was when the command ran, reads included

The order inside `run` is the promise: the frame is written before the index commits, so after a
process crash the journal is never behind the index.  `run` belongs to one thread; `sync` and
`scan` may be called from others.
"""

from __future__ import annotations

import enum
import itertools
import os
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits, tables
from fjord.clock import Clock, LeaseClock
from fjord.commands import Command, Entries, Refusal, Reply, Scan
from fjord.engine import layout as layouts
from fjord.engine.group import (
    Group,
    Known,
    Snapshot,
    Volatile,
    encode_all,
    encoded_bytes,
    read_tables,
    write_applied,
)
from fjord.engine.layout import Layout, Published
from fjord.engine.scanning import scan_journal
from fjord.errors import ClosedError, Code, CorruptionError, DurabilityError
from fjord.index import Index, IndexDamagedError, Indexes, IndexFullError
from fjord.journal.reader import Journal
from fjord.journal.writer import Commit, Writer
from fjord.tables import catalog
from fjord.tables.state import Decision, Table, Tree

# Beside what users may ask there is what a writer asks of itself.
AnyCommand = Command | catalog.TakeOver

_DISK_FULL: Final = Refusal(
    code=Code.DISK_FULL, text="the disk is full; nothing was written; free space and try again"
)


class Status(enum.Enum):
    """What an engine is good for; it only ever moves down this list."""

    OPEN = "open"
    FAILED = "failed"  # the disk broke a promise: nothing is acknowledged any more
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What recovery hands to the engine."""

    disk: disks.Disk
    clock: Clock
    layout: Layout
    lock: disks.Lock
    journal: Journal
    writer: Writer
    indexes: Indexes
    index: Index
    last_lease_us: int


class Engine:
    """A data directory, open for writing.  Made by `open_engine`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._journal = parts.journal
        self._writer = parts.writer
        self._index = parts.index
        self._leases = LeaseClock(parts.clock, parts.last_lease_us)
        self._published = Published(parts.disk, parts.layout, writable=True)
        self._published_seq = 0
        self._syncing = threading.Lock()
        self._volatile = Volatile()
        self._process = os.getpid()
        self._status = Status.OPEN
        # Where the frame begins that is written and whose index transaction is not committed.
        self._uncommitted: tuple[int, int] | None = None
        self.master = parts.disk.new_uuid()
        self.tables: Mapping[str, Table] = self._read_tables()
        self._take_over()

    # -- the two steps of every command -----------------------------------------------------------

    def run(self, wanted: Sequence[Command]) -> list[Reply]:
        """Runs commands, but for scans, in order; not durable before the next `sync`.

        Raises:
            DurabilityError: if the disk failed; the engine is then of no more use.
        """
        replies: list[Reply] = []
        while len(replies) < len(wanted):
            replies += self.run_some(wanted[len(replies) :])
        return replies

    def run_some(self, wanted: Sequence[Command]) -> list[Reply]:
        """Runs the first commands: at least one, and else one frame or one large answer."""
        self.check_usable()
        return self._run_some(wanted)

    def sync(self) -> int:
        """Makes durable whatever ran before; returns the durable seq.

        Raises:
            DurabilityError: if the disk failed; the engine is then of no more use.
        """
        with self._syncing:
            try:
                durable_seq = self._writer.sync()
            except DurabilityError:
                self._fail()
                raise
            self._publish(durable_seq)
            return durable_seq

    @property
    def applied_seq(self) -> int:
        return self._writer.committed_seq

    @property
    def durable_seq(self) -> int:
        return self._writer.durable_seq

    @property
    def unsynced_bytes(self) -> int:
        return self._writer.unsynced_bytes

    def scan(self, command: Scan) -> Reply:
        """Answers from the journal alone, up to what is durable."""
        self.check_usable()
        return scan_journal(self._journal, self.tables, command, self.durable_seq)

    def takeovers(self) -> list[tuple[bytes, int]]:
        """Returns the takeover table: (UUID, high seq when it took over), oldest first."""
        transaction = self._index.view()
        try:
            start, stop = catalog.takeover_range()
            return catalog.takeovers(transaction.scan(Tree.META, start, stop, limits.TAKEOVERS_MAX))
        finally:
            transaction.abort()

    def close(self) -> None:
        """Stops cleanly: the next start trusts journal and index as they are.

        Raises:
            DurabilityError: if the disk fails meanwhile; the next start then recovers.
        """
        try:
            if self._status is Status.OPEN and self._process == os.getpid():
                self.sync()
                self._close_writer()
                self._index.sync()
                self._leave_clean_mark()
        except OSError as error:
            # Everything is durable.  A full disk costs the next start a recovery, no more.
            if not disks.is_full(error):
                raise DurabilityError(f"the stop was not clean: {error}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets go of everything, as a crash would, without a word to the next start."""
        if self._status is Status.CLOSED:
            return
        self._status = Status.CLOSED
        self._writer.abandon()
        self._index.close()
        self._published.close()
        self._journal.close()
        self._parts.lock.release()

    def check_usable(self) -> None:
        """Raises the error that fits an engine that may not be used any more."""
        if self._process != os.getpid():
            raise ClosedError("a database does not survive a fork; open it in the new process")
        if self._status is Status.FAILED:
            raise DurabilityError(
                "the disk failed, or a commit was interrupted half way; open the directory again"
            )
        if self._status is Status.CLOSED:
            raise ClosedError

    # -- one frame --------------------------------------------------------------------------------

    def _run_some(self, wanted: Sequence[AnyCommand]) -> list[Reply]:
        """Runs as many commands as fit one frame, at least one."""
        if tables.READS.issuperset(map(type, wanted)):
            return self._run_reads(wanted)
        while True:
            try:
                return self._run_frame(wanted)
            except IndexFullError:
                self._take_back()
                if not self._grow_index():
                    return self._refuse_writes(wanted)
            except OSError as error:
                self._take_back()
                if not disks.is_full(error):
                    self._fail()
                    raise DurabilityError(f"the disk failed: {error}") from error
                return self._refuse_writes(wanted)
            except BaseException:
                # A Ctrl-C too: nobody knows how far the commit came, so it counts as a crash.
                self._fail()
                raise

    def _run_frame(self, wanted: Sequence[AnyCommand]) -> list[Reply]:
        transaction = self._index.begin()
        try:
            group = Group(transaction, self._known(), self._writer)
            replies = self._decide_and_apply(group, wanted)
            if group.rows:
                self._append(group)
            transaction.commit()
        except BaseException:
            transaction.abort()
            self._volatile.undo()
            raise
        self._uncommitted = None
        self._writer.confirm()
        self._volatile.keep()
        self.tables = group.tables
        return replies

    def _decide_and_apply(self, group: Group, wanted: Sequence[AnyCommand]) -> list[Reply]:
        now_us = self._clock.wall_us()
        replies: list[Reply] = []
        answer_bytes = 0
        for run in _runs(wanted):
            if answer_bytes >= limits.ANSWER_BYTES_MAX:
                break
            merged = _decide_merged(run, group, now_us)
            for command in run[:1] if merged else run:
                decision = merged or _decide(command, group, now_us)
                if decision.ops:
                    encoded = encode_all(decision.ops)
                    if not self._make_room(group, encoded):
                        return replies  # this frame is full; the rest goes into the next one
                    group.add(decision.ops, encoded)
                if decision.volatile:
                    group.change_volatile(decision.volatile)
                replies += [decision.reply] * (len(run) if merged else 1)
                answer_bytes += _reply_bytes(decision.reply)
        return replies

    def _make_room(self, group: Group, encoded: Sequence[tuple[bytes, int]]) -> bool:
        """Says whether these ops fit; for an empty frame a new segment makes them fit."""
        if group.fits(encoded):
            return True
        if group.rows:
            return False
        self._rotate(encoded_bytes(encoded))
        return True

    def _append(self, group: Group) -> None:
        """Writes the frame: from here on, and until the index has committed, it can be cut."""
        write_applied(group.transaction, group.next_seq - 1)
        self._uncommitted = (self._writer.position, self._writer.next_seq)
        commit = Commit(self._clock.wall_us(), self._leases.lease_us(), group.ops, group.rows)
        self._writer.append(commit)

    def _run_reads(self, wanted: Sequence[AnyCommand]) -> list[Reply]:
        transaction = self._index.view()
        try:
            snapshot, now_us = Snapshot(transaction, self._known()), self._clock.wall_us()
            return _bounded(_decide(command, snapshot, now_us).reply for command in wanted)
        except IndexDamagedError:
            self._fail()
            raise
        finally:
            transaction.abort()

    def _refuse_writes(self, wanted: Sequence[AnyCommand]) -> list[Reply]:
        return _bounded(
            self._run_reads([command])[0] if type(command) in tables.READS else _DISK_FULL
            for command in wanted
        )

    # -- small steps ------------------------------------------------------------------------------

    def _known(self) -> Known:
        return Known(self._journal, self._volatile, self.tables, self.master, self._writer.next_seq)

    def _rotate(self, body_bytes: int) -> None:
        now_us, lease_us = self._clock.wall_us(), self._leases.lease_us()
        try:
            self._writer.rotate(now_us, lease_us, body_bytes=body_bytes)
        finally:
            with self._syncing:  # a rotation syncs what was before it, even if it then fails
                self._publish(self._writer.durable_seq)
        self._journal.add(self._writer.header)

    def _take_back(self) -> None:
        """Ensures that a frame which was refused after it was written does not come back."""
        if self._uncommitted is None:
            return
        try:
            self._writer.cut(*self._uncommitted)
        except DurabilityError:
            self._fail()
            raise
        self._uncommitted = None

    def _grow_index(self) -> bool:
        try:
            self._index.grow()
        except OSError as error:
            if disks.is_full(error):
                return False
            self._fail()
            raise DurabilityError(f"the disk failed: {error}") from error
        return True

    def _fail(self) -> None:
        """Nothing is acknowledged any more, and the next start does not trust the index."""
        self._status = Status.FAILED
        self._published.write_failed()

    def _close_writer(self) -> None:
        try:
            self._writer.close()
        except DurabilityError:
            self._fail()
            raise

    def _publish(self, durable_seq: int) -> None:
        if durable_seq > self._published_seq:
            self._published.write(durable_seq)
            self._published_seq = durable_seq

    def _leave_clean_mark(self) -> None:
        parts = self._parts
        identity = parts.indexes.identity()
        assert identity is not None
        clean = layouts.Clean(seq=self.applied_seq, index=identity)
        layouts.write_mark(parts.disk, parts.layout.clean, clean)

    def _read_tables(self) -> Mapping[str, Table]:
        transaction = self._index.view()
        try:
            return read_tables(transaction)
        finally:
            transaction.abort()

    def _take_over(self) -> None:
        """Every start is a takeover: a new UUID at the current seq."""
        (reply,) = self._run_some([catalog.TakeOver(master=self.master)])
        if isinstance(reply, Refusal):
            raise reply.error()
        self.sync()


def _bounded(replies: Iterator[Reply]) -> list[Reply]:
    """Takes replies until they are one large answer together; the rest is not even made."""
    taken: list[Reply] = []
    answer_bytes = 0
    for reply in replies:
        taken.append(reply)
        answer_bytes += _reply_bytes(reply)
        if answer_bytes >= limits.ANSWER_BYTES_MAX:
            break
    return taken


def _reply_bytes(reply: Reply) -> int:
    return len(reply.values.data) if isinstance(reply, Entries) else 0


def _runs(wanted: Sequence[AnyCommand]) -> Iterator[Sequence[AnyCommand]]:
    """Yields the commands in order, with neighbours that may be merged together."""
    if len(wanted) == 1:
        yield wanted
        return
    for key, run in itertools.groupby(wanted, _merge_key):
        if key is None:
            yield from ([command] for command in run)
        else:
            yield list(run)


def _merge_key(command: AnyCommand) -> Hashable:
    merge_key = tables.MERGE_KEY.get(type(command))
    return None if merge_key is None else merge_key(command)


def _decide_merged(run: Sequence[AnyCommand], group: Group, now_us: int) -> Decision | None:
    """Decides a run as one command; None if each has to be decided alone."""
    if len(run) == 1:
        return None
    merged = tables.MERGE[type(run[0])](run)
    if merged is None:
        return None
    decision = _decide(merged, group, now_us)
    return None if isinstance(decision.reply, Refusal) else decision


def _decide(command: AnyCommand, state: Snapshot, now_us: int) -> Decision:
    """Decides a command; damage that only a read has met is that read's answer."""
    try:
        return tables.DECIDE[type(command)](command, state, now_us)
    except CorruptionError as error:
        return Decision(Refusal(code=Code.CORRUPT, text=str(error)))
    except OSError as error:
        return Decision(Refusal(code=Code.FAILED, text=f"the journal cannot be read: {error}"))
