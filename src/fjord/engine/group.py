"""State for decide, on an index transaction: read-only, or a group that becomes one frame."""

from __future__ import annotations

import bisect
import copy
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from fjord import layouts, limits
from fjord.columns import Strings
from fjord.commands import Changed
from fjord.engine.memory import NO_JOBS, Memory, Overlay
from fjord.engine.news import Arrival, Watched
from fjord.index import Transaction
from fjord.jobs import SLOW_FROM
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Claim, Writer
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, generations, snapshots
from fjord.tables.generations import Generations
from fjord.tables.jobs import keep, layout
from fjord.tables.jobs.lanes import Lane
from fjord.tables.kv import decide as links
from fjord.tables.meaning import MEANING, Note
from fjord.tables.state import AnyPointer, Generation, JobCounts, Table, Tree, VolatileValue

_APPLIED = b"applied"
_LIVE = b"live"
# Of jobs, by table or generation.
_KEY: Final = b"jobs"
_GENERATION: Final = b"jobs-of"
_COUNTS = struct.Struct(">QQQ")
# Where jobs of generations are counted, whatever their state: existing jobs and, in memory only,
# all that were added since the start.
_THERE: Final = 1
_EVER: Final = 2
_PAGE: Final = 10_000
_COUNTED_MAX: Final = limits.TABLES_MAX * (1 + limits.GENERATIONS_MAX)


def read_applied(transaction: Transaction) -> int:
    """Returns the applied seq of the index."""
    return int.from_bytes(transaction.get(Tree.META, _APPLIED) or b"", "big")


def read_live(transaction: Transaction) -> int:
    """Returns the live bytes of the journal."""
    return int.from_bytes(transaction.get(Tree.META, _LIVE) or b"", "big")


def write_progress(
    transaction: Transaction, applied_seq: int, live_bytes: int, counts: Mapping[int, JobCounts]
) -> None:
    """Writes the applied seq, the live bytes, and the job counts that have changed."""
    kept = [(_APPLIED, applied_seq.to_bytes(8, "big")), (_LIVE, live_bytes.to_bytes(8, "big"))]
    gone: list[bytes] = []
    for id_, found in counts.items():
        key = (_KEY if id_ > 0 else _GENERATION) + layouts.PREFIX.pack(abs(id_))
        if found[0] or (id_ > 0 and any(found)):
            kept.append((key, _COUNTS.pack(*(found if id_ > 0 else JobCounts(found.waiting)))))
        else:
            gone.append(key)
    transaction.put_many(Tree.META, kept)
    if gone:
        transaction.delete_many(Tree.META, gone)


def read_memory(memory: Memory, transaction: Transaction) -> None:
    """Restores from the index what is kept in memory."""
    memory.counts = read_counts(transaction)
    items = transaction.scan(Tree.SNAPSHOTS, b"", None, limits.SNAPSHOTS_MAX)
    memory.snapshots = snapshots.read_all(items)
    memory.generations = read_generations(transaction)
    tables = read_tables(transaction)
    memory.given_back_seq = generations.given_back_seq(tables, memory.generations)
    memory.is_secure = catalog.is_secure(tables)


def read_generations(transaction: Transaction) -> Generations:
    start, stop = generations.key_range()
    limit = limits.TABLES_MAX * limits.GENERATIONS_MAX
    return generations.read(transaction.scan(Tree.META, start, stop, limit))


def read_tables(transaction: Transaction) -> dict[str, Table]:
    return catalog.tables(transaction.scan(Tree.TABLES, b"", None, limits.TABLES_MAX))


class Known(NamedTuple):
    """The parts of a state beside the index transaction."""

    journal: Journal
    memory: Memory
    tables: Mapping[str, Table]
    master: bytes
    next_seq: int
    lease_us: int


