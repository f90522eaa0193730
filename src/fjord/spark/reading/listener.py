"""Progress of streaming queries, as marks of subscribers.

A source is told that a batch is done when the next one is built, and of the last one it is never
told.  So a listener, in the process of the driver, also moves the mark when Spark reports a batch:
that is soon, and for every batch.  All that it knows is in the offsets: the subscriber's name, its
table and server, and the epoch that the query has claimed.  Of what is not a stream of Fjord it
takes no notice.

What goes wrong here does not end a query: the source itself says so at its next commit.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import fjord
from fjord.errors import FjordError, StaleError
from fjord.spark.reading import offsets
from fjord.spark.reading.offsets import Offset, Publication

_LOG: Final = logging.getLogger("fjord.spark")
# A report should not keep the others waiting.
_TIMEOUT_SECONDS: Final = 5.0
_MARK: Final = "_fjord_publishes_progress"


def publish_progress(spark: SparkSession) -> None:
    """Lets marks of subscribers follow the queries of a session, also for their last batch.

    `fjord.spark.session()` does so itself.  Twice is the same as once.
    """
    if not getattr(spark, _MARK, False):
        spark.streams.addListener(ProgressListener())
        setattr(spark, _MARK, True)


class ProgressListener(StreamingQueryListener):
    """Moves marks as batches are done."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._marks: dict[str, _Mark] = {}  # of running queries, by the id of their run

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        for source in event.progress.sources:
            done = _published(source.endOffset)
            if done is not None and done.publication is not None:
                self._move(str(event.progress.runId), done, done.publication)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._guard:
            mark = self._marks.pop(str(event.runId), None)
        if mark is not None:
            mark.close()

    def _move(self, run: str, done: Offset, publication: Publication) -> None:
        with self._guard:
            mark = self._marks.get(run)
            if mark is None or mark.publication != publication:
                mark = self._marks[run] = _Mark(publication)
            try:
                mark.move(done.seq)
            except FjordError as error:
                _LOG.warning(
                    "the mark of subscriber %s of %s stays behind: %s",
                    publication.name,
                    publication.table,
                    error,
                )


class _Mark:
    """The mark of one query's subscriber, with a connection of its own."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self._database: fjord.Database | None = None
        self._subscriber: fjord.Subscriber | None = None
        self._seq = 0

    def move(self, seq: int) -> None:
        if seq > self._seq:
            self._claimed().ack(seq)
            self._seq = seq

    def _claimed(self) -> fjord.Subscriber:
        """Returns the subscriber, if it is still that of the query."""
        wanted = self.publication
        if self._subscriber is None:
            if self._database is None:
                self._database = fjord.connect(wanted.server, timeout=_TIMEOUT_SECONDS)
            stream = self._database.stream(wanted.table)
            epochs = {one.name: one.epoch for one in stream.subscribers()}
            if epochs.get(wanted.name) != wanted.epoch:
                text = "somebody else has moved or deleted it, perhaps another query with its name"
                raise StaleError(fjord.errors.Code.STALE_EPOCH, text)
            self._subscriber = stream.subscriber(wanted.name)
        return self._subscriber

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def _published(text: str | None) -> Offset | None:
    """Returns an offset with a subscriber; None if it is anything else."""
    if not text or '"p"' not in text:
        return None
    try:
        return offsets.decode(text)
    except FjordError:
        return None  # of another source
