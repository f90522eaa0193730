"""Writing the journal: one writer, one open segment, one frame per commit.

    create -> append* -> (rotate -> append*)* -> close

A segment is created under another name, synced, renamed and its directory synced, so a file with a
segment's name always has a whole header.  It is created only when everything before it is durable.

Space is reserved on three levels, see `Claim`.  **The allocated space, which is the rest of the
open segment and the spare after it, is always as much as the oldest segment may need to be packed:
only packing uses that, and it gives back as much when that segment is removed.**  So packing can
always continue, and space comes back.  Deletes have half a segment in addition that ordinary writes
leave.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

from fjord import disk as disks
from fjord import limits
from fjord.errors import DurabilityError
from fjord.journal import frame as frames
from fjord.journal.frame import Frame, SegmentHeader

# A segment on a nearly full disk has room for at least the takeover of the next start.
_ROOM_BYTES_MIN = 4 * limits.KIB
# Frames from this size on are written in pieces, without copying them together.
_PARTS_BYTES_MIN = 64 * limits.KIB
# A closed segment keeps its unused space, unless that is a larger share of it than this, so that it
# can become the spare on a full disk.
_UNUSED_SHARE = 8
# What follows the frames with which a segment is created: no frame.
_NO_FRAME = bytes(frames.FRAME_HEADER_BYTES)


class Claim(enum.Enum):
    """Which part of the allocated space a write may use."""

    ORDINARY = enum.auto()  # what neither packing nor deletes need
    URGENT = enum.auto()  # it frees something, like deletes: what packing does not need
    VITAL = enum.auto()  # packing, and the takeover of a start: everything


class Commit(NamedTuple):
    """The data of a frame, beside its ops."""

    wall_us: int
    lease_us: int
    ops: Sequence[bytes]
    rows: int


class Writer:
    """The end of the journal.

    `append` and `rotate` belong to one thread; `sync` may be called by another one meanwhile.
    """

    def __init__(
        self, disk: disks.Disk, directory: str, header: SegmentHeader, *, segment_bytes: int
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
        self.committed_seq = header.first_seq - 1  # up to here nothing will be truncated any more
        self.durable_seq = header.first_seq - 1
        self._file: disks.File | None = None
        self._capacity = 0  # allocated bytes
        self.synced_position = self.position
        self.spare = Spare(disk, directory, segment_bytes)
        # What packing may write before it gives a segment back; less while it is running.
        self.owed_bytes = segment_bytes

    @property
    def segment(self) -> int:
        return self.header.segment

    def create(
        self, body: bytes = b"", *, last_seq: int | None = None, is_whole: bool = False
    ) -> None:
        """Creates the segment of `header`, with whole frames in `body` up to `last_seq`.

        Ensures that the segment, `body` included, is durable.  It uses the spare if there is one,
        and on a nearly full disk it is no larger than necessary, unless it `is_whole`.
        """
        self.spare.look()
        if last_seq is not None:
            self.next_seq = last_seq + 1
        least = frames.SEGMENT_HEADER_BYTES + len(body) + _ROOM_BYTES_MIN
        size = max(self._segment_bytes, least)
        self._begin(body, size=size, least=size if is_whole else least)

    def resume(self, *, position: int, next_seq: int) -> None:
        """Continues after the last frame of a segment that was closed cleanly.

        On a full disk it has no more room than the file already has.
        """
        self.spare.look()
        path = frames.segment_path(self._directory, self.segment)
        self._file = self._disk.open(path, writable=True)
        try:
            self._capacity = max(self._segment_bytes, position)
            self._file.allocate(self._capacity)
        except OSError as error:
            if not disks.is_full(error):
                raise
            self._capacity = max(position, self._file.size())
        self.position = self.synced_position = position
        self.next_seq = next_seq
        self.committed_seq = self.durable_seq = next_seq - 1

    @property
    def wants_spare(self) -> bool:
        """Returns whether the segment is half full and no spare is allocated."""
        return not self.spare.is_whole and 2 * self.position > self._capacity

    def recycle(self, segment: int, *, wipes: bool = False) -> None:
        """Makes a packed segment the spare, or removes it if it cannot be one.

        Args:
            segment: its number.
            wipes: whether its contents are overwritten first.
        """
        assert segment < self.segment
        path = frames.segment_path(self._directory, segment)
        if wipes:
            # Under another name first: under its own it must stay whole, even in a crash.
            self._disk.rename(path, path + frames.UNWIPED)
            self._disk.sync_directory(self._directory)
            path += frames.UNWIPED
            disks.overwrite(self._disk, path)
        if not self.spare.adopt(path):
            self._disk.remove(path)
            self._disk.sync_directory(self._directory)

    def has_room(self, body_bytes: int, claim: Claim = Claim.ORDINARY) -> bool:
        """Returns whether a frame with a body of this size may go into the segment."""
        used = self.position + frames.FRAME_HEADER_BYTES + body_bytes
        behind = self.spare.bytes + self.spare.following_bytes
        if not behind and self.header.segment == 1:  # nothing is before it that could be packed
            behind = self.owed_bytes
        reserved = self._reserved(claim, behind)
        if self.spare.is_whole and self.position == frames.SEGMENT_HEADER_BYTES:
            reserved = min(reserved, _ROOM_BYTES_MIN)  # no segment has more room for it
        return used + reserved <= self._capacity

    def make_room(self, body_bytes: int, claim: Claim) -> bool:
        """Allocates more space after the segment; returns whether a frame may go into it now.

        If not, the next segment has to begin.
        """
        self.spare.extend()
        return self.has_room(body_bytes, claim)

    def _reserved(self, claim: Claim, behind: int) -> int:
        """Returns how much of a segment is reserved for others, given the space after it."""
        if claim is Claim.VITAL:
            return 0
        deletes = self._segment_bytes // limits.RESERVED_SHARE if claim is Claim.ORDINARY else 0
        return max(0, self.owed_bytes + deletes - behind)

    def _could_rotate(self, body_bytes: int, claim: Claim) -> bool:
        """Returns whether a frame may go into the segment created from the spare."""
        behind = self.spare.following_bytes
        if behind >= self._segment_bytes:
            return True
        used = self._least_for(body_bytes) - _ROOM_BYTES_MIN
        reserved = self._reserved(claim, behind)
        return self.spare.is_whole and used + reserved <= self._size_for(body_bytes)

    @property
    def following_bytes(self) -> int:
        """How many bytes the disk must have left when the segment is full."""
        return self._segment_bytes * (1 if self.spare.is_whole else 2)

    def could_take(self, body_bytes: int, claim: Claim = Claim.ORDINARY) -> bool:
        """Tries whether there is space for a frame, in the segment or in the next one."""
        if self.has_room(body_bytes, claim):
            return True
        known_bytes = self.spare.following_bytes
        self.spare.extend()
        size = self._size_for(body_bytes)
        could_take = self.has_room(body_bytes, claim) or (
            self._could_rotate(body_bytes, claim)
            and (size <= self._segment_bytes or self.spare.can_grow(size))
        )
        if could_take and self.spare.following_bytes and not known_bytes:
            self.spare.drop_following()
        return could_take

    @property
    def spare_room(self) -> int:
        """How many bytes of frames the spare has room for."""
        return max(0, self.spare.bytes - frames.SEGMENT_HEADER_BYTES)

    @property
    def vital_room(self) -> int:
        """How many bytes packing has room for, in the segment and after it."""
        behind = self.spare_room + self.spare.following_bytes
        return self._capacity - self.position + behind

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
        """Confirms that appended frames stay, so that they may become durable."""
        self.committed_seq = self.next_seq - 1

    def cut(self, position: int, next_seq: int) -> None:
        """Truncates durably what was written from `position` on.

        Raises:
            DurabilityError: if that fails, since the contents of the journal are then unknown.
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
            DurabilityError: if the sync fails.  It is never retried: after a failed fsync
                the kernel may drop the data and still report success.
        """
        with self._syncing:
            committed_seq, position = self.committed_seq, self.position
            if committed_seq > self.durable_seq:
                self._sync_file(self._open_file())
                self.durable_seq = committed_seq
                self.synced_position = position
            return self.durable_seq

    def rotate(self, created_us: int, lease_us: int, *, body_bytes: int, claim: Claim) -> None:
        """Closes the segment and begins the next one, with room for a frame of `body_bytes`.

        Ensures that the space which the claim leaves to others exists afterwards.

        Raises:
            OSError: if there is no space for that; then nothing has changed.
        """
        self.sync()
        with self._syncing:
            old, position, capacity = self._open_file(), self.position, self._capacity
            if claim is not Claim.VITAL:
                self.spare.extend()
                if not self._could_rotate(body_bytes, claim):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.spare.path)
            before = self.header
            self.header = SegmentHeader(
                before.segment + 1, self.next_seq, before.shard, created_us, lease_us
            )
            size = self._size_for(body_bytes)
            try:
                is_part = 0 < self.spare.bytes < self._segment_bytes
                self._begin(b"", size=size, least=self._least_for(body_bytes) if is_part else size)
            except BaseException:
                self.header = before
                if self.spare.following_bytes and self._failed is None:
                    self.spare.drop_following()
                raise
            if self.spare.following_bytes:
                try:
                    self.spare.promote_following()
                except OSError as error:
                    raise self._fail(error) from error
            with contextlib.closing(old):
                if position < capacity - capacity // _UNUSED_SHARE:
                    try:
                        old.truncate(position)  # only returns space
                    except OSError as error:
                        if not disks.is_full(error):
                            raise self._fail(error) from error

    def close(self) -> None:
        """Makes everything durable, and returns the space that was allocated ahead.

        On a full disk the next start needs it for deletes.
        """
        self.sync()
        file = self._open_file()
        if self.has_room(0):
            file.truncate(self.position)
        self._sync_file(file)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file without changing it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, body: bytes, *, size: int, least: int) -> None:
        """Creates the segment of `header` and continues in it; `least` is an acceptable size."""
        path = frames.segment_path(self._directory, self.segment)
        source = self._source(path, is_empty=not body)
        file = self._disk.open(source, writable=True, create=True)
        try:
            capacity = _allocate(file, size, least)
            file.write(0, self.header.encode() + body + _NO_FRAME)
        except OSError:
            self._give_back(file, source)
            raise
        self._sync_file(file)
        self._disk.rename(source, path)
        if source == self.spare.path:
            self.spare.bytes = 0
        try:
            self._disk.sync_directory(self._directory)
        except OSError as error:
            # The segment perhaps has its name: an older one must not grow beside it.
            raise self._fail(error) from error
        self._file, self._capacity = file, capacity
        self.position = self.synced_position = frames.SEGMENT_HEADER_BYTES + len(body)
        self.committed_seq = self.durable_seq = self.next_seq - 1

    def _size_for(self, body_bytes: int) -> int:
        """Returns the size of a segment with room for a frame, and for urgent ones."""
        return max(self._segment_bytes, self._least_for(body_bytes))

    @staticmethod
    def _least_for(body_bytes: int) -> int:
        used = frames.SEGMENT_HEADER_BYTES + frames.FRAME_HEADER_BYTES + body_bytes
        return used + _ROOM_BYTES_MIN

    def _source(self, path: str, *, is_empty: bool) -> str:
        """Returns the file from which to create the segment."""
        fresh = path + frames.UNFINISHED
        if not self.spare.bytes:
            return fresh
        if is_empty:
            return self.spare.path
        # If this start fails, the next one creates the same segment, perhaps with fewer frames: it
        # must not find these in the spare.
        self.spare.set_aside(fresh)
        return fresh

    def _give_back(self, file: disks.File, source: str) -> None:
        with contextlib.closing(file):
            if source == self.spare.path:
                file.truncate(self.spare.bytes)
            else:
                self._disk.remove(source)

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
        path = frames.segment_path(self._directory, self.segment)
        return DurabilityError(
            f"{path}: the disk failed to keep what was written ({error.strerror}). "
            "Nothing more is acknowledged. Check the disk, then start again."
        )


def _allocate(file: disks.File, size: int, least: int) -> int:
    """Allocates `size` bytes, or as many as possible but at least `least`; returns the number."""
    try:
        file.allocate(size)
    except OSError as error:
        if not disks.is_full(error) or least == size:
            raise
        file.allocate(least)
        return max(least, file.size())
    return size


# -- the spare: a file of a segment's size, allocated ahead, that becomes the next segment --------
#
# With a spare after the open segment a full disk cannot stop the journal: packing writes to it, and
# gives back the segment that it has packed.  That becomes the spare, since overwriting its blocks
# is cheaper than writing to blocks that are only allocated.  A second spare, called the following
# one, is allocated before others may use up the first.
#
# Old contents are never valid frames, since checksums are salted with the number of the segment,
# and numbers are never reused.


# If there is no space for a whole spare it gets as many of these parts as possible.
_PARTS = 64
# A following spare that is not whole leaves this share of a segment to the index and to blocks.
_LEFT_SHARE = 4


class Spare:
    """The spare of one journal directory, used by the writer's thread only."""

    def __init__(self, disk: disks.Disk, directory: str, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.path = frames.spare_path(directory)
        self._following = self.path + frames.UNFINISHED
        self.bytes = 0  # 0 = there is none
        self.following_bytes = 0  # likewise

    @property
    def is_whole(self) -> bool:
        """Whether it is as large as a segment."""
        return self.bytes >= self._segment_bytes

    def look(self) -> None:
        """Finds the spare of an earlier start."""
        self.bytes = 0
        if self._disk.exists(self.path):
            with contextlib.closing(self._disk.open(self.path)) as file:
                self.bytes = file.size()

    def ensure(self) -> bool:
        """Allocates a spare if necessary; returns whether it is whole.

        On a full disk it becomes as large as possible.
        """
        if not self.is_whole:
            path = self.path if self.bytes else self._following
            size = self._enlarge(path, self.bytes, 0)
            if size and not self.bytes:
                self._promote()
            self.bytes = size
        return self.is_whole

    def extend(self) -> None:
        """Allocates a following spare as well, once the spare is whole."""
        if self.ensure() and self.following_bytes < self._segment_bytes:
            left_bytes = self._segment_bytes // _LEFT_SHARE
            self.following_bytes = self._enlarge(self._following, self.following_bytes, left_bytes)

    def promote_following(self) -> None:
        """Makes the following spare the spare, when that was used."""
        self._promote()
        self.bytes, self.following_bytes = self.following_bytes, 0

    def drop_following(self) -> None:
        self._disk.remove(self._following)
        self.following_bytes = 0

    def can_grow(self, size: int) -> bool:
        """Tries whether the spare could be that large."""
        with contextlib.closing(self._disk.open(self.path, writable=True)) as file:
            try:
                file.allocate(size)
            except OSError as error:
                if not disks.is_full(error):
                    raise
                return False
            finally:
                file.truncate(self.bytes)
        return True

    def set_aside(self, path: str) -> None:
        """Renames the file durably, so that it cannot become the spare again."""
        self._disk.rename(self.path, path)
        self.bytes = 0
        self._disk.sync_directory(self._directory)

    def adopt(self, path: str) -> bool:
        """Makes a segment's file the spare, replacing an earlier one; False on a full disk.

        Readers of the old segment can continue until the spare is used.
        """
        with contextlib.closing(self._disk.open(path, writable=True)) as file:
            try:
                file.allocate(self._segment_bytes)
                self._disk.rename(path, self.path)
            except OSError as error:
                if not disks.is_full(error):
                    raise
                return False
            self._disk.sync_directory(self._directory)
            self.bytes = self._segment_bytes
            if file.size() > self._segment_bytes:
                # Only now: under its old name it must stay whole.
                file.truncate(self._segment_bytes)
        return True

    def _enlarge(self, path: str, known_bytes: int, left_bytes: int) -> int:
        """Makes a file as large as a segment, or as large as possible; returns its size."""
        sizes = [self._segment_bytes]
        free_bytes = self._disk.free_bytes(self._directory)
        if free_bytes < self._segment_bytes:
            parts = (self._segment_bytes * part // _PARTS for part in range(_PARTS - 1, 0, -1))
            most = known_bytes + free_bytes - left_bytes
            sizes += [size for size in parts if known_bytes < size <= most]
        for size in sizes:
            try:
                self._allocate(path, size, known_bytes)
            except OSError as error:
                if not known_bytes and self._disk.exists(path):
                    self._disk.remove(path)
                if not disks.is_full(error):
                    raise
            else:
                return size
        return known_bytes

    def _allocate(self, path: str, size: int, known_bytes: int) -> None:
        with contextlib.closing(self._disk.open(path, writable=True, create=True)) as file:
            try:
                file.allocate(size)
            except OSError:
                file.truncate(known_bytes)  # it may have got a part of it
                raise
            file.sync()

    def _promote(self) -> None:
        self._disk.rename(self._following, self.path)
        self._disk.sync_directory(self._directory)
