"""Space that is kept back, so that a full disk can be emptied.

A file of zeros takes it.  Who finds the disk full while an item is taken, closed or given back has
the file cut, and tries again.  Until the file has its size again, nothing is added: what was kept
back is for removing alone, whoever has filled the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from fjord import disk as disks
from fjord import limits

# A million items are opened and closed with ten bytes each; the journal of one queue takes as much
# when it is empty.
RESERVE_BYTES: Final = 16 * limits.MIB
# No file of a queue for Fjord, and a temporary one for Kestrel.
_NAME: Final = "~~reserve"


class Reserve:
    """The space that is kept back in one directory."""

    def __init__(self, disk: disks.Disk, folder: str, size: int) -> None:
        """Takes nothing yet; what an earlier process has left is there still.

        Args:
            disk: where it is.
            folder: of queues.
            size: in bytes, 0 = none.
        """
        self._disk = disk
        self._path = os.path.join(folder, _NAME)
        self._size = size
        self._is_whole = size == 0
        self._is_given = False  # and was not taken again

    def take(self) -> None:
        """Ensures that the space is kept back.

        Raises:
            OSError: if it is not there.
        """
        if self._is_whole:
            return
        try:
            with contextlib.closing(
                self._disk.open(self._path, writable=True, create=True)
            ) as file:
                file.allocate(self._size)
        except OSError as error:
            if disks.is_full(error):
                raise OSError(
                    errno.ENOSPC, f"the disk has no {self._size} bytes left to keep back"
                ) from error
            raise
        self._is_whole, self._is_given = True, False

    def give(self) -> bool:
        """Frees the space; False if that was done before."""
        if not self._size or self._is_given or not self._disk.exists(self._path):
            return False
        with contextlib.closing(self._disk.open(self._path, writable=True)) as file:
            file.truncate(0)
        self._is_whole, self._is_given = False, True
        return True

    def close(self) -> None:
        """Ends: the directory is as Kestrel knows it."""
        if self._size and self._disk.exists(self._path):
            self._disk.remove(self._path)
