"""Upkeep: what an engine does on its own, in small steps between the commands of users.

    spare       a segment is allocated before it is needed
    space       a disk that was full is checked again
    leases      jobs whose leases are over wait again
    expiry      expired values become tombstones, expired jobs are removed
    snapshots   expired ones are closed
    generations they begin and end, see `tables.generations`
    sweeping    rows of dropped tables, rows in blocks and unneeded versions are removed
    clients     answers for clients that were silent for a day, and abandoned stages, are dropped
    packing     see `packing`

Nothing polls: `due_us` returns when the next step is due, and `step` does one.  After each step
there is a pause, so that upkeep takes a quarter of the time at most, or half when packing falls
behind or the disk is full.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final

from fjord import commands, limits
from fjord.commands import Command, Refusal
from fjord.engine.group import Counts
from fjord.engine.packing import Packer
from fjord.jobs import Period
from fjord.layouts import PREFIX_BYTES, pages, table_of
from fjord.tables import catalog, clients, generations, snapshots, staging
from fjord.tables.jobs import keep as upkeep
from fjord.tables.kv import keep
from fjord.tables.state import Table, Tree
from fjord.tables.streams.layout import seq_key

if TYPE_CHECKING:
    from fjord.engine.engine import Engine
    from fjord.engine.layout import Recovered

_RETRY_US: Final = 1_000_000
_CLIENTS_US: Final = 3600 * 1_000_000
_FIRST_US: Final = 600 * 1_000_000  # after a start
_BEHIND_RATIO: Final = 1.5
# After this share of a segment was written, or died, packing or allocation may be due.
_GROWTH_SHARE: Final = 64
_REST, _REST_BEHIND = 3, 1  # multiples of the duration of a step


# What is due at a date, by the tree that begins with the earliest one, in order of execution: dates
# of leases and of snapshots are lease time, all others wall time.
_DUE: Final[dict[Tree, Callable[[int], Command]]] = {
    Tree.JOBS_LEASES: lambda rows: upkeep.EndLeases(limit=rows),
    Tree.SNAPSHOTS: lambda rows: snapshots.EndSnapshots(limit=rows),
    Tree.JOBS_EXPIRY: lambda rows: upkeep.ExpireJobs(limit=rows),
    Tree.KV_EXPIRY: lambda rows: keep.Expire(limit=rows),
}


_LEASE_TIME: Final = frozenset({Tree.JOBS_LEASES, Tree.SNAPSHOTS})


class Upkeep:
    """Decides what is due."""

    def __init__(self, engine: Engine, packer: Packer, segment_bytes: int) -> None:
        self._growth_bytes = segment_bytes // _GROWTH_SHARE
        self._engine = engine
        self._memory, self._clock, self._writer = engine.memory, engine.clock, engine.writer
        self._packer = packer
        self._staged = StagedUpkeep(engine)
        self._no_spare_before_us = 0  # monotonic: there was no space for one
        self._space_us = 0  # monotonic: when a full disk is checked again
        self._no_packing_before_us = 0  # monotonic: a segment could not be removed yet
        self._not_before_us = 0  # monotonic: the disk was full, or upkeep has had its share
        self._clients_us = self._clock.monotonic_us() + _FIRST_US
        # The earliest date of each tree, None if it has none; a date may be too early, and a
        # missing tree is read when needed.
        self._dates: dict[Tree, int | None] = {}
        self._blocked_us: dict[Tree, int] = {}  # monotonic: until then there is nothing to do
        self._rows = limits.UPKEEP_ROWS  # of one step; fewer if space is short
        self._is_refused = False  # the last step was refused: packing comes first then
        self._is_sweeping = True  # a crash may have left a dropped table half swept
        self._turn_us: int | None = None  # wall time: when generations are checked
        self._periods: tuple[Mapping[str, Table], Mapping[int, Period]] = ({}, {})  # of tables
        self._is_sooner = True  # something is due earlier than the last `due_us`
        # The end and the live bytes of the journal when `due_us` was last called.
        self._asked_at = (0, 0)
        self._look_at_generations()

    def note(self, schedules: Mapping[Tree, int], *, sweeps: bool, turns: bool) -> None:
        """Records the effects of a frame.

        Args:
            schedules: dates that it has set.
            sweeps: whether there is something to sweep.
            turns: whether it changed generations, or jobs in them.
        """
        for tree, date in schedules.items():
            if tree in self._dates:
                known = self._dates[tree]
                if known is None or date < known:
                    self._dates[tree] = date
                    self._is_sooner = True
        if sweeps:
            self._is_sweeping = self._is_sooner = True
        if turns:
            self._look_at_generations()
            self._is_sooner = True

    def is_sooner(self) -> bool:
        """Returns whether something may be due earlier than the last `due_us`.

        The growth of the journal is considered only from some size on.
        """
        position, live_bytes = self._asked_at
        return (
            self._is_sooner
            or self._engine.live_bytes < live_bytes - self._growth_bytes
            or not position <= self._writer.position <= position + self._growth_bytes
        )

    def _look_at_generations(self) -> None:
        memory, tables, now_us = self._memory, self._engine.tables, self._clock.wall_us()
        if tables is not self._periods[0]:
            self._periods = (tables, generations.periods(tables))
        counts = Counts(memory.counts)
        self._turn_us = generations.due_us(self._periods[1], memory.generations, counts.of, now_us)

    def due_us(self) -> int:
        """Returns the wall time when the next step is due."""
        now_us, monotonic_us = self._clock.wall_us(), self._clock.monotonic_us()
        self._is_sooner = False
        self._asked_at = self._writer.position, self._engine.live_bytes
        moments = [now_us + max(0, self._clients_us - monotonic_us)]
        for tree in _DUE:
            date_us = self._date_us(tree, now_us, monotonic_us)
            if date_us is not None:
                moments.append(date_us)
        if self._is_sweeping:
            moments.append(now_us)
        if self._engine.space.is_full:
            moments.append(now_us + max(0, self._space_us - monotonic_us))
        if self._turn_us is not None:
            moments.append(self._turn_us)
        if self._packer.is_wanted(self._engine.live_bytes):
            moments.append(now_us + max(0, self._no_packing_before_us - monotonic_us))
        pause_us = max(0, self._not_before_us - monotonic_us)
        due_us = max(min(moments), now_us + pause_us)
        if self._writer.wants_spare:
            spare_us = now_us + max(0, self._no_spare_before_us - monotonic_us)
            due_us = min(due_us, spare_us)
        return due_us

    def step(self) -> bool:
        """Does one step of what is due; returns whether there is more to do at once."""
        if self.due_us() > self._clock.wall_us():
            return False
        began_us = self._clock.monotonic_us()
        self._do_one(began_us)
        took_us = self._clock.monotonic_us() - began_us
        rest_us = took_us * (_REST_BEHIND if self._is_behind() else _REST)
        self._not_before_us = max(self._not_before_us, began_us + took_us + rest_us)
        return self.due_us() <= self._clock.wall_us()

    def _do_one(self, monotonic_us: int) -> None:
        if self._writer.wants_spare and self._no_spare_before_us <= monotonic_us:
            if not self._writer.spare.ensure():
                self._no_spare_before_us = monotonic_us + _RETRY_US
        elif self._engine.space.is_full and self._space_us <= monotonic_us:
            self._engine.space.look()
            self._space_us = monotonic_us + _RETRY_US
        elif self._is_refused and self._may_pack(monotonic_us):
            self._pack(monotonic_us)
        else:
            self._do_due(monotonic_us)

    def _do_due(self, monotonic_us: int) -> None:
        due = self._due_tree()
        if due is not None:
            del self._dates[due]
            if not self._run(_DUE[due](self._rows)) and self._due_tree() is due:
                # A command that is refused must not block all others.
                self._blocked_us[due] = monotonic_us + _RETRY_US
        elif self._is_sweeping:
            self._is_sweeping = self._run(catalog.Sweep(limit=self._rows))
        elif self._turn_us is not None and self._turn_us <= self._clock.wall_us():
            if not self._run(generations.Turn()):
                self._look_at_generations()
        elif self._clients_us <= monotonic_us:
            is_more = self._run(clients.ForgetClients(limit=self._rows))
            if not is_more and not self._staged.step():
                self._clients_us = monotonic_us + _CLIENTS_US
        elif self._may_pack(monotonic_us):
            self._pack(monotonic_us)

    def _may_pack(self, monotonic_us: int) -> bool:
        is_wanted = self._packer.is_wanted(self._engine.live_bytes)
        return is_wanted and self._no_packing_before_us <= monotonic_us

    def _pack(self, monotonic_us: int) -> None:
        packed = self._packer.packed_segments
        if not self._packer.step():
            self._no_packing_before_us = monotonic_us + _RETRY_US
        if self._packer.packed_segments > packed:
            self._space_us = 0

    def _is_behind(self) -> bool:
        allowed = _BEHIND_RATIO * limits.PACK_RATIO * self._engine.live_bytes
        return self._packer.is_wanted(self._engine.live_bytes) and (
            self._engine.space.is_full or self._packer.used_bytes() > allowed
        )

    def _run(self, command: Command) -> bool:
        """Runs a command of upkeep; returns whether it found something to do, or was refused."""
        applied_seq = self._engine.applied_seq
        self._is_refused = isinstance(self._engine.run_internal(command), Refusal)
        if self._is_refused:
            self._not_before_us = self._clock.monotonic_us() + _RETRY_US
            self._rows = max(1, self._rows // 2)
            return True
        self._rows = min(2 * self._rows, limits.UPKEEP_ROWS)
        return self._engine.applied_seq > applied_seq

    def _due_tree(self) -> Tree | None:
        now_us, monotonic_us = self._clock.wall_us(), self._clock.monotonic_us()
        for tree in _DUE:
            date_us = self._date_us(tree, now_us, monotonic_us)
            if date_us is not None and date_us <= now_us:
                return tree
        return None

    def _date_us(self, tree: Tree, now_us: int, monotonic_us: int) -> int | None:
        """Returns the wall time of the earliest date of a tree."""
        if tree not in self._dates:
            first = self._engine.scan_index(tree, b"", None, 1)
            self._dates[tree] = int.from_bytes(first[0][0][:8], "big") if first else None
        date_us = self._dates[tree]
        if date_us is None:
            return None
        if tree in _LEASE_TIME:
            date_us += now_us - self._engine.lease_us
        blocked_us = self._blocked_us.get(tree, 0) - monotonic_us
        return max(date_us, now_us + blocked_us) if blocked_us > 0 else date_us


# -------------------------------------------------------------------------------------------------
#
# Uncommitted stages are dropped, half committed ones are finished, and writers that have been
# silent for long are forgotten.
#
# This walks over stages and writers, a bounded piece at a time, from the beginning once an hour.


# The next command, or None; receives whether the last command was refused.
Steps = Generator[Command | None, bool | None, None]
_ONCE: Final = commands.WRITER_ONCE.encode()
# How many entries one step examines.
_PIECE: Final = 2000


class StagedUpkeep:
    """Walks over all stages and writers, step by step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._walk: Steps | None = None
        self._is_refused: bool | None = None  # the last command; None: there was none

    def step(self) -> bool:
        """Does one step; False when the walk is over."""
        if self._walk is None:
            self._walk, self._is_refused = self._steps(), None
        try:
            command = self._walk.send(self._is_refused)
        except StopIteration:
            self._walk = None
            return False
        self._is_refused = command is not None and isinstance(
            self._engine.run_internal(command), Refusal
        )
        return True

    def _steps(self) -> Steps:
        """Yields commands to run, or None after a piece that was only examined."""
        now_us = self._engine.clock.wall_us()
        for items in pages(self._engine.scan_index, Tree.STAGES, b"", None, _PIECE):
            by_table: dict[int, list[int]] = {}
            for key, data in items:
                stage = staging.decode_stage(key, data)
                is_old = stage.at_us + limits.STAGE_US_MAX < now_us
                if is_old and stage.state == staging.StageState.PENDING:
                    by_table.setdefault(table_of(key), []).append(stage.seq)
            for table, stages in by_table.items():
                yield staging.DropStages(table=table, stages=stages)
            yield None
        for items in pages(self._engine.scan_index, Tree.WRITERS, b"", None, _PIECE):
            for key, data in items:
                yield from self._of_writer(key, staging.decode_writer(data), now_us)
            yield None

    def _of_writer(self, key: bytes, found: staging.StageWriter, now_us: int) -> Steps:
        table, name = table_of(key), key[PREFIX_BYTES:]
        if found.at_us + limits.COMMIT_IDLE_US < now_us:
            while found.stages and self._is_staged(key, found.stages[-1]):
                if (yield staging.RunStage(table=table, name=name)):
                    return  # perhaps a key is locked; retried in the next walk
        is_once = found.batch == staging.OVER or name.startswith(_ONCE)
        kept_us = limits.WRITER_ONCE_KEPT_US if is_once else limits.WRITER_KEPT_US
        if found.at_us + kept_us < now_us:
            yield staging.ForgetWriter(table=table, name=name, before_us=now_us - kept_us)

    def _is_staged(self, key: bytes, seq: int) -> bool:
        """Returns whether the last stage of a batch exists: then the batch is not written yet."""
        wanted = seq_key(key[:PREFIX_BYTES], seq)
        return bool(self._engine.scan_index(Tree.STAGES, wanted, wanted + b"\0", 1))


