"""Reconstructing a journal, whole or damaged, from its files alone: for verify, dump and repair.

The reader stops at the first damage, as a server must.  A survey continues after it: it takes the
whole frame with the next seq, wherever that is, and reports the seqs missing in between.
`make_out` determines the segments.

Nothing is written, and a writer may be running meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import disk as disks
from fjord import limits, ops
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import search
from fjord.journal.frame import Frame, SegmentHeader
from fjord.journal.reader import Located
from fjord.journal.search import Stray
from fjord.ops import Opcode

_PACKED: Final = struct.Struct("<QQ")  # segment and seq, the columns of the op


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where bytes are not as they were written."""

    segment: int
    path: str
    offset: int
    reason: str
    first_seq: int = 0  # of the missing seqs
    rows: int = 0  # the number of missing seqs; 0 if none


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A segment, as far as it can be reconstructed."""

    header: SegmentHeader  # as read, or as reconstructed
    path: str
    size: int  # of the file
    is_readable: bool  # the file exists, and can be read
    damage: Damage | None  # of the header
    strays: search.Strays  # frames of all segments that are in other files
    following_seq: int | None = None  # where the next segment begins; None for the last one

    @property
    def segment(self) -> int:
        return self.header.segment


def walk(disk: disks.Disk, part: Part, *, durable_seq: int = 0) -> Iterator[Located | Damage]:
    """Yields the whole frames of a segment, and what is missing before, between or after them.

    `durable_seq` is known to be durable from elsewhere; like a later frame, it proves that a torn
    last frame is damage.
    """
    if part.damage is not None:
        yield part.damage
    with contextlib.ExitStack() as stack:
        walked = _Walk(disk, part, durable_seq, stack)
        for step in walked.steps():
            if isinstance(step, Damage) and part.is_readable and not disk.exists(part.path):
                return  # packed meanwhile, and perhaps the file of another segment by now
            yield step


class _Position(NamedTuple):
    """The position of a frame."""

    path: str
    offset: int


class _Walk:
    """One pass over the frames of a segment."""

    def __init__(
        self, disk: disks.Disk, part: Part, durable_seq: int, stack: contextlib.ExitStack
    ) -> None:
        self._disk = disk
        self._part = part
        self._salt = part.header.salt
        self._durable_seq = durable_seq
        self._stack = stack
        self._files: dict[str, disks.File | None] = {}
        if not part.is_readable:
            self._files[part.path] = None
        self._window, self._path, self._base = b"", "", 0
        # Frames after the first damage, and in other files, in the order of their seqs.
        self._others: list[Stray] = []
        self._claim = 0  # the highest seq that one of them proves
        self._has_looked_behind = self._has_looked_elsewhere = False

    def steps(self) -> Iterator[Located | Damage]:
        part = self._part
        seq, place = part.header.first_seq, _Position(part.path, frames.SEGMENT_HEADER_BYTES)
        while True:
            located = self._whole_at(place, seq)
            if located is None and self._vouched(seq, place):
                # A writer may have finished it between the two reads.
                self._window = b""
                located = self._whole_at(place, seq)
            if located is not None:
                yield located
                seq, place = located.frame.last_seq + 1, _Position(place.path, located.end)
                continue
            if not self._vouched(seq, place):
                return
            found = self._next_whole(seq, place)
            if found is None:
                yield from self._missing(seq, place)
                return
            found_at, located = found
            lost_rows = located.frame.first_seq - seq
            state = "not readable" if lost_rows else "misplaced"
            yield self._damage(place, f"the frame of seq {seq} is {state}", seq, lost_rows)
            yield located
            seq = located.frame.last_seq + 1
            # A frame written elsewhere has left its place empty, and the next one follows there.
            place = _Position(place.path, place.offset + located.frame.length)
            if lost_rows or not self._whole_at(place, seq):
                place = _Position(found_at.path, located.end)

    def _missing(self, seq: int, place: _Position) -> Iterator[Damage]:
        end_seq = self._part.following_seq or max(self._durable_seq, self._claim) + 1
        if seq < end_seq:
            reason = f"the frame of seq {seq} is gone"
            if self._files.get(self._part.path) is None:
                reason = "none of it can be read"
            yield self._damage(place, reason, seq, end_seq - seq)

    def _damage(self, place: _Position, reason: str, seq: int, rows: int) -> Damage:
        first_seq = seq if rows else 0
        return Damage(self._part.segment, place.path, place.offset, reason, first_seq, rows)

    def _vouched(self, seq: int, place: _Position) -> bool:
        """Returns whether a frame must be here: else the segment just ends."""
        if self._part.following_seq is not None:
            return seq < self._part.following_seq
        self._search_behind(place)
        if self._part.damage is not None:
            self._search_elsewhere()
        return seq <= max(self._claim, self._durable_seq)

    def _next_whole(self, seq: int, place: _Position) -> tuple[_Position, Located] | None:
        """Finds the valid frame with the lowest seq after an unreadable one."""
        self._search_behind(place)
        self._search_elsewhere()
        for frame, path, offset in self._others:
            found_at = _Position(path, offset)
            located = self._whole_at(found_at, frame.first_seq) if frame.first_seq >= seq else None
            if located is not None:
                return found_at, located
        return None

    def _search_behind(self, place: _Position) -> None:
        file = self._file(self._part.path)
        if self._has_looked_behind or file is None:
            return
        self._has_looked_behind = True
        found = search.find_headers(file, place.offset, self._salt)
        self._note(Stray(frame, self._part.path, offset) for offset, frame in found)

    def _search_elsewhere(self) -> None:
        if not self._has_looked_elsewhere:
            self._has_looked_elsewhere = True
            self._note(self._part.strays.of(self._part.segment))

    def _note(self, found: Iterable[Stray]) -> None:
        self._others = sorted((*self._others, *found), key=lambda other: other.frame.first_seq)
        self._claim = max((other.frame.durable_seq for other in self._others), default=0)

    def _whole_at(self, place: _Position, seq: int) -> Located | None:
        """Returns the frame at a place if it is whole and valid, and begins with `seq`."""
        following_seq = self._part.following_seq
        if following_seq is not None and seq >= following_seq:
            return None
        head = self._read(place.path, place.offset, frames.FRAME_HEADER_BYTES)
        frame = frames.decode_frame(head, 0, self._salt)
        if frame is None or frame.first_seq != seq:
            return None
        size = frame.length - frames.FRAME_HEADER_BYTES
        body = self._read(place.path, place.offset + frames.FRAME_HEADER_BYTES, size)
        if len(body) < size or frames.checksum(body) != frame.body_crc:
            return None
        return Located(frame, body, self._part.segment, place.offset)

    def _read(self, path: str, offset: int, size: int) -> bytes:
        start = offset - self._base
        if path != self._path or start < 0 or start + size > len(self._window):
            file = self._file(path)
            self._window = file.read(offset, max(size, limits.CHUNK_BYTES)) if file else b""
            self._path, self._base, start = path, offset, 0
        return self._window[start : start + size]

    def _file(self, path: str) -> disks.File | None:
        """Returns an open file; None if it cannot be opened."""
        if path not in self._files:
            file = None
            with contextlib.suppress(OSError):
                file = self._stack.enter_context(contextlib.closing(self._disk.open(path)))
            self._files[path] = file
        return self._files[path]


# -- the begin of the journal ---------------------------------------------------------------------


class Begin:
    """Where the journal begins, according to its ops; collected during a walk."""

    def __init__(self) -> None:
        self.segment = self.seq = 1
        self.is_known = True  # False: ops with this fact may have been lost since
        self.has_gap = False  # something is missing that no repair has replaced by LOST

    def note(self, step: Located | Damage) -> None:
        if isinstance(step, Damage):
            if step.rows:
                self.is_known, self.has_gap = False, True
            return
        position = 0
        while position + ops.HEADER.size <= len(step.body):
            opcode, _, _, _, _, length = ops.HEADER.unpack_from(step.body, position)
            if opcode == Opcode.LOST:
                self.is_known = False
            if opcode == Opcode.PACKED:
                self.segment, self.seq = _PACKED.unpack_from(step.body, position + ops.HEADER.size)
                self.is_known = True
            position += max(length, ops.HEADER.size)

    def is_packed(self, part: Part) -> bool:
        """Returns whether everything live in a segment was written again in later ones."""
        return part.segment < self.segment

    def settle(self, parts: Sequence[Part]) -> list[Part]:
        """Returns the segments, and what is missing before the first one.

        Either that one has lost where it begins, or a missing one stands for all before it.
        """
        first = self._late(parts)
        if first is None or not self.is_known:
            return list(parts)
        position = parts.index(first)
        if first.segment == self.segment:
            first = dataclasses.replace(first, header=first.header._replace(first_seq=self.seq))
            return [*parts[:position], first, *parts[position + 1 :]]
        return [*parts[:position], self._missing_before(first), *parts[position:]]

    def _missing_before(self, first: Part) -> Part:
        number = first.segment - 1
        path = frames.segment_path(os.path.dirname(first.path), number)
        reason = "the file is missing"
        if self.segment < number:
            reason = f"segments {self.segment} to {number} are missing"
        return Part(
            header=first.header._replace(segment=number, first_seq=self.seq),
            path=path,
            size=0,
            is_readable=False,
            damage=Damage(number, path, 0, reason),
            strays=first.strays,
            following_seq=first.header.first_seq,
        )

    def uncertainty(self, parts: Sequence[Part]) -> Damage | None:
        """Returns the damage to report if what is missing cannot be told from what was packed."""
        first = self._late(parts)
        if first is None or self.is_known or not self.has_gap:
            return None
        reason = (
            f"seqs {self.seq} to {first.header.first_seq - 1} were packed or are lost; "
            "the record of what was packed is lost too"
        )
        return Damage(first.segment, first.path, 0, reason)

    def _late(self, parts: Sequence[Part]) -> Part | None:
        """Returns the first segment, if it begins later than the journal does."""
        first = next((part for part in parts if not self.is_packed(part)), None)
        is_late = first is not None and first.segment > 1 and first.header.first_seq > self.seq
        return first if is_late else None


# -------------------------------------------------------------------------------------------------
#
# Which segments a journal has, or must have had, if it may be damaged.
#
# A segment whose header is damaged, or whose file is missing, is reconstructed from its name, its
# neighbours, its frames, and from a file under another name that has its header.


_SEQ_MAX: Final = 2**64 - 1
_SHARD: Final = slice(32, 48)  # the UUID of the journal in a segment's header


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The first findings about a segment's file."""

    segment: int
    path: str
    data: bytes = b""
    size: int = 0
    header: SegmentHeader | None = None
    offset: int = 0  # of the damage, if there is no header
    reason: str = "the file is missing"
    is_readable: bool = False


