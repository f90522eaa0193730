"""A world small enough to hold in one hand: state for decide, and the journal that made it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import google_crc32c

from fjord import ops, values
from fjord.columns import Strings, repeat
from fjord.commands import Delete, Done, Entries, Get, Page, Refusal, Reply, Set, Touch
from fjord.engine import group
from fjord.engine.group import Counts, lanes_of
from fjord.errors import Code, RefusedError
from fjord.index.memory import MemoryIndex
from fjord.ops import Op, Place
from fjord.tables import catalog, generations, snapshots
from fjord.tables import staging as stage_entry
from fjord.tables import upkeep as packing
from fjord.tables.jobs import keep
from fjord.tables.jobs import layout as job_row
from fjord.tables.jobs.lanes import Lanes
from fjord.tables.kv import decide as links
from fjord.tables.kv import layout
from fjord.tables.meaning import MEANING, Note
from fjord.tables.state import (
    AnyPointer,
    Decision,
    JobCounts,
    Moment,
    Pointer,
    Table,
    Tree,
    VolatileValue,
    volatile_bytes,
)
from fjord.tables.streams import layout as stream_entry
from fjord.values import Value

NOW_US = 1_700_000_000_000_000
LEASE_US = 5_000_000
SEGMENT = 1
MASTER = b"the master's id."


class World:
    """Decides and applies commands in memory, one after the other.

    Keeps the contracts of `tables.state.View` and `Writes`; every op is also kept as its bytes,
    so that the whole life of a world can be replayed into another one, and so can what packing
    left of it.
    """

    def __init__(self, journal: bytes = b"", next_seq: int = 1) -> None:
        self._index = MemoryIndex(len(Tree))
        self._writes = self._index.begin()
        self.journal = journal
        self.begin = len(journal)  # what is before has been packed
        self.first_seq = next_seq
        self.master = MASTER
        self.next_seq = next_seq
        self.now_us = NOW_US
        self.lease_us = LEASE_US
        self.client = 1
        self.locks: dict[bytes, int] = {}
        self.tables: Mapping[str, Table] = {}
        self.volatile: dict[bytes, VolatileValue] = {}
        self.volatile_bytes = 0
        self.payload_reads = 0
        self.live: dict[int, int] = {}  # first seq of an op -> its bytes that live
        self.lanes = Lanes()
        self.counts = Counts({})
        self.put_many = self._writes.put_many
        self.delete_many = self._writes.delete_many
        self.get_many = self._writes.get_many
        self.scan = self._writes.scan
        self.size_of = self._writes.count
        self.as_of = 0
        self.location = ""
        self.snapshots: Mapping[int, Moment] = {}
        self.generations: generations.Generations = {}

    # -- what decide looks at, and apply does -----------------------------------------------------

    def volatile_between(self, start: bytes, stop: bytes | None, limit: int) -> list[bytes]:
        inside = [key for key in self.volatile if key >= start and (stop is None or key < stop)]
        return sorted(inside)[:limit]

    def payloads(self, pointers: Sequence[AnyPointer]) -> list[bytes]:
        self.payload_reads += len(pointers)
        return [self._payload(pointer) for pointer in pointers]

    def _payload(self, found: AnyPointer) -> bytes:
        pointer = Pointer(*found)
        assert pointer.segment == SEGMENT
        assert pointer.offset >= self.begin
        data = self.journal[pointer.offset : pointer.offset + pointer.size]
        assert google_crc32c.value(data) == pointer.crc
        return data

    def account(
        self, seq: int, added: int, previous: Sequence[int] = (), freed: Sequence[int] = ()
    ) -> None:
        self.live[seq] = added
        starts = sorted(self.live)
        for row, size in zip(previous, freed, strict=True):
            if row >= self.first_seq:
                self.live[starts[bisect_right(starts, row) - 1]] -= size

    def tally(
        self, table: int, before: int, after: int, held: Sequence[int] = (), *, holds: int = 0
    ) -> None:
        known = sum(seq >= self.first_seq for seq in held)
        self.counts.change(table, before, known, after, holds or known)

    def tally_rows(self, table: int, rows: Sequence[int], change: int) -> None:
        listed = self.generations.get(table)
        if listed:
            group.change_rows(self.counts, listed, rows, change)

    def job_counts(self, table: int) -> JobCounts:
        return self.counts.of(table)

    def linked_keys(self, table: int) -> Mapping[bytes, Sequence[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for target, key in links.linked(self, table):
            found.setdefault(target, []).append(key)
        return found

    def taken_keys(self, table: int) -> Mapping[bytes, int]:
        return dict(keep.taken_keys(self, table))

    # -- what a test does -------------------------------------------------------------------------

    def decide(self, command: Any) -> Decision:
        """Returns a decision that nothing comes of."""
        try:
            decision: Decision = type(command).row.decide(command, self, self.now_us)
        except RefusedError as error:
            return Decision(Refusal.of(error))
        return decision

    def run(self, command: Any, client: int = 1) -> Reply:
        """Decides a command and applies what comes of it."""
        self.client = client
        decision = self.decide(command)
        assert not isinstance(decision.reply, Refusal) or decision[1:] == ((), {}, {})
        kept = snapshots.kept(decision.ops, self) if self.snapshots and decision.ops else []
        for op in (*decision.ops, *kept):
            self.apply(op)
        for key, value in decision.volatile.items():
            old = self.volatile.pop(key, None)
            self.volatile_bytes -= volatile_bytes(key, old) if old else 0
            if value is not None:
                self.volatile[key] = value
                self.volatile_bytes += volatile_bytes(key, value)
        for key, holder in decision.locks.items():
            self.locks.pop(key, None)
            if holder is not None:
                self.locks[key] = holder
        return decision.reply

    def apply(self, op: Op) -> None:
        data, payload = ops.encode(op)
        place = Place(self.next_seq, SEGMENT, len(self.journal) + payload, self.now_us, data)
        meaning = MEANING[op.opcode]
        meaning.apply(self, op, place)
        if Note.ARRIVALS in meaning.notes:
            for lane, date in lanes_of(op):
                self.lanes.lower(op.table, lane, date)
        if Note.GENERATIONS in meaning.notes:
            self.generations = generations.after(self.generations, op)
            self.counts.forget(generations.gone(op))
        self.journal += data
        self.next_seq += op.rows
        self.tables = catalog.tables(self.scan(Tree.TABLES, b"", None, 10_000))
        self.snapshots = snapshots.read_all(self.scan(Tree.SNAPSHOTS, b"", None, 1000))

    def replayed(self) -> World:
        """Returns the world that what is left of the journal gives."""
        world = World(self.journal[: self.begin], self.first_seq)
        for op, _ in self.placed():
            world.apply(op)
        world.recount()
        return world

    def recount(self) -> None:
        """Counts the jobs of generations, as at the end of a rebuild."""
        self.counts.changed |= group.recount(self._writes, self.generations)

    def placed(self) -> list[tuple[Op, Place]]:
        """Returns every op that is left of the journal, with its place."""
        found, view, position, seq = [], memoryview(self.journal), self.begin, self.first_seq
        while position < len(view):
            op, payload, position = ops.decode(view, position)
            found.append((op, Place(seq, SEGMENT, payload)))
            seq += op.rows
        return found

    def ops(self) -> list[Op]:
        """Returns every op so far."""
        return [op for op, _ in self.placed()]

    def pack(self, count: int) -> list[Op]:
        """Says again what holds of the first ops, and drops them; returns what was said."""
        before = len(self.ops())
        first = self.placed()[:count]
        self._move_jobs(self.first_seq + sum(op.rows for op, _ in first))
        self.run(packing.Pack(ops=first))
        said = self.ops()[before:]
        for op, _ in first:
            self.live.pop(self.first_seq, None)
            self.first_seq += op.rows
            self.begin += len(ops.encode(op)[0])
        return said

    def _move_jobs(self, seq: int) -> None:
        """Says jobs again that are held by ops before a seq."""
        for tree in job_row.STATES:
            images = {key: keep.parts(tree, key, d)[1] for key, d in self.tree(tree).items()}
            keys = [key for key, image in images.items() if job_row.held_of(image) < seq]
            self.run(keep.MoveJobs(tree=tree, keys=keys, before_seq=seq))

    def trees(self) -> list[list[tuple[bytes, bytes]]]:
        return [self.scan(tree, b"", None, 1_000_000) for tree in Tree]

    def tree(self, tree: Tree) -> dict[bytes, bytes]:
        return dict(self.scan(tree, b"", None, 1_000_000))

    def check(self) -> None:
        """Asserts what must hold of every state."""
        entries = {key: layout.decode(data) for key, data in self.tree(Tree.KV).items()}
        marks = self.tree(Tree.KV_MARKS)
        assert marks.keys() <= entries.keys()
        live = {key: layout.row_bytes(entry, key) for key, entry in entries.items()}
        others = self._check_jobs() + self._check_streams(entries) + self._staged_bytes()
        assert sum(self.live.values()) == sum(live.values()) + others
        assert all(size >= 0 for size in self.live.values())
        assert {data[32] for key, data in self.tree(Tree.KV).items() if key in self.volatile} <= {
            ops.TOMBSTONE,
            ops.ALIAS,
        }
        schedule = {}
        for key, entry in entries.items():
            expires_at_us = layout.expiry_of(entry, layout.decode_mark(marks.get(key), entry.row))
            if entry.is_value and expires_at_us:
                schedule[layout.schedule_key(expires_at_us, key)] = layout.ROW.pack(entry.row)
        assert self.tree(Tree.KV_EXPIRY) == schedule

    def _check_jobs(self) -> int:
        """Asserts what must hold of jobs; returns their live bytes."""
        trees = {tree: self.tree(tree) for tree in job_row.STATES}
        images = {
            tree: [keep.parts(tree, key, data)[1] for key, data in items.items()]
            for tree, items in trees.items()
        }
        slots, schedule = {}, {}
        for key, rest in trees[Tree.JOBS_READY].items():
            row = job_row.decode_ready(key, rest)
            prefix, place = key[:4], key[4:]
            if row.slot:
                slots[prefix + row.slot] = place
                assert row.hash == job_row.digest(row.key)
            if row.expires_at_us:
                number = int.from_bytes(prefix, "big")
                schedule[job_row.expiry_key(row.expires_at_us, number, place)] = place
        assert self.tree(Tree.JOBS_KEYS) == slots
        assert self.tree(Tree.JOBS_EXPIRY) == schedule
        self._check_leases(trees[Tree.JOBS_TAKEN])
        for table in self.tables.values():
            counted = [sum(key.startswith(table.prefix) for key in trees[tree]) for tree in trees]
            assert list(self.counts.of(table.id)) == counted
        found = [image for some in images.values() for image in some]
        rows = [job_row.decode(image).row for image in found]
        assert len(set(rows)) == len(rows)
        return sum(map(job_row.bytes_of, found))

    def _check_streams(self, entries: Mapping[bytes, layout.KvEntry]) -> int:
        """Asserts what must hold of streams; returns the live bytes of logs."""
        latest = [table for table in self.tables.values() if table.is_latest]
        for table in latest:
            expected = {
                table.prefix + entry.row.to_bytes(8, "big"): key[4:]
                for key, entry in entries.items()
                if key.startswith(table.prefix)
            }
            found = self.tree(Tree.STREAM_SEQS).items()
            assert {key: own for key, own in found if key.startswith(table.prefix)} == expected
        items = self.tree(Tree.STREAM_OPS).items()
        return sum(stream_entry.decode_append(key, data).size for key, data in items)

    def _staged_bytes(self) -> int:
        """Returns the live bytes of what is staged and not committed."""
        stages = [stage_entry.decode_stage(*item) for item in self.tree(Tree.STAGES).items()]
        waiting = [one for one in stages if one.state != stage_entry.StageState.COMMITTED]
        return sum(ops.HEADER.size + 16 + one.size for one in waiting)

    def _check_leases(self, taken: dict[bytes, bytes]) -> None:
        """Every taken job has a note of when its lease is over."""
        noted = set()
        for key, count in self.tree(Tree.JOBS_LEASES).items():
            deadline, table, xid = job_row.LEASE_KEY.unpack(key)
            rows = job_row.COUNT.unpack(count)[0]
            noted |= {(deadline, table, one) for one in range(xid, xid + rows)}
        for key, data in taken.items():
            deadline = job_row.LEASE.unpack_from(data)[0]
            table, xid = int.from_bytes(key[:4], "big"), int.from_bytes(key[4:], "big")
            assert (deadline, table, xid) in noted

    # -- short forms ------------------------------------------------------------------------------

    def set(
        self,
        items: Mapping[bytes, Value],
        *,
        at: int = 0,
        expires: int = 0,
        ttl: int = 0,
        overwrite: bool = True,
        persist: bool = True,
        also: Sequence[bytes] | None = None,
        table: str = "t",
        client: int = 1,
    ) -> Reply:
        """Sets values, `at` microseconds from now, expiring `expires` from now."""
        command = set_command(
            list(items.items()),
            at=at,
            expires_at_us=self.now_us + expires if expires else 0,
            overwrite=overwrite,
            persist=persist,
            table=table,
        )
        further = None if also is None else Strings.of(also)
        return self.run(replace(command, ttl_us=ttl, also=further), client)

    def delete(
        self, *keys: bytes, at: int = 0, purge: bool = False, table: str = "t", client: int = 1
    ) -> Reply:
        stamp = NOW_US + at
        command = Delete(table=table, keys=Strings.of(keys), timestamp_us=stamp, purge=purge)
        return self.run(command, client)

    def touch(
        self, *keys: bytes, expires: int | None = None, worked: int = 0, client: int = 1
    ) -> list[Value | Refusal]:
        """Touches keys: `expires` lets them live longer, `worked` takes them for work."""
        command = Touch(
            table="t",
            keys=Strings.of(keys),
            extend=expires is not None,
            expires_at_us=self.now_us + expires if expires else 0,
            worked_until_us=self.now_us + worked if worked else 0,
        )
        return decoded(self.run(command, client))

    def get(self, *keys: bytes, table: str = "t") -> list[Value | Refusal]:
        """Returns the value of each key, and a refusal where there is none."""
        found = decoded(self.run(Get(table=table, keys=Strings.of(keys))))
        assert len(found) == len(keys)
        return found

    def entry(self, key: bytes) -> Entry:
        """Returns all that GET says of one key."""
        reply = self.run(Get(table="t", keys=Strings.of([key])))
        assert isinstance(reply, Entries)
        return entry_of(reply)


class Entry(NamedTuple):
    """One row of an answer."""

    type: int
    value: bytes
    timestamp_us: int
    expires_at_us: int
    state: int
    created_us: int
    accessed_us: int
    ttl_us: int


def entry_of(reply: Reply, row: int = 0) -> Entry:
    assert isinstance(reply, Entries)
    return Entry(
        reply.types[row],
        reply.values[row],
        reply.timestamps_us[row],
        reply.expires_at_us[row],
        reply.states[row],
        reply.created_us[row],
        reply.accessed_us[row],
        reply.ttls_us[row],
    )


def decoded(reply: Reply) -> list[Value | Refusal]:
    """Returns the values of an answer, and a refusal where there is none."""
    assert isinstance(reply, Entries), reply
    count = len(reply.types)
    for column in (
        *(reply.values, reply.timestamps_us, reply.expires_at_us, reply.states, reply.created_us),
        *(reply.accessed_us, reply.ttls_us),
    ):
        assert len(column) == count
    return [
        MISSING if type_ == Entries.MISSING else values.decode(type_, data)
        for type_, data in zip(reply.types, reply.values, strict=True)
    ]


def items_of(reply: Reply) -> dict[bytes, Value | Refusal]:
    """Returns the entries of a page by key."""
    assert isinstance(reply, Page), reply
    return dict(zip(reply.keys.rows(), decoded(reply.entries), strict=True))


MISSING = Refusal(code=Code.NOT_FOUND, text="nothing there")


def set_command(
    items: Sequence[tuple[bytes, Value]],
    *,
    at: int = 0,
    expires_at_us: int = 0,
    overwrite: bool = True,
    persist: bool = True,
    table: str = "t",
) -> Set:
    encoded = [values.encode(value) for _, value in items]
    return Set(
        table=table,
        keys=Strings.of([key for key, _ in items]),
        types=bytes([type_ for type_, _ in encoded]),
        values=Strings.of([data for _, data in encoded]),
        timestamps_us=repeat(NOW_US + at, len(items)),
        expires_at_us=expires_at_us,
        overwrite=overwrite,
        persist=persist,
    )


def code_of(reply: Reply) -> Code | None:
    """Returns the code of a refusal, None for anything else."""
    return reply.code if isinstance(reply, Refusal) else None


def done(seq: int) -> Done:
    return Done(master=MASTER, seq=seq)