class IndexView:
    """The state in one index transaction; it does not change."""

    client = 0
    as_of = 0

    def __init__(self, transaction: Transaction, known: Known) -> None:
        self.transaction = transaction
        self._journal, memory, self.tables, self.master, self.next_seq, self.lease_us = known
        self._memory = memory
        self.lanes = memory.lanes
        self.locks: Mapping[bytes, int] = memory.locks.holders
        self.volatile: Mapping[bytes, VolatileValue] = memory.volatile.values
        self.volatile_between = memory.volatile.between
        self.snapshots, self.location = memory.snapshots, memory.location
        self._counts, self._taken_keys = memory.counts, memory.taken_keys
        self._linked_keys = memory.linked_keys
        self.generations = memory.generations
        self.get_many = transaction.get_many
        self.scan = transaction.scan
        self.size_of = transaction.count

    @property
    def volatile_bytes(self) -> int:
        return self._memory.volatile.bytes

    def job_counts(self, table: int) -> JobCounts:
        return self._counts.get(table, NO_JOBS)

    def taken_keys(self, table: int) -> Mapping[bytes, int]:
        known = self._taken_keys.of(table, self.job_counts(table).taken)
        if known is None:
            return self._taken_keys.learn(table, keep.taken_keys(self, table))
        return known

    def linked_keys(self, table: int) -> Mapping[bytes, Sequence[bytes]]:
        known = self._linked_keys.of(table)
        if known is None:
            return self._linked_keys.learn(table, links.linked(self, table))
        return known

    def payloads(self, pointers: Sequence[AnyPointer]) -> list[bytes]:
        return self._journal.payloads(pointers)


@dataclass(slots=True)
class Notes:
    """The effects of a group that others need to know once it is written."""

    changed: list[Changed] = field(default_factory=list)  # of keys that have listeners
    arrivals: dict[int, Arrival] = field(default_factory=dict)  # by table
    deaths: dict[int, int] = field(default_factory=dict)  # of jobs, by table
    schedules: dict[Tree, int] = field(default_factory=dict)  # the earliest date of each tree
    appended: set[int] = field(default_factory=set)  # streams that got messages
    last_seqs: dict[int, int] = field(default_factory=dict)  # by table
    table_rows: dict[int, int] = field(default_factory=dict)
    applied: list[tuple[Op, Place]] = field(default_factory=list)  # while somebody needs them
    seen: set[Note] = field(default_factory=set)  # notes that need no details
    given_back_seq: int = 0  # the space before it is returned to the disk
    is_secure: bool = False  # a table was declared secure

    def copy(self) -> Notes:
        """Returns an independent copy."""
        found = copy.copy(self)
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list | dict | set):
                setattr(found, one.name, value.copy())
        return found


