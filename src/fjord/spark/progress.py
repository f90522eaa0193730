"""The offset of a query, as Spark keeps it in checkpoints: a small JSON object.

    {"e": {"0": "5f0c..."}, "s": {"0": 1234}, "v": 1}

`s` is a seq: everything up to it was read, and nothing after it.  `e` is the epoch of that seq,
the takeover of the writer that wrote it: a journal that was set back to an earlier state may give
the same seq to another row, and then the epoch differs.  It is empty if unknown: at the beginning,
and if the seq is only in cold blocks.  Both are keyed by the number of a shard; there is one, `0`.
`v` is the version of this format.

A query that publishes its progress also has `p`: the subscriber whose mark follows it, for code
that sees only offsets and no options, such as a listener.

Spark compares offsets as text.  So members are in order, there are no floats, and if nothing has
changed the very object that was given is returned.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import fjord
from fjord.errors import FjordError, StaleError

VERSION: Final = 1
_SHARD: Final = "0"
_EPOCH: Final = re.compile(r"([0-9a-f]{32})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The subscriber that shows a query's progress; members are in order, see above."""

    epoch: int  # of the subscriber, since the query has claimed it
    name: str
    server: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A position between two commits."""

    seq: int  # everything up to here was read
    epoch: str = ""  # hexadecimal; empty = unknown
    publication: Publication | None = None


def encode(offset: Offset) -> dict[str, Any]:
    """Returns the object for Spark, with its members in order."""
    found: dict[str, Any] = {"e": {_SHARD: offset.epoch}}
    if offset.publication is not None:
        found["p"] = asdict(offset.publication)
    found["s"] = {_SHARD: offset.seq}
    found["v"] = VERSION
    return found


def decode(given: Mapping[str, Any] | str) -> Offset:
    """Parses an offset from Spark, or its text.

    Raises:
        FjordError: if it is not what `encode` makes.
    """
    found: Any = given
    if isinstance(given, str):
        try:
            found = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise _wrong(given, f"it is not JSON ({error})") from error
    if not isinstance(found, Mapping):
        raise _wrong(given, "it is not an object")
    if found.get("v") != VERSION:
        text = f"its version is {found.get('v')!r}, and this version of Fjord knows {VERSION}"
        raise _wrong(given, text)
    if unknown := found.keys() - {"e", "p", "s", "v"}:
        raise _wrong(given, f"it has unknown members: {', '.join(sorted(unknown))}")
    seq, epoch = (_of_shard(given, found, name) for name in ("s", "e"))
    if type(seq) is not int or not 0 <= seq < 2**63:
        raise _wrong(given, f"{seq!r} is not a seq")
    if not isinstance(epoch, str) or not _EPOCH.fullmatch(epoch):
        raise _wrong(given, f"{epoch!r} is not an epoch")
    publication = _publication(given, found["p"]) if "p" in found else None
    return Offset(seq=seq, epoch=epoch, publication=publication)


def _of_shard(given: object, found: Mapping[str, Any], name: str) -> object:
    shards = found.get(name)
    if not isinstance(shards, Mapping) or list(shards) != [_SHARD]:
        raise _wrong(given, f"its member {name} must have only the shard {_SHARD}")
    return shards[_SHARD]


def _publication(given: object, found: object) -> Publication:
    kinds = {"epoch": int, "name": str, "server": str, "table": str}
    if not isinstance(found, Mapping) or found.keys() != kinds.keys():
        raise _wrong(given, "its member p names no subscriber")
    for name, kind in kinds.items():
        if type(found[name]) is not kind:
            raise _wrong(given, f"its member p.{name} is of the wrong type")
    return Publication(**{str(name): value for name, value in found.items()})


def _wrong(given: object, reason: str) -> FjordError:
    return FjordError(
        f"{str(given)[:200]} is not an offset of the source fjord: {reason}. A checkpoint belongs "
        "to one query and one source; give each query its own checkpoint"
    )


# -- progress of streaming queries, as marks of subscribers ---------------------------------------
#
# Spark tells a source that a batch is done when it builds the next one, and never for the last
# one.  So a listener, in the driver's process, also moves the mark when Spark reports a batch: that
# is soon, and for every batch.  All that it knows is in the offsets: the subscriber's name, its
# table and server, and the epoch that the query has claimed.  It ignores other sources.
#
# Errors here do not end a query: the source itself reports them at its next commit.


_LOG: Final = logging.getLogger("fjord.spark")
# A report should not keep the others waiting.
_TIMEOUT_SECONDS: Final = 5.0
_MARK: Final = "_fjord_publishes_progress"


def publish_progress(spark: SparkSession) -> None:
    """Lets subscribers' marks follow the queries of a session, including their last batch.

    `fjord.spark.session()` calls this itself.  Calling it twice is harmless.
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
                    "the mark of subscriber %s of %s is not moved: %s",
                    publication.name,
                    publication.table,
                    error,
                )


class _Mark:
    """The mark of one query's subscriber, with its own connection."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self._database: fjord.Database | None = None
        self._subscriber: fjord.Subscriber | None = None
        self._seq = 0

    def move(self, seq: int) -> None:
        if seq > self._seq:
            self._subscriber = self._subscriber or self._claimed()
            self._subscriber.ack(seq)
            self._seq = seq

    def _claimed(self) -> fjord.Subscriber:
        """Returns the subscriber, if it is still that of the query."""
        wanted = self.publication
        if self._database is None:
            self._database = fjord.connect(wanted.server, timeout=_TIMEOUT_SECONDS)
        stream = self._database.stream(wanted.table)
        epochs = {one.name: one.epoch for one in stream.subscribers()}
        if epochs.get(wanted.name) != wanted.epoch:
            text = "another client has moved or deleted it, perhaps another query"
            raise StaleError(fjord.errors.Code.STALE_EPOCH, text)
        return stream.subscriber(wanted.name)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def _published(text: str | None) -> Offset | None:
    """Returns an offset with a subscriber; None if it is anything else."""
    if not text or '"p"' not in text:
        return None
    try:
        return decode(text)
    except FjordError:
        return None  # of another source
