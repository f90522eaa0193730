"""Writing the journal: one writer, one open segment, one frame a commit.

    create -> append* -> (rotate -> append*)* -> close

A segment is made under another name, synced, renamed and its directory synced, so a file with a
segment's name always has a whole header.  It is made only when everything before it is durable.

Space is reserved for what must always work, such as deletes: they are *urgent*.  Behind the open
segment there is a spare that only they may use up, or else the end of the segment is theirs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

from fjord import disk as disks
from fjord import limits
from fjord.errors import DurabilityError
from fjord.journal import frame as frames
from fjord.journal import names
from fjord.journal.frame import Frame, SegmentHeader
from fjord.journal.spare import Spare

# A segment on a nearly full disk has at least room for the takeover of the next start.
_ROOM_BYTES_MIN = 4 * limits.KIB
# Frames from this size on are written as the pieces that they are made of, without a copy.
_PARTS_BYTES_MIN = 64 * limits.KIB
# What follows the frames that a segment is made with: no frame.
_NO_FRAME = bytes(frames.FRAME_HEADER_BYTES)


class Commit(NamedTuple):
    """What a frame is made of, beside its ops."""

    wall_us: int
    lease_us: int
    ops: Sequence[bytes]
    rows: int


class Writer:
    """The end of the journal.

    `append` and `rotate` belong to one thread; `sync` may be called by another one meanwhile.
    """

    def __init__(
        self,
        disk: disks.Disk,
        directory: str,
        header: SegmentHeader,
        *,
        segment_bytes: int,
    ) -> None:
        assert limits.SEGMENT_BYTES_MIN <= segment_bytes <= limits.SEGMENT_BYTES_MAX
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._syncing = threading.Lock()
        self._failed: OSError | None = None
        self.header = header
        self.position = frames.SEGMENT_HEADER_BYTES  # where the next frame begins
        self.next_seq = header.first_seq
        self.committed_seq = header.first_seq - 1  # up to here nothing will be cut any more
        self.durable_seq = header.first_seq - 1
        self._file: disks.File | None = None
        self._capacity = 0  # bytes that are allocated
        self._synced_position = self.position
        self._is_reserve = False  # the segment was the last spare: it is for what is urgent
        self._spare = Spare(disk, directory, segment_bytes)

    @property
    def segment(self) -> int:
        return self.header.segment

    def create(
        self, body: bytes = b"", *, last_seq: int | None = None, is_whole: bool = False
    ) -> None:
        """Makes the segment of `header`, with whole frames in `body` up to `last_seq`.

        Ensures that the segment, `body` included, is durable.  It is made of the spare if there
        is one, and on a nearly full disk it is no larger than it has to be, unless it `is_whole`.
        """
        self._spare.look()
        if last_seq is not None:
            self.next_seq = last_seq + 1
        least = frames.SEGMENT_HEADER_BYTES + len(body) + _ROOM_BYTES_MIN
        size = max(self._segment_bytes, least)
        self._begin(body, size=size, least=size if is_whole else least)

    def resume(self, *, position: int, next_seq: int) -> None:
        """Goes on after the last frame of a segment that was closed cleanly.

        On a full disk it has no more room than the file has already.
        """
        self._spare.look()
        path = names.segment_path(self._directory, self.segment)
        self._file = self._disk.open(path, writable=True)
        try:
            self._capacity = max(self._segment_bytes, position)
            self._file.allocate(self._capacity)
        except OSError as error:
            if not disks.is_full(error):
                raise
            self._capacity = max(position, self._file.size())
        self.position = self._synced_position = position
        self.next_seq = next_seq
        self.committed_seq = self.durable_seq = next_seq - 1

    @property
    def has_spare(self) -> bool:
        return self._spare.is_there

    @property
    def wants_spare(self) -> bool:
        """Says that the segment is half full and nothing is allocated to follow it."""
        return not self._spare.is_there and 2 * self.position > self._capacity

    def ensure_spare(self) -> bool:
        """Says whether there is a spare, after allocating one if need be; False on a full disk."""
        return self._spare.ensure()

    def recycle(self, segment: int, *, wipes: bool = False) -> None:
        """Makes a packed segment the spare, or removes it where it cannot be one.

        Args:
            segment: its number.
            wipes: what it held is overwritten before.
        """
        assert segment < self.segment
        path = names.segment_path(self._directory, segment)
        if wipes:
            # Under another name first: under its own it must stay whole, even in a crash.
            self._disk.rename(path, path + names.UNWIPED)
            self._disk.sync_directory(self._directory)
            path += names.UNWIPED
            disks.overwrite(self._disk, path)
        if not self._spare.adopt(path):
            self._disk.remove(path)
            self._disk.sync_directory(self._directory)

    @property
    def unsynced_bytes(self) -> int:
        """How much the next sync has to write."""
        return self.position - self._synced_position

    def has_room(self, body_bytes: int, *, urgent: bool = False) -> bool:
        """Says whether a frame with a body of this size may go into the segment.

        What is not urgent leaves a share of the segment free if there is no spare behind it, and
        all of it if it was the last spare.
        """
        reserved = 0
        if not urgent and not self._spare.is_there:
            reserved = self._capacity // (1 if self._is_reserve else limits.RESERVED_SHARE)
        used = self.position + frames.FRAME_HEADER_BYTES + body_bytes
        return used + reserved <= self._capacity

    @property
    def following_bytes(self) -> int:
        """How many bytes the disk must have left when the segment is full."""
        return self._segment_bytes * (1 if self._spare.is_there else 2)

    def could_take(self, body_bytes: int) -> bool:
        """Tries whether there is space for a frame, in the segment or in the next one."""
        if self.has_room(body_bytes):
            return True
        try:
            self._allocate_following(self._size_for(body_bytes))
        except OSError as error:
            if not disks.is_full(error):
                raise
            return False
        self._spare.drop_following()
        return True

    @property
    def urgent_room(self) -> int:
        """How many bytes something large may take that is urgent, and leave a share to others."""
        spare = self._segment_bytes if self._spare.is_there else 0
        reserved = self._segment_bytes // limits.RESERVED_SHARE
        return self._capacity - self.position + spare - reserved

    def append(self, commit: Commit) -> None:
        """Writes one frame; it is not durable before the next `sync`.

        Raises:
            OSError: if it could not be written; then `cut` must follow, and otherwise `confirm`.
        """
        body_bytes, body_crc = 0, 0
        for op in commit.ops:
            body_bytes += len(op)
            body_crc = frames.add_to_checksum(body_crc, op)
        frame = Frame(
            first_seq=self.next_seq,
            rows=commit.rows,
            op_count=len(commit.ops),
            wall_us=commit.wall_us,
            lease_us=commit.lease_us,
            durable_seq=self.durable_seq,
            length=frames.FRAME_HEADER_BYTES + body_bytes,
            body_crc=body_crc,
        )
        assert frames.is_frame_length(frame.length)
        parts = (frame.encode(self.header.salt), *commit.ops)
        if body_bytes < _PARTS_BYTES_MIN:
            self._open_file().write(self.position, b"".join(parts))
        else:
            self._open_file().write_parts(self.position, parts)
        self.position += frame.length
        self.next_seq += commit.rows

    def confirm(self) -> None:
        """Takes note that what was appended stays, so that it may be called durable."""
        self.committed_seq = self.next_seq - 1

    def cut(self, position: int, next_seq: int) -> None:
        """Takes back what was written from `position` on, for good.

        Raises:
            DurabilityError: if that fails, since then nobody can tell what is in the journal.
        """
        with self._syncing:
            file = self._open_file()
            try:
                file.write(position, b"\0" * 8)
            except OSError as error:
                raise self._fail(error) from error
            self._sync_file(file)
            self.position, self.next_seq = position, next_seq

    def sync(self) -> int:
        """Ensures that every frame confirmed before the call is durable; returns the durable seq.

        Raises:
            DurabilityError: if the disk says no.  It is never asked again: after a failed fsync
                the kernel may forget the data and still answer yes.
        """
        with self._syncing:
            committed_seq, position = self.committed_seq, self.position
            if committed_seq > self.durable_seq:
                self._sync_file(self._open_file())
                self.durable_seq = committed_seq
                self._synced_position = position
            return self.durable_seq

    def rotate(
        self, created_us: int, lease_us: int, *, body_bytes: int, urgent: bool = False
    ) -> None:
        """Closes the segment and begins the next one, with room for a frame of `body_bytes`.

        Ensures that there is a spare afterwards, unless it is urgent: then the last one is used.

        Raises:
            OSError: if there is no space for that; then all is as it was.
        """
        self.sync()
        with self._syncing:
            old, position = self._open_file(), self.position
            if not urgent:
                self._allocate_following(self._segment_bytes)
            before, self.header = self.header, self._next_header(created_us, lease_us)
            try:
                self._begin(b"", size=self._size_for(body_bytes))
            except BaseException:
                self.header = before
                if not urgent and self._failed is None:
                    self._spare.drop_following()
                raise
            if not urgent:
                self._promote_following()
            self._is_reserve = urgent
            with contextlib.closing(old):
                try:
                    old.truncate(position)  # gives back space, no more
                except OSError as error:
                    if not disks.is_full(error):
                        raise self._fail(error) from error

    def close(self) -> None:
        """Ensures that all is durable, and gives back the space that was allocated ahead."""
        self.sync()
        file = self._open_file()
        file.truncate(self.position)
        self._sync_file(file)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file and leaves it as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, body: bytes, *, size: int, least: int | None = None) -> None:
        """Makes the segment of `header` and goes on in it; `least` is a size that will do."""
        path = names.segment_path(self._directory, self.segment)
        source = self._source(path, is_empty=not body)
        file = self._disk.open(source, writable=True, create=True)
        try:
            capacity = _allocate(file, size, size if least is None else least)
            file.write(0, self.header.encode() + body + _NO_FRAME)
        except OSError:
            self._give_back(file, source)
            raise
        self._sync_file(file)
        self._disk.rename(source, path)
        self._spare.is_there = self._spare.is_there and source != self._spare.path
        try:
            self._disk.sync_directory(self._directory)
        except OSError as error:
            # The segment has its name, perhaps: an older one must not grow beside it.
            raise self._fail(error) from error
        self._file, self._capacity = file, capacity
        self.position = self._synced_position = frames.SEGMENT_HEADER_BYTES + len(body)
        self.committed_seq = self.durable_seq = self.next_seq - 1

    def _next_header(self, created_us: int, lease_us: int) -> SegmentHeader:
        return SegmentHeader(
            segment=self.segment + 1,
            first_seq=self.next_seq,
            shard=self.header.shard,
            created_us=created_us,
            lease_us=lease_us,
        )

    def _size_for(self, body_bytes: int) -> int:
        """Returns the size of a segment that has room for a frame, and for urgent ones."""
        used = frames.SEGMENT_HEADER_BYTES + frames.FRAME_HEADER_BYTES + body_bytes
        return max(self._segment_bytes, used + _ROOM_BYTES_MIN)

    def _source(self, path: str, *, is_empty: bool) -> str:
        """Returns the name of the file to make the segment of."""
        fresh = path + names.UNFINISHED
        if not self._spare.is_there:
            return fresh
        if is_empty:
            return self._spare.path
        # If this start fails, the next one makes the same segment, perhaps with fewer frames:
        # it must not find these ones in the spare.
        self._spare.set_aside(fresh)
        return fresh

    def _give_back(self, file: disks.File, source: str) -> None:
        with contextlib.closing(file):
            if source == self._spare.path:
                file.truncate(self._segment_bytes)
            else:
                self._disk.remove(source)

    def _allocate_following(self, size: int) -> None:
        """Ensures that there are a spare to use and another one after it, of `size` bytes."""
        if not self._spare.ensure():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._spare.path)
        self._spare.allocate_following(size)

    def _promote_following(self) -> None:
        try:
            self._spare.promote_following()
        except OSError as error:
            raise self._fail(error) from error

    def _open_file(self) -> disks.File:
        if self._failed is not None:
            raise self._fail(self._failed)
        assert self._file is not None, "the writer is not open"
        return self._file

    def _sync_file(self, file: disks.File) -> None:
        try:
            file.sync()
        except OSError as error:
            raise self._fail(error) from error

    def _fail(self, error: OSError) -> DurabilityError:
        self._failed = error
        path = names.segment_path(self._directory, self.segment)
        return DurabilityError(
            f"{path}: the disk failed to keep what was written ({error.strerror}). "
            "Nothing more is acknowledged. Check the disk, then start again."
        )


def _allocate(file: disks.File, size: int, least: int) -> int:
    """Allocates `size` bytes, or only `least` where the disk is nearly full; returns which."""
    try:
        file.allocate(size)
    except OSError as error:
        if not disks.is_full(error) or least == size:
            raise
        file.allocate(least)
        return least
    return size
