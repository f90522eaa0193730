"""The spare: a file of a segment's size, allocated ahead, that becomes the next segment.

With a spare behind the open segment a full disk cannot stop the journal from going on, so it is
what deletes live on when nothing else fits.  A packed segment becomes the spare: its blocks have
been written once, and writing to them again is cheaper than to blocks that are only allocated.
What it holds are never frames again, since their checksums are salted with the number of the
segment that they stood in, and numbers are never given twice.
"""

from __future__ import annotations

import contextlib

from fjord import disk as disks
from fjord.journal import names


class Spare:
    """The spare of one journal directory; it belongs to the writer's thread."""

    def __init__(self, disk: disks.Disk, directory: str, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.path = names.spare_path(directory)
        self._following = self.path + names.UNFINISHED
        self.is_there = False

    def look(self) -> None:
        """Finds the spare of an earlier start; one that is too small is none."""
        self.is_there = False
        if self._disk.exists(self.path):
            with contextlib.closing(self._disk.open(self.path)) as file:
                self.is_there = file.size() >= self._segment_bytes

    def ensure(self) -> bool:
        """Says whether there is a spare, after allocating one if need be; False on a full disk."""
        if not self.is_there:
            try:
                self.allocate_following(self._segment_bytes)
            except OSError as error:
                if not disks.is_full(error):
                    raise
                return False
            self.promote_following()
        return True

    def allocate_following(self, size: int) -> None:
        """Allocates the file that becomes the spare when this one is used.

        Raises:
            OSError: if that fails, as on a full disk; then nothing has changed.
        """
        file = self._disk.open(self._following, writable=True, create=True)
        try:
            with contextlib.closing(file):
                file.allocate(size)
                file.sync()
        except OSError:
            self.drop_following()
            raise

    def promote_following(self) -> None:
        self._disk.rename(self._following, self.path)
        self._disk.sync_directory(self._directory)
        self.is_there = True

    def drop_following(self) -> None:
        self._disk.remove(self._following)

    def set_aside(self, path: str) -> None:
        """Ensures that the file has another name for good, and so is never the spare again."""
        self._disk.rename(self.path, path)
        self.is_there = False
        self._disk.sync_directory(self._directory)

    def adopt(self, path: str) -> bool:
        """Makes a segment's file the spare, instead of an earlier one; False on a full disk.

        Who reads the old segment still can, until the spare is used.
        """
        with contextlib.closing(self._disk.open(path, writable=True)) as file:
            try:
                file.allocate(self._segment_bytes)
            except OSError as error:
                if not disks.is_full(error):
                    raise
                return False
            self._disk.rename(path, self.path)
            self._disk.sync_directory(self._directory)
            self.is_there = True
            if file.size() > self._segment_bytes:
                # Only now: under its old name it must stay whole.
                file.truncate(self._segment_bytes)
        return True