class Group(IndexView):
    """Commands whose ops become one frame: applied to the index one by one, then written."""

    def __init__(
        self,
        transaction: Transaction,
        known: Known,
        writer: Writer,
        *,
        live_bytes: int,
        watched: Watched,
        wall_us: int,
    ) -> None:
        super().__init__(transaction, known)
        self.wall_us = wall_us  # of the commit
        self._writer = writer
        self._watched = watched
        self.counts = Counts(known.memory.counts)
        self._starts: list[int] = []  # offset of each op in the body
        self._first_seq = known.next_seq
        # The attributes of this object when the current batch began, and marks of longer-lived
        # parts.
        self._moment: dict[str, Any] | None = None
        self._marks: list[Any] = []
        self._overlay: Overlay | None = None
        self.ops: list[bytes] = []
        self.body_bytes = 0
        self.rows = 0
        self.live_bytes = live_bytes
        self.notes = Notes()
        self.notes_jobs = False  # somebody needs all ops on jobs
        self.put_many = transaction.put_many
        self.delete_many = transaction.delete_many

    def job_counts(self, table: int) -> JobCounts:
        return self.counts.of(table)

    def account(
        self, seq: int, added: int, previous: Sequence[int] = (), freed: Sequence[int] = ()
    ) -> None:
        self.live_bytes = max(0, self.live_bytes + added - sum(freed))

    def tally(
        self, table: int, before: int, after: int, held: Sequence[int] = (), *, holds: int = 0
    ) -> None:
        rows = holds or len(held)
        self.counts.change(table, before, rows, after, rows)

    def tally_rows(self, table: int, rows: Sequence[int], change: int) -> None:
        listed = self.generations.get(table)
        if listed:
            change_rows(self.counts, listed, rows, change)

    @property
    def _base(self) -> int:
        return self._writer.position + frames.FRAME_HEADER_BYTES

    def fits(self, op_bytes: int, claim: Claim) -> bool:
        """Returns whether ops of this size still fit into the frame and the segment."""
        size = self.body_bytes + op_bytes
        frame_bytes = frames.FRAME_HEADER_BYTES + size
        return frame_bytes <= limits.FRAME_BYTES_MAX and self._writer.has_room(size, claim)

    def add(self, decided: Sequence[Op], encoded: Sequence[tuple[bytes, int]]) -> None:
        """Applies ops that fit."""
        base, segment = self._base, self._writer.header.segment
        for op, (data, payload) in zip(decided, encoded, strict=True):
            payload += base + self.body_bytes
            place = Place(self.next_seq, segment, payload, self.wall_us, data)
            MEANING[op.opcode].apply(self, op, place)
            self._starts.append(self.body_bytes)
            self.ops.append(data)
            self.body_bytes += len(data)
            self.rows += op.rows
            self.next_seq += op.rows
            for note in _NOTES[op.opcode]:
                note(self, op, place)
            if self.notes_jobs:
                self.notes.applied.append((op, place))

    # -- notes of ops, as listed in `meaning` -----------------------------------------------------

    def _note_due(self, op: Op, place: Place) -> None:
        scheduled = schedule_of(op)
        if scheduled is not None:
            tree, date = scheduled
            self.notes.schedules[tree] = min(date, self.notes.schedules.get(tree, date))

    def _note_history(self, op: Op, place: Place) -> None:
        self.notes.last_seqs[op.table] = self.next_seq - 1
        self.notes.table_rows[op.table] = self.notes.table_rows.get(op.table, 0) + op.rows

    def _note_arrivals(self, op: Op, place: Place) -> None:
        arrival = arrival_of(op)
        known = self.notes.arrivals.get(op.table)
        self.notes.arrivals[op.table] = arrival.joined(known) if known else arrival
        if self.lanes.is_known(op.table):
            for lane, date in lanes_of(op):
                self.lanes.lower(op.table, lane, date)

    def _note_taken(self, op: Op, place: Place) -> None:
        self._taken_keys.note(op, place.seq)

    def _note_deaths(self, op: Op, place: Place) -> None:
        self.notes.deaths[op.table] = self.notes.deaths.get(op.table, 0) + op.rows

    def _note_links(self, op: Op, place: Place) -> None:
        self._linked_keys.note(op)

    def _note_changes(self, op: Op, place: Place) -> None:
        if self._watched:
            self.notes.changed += self._watched.changes_of(op, self.tables)

    def _note_messages(self, op: Op, place: Place) -> None:
        self.notes.appended.add(op.table)

    def _note_generations(self, op: Op, place: Place) -> None:
        self.generations = generations.after(self.generations, op)
        self.counts.look_at(self.generations[op.table])
        self.counts.forget(generations.gone(op))

    def _note_given_back(self, op: Op, place: Place) -> None:
        self.notes.given_back_seq = generations.given_back_seq(self.tables, self.generations)

    def _note_tables(self, op: Op, place: Place) -> None:
        self.tables = catalog.tables(self.scan(Tree.TABLES, b"", None, limits.TABLES_MAX))
        self.notes.is_secure |= catalog.is_secure(self.tables)

    def _note_snapshots(self, op: Op, place: Place) -> None:
        items = self.scan(Tree.SNAPSHOTS, b"", None, limits.SNAPSHOTS_MAX + 1)
        self.snapshots = snapshots.read_all(items)

    def change_volatile(self, changes: Mapping[bytes, VolatileValue | None]) -> None:
        self._memory.volatile.change(changes)
        if self._watched:
            self.notes.changed += self._watched.volatile_changes(changes, self.tables)

    def change_locks(self, changes: Mapping[bytes, int | None]) -> None:
        self._memory.locks.change(changes)

    # -- batches ----------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        """From here on writes are collected and visible, but not yet written to the index."""
        self._moment = vars(self) | {
            "notes": self.notes.copy(),
            "counts": self.counts.copy(),
            "ops": len(self.ops),
            "_starts": len(self._starts),
        }
        self._marks = self._memory.marks()
        overlay = self._overlay = Overlay(self.transaction)
        self.get_many, self.scan = overlay.get_many, overlay.scan
        self.put_many, self.delete_many = overlay.put_many, overlay.delete_many

    def keep_batch(self) -> None:
        overlay, transaction = self._overlay, self.transaction
        assert overlay is not None
        overlay.write(transaction)
        self._overlay = self._moment = None
        self.get_many, self.scan = transaction.get_many, transaction.scan
        self.put_many, self.delete_many = transaction.put_many, transaction.delete_many

    def drop_batch(self) -> None:
        """Restores the state at the beginning of the batch."""
        moment = self._moment
        assert moment is not None
        del self.ops[moment.pop("ops") :], self._starts[moment.pop("_starts") :]
        self._memory.undo(self._marks)
        vars(self).update(moment)

    # -- payloads ---------------------------------------------------------------------------------

    def payloads(self, pointers: Sequence[AnyPointer]) -> list[bytes]:
        if self._starts and any(map(self._is_in_frame, pointers)):
            return [self._payload(pointer) for pointer in pointers]
        return self._journal.payloads(pointers)

    def _is_in_frame(self, pointer: AnyPointer) -> bool:
        """Returns whether a payload is in the frame that is not written yet."""
        segment, offset, _, _, seq = pointer
        if seq:  # its position may be out of date
            return seq >= self._first_seq
        return segment == self._writer.segment and offset >= self._base

    def _payload(self, pointer: AnyPointer) -> bytes:
        """Reads from the journal, or from the frame that is not written yet."""
        if not self._is_in_frame(pointer):
            return self._journal.payload(*pointer)
        _, offset, size, _, _ = pointer
        start = offset - self._base
        position = bisect.bisect_right(self._starts, start) - 1
        start -= self._starts[position]
        return self.ops[position][start : start + size]


