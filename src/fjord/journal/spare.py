"""The spare: a file of a segment's size, allocated ahead, that becomes the next segment.

With a spare behind the open segment a full disk cannot stop the journal from going on: packing
writes to it, and gives back the segment that it has packed.  That becomes the spare, since writing
to its blocks again is cheaper than to blocks that are only allocated.  A second spare, called the
following one, is allocated before others may use up the first.

What they hold are never frames again, since their checksums are salted with the number of the
segment that they stood in, and numbers are never given twice.
"""

from __future__ import annotations

import contextlib

from fjord import disk as disks
from fjord.journal import names

# Where there is no space for a whole spare it has as many such parts of one as there is space for.
_PARTS = 64
# A following one that is not whole leaves such a share of a segment to the index and to blocks.
_LEFT_SHARE = 4


class Spare:
    """The spare of one journal directory; it belongs to the writer's thread."""

    def __init__(self, disk: disks.Disk, directory: str, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.path = names.spare_path(directory)
        self._following = self.path + names.UNFINISHED
        self.bytes = 0  # 0 = there is none
        self.following_bytes = 0  # the same

    @property
    def is_whole(self) -> bool:
        """Says that it is as large as a segment."""
        return self.bytes >= self._segment_bytes

    def look(self) -> None:
        """Finds the spare of an earlier start."""
        self.bytes = 0
        if self._disk.exists(self.path):
            with contextlib.closing(self._disk.open(self.path)) as file:
                self.bytes = file.size()

    def ensure(self) -> bool:
        """Says whether there is a whole spare, after allocating one if need be.

        On a full disk it becomes as large as it can.
        """
        if not self.is_whole:
            path = self.path if self.bytes else self._following
            size = self._enlarge(path, self.bytes, 0)
            if size and not self.bytes:
                self._promote()
            self.bytes = size
        return self.is_whole

    def extend(self) -> None:
        """Allocates a following one as well, once the spare is whole."""
        if self.ensure() and self.following_bytes < self._segment_bytes:
            left_bytes = self._segment_bytes // _LEFT_SHARE
            self.following_bytes = self._enlarge(self._following, self.following_bytes, left_bytes)

    def promote_following(self) -> None:
        """Makes the following one the spare, when that was used."""
        self._promote()
        self.bytes, self.following_bytes = self.following_bytes, 0

    def drop_following(self) -> None:
        self._disk.remove(self._following)
        self.following_bytes = 0

    def can_grow(self, size: int) -> bool:
        """Tries whether the spare could be so large."""
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
        """Ensures that the file has another name for good, and so is never the spare again."""
        self._disk.rename(self.path, path)
        self.bytes = 0
        self._disk.sync_directory(self._directory)

    def adopt(self, path: str) -> bool:
        """Makes a segment's file the spare, instead of an earlier one; False on a full disk.

        Who reads the old segment still can, until the spare is used.
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
        """Makes a file as large as a segment, or as large as it can be; returns its size."""
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
