"""What a directory of Kestrel's holds, and whether it is whole: every op of every file, counted."""

from __future__ import annotations

import contextlib
import enum
import functools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fjord import disk as disks
from fjord import limits
from fjord.kestrel import codec, reading
from fjord.kestrel.codec import Item, Op, OpBatch, Opcode
from fjord.kestrel.journal import Segment, Segments
from fjord.kestrel.reading import JournalFile, Missing, QueueSurvey, ReadOptions, UnreadableError
from fjord.kestrel.waiting import Waiting

# So much is read between two steps of the progress.
_STEP_BYTES: Final = 4 * limits.MIB

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
    options: ReadOptions | None = None,
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
    found: QueueSurvey, advance: Callable[[int], None], options: ReadOptions | None
) -> QueueReport:
    state = counting()
    reports = [_read(file, state, advance, options) for file in found.files]
    reports += [_refused(error) for error in found.unreadable]
    reports += [_missing(lost) for lost in found.missing]
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
    options: ReadOptions | None,
) -> FileReport:
    ops = told = 0
    try:
        for batch in file.batches(options):
            state.apply_batch(batch)
            ops += batch.op_count
            if file.read_bytes >= told + _STEP_BYTES:
                advance(file.read_bytes - told)
                told = file.read_bytes
    except UnreadableError as error:
        return replace(
            _refused(error),
            bytes=file.size,
            ops=ops,
            offset=file.read_bytes,
            skipped_bytes=file.size - file.read_bytes,
        )
    finally:
        advance(file.size - told)
    ending, reason = _judged(file)
    return FileReport(
        path=file.path,
        ending=ending,
        bytes=file.size,
        ops=ops,
        offset=file.broken.offset if file.broken else file.size,
        skipped_bytes=file.skipped_bytes,
        reason=reason,
    )


def _refused(error: UnreadableError) -> FileReport:
    return FileReport(path=error.path, ending=Ending.UNREADABLE, reason=error.reason)


def _missing(lost: Missing) -> FileReport:
    return FileReport(
        path=lost.path, ending=Ending.MISSING, skipped_bytes=lost.sum.size, reason=lost.reason
    )


def _judged(file: JournalFile) -> tuple[Ending, str]:
    """Returns how a file ends, and why."""
    if file.broken is not None and file.is_damaged:
        return Ending.DAMAGED, file.broken.reason
    if file.changed is not None:
        return Ending.CHANGED, file.changed
    return (Ending.TORN, file.broken.reason) if file.broken else (Ending.WHOLE, "")


# -------------------------------------------------------------------------------------------------
#
# What a Kestrel journal means: the fold of its ops is a queue, its open items and the last xid.
#
#     waiting  --REMOVE_TENTATIVE-->  open  --CONFIRM_REMOVE-->  gone
#        ^                              |
#        +----------UNREMOVE------------+     (to the head)
#
# `ReplayState.apply` takes one op after the other and never refuses; `Counting` takes many at a
# time, too, without an object for each.  An op on something that is not there changes nothing, as
# in Kestrel, and is counted in `missed`.  Nothing expires: whether an item has is asked when it is
# handed out, not when it is read.
#
# Xids.  REMOVE_TENTATIVE has none: the item gets the one that it brought along with ADD_XID, else
# the next.  One that stands right behind an ADD_XID means that very item, wherever the head is, so
# a rewritten file may have its open items in any place.  The next xid is one more than the last; 0
# and those of open items are skipped, and behind the largest comes the smallest.
#
# No item is dropped because its xid is taken already: the one that was open before gets the next
# xid, and is counted in `displaced`.
#
# STATE_DUMP tells the open items again.  Those that are open already stay as they are, the others
# become open, whether a REMOVE_TENTATIVE follows each of them or not.


class Sized(NamedTuple):
    """All that counting needs of an item."""

    size: int
    xid: int = 0


T = TypeVar("T", Item, Sized)


