"""Repair: a damaged segment is moved to quarantine, and replaced by a readable one.

The new segment has every whole frame of the old one, wherever in the journal it is.  For each gap
it has a frame of one LOST op with as many rows as there are seqs missing, so that seqs stay
consecutive.  The damaged file is kept unchanged: data that cannot be read today may be recovered
later.

    all new files, under other names, synced
        -> further names for old files that hold frames of other segments, synced
        -> of each segment: a second name for the old file, in quarantine, synced;
           the new file takes the old one's name, synced
        -> the further names are removed

A crash at any step leaves the damaged segment or the repaired one under the segment's name, and
every frame in some file of the journal; then it is run again.  Frames move inside a repaired
segment, so an index that points into it must be dropped first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fjord import disk as disks
from fjord import limits, ops
from fjord.journal import frame as frames
from fjord.journal import survey
from fjord.journal.frame import Frame
from fjord.journal.reader import Located
from fjord.journal.survey import Damage, Part
from fjord.ops import Op, Opcode

_ROWS_MAX: Final = 2**32 - 1  # of one op


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done to one segment."""

    segment: int
    path: str
    kept_in: str  # the new path of the damaged file; empty if there was none
    frames: int  # the whole ones
    lost_rows: int


def repair(
    disk: disks.Disk, directory: str, quarantine: str, *, durable_seq: int = 0
) -> list[Repaired]:
    """Repairs every damaged segment of a journal that is not open.

    Raises:
        CorruptionError: if far too many segments are missing for this to be one journal.
        OSError: if there is not enough space, or the disk fails; run it again.
    """
    parts = survey.make_out(disk, directory, durable_seq=durable_seq)
    damaged, packed = _find_damaged(disk, parts, durable_seq)
    written = {
        part.segment: _write(disk, part, survey.walk(disk, part, durable_seq=durable_seq))
        for part in damaged
    }
    with _second_names(disk, parts, [*damaged, *packed]):
        going = [*(part for part in packed if disk.exists(part.path)), *damaged]
        return [_replace(disk, one, quarantine, written.get(one.segment)) for one in going]


def _find_damaged(
    disk: disks.Disk, parts: Sequence[Part], durable_seq: int
) -> tuple[list[Part], list[Part]]:
    """Returns the segments to replace, and those to remove because they were packed."""
    begin, whole = survey.Begin(), set(parts)
    for part in parts:
        for step in survey.walk(disk, part, durable_seq=durable_seq):
            begin.note(step)
            if isinstance(step, Damage):
                whole.discard(part)
    packed = [part for part in parts if begin.is_packed(part)]
    damaged = [part for part in begin.settle(parts) if part not in whole]
    damaged = [part for part in damaged if not begin.is_packed(part)]
    return damaged, [] if whole.issuperset(packed) else packed


@contextlib.contextmanager
def _second_names(disk: disks.Disk, parts: Sequence[Part], going: Sequence[Part]) -> Iterator[None]:
    """Keeps files that hold frames of other segments in the journal, until those are replaced.

    They get numbers after the last one.  After a crash they are damaged segments like others.
    """
    hosts = parts[0].strays.paths() if parts else set()
    kept: list[str] = []
    for part in going:
        if part.path in hosts:
            number = parts[-1].segment + 1 + len(kept)
            kept.append(frames.segment_path(os.path.dirname(part.path), number))
            _link_or_copy(disk, part.path, kept[-1])
    if kept:
        disk.sync_directory(os.path.dirname(kept[0]))
    yield
    for path in reversed(kept):
        disk.remove(path)
    if kept:
        disk.sync_directory(os.path.dirname(kept[0]))


def _replace(
    disk: disks.Disk, part: Part, quarantine: str, written: tuple[int, int] | None
) -> Repaired:
    """Replaces the old file with the new one, if one was written, and keeps the old one."""
    kept_in = _quarantine(disk, part, quarantine) if disk.exists(part.path) else ""
    if written is not None:
        disk.rename(part.path + frames.UNFINISHED, part.path)
    elif disk.exists(part.path):
        disk.remove(part.path)
    disk.sync_directory(os.path.dirname(part.path))
    return Repaired(part.segment, part.path, kept_in, *(written or (0, 0)))


def _write(disk: disks.Disk, part: Part, steps: Iterator[Located | Damage]) -> tuple[int, int]:
    """Writes what is left of a segment; returns the numbers of whole frames and lost rows."""
    header = part.header
    frame_count = lost_rows = 0
    wall_us, lease_us = header.created_us, header.lease_us
    position = frames.SEGMENT_HEADER_BYTES
    path = part.path + frames.UNFINISHED
    with contextlib.closing(disk.open(path, writable=True, create=True)) as file:
        file.truncate(0)
        file.write(0, header.encode())
        for step in steps:
            if isinstance(step, Damage):
                lost_rows += step.rows
                data = b"".join(_lost(step, header.salt, wall_us, lease_us))
            else:
                frame_count += 1
                wall_us, lease_us = step.frame.wall_us, step.frame.lease_us
                data = step.frame.encode(header.salt) + step.body
            file.write(position, data)
            position += len(data)
        file.sync()
    return frame_count, lost_rows


def _lost(damage: Damage, salt: bytes, wall_us: int, lease_us: int) -> Iterator[bytes]:
    """Yields frames for the missing seqs: one, unless they are very many."""
    seq, end = damage.first_seq, damage.first_seq + damage.rows
    while seq < end:
        rows = min(end - seq, _ROWS_MAX)
        body, _ = ops.encode(Op(Opcode.LOST, 0, rows, ()))
        frame = Frame(
            first_seq=seq,
            rows=rows,
            op_count=1,
            wall_us=wall_us,
            lease_us=lease_us,
            durable_seq=seq - 1,
            length=frames.FRAME_HEADER_BYTES + len(body),
            body_crc=frames.checksum(body),
        )
        yield frame.encode(salt) + body
        seq += rows


def _quarantine(disk: disks.Disk, part: Part, quarantine: str) -> str:
    """Ensures that the damaged file is durably in quarantine; returns its path there."""
    disk.make_directory(quarantine)
    disk.sync_directory(os.path.dirname(quarantine))
    name = os.path.basename(part.path)
    number, kept_in = 1, os.path.join(quarantine, name)
    # A name that is free, or that this very file already has there.
    while disk.exists(kept_in) and disk.identity(kept_in) != disk.identity(part.path):
        number += 1
        kept_in = os.path.join(quarantine, f"{name}.{number}")
    if not disk.exists(kept_in):
        if not part.is_readable:
            disk.rename(part.path, kept_in)
        else:
            _link_or_copy(disk, part.path, kept_in)
    disk.sync_directory(quarantine)
    return kept_in


def _link_or_copy(disk: disks.Disk, path: str, kept_in: str) -> None:
    with contextlib.suppress(OSError):  # a file system without hard links
        disk.link(path, kept_in)
        return
    fresh = kept_in + frames.UNFINISHED
    with (
        contextlib.closing(disk.open(path)) as source,
        contextlib.closing(disk.open(fresh, writable=True, create=True)) as target,
    ):
        target.truncate(0)
        offset = 0
        while data := source.read(offset, limits.CHUNK_BYTES):
            target.write(offset, data)
            offset += len(data)
        target.sync()
    disk.rename(fresh, kept_in)
