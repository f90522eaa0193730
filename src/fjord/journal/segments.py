"""Which segments a journal has, or must have had: for whoever looks at one that may be damaged.

A segment whose header is damaged, or whose file is missing, is made out from its name, from its
neighbours, from its frames, and from a file under another name that has its header.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import frame as frames
from fjord.journal import names, search, survey
from fjord.journal.frame import Frame, SegmentHeader
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part

_SEQ_MAX: Final = 2**64 - 1
_SHARD: Final = slice(32, 48)  # where a segment's header has the UUID of its journal


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
    is_readable: bool = False


def make_out(disk: disks.Disk, directory: str, *, durable_seq: int = 0) -> list[Part]:
    """Returns all segments in order, those that are damaged or missing in between included.

    Where there is no file at all, but something was durable, one missing segment stands for it.

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
        damage = _judge(look, shard, before)
        header = headers.get(look.segment)
        if header is None or (before and header.first_seq < before.header.first_seq):
            header = _guess(disk, look, _header(look.segment, shard), headers, strays, before)
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
    """Returns the headers that are whole, also those in files with a wrong name."""
    return {
        look.header.segment: look.header
        for look in looks
        if look.header is not None
        and look.header.shard == shard
        and abs(look.header.segment - look.segment) < limits.SEGMENTS_MISSING_MAX
    }


def _look_at_all(disk: disks.Disk, directory: str) -> list[_Look]:
    """Looks at the files of all segments.

    The oldest ones may be packed meanwhile: then it looks again.
    """
    while True:
        found = (names.segment_number(name) for name in disk.names(directory))
        numbers = sorted(number for number in found if number is not None)
        looks = [_look_at(disk, directory, number) for number in numbers]
        if all(disk.exists(look.path) for look in looks):
            return looks


def _with_missing(directory: str, looks: Sequence[_Look], others: Sequence[int]) -> list[_Look]:
    """Returns the looks with all numbers in between, and to which there are headers."""
    there = {look.segment: look for look in looks}
    numbers = {*there, *others}
    if not numbers:
        return []
    first, last = min(numbers), max(numbers)
    if last - first > len(numbers) + limits.SEGMENTS_MISSING_MAX:
        path = names.segment_path(directory, last)
        raise CorruptionError(path, 0, f"{last - first + 1 - len(numbers)} are missing")
    return [
        there.get(number) or _Look(segment=number, path=names.segment_path(directory, number))
        for number in range(first, last + 1)
    ]


def _look_at(disk: disks.Disk, directory: str, segment: int) -> _Look:
    path = names.segment_path(directory, segment)
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


def _judge(look: _Look, shard: bytes, before: Part | None) -> Damage | None:
    """Returns what is wrong with the header of a file."""
    header, offset, reason = look.header, look.offset, look.reason
    if header is not None and header.shard != shard:
        offset, reason = 32, "it belongs to another journal"
    elif header is not None and header.segment != look.segment:
        offset, reason = 16, f"it says that it is segment {header.segment}"
    elif header is not None and before and header.first_seq < before.header.first_seq:
        offset, reason = 24, "it begins before the segment before it"
    elif header is not None:
        return None
    return Damage(segment=look.segment, path=look.path, offset=offset, reason=reason)


def _guess(
    disk: disks.Disk,
    look: _Look,
    header: SegmentHeader,
    headers: Mapping[int, SegmentHeader],
    strays: search.Strays,
    before: Part | None,
) -> SegmentHeader:
    """Returns the header that a segment must have had."""
    found = [*_frames(disk, look, header.salt), *(one.frame for one in strays.of(look.segment))]
    first = min(found, default=None)
    known = [first.first_seq] if first else []
    known += [one.first_seq for number, one in headers.items() if number > look.segment]
    if before is not None:
        known.append(_end_seq(disk, before))
    elif look.segment == 1:
        known.append(1)
    last = before.header if before else header
    return dataclasses.replace(
        header,
        first_seq=max(min(known, default=1), last.first_seq),
        created_us=first.wall_us if first else last.created_us,
        lease_us=last.lease_us,
    )


def _frames(disk: disks.Disk, look: _Look, salt: bytes) -> Iterator[Frame]:
    """Yields the frames of a salt in a file, whether their bodies are whole."""
    if look.is_readable:
        with contextlib.closing(disk.open(look.path)) as file:
            for _, frame in search.find_headers(file, frames.SEGMENT_HEADER_BYTES, salt):
                yield frame


def _end_seq(disk: disks.Disk, part: Part) -> int:
    """Returns the seq after the last one of a segment that others follow: all of it was durable."""
    seq = part.header.first_seq
    for step in survey.walk(disk, dataclasses.replace(part, following_seq=_SEQ_MAX)):
        if isinstance(step, Located):
            seq = step.frame.last_seq + 1
    return seq


# -- the UUID of the journal ----------------------------------------------------------------------


def _shard_of(disk: disks.Disk, looks: Sequence[_Look]) -> bytes:
    """Returns the journal's UUID: what most headers say, or a damaged one whose frames agree.

    Where all of them are damaged, any will do that gives the frames their checksums.
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
    """Returns what the salt has left in the first frame whose body is whole."""
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

    Each bit of its last four bytes changes the mark in its own way, whatever the others are, and
    some of these ways come to the mark.
    """

    def mark_with(end: int) -> int:
        shard = start + end.to_bytes(4, "little")
        return frames.mark_of_salt(_header(segment, shard).salt)

    ways: list[tuple[int, int]] = []  # a change of the mark, and the bits that make it
    for bit in range(32):
        ways.append(_reduced(mark_with(1 << bit) ^ mark_with(0), 1 << bit, ways))
        ways.sort(reverse=True)
    _, end = _reduced(mark ^ mark_with(0), 0, ways)
    return start + end.to_bytes(4, "little")


def _reduced(change: int, bits: int, ways: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns what is left of a change after the known ones with its highest bits."""
    for known, its_bits in ways:
        if change ^ known < change:
            change, bits = change ^ known, bits ^ its_bits
    return change, bits
