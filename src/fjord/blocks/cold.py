"""Reading streams where they are cold: what the engine says is in a block is read from there.

The engine names the block (`InBlock`); everything else is in the block itself.  Calls block, and
any thread may make them.  What is in memory, and for whom, is the business of `parts`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pyarrow as pa
from pyarrow import compute

from fjord import limits
from fjord.blocks import messages
from fjord.blocks.catalog import Catalog
from fjord.blocks.messages import MESSAGES, MessagePart
from fjord.blocks.parquet import Part
from fjord.blocks.parts import Key, OpenBlock, Parts
from fjord.blocks.store import Store
from fjord.clock import Clock, SystemClock
from fjord.columns import Strings
from fjord.commands import InBlock, Messages, Read


class Cold:
    """A reader of blocks.

    All of its calls raise FileNotFoundError if the block is gone, as by retention: the engine then
    knows of another one.  They raise CorruptionError, with the block's name, if it is damaged, or
    is not the one that the engine knows.
    """

    def __init__(
        self, store: Store, bytes_max: int = limits.COLD_BYTES_MAX, clock: Clock | None = None
    ) -> None:
        self._parts = Parts(Catalog(store), bytes_max, clock or SystemClock())

    def read(self, where: InBlock, command: Read) -> Messages:
        """Returns messages of a block, as many as are wanted and are in one part of it.

        None only if there are no more in the block; then `after` is its end.
        """
        block = self._parts.open(where.name, where)
        who = (command.table, command.subscriber) if command.subscriber else None
        until = max(min(where.until, where.last), where.after)
        count = min(command.count or limits.READ_COUNT_MAX, limits.READ_COUNT_MAX)
        bytes_max = min(command.bytes_max or limits.READ_BYTES_MAX, limits.READ_BYTES_MAX)
        for number in _numbers_after(block, where.after, until):
            key = Key(block.name, number)
            part = self._parts.get(key, who)
            start, end = part.span(where.after, until, count, bytes_max)
            if 4 * end >= 3 * part.rows:
                self._parts.come_near_end(key, who)
            if start < end:
                is_last = _is_last(block, number, part, end, until)
                after = until if is_last else part.seq(end - 1)
                return _messages(where, part, (start, end), after)
        return _nothing(where, until)

    def locate(self, where: InBlock, wall_us: int) -> int:
        """Returns the seq before the first message of a block from a moment on.

        That is the block's last one if all are older.
        """
        block = self._parts.open(where.name, where)
        for number, part in enumerate(block.parts):
            if part.max_us < wall_us or _has_none(part):
                continue
            table = self._columns(block, number, ["seq", "ts"])
            is_later = compute.greater_equal(table["ts"].cast(pa.int64()), wall_us)
            position = compute.index(is_later, pa.scalar(True)).as_py()
            if position >= 0:
                return int(table["seq"][position].as_py()) - 1
        return where.last

    def count_after(self, where: InBlock, after: int) -> int:
        """Returns how many messages of a block are behind a seq."""
        block = self._parts.open(where.name, where)
        found = 0
        for number, part in enumerate(block.parts):
            if part.max_seq <= after or _has_none(part):
                continue
            if part.min_seq > after and part.op:
                found += part.rows
            else:
                seqs = self._columns(block, number, ["seq"])["seq"]
                found += compute.sum(compute.greater(seqs, after)).as_py() or 0
        return found

    def rest(self, table: str, subscriber: str) -> None:
        """Drops what is held for a subscriber."""
        self._parts.rest((table, subscriber))

    def forget(self, table: str) -> None:
        """Drops all that is held of a table."""
        self._parts.forget(table)

    def stats(self) -> dict[str, int]:
        """Returns how many parts are in memory, their bytes, and what was loaded so far."""
        return self._parts.stats()

    def close(self) -> None:
        """Waits for what is being loaded, and forgets everything."""
        self._parts.close()

    def _columns(self, block: OpenBlock, number: int, names: list[str]) -> Any:
        """Returns columns of the messages of a part."""
        wanted = names if block.parts[number].op else [*names, "op"]
        table = self._parts.read_columns(Key(block.name, number), wanted)
        return messages.only_messages(table)


def _has_none(part: Part) -> bool:
    """Says that a part has no message."""
    return bool(part.op) and part.op not in MESSAGES


def _numbers_after(block: OpenBlock, after: int, until: int) -> range:
    """Returns which parts may have messages between two seqs."""
    first = bisect_right(block.parts, after, key=lambda part: part.max_seq)
    end = bisect_right(block.parts, until, key=lambda part: part.min_seq)
    return range(first, end)


def _is_last(block: OpenBlock, number: int, part: MessagePart, end: int, until: int) -> bool:
    """Says whether no message of the block follows up to a seq."""
    if end < part.rows:
        return part.seq(end) > until
    following = block.parts[number + 1 :]
    return not following or following[0].min_seq > until


def _messages(where: InBlock, part: MessagePart, span: tuple[int, int], after: int) -> Messages:
    start, end = span
    return Messages(
        first_seqs=[part.seq(start)],
        walls_us=[part.wall_us(start)],
        ops=Strings.of([part.encode(where.table, start, end)]),
        after=after,
        until=where.until,
        ended=after >= where.until,
        rows=end - start,
    )


def _nothing(where: InBlock, after: int) -> Messages:
    return Messages(
        first_seqs=[],
        walls_us=[],
        ops=Strings.of([]),
        after=after,
        until=where.until,
        ended=after >= where.until,
        rows=0,
    )