def _see(note: Note) -> Callable[[Group, Op, Place], None]:
    return lambda group, op, place: group.notes.seen.add(note)


def _notes_of(opcode: Opcode) -> Iterator[Callable[[Group, Op, Place], None]]:
    meaning = MEANING[opcode]
    if meaning.due is not None:
        yield Group._note_due
    if opcode.is_sealed:
        yield Group._note_history
    for note in meaning.notes:
        yield getattr(Group, f"_note_{note.name.lower()}", None) or _see(note)


_NOTES: Final = {opcode: tuple(_notes_of(opcode)) for opcode in Opcode}


# -- job counts of tables, stored in the index ----------------------------------------------------
#
#     META  "jobs" | table id u32        -> waiting, taken, dead: u64 each
#     META  "jobs-of" | generation u32   -> jobs u64, 0, 0
#
# In memory, generations are counted among the tables, under their negated ids.


# What the index counts itself.
_TREES: Final = {
    "subscribers": Tree.SUBSCRIBERS,
    "versions": Tree.VERSIONS,  # kept for snapshots
    "appends": Tree.STREAM_OPS,  # those found in the journal
    "blocks": Tree.BLOCKS,
}


class Counts:
    """Counts at a moment, and their changes since."""

    def __init__(self, known: Mapping[int, JobCounts]) -> None:
        self._known = known
        self.changed: dict[int, JobCounts] = {}

    def copy(self) -> Counts:
        """Returns an independent copy."""
        found = Counts(self._known)
        found.changed = self.changed.copy()
        return found

    def of(self, table: int) -> JobCounts:
        found = self.changed.get(table)
        return self._known.get(table, NO_JOBS) if found is None else found

    def look_at(self, listed: Iterable[Generation]) -> None:
        """Marks generations as changed, so that they are checked."""
        self.changed |= {-one.id: self.of(-one.id) for one in listed}

    def forget(self, ids: Iterable[int]) -> None:
        """Stops counting generations that are gone."""
        self.changed |= dict.fromkeys((-id_ for id_ in ids), NO_JOBS)

    def change(self, table: int, before: int, fewer: int, after: int, more: int) -> None:
        """Counts jobs that left a state (jobs.State; 0 = none) and jobs that entered one."""
        counts = [0, *self.of(table)]
        counts[before] -= fewer
        counts[after] += more
        _, waiting, taken, dead = counts
        # Jobs lost to damage were never counted, so the difference may be too large.
        self.changed[table] = JobCounts(max(0, waiting), max(0, taken), max(0, dead))