# -- whether the disk has space for writes of users -----------------------------------------------
#
#     refused -> full -> ... packing, or somebody else, frees space ... -> it would fit -> not full
#
# A disk stays full until a write of the refused size would fit: a small one that fits meanwhile
# changes nothing.  This is found out by trying, since only the disk knows its quotas and limits.


# The size to try at a start, when nothing was refused yet.
_ORDINARY_BYTES: Final = 4 * limits.KIB
# How often the file system is asked for its free space.
_LOOK_US: Final = 1_000_000


class Space:
    """The space under one data directory."""

    def __init__(self, parts: Recovered, grow: Callable[[], bool]) -> None:
        self._disk = parts.disk
        self._directory = parts.layout.root
        self._clock = parts.clock
        self._writer = parts.writer
        self._index = parts.index
        self._grow = grow  # makes the index larger; False on a full disk
        self._short = (-_LOOK_US, False)  # monotonic time of the last check, and its result
        self.body_bytes = 0  # of the largest frame that was refused
        self._lacks_index = False  # the index could not grow
        self.is_full = False  # writes are refused

    def stats(self) -> dict[str, int]:
        return {"disk_full": int(self.is_full), "free_bytes": self._free_bytes()}

    @property
    def is_short(self) -> bool:
        """Returns whether the disk is full, or will be when the segment is."""
        now_us = self._clock.monotonic_us()
        if now_us - self._short[0] >= _LOOK_US:
            self._short = (now_us, self._free_bytes() < self._writer.following_bytes)
        return self.is_full or self._short[1]

    def note_lack(self, body_bytes: int = 0, *, of_index: bool = False) -> None:
        """Records that there was no space for a frame, or for a larger index."""
        self.body_bytes = max(self.body_bytes, body_bytes)
        self._lacks_index = self._lacks_index or of_index

    def refuse(self) -> bool:
        """Records that a write is refused; returns whether it is the first one."""
        is_first, self.is_full = not self.is_full, True
        return is_first

    def note_write(self) -> None:
        """Records that a write was not refused; others of that size may still be."""
        if self._writer.has_room(self.body_bytes) and self._index.has_reserve():
            self._clear()

    def look_at_start(self) -> None:
        """Finds out whether ordinary writes would be refused."""
        self.note_lack(_ORDINARY_BYTES, of_index=True)
        self.is_full = True
        self.look()

    def look(self) -> None:
        """Tries whether the refused write would fit now."""
        has_index = not self._lacks_index or self._index.has_reserve() or self._grow()
        if has_index and self._writer.could_take(self.body_bytes):
            self._clear()

    def _free_bytes(self) -> int:
        return self._disk.free_bytes(self._directory)

    def _clear(self) -> None:
        self.is_full = self._lacks_index = False
        self.body_bytes = 0