def make_out(disk: disks.Disk, directory: str, *, durable_seq: int = 0) -> list[Part]:
    """Returns all segments in order, including damaged and missing ones in between.

    If there is no file at all, but something was durable, one missing segment stands for it.

    Raises:
        CorruptionError: if far too many are missing for this to be one journal.
    """
    looks = _look_at_all(disk, directory)
    shard = _shard_of(disk, looks)
    headers = _headers(looks, shard)
    looks = _with_missing(directory, looks, [*headers, *([1] if durable_seq and not looks else [])])
    strays = search.Strays(
        disk,
        {look.segment: look.path for look in looks if look.is_readable},
        {look.segment: _header(look.segment, shard).salt for look in looks},
    )
    parts: list[Part] = []
    for look in looks:
        before = parts[-1] if parts else None
        damage = _header_damage(look, shard, before)
        header = headers.get(look.segment)
        if header is None or (before and header.first_seq < before.header.first_seq):
            header = _rebuilt(disk, look, _header(look.segment, shard), headers, strays, before)
        if before is not None:
            parts[-1] = dataclasses.replace(before, following_seq=header.first_seq)
        parts.append(
            Part(
                header=header,
                path=look.path,
                size=look.size,
                is_readable=look.is_readable,
                damage=damage,
                strays=strays,
            )
        )
    return parts


