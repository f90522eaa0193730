"""What can be made out of a journal, whole or damaged, by itself: for verify, dump and repair.

The reader stops at the first damage, as whoever serves data must.  A survey goes on behind it: it
finds the next whole frame by its salted checksum, and tells which seqs are missing in between.  A
segment whose header is damaged is made out from its name, its neighbours and its frames.

Nothing is written, and a writer may be at work meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import names, search
from fjord.journal.frame import Frame, SegmentHeader
from fjord.journal.reader import Located

_CHUNK_BYTES: Final = 1 * limits.MIB
_SHARD: Final = slice(32, 48)  # where a segment's header has the UUID of its journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A place where bytes are not what was written."""

    segment: int
    path: str
    offset: int
    reason: str
    first_seq: int = 0  # of what is missing
    rows: int = 0  # how many seqs are missing; 0 if nothing is


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A segment, as far as it can be made out."""

    header: SegmentHeader  # as it was read, or as it must have been
    path: str
    size: int  # of the file
    is_readable: bool  # there is a file, and it can be read
    damage: Damage | None  # of the header
    following_seq: int | None = None  # where the next segment begins; None for the last one

    @property
    def segment(self) -> int:
        return self.header.segment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a first look at a segment's file gives."""

    segment: int
    path: str
    data: bytes = b""
    size: int = 0
    header: SegmentHeader | None = None
    offset: int = 0  # of the damage, if there is no header
    reason: str = "the file is missing"
    is_there: bool = True
    is_readable: bool = False


def make_out(disk: disks.Disk, directory: str) -> list[Part]:
    """Returns all segments in order, those that are damaged or missing in between included.

    Raises:
        CorruptionError: if not even the journal's UUID can be made out.
    """
    looks = _look_at_all(disk, directory)
    if not looks:
        return []
    shard = _shard_of(disk, looks)
    parts: list[Part] = []
    for position, look in enumerate(looks):
        before = parts[-1] if parts else None
        header, damage = _judge(look, shard, before)
        if header is None:
            following_seq = _next_good(looks[position + 1 :], shard)
            header = _guess(disk, look, shard, before, following_seq)
        if before is not None:
            parts[-1] = dataclasses.replace(before, following_seq=header.first_seq)
        parts.append(
            Part(
                header=header,
                path=look.path,
                size=look.size,
                is_readable=look.is_readable,
                damage=damage,
            )
        )
    return parts


def walk(disk: disks.Disk, part: Part, *, durable_seq: int = 0) -> Iterator[Located | Damage]:
    """Yields the whole frames of a segment, and what is missing before, between or behind them.

    `durable_seq` is what is known to be durable from elsewhere; it vouches for a last frame that
    is torn, as a later frame does.
    """
    if part.damage is not None:
        yield part.damage
    if not part.is_readable:
        yield from _missing(part, part.header.first_seq, 0, "nothing of it can be read")
        return
    try:
        file = disk.open(part.path)
    except FileNotFoundError:
        return  # packed meanwhile
    with contextlib.closing(file):
        for step in _Walk(file, part, durable_seq).steps():
            if isinstance(step, Damage) and not disk.exists(part.path):
                return  # packed meanwhile, and perhaps another segment's file by now
            yield step


def _missing(part: Part, seq: int, offset: int, reason: str, end: int = 0) -> Iterator[Damage]:
    end_seq = part.following_seq or end
    if seq < end_seq:
        yield _damage(part, offset, reason, seq, end_seq - seq)


def _damage(part: Part, offset: int, reason: str, seq: int, rows: int) -> Damage:
    return Damage(
        segment=part.segment,
        path=part.path,
        offset=offset,
        reason=reason,
        first_seq=seq if rows else 0,
        rows=rows,
    )


class _Walk:
    """One pass over the frames of a segment."""

    def __init__(self, file: disks.File, part: Part, durable_seq: int) -> None:
        self._file = file
        self._part = part
        self._salt = part.header.salt
        self._window, self._base = b"", 0
        self._durable_seq = durable_seq
        self._claim: int | None = None  # the highest seq that a frame behind a damage vouches for

    def steps(self) -> Iterator[Located | Damage]:
        part = self._part
        seq, offset = part.header.first_seq, frames.SEGMENT_HEADER_BYTES
        while True:
            located = self._whole_at(offset, seq)
            if located is None and self._vouched(seq, offset):
                # A writer may have finished it between the two looks.
                self._window = b""
                located = self._whole_at(offset, seq)
            if located is not None:
                yield located
                seq, offset = located.frame.last_seq + 1, located.end
                continue
            if not self._vouched(seq, offset):
                return
            found = self._next_whole(offset, seq)
            if found is None:
                end = max(self._durable_seq, self._claim or 0) + 1
                yield from _missing(part, seq, offset, f"the frame of seq {seq} is gone", end)
                return
            offset_after, frame = found
            reason = f"the frame of seq {seq} is not readable"
            yield _damage(part, offset, reason, seq, frame.first_seq - seq)
            seq, offset = frame.first_seq, offset_after

    def _vouched(self, seq: int, offset: int) -> bool:
        """Says whether a frame must be here: else the segment just ends."""
        if self._part.following_seq is not None:
            return seq < self._part.following_seq
        if self._claim is None:
            found = search.find_headers(self._file, offset, self._salt)
            self._claim = max((frame.durable_seq for _, frame in found), default=0)
        return seq <= max(self._claim, self._durable_seq)

    def _next_whole(self, offset: int, seq: int) -> tuple[int, Frame] | None:
        """Finds the next frame that counts, behind one that is not readable."""
        for position, frame in search.find_headers(self._file, offset, self._salt):
            if frame.first_seq >= seq and self._whole_at(position, frame.first_seq):
                return position, frame
        return None

    def _whole_at(self, offset: int, seq: int) -> Located | None:
        """Returns the frame at an offset if it is whole, is that of `seq`, and still counts."""
        following_seq = self._part.following_seq
        if following_seq is not None and seq >= following_seq:
            return None
        head = self._read(offset, frames.FRAME_HEADER_BYTES)
        frame = frames.decode_frame(head, 0, self._salt)
        if frame is None or frame.first_seq != seq:
            return None
        size = frame.length - frames.FRAME_HEADER_BYTES
        body = self._read(offset + frames.FRAME_HEADER_BYTES, size)
        if len(body) < size or frames.checksum(body) != frame.body_crc:
            return None
        return Located(frame, body, self._part.segment, offset)

    def _read(self, offset: int, size: int) -> bytes:
        start = offset - self._base
        if start < 0 or start + size > len(self._window):
            self._window = self._file.read(offset, max(size, _CHUNK_BYTES))
            self._base, start = offset, 0
        return self._window[start : start + size]


