"""What is in a queue, read from its files alone, and whether the files are whole.

The journal is replayed, and then what it leaves is handed out: first what was open, as it would be
put back at the head, then what waits, in order.  However long the queue is, no more is in memory
than `memory_bytes_max` and the open items: what does not fit is read a second time.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fjord import limits
from fjord.kestrel import reader
from fjord.kestrel.codec import Item
from fjord.kestrel.items import Items
from fjord.kestrel.journal import Segment, Segments

MEMORY_BYTES_MAX: Final = 16 * limits.MIB

Progress = Callable[[int, int], None]


class Contents:
    """What is in one queue; it can be handed out once."""

    def __init__(
        self,
        found: reader.QueueSurvey,
        options: reader.ReadOptions = reader.PLAIN,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        on_bytes: Callable[[int], None] = lambda size: None,
        counts_only: bool = False,
    ) -> None:
        """Reads all files; `reports` say what is damaged in them.

        Args:
            found: the files of the queue.
            options: how to read them.
            memory_bytes_max: how much is in memory, besides one more item and what is open.
            on_bytes: called with the number of bytes that were read, again and again.
            counts_only: items have no data; files that cannot be read are listed.

        Raises:
            DirectoryError: if a file cannot be read, or was renamed or removed meanwhile.
        """
        self.survey = found
        self.queue = found.queue
        self.unreadable = list(found.unreadable)
        self.size = found.size  # of the files
        self.items_left, files = replayed(found, options, memory_bytes_max)
        items = self.items_left
        items.keeps_data = not counts_only
        for file, segment in files:
            try:
                # Items that did not fit into memory are read again.
                with reader.readable(f"the journal of {self.queue}"):
                    for batch in file.batches(options, on_bytes):
                        items.apply_batch(batch, segment)
            except reader.UnreadableError as error:
                if not counts_only:
                    raise
                self.unreadable.append(error)
                on_bytes(file.size - file.read_bytes)
        items.end_apply()
        self.open_count = len(items.open)
        self.count = items.count + self.open_count
        self.bytes = items.bytes + items.open_bytes

    def reports(self) -> list[reader.FileReport]:
        """Returns what was read of each file, and what could not be."""
        refused = {error.path: error.reason for error in self.unreadable}
        found = [file.report(refused.pop(file.path, "")) for file in self.survey.files]
        found += [
            reader.FileReport(path=path, ending=reader.Ending.UNREADABLE, reason=reason)
            for path, reason in refused.items()
        ]
        return found + [lost.report() for lost in self.survey.missing]

    def check(self) -> None:
        """Ensures that all files are whole; raises what `FileReport.check` does."""
        for one in self.reports():
            one.check()

    def items(self) -> Iterator[Item]:
        """Yields all items; those that were open have their xid.

        Raises:
            DirectoryError: if a file cannot be read, or was renamed or removed meanwhile.
            CorruptionError: if one has changed since.
        """
        items = self.items_left
        with reader.readable(f"the journal of {self.queue}"):
            for xid in sorted(items.open):
                yield items.open[xid].item()._replace(xid=xid)
            while (entry := items.head()) is not None:
                yield entry.item()
                items.take()

    def crc(self) -> int:
        """Returns the CRC-32 of all files: another one if somebody has written to them since."""
        crc = 0
        for file in self.survey.files:
            with contextlib.closing(file.open()) as opened:
                crc = reader.crc_of(opened, file.size, crc, lambda crc, data: zlib.crc32(data, crc))
        return crc

    def close(self) -> None:
        self.items_left.close()


def replayed(
    found: reader.QueueSurvey, options: reader.ReadOptions, memory_bytes_max: int
) -> tuple[Items, Iterator[tuple[reader.JournalFile, Segment]]]:
    """Returns an empty queue, and its files; apply the ops of each before asking for the next."""
    segments = Segments(lambda segment: found.files[segment.era].open(), options.item_bytes_max)

    def files() -> Iterator[tuple[reader.JournalFile, Segment]]:
        for file in found.files:
            segment = Segment(file.name, len(segments.listed), file.size)
            segments.listed.append(segment)
            yield file, segment
            if file.broken is not None:
                segment.size = file.broken.offset

    return Items(segments, memory_bytes_max, options.now_ms), files()


# -- reports --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One queue, and what its files make of it."""

    queue: str
    files: list[reader.FileReport]
    items: int  # that wait
    bytes: int
    open_items: int  # that somebody had reserved
    open_bytes: int
    last_xid: int
    missed: int  # ops on what was not there: a file is missing or damaged, or Kestrel had a bug
    displaced: int  # open items whose xid was given to another one
    dead: list[str]  # files that a pack has replaced
    temporary: list[str]  # files that count for nothing

    @property
    def ops(self) -> int:
        return sum(file.ops for file in self.files)

    @property
    def is_damaged(self) -> bool:
        return any(file.is_damaged for file in self.files)


def verify(
    surveys: Iterable[reader.QueueSurvey],
    progress: Progress = lambda done, total: None,
    options: reader.ReadOptions = reader.PLAIN,
) -> Iterator[QueueReport]:
    """Reads all files of these queues, and yields what there is of each.

    Raises:
        DirectoryError: if somebody renames files meanwhile.
    """
    listed = list(surveys)
    total = sum(one.size for one in listed)
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    for one in listed:
        contents = Contents(one, options, on_bytes=advance, counts_only=True)
        with contextlib.closing(contents) as found:
            items = found.items_left
            yield QueueReport(
                queue=found.queue,
                files=found.reports(),
                items=items.count,
                bytes=items.bytes,
                open_items=found.open_count,
                open_bytes=items.open_bytes,
                last_xid=items.last_xid,
                missed=items.missed,
                displaced=items.displaced,
                dead=one.dead,
                temporary=one.temporary,
            )
