"""The extent of a table's history, as the driver sees it: blocks, then the journal.

    blocks   |-- 1 --|---- 2 ----|          each ends where a commit ends
    journal                  |---------->   begins anywhere at or before the end of the last block

All seqs here are ends: everything up to `after` was read, and a batch goes from the following seq
up to the end of a commit.  So no batch has a part of a commit.

Blocks are listed when something is planned, and when the journal no longer goes back far enough.
First the beginning of the journal is asked for, then the list: so whatever has left the journal is
in a listed block.

Lost rows.  Retention removes blocks, and packing removes the journal of tables without history, and
that of jobs and of the latest values if the node writes no blocks.  A query that has not read them
by then has lost rows, and must report that.  The beginning is no exception: once a query has the
offset 0, it is a position like any other.  Only a query that starts with the earliest position or
seq 1 means whatever is left.
"""

from __future__ import annotations

import contextlib
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import compute
from pyarrow import parquet as pq

import fjord
from fjord import kinds, streams
from fjord.blocks import parquet
from fjord.blocks.store import Store
from fjord.client.history import BlockInfo, SpanInfo
from fjord.errors import Code, CorruptionError, FjordError, NotFoundError, RefusedError
from fjord.spark.declared import Declared
from fjord.spark.options import Location, Position, SourceOptions
from fjord.spark.source import FIRST_ROW, cold_end

_LOG: Final = logging.getLogger("fjord.spark")
# The journal may be packed again between two requests, but not this often.
_TRIES: Final = 3
# How many writers to go back for the end of an epoch; a few dozen requests for each.
_EPOCHS_MAX: Final = 100

_Answer = TypeVar("_Answer")


class Bounds(NamedTuple):
    """Bounds of a batch; 0 = none."""

    rows_max: int = 0
    bytes_max: int = 0
    until: int = 0  # the last seq that counts


UNBOUND: Final = Bounds()


