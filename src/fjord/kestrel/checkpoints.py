"""What a pack in the middle of a journal must hold.

While a queue is in read-behind, its older files can be replaced as soon as all of their items were
read, by something that means the same *for the files behind them*, which stay as they are.  So it
has to be the queue as of the end of the older files, the *checkpoint*.  Not as of now: the removes
that were done since stand in the newer files and are done again when those are read.

    open then         with its data if it is needed still, else an empty item
    taken since       in the order in which it was taken; the same
    waiting still     all that waited then, and waits

So data of items that are gone is not written, but their places are.  Kestrel writes the items that
became open since first and counts the others, which mixes them up when somebody removes in between.

Memory: an item that is gone gives its data away; runs of such items are one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fjord.kestrel import codec
from fjord.kestrel.codec import Dialect, Item, Op, Opcode
from fjord.kestrel.journal import Segment

# What an item takes beside its data: an ADDX, and if it is open what says so, in any dialect.
_OVERHEAD_BYTES: Final = 21
_OPEN_BYTES: Final = 5
_RUNS_MIN: Final = 1_000
# Stands for an item that is gone; always the same one, which is written fast.
_PLACE: Final = Op(Opcode.ADDX, 0, Item(b""))


@dataclass(slots=True, eq=False)
class Entry:
    """An item of a queue that is in use."""

    data: bytes
    added_ms: int
    expires_ms: int
    xid: int  # the xid that it brought along from another's file, 0 = none
    era: int  # of the file that was written to when it began to wait
    is_gone: bool = False

    def go(self) -> None:
        """It is removed for good."""
        self.is_gone = True
        self.data = b""

    def item(self) -> Item:
        return Item(self.data, self.added_ms, self.expires_ms)


@dataclass(slots=True)
class _Run:
    """Items that were taken one behind the other: one, or so many that are gone."""

    entered: int  # the era in which they began to wait
    taken: int
    count: int
    entry: Entry | None


@dataclass(slots=True, kw_only=True)
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
        self.waiting.append(Checkpoint(segment=segment, open=dict(open_now), last_xid=last_xid))

    def clear(self) -> None:
        self.waiting.clear()
        self._runs.clear()

    def note(self, entry: Entry, era: int) -> None:
        """Takes note of an item that left the head, before it goes."""
        if not self.waiting or entry.era >= era:
            return
        if len(self._runs) > 1 and self._join(entry, era):
            return
        self._shrink()
        self._runs.append(_Run(entry.era, era, 1, entry))
        if len(self._runs) >= self._compact_at:
            self.compact()

    def _join(self, entry: Entry, era: int) -> bool:
        """Counts the last item with those before it and puts this one there; False if it cannot be.

        It does what `_shrink` and a new run do, when items are taken one behind the other.
        """
        one, last = self._runs[-2:]
        if one.entry is not None or last.entry is None or not last.entry.is_gone:
            return False
        if not one.entered == last.entered == entry.era or not one.taken == last.taken == era:
            return False
        one.count += 1
        last.entry = entry
        return True

    def _shrink(self) -> None:
        """Makes the last runs one, if what they had is gone."""
        runs = self._runs
        while len(runs) > 1:
            one, other = runs[-2], runs[-1]
            if (one.entered, one.taken) != (other.entered, other.taken):
                return
            if not (_is_gone(one) and _is_gone(other)):
                return
            runs[-2:] = [_Run(one.entered, one.taken, one.count + other.count, None)]

    def compact(self) -> None:
        """Makes runs one wherever they can be: items that were open may be gone by now."""
        runs, self._runs = self._runs, []
        for run in runs:
            self._runs.append(run)
            self._shrink()
        # What is left is open, or between what is; so this takes no more than a part of the time.
        self._compact_at = 2 * len(self._runs) + _RUNS_MIN

    @property
    def runs(self) -> int:
        return len(self._runs)

    def reached(self, era: int) -> Checkpoint | None:
        """Returns the last checkpoint that a reader in this era is behind; forgets those before."""
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
                gone = _is_gone(run)
                yield run.count if gone or run.entry is None else run.entry


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
    entries = [*open_then.values(), *waiting]
    count = len(entries)
    for one in taken:
        if isinstance(one, Entry):
            entries.append(one)
            count += 1
        else:
            count += one
    return file_size(count, len(open_then), sum(len(one.data) for one in entries))


def file_size(count: int, open_count: int, data_bytes: int) -> int:
    """Returns how large a file of so many items is, of which some are open."""
    return data_bytes + count * _OVERHEAD_BYTES + open_count * _OPEN_BYTES


def _is_gone(run: _Run) -> bool:
    return run.entry is None or run.entry.is_gone