class ReplayState(Generic[T]):
    """A queue as of some op."""

    def __init__(self, keep: Callable[[Item], T]) -> None:
        """Begins with an empty queue.

        Args:
            keep: what is kept of an item that is added.
        """
        self.queue: deque[T] = deque()
        self.open: dict[int, T] = {}  # by xid, in the order in which they were reserved
        self.last_xid = 0
        self.queue_bytes = 0
        self.open_bytes = 0
        self.missed = 0  # ops on what was not there
        self.displaced = 0  # open items whose xid was given again
        self.reserved_xid = 0  # what the op that was just applied has reserved, 0 = nothing
        self._keep: Callable[[Item], T] = keep
        self._dump_left = 0  # so many open items of a STATE_DUMP are still to come
        self._named: Opcode | None = None  # set behind an ADD_XID: what it did

    def apply(self, op: Op) -> None:
        """Does what an op says."""
        self.reserved_xid = 0
        opcode = op.opcode
        if opcode is _ADDX:  # the most frequent one
            self.apply_add(op)
        else:
            if opcode in _XID_APPLIERS:
                _XID_APPLIERS[opcode](self, op.xid)
            else:
                _OP_APPLIERS[opcode](self, op)
            if opcode in _OF_DUMP:
                return
        self._dump_left = 0
        self._named = None

    def next_xid(self) -> int:
        """Returns the xid that the next reserve gets."""
        xid = self.last_xid
        while True:
            xid = xid + 1 if xid < codec.XID_MAX else codec.XID_MIN
            if xid != 0 and xid not in self.open:
                return xid

    def apply_add(self, op: Op) -> None:
        item = op.item
        assert item is not None
        self.queue.append(self._keep(item))
        self.queue_bytes += len(item.data)

    def apply_remove(self, xid: int) -> None:
        self._take_head()

    def apply_save_xid(self, xid: int) -> None:
        self.last_xid = xid

    def apply_confirm(self, xid: int) -> None:
        self._close(xid)

    def apply_unremove(self, xid: int) -> None:
        item = self._close(xid)
        if item is not None:
            # The xid that it brought along was for its first reserve alone.
            self.queue.appendleft(item._replace(xid=0) if item.xid else item)
            self.queue_bytes += item.size

    def apply_continue(self, op: Op) -> None:
        self._close(op.xid)
        self.apply_add(op)

    def apply_reserve_xid(self, xid: int) -> None:
        item = self._take_head()
        if item is not None:
            if xid:
                self.last_xid = xid
            self._reserve(xid or self._fresh_xid(), item)

    def apply_reserve(self, xid: int) -> None:
        named, self._named = self._named, None
        if named is Opcode.STATE_DUMP:
            return  # the item before it is open since it was told
        self._dump_left = 0
        item = self._take_last() if named is Opcode.ADD_XID else self._take_head()
        if item is not None:
            self._reserve(item.xid or self._fresh_xid(), item)

    def apply_add_xid(self, op: Op) -> None:
        if self._dump_left == 0 or op.xid == 0:
            self.apply_add(op)
            self._named = Opcode.ADD_XID
            return
        assert op.item is not None
        self._dump_left -= 1
        self._named = Opcode.STATE_DUMP
        if op.xid not in self.open:
            self._reserve(op.xid, self._keep(op.item))

    def apply_state_dump(self, op: Op) -> None:
        self.last_xid = op.xid
        self._dump_left = op.open_count
        self._named = None

    def _take_head(self) -> T | None:
        if not self.queue:
            self.missed += 1
            return None
        item = self.queue.popleft()
        self.queue_bytes -= item.size
        return item

    def _take_last(self) -> T:
        item = self.queue.pop()
        self.queue_bytes -= item.size
        return item

    def _fresh_xid(self) -> int:
        self.last_xid = self.next_xid()
        return self.last_xid

    def _reserve(self, xid: int, item: T) -> None:
        before = self.open.pop(xid, None)
        self.open[xid] = item
        self.open_bytes += item.size
        self.reserved_xid = xid
        if before is not None:
            self.displaced += 1
            self.open[self._fresh_xid()] = before

    def _close(self, xid: int) -> T | None:
        item = self.open.pop(xid, None)
        if item is None:
            self.missed += 1
        else:
            self.open_bytes -= item.size
        return item


