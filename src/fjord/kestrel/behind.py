"""Read-behind: a queue that is larger than memory is read again from the files it was written to.

`Behind` goes through the journal from the first item that is not in memory.  It looks for items
alone: removes that it meets have been done already, and open items of a rewritten file never
waited.  Whoever asks knows how many items are there, so it never asks for more than were written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Final, Protocol

from fjord import disk as disks
from fjord import limits
from fjord.errors import CorruptionError
from fjord.kestrel import codec
from fjord.kestrel.journal import Segment
from fjord.kestrel.ops import Item, Op, Opcode

# Read at a time, beside the items in memory.
_CHUNK_BYTES: Final = 256 * limits.KIB
# A name of a module is found faster than one of an enum.
_ADD_XID: Final = Opcode.ADD_XID


class Written(Protocol):
    """Files of a queue that items are read from again."""

    @property
    def segments(self) -> list[Segment]: ...

    @property
    def item_bytes_max(self) -> int: ...

    @property
    def has_checkpoints(self) -> bool:
        """Says whether some of the files may be replaced while others are read."""
        ...

    def open_segment(self, segment: Segment) -> disks.File: ...

    def after(self, segment: Segment) -> Segment | None: ...


class Behind:
    """Reads items from a place in the journal on."""

    def __init__(self, journal: Written, segment: Segment, offset: int, now_ms: int) -> None:
        """Begins.

        Args:
            journal: the files.
            segment: the file in which the first item stands.
            offset: where its op begins.
            now_ms: the add time of items that have none.
        """
        self._journal = journal
        self.segment = segment  # where the last item was read
        self._now_ms = now_ms
        self._ops = self._all_ops(segment, offset)
        self._items = self._all_items()

    def next(self) -> Item:
        """Returns the next item, which must be there; copy its data before the next call.

        Raises:
            CorruptionError: if the file has changed since it was written.
        """
        return next(self._items)

    def close(self) -> None:
        self._items.close()
        self._ops.close()

    def _all_items(self) -> Generator[Item]:
        dump_left = 0
        op = self._next_op()
        while True:
            item, following = op.item, None
            if op.opcode is _ADD_XID:
                assert item is not None
                copy = item._replace(data=bytes(item.data))
                is_told = bool(dump_left and op.xid)
                dump_left -= is_told
                following = next(self._ops)
                if following is not None and following.opcode is Opcode.REMOVE_TENTATIVE:
                    following = None  # it was open at once
                elif not is_told:
                    yield copy
            elif item is not None:
                dump_left = 0
                yield item
            else:
                dump_left = op.open_count
            op = following or self._next_op()

    def _next_op(self) -> Op:
        op = next(self._ops)
        if op is None:
            raise CorruptionError(self.segment.name, self.segment.size, "an item is missing")
        return op

    def _all_ops(self, segment: Segment, offset: int) -> Generator[Op | None]:
        """Yields ops, and None where there are no more so far."""
        while True:
            self.segment = segment
            yield from self._ops_of(segment, offset)
            following = self._journal.after(segment)
            assert following is not None
            segment, offset = following, 0

    def _ops_of(self, segment: Segment, offset: int) -> Iterator[Op | None]:
        decoder = codec.Decoder(
            now_ms=self._now_ms,
            item_bytes_max=self._journal.item_bytes_max,
            offset=offset,
        )
        with contextlib.closing(self._journal.open_segment(segment)) as file:
            while True:
                if offset < segment.size:
                    data = file.read(offset, min(_CHUNK_BYTES, segment.size - offset))
                    offset += len(data)
                    decoder.feed(data)
                    for op, _, _ in decoder.ops():
                        yield op
                    broken = decoder.broken
                    # What a start has cut off since this was read is no damage.
                    if broken is not None and broken.offset < segment.size:
                        raise CorruptionError(segment.name, broken.offset, broken.reason)
                elif self._journal.after(segment) is not None:
                    decoder.end()  # a STATE_DUMP may be the last op of a file
                    for op, _, _ in decoder.ops():
                        yield op
                    return
                else:
                    yield None