class BatchEnd(NamedTuple):
    """The end of a batch, and what follows it."""

    seq: int  # the end of a commit; where the batch began, if it has no rows
    rows: int
    bytes: int  # as they are stored
    epoch: str  # of `seq`; empty: nobody knows
    is_cut: bool  # there is more than the bounds allow
    end: int  # behind here there is nothing, as far as was looked

    def joined(self, seq: int, rows: int, size: int) -> BatchEnd:
        """Returns the batch extended by rows up to a seq."""
        return self._replace(seq=seq, rows=self.rows + rows, bytes=self.bytes + size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """The properties of a table's history."""

    kind: str  # kv, jobs or stream
    has_history: bool  # what leaves the journal goes to blocks
    forgets: bool  # what is in blocks goes, too
    is_latest: bool  # the current value of a key can be asked for

    @classmethod
    def of(cls, info: fjord.TableInfo) -> Nature:
        found = kinds.settings_of(info.kind, info.settings)
        stream = found if isinstance(found, streams.Settings) else streams.Settings()
        return cls(
            kind=info.kind,
            has_history=bool(found and found.history),
            forgets=bool(stream.retention_us or stream.retention_bytes),
            is_latest=info.kind == kinds.Kind.KV or stream.mode is streams.Mode.LATEST,
        )


class Extent:
    """The history of one table."""

    def __init__(self, database: fjord.Database, options: SourceOptions) -> None:
        self.database = database
        self._options = options
        self._table = options.table
        try:
            info = database.table(options.table)
        except NotFoundError as error:
            raise FjordError(
                f"there is no table {options.table!r} in {options.location}; check the option "
                "table. The first write to a table creates it"
            ) from error
        self.nature = Nature.of(info)
        self.declared = Declared.of(info)
        self.blocks: list[BlockInfo] = []
        self.first_seq = 1  # where the journal begins
        self.refresh()

    def refresh(self) -> None:
        """Updates the beginning of the journal, the list of blocks, and the schemas."""
        self.first_seq = self.database.stats()["first_seq"]
        if self.nature.kind != kinds.Kind.KV:
            self.blocks = self.database.blocks(self._table)
        if self.declared.current.columns:
            self.declared = Declared.of(self.database.table(self._table))

    # -- places -----------------------------------------------------------------------------------

    def earliest(self) -> int:
        """Returns the seq after which the remaining history begins."""
        return (self.blocks[0].first if self.blocks else self.first_seq) - 1

    def locate(self, place: Position) -> int:
        """Returns the seq before a position.

        Raises:
            FjordError: if there is no such position.
        """
        if begins(place):
            return self.earliest()
        if place.seq:
            return place.seq - 1
        if place.subscriber:
            return self._mark(place.subscriber)
        if place.at is not None:
            return self._before(place.at)
        return self.tail(0).seq

    def _before(self, at: datetime) -> int:
        for block in self.blocks:
            if block.max_at >= at:
                return seq_before(block, at, self._options.blocks)
        return self.tail(0, before=at).seq

    def _mark(self, name: str) -> int:
        self.require_stream("startingSubscriber")
        for found in self.database.stream(self._table).subscribers():
            if found.name == name:
                return found.position
        raise FjordError(
            f"stream {self._table} has no subscriber {name!r}; check the option "
            "startingSubscriber, `fjord stream subscribers` lists them"
        )

    def require_stream(self, option: str) -> None:
        """Makes sure that an option is used with a stream.

        Raises:
            FjordError: if the table is not a stream.
        """
        if self.nature.kind != kinds.Kind.STREAM:
            raise FjordError(
                f"the option {option} is for streams, which have subscribers; {self._table} is a "
                f"{self.nature.kind} table"
            )

    # -- loss -------------------------------------------------------------------------------------

    def lost(self, after: int) -> tuple[int, int] | None:
        """Returns the range of lost seqs after `after`, both included; None if there are none.

        Whether the table had rows in that range is no longer known.
        """
        start = self.earliest()
        if after < start and (self.nature.forgets or not self.nature.has_history):
            return after + 1, start
        begin = max(after, cold_end(self.blocks))
        if not self.nature.has_history or begin + 1 >= self.first_seq:
            return None
        if is_behind_blocks(self.database, self._table, begin):
            return None
        return begin + 1, self.first_seq - 1

    def past_loss(self, after: int, *, seen: int = 0) -> int:
        """Returns where to continue if the rows after `after` are lost.

        Args:
            seen: there were no rows up to here, so they cannot be lost.

        Raises:
            FjordError: if losses are to be reported as errors.
        """
        missing = self.lost(max(after, seen))
        if missing is not None:
            self.refresh()  # the list of blocks must not be older than the answer
            missing = self.lost(max(after, seen))
        if missing is None:
            return after
        report_loss(self._options, *missing)
        is_next = missing[0] <= max(after, seen) + 1  # or there are blocks before it
        return missing[1] if is_next else after

    def epoch_of(self, after: int, *, known: str = "") -> str:
        """Returns the epoch of a seq, which may be only in blocks.

        Raises:
            RefusedError: with FORKED, if it differs from `known`.
        """
        if not after:
            return ""
        return self.database.span(self._table, after, until=after, epoch=known).epoch

    def common(self, seq: int, epoch: str) -> int:
        """Returns the seq up to which this history agrees with one that had an epoch at a seq.

        That is the last seq of that epoch here.  If the epoch never existed here, it is the
        beginning of the remaining history.
        """
        at = min(seq, self.tail(0).durable_seq)
        for _ in range(_EPOCHS_MAX):
            found = self.epoch_of(at)
            if not found or not epoch:
                break
            if found == epoch:
                return at
            # The last seq of an earlier epoch.
            at = bisect_left(range(1, at), True, key=lambda seq: self.epoch_of(seq) == found)
        return self.earliest()

    # -- batches ----------------------------------------------------------------------------------

    def tail(self, after: int, *, until: int = 0, before: datetime | None = None) -> SpanInfo:
        """Returns the rows after a seq that are not in blocks."""
        return self._while_packed(
            lambda: self._span(self._tail_begin(after), until=until, before=before)
        )

    def advance(
        self, after: int, bounds: Bounds = UNBOUND, *, epoch: str = "", seen: int = 0
    ) -> BatchEnd:
        """Returns the next batch after a seq.

        Args:
            after: everything up to here was read.
            bounds: the maximum size of the batch.
            epoch: of `after`, if it is known.
            seen: there were no rows up to here.

        Raises:
            RefusedError: with FORKED, if the rows read so far are from another history; with
                BAD_RANGE, if nothing was ever written there.
            FjordError: if the next rows are lost.
        """
        return self._while_packed(
            lambda: self._advance(self.past_loss(after, seen=seen), bounds, epoch)
        )

    def _while_packed(self, ask: Callable[[], _Answer]) -> _Answer:
        """Asks again if the journal or the blocks have changed meanwhile."""
        for _ in range(_TRIES):
            try:
                return ask()
            except RefusedError as error:
                if error.code is not Code.BAD_RANGE:
                    raise
            except MissingBlockError:
                pass  # another one has its rows by now, or it is missing again
            self.refresh()
        return ask()

    def _span(self, after: int, **more: Any) -> SpanInfo:
        found = self.database.span(self._table, after, **more)
        if found.first_seq - 1 > after:  # what is before it may be in blocks, or gone
            raise RefusedError(Code.BAD_RANGE, f"the journal begins at seq {found.first_seq}")
        return found

    def _tail_begin(self, after: int) -> int:
        return max(after, cold_end(self.blocks), self.first_seq - 1)

    def _advance(self, after: int, bounds: Bounds, epoch: str) -> BatchEnd:
        cold, begin = self._advance_cold(after, bounds), self._tail_begin(after)
        if cold.is_cut or (bounds.until and bounds.until <= begin):
            return cold._replace(epoch=self.epoch_of(cold.seq))
        left = Bounds(
            rows_max=max(bounds.rows_max - cold.rows, 1) if bounds.rows_max else 0,
            bytes_max=max(bounds.bytes_max - cold.bytes, 1) if bounds.bytes_max else 0,
            until=bounds.until,
        )
        tail = self._span(begin, epoch=epoch if begin == after else "", **left._asdict())
        end = bounds.until or tail.durable_seq
        if not tail.rows:
            return cold._replace(epoch=self.epoch_of(cold.seq) if cold.rows else epoch, end=end)
        fits = not left.rows_max or tail.rows <= left.rows_max
        fits = fits and (not left.bytes_max or tail.bytes <= left.bytes_max)
        if cold.rows and not fits:
            return cold._replace(epoch=self.epoch_of(cold.seq), is_cut=True, end=end)
        is_bound = bool(bounds.rows_max or bounds.bytes_max) and tail.seq < end
        is_cut = is_bound and self._span(tail.seq, until=bounds.until, rows_max=1).rows > 0
        batch = cold.joined(tail.seq, tail.rows, tail.bytes)
        return batch._replace(epoch=tail.epoch, is_cut=is_cut, end=end)

    def _advance_cold(self, after: int, bounds: Bounds) -> BatchEnd:
        """Returns the part of a batch that is in blocks."""
        batch = BatchEnd(after, 0, 0, "", is_cut=False, end=max(after, cold_end(self.blocks)))
        for block in self.blocks:
            if block.last <= after or (bounds.until and block.first > bounds.until):
                continue
            room = _room(block, batch, bounds)
            if room <= 0:
                return batch._replace(is_cut=True)
            is_whole = block.first > after and not 0 < bounds.until < block.last
            if is_whole and block.rows <= room:
                batch = batch.joined(block.last, block.rows, block.bytes)
                continue
            ends = read_ends(block, self._options.blocks)
            until = min(bounds.until or block.last, block.last)
            start = max(after, block.first - 1)
            seq, rows = ends.cut(start, until, room if room < block.rows else 0)
            if batch.rows and rows > room:
                return batch._replace(is_cut=True)
            if rows:
                batch = batch.joined(seq, rows, rows * block.bytes // block.rows)
                if ends.cut(seq, until, 0)[1]:
                    return batch._replace(is_cut=True)
        return batch


def _room(block: BlockInfo, batch: BatchEnd, bounds: Bounds) -> int:
    """Returns how many more rows fit into a batch."""
    room = block.rows
    if bounds.rows_max:
        room = min(room, bounds.rows_max - batch.rows)
    if bounds.bytes_max:
        left = bounds.bytes_max - batch.bytes
        # An empty batch takes at least one commit, however large its rows are.
        least = 0 if batch.rows else 1
        room = min(room, max(left * block.rows // max(block.bytes, 1), least))
    return room


@contextlib.contextmanager
def extent_of(location: Location, table: str, blocks: str = "") -> Iterator[Extent]:
    """Opens a location and reads the extent of one table.

    Args:
        blocks: where blocks are, if not where the node says.

    Raises:
        FjordError: if there is no such table, or the location cannot be opened.
    """
    with location.open() as database:
        yield Extent(database, SourceOptions(location=location, table=table, blocks=blocks))


def begins(place: Position) -> bool:
    """Says whether a position is the beginning of whatever is left."""
    return place.seq == 1 or place.word == "earliest"


def is_behind_blocks(database: fjord.Database, table: str, after: int) -> bool:
    """Says whether a table had no rows between a seq and the beginning of the journal.

    That is true after the last block, if the node writes blocks.  Assumes that `after` is not
    before the end of the last block.
    """
    try:
        # Nothing is counted.  Behind seq 0 would mean behind whatever is gone.
        begin = max(after, FIRST_ROW - 1)
        database.span(table, begin, until=begin + 1)
    except RefusedError as error:
        if error.code is not Code.BAD_RANGE:
            raise
        return False
    return True


def report_loss(wanted: SourceOptions, first: int, last: int) -> None:
    """Reports that the rows of some seqs are lost.

    Raises:
        FjordError: unless losses are accepted.
    """
    text = f"the rows of {wanted.table} from seq {first} to {last} are gone and were not read"
    if wanted.fails_on_loss:
        raise FjordError(
            f"{text}; the query was slower than the retention of the table or the packing of the "
            "journal, or was down for too long. Run a batch again, restart a stream with a new "
            "checkpoint, or set failOnDataLoss to false to continue with the remaining rows"
        )
    _LOG.warning("%s; the query continues after them, since failOnDataLoss is false", text)


# -- files of blocks, as tasks of Spark open them: Parquet, from wherever fsspec can reach --------
#
# A file is checked before it is read: it must have the size and the number of rows that the node
# reports.  Its pages have checksums, which are verified as they are read.


class MissingBlockError(FjordError):
    """A block is missing."""


@contextlib.contextmanager
def opened(block: BlockInfo, blocks: str = "") -> Iterator[Any]:
    """Opens the file of a block, as a `ParquetFile`.

    Args:
        block: as the node knows it.
        blocks: where blocks are, if not where the node says.

    Raises:
        MissingBlockError: if it is not there.
        CorruptionError: if it is not the file that the node describes, or damaged.
    """
    store = Store(blocks or block.location)
    path = store.path(block.name)
    try:
        size = store.size(block.name)
        source = parquet.opened(store, block.name)
    except FileNotFoundError as error:
        raise MissingBlockError(
            f"this machine cannot find the block {path}. If the machines that run Spark see it "
            "elsewhere, give that location with the option blocks"
        ) from error
    with contextlib.closing(source):
        if size != block.bytes:
            reason = f"it has {size} bytes, and the node says {block.bytes}"
            raise CorruptionError(path, min(size, block.bytes), reason)
        try:
            with pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True) as file:
                if file.metadata.num_rows != block.rows:
                    reason = f"it has {file.metadata.num_rows} rows, not {block.rows}"
                    raise CorruptionError(path, 0, reason)
                yield file
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk or the network, not the bytes
            raise CorruptionError(path, 0, f"it cannot be read as Parquet ({error})") from error


# -- where commits end inside of a block, for batches that are smaller than blocks ----------------
#
# The column `txn` has the last seq of each row's commit.  Nothing else of a block is read: a few
# hundred bytes for each part of its file, and 16 bytes of memory for each commit.


class Ends(NamedTuple):
    """The ends of all commits of a block, and the number of rows up to each."""

    txns: array[int]
    rows: array[int]

    def cut(self, after: int, until: int, rows_max: int) -> tuple[int, int]:
        """Returns where a batch ends that begins after a seq, and how many rows it has.

        It takes commits that end at or before `until`, with at most `rows_max` rows in all, 0 = any
        number.  The first one may have more: otherwise no batch could ever contain it.
        """
        first = bisect_right(self.txns, after)
        stop = bisect_right(self.txns, until)
        before = self.rows[first - 1] if first else 0
        if rows_max:
            stop = min(stop, max(bisect_right(self.rows, before + rows_max), first + 1))
        if stop <= first:
            return after, 0
        return self.txns[stop - 1], self.rows[stop - 1] - before


# A stream goes from one block to the next; earlier ones are needed only after a restart.
@lru_cache(maxsize=2)
def read_ends(block: BlockInfo, blocks: str = "") -> Ends:
    """Reads the ends of the commits of a block, a part at a time.

    Raises:
        FjordError: if the block cannot be read here.
    """
    txns, rows, count = array("q"), array("q"), 0
    with opened(block, blocks) as file:
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
    """Returns the last seq of a block that was committed before a time.

    That is the seq before its first one if there is none.
    """
    found = block.first - 1
    moment = pa.scalar(at, pa.timestamp("us", tz="UTC"))
    with opened(block, blocks) as file:
        for number in range(file.num_row_groups):
            part = file.read_row_group(number, columns=["ts", "txn"])
            is_later = compute.greater_equal(part["ts"], moment)
            position = compute.index(is_later, True).as_py()
            if position:
                found = part["txn"][position - 1 if position > 0 else -1].as_py()
            if position >= 0:
                break
    return int(found)
