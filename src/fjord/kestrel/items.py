"""The items of a queue: in memory, in files behind them, and open.

    [ head ... memory ... ][ ... behind: counted, and read from the journal when needed ... ]

    waiting  --REMOVE_TENTATIVE-->  open  --CONFIRM_REMOVE-->  gone
       ^                              |
       +----------UNREMOVE------------+     (to the head)

When memory is full, items that are added are only counted: read-behind.  As items are taken, those
behind them are read; once all are in memory, read-behind is over.  Replaying a journal, and working
with the queue afterwards, call the same methods; live work writes each op before it is applied.

Replay keeps an item *raw*, as the bytes of its ADDX, and makes an `Entry` of it when somebody looks
at it: most items of a journal are gone before that, and those that wait take less memory.

An op on an item that is not there changes nothing, as in Kestrel, and is counted in `missed`.
Nothing expires here: whether an item has expired is checked when it is handed out.

Xids.  REMOVE_TENTATIVE has none: the item gets the one that ADD_XID brought, else the next.  Right
behind an ADD_XID it means that very item, wherever the head is, so a rewritten file may have its
open items in any place.  The next xid is one more than the last; 0 and those of open items are
skipped, and after the largest comes the smallest.  No item is dropped because its xid is taken:
the one that was open before gets the next xid, and is counted in `displaced`.

STATE_DUMP repeats the open items.  Those that are open already stay as they are, the others become
open, whether or not a REMOVE_TENTATIVE follows each of them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

from fjord.errors import FjordError
from fjord.kestrel import codec
from fjord.kestrel.codec import Dialect, Item, Op, OpBatch, Opcode
from fjord.kestrel.journal import Behind, Segment, Segments

# Items without data take memory, too.
_MEMORY_ITEMS_MAX: Final = 1_000_000
# A module's global is found faster than a member of an enum.
_CONTINUE: Final = Opcode.CONTINUE
_ADD_XID: Final = Opcode.ADD_XID
_RESERVE_NEXT: Final = Opcode.REMOVE_TENTATIVE
_ADDX: Final = Opcode.ADDX.number
_REMOVE: Final = Opcode.REMOVE.number
_RESERVE: Final = Opcode.REMOVE_TENTATIVE_XID.number
_CONFIRM: Final = Opcode.CONFIRM_REMOVE.number
_UNNAMED_RESERVE: Final = codec.remove_tentative()
_RESERVE_NEXT_NUMBER: Final = _RESERVE_NEXT.number  # compared faster than the member itself
# Ops that give xids by rules which a pack in the middle of a journal does not keep.
_UNNAMED: Final = frozenset({Opcode.REMOVE_TENTATIVE, Opcode.ADD_XID, Opcode.STATE_DUMP})

Raw = bytes | int  # an ADDX, or how many bytes it has


@dataclass(slots=True, eq=False)
class Entry:
    """An item of a queue that is in use."""

    data: bytes
    added_ms: int
    expires_ms: int
    xid: int  # the xid that it brought from another program's file, 0 = none
    era: int  # of the file that was being written when it began to wait
    is_gone: bool = False

    def go(self) -> None:
        """Removes it for good."""
        self.is_gone = True
        self.data = b""

    def item(self) -> Item:
        return Item(self.data, self.added_ms, self.expires_ms)


class Items:
    """The items of one queue that is in use, or being replayed."""

    def __init__(
        self, files: Segments | None = None, memory_bytes_max: int = sys.maxsize, now_ms: int = 0
    ) -> None:
        """Begins with an empty queue.

        Args:
            files: what it is read from when it is larger than memory; None: it never is.
            memory_bytes_max: how much is in memory; one more item may be.
            now_ms: the add time of items that have none.
        """
        self._memory: deque[Entry | Raw] = deque()  # the items that wait, or the first of them
        self.memory_bytes = 0
        self.memory_bytes_max = memory_bytes_max
        self.behind_count = 0  # items that wait and are not in memory
        self.behind_bytes = 0
        self._open: dict[int, Entry | Raw] = {}  # by xid, in the order in which they were opened
        self.open_bytes = 0
        self._has_raw_open = False  # some of these may be raw
        # The era in which the last raw item was added.  It will do for all of them: checkpoints are
        # of this era or later, so all of them waited then.
        self._raw_era = 0
        self.last_xid = 0
        self.missed = 0  # ops on what was not there
        self.displaced = 0  # open items whose xid was given again
        self.reserved_xid = 0  # what the last op has reserved, 0 = nothing
        # An ADD_XID, until what follows is known.
        self._named: tuple[Item, Segment | None, int] | None = None
        self._dump_left = 0  # so many open items of a STATE_DUMP are still to come
        self._is_told = False  # the op before was an ADD_XID of a STATE_DUMP
        self.checkpoints = Checkpoints()
        self.has_names = False  # some that wait may have brought an xid
        self.era = 0  # of the file that is being written
        self.keeps_data = True  # False: items are only counted, and their data may be zeros
        self._files = files
        self._now_ms = now_ms
        self._behind: Behind | None = None
        self._failure: OSError | FjordError | None = None  # why no more can be read from files

    @property
    def count(self) -> int:
        return len(self._memory) + self.behind_count

    @property
    def memory_count(self) -> int:
        return len(self._memory)

    @property
    def bytes(self) -> int:
        return self.memory_bytes + self.behind_bytes

    @property
    def is_behind(self) -> bool:
        return self._behind is not None

    @property
    def reader_era(self) -> int:
        """The era of the file that is read, if one is."""
        return self._behind.segment.era if self._behind is not None else self.era

    @property
    def open(self) -> dict[int, Entry]:
        """The open items by xid, in the order in which they were opened."""
        if self._has_raw_open:
            for xid, one in self._open.items():
                self._open[xid] = self._unpacked(one)
            self._has_raw_open = False
        return cast("dict[int, Entry]", self._open)

    def entries(self) -> Iterator[Entry]:
        """Yields the items that are in memory, which must not change meanwhile."""
        return map(self._unpacked, self._memory)

    # -- what live work and replay share ----------------------------------------------------------

    def add(self, item: Item, segment: Segment | None, offset: int) -> None:
        """Puts an item at the end; its op begins at this place in the journal."""
        if self._behind is None and segment is not None and self._is_full():
            assert self._files is not None
            self._behind = Behind(self._files, segment, offset, self._now_ms)
        if self._behind is not None:
            self.behind_count += 1
            self.behind_bytes += len(item.data)
        else:
            self._memory.append(self._keep(item))
            self.memory_bytes += len(item.data)

    def head(self) -> Entry | None:
        """Returns the item at the head.

        Raises:
            OSError, FjordError: if it is in a file that cannot be read.
        """
        if not self._memory:
            self._check_read()
            return None
        head = self._memory[0]
        if not isinstance(head, Entry):
            head = self._memory[0] = self._unpacked(head)
        return head

    def take(self) -> None:
        """Takes the head away for good."""
        memory = self._memory
        if self._behind is None and memory and isinstance(memory[0], bytes):
            self.memory_bytes -= len(memory[0]) - codec.ADDX_BYTES
            del memory[0]  # nobody has seen it, and no checkpoint needs it
            return
        entry = self._pop()
        if entry is not None:
            entry.go()

    def reserve(self, xid: int) -> int:
        """Makes the head open; returns under which xid, 0 if there is none."""
        entry = self._pop()
        if entry is None:
            return 0
        if xid:
            self.last_xid = xid
        return self._reserve(xid or entry.xid or self._fresh_xid(), entry)

    def confirm(self, xid: int) -> None:
        """Ends an open item."""
        entry = self._close(xid)
        if entry is not None:
            entry.go()

    def unremove(self, xid: int) -> None:
        """Puts an open item back at the head."""
        entry = self._close(xid)
        if entry is not None:
            # The xid that it brought was for its first reserve alone.
            entry.xid, entry.era = 0, self.era
            self._memory.appendleft(entry)
            self.memory_bytes += len(entry.data)

    def next_xid(self) -> int:
        """Returns the xid that the next reserve gets."""
        xid = self.last_xid
        while True:
            xid = xid + 1 if xid < codec.XID_MAX else codec.XID_MIN
            if xid != 0 and xid not in self._open:
                return xid

    def drop_all(self) -> None:
        """Removes all that waits; what is open stays so."""
        for one in self._memory:
            if isinstance(one, Entry):
                one.go()
        self._memory.clear()
        self.memory_bytes = self.behind_count = self.behind_bytes = 0
        self.close()

    def close(self) -> None:
        if self._behind is not None:
            self._behind.close()
            self._behind = self._failure = None
        self.checkpoints.clear()

    # -- replay -----------------------------------------------------------------------------------

    def apply(self, op: Op, segment: Segment | None = None, offset: int = 0) -> None:
        """Does what an op of the journal says, which begins at this place."""
        if segment is not None and segment.era != self.era:
            self._enter(segment)
        self.reserved_xid = 0
        opcode, xid, item, open_count = op
        if opcode in _UNNAMED:
            self.checkpoints.clear()
        if opcode is _ADD_XID:
            assert item is not None
            self._apply_add_xid(item, segment, offset)
        elif opcode is _RESERVE_NEXT:
            self._apply_reserve()
        else:
            if self._is_amid:
                self.end_apply()
            if item is None:
                APPLIERS[opcode](self, xid)
                self._dump_left = open_count
                return
            if opcode is _CONTINUE:
                self.confirm(xid)
            self.add(item, segment, offset)

    def apply_batch(self, batch: OpBatch, segment: Segment) -> None:
        """Does what `apply` does for each op of a batch."""
        if segment.era != self.era:
            self._enter(segment)
        if batch.alone or self._is_amid:
            self._apply_each(batch, segment)
        elif self._has_room_for(batch):
            self._apply_in_memory(batch, segment)
        else:
            self._apply_behind(batch, segment)

    def end_apply(self) -> None:
        """Ends what depends on the next op: there is none, or none that belongs to those before."""
        self._settle()
        self._dump_left, self._is_told = 0, False

    @property
    def _is_amid(self) -> bool:
        """Says whether what the next op means depends on those before it."""
        return self._named is not None or bool(self._dump_left) or self._is_told

    def _apply_each(self, batch: OpBatch, segment: Segment) -> None:
        for op, offset, _ in batch.ops():
            self.apply(op, segment, offset)

    def _apply_in_memory(self, batch: OpBatch, segment: Segment) -> None:
        """Applies a batch that cannot make memory full.

        Frequent ops are done here, with items as they stand in the journal; the others by the
        methods that live work uses.
        """
        data = batch.data
        memory: deque[Any] = self._memory
        opened: Any = self._open
        append, popleft, unpack_xid = memory.append, memory.popleft, codec.unpack_xid
        more_bytes = more_open_bytes = 0
        head_bytes, keeps_data = codec.ADDX_BYTES, self.keeps_data
        raw: Any = bytes if keeps_data else int
        for start, end in pairwise(batch.borders):
            number = data[start]
            if number == _ADDX:
                append(data[start:end] if keeps_data else end - start)
                more_bytes += end - start - head_bytes
            elif number == _REMOVE:
                if end - start == 1 and memory and (head := memory[0]).__class__ is raw:
                    more_bytes -= (len(head) if keeps_data else head) - head_bytes
                    popleft()
                else:
                    for _ in range(start, end):
                        self.take()
            elif number == _RESERVE_NEXT_NUMBER:
                self.apply(_UNNAMED_RESERVE, segment, batch.base + start)
            else:
                (xid,) = unpack_xid(data, start)
                if number == _CONFIRM and (before := opened.get(xid)).__class__ is raw:
                    more_open_bytes -= (len(before) if keeps_data else before) - head_bytes
                    del opened[xid]
                elif (
                    number == _RESERVE
                    and xid not in opened
                    and xid
                    and memory
                    and (head := memory[0]).__class__ is raw
                ):
                    opened[xid] = popleft()
                    size = (len(head) if keeps_data else head) - head_bytes
                    more_bytes -= size
                    more_open_bytes += size
                    self.last_xid = xid
                else:
                    APPLIERS[number](self, xid)
        self.memory_bytes += more_bytes
        self.open_bytes += more_open_bytes
        self._has_raw_open, self._raw_era = True, self.era

    def _apply_behind(self, batch: OpBatch, segment: Segment) -> None:
        """Applies a batch while memory is full, or nearly so."""
        data, head_bytes = batch.data, codec.ADDX_BYTES
        for start, end in pairwise(batch.borders):
            if data[start] == _ADDX and self._behind is not None:
                self.behind_count += 1
                self.behind_bytes += end - start - head_bytes
            else:
                self._apply_each(batch.part(start, end), segment)

    def _apply_add_xid(self, item: Item, segment: Segment | None, offset: int) -> None:
        self._settle()
        self._is_told = bool(self._dump_left and item.xid)
        if not self._is_told:
            data = bytes(item.data)  # it is looked at when the next op was read
            self._named = (item._replace(data=data), segment, offset)
            return
        self._dump_left -= 1
        if item.xid not in self._open:
            self._reserve(item.xid, self._keep(item))

    def _apply_reserve(self) -> None:
        named, self._named = self._named, None
        told, self._is_told = self._is_told, False
        if told:
            return  # it has been open since the dump
        self._dump_left = 0
        if named is None:
            self.reserve(0)
        else:
            self._reserve(named[0].xid or self._fresh_xid(), self._keep(named[0]))

    def _apply_save_xid(self, xid: int) -> None:
        self.last_xid = xid

    def _settle(self) -> None:
        """Lets an ADD_XID wait that no reserve followed."""
        named, self._named = self._named, None
        if named is not None:
            self.has_names = True
            self.add(*named)

    def _has_room_for(self, batch: OpBatch) -> bool:
        """Says whether a batch cannot make memory full, even if all that is open goes back."""
        bytes_max = self.memory_bytes + self.open_bytes + batch.borders[-1] - batch.borders[0]
        count_max = len(self._memory) + len(self._open) + batch.op_count
        is_small = bytes_max < self.memory_bytes_max and count_max < _MEMORY_ITEMS_MAX
        return is_small and self._behind is None

    def _enter(self, segment: Segment) -> None:
        assert self._files is not None
        if self.is_behind and self._named is None and self._files.has_checkpoints:
            at = self._files.listed.index(segment)
            self.checkpoints.add(self._files.listed[at - 1], self.open, self.last_xid)
        self.era = segment.era

    # -- inside -----------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        if self.memory_bytes >= self.memory_bytes_max:
            return bool(self._memory)
        return len(self._memory) >= _MEMORY_ITEMS_MAX

    def _unpacked(self, one: Entry | Raw) -> Entry:
        if isinstance(one, bytes):
            return Entry(*codec.split_addx(one), 0, self._raw_era)
        if isinstance(one, int):
            return Entry(bytes(one - codec.ADDX_BYTES), 0, 0, 0, self._raw_era)
        return one

    def _keep(self, item: Item) -> Entry:
        data = item.data if isinstance(item.data, bytes) else bytes(item.data)
        return Entry(data, item.add_ms, item.expiry_ms, item.xid, self.era)

    def _pop(self) -> Entry | None:
        """Takes the head; None if there is none, which is counted."""
        if not self._memory:
            self._check_read()
            self.missed += 1
            return None
        entry = self._unpacked(self._memory.popleft())
        self.memory_bytes -= len(entry.data)
        if self._behind is not None:
            self.checkpoints.note(entry, self.era)
            if self._failure is None:
                try:
                    self._fill(self._behind)
                except (OSError, FjordError) as error:
                    self._failure = error  # for whoever wants what cannot be read
        return entry

    def _close(self, xid: int) -> Entry | None:
        one = self._open.pop(xid, None)
        if one is None:
            self.missed += 1
            return None
        entry = self._unpacked(one)
        self.open_bytes -= len(entry.data)
        return entry

    def _fresh_xid(self) -> int:
        self.last_xid = self.next_xid()
        return self.last_xid

    def _reserve(self, xid: int, entry: Entry) -> int:
        before = self._open.pop(xid, None)
        self._open[xid] = entry
        self.open_bytes += len(entry.data)
        self.reserved_xid = xid
        if before is not None:
            self.displaced += 1
            self._open[self._fresh_xid()] = before
        return xid

    def _check_read(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fill(self, behind: Behind) -> None:
        """Reads as many items as memory may have, the head in any case."""
        while self.behind_count and not self._is_full():
            item = behind.next()
            data = bytes(item.data)
            era = behind.segment.era
            self._memory.append(Entry(data, item.add_ms, item.expiry_ms, item.xid, era))
            self.behind_count -= 1
            self.behind_bytes -= len(data)
            self.memory_bytes += len(data)
        if self.behind_count == 0:
            self.close()


# Ops without an item, by number.  Those that have no xid ignore it.
APPLIERS: Final[dict[int, Callable[[Items, int], object]]] = {
    Opcode.REMOVE: lambda items, xid: items.take(),
    Opcode.SAVE_XID: Items._apply_save_xid,
    Opcode.UNREMOVE: Items.unremove,
    Opcode.CONFIRM_REMOVE: Items.confirm,
    Opcode.REMOVE_TENTATIVE_XID: Items.reserve,
    Opcode.STATE_DUMP: Items._apply_save_xid,
}


# -- what a pack in the middle of a journal must hold ---------------------------------------------
#
# While a queue is in read-behind, its older files can be replaced as soon as all of their items
# were read, by a file that means the same *to the files after them*, which stay as they are.  So it
# has to hold the queue as of the end of the older files, the *checkpoint*, not the queue of now:
# the removes that were done since are in the newer files and are done again when those are read.
#
#     open then         with its data if it is still needed, else an empty item
#     taken since       in the order in which it was taken; the same
#     waiting still     all that waited then, and waits
#
# So the data of items that are gone is not written, but their places are.  Kestrel writes the items
# that became open since first and counts the others, which mixes them up when somebody removes in
# between.
#
# Memory: an item that is gone gives its data away; runs of such items are one number.


# What an item takes besides its data: an ADDX, and if it is open what says so, in any dialect.
_OVERHEAD_BYTES: Final = 21
_OPEN_BYTES: Final = 5
_RUNS_MIN: Final = 1_000
# Stands for an item that is gone; always the same object, so it is encoded once.
_PLACE: Final = Op(Opcode.ADDX, 0, Item(b""))


@dataclass(slots=True)
class _Run:
    """Items that were taken one after the other: one item, or so many that are gone."""

    entered: int  # the era in which they began to wait
    taken: int
    count: int
    entry: Entry | None

    @property
    def is_gone(self) -> bool:
        return self.entry is None or self.entry.is_gone


@dataclass(slots=True)
class Checkpoint:
    """The end of a file, and what was open then."""

    segment: Segment
    open: dict[int, Entry]
    last_xid: int


class Checkpoints:
    """The checkpoints that are ahead of the reader, and what was taken since the first one."""

    def __init__(self) -> None:
        self.waiting: list[Checkpoint] = []
        self._runs: list[_Run] = []
        self._compact_at = _RUNS_MIN

    def add(self, segment: Segment, open_now: dict[int, Entry], last_xid: int) -> None:
        self.compact()
        self.waiting.append(Checkpoint(segment, dict(open_now), last_xid))

    def clear(self) -> None:
        self.waiting.clear()
        self._runs.clear()

    def note(self, entry: Entry, era: int) -> None:
        """Takes note of an item that left the head, before it goes."""
        if not self.waiting or entry.era >= era:
            return
        self._shrink()
        self._runs.append(_Run(entry.era, era, 1, entry))
        if len(self._runs) >= self._compact_at:
            self.compact()

    def _shrink(self) -> None:
        """Joins the last runs while what they had is gone."""
        runs = self._runs
        while len(runs) > 1:
            one, other = runs[-2], runs[-1]
            if not (one.is_gone and other.is_gone):
                return
            if one.entered != other.entered or one.taken != other.taken:
                return
            one.count += other.count
            one.entry = None
            runs.pop()

    def compact(self) -> None:
        """Joins runs wherever possible: items that were open may be gone by now."""
        runs, self._runs = self._runs, []
        for run in runs:
            self._runs.append(run)
            self._shrink()
        # What is left is open, or between what is; so this takes a bounded part of the time.
        self._compact_at = 2 * len(self._runs) + _RUNS_MIN

    def reached(self, era: int) -> Checkpoint | None:
        """Returns the last checkpoint that a reader in this era has passed; drops those before."""
        found = None
        while self.waiting and self.waiting[0].segment.era < era:
            found = self.waiting.pop(0)
        return found

    def forget(self) -> None:
        """Drops what no checkpoint needs any more."""
        first = self.waiting[0].segment.era if self.waiting else None
        self._runs = [] if first is None else [run for run in self._runs if run.taken > first]

    def taken(self, checkpoint: Checkpoint) -> Iterator[Entry | int]:
        """Yields what waited then and was taken since: items, or how many that are gone."""
        era = checkpoint.segment.era
        for run in self._runs:
            if run.entered <= era < run.taken:
                yield run.count if run.entry is None or run.entry.is_gone else run.entry


def made(
    open_then: dict[int, Entry],
    taken: Iterable[Entry | int],
    waiting: Iterable[Entry],
    *,
    last_xid: int,
    dialect: Dialect,
) -> Iterator[Op]:
    """Yields the ops that make a queue out of nothing."""
    if dialect is Dialect.DOC:
        yield codec.save_xid(last_xid)
    for xid in sorted(open_then, reverse=True):
        item = open_then[xid].item()
        if dialect is Dialect.DOC:
            yield Op(Opcode.ADD_XID, xid, item._replace(xid=xid))
            yield codec.remove_tentative()
        else:
            yield Op(Opcode.ADDX, 0, item)
            yield codec.remove_tentative(xid)
    for one in taken:
        if isinstance(one, Entry):
            yield Op(Opcode.ADDX, 0, one.item())
            continue
        for _ in range(one):
            yield _PLACE
    for entry in waiting:
        yield Op(Opcode.ADDX, 0, entry.item())


def size_of(
    open_then: dict[int, Entry], taken: Iterable[Entry | int], waiting: Iterable[Entry]
) -> int:
    """Returns how large a file of these is."""
    listed = [*open_then.values(), *waiting, *taken]
    entries = [one for one in listed if isinstance(one, Entry)]
    gone = sum(one for one in listed if not isinstance(one, Entry))
    return file_size(len(entries) + gone, len(open_then), sum(len(one.data) for one in entries))


def file_size(count: int, open_count: int, data_bytes: int) -> int:
    """Returns how large a file of so many items is, of which some are open."""
    return data_bytes + count * _OVERHEAD_BYTES + open_count * _OPEN_BYTES