class Counting(ReplayState[Sized]):
    """A state that has numbers and bytes of items only."""

    def __init__(self) -> None:
        super().__init__(_keep_size)

    def apply_batch(self, batch: OpBatch) -> None:
        """Does what `apply` does for each op of a batch."""
        if batch.alone or self._dump_left or self._named is not None:
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
                        self._take_head()
            elif number == _REMOVE_TENTATIVE_NUMBER:
                self.apply_reserve(0)
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
                    _XID_APPLIERS[number](self, xid)
        self.queue_bytes += more_bytes
        self.open_bytes += more_open_bytes
        self.reserved_xid = 0


def whole() -> ReplayState[Item]:
    """Returns a state that has the items themselves, copied from what they were read from."""
    return ReplayState(_keep_whole)


def counting() -> Counting:
    """Returns a state that has numbers and bytes of items only."""
    return Counting()


def _keep_whole(item: Item) -> Item:
    data = item.data
    return item if isinstance(data, bytes) else item._replace(data=bytes(data))


def _keep_size(item: Item) -> Sized:
    size = len(item.data)
    return Sized(size, item.xid) if item.xid else _sized(size)


# Items of one size share what is kept of them, so that millions of them cost a pointer each.
_sized: Final = functools.lru_cache(maxsize=65_536)(Sized)

# A name of a module is found faster than one of an enum.
_ADDX: Final = Opcode.ADDX
_ADDX_NUMBER: Final = Opcode.ADDX.number
_REMOVE_NUMBER: Final = Opcode.REMOVE.number
_REMOVE_TENTATIVE_NUMBER: Final = Opcode.REMOVE_TENTATIVE.number
_CONFIRM_NUMBER: Final = Opcode.CONFIRM_REMOVE.number
_RESERVE_NUMBER: Final = Opcode.REMOVE_TENTATIVE_XID.number
# Ops that may stand between a STATE_DUMP and the last of its open items.
_OF_DUMP: Final = frozenset({Opcode.STATE_DUMP, Opcode.ADD_XID, Opcode.REMOVE_TENTATIVE})

_OP_APPLIERS: Final[dict[Opcode, Callable[[ReplayState[Any], Op], None]]] = {
    Opcode.ADD: ReplayState.apply_add,
    Opcode.ADDX: ReplayState.apply_add,
    Opcode.ADD_XID: ReplayState.apply_add_xid,
    Opcode.CONTINUE: ReplayState.apply_continue,
    Opcode.STATE_DUMP: ReplayState.apply_state_dump,
}
# By number; those without an xid pass it over.
_XID_APPLIERS: Final[dict[int, Callable[[ReplayState[Any], int], None]]] = {
    Opcode.REMOVE: ReplayState.apply_remove,
    Opcode.REMOVE_TENTATIVE: ReplayState.apply_reserve,
    Opcode.SAVE_XID: ReplayState.apply_save_xid,
    Opcode.UNREMOVE: ReplayState.apply_unremove,
    Opcode.CONFIRM_REMOVE: ReplayState.apply_confirm,
    Opcode.REMOVE_TENTATIVE_XID: ReplayState.apply_reserve_xid,
}


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
        options: ReadOptions,
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
                crc = reading.crc_of(opened, file.size, crc, _extend_crc32)
        return crc

    def close(self) -> None:
        self._waiting.close()


def read_contents(
    disk: disks.Disk,
    directory: str,
    queue: str,
    options: ReadOptions,
    *,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Contents:
    """Reads a queue of a directory, see `Contents`; it is empty if there is none."""
    found = reading.survey(disk, directory, queue)
    return Contents(found, options, memory_bytes_max=memory_bytes_max, on_bytes=on_bytes)