def _header(segment: int, shard: bytes) -> SegmentHeader:
    return SegmentHeader(segment=segment, first_seq=1, shard=shard, created_us=0, lease_us=0)


def _headers(looks: Sequence[_Look], shard: bytes) -> dict[int, SegmentHeader]:
    """Returns the headers that are whole, also those in misnamed files."""
    return {
        look.header.segment: look.header
        for look in looks
        if look.header is not None
        and look.header.shard == shard
        and abs(look.header.segment - look.segment) < limits.SEGMENTS_MISSING_MAX
    }


def _look_at_all(disk: disks.Disk, directory: str) -> list[_Look]:
    """Examines the files of all segments, again if the oldest ones are packed meanwhile."""
    while True:
        found = (frames.segment_number(name) for name in disk.names(directory))
        numbers = sorted(number for number in found if number is not None)
        looks = [_look_at(disk, directory, number) for number in numbers]
        if all(disk.exists(look.path) for look in looks):
            return looks


def _with_missing(directory: str, looks: Sequence[_Look], others: Sequence[int]) -> list[_Look]:
    """Returns the findings for all numbers in between, and those with headers elsewhere."""
    there = {look.segment: look for look in looks}
    numbers = {*there, *others}
    if not numbers:
        return []
    first, last = min(numbers), max(numbers)
    if last - first > len(numbers) + limits.SEGMENTS_MISSING_MAX:
        path = frames.segment_path(directory, last)
        raise CorruptionError(path, 0, f"{last - first + 1 - len(numbers)} are missing")
    return [
        there.get(number) or _Look(segment=number, path=frames.segment_path(directory, number))
        for number in range(first, last + 1)
    ]


def _look_at(disk: disks.Disk, directory: str, segment: int) -> _Look:
    look = _Look(segment=segment, path=frames.segment_path(directory, segment))
    try:
        with contextlib.closing(disk.open(look.path)) as file:
            data, size = file.read(0, frames.SEGMENT_HEADER_BYTES), file.size()
        look = dataclasses.replace(look, data=data, size=size, is_readable=True)
        header = frames.decode_segment_header(data, look.path)
        return dataclasses.replace(look, header=header)
    except OSError as error:
        return dataclasses.replace(look, reason=f"cannot be read ({error.strerror})")
    except CorruptionError as error:
        return dataclasses.replace(look, offset=error.offset, reason=error.reason)


