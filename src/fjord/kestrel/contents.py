"""What is in a queue, read from its files and from nothing else: they stay as they are.

The journal is replayed, and then what it leaves is handed out: first what was open, as it would be
put back at the head, then what waits, in order.  No more is in memory than `memory_bytes_max` and
the open items, however long the queue is: what does not fit is read a second time.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from fjord import disk as disks
from fjord import limits
from fjord.kestrel import reading
from fjord.kestrel.journal import Segment
from fjord.kestrel.ops import Item
from fjord.kestrel.reading import JournalFile, Options, QueueSurvey
from fjord.kestrel.waiting import Waiting

MEMORY_BYTES_MAX: Final = 16 * limits.MIB
_CHUNK_BYTES: Final = 1 * limits.MIB


class _Written:
    """The files of a queue, for read-behind."""

    has_checkpoints = False

    def __init__(self, item_bytes_max: int) -> None:
        self.item_bytes_max = item_bytes_max
        self.segments: list[Segment] = []
        self._files: list[JournalFile] = []

    def begin(self, file: JournalFile) -> Segment:
        segment = Segment(file.name, len(self.segments), file.size)
        self.segments.append(segment)
        self._files.append(file)
        return segment

    def open_segment(self, segment: Segment) -> disks.File:
        return self._files[segment.era].open()

    def after(self, segment: Segment) -> Segment | None:
        following = segment.era + 1
        return self.segments[following] if following < len(self.segments) else None


class Contents:
    """What is in one queue; it can be handed out once."""

    def __init__(
        self,
        found: QueueSurvey,
        options: Options,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        on_bytes: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Reads all files; what is damaged in them is told by `files`.

        Args:
            found: the files of the queue.
            options: how to read them.
            memory_bytes_max: so much is in memory, and one item more, and what is open.
            on_bytes: told how many bytes were read, again and again.

        Raises:
            DirectoryError: if a file cannot be read, or was renamed or removed meanwhile.
        """
        self.queue = found.queue
        self.files = found.files
        self.missing = found.missing
        self.size = found.size  # of the files
        journal = _Written(options.item_bytes_max)
        self._waiting = waiting = Waiting(journal, memory_bytes_max, options.now_ms)
        for file in found.files:
            segment = journal.begin(file)
            told = 0
            for batch in file.batches(options):
                waiting.apply_batch(batch, segment)
                if file.read_bytes > told:
                    on_bytes(file.read_bytes - told)
                    told = file.read_bytes
            on_bytes(file.size - told)
            if file.broken is not None:
                segment.size = file.broken.offset
        waiting.end_apply()
        self.open_count = len(waiting.open)
        self.count = waiting.count + self.open_count
        self.bytes = waiting.bytes + waiting.open_bytes
        self.missed = waiting.missed  # ops on what was not there

    def check(self) -> None:
        """Ensures that the files are whole, but for a torn tail.

        Raises:
            CorruptionError: if one is damaged, changed or missing.
        """
        for file in self.files:
            file.check()
        for lost in self.missing:
            lost.check()

    def items(self) -> Iterator[Item]:
        """Yields all items; those that were open have their xid.

        Raises:
            DirectoryError: if a file cannot be read, or was renamed or removed meanwhile.
            CorruptionError: if one has changed since.
        """
        try:
            yield from self._items()
        except OSError as error:
            raise reading.unreadable(f"the journal of {self.queue}", error) from error

    def _items(self) -> Iterator[Item]:
        waiting = self._waiting
        for xid in sorted(waiting.open):
            yield waiting.open[xid].item()._replace(xid=xid)
        while (entry := waiting.head()) is not None:
            yield entry.item()
            waiting.take()

    def crc(self) -> int:
        """Returns the CRC-32 of all files: another one if somebody has written to them since."""
        crc = 0
        for file in self.files:
            with contextlib.closing(file.open()) as opened:
                at = 0
                while data := opened.read(at, min(_CHUNK_BYTES, file.size - at)):
                    crc = zlib.crc32(data, crc)
                    at += len(data)
        return crc

    def close(self) -> None:
        self._waiting.close()


def read(
    disk: disks.Disk,
    directory: str,
    queue: str,
    options: Options,
    *,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Contents:
    """Reads a queue of a directory, see `Contents`; it is empty if there is none."""
    found = reading.survey(disk, directory, queue)
    return Contents(found, options, memory_bytes_max=memory_bytes_max, on_bytes=on_bytes)
