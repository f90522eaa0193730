"""Where commits end inside of a block, for batches that are smaller than blocks.

The column `txn` has the last seq of each row's commit.  It is all that is read of a block: a few
hundred bytes for each part of its file, and 16 bytes of memory for each commit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from datetime import datetime
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from fjord.client.stream_calls import BlockInfo
from fjord.spark.reading import files

# A stream goes from one block to the next; the one before is only asked for after a restart.
_KEPT: Final = 2


class Cut(NamedTuple):
    """The end of a batch inside of a block."""

    seq: int  # the end of a commit; where it began, if there are no rows
    rows: int


class Ends:
    """The ends of all commits of a block, and how many rows there are up to each."""

    def __init__(self, txns: array[int], rows: array[int]) -> None:
        self._txns = txns
        self._rows = rows

    def cut(self, after: int, until: int, rows_max: int) -> Cut:
        """Returns where a batch ends that begins behind a seq.

        Commits are taken while they end up to `until` and have `rows_max` rows together, 0 = any
        number.  The first one may have more: otherwise no batch could ever have it.
        """
        first = bisect_right(self._txns, after)
        stop = bisect_right(self._txns, until)
        before = self._rows[first - 1] if first else 0
        if rows_max:
            stop = min(stop, max(bisect_right(self._rows, before + rows_max), first + 1))
        if stop <= first:
            return Cut(after, 0)
        return Cut(self._txns[stop - 1], self._rows[stop - 1] - before)


class CommitEnds:
    """The ends of commits of the blocks that were asked for last."""

    def __init__(self, blocks: str) -> None:
        self._blocks = blocks  # where they are, if not where the node says
        self._kept: OrderedDict[str, Ends] = OrderedDict()

    def of(self, block: BlockInfo) -> Ends:
        """Returns the ends of a block's commits.

        Raises:
            FjordError: if the block cannot be read here.
        """
        if block.name not in self._kept:
            self._kept[block.name] = read_ends(block, self._blocks)
        self._kept.move_to_end(block.name)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[block.name]


def read_ends(block: BlockInfo, blocks: str = "") -> Ends:
    """Reads where the commits of a block end, a part at a time."""
    txns, rows, count = array("q"), array("q"), 0
    with files.opened(block, blocks) as file:
        for number in range(file.num_row_groups):
            column = file.read_row_group(number, columns=["txn"]).column(0).combine_chunks()
            runs = compute.run_end_encode(column, run_end_type=pa.int64())
            found = runs.values.to_pylist()
            ends = [count + end for end in runs.run_ends.to_pylist()]
            if txns and found and txns[-1] == found[0]:  # it goes on from the part before
                txns.pop()
                rows.pop()
            txns.extend(found)
            rows.extend(ends)
            count += len(column)
    return Ends(txns, rows)


def seq_before(block: BlockInfo, at: datetime, blocks: str = "") -> int:
    """Returns the last seq of a block that was committed before a moment.

    That is the seq before its first one if none was.
    """
    found = block.first - 1
    moment = pa.scalar(at, pa.timestamp("us", tz="UTC"))
    with files.opened(block, blocks) as file:
        for number in range(file.num_row_groups):
            part = file.read_row_group(number, columns=["ts", "txn"])
            is_later = compute.greater_equal(part["ts"], moment)
            position = compute.index(is_later, True).as_py()
            if position:
                found = part["txn"][position - 1 if position > 0 else -1].as_py()
            if position >= 0:
                break
    return int(found)
