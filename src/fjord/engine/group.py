"""State for decide, from an index transaction: read-only, or a group on its way to one frame."""

from __future__ import annotations

import bisect
import copy
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from fjord import limits
from fjord.commands import Changed
from fjord.engine import job_counts
from fjord.engine.job_counts import Counts
from fjord.engine.memory import Memory
from fjord.engine.news import Arrival, Watched, arrival_of, lanes_of, schedule_of
from fjord.index import Transaction
from fjord.journal import frame as frames
from fjord.journal.reader import Journal
from fjord.journal.writer import Claim, Writer
from fjord.ops import Op, Opcode, Place
from fjord.tables import catalog, generations, snapshots
from fjord.tables.generations import Generations
from fjord.tables.jobs import keep
from fjord.tables.kv import decide as links
from fjord.tables.meaning import MEANING, Note
from fjord.tables.state import AnyPointer, JobCounts, Moment, Table, Tree, VolatileValue

_APPLIED = b"applied"
_LIVE = b"live"


def read_applied(transaction: Transaction) -> int:
    """Returns the seq up to which the index holds everything."""
    return int.from_bytes(transaction.get(Tree.META, _APPLIED) or b"", "big")


def read_live(transaction: Transaction) -> int:
    """Returns how many bytes of the journal hold what is still true."""
    return int.from_bytes(transaction.get(Tree.META, _LIVE) or b"", "big")


def write_progress(
    transaction: Transaction,
    applied_seq: int,
    live_bytes: int,
    counts: Mapping[int, JobCounts],
) -> None:
    job_counts.write(transaction, counts)
    transaction.put_many(
        Tree.META,
        [(_APPLIED, applied_seq.to_bytes(8, "big")), (_LIVE, live_bytes.to_bytes(8, "big"))],
    )


def read_snapshots(transaction: Transaction) -> dict[int, Moment]:
    return snapshots.read_all(transaction.scan(Tree.SNAPSHOTS, b"", None, limits.SNAPSHOTS_MAX))


def read_memory(memory: Memory, transaction: Transaction) -> None:
    """Reads what is kept in memory of an index."""
    memory.counts = job_counts.read(transaction)
    memory.snapshots = read_snapshots(transaction)
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
    """What a state is made of, beside the index transaction."""

    journal: Journal
    memory: Memory
    tables: Mapping[str, Table]
    master: bytes
    next_seq: int
    lease_us: int


class IndexView:
    """State as of one index transaction; nothing in it changes."""

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
        self.counts, self._taken_keys = Counts(memory.counts), memory.taken_keys
        self._linked_keys = memory.linked_keys
        self.generations = memory.generations
        self.get_many = transaction.get_many
        self.scan = transaction.scan
        self.size_of = transaction.count

    @property
    def volatile_bytes(self) -> int:
        return self._memory.volatile.bytes

    def job_counts(self, table: int) -> JobCounts:
        return self.counts.of(table)

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
    """What a group has done, for all who have to know of it once it is written."""

    changed: list[Changed] = field(default_factory=list)  # of keys that somebody listens to
    arrivals: dict[int, Arrival] = field(default_factory=dict)  # by table
    deaths: dict[int, int] = field(default_factory=dict)  # of jobs, by table
    schedules: dict[Tree, int] = field(default_factory=dict)  # the earliest date of each tree
    appended: set[int] = field(default_factory=set)  # streams that got messages
    last_seqs: dict[int, int] = field(default_factory=dict)  # by table
    table_rows: dict[int, int] = field(default_factory=dict)
    applied: list[tuple[Op, Place]] = field(default_factory=list)  # while somebody wants them
    seen: set[Note] = field(default_factory=set)  # of which there is no more to say
    given_back_seq: int = 0  # the space before goes back to the disk
    is_secure: bool = False  # a table was declared so

    def copy(self) -> Notes:
        """Returns notes that do not change with these."""
        found = copy.copy(self)
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list | dict | set):
                setattr(found, one.name, value.copy())
        return found


class Group(IndexView):
    """Commands whose ops become one frame: applied to the index as they come, then written."""

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
        self._starts: list[int] = []  # where in the body each op begins
        self._first_seq = known.next_seq
        # All of this object as it was when the batch under way began, and marks of what lives on.
        self._moment: dict[str, Any] | None = None
        self._marks: list[Any] = []
        self._overlay: Overlay | None = None
        self.ops: list[bytes] = []
        self.body_bytes = 0
        self.rows = 0
        self.live_bytes = live_bytes
        self.notes = Notes()
        self.notes_jobs = False  # somebody wants to know of all that is done with jobs
        self.put_many = transaction.put_many
        self.delete_many = transaction.delete_many

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
            job_counts.change_rows(self.counts, listed, rows, change)

    @property
    def _base(self) -> int:
        return self._writer.position + frames.FRAME_HEADER_BYTES

    def fits(self, op_bytes: int, claim: Claim) -> bool:
        """Says whether ops of so many bytes still fit into the frame and into the segment."""
        size = self.body_bytes + op_bytes
        frame_bytes = frames.FRAME_HEADER_BYTES + size
        return frame_bytes <= limits.FRAME_BYTES_MAX and self._writer.has_room(size, claim)

    def add(self, decided: Sequence[Op], encoded: Sequence[tuple[bytes, int]]) -> None:
        """Applies ops that fit."""
        for op, (data, payload) in zip(decided, encoded, strict=True):
            payload += self._base + self.body_bytes
            segment = self._writer.header.segment
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

    # -- what is to be noted of an op, as its row says --------------------------------------------

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
        """From here on writes are gathered, and seen, but not yet written to the index."""
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
        """Goes back to where the batch began, as if it had never been."""
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
        """Says whether a payload is in the frame that is not written yet."""
        segment, offset, _, _, seq = pointer
        if seq:  # where it stands may be a thing of the past
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


# -- index writes that are gathered in memory, to be written later in one go, or not at all -------
#
# Replay gathers the writes of many frames, since apply never reads: only the last write of a key
# counts.  A batch gathers those of its commands, and each command sees what those before it did.


TREE_COUNT = len(Tree)


class Gathered:
    """What is to be put into the trees, and taken from them."""

    def __init__(self) -> None:
        self._trees: list[dict[bytes, bytes | None]] = [{} for _ in range(TREE_COUNT)]

    @property
    def rows(self) -> int:
        return sum(map(len, self._trees))

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        self._trees[tree].update(items)

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None:
        self._trees[tree].update(dict.fromkeys(keys))

    def write(self, transaction: Transaction) -> None:
        """Writes all of it, in the order of the keys."""
        for tree, items in enumerate(self._trees):
            if items:
                gone = sorted(key for key, value in items.items() if value is None)
                kept = sorted((key, value) for key, value in items.items() if value is not None)
                transaction.delete_many(tree, gone)
                transaction.put_many(tree, kept)


class Overlay(Gathered):
    """Gathered writes that can be read, over the transaction that they may end in."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self._transaction = transaction

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]:
        items = self._trees[tree]
        if not items:
            return self._transaction.get_many(tree, keys)
        found = self._transaction.get_many(tree, keys)
        return [items.get(key, below) for key, below in zip(keys, found, strict=True)]

    def scan(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        items = self._trees[tree]
        # Whatever is deleted here may hide as many of the entries below.
        below = self._transaction.scan(tree, start, stop, limit + len(items))
        over = sorted(
            (key, value)
            for key, value in items.items()
            if value is not None and key >= start and (stop is None or key < stop)
        )
        kept = (item for item in below if item[0] not in items)
        return list(heapq.merge(kept, over))[:limit]
