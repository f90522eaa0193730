"""What an import will find in a queue: counted from its files, before anything is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from fjord import disk as disks
from fjord import limits
from fjord.kestrel import contents, reading
from fjord.spark.kestrel import tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One queue, as its files have it."""

    queue: str
    items: int
    bytes: int  # of their data
    open: int  # of the items; they are at the head
    expired: int  # have expired by now
    too_large: int  # of the others: have more than a value may
    largest_bytes: int  # of the others
    skipped_bytes: int  # of files that are damaged
    crc: int  # of the files
    size: int  # of the files

    @property
    def is_empty(self) -> bool:
        return self.items <= self.expired


def count(
    directory: str,
    queue: str,
    *,
    now_ms: int,
    skips_damage: bool = False,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Counted:
    """Reads all files of a queue.

    Args:
        directory: where they are.
        queue: its name.
        now_ms: what is expired at this moment is counted.
        skips_damage: what is behind damage is left out.
        on_bytes: told how many bytes were read, again and again.

    Raises:
        DirectoryError: if the files change meanwhile, or cannot be read.
        CorruptionError: if one of them is damaged.
    """
    disk = disks.LocalDisk()
    found = contents.read(disk, directory, queue, reading.Options(), on_bytes=on_bytes)
    with contextlib.closing(found):
        if not found.files:
            raise tasks.changed(directory, queue)
        if not skips_damage:
            found.check()
        crc = found.crc()
        expired = too_large = largest = 0
        for item in found.items():
            if 0 != item.expiry_ms <= now_ms:
                expired += 1
                continue
            too_large += item.size > limits.VALUE_BYTES_MAX
            largest = max(largest, item.size)
        return Counted(
            queue=queue,
            items=found.count,
            bytes=found.bytes,
            open=found.open_count,
            expired=expired,
            too_large=too_large,
            largest_bytes=largest,
            skipped_bytes=sum(file.skipped_bytes for file in found.files if file.is_damaged),
            crc=crc,
            size=found.size,
        )
