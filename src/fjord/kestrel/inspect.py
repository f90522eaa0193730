"""What a directory of Kestrel's holds, and whether it is whole: every op of every file, counted."""

from __future__ import annotations

import contextlib
import enum
import functools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar, cast

from fjord import limits
from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Item, OpBatch, Opcode
from fjord.kestrel.items import APPLIERS, QueueFold, Sized, Waiting
from fjord.kestrel.journal import Segment, Segments
from fjord.kestrel.reader import JournalFile, QueueSurvey, ReadOptions, UnreadableError

Progress = Callable[[int, int], None]


class Ending(enum.StrEnum):
    """How a file ends."""

    WHOLE = "whole"
    TORN = "torn"  # its last op is cut off, and it is the last file: the writer died
    DAMAGED = "damaged"  # what is behind some byte cannot be read
    CHANGED = "changed"  # it can be read, but it is not what was written
    MISSING = "missing"  # it was written, and is not there
    UNREADABLE = "unreadable"  # the disk, or the system, refuses to read it


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """One file that was read."""

    path: str
    ending: Ending
    bytes: int = 0
    ops: int = 0
    offset: int = 0  # up to where it was read; behind it nothing counts
    skipped_bytes: int = 0  # how much that is
    reason: str = ""  # why, empty if it is whole

    @property
    def is_damaged(self) -> bool:
        return self.ending not in (Ending.WHOLE, Ending.TORN)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One queue, and what its files make of it."""

    queue: str
    files: list[FileReport]
    items: int  # that wait
    bytes: int
    open_items: int  # that somebody had reserved
    open_bytes: int
    last_xid: int
    missed: int  # ops on what was not there: a file is missing or damaged, or Kestrel had a bug
    displaced: int  # open items whose xid was given to another one
    dead: list[str]  # files that a pack has taken the place of
    temporary: list[str]  # files that count for nothing

    @property
    def ops(self) -> int:
        return sum(file.ops for file in self.files)

    @property
    def is_damaged(self) -> bool:
        return any(file.is_damaged for file in self.files)


def verify(
    surveys: Iterable[QueueSurvey],
    progress: Progress = lambda done, total: None,
    options: ReadOptions = reader.PLAIN,
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
        yield _verify_queue(one, advance, options)


def _verify_queue(
    found: QueueSurvey, advance: Callable[[int], None], options: ReadOptions
) -> QueueReport:
    state = Counting()
    reports = [_read(file, state, advance, options) for file in found.files]
    reports += [
        FileReport(path=error.path, ending=Ending.UNREADABLE, reason=error.reason)
        for error in found.unreadable
    ]
    reports += [
        FileReport(
            path=lost.path, ending=Ending.MISSING, skipped_bytes=lost.sum.size, reason=lost.reason
        )
        for lost in found.missing
    ]
    return QueueReport(
        queue=found.queue,
        files=reports,
        items=len(state.queue),
        bytes=state.queue_bytes,
        open_items=len(state.open),
        open_bytes=state.open_bytes,
        last_xid=state.last_xid,
        missed=state.missed,
        displaced=state.displaced,
        dead=found.dead,
        temporary=found.temporary,
    )


def _read(
    file: JournalFile,
    state: Counting,
    advance: Callable[[int], None],
    options: ReadOptions,
) -> FileReport:
    ops = 0
    try:
        for batch in file.batches(options, advance):
            state.apply_batch(batch)
            ops += batch.op_count
        offset = file.broken.offset if file.broken else file.size
        ending, reason = _judged(file)
    except UnreadableError as error:
        offset, ending, reason = file.read_bytes, Ending.UNREADABLE, error.reason
        advance(file.size - offset)
    return FileReport(
        path=file.path,
        ending=ending,
        bytes=file.size,
        ops=ops,
        offset=offset,
        skipped_bytes=file.size - offset,
        reason=reason,
    )


def _judged(file: JournalFile) -> tuple[Ending, str]:
    """Returns how a file ends, and why."""
    if file.broken is not None and file.is_damaged:
        return Ending.DAMAGED, file.broken.reason
    if file.changed is not None:
        return Ending.CHANGED, file.changed
    return (Ending.TORN, file.broken.reason) if file.broken else (Ending.WHOLE, "")


# -- a queue as of some op, all of it in memory ---------------------------------------------------


T = TypeVar("T", Item, Sized)


class ReplayState(QueueFold[T]):
    """A queue as of some op, which begins empty."""

    @property
    def queue(self) -> deque[T]:
        """The items that wait, if the journal ends here."""
        self.end_apply()
        return cast("deque[T]", self._memory)

    @property
    def queue_bytes(self) -> int:
        self.end_apply()
        return self.memory_bytes

    @property
    def open(self) -> dict[int, T]:
        """The open items by xid, in the order in which they were reserved."""
        return cast("dict[int, T]", self._open)

    def _put_back(self, item: T) -> None:
        self._memory.appendleft(item._replace(xid=0) if item.xid else item)
        self.memory_bytes += item.size


class Counting(ReplayState[Sized]):
    """A state that has numbers and bytes of items only."""

    def _keep(self, item: Item) -> Sized:
        size = len(item.data)
        return Sized(size, item.xid) if item.xid else _sized(size)

    def apply_batch(self, batch: OpBatch) -> None:
        """Does what `apply` does for each op of a batch."""
        if batch.alone or self._is_amid:
            for op, _, _ in batch.ops():
                self.apply(op)
            return
        data, queue, opened, sized = batch.data, self.queue, self.open, _sized
        head_bytes, unpack_xid = codec.ADDX_BYTES, codec.unpack_xid
        more_bytes = more_open_bytes = 0
        for start, end in pairwise(batch.borders):
            number = data[start]
            if number == _ADDX_NUMBER:
                size = end - start - head_bytes
                queue.append(sized(size))
                more_bytes += size
            elif number == _REMOVE_NUMBER:
                if end - start == 1 and queue:
                    more_bytes -= queue.popleft().size
                else:
                    for _ in range(start, end):
                        self._pop()
            elif number == _REMOVE_TENTATIVE_NUMBER:
                self.reserve(0)
            else:
                (xid,) = unpack_xid(data, start)
                if number == _CONFIRM_NUMBER and xid in opened:
                    more_open_bytes -= opened.pop(xid).size
                elif number == _RESERVE_NUMBER and queue and xid and xid not in opened:
                    head = opened[xid] = queue.popleft()
                    more_bytes -= head.size
                    more_open_bytes += head.size
                    self.last_xid = xid
                else:
                    APPLIERS[number](self, xid)
        self.memory_bytes += more_bytes
        self.open_bytes += more_open_bytes
        self.reserved_xid = 0


class Whole(ReplayState[Item]):
    """A state that has the items themselves, copied from what they were read from."""

    def _keep(self, item: Item) -> Item:
        data = item.data
        return item if isinstance(data, bytes) else item._replace(data=bytes(data))


# Items of one size share what is kept of them, so that millions of them cost a pointer each.
_sized: Final = functools.lru_cache(maxsize=65_536)(Sized)

_ADDX_NUMBER: Final = Opcode.ADDX.number
_REMOVE_NUMBER: Final = Opcode.REMOVE.number
_REMOVE_TENTATIVE_NUMBER: Final = Opcode.REMOVE_TENTATIVE.number
_CONFIRM_NUMBER: Final = Opcode.CONFIRM_REMOVE.number
_RESERVE_NUMBER: Final = Opcode.REMOVE_TENTATIVE_XID.number


# -- what is in a queue, read from its files and from nothing else: they stay as they are ---------
#
# The journal is replayed, and then what it leaves is handed out: first what was open, as it would
# be put back at the head, then what waits, in order.  No more is in memory than
# `memory_bytes_max` and the open items, however long the queue is: what does not fit is read a
# second time.


MEMORY_BYTES_MAX: Final = 16 * limits.MIB


def _extend_crc32(crc: int, data: bytes) -> int:
    return zlib.crc32(data, crc)


class Contents:
    """What is in one queue; it can be handed out once."""

    def __init__(
        self,
        found: QueueSurvey,
        options: ReadOptions = reader.PLAIN,
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
        files = Segments(lambda segment: self.files[segment.era].open(), options.item_bytes_max)
        self._waiting = waiting = Waiting(files, memory_bytes_max, options.now_ms)
        for file in found.files:
            segment = Segment(file.name, len(files.listed), file.size)
            files.listed.append(segment)
            for batch in file.batches(options, on_bytes):
                waiting.apply_batch(batch, segment)
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
        waiting = self._waiting
        with reader.readable(f"the journal of {self.queue}"):
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
                crc = reader.crc_of(opened, file.size, crc, _extend_crc32)
        return crc

    def close(self) -> None:
        self._waiting.close()
