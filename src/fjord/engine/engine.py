"""The one writer: decide, apply, append, commit; then sync, and only then answer.

    run(commands)   decides and applies each, writes frames, commits the index: replies, not sent
    sync()          makes all of it durable; a reply may leave when `durable_seq` has reached
                    `applied_seq` as it was when the command ran, reads included

The order inside `run` is the promise: the frame is written before the index commits, so after a
process crash the journal is never behind the index.  `run` belongs to one thread; `sync` and
`scan` may be called from others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from fjord import disk as disks
from fjord import kinds, limits, ops
from fjord.clock import LeaseClock
from fjord.commands import Command, Refusal, Reply, Scan, Span
from fjord.engine import execution
from fjord.engine import group as groups
from fjord.engine import layout as layouts
from fjord.engine.layout import Published, Recovered, Status
from fjord.engine.memory import NO_JOBS, Memory
from fjord.engine.news import NO_NEWS, News, Watched
from fjord.engine.packing import Packer
from fjord.engine.scan import Past, look
from fjord.engine.sealing import Sealing
from fjord.engine.upkeep import Space, Upkeep
from fjord.errors import ClosedError, Code, DurabilityError
from fjord.index import IndexDamagedError, IndexFullError, viewed
from fjord.journal import frame as frames
from fjord.journal.writer import Claim, Commit
from fjord.layouts import Items
from fjord.tables import catalog
from fjord.tables.jobs import take
from fjord.tables.meaning import Note
from fjord.tables.state import JobCounts, Table, Tree

_DISK_FULL: Final = Refusal(
    code=Code.DISK_FULL, text="the disk is full; nothing was written; free space and try again"
)

# After these, sealing may be due at another time.
_SEALS: Final = frozenset({Note.BLOCKS, Note.DROP})
# How many segments are packed at most for deletes that have used up their reserve.
_PACKED_AT_ONCE: Final = 2


class Engine:
    """A data directory, open for writing, returned by `open_engine`."""

    def __init__(self, parts: Recovered) -> None:
        self._parts = parts
        self.clock, self.journal = parts.clock, parts.journal
        self.writer, self._index = parts.writer, parts.index
        self._leases = LeaseClock(parts.clock, parts.last_lease_us)
        self._published = Published(parts.disk, parts.layout, writable=True)
        self._published_seq, self._syncing = 0, threading.Lock()
        self.memory = Memory()
        self.watched = Watched()
        self.news = NO_NEWS  # what was written since `take_news`
        self._process = os.getpid()
        self._status = Status.OPEN
        self._uncommitted: tuple[int, int] | None = None  # start of a frame, until it is committed
        self.master = parts.disk.new_uuid()
        self.tables: Mapping[str, Table] = {}
        self._names: Mapping[int, str] = {}  # of tables, by id
        self.live_bytes = 0
        self.space = Space(parts, self._grow_index)
        self._read_state()
        self.sealing = Sealing(self)
        self.sealing.look()
        self.is_held = self.sealing.is_held
        self._packer = Packer(self, parts.segment_bytes)
        self._upkeep = Upkeep(self, self._packer, parts.segment_bytes)
        self._take_over()
        self._takeovers = self.takeovers()  # only this engine takes over meanwhile
        self.space.look_at_start()
        if self.space.is_full:
            self._pack_for_deletes()  # it may have been stopped while it packed

    # -- the two steps of every command -----------------------------------------------------------

    def run(self, wanted: Sequence[Command], clients: Sequence[int] = ()) -> list[Reply]:
        """Runs commands, except scans, in order; not durable before the next `sync`.

        Raises:
            DurabilityError: if the disk failed; the engine cannot be used any more.
        """
        replies: list[Reply] = []
        while len(replies) < len(wanted):
            replies += self.run_some(wanted[len(replies) :], clients[len(replies) :])
        return replies

    def run_some(self, wanted: Sequence[Command], clients: Sequence[int] = ()) -> list[Reply]:
        """Runs the first commands: at least one, up to one frame or one large answer.

        `clients` has the client of each command, if that matters: numbers that live as long as
        connections.
        """
        if self._status is not Status.OPEN or self._process != os.getpid():
            self.check_usable()
        for one in wanted:
            if not type(one).row.reads:
                return self._run_writes(wanted, clients)
        return self._run_reads(wanted) or self._run_writes(wanted, clients)

    def _run_writes(self, wanted: Sequence[Command], clients: Sequence[int]) -> list[Reply]:
        while True:
            try:
                replies = self._run_frame(wanted, clients)
            except IndexFullError:
                self._take_back()
                if not self._grow_index():
                    return self._refuse_growth(wanted, clients)
            except OSError as error:
                self._take_back()
                if not disks.is_full(error):
                    self._fail()
                    raise DurabilityError(f"the disk failed: {error}") from error
                return self._refuse_growth(wanted, clients)
            except BaseException:
                # A Ctrl-C too: how far the commit got is unknown, so it counts as a crash.
                self._fail()
                raise
            else:
                if self.space.is_full and not all(map(execution.is_urgent, wanted)):
                    self.space.note_write()
                return replies

    def run_internal(self, command: Command) -> Reply:
        """Runs a command of the engine itself."""
        self.check_usable()
        return self._run_writes([command], ())[0]

    def sync(self) -> int:
        """Makes everything durable that ran before; returns the durable seq.

        Raises:
            DurabilityError: if the disk failed; the engine cannot be used any more.
        """
        with self._syncing:
            try:
                durable_seq = self.writer.sync()
            except DurabilityError:
                self._fail()
                raise
            self._publish(durable_seq)
            return durable_seq

    @property
    def applied_seq(self) -> int:
        return self.writer.committed_seq

    @property
    def durable_seq(self) -> int:
        return self.writer.durable_seq

    @property
    def unsynced_bytes(self) -> int:
        """How many bytes the next sync has to write; 0: everything is durable."""
        writer = self.writer
        if writer.durable_seq >= writer.committed_seq:
            return 0
        return writer.position - writer.synced_position or 1

    def scan(self, command: Scan | Span) -> Reply:
        """Answers from the journal alone, up to what is durable."""
        self.check_usable()
        sealing = self.sealing
        past = Past(
            self.journal,
            self.tables,
            self.durable_seq,
            sealing.cold_seqs,
            sealing.cold_lasts,
            self._takeovers,
            bool(sealing.location),
        )
        return look(past, command)

    def takeovers(self) -> list[tuple[bytes, int]]:
        """Returns the takeovers: (UUID, high seq at the takeover), oldest first."""
        start, stop = catalog.takeover_range()
        return catalog.takeovers(self.scan_index(Tree.META, start, stop, limits.TAKEOVERS_MAX))

    def close(self) -> None:
        """Stops cleanly: the next start trusts journal and index without recovery.

        Raises:
            DurabilityError: if the disk fails meanwhile; the next start then recovers.
        """
        try:
            if self._status is Status.OPEN and self._process == os.getpid():
                self.sync()
                self.writer.close()
                self._index.sync()
                parts = self._parts
                identity = parts.indexes.identity()
                assert identity is not None
                mark = layouts.Clean(seq=self.applied_seq, index=identity, lease_us=self.lease_us)
                layouts.write_mark(parts.disk, parts.layout.clean, mark)
        except DurabilityError:
            self._fail()
            raise
        except OSError as error:
            # Everything is durable.  A full disk costs the next start a recovery, no more.
            if not disks.is_full(error):
                raise DurabilityError(f"the stop was not clean: {error}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes everything as a crash would, without a mark for the next start."""
        if self._status is Status.CLOSED:
            return
        self._status = Status.CLOSED
        self.writer.abandon()
        self._index.close()
        self._published.close()
        self.journal.close()
        self._parts.lock.release()

    def check_usable(self) -> None:
        """Raises the error for an engine that cannot be used any more."""
        if self._process != os.getpid():
            raise ClosedError("a database does not survive a fork; open it in the new process")
        if self._status is Status.FAILED:
            raise DurabilityError(
                "the disk failed, or a commit was interrupted half way; open the directory again"
            )
        if self._status is Status.CLOSED:
            raise ClosedError

    # -- beside commands --------------------------------------------------------------------------

    def release(self, client: int) -> None:
        """Releases the locks of a client that has disconnected."""
        self.memory.locks.release(client)

    def take_news(self) -> News:
        """Returns what was written since the last call; to be announced once durable."""
        news, self.news = self.news, NO_NEWS
        return news

    def attach_blocks(self, given: str = "") -> str:
        """Cold blocks are written from now on, as `sealing` plans them; returns their location."""
        disk, layout = self._parts.disk, self._parts.layout
        location = layouts.blocks_location(disk, layout, given)
        self.memory.location = self.sealing.location = location
        self.sealing.shared_seq = layouts.shared_seq(disk, layout, location)
        self.sealing.look()
        return location

    def first_date_us(self, table: str, after_us: int) -> int | None:
        """Returns the first process date of a waiting job that is later than another date."""
        found = self.tables.get(table)
        if found is None or found.kind is not kinds.Kind.JOBS:
            return None
        with viewed(self._index) as transaction:
            return take.later_us(
                groups.IndexView(transaction, self._known(self.clock.monotonic_us())),
                found,
                after_us,
            )

    def job_counts(self) -> dict[str, JobCounts]:
        """Returns how many jobs each jobs table has."""
        counts = self.memory.counts
        return {
            name: counts.get(table.id, NO_JOBS)
            for name, table in self.tables.items()
            if table.kind is kinds.Kind.JOBS
        }

    def job_deaths(self) -> dict[str, int]:
        """Returns how many jobs of each table died since the start."""
        deaths = self.memory.deaths
        return {name: deaths[one.id] for name, one in self.tables.items() if one.id in deaths}

    def upkeep(self) -> bool:
        """Does one bounded step of what is due; returns whether more is due at once."""
        self.check_usable()
        try:
            return self._upkeep.step()
        except OSError as error:
            self._fail()
            raise DurabilityError(f"the disk failed: {error}") from error

    def upkeep_due_us(self) -> int:
        """Returns the wall time when the next step is due."""
        return self._upkeep.due_us()

    @property
    def lease_us(self) -> int:
        """Lease time now."""
        return self._leases.lease_us()

    def measure(self, command: Command) -> int:
        """Returns how many bytes a step of packing would write."""
        with viewed(self._index) as transaction:
            state = groups.IndexView(transaction, self._known(self.clock.monotonic_us()))
            decided = execution.decide(command, state, self.clock.wall_us())
            size = sum(len(ops.encode(op)[0]) for op in decided.ops)
            return frames.FRAME_HEADER_BYTES + size if size else 0

    def scan_index(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        """Returns items of the current index."""
        with viewed(self._index) as transaction:
            return transaction.scan(tree, start, stop, limit)

    def stats(self) -> dict[str, int]:
        """Returns the statistics of a directory, see docs/operations.md."""
        with viewed(self._index) as transaction:
            counts = groups.count_trees(transaction)
        return {
            "applied_seq": self.applied_seq,
            "durable_seq": self.durable_seq,
            "first_seq": self.journal.segments[0].first_seq,
            "segments": len(self.journal.segments),
            "journal_bytes": self._packer.used_bytes(),
            "live_bytes": self.live_bytes,
            "packed_segments": self._packer.packed_segments,
            "packing_blocked": int(self._packer.damage is not None),
            "tables": len(self.tables),
            **self.space.stats(),
            **counts,
            **self.memory.stats(),
        }

    # -- one frame --------------------------------------------------------------------------------

    def _run_frame(self, wanted: Sequence[Command], clients: Sequence[int]) -> list[Reply]:
        if not self._index.has_reserve() and not all(map(execution.is_urgent, wanted)):
            raise IndexFullError
        clock = self.clock
        now_us, wall_us = clock.monotonic_us(), clock.wall_us()
        late_us = now_us + limits.GROUP_US_MAX
        transaction = self._index.begin()
        try:
            group = groups.Group(
                transaction,
                self._known(now_us),
                self.writer,
                live_bytes=self.live_bytes,
                watched=self.watched,
                wall_us=wall_us,
            )
            group.notes_jobs = self._packer.moving is not None
            replies = execution.fill(
                group, wanted, clients, self._make_room, lambda: clock.monotonic_us() > late_us
            )
            if group.rows:
                groups.write_progress(
                    transaction, group.next_seq - 1, group.live_bytes, group.counts.changed
                )
                # From here until the index has committed, the frame can be truncated.
                self._uncommitted = (self.writer.position, self.writer.next_seq)
                self.writer.append(Commit(wall_us, group.lease_us, group.ops, group.rows))
            transaction.commit()
        except BaseException:
            transaction.abort()
            self.memory.undo()
            raise
        self._uncommitted = None
        self.writer.confirm()
        self._keep(group)
        return replies

    def _keep(self, group: groups.Group) -> None:
        """Keeps the changes of a group in memory, and collects its news."""
        memory, notes = self.memory, group.notes
        for part in memory.undoable:
            if part.changes:
                part.changes.clear()
        memory.counts.update(group.counts.changed)
        if notes.deaths:
            memory.deaths.update(notes.deaths)
        if group.tables is not self.tables:
            self.tables = group.tables
            self._names = {table.id: name for name, table in group.tables.items()}
        self.live_bytes = group.live_bytes
        memory.snapshots, memory.generations = group.snapshots, group.generations
        memory.given_back_seq = max(memory.given_back_seq, notes.given_back_seq)
        memory.is_secure |= notes.is_secure
        if Note.DROP in notes.seen:
            memory.retain(self.tables)
        turns = notes.given_back_seq > 0 or min(group.counts.changed, default=0) < 0
        sweeps = Note.SWEEP in notes.seen
        if notes.schedules or sweeps or turns:
            self._upkeep.note(notes.schedules, sweeps=sweeps, turns=turns)
        if Note.UNCOUNTED in notes.seen:
            self._packer.look_again()
        looks = not notes.seen.isdisjoint(_SEALS) or notes.given_back_seq > 0
        if group.rows:
            self.sealing.note(group, looks=looks)
        if self._packer.moving is not None:
            for op, place in notes.applied:
                self._packer.moving.note(op, place)
        self._note_news(group, looks=looks)

    def _note_news(self, group: groups.Group, *, looks: bool) -> None:
        notes, known, names = group.notes, self.news, self._names
        written = self.watched.take_written() if self.watched.written else ()
        arrivals, appended = known.arrivals, known.appended
        if notes.arrivals:
            arrivals = dict(arrivals)
            for table, arrival in notes.arrivals.items():
                if table in names:
                    before = arrivals.get(names[table])
                    arrivals[names[table]] = arrival.joined(before) if before else arrival
        if notes.appended:
            appended = {*appended, *[names[table] for table in notes.appended if table in names]}
        self.news = News(
            arrivals,
            appended,
            [*known.changed, *notes.changed] if notes.changed else known.changed,
            {*known.written, *[names[table] for table in written if table in names]}
            if written
            else known.written,
            is_sooner=known.is_sooner or looks or self._upkeep.is_sooner(),
        )

    def _run_reads(self, wanted: Sequence[Command]) -> list[Reply] | None:
        """Answers commands that change nothing; None if one does: a READ may open a snapshot."""
        clock = self.clock
        now_us, wall_us = clock.monotonic_us(), clock.wall_us()
        replies: list[Reply] = []
        answer_bytes = 0
        transaction = self._index.view()
        try:
            snapshot = groups.IndexView(transaction, self._known(now_us))
            for command in wanted:
                if replies and (
                    answer_bytes >= limits.ANSWER_BYTES_MAX
                    or clock.monotonic_us() > now_us + limits.GROUP_US_MAX
                ):
                    break
                reply, ops_, _, _ = execution.decide(command, snapshot, wall_us)
                if ops_:
                    return None
                replies.append(reply)
                answer_bytes += type(reply).row.size(reply)
        except IndexDamagedError:
            self._fail()
            raise
        finally:
            transaction.abort()
        return replies

    def _refuse_growth(self, wanted: Sequence[Command], clients: Sequence[int]) -> list[Reply]:
        """Handles a full disk: answers reads, runs what frees space, refuses the rest."""
        if self.space.refuse():
            self.sealing.look()  # blocks are written earlier now, so that segments can go
        if len(wanted) == 1:
            if execution.claim_of(wanted[0]) is Claim.URGENT and self._pack_for_deletes():
                return self.run_some(wanted, clients)
            return [_DISK_FULL]
        late_us = self.clock.monotonic_us() + limits.GROUP_US_MAX
        replies: list[Reply] = []
        answer_bytes = 0
        for position, command in enumerate(wanted):
            reply: Reply = _DISK_FULL
            if type(command).row.reads or execution.is_urgent(command):
                (reply,) = self.run_some([command], clients[position : position + 1])
            replies.append(reply)
            answer_bytes += type(reply).row.size(reply)
            if answer_bytes >= limits.ANSWER_BYTES_MAX or self.clock.monotonic_us() > late_us:
                break
        return replies

    # -- small steps ------------------------------------------------------------------------------

    def _known(self, monotonic_us: int) -> groups.Known:
        return groups.Known(
            self.journal,
            self.memory,
            self.tables,
            self.master,
            self.writer.next_seq,
            self._leases.base_us + monotonic_us,
        )

    def begin_segment(self) -> None:
        """Closes the open segment, so that it can be packed."""
        self.writer.make_room(0, Claim.VITAL)
        self._rotate(0, Claim.VITAL)

    def _make_room(self, body_bytes: int, claim: Claim) -> None:
        """Ensures that a frame fits, in this segment or in the next one."""
        try:
            if not self.writer.make_room(body_bytes, claim):
                self._rotate(body_bytes, claim)
        except OSError:
            self.space.note_lack(body_bytes)
            raise

    def _rotate(self, body_bytes: int, claim: Claim) -> None:
        now_us, lease_us = self.clock.wall_us(), self._leases.lease_us()
        try:
            self.writer.rotate(now_us, lease_us, body_bytes=body_bytes, claim=claim)
        finally:
            with self._syncing:  # a rotation syncs what was before it, even if it then fails
                self._publish(self.writer.durable_seq)
        self.journal.add(self.writer.header)
        self.sealing.look()  # a segment is full

    def _take_back(self) -> None:
        """Ensures that a frame which was refused after it was written does not reappear."""
        if self._uncommitted is None:
            return
        try:
            self.writer.cut(*self._uncommitted)
        except DurabilityError:
            self._fail()
            raise
        self._uncommitted = None

    def _grow_index(self) -> bool:
        try:
            self._index.grow()
        except OSError as error:
            if disks.is_full(error):
                self.space.note_lack(of_index=True)
                return False
            self._fail()
            raise DurabilityError(f"the disk failed: {error}") from error
        return True

    def _fail(self) -> None:
        """From now on nothing is acknowledged, and the next start does not trust the index."""
        self._status = Status.FAILED
        self._published.write(layouts.FAILED_SEQ)

    def _publish(self, durable_seq: int) -> None:
        if durable_seq > self._published_seq:
            self._published.write(durable_seq)
            self._published_seq = durable_seq

    def _read_state(self) -> None:
        with viewed(self._index) as transaction:
            self.tables = groups.read_tables(transaction)
            self.live_bytes = groups.read_live(transaction)
            self._names = {table.id: name for name, table in self.tables.items()}
            groups.read_memory(self.memory, transaction)

    def _pack_for_deletes(self) -> bool:
        """Packs a little if deletes have used up their reserve; returns whether that made room."""
        if self._could_delete():
            return False
        last = self._packer.packed_segments + _PACKED_AT_ONCE
        while self._packer.packed_segments < last and self._packer.is_wanted(self.live_bytes):
            is_stuck = not self._packer.step()
            if self._could_delete():
                return True
            if is_stuck:
                break
        return False

    def _could_delete(self) -> bool:
        return self.writer.could_take(self.space.body_bytes, Claim.URGENT)

    def _take_over(self) -> None:
        """Begins a term of this writer: a new UUID at the current seq."""
        (reply,) = self.run_some([catalog.TakeOver(master=self.master)])
        if isinstance(reply, Refusal):
            raise reply.error()
        self.sync()
