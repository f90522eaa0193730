"""Packing: the live rows of the oldest segment are written again at the end, then it is removed.

    move the jobs of segments to be removed, see `Moving`
      -> walk the oldest segment, a slice at a time -> KEEP what is still live, as new ops
      -> op PACKED (the journal begins after it) -> sync -> the file goes, or becomes the spare

Only the oldest: removing one from the middle would bring back rows whose deletion was in it.
A crash at any moment leaves a journal that rebuilds the same state, since nothing is removed before
the rewritten rows are durable; the next start continues.

On a full disk packing uses the space that is reserved for it, see `journal.writer`: round after
round over the whole journal while something can be gained; then it pauses.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fjord import layouts, limits, ops
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code, CorruptionError
from fjord.history import bounded
from fjord.journal.frame import SEGMENT_HEADER_BYTES, PlacedOp, SegmentHeader
from fjord.journal.writer import Claim
from fjord.ops import Op, Opcode, Place
from fjord.tables.jobs import keep, layout
from fjord.tables.jobs.keep import MoveJobs
from fjord.tables.jobs.layout import PLACE_BYTES, ROW_AT, XID
from fjord.tables.meaning import MEANING
from fjord.tables.state import Tree
from fjord.tables.upkeep import Begin, Pack

if TYPE_CHECKING:
    from fjord.engine.engine import Engine

_ROWS: Final = 1000
# With more places than this it is cheaper to start again.
_PLACES_MAX: Final = 200_000


class Moving:
    """A pass that moves all jobs that are held by rows before a seq."""

    def __init__(
        self, engine: Engine, before_seq: int, slice_bytes: int = limits.PACK_SLICE_BYTES
    ) -> None:
        self._engine = engine
        self._before_seq = before_seq
        self._slice_bytes = slice_bytes
        self._places: deque[tuple[Tree, bytes]] = deque()
        self._is_lost = False  # too many places changed to keep them

    def note(self, op: Op, place: Place) -> None:
        """Records the places that an op has changed during the pass."""
        tree = MEANING[op.opcode].puts
        if tree is None or self._is_lost:
            return
        self._places.extend((tree, key) for key in _keys(op, place))
        self._is_lost = len(self._places) > _PLACES_MAX

    def commands(self) -> Iterator[MoveJobs]:
        """Yields commands to run, a bounded step each; some of them move nothing."""
        yield from self._pass()
        while self._places or self._is_lost:
            if self._is_lost:
                self._places.clear()
                self._is_lost = False
                yield from self._pass()
            else:
                yield self._step_back()

    def _pass(self) -> Iterator[MoveJobs]:
        for tree in layout.STATES:
            start = b""
            while items := self._engine.scan_index(tree, start, None, _ROWS):
                keys, start = self._choose(tree, items)
                yield MoveJobs(tree=tree, keys=keys, before_seq=self._before_seq)

    def _choose(self, tree: Tree, items: list[tuple[bytes, bytes]]) -> tuple[list[bytes], bytes]:
        """Returns the items to move, and where to continue."""
        keys: list[bytes] = []
        size = 0
        for key, data in items:
            _, image = keep.parts(tree, key, data)
            if layout.held_of(image) < self._before_seq:
                keys.append(key)
                size += layout.bytes_of(image)
            if size >= self._slice_bytes:
                return keys, key + b"\0"
        return keys, items[-1][0] + b"\0"

    def _step_back(self) -> MoveJobs:
        """Returns the command for the next recorded places, all of one tree."""
        tree = self._places[0][0]
        keys: list[bytes] = []
        while self._places and self._places[0][0] is tree and len(keys) < _AT_ONCE:
            keys.append(self._places.popleft()[1])
        return MoveJobs(tree=tree, keys=keys, before_seq=self._before_seq)


# Values are at most 1 MiB, so this many fit a frame.
_AT_ONCE: Final = 16


def _keys(op: Op, place: Place) -> Iterator[bytes]:
    """Yields the index keys under which an op has put existing jobs."""
    prefix = layouts.prefix_of(op.table)
    if op.opcode is Opcode.JOB_TAKE:
        yield from (prefix + XID.pack(seq) for seq in range(place.seq, place.seq + op.rows))
        return
    images = op.column("image")
    for image in images.rows():
        start = 0 if op.opcode is Opcode.JOB_WAIT else ROW_AT.start
        yield prefix + image[start:PLACE_BYTES]


# Large ops are processed in parts, so that nobody waits long for one.
_ROWS_MAX: Final = 2048
# A journal with this share of live rows is left alone until this much more of it is dead.
_KEPT_SHARE: Final = 0.75
_QUIET_SHARE: Final = 0.25
# On a full disk packing is worth while from this share of dead bytes in a segment.
_FULL_SHARE: Final = 16
# This share of what was written since the start is taken as overhead around rows, until a round
# has shown the real overhead.
_AROUND_SHARE: Final = 16
# A segment of small rows grows when it is packed; this share of a segment is left for deletes.
_LEFT_SHARE: Final = 8
# One write takes at most this share of a segment, so that little is left over at its end.
_SLICE_SHARE: Final = 16
# Reserved for what ends the packing of a segment, beside its rows.
_END_BYTES: Final = 512
# From this ratio on a journal is packed up to where a generation has drained.
_DRAINED_RATIO: Final = 1.25
# The commands that packing runs.
Step = Pack | MoveJobs


class Packer:
    """Packs one segment after the other, in small steps.

    If space is short a segment is measured first, and packed only if its live rows fit into the
    space that is reserved for packing.
    """

    def __init__(self, engine: Engine, segment_bytes: int) -> None:
        self._engine = engine
        self._memory, self._journal, self._writer = engine.memory, engine.journal, engine.writer
        self._segment_bytes = segment_bytes
        self._walk: Iterator[Step] | None = None
        self.moving: Moving | None = None  # while jobs are moved: it must see all applied ops
        self._moved_segment = 0  # no segment up to this one holds jobs
        self._measured: list[int] | None = None  # sizes of frames, while a segment is measured
        self._is_tight = False  # space was short when the oldest segment was begun
        self._is_measured = False  # the current segment was measured, and fits
        # A segment that did not fit: its number, the bytes needed, and the dead bytes at that time.
        self._unfit = (0, 0, 0)
        self._closed: tuple[list[SegmentHeader], int] = ([], 0)  # segments, and their bytes
        self._walked_seq = 0  # of the journal, when the walk over the oldest segment ended
        self._gone_bytes = self._kept_bytes = 0  # removed in this round, and rewritten
        # The last segment of this round over the journal, and the dead bytes when it began.
        self._round: tuple[int, int] | None = None
        self._quiet_bytes = 0  # packing gained too little: it pauses until more than this is dead
        # Dead bytes that a whole round did not free; None: no such round yet.
        self._floor_bytes: int | None = None
        self._seen_bytes = engine.live_bytes  # live bytes at the last check
        self._died_bytes = 0  # died since the start
        self._began_bytes = self.used_bytes()
        self.packed_segments = 0
        self.damage: Exception | None = None  # why packing cannot continue

    def used_bytes(self) -> int:
        """Returns how much of the journal is written, without what is allocated ahead."""
        segments = self._journal.segments
        if segments is not self._closed[0]:
            sizes = [self._journal.segment_bytes(header.segment) for header in segments[:-1]]
            self._closed = (segments, sum(sizes))
        return self._closed[1] + self._writer.position

    def is_wanted(self, live_bytes: int) -> bool:
        """Returns whether enough of the journal is dead to make packing worth while."""
        self._died_bytes += max(0, self._seen_bytes - live_bytes)
        self._seen_bytes = live_bytes
        if self.damage is not None:
            return False
        if self._walk is not None:
            return True
        used_bytes = self.used_bytes()
        dead_bytes = used_bytes - live_bytes
        is_full = self._engine.space.is_full
        is_quiet = not is_full and dead_bytes < self._quiet_bytes
        if is_quiet or not self._can_begin(dead_bytes):
            return False
        following = self._journal.segments[1:2]
        is_given_back = following and self._memory.given_back_seq >= following[0].first_seq
        if is_given_back and used_bytes > _DRAINED_RATIO * live_bytes:
            return True  # a generation has drained: everything dead before it is removed
        if is_full:
            return self._pays_on_full_disk(used_bytes, dead_bytes)
        if self._engine.space.is_short:
            return dead_bytes > self._segment_bytes
        return used_bytes > limits.PACK_RATIO * live_bytes + 2 * self._segment_bytes

    def _pays_on_full_disk(self, used_bytes: int, dead_bytes: int) -> bool:
        least_bytes = self._segment_bytes // _FULL_SHARE
        if self._floor_bytes is not None:
            return dead_bytes - self._floor_bytes > least_bytes
        around_bytes = max(0, used_bytes - self._began_bytes) // _AROUND_SHARE
        is_much = dead_bytes - around_bytes > least_bytes
        return is_much or self._died_bytes > least_bytes

    def _can_begin(self, dead_bytes: int) -> bool:
        segments = self._journal.segments
        if len(segments) < 2:  # on a full disk even the open segment is packed
            return self._engine.space.is_full and self._writer.spare.is_whole
        segment, needed_bytes, known_bytes = self._unfit
        if segments[0].segment == segment:
            died_bytes = dead_bytes - known_bytes  # perhaps all in this segment
            if needed_bytes - died_bytes > self._writer.vital_room:
                return False
        return not self._engine.is_held(segments[0].segment)  # sealing comes first

    def look_again(self) -> None:
        """Something was removed that did not count as live: packing may gain more than before."""
        self._quiet_bytes = self._floor_bytes = 0

    def step(self) -> bool:
        """Packs one slice; False if the disk has no room for it now."""
        if self._walk is None:
            self._begin()
        try:
            assert self._walk is not None
            found = next(self._walk, None)
        except (CorruptionError, OSError) as error:
            # A damaged segment cannot be packed, but the rest can still be served.
            self.damage = error
            self._end_walk()
            return False
        if self._measured is not None:
            return self._measure(found)
        if found is None:
            return self._drop_oldest()
        used_bytes = self.used_bytes()
        segment, position = self._writer.segment, self._writer.position
        reply = self._engine.run_internal(replace(found, is_measured=self._is_measured))
        self._kept_bytes += self.used_bytes() - used_bytes
        if self._is_measured:
            begin = position if self._writer.segment == segment else SEGMENT_HEADER_BYTES
            left_bytes = self._writer.owed_bytes - (self._writer.position - begin)
            self._writer.owed_bytes = max(_END_BYTES, left_bytes)
        if isinstance(reply, Refusal):
            self._end_walk()  # starts again, and measures
            if reply.code is not Code.DISK_FULL:
                self.damage = reply.error()
            return False
        return True

    def _begin(self) -> None:
        if len(self._journal.segments) < 2:
            self._engine.begin_segment()
        self._is_tight = self._engine.space.is_short
        if self._is_tight:
            self._writer.make_room(0, Claim.VITAL)
        if self._round is None:
            dead_bytes = self.used_bytes() - self._engine.live_bytes
            self._round = (self._journal.segments[-1].segment, dead_bytes)
        self._walk = self._steps()
        self._measured = [] if self._is_tight else None
        self._is_measured = False

    def _end_walk(self) -> None:
        self._walk = self.moving = self._measured = None
        self._writer.owed_bytes = self._segment_bytes

    def _steps(self) -> Iterator[Step]:
        """Yields all commands to run before the oldest segment can be removed, a slice each."""
        oldest = self._journal.segments[0].segment
        if oldest > self._moved_segment:
            # All closed segments at once, since each pass reads every job; if space is short, only
            # those needed to free this one.
            following = self._journal.segments[1 if self._is_tight else -1]
            self.moving = Moving(self._engine, following.first_seq, self._slice_bytes)
            yield from self.moving.commands()
            self.moving = None
            if self._measured is None:
                self._moved_segment = following.segment - 1
        yield from (Pack(ops=ops_) for ops_ in self._slices())

    def _measure(self, found: Step | None) -> bool:
        assert self._measured is not None
        if found is not None:
            self._measured.append(self._engine.measure(found))
            return True
        needed_bytes = self._needed_bytes(self._measured)
        if needed_bytes > self._writer.vital_room:
            dead_bytes = self.used_bytes() - self._engine.live_bytes
            self._unfit = (self._journal.segments[0].segment, needed_bytes, dead_bytes)
            self._end_walk()
            return False
        self._walk, self._measured, self._is_measured = self._steps(), None, True
        self._writer.owed_bytes = max(_END_BYTES, needed_bytes)
        return True

    def _needed_bytes(self, frames_: list[int]) -> int:
        """Returns the space needed to pack the oldest segment in frames of these sizes."""
        size = sum(frames_)
        if not size:
            return 0  # it is removed at once
        needed_bytes = size + _END_BYTES
        if needed_bytes > self._writer.spare_room:
            needed_bytes += 2 * max(frames_)  # what is lost at the ends of segments
        growth = size - self._journal.segment_bytes(self._journal.segments[0].segment)
        if growth > 0:
            left_bytes = self._segment_bytes + self._segment_bytes // _LEFT_SHARE
            needed_bytes = max(needed_bytes, growth + left_bytes)
        return needed_bytes

    def _drop_oldest(self) -> bool:
        oldest, following = self._journal.segments[:2]
        if not self._may_go(following.first_seq):
            return False
        begin = Begin(segment=following.segment, seq=following.first_seq)
        if isinstance(self._engine.run_internal(begin), Refusal):
            return False
        self._walked_seq = 0
        self._engine.sync()
        self._gone_bytes += self._journal.segment_bytes(oldest.segment)
        self._journal.remove(oldest.segment)
        self._writer.recycle(oldest.segment, wipes=self._memory.is_secure)
        self._end_walk()
        self.packed_segments += 1
        self._judge_gain(oldest.segment)
        return True

    def _may_go(self, end_seq: int) -> bool:
        """Returns whether no version kept for a snapshot can point into the oldest segment.

        Its live rows were rewritten; so only versions replaced before that can point there, and
        these are kept under snapshots opened before.
        """
        if self._walked_seq < end_seq:
            self._walked_seq = self._engine.applied_seq
        stop = (self._walked_seq + 1).to_bytes(8, "big")
        return not self._engine.scan_index(Tree.VERSIONS, b"", stop, 1)

    def _judge_gain(self, segment: int) -> None:
        """Pauses packing of a journal full of live data that does not count as rows.

        The answers of clients are such data.  Packing them again and again would gain nothing.
        """
        assert self._round is not None
        last_segment, dead_bytes = self._round
        if segment < last_segment:
            return
        # Everything that was dead when the round began is gone, except what cannot be removed.
        self._floor_bytes = max(0, dead_bytes - (self._gone_bytes - self._kept_bytes))
        if self._kept_bytes > _KEPT_SHARE * self._gone_bytes:
            used_bytes = self.used_bytes()
            dead_bytes = used_bytes - self._engine.live_bytes
            self._quiet_bytes = dead_bytes + round(_QUIET_SHARE * used_bytes)
        self._gone_bytes = self._kept_bytes = 0
        self._round = None

    @property
    def _slice_bytes(self) -> int:
        return min(limits.PACK_SLICE_BYTES, self._segment_bytes // _SLICE_SHARE)

    def _slices(self) -> Iterator[list[PlacedOp]]:
        """Yields the ops of the oldest segment, a slice at a time."""
        return bounded(
            self._ops_of_oldest(), lambda placed: (_op_bytes(placed[0]),), (self._slice_bytes,)
        )

    def _ops_of_oldest(self) -> Iterator[PlacedOp]:
        oldest = self._journal.segments[0]
        for located in self._journal.frames(oldest.first_seq, durable_seq=self._writer.durable_seq):
            if located.segment != oldest.segment:
                return
            for op, place in located.ops():
                yield from _parts(op, place, self._slice_bytes)


def _parts(op: Op, place: Place, bytes_max: int) -> Iterator[PlacedOp]:
    """Yields an op in parts of bounded size, each at its own place."""
    if not op.columns or (op.rows <= _ROWS_MAX and _op_bytes(op) <= bytes_max):
        yield op, place
        return
    last = op.columns[-1]
    offsets = last.offsets if isinstance(last, Strings) else None
    start = 0
    while start < op.rows:
        end = min(start + _ROWS_MAX, op.rows)
        if offsets is not None and offsets[end] - offsets[start] > bytes_max:
            end = max(start + 1, bisect.bisect_right(offsets, offsets[start] + bytes_max) - 1)
        skipped = offsets[start] if offsets is not None else 0
        where = place._replace(seq=place.seq + start, payload=place.payload + skipped)
        yield ops.part(op, start, end), where
        start = end


def _op_bytes(op: Op) -> int:
    return ops.HEADER.size + sum(map(_column_bytes, op.columns))


def _column_bytes(column: ops.Column) -> int:
    return len(column.data) + 4 * len(column) if isinstance(column, Strings) else 8 * len(column)
