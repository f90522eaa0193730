"""What a Kestrel journal means: the fold of its ops is a queue, its open items and the last xid.

    waiting  --REMOVE_TENTATIVE-->  open  --CONFIRM_REMOVE-->  gone
       ^                              |
       +----------UNREMOVE------------+     (to the head)

`State.apply` takes one op after the other and never refuses; `Counting` takes many at a time, too,
without an object for each.  An op on something that is not there changes nothing, as in Kestrel,
and is counted in `missed`.  Nothing expires: whether an item has is asked when it is handed out,
not when it is read.

Xids.  REMOVE_TENTATIVE has none: the item gets the one that it brought along with ADD_XID, else
the next.  One that stands right behind an ADD_XID means that very item, wherever the head is, so
a rewritten file may have its open items in any place.  The next xid is one more than the last; 0
and those of open items are skipped, and behind the largest comes the smallest.

No item is dropped because its xid is taken already: the one that was open before gets the next
xid, and is counted in `displaced`.

STATE_DUMP tells the open items again.  Those that are open already stay as they are, the others
become open, whether a REMOVE_TENTATIVE follows each of them or not.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from fjord.kestrel import codec, ops
from fjord.kestrel.codec import Batch, Dialect
from fjord.kestrel.ops import Item, Op, Opcode


class Kept(Protocol):
    """What a state keeps of an item."""

    @property
    def size(self) -> int: ...

    @property
    def xid(self) -> int: ...

    def _replace(self, *, xid: int) -> Self: ...


class Sized(NamedTuple):
    """All that counting needs of an item."""

    size: int
    xid: int = 0


T = TypeVar("T", bound=Kept)


class State(Generic[T]):
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
        self._keep = keep
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
            xid = xid + 1 if xid < ops.XID_MAX else ops.XID_MIN
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


class Counting(State[Sized]):
    """A state that has numbers and bytes of items only."""

    def __init__(self) -> None:
        super().__init__(_keep_size)

    def apply_batch(self, batch: Batch) -> None:
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


def whole() -> State[Item]:
    """Returns a state that has the items themselves, copied from what they were read from."""
    return State(_keep_whole)


def counting() -> Counting:
    """Returns a state that has numbers and bytes of items only."""
    return Counting()


def rewritten(state: State[Item], dialect: Dialect) -> Iterator[Op]:
    """Yields the ops that make this state out of nothing, as a rewritten file has them.

    The last xid is told by `kestrel-doc` only.  Xids that waiting items brought along are dropped:
    whoever writes next gives out new ones.
    """
    if dialect is Dialect.DOC:
        yield ops.save_xid(state.last_xid)
    for xid in sorted(state.open, reverse=True):
        item = state.open[xid]
        if dialect is Dialect.DOC:
            yield Op(Opcode.ADD_XID, xid, item._replace(xid=xid))
            yield ops.remove_tentative()
        else:
            # The queue is empty so far, so the head is what was just added.
            yield Op(Opcode.ADDX, 0, item._replace(xid=0))
            yield ops.remove_tentative(xid)
    for item in state.queue:
        yield Op(Opcode.ADDX, 0, item._replace(xid=0))


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

_OP_APPLIERS: Final[dict[Opcode, Callable[[State[Any], Op], None]]] = {
    Opcode.ADD: State.apply_add,
    Opcode.ADDX: State.apply_add,
    Opcode.ADD_XID: State.apply_add_xid,
    Opcode.CONTINUE: State.apply_continue,
    Opcode.STATE_DUMP: State.apply_state_dump,
}
# By number; those without an xid pass it over.
_XID_APPLIERS: Final[dict[int, Callable[[State[Any], int], None]]] = {
    Opcode.REMOVE: State.apply_remove,
    Opcode.REMOVE_TENTATIVE: State.apply_reserve,
    Opcode.SAVE_XID: State.apply_save_xid,
    Opcode.UNREMOVE: State.apply_unremove,
    Opcode.CONFIRM_REMOVE: State.apply_confirm,
    Opcode.REMOVE_TENTATIVE_XID: State.apply_reserve_xid,
}