def _header_damage(look: _Look, shard: bytes, before: Part | None) -> Damage | None:
    header, offset, reason = look.header, look.offset, look.reason
    if header is not None and header.shard != shard:
        offset, reason = 32, "it belongs to another journal"
    elif header is not None and header.segment != look.segment:
        offset, reason = 16, f"its header is that of segment {header.segment}"
    elif header is not None and before and header.first_seq < before.header.first_seq:
        offset, reason = 24, "it begins before the previous segment"
    elif header is not None:
        return None
    return Damage(look.segment, look.path, offset, reason)


def _rebuilt(
    disk: disks.Disk,
    look: _Look,
    header: SegmentHeader,
    headers: Mapping[int, SegmentHeader],
    strays: search.Strays,
    before: Part | None,
) -> SegmentHeader:
    found = [*_frames(disk, look, header.salt), *(one.frame for one in strays.of(look.segment))]
    first = min(found, default=None)
    known = [first.first_seq] if first else []
    known += [one.first_seq for number, one in headers.items() if number > look.segment]
    if before is not None:
        known.append(_end_seq(disk, before))
    elif look.segment == 1:
        known.append(1)
    last = before.header if before else header
    return header._replace(
        first_seq=max(min(known, default=1), last.first_seq),
        created_us=first.wall_us if first else last.created_us,
        lease_us=last.lease_us,
    )


def _frames(disk: disks.Disk, look: _Look, salt: bytes) -> Iterator[Frame]:
    """Yields the frames with a salt in a file, whole or not."""
    if look.is_readable:
        with contextlib.closing(disk.open(look.path)) as file:
            for _, frame in search.find_headers(file, frames.SEGMENT_HEADER_BYTES, salt):
                yield frame


def _end_seq(disk: disks.Disk, part: Part) -> int:
    """Returns the seq after the last one of a segment that others follow: all of it was durable."""
    seq = part.header.first_seq
    for step in walk(disk, dataclasses.replace(part, following_seq=_SEQ_MAX)):
        if isinstance(step, Located):
            seq = step.frame.last_seq + 1
    return seq


# -- the UUID of the journal ----------------------------------------------------------------------


def _shard_of(disk: disks.Disk, looks: Sequence[_Look]) -> bytes:
    """Returns the journal's UUID: that of most headers, or of a damaged one whose frames agree.

    If all of them are damaged, it returns any that gives the frames their checksums.
    """
    known = Counter(look.header.shard for look in looks if look.header is not None)
    if known:
        return known.most_common(1)[0][0]
    for look in looks:
        shard = look.data[_SHARD]
        if len(shard) == 16 and any(_frames(disk, look, _header(look.segment, shard).salt)):
            return shard
    for look in looks:
        mark = _first_mark(disk, look)
        if mark is not None:
            return _shard_with(mark, look.segment, disk.new_uuid()[:12])
    return disk.new_uuid()


def _first_mark(disk: disks.Disk, look: _Look) -> int | None:
    """Returns the salt's mark in the first frame whose body is whole."""
    if look.is_readable:
        with contextlib.closing(disk.open(look.path)) as file:
            for offset, head in search.find_heads(file, frames.SEGMENT_HEADER_BYTES):
                size, crc = frames.body_of(head)
                body = file.read(offset + frames.FRAME_HEADER_BYTES, size) if size > 0 else b""
                if len(body) == size and frames.checksum(body) == crc:
                    return frames.mark_of(head)
    return None


def _shard_with(mark: int, segment: int, start: bytes) -> bytes:
    """Returns a UUID with which the frames of a segment have the given mark.

    Each bit of its last four bytes changes the mark independently of the others, and some of these
    changes combine to the mark.
    """

    def mark_with(end: int) -> int:
        shard = start + end.to_bytes(4, "little")
        return frames.mark_of_salt(_header(segment, shard).salt)

    ways: list[tuple[int, int]] = []  # a change of the mark, and the bits that cause it
    for bit in range(32):
        ways.append(_reduced(mark_with(1 << bit) ^ mark_with(0), 1 << bit, ways))
        ways.sort(reverse=True)
    _, end = _reduced(mark ^ mark_with(0), 0, ways)
    return start + end.to_bytes(4, "little")


def _reduced(change: int, bits: int, ways: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Reduces a change by the known changes with its highest bits."""
    for known, its_bits in ways:
        if change ^ known < change:
            change, bits = change ^ known, bits ^ its_bits
    return change, bits