# -- segments whose header says nothing -----------------------------------------------------------


def _look_at_all(disk: disks.Disk, directory: str) -> list[_Look]:
    """Looks at every number from the first segment to the last.

    The oldest ones may be packed meanwhile: then it looks again.
    """
    while True:
        looks = _look_once(disk, directory)
        if not any(look.is_there and not disk.exists(look.path) for look in looks):
            return looks


def _look_once(disk: disks.Disk, directory: str) -> list[_Look]:
    numbers = [names.segment_number(name) for name in disk.names(directory)]
    there = sorted(number for number in numbers if number is not None)
    if not there:
        return []
    if there[-1] - there[0] > len(there) + limits.SEGMENTS_MISSING_MAX:
        path = names.segment_path(directory, there[-1])
        raise CorruptionError(path, 0, f"{there[-1] - there[0] + 1 - len(there)} are missing")
    known = set(there)
    return [
        _look_at(disk, directory, number, is_there=number in known)
        for number in range(there[0], there[-1] + 1)
    ]


def _look_at(disk: disks.Disk, directory: str, segment: int, *, is_there: bool) -> _Look:
    path = names.segment_path(directory, segment)
    if not is_there:
        return _Look(segment=segment, path=path, is_there=False)
    try:
        with contextlib.closing(disk.open(path)) as file:
            data, size = file.read(0, frames.SEGMENT_HEADER_BYTES), file.size()
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        return _Look(segment=segment, path=path, reason=reason)
    header, offset, reason = None, 0, ""
    try:
        header = frames.decode_segment_header(data, path)
    except CorruptionError as error:
        offset, reason = error.offset, error.reason
    return _Look(
        segment=segment,
        path=path,
        data=data,
        size=size,
        header=header,
        offset=offset,
        reason=reason,
        is_readable=True,
    )


def _shard_of(disk: disks.Disk, looks: Sequence[_Look]) -> bytes:
    """Returns the journal's UUID: what most headers say, or a damaged one whose frames agree."""
    known = Counter(look.header.shard for look in looks if look.header is not None)
    if known:
        return known.most_common(1)[0][0]
    for look in looks:
        shard = look.data[_SHARD]
        if len(shard) == 16 and _first_frame(disk, look, shard) is not None:
            return shard
    raise CorruptionError(looks[0].path, looks[0].offset, looks[0].reason)


def _judge(
    look: _Look, shard: bytes, before: Part | None
) -> tuple[SegmentHeader | None, Damage | None]:
    """Returns the header if it can be believed, or else what is wrong with it."""
    header, offset, reason = look.header, look.offset, look.reason
    if header is not None and header.shard != shard:
        header, offset, reason = None, 32, "it belongs to another journal"
    elif header is not None and header.segment != look.segment:
        offset, reason = 16, f"it says that it is segment {header.segment}"
        header = None
    elif header is not None and before and header.first_seq < before.header.first_seq:
        header, offset, reason = None, 24, "it begins before the segment before it"
    if header is not None:
        return header, None
    damage = Damage(segment=look.segment, path=look.path, offset=offset, reason=reason)
    return None, damage


def _next_good(looks: Sequence[_Look], shard: bytes) -> int | None:
    for look in looks:
        if look.header is not None and _judge(look, shard, None)[0] is not None:
            return look.header.first_seq
    return None


def _guess(
    disk: disks.Disk, look: _Look, shard: bytes, before: Part | None, following_seq: int | None
) -> SegmentHeader:
    """Returns the header that a segment must have had."""
    first = _first_frame(disk, look, shard)
    known = [first.first_seq] if first else []
    if following_seq is not None:
        known.append(following_seq)
    if before is not None:
        known.append(_end_seq(disk, before))
    elif look.segment == 1:
        known.append(1)
    last = before.header if before else None
    return SegmentHeader(
        segment=look.segment,
        first_seq=max(min(known, default=1), last.first_seq if last else 1),
        shard=shard,
        created_us=first.wall_us if first else last.created_us if last else 0,
        lease_us=last.lease_us if last else 0,
    )


def _first_frame(disk: disks.Disk, look: _Look, shard: bytes) -> Frame | None:
    if not look.is_readable:
        return None
    header = SegmentHeader(segment=look.segment, first_seq=0, shard=shard, created_us=0, lease_us=0)
    with contextlib.closing(disk.open(look.path)) as file:
        start = frames.SEGMENT_HEADER_BYTES
        return next((one for _, one in search.find_headers(file, start, header.salt)), None)


def _end_seq(disk: disks.Disk, part: Part) -> int:
    """Returns the seq after the last one of a segment that nothing is known to follow."""
    seq = part.header.first_seq
    for step in walk(disk, part):
        if isinstance(step, Located):
            seq = step.frame.last_seq + 1
    return seq
