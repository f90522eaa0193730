"""Bytes of a queue's files that cannot be read: kept where nobody looks for queues.

    ~~corrupt/cars.904      what stood in cars.904 from where it was damaged on
    ~~corrupt/cars.904~1    the same, of another time

Kestrel passes over directories, and takes the text behind a dot of any file for a number; no queue
can have this name.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from fjord import disk as disks
from fjord import limits

DIRECTORY: Final = "~~corrupt"
_CHUNK_BYTES: Final = 1 * limits.MIB
_MADE: Final = "~new"  # what is being copied


def keep(disk: disks.Disk, folder: str, name: str, damaged: disks.File, offset: int) -> str:
    """Copies what a file has from an offset on, durably; returns where it is in the folder.

    Raises:
        OSError: if it may be nowhere but in the file itself.
    """
    directory = os.path.join(folder, DIRECTORY)
    disk.make_directory(directory)
    disk.sync_directory(folder)
    made = os.path.join(directory, name + _MADE)
    with contextlib.closing(disk.open(made, writable=True, create=True)) as copy:
        copy.truncate(0)
        size = 0
        while data := damaged.read(offset + size, _CHUNK_BYTES):
            copy.write(size, data)
            size += len(data)
        copy.sync()
    taken = set(disk.names(directory))
    kept, count = name, 0
    while kept in taken:
        count += 1
        kept = f"{name}~{count}"
    disk.rename(made, os.path.join(directory, kept))
    disk.sync_directory(directory)
    return f"{DIRECTORY}/{kept}"
