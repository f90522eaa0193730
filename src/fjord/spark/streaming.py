"""The stream `fjord`: `spark.readStream.format("fjord")`.

A process of the driver has a `FjordStreamReader` for as long as a query runs.  For each
micro-batch it asks how far the batch goes (`latestOffset`) and which tasks read it (`partitions`),
and then reports that the previous one is done (`commit`).  Tasks have a copy of the reader from
before all that; everything they need is in their partitions.

A batch ends where a commit ends, and begins where the previous one ended.  Its rows depend on
nothing else, so a batch that is run again after a crash has the same rows, wherever they are then.

If nothing is new, `latestOffset` waits for half a second before it says so, since Spark would ask
again after 10 ms.  For a stream, the daemon waits, so a new message is read at once; that is the
only request of an idle query.

Progress.  A query with a subscriber claims it at the start with a seek to where the query begins.
That increases the epoch of the subscriber, so the next acknowledgement of an earlier query is
refused: if two queries have the same subscriber, the older one ends with an error that says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource

import fjord
from fjord.clock import Clock, SystemClock
from fjord.errors import Code, FjordError, NotFoundError, RefusedError, StaleError
from fjord.kinds import Kind
from fjord.spark import progress, source
from fjord.spark.extent import BatchEnd, Bounds, Extent
from fjord.spark.options import LATEST, SourceOptions
from fjord.spark.progress import Offset, Publication

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("fjord.spark")
# How long a query without news waits; Spark stops a query only between two calls.
WAIT_SECONDS: Final = 0.5


class _Rewound(NamedTuple):
    """A position in another history, and where to continue instead."""

    seq: int
    epoch: str
    after: int  # what was read up to here is the same in both


@dataclass(slots=True)
class _Running:
    """The driver's state of a running query; tasks do not have it."""

    database: fjord.Database
    extent: Extent
    subscriber: fjord.Subscriber | None = None
    publication: Publication | None = None
    target: int | None = None  # the last seq of an AvailableNow run
    begun_us: int = 0  # when the last batch began
    is_checked: bool = False  # the place where the query began is in this history
    is_idle: bool = False  # there was nothing new when it was last asked
    seen: int = 0  # there are no rows between the last offset and here
    empty: tuple[int, int] = (0, 0)  # nor were there between these, before the last batch
    rewound: _Rewound | None = None  # the last place that was not in this history
    latest: Offset | None = None  # the end of what there is

    def rewound_at(self, place: Offset) -> _Rewound | None:
        """Returns where to continue from a position that is not in this history."""
        found = self.rewound
        return found if found and found[:2] == (place.seq, place.epoch) else None


class FjordStreamReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """Plans micro-batches, and splits them into tasks."""

    clock: Clock = SystemClock()

    def __init__(self, parsed: SourceOptions) -> None:
        self._options = parsed
        self._running: _Running | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None}

    # -- what Spark calls in the driver -----------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        running = self._run()
        running.target = running.extent.locate(LATEST)

    def getDefaultReadLimit(self) -> datasource.ReadLimit:  # noqa: N802
        wanted = self._options
        if wanted.rows_max:
            return datasource.ReadMaxRows(wanted.rows_max)
        return (
            datasource.ReadMaxBytes(wanted.bytes_max)
            if wanted.bytes_max
            else datasource.ReadAllAvailable()
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        extent = self._run().extent
        seq = extent.past_loss(extent.locate(self._options.start))
        return progress.encode(Offset(seq=seq, epoch=extent.epoch_of(seq)))

    def latestOffset(self, start: dict[str, Any], limit: datasource.ReadLimit) -> dict[str, Any]:  # noqa: N802
        running, begin = self._run(), progress.decode(start)
        batch = self._next(begin, _bounds(self._options, limit, running.target))
        self._claim(begin)
        if not batch.rows or self._is_too_small(batch, limit):
            running.latest = running.latest or begin
            return start
        running.begun_us = self.clock.monotonic_us()
        end = Offset(seq=batch.seq, epoch=batch.epoch, publication=running.publication)
        running.latest = running.latest or end
        return progress.encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._run().latest
        return None if latest is None else progress.encode(latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = progress.decode(start), progress.decode(end)
        if first.seq >= last.seq:
            return []
        running = self._run()
        after = first.seq
        if not running.is_checked:  # a batch that runs again is planned before anything is asked
            for place in (last, first):
                try:
                    self._check(place)
                except RefusedError as error:
                    self._pass_over(place, error)
            running.is_checked = running.rewound is None  # the next batch begins at `last`
        if (rewound := running.rewound_at(first)) is not None:
            after = rewound.after
        running.extent.refresh()
        seen = running.empty[1] if running.empty[0] == after else 0
        after = running.extent.past_loss(after, seen=seen)
        if after >= last.seq:
            return []
        is_cold = last.seq <= source.cold_end(running.extent.blocks)
        tail_rows = 0 if is_cold else running.extent.tail(after, until=last.seq).rows
        wanted = source.wanted_rows(running.extent, self._options)
        return source.plan(wanted, after + 1, last.seq + 1, running.extent.blocks, tail_rows)

    def commit(self, end: dict[str, Any]) -> None:
        running, done = self._run(), progress.decode(end)
        if running.subscriber is None:
            return
        try:
            running.subscriber.ack(done.seq)
        except (StaleError, NotFoundError) as error:
            raise FjordError(
                f"the subscriber {self._options.subscriber} of {self._options.table} was moved or "
                "deleted by another client; another query with the same subscriber may be running. "
                "Give each query a name of its own with the option subscriber"
            ) from error

    def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.database.close()

    # -- what tasks call --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return source.read_partition(partition)

    # -- inside -----------------------------------------------------------------------------------

    def _run(self) -> _Running:
        if self._running is None:
            database = self._options.location.open()
            extent = Extent(database, self._options)
            if self._options.subscriber:
                extent.require_stream("subscriber")
            self._running = _Running(database, extent, begun_us=self.clock.monotonic_us())
        return self._running

    def _claim(self, begin: Offset) -> None:
        """Claims the subscriber of this query, once, at the position where the query begins."""
        running, wanted = self._run(), self._options
        if not wanted.subscriber or running.subscriber is not None:
            return
        stream = running.database.stream(wanted.table)
        subscriber = stream.subscriber(wanted.subscriber, start=begin.seq + 1)
        subscriber.seek(begin.seq + 1)
        running.subscriber = subscriber
        (found,) = [one for one in stream.subscribers() if one.name == wanted.subscriber]
        running.publication = Publication(
            server=wanted.location.server,
            table=wanted.table,
            name=wanted.subscriber,
            epoch=found.epoch,
        )

    def _next(self, begin: Offset, bounds: Bounds) -> BatchEnd:
        """Returns the next batch, without rows if there is nothing new after a while."""
        running = self._run()
        nothing = BatchEnd(begin.seq, 0, 0, begin.epoch, is_cut=False, end=running.seen)
        has_waited = running.is_idle
        if has_waited and not self._wait(begin):
            return nothing
        try:
            if not running.is_checked:
                self._check(begin)
            if (rewound := running.rewound_at(begin)) is not None:
                batch = self._advance_anew(rewound, bounds)
            elif running.target is not None and begin.seq >= running.target:
                return nothing
            else:
                batch = running.extent.advance(
                    begin.seq, bounds, epoch=begin.epoch, seen=running.seen
                )
        except RefusedError as error:
            batch = self._advance_anew(self._pass_over(begin, error), bounds)
        running.is_idle = not batch.rows and running.target is None
        if batch.rows:
            running.empty = (begin.seq, running.seen)
        running.seen = batch.end if not batch.rows else 0
        running.latest = replace(begin, seq=batch.end) if batch.is_cut else None
        if has_waited and running.is_idle and self._is_waited_for():
            self.clock.pause(WAIT_SECONDS)  # something came that is no row: do not ask all the time
        return batch

    def _advance_anew(self, found: _Rewound, bounds: Bounds) -> BatchEnd:
        """Returns the batch that continues from a position which is not in this history.

        It has the rows that replaced those read before, and as many more as usual.  It ends after
        that position, since offsets only grow; until the journal is that far there is no batch.
        """
        extent = self._run().extent
        extent.refresh()
        end = extent.tail(0).durable_seq
        if end <= found.seq:
            return BatchEnd(found.seq, 0, 0, found.epoch, is_cut=False, end=0)
        until = bounds.until if bounds.until > found.seq else 0
        other = extent.advance(found.after, Bounds(until=found.seq))
        batch = extent.advance(found.seq, bounds._replace(until=until))
        if not batch.rows:
            batch = batch._replace(seq=end if other.rows else found.seq)
            batch = batch._replace(epoch=extent.epoch_of(batch.seq))
        return batch._replace(rows=batch.rows + other.rows, bytes=batch.bytes + other.bytes)

    def _check(self, place: Offset) -> None:
        """Makes sure, once, that a position is in this history.

        Later every request to the journal checks it too.
        """
        running = self._run()
        running.extent.epoch_of(place.seq, known=place.epoch)
        running.is_checked = True

    def _pass_over(self, place: Offset, error: RefusedError) -> _Rewound:
        """Returns where to continue if the history is not the one that was read.

        Raises:
            FjordError: unless losses are accepted.
        """
        if error.code not in (Code.FORKED, Code.BAD_RANGE):
            raise error
        text = (
            f"what this query has read of {self._options.table} up to seq {place.seq} is no longer "
            f"the history of {self._options.location}: {error.text}"
        )
        if self._options.fails_on_loss:
            raise FjordError(
                f"{text}. Rows that were read may be gone, and others have come in their place. "
                "Restart with a new checkpoint, or set failOnDataLoss to false to continue with "
                "the current rows"
            ) from error
        running = self._run()
        running.extent.refresh()
        after = running.extent.common(place.seq, place.epoch)
        _LOG.warning(
            "%s; the query continues after seq %d, since failOnDataLoss is false: rows that it has "
            "read may come again",
            text,
            after,
        )
        running.rewound = _Rewound(place.seq, place.epoch, after)
        running.is_checked = True
        return running.rewound

    def _wait(self, begin: Offset) -> bool:
        """Waits for something new; returns whether to look again."""
        if not self._is_waited_for():
            self.clock.pause(WAIT_SECONDS)
            return True
        running = self._run()
        stream = running.database.stream(self._options.table)
        return len(stream.read(1, after=max(begin.seq, running.seen), wait=WAIT_SECONDS)) > 0

    def _is_waited_for(self) -> bool:
        """Says whether the daemon can wait for a message."""
        return bool(self._options.location.server) and self._run().extent.nature.kind == Kind.STREAM

    def _is_too_small(self, batch: BatchEnd, limit: datasource.ReadLimit) -> bool:
        """Says whether a batch should wait until it has more rows."""
        running, wanted = self._run(), self._options
        rows_min = limit.min_rows if isinstance(limit, datasource.ReadMinRows) else wanted.rows_min
        if running.target is not None or batch.is_cut or batch.rows >= rows_min:
            return False
        if self.clock.monotonic_us() - running.begun_us >= wanted.delay_seconds * 1_000_000:
            return False
        self.clock.pause(WAIT_SECONDS)
        return True


def _bounds(wanted: SourceOptions, limit: datasource.ReadLimit, target: int | None) -> Bounds:
    """Returns the bounds of a batch; none if Spark requires all rows."""
    until = target or 0
    if isinstance(limit, datasource.ReadAllAvailable):
        return Bounds(until=until)
    rows_max = limit.max_rows if isinstance(limit, datasource.ReadMaxRows) else wanted.rows_max
    bytes_max = limit.max_bytes if isinstance(limit, datasource.ReadMaxBytes) else wanted.bytes_max
    return Bounds(rows_max, bytes_max, until)
