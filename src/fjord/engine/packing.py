"""Packing: what lives in the oldest segment is said again at the end, then the segment goes.

    move the jobs of segments that are to go, see `moving`
      -> walk the oldest segment, a slice at a time -> KEEP what still holds, as new ops
      -> op PACKED (the journal begins behind it) -> sync -> the file goes, or becomes the spare

Oldest first only: dropping one from the middle would bring back rows whose deletion was in it.
A crash at any moment leaves a journal that rebuilds the same state, since nothing goes before
what was said again is durable; the next start goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Protocol

from fjord import limits, ops
from fjord.columns import Strings
from fjord.commands import Command, Refusal, Reply
from fjord.engine import moving
from fjord.engine.memory import Memory
from fjord.engine.space import Space
from fjord.errors import Code, CorruptionError
from fjord.journal.frame import PlacedOp, SegmentHeader
from fjord.journal.reader import Journal
from fjord.journal.writer import Writer
from fjord.ops import Op, Place
from fjord.tables.jobs.upkeep import MoveJobs
from fjord.tables.packing import Begin, Pack
from fjord.tables.state import Tree

# A large op is looked at in parts, so that nobody waits long behind it.
_ROWS_MAX: Final = 2048
# A journal of which so much had to be kept rests until so much more of it is dead.
_KEPT_SHARE: Final = 0.75
_QUIET_SHARE: Final = 0.25
# On a full disk it pays to pack a journal with so much of a segment dead.
_FULL_SHARE: Final = 8
# With so much of it dead a journal is packed up to where a generation has drained.
_DRAINED_RATIO: Final = 1.25
# What packing runs.
Step = Pack | MoveJobs


class Host(moving.Host, Protocol):
    """What packing needs of the engine."""

    live_bytes: int
    space: Space

    @property
    def applied_seq(self) -> int: ...

    def run_internal(self, command: Command, /) -> Reply: ...

    def measure(self, command: Step, /) -> int:
        """Returns how many bytes the command would append."""
        ...

    def sync(self) -> int: ...

    def is_held(self, segment: int) -> bool:
        """Says that not all that a segment holds of tables with history is in blocks."""
        ...


class Packer:
    """Packs one segment after the other, in small steps.

    Where space is short a segment is measured first, and packed only if what lives in it fits into
    the space that is reserved for what frees space, with a share left for deletes.
    """

    def __init__(
        self,
        host: Host,
        memory: Memory,
        journal: Journal,
        writer: Writer,
        segment_bytes: int,
    ) -> None:
        self._host = host
        self._memory = memory
        self._journal = journal
        self._writer = writer
        self._segment_bytes = segment_bytes
        self._walk: Iterator[Step] | None = None
        self._moving: moving.Moving | None = None  # while jobs are moved
        self._moved_segment = 0  # no job is in a segment up to this one
        self._measured: int | None = None  # bytes so far, while a segment is measured
        self._is_tight = False  # there was little space when the oldest segment was begun
        self._is_urgent = False  # what is packed now was measured, and fits
        self._closed: tuple[list[SegmentHeader], int] = ([], 0)  # segments, and their bytes
        self._walked_seq = 0  # of the journal, when the oldest segment had been gone through
        self._gone_bytes = self._kept_bytes = 0  # of segments packed lately, and said again of them
        self._quiet_bytes = 0  # packing gained too little: it rests until more than this is dead
        self.packed_segments = 0
        self.damage: Exception | None = None  # why packing cannot go on

    def used_bytes(self) -> int:
        """Returns how much of the journal is written; what is allocated ahead does not count."""
        segments = self._journal.segments
        if segments is not self._closed[0]:
            sizes = [self._journal.segment_bytes(header.segment) for header in segments[:-1]]
            self._closed = (segments, sum(sizes))
        return self._closed[1] + self._writer.position

    def is_wanted(self, live_bytes: int) -> bool:
        """Says whether so much of the journal is dead that packing pays."""
        if self.damage is not None or len(self._journal.segments) < 2:
            return False
        if self._walk is not None:
            return True
        used_bytes = self.used_bytes()
        dead_bytes = used_bytes - live_bytes
        if dead_bytes < self._quiet_bytes:
            return False
        if self._host.is_held(self._journal.segments[0].segment):
            return False  # whoever writes blocks comes first
        is_given_back = self._memory.given_back_seq >= self._journal.segments[1].first_seq
        if is_given_back and used_bytes > _DRAINED_RATIO * live_bytes:
            return True  # a generation has drained: all that is dead before goes
        if self._host.space.is_full:  # then all that can be freed counts
            return dead_bytes > self._segment_bytes // _FULL_SHARE
        if self._host.space.is_short:
            return dead_bytes > self._segment_bytes
        return used_bytes > limits.PACK_RATIO * live_bytes + 2 * self._segment_bytes

    def step(self) -> bool:
        """Packs one slice; False if the disk has no room for it now."""
        if self._walk is None:
            self._begin()
        try:
            assert self._walk is not None
            found = next(self._walk, None)
        except (CorruptionError, OSError) as error:
            # What cannot be read cannot be packed; that is no reason to stop serving the rest.
            self.damage, self._walk, self._moving = error, None, None
            return False
        if self._measured is not None:
            return self._measure(found)
        if found is None:
            return self._drop_oldest()
        before = self.used_bytes()
        reply = self._host.run_internal(replace(found, is_urgent=self._is_urgent))
        self._kept_bytes += self.used_bytes() - before
        if isinstance(reply, Refusal):
            self._walk = self._moving = None  # begins again, and measures
            if reply.code is not Code.DISK_FULL:
                self.damage = reply.error()
            return False
        return True

    @property
    def notes_jobs(self) -> bool:
        """Says that packing has to know what becomes of jobs."""
        return self._moving is not None

    def note(self, op: Op, place: Place) -> None:
        """Takes note of an op that was applied; only needed while `notes_jobs`."""
        if self._moving is not None:
            self._moving.note(op, place)

    def _begin(self) -> None:
        self._is_tight = self._host.space.is_short
        self._walk = self._steps()
        self._measured = 0 if self._is_tight else None
        self._is_urgent = False

    def _steps(self) -> Iterator[Step]:
        """Yields all that has to be run before the oldest segment can go, a slice each."""
        oldest = self._journal.segments[0].segment
        if oldest > self._moved_segment:
            # All closed ones at once, since each pass looks at every job; where space is short
            # only what is needed to free this one.
            following = self._journal.segments[1 if self._is_tight else -1]
            self._moving = moving.Moving(self._host, following.first_seq)
            yield from self._moving.commands()
            self._moving = None
            if self._measured is None:
                self._moved_segment = following.segment - 1
        walk = self._ops_of_oldest()
        while ops_ := list(self._slice(walk)):
            yield Pack(ops=ops_)

    def _measure(self, found: Step | None) -> bool:
        assert self._measured is not None
        if found is not None:
            self._measured += self._host.measure(found)
            return True
        fits = not self._measured or self._measured <= self._writer.urgent_room
        self._walk = self._steps() if fits else None
        self._measured, self._is_urgent = None, fits
        return fits

    def _drop_oldest(self) -> bool:
        oldest, following = self._journal.segments[:2]
        if not self._may_go(following.first_seq):
            return False
        begin = Begin(segment=following.segment, seq=following.first_seq)
        if isinstance(self._host.run_internal(begin), Refusal):
            return False
        self._walk, self._walked_seq = None, 0
        self._host.sync()
        self._gone_bytes += self._journal.segment_bytes(oldest.segment)
        self._journal.remove(oldest.segment)
        self._writer.recycle(oldest.segment, wipes=self._memory.is_secure)
        self.packed_segments += 1
        self._judge_gain()
        return True

    def _may_go(self, end_seq: int) -> bool:
        """Says whether nothing that is kept for snapshots can be in the oldest segment any more.

        All of it that lived was said again; so only versions can point there that were replaced
        before, and such are kept under snapshots that were opened before.
        """
        if self._walked_seq < end_seq:
            self._walked_seq = self._host.applied_seq
        stop = (self._walked_seq + 1).to_bytes(8, "big")
        return not self._host.scan_index(Tree.VERSIONS, b"", stop, 1)

    def _judge_gain(self) -> None:
        """Lets a journal rest that is full of what lives, and does not count as a row.

        Such are the answers of clients.  Packing them over and over would gain nothing.
        """
        used_bytes = self.used_bytes()
        if self._gone_bytes < used_bytes:
            return
        if self._kept_bytes > _KEPT_SHARE * self._gone_bytes:
            dead_bytes = used_bytes - self._host.live_bytes
            self._quiet_bytes = dead_bytes + round(_QUIET_SHARE * used_bytes)
        self._gone_bytes = self._kept_bytes = 0

    def _ops_of_oldest(self) -> Iterator[PlacedOp]:
        oldest = self._journal.segments[0]
        for located in self._journal.frames(oldest.first_seq, durable_seq=self._writer.durable_seq):
            if located.segment != oldest.segment:
                return
            for op, place in located.ops():
                yield from _parts(op, place)

    @staticmethod
    def _slice(walk: Iterator[PlacedOp]) -> Iterator[PlacedOp]:
        """Yields ops up to the size of a slice."""
        size = 0
        for op, place in walk:
            yield op, place
            size += ops.HEADER.size + sum(_column_bytes(column) for column in op.columns)
            if size >= limits.PACK_SLICE_BYTES:
                return


def _parts(op: Op, place: Place) -> Iterator[PlacedOp]:
    """Yields an op in parts of bounded size, each at its own place."""
    if op.rows <= _ROWS_MAX or not op.columns:
        yield op, place
        return
    last = op.columns[-1]
    for start in range(0, op.rows, _ROWS_MAX):
        end = min(start + _ROWS_MAX, op.rows)
        skipped = last.offsets[start] if isinstance(last, Strings) else 0
        yield (
            ops.part(op, start, end),
            place._replace(seq=place.seq + start, payload=place.payload + skipped),
        )


def _column_bytes(column: ops.Column) -> int:
    return len(column.data) + 4 * len(column) if isinstance(column, Strings) else 8 * len(column)