def change_rows(
    counts: Counts, listed: Sequence[Generation], rows: Sequence[int], change: int
) -> None:
    """Counts jobs added to or removed from generations; each counts as waiting."""
    for generation, number in generations.count_by_id(listed, rows).items():
        if change > 0:
            counts.change(-generation, 0, 0, _THERE, number)
            counts.change(-generation, 0, 0, _EVER, number)
        else:
            counts.change(-generation, _THERE, number, 0, 0)


def recount(transaction: Transaction, known: Generations) -> dict[int, JobCounts]:
    """Counts the jobs of all generations in an index.

    Packing rewrites the begin of a generation after jobs that are in it, so a rebuild cannot count
    them op by op.
    """
    found = Counts({})
    for table, listed in known.items():
        found.changed |= dict.fromkeys((-one.id for one in listed), NO_JOBS)
        for rows in _rows(transaction, layouts.prefix_of(table)) if listed else ():
            change_rows(found, listed, rows, 1)
    return found.changed


def _rows(transaction: Transaction, prefix: bytes) -> Iterator[list[int]]:
    """Yields the rows of all jobs of a table, in pieces."""
    stop = layouts.end_of(prefix)
    for tree in layout.STATES:
        for items in layouts.pages(transaction.scan, tree, prefix, stop, _PAGE):
            yield [layout.row_of(keep.parts(tree, *item)[1]) for item in items]


def count_trees(transaction: Transaction) -> dict[str, int]:
    return {name: transaction.count(tree) for name, tree in _TREES.items()}


def read_counts(transaction: Transaction) -> dict[int, JobCounts]:
    found = {}
    for prefix, sign in ((_KEY, 1), (_GENERATION, -1)):
        items = transaction.scan(Tree.META, prefix, prefix + b"\xff" * 5, _COUNTED_MAX)
        for key, data in items:
            if len(key) == len(prefix) + layouts.PREFIX.size:
                id_ = sign * layouts.PREFIX.unpack_from(key, len(prefix))[0]
                found[id_] = JobCounts._make(_COUNTS.unpack(data))
    return found


# -- future dates in ops: expiries, ends of leases, process dates --


def schedule_of(op: Op) -> tuple[Tree, int] | None:
    """Returns the tree into which an op puts dates, with the earliest one; None if none."""
    due = MEANING[op.opcode].due
    if due is None:
        return None
    tree, name = due
    dates = op.column(name)
    if isinstance(dates, Strings):
        dates = [layout.expiry_of(image) for image in dates.rows()]
    earliest = dates[0] if len(dates) == 1 else min(filter(None, dates), default=0)
    return (tree, earliest) if earliest else None


def arrival_of(op: Op) -> Arrival:
    """Returns the arrival of the jobs that an op makes wait."""
    dates = op.column("process_at_us")
    return Arrival(op.rows, dates[0] if op.rows == 1 else min(dates))


def lanes_of(op: Op) -> Iterator[tuple[Lane, int]]:
    """Yields lane and process date of the jobs that an op makes wait."""
    places: Iterator[tuple[int, int, int]]
    if "lane" in op.opcode.position:
        places = zip(*map(op.column, ("lane", "priority", "process_at_us")), strict=True)
    else:
        images = op.column("image").rows()
        places = (layout.PLACE.unpack_from(image)[:3] for image in images)
    for lane, priority, date_us in places:
        yield (lane, priority >= SLOW_FROM), date_us
