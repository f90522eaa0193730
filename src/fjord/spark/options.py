"""The options of the source: text from a user in, a checked record out.

Everything is checked before anything is read, and nothing is ignored: an option that does not
exist, or that does not apply to a batch or a stream, is refused by name.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import fjord
from fjord import commands, limits
from fjord.blocks import schema
from fjord.declared.schema import Column, Schema
from fjord.errors import FjordError
from fjord.kinds import Kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Default = TypeVar("Default", int, None)

# Spark hands options over with their names in lower case; these are the names to show.
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingSubscriber", "startingSeq")
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingSeq")
_BOUNDS: Final = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")
_STREAM_ONLY: Final = (*_BOUNDS, "subscriber")
_LOG_ONLY: Final = (*_STARTS, *_BATCH_ONLY, "partitions", "maxRowsPerPartition", "ops")
NAMES: Final = (
    *("path", "server", "table", *_STARTS, *_BATCH_ONLY, *_BOUNDS),
    *("partitions", "maxRowsPerPartition", "failOnDataLoss", "subscriber"),
    *("columns", "view", "ops", "keyPrefix", "blocks"),
)

# A partition is one Spark task.  A task costs about 0.1 s, so far fewer rows do not pay off.
ROWS_PER_PARTITION: Final = 500_000
# Beyond this planning itself becomes slow.
PARTITIONS_MAX: Final = 1024
# Values of the option `columns` other than names: without declared columns, or with all.
PLAIN: Final = ("plain",)
TYPED: Final = ("typed",)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Ops that only restate existing data, when the journal is packed.
MOVES: Final = ("MOVE", "MOVE_DEAD")
# Values of the column `op`; see docs/spark.md.
OPS: Final = frozenset(
    {
        *("ADD", "REPLACE", "TAKE", "DONE", "TIMEOUT", "FAIL", "GIVEN_BACK", "RESCHEDULE"),
        *("REVIVE", "DEAD", "EXPIRE", "CANCEL", "SUPERSEDED", "DISCARD", "PURGE"),
        *("APPEND", "SET", "DELETE", *MOVES),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the data is: exactly one of the two is set."""

    path: str = ""  # a data directory, absolute
    server: str = ""  # a daemon's address

    @classmethod
    def of_path(cls, path: str) -> Location:
        """Returns a data directory as a location."""
        return cls(path=os.path.abspath(path))

    @classmethod
    def of(cls, where: str | os.PathLike[str] | Location) -> Location:
        """Returns the location of an address, or of a directory."""
        if isinstance(where, Location):
            return where
        text = os.fspath(where)
        return cls(server=text) if text.startswith("fjord://") else cls.of_path(text)

    @property
    def options(self) -> dict[str, str]:
        """The options with which `spark.read.format("fjord")` finds it."""
        return {"server": self.server} if self.server else {"path": self.path}

    def open(self) -> fjord.Database:
        """Opens it for reading.

        Raises:
            FjordError: if it does not exist.
        """
        if self.server:
            return fjord.connect(self.server)
        if not os.path.isdir(self.path):
            raise FjordError(
                f"there is no directory {self.path}; check the option path. "
                "Every machine that runs tasks of Spark must see it there"
            )
        return fjord.open(self.path, read_only=True)

    def __str__(self) -> str:
        return self.server or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a read begins or ends; at most one member is set."""

    word: str = ""  # earliest or latest
    seq: int = 0  # the first seq to read, or the first one that is not read
    at: datetime | None = None  # the same as a moment
    subscriber: str = ""  # behind its mark


EARLIEST: Final = Position(word="earliest")
LATEST: Final = Position(word="latest")


class Typed(NamedTuple):
    """Which declared columns to read."""

    columns: tuple[Column, ...] = ()  # with the types that they are to have
    schemas: tuple[Schema, ...] = ()  # that rows may have


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read; tasks get them with their range."""

    location: Location
    table: str = commands.DEFAULT_TABLE
    start: Position = EARLIEST
    end: Position = LATEST
    rows_max: int = 0  # of a micro-batch; 0 = no bound
    bytes_max: int = 0  # of a micro-batch; 0 = no bound
    rows_min: int = 0  # fewer rows wait
    delay_seconds: float = 15 * 60.0  # but no longer than this
    partitions: int = 0  # 0 = as many as there are rows for
    partition_rows: int = ROWS_PER_PARTITION
    fails_on_loss: bool = True
    subscriber: str = ""
    columns: tuple[str, ...] = ()  # empty: all; or PLAIN, or TYPED; of a reader: their names
    typed: Typed = field(default_factory=Typed)  # of a reader: those of them that are declared
    view: str = "log"
    ops: frozenset[str] = frozenset()  # empty: all
    key_prefix: bytes = b""
    blocks: str = ""  # where blocks are, if not where the node says
    has_history: bool = False  # of a task: only rows that blocks have too


def parse(options: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """Returns the checked options of a batch, or of a stream.

    Raises:
        FjordError: if one is unknown, missing, invalid, or does not apply here.
    """
    given = known_options(options, NAMES)
    _refuse_useless(given, is_stream=is_stream)
    found = SourceOptions(
        location=_location(given),
        table=given.get("table", commands.DEFAULT_TABLE),
        start=_place(given, "starting", EARLIEST),
        end=_place(given, "ending", LATEST),
        rows_max=number_option(given, "maxRowsPerTrigger", 0),
        bytes_max=number_option(given, "maxBytesPerTrigger", 0),
        rows_min=number_option(given, "minRowsPerTrigger", 0),
        delay_seconds=_delay(given.get("maxtriggerdelay", "15m")),
        partitions=number_option(given, "partitions", 0, largest=PARTITIONS_MAX),
        partition_rows=number_option(given, "maxRowsPerPartition", ROWS_PER_PARTITION),
        fails_on_loss=word_option(given, "failOnDataLoss", ("true", "false")) == "true",
        subscriber=given.get("subscriber", ""),
        columns=parse_columns(given.get("columns", "")),
        view=word_option(given, "view", ("log", "latest")),
        ops=_ops(given.get("ops", "")),
        key_prefix=given.get("keyprefix", "").encode("utf-8", "surrogateescape"),
        blocks=given.get("blocks", ""),
    )
    _check_order(found)
    if found.subscriber and not found.location.server:
        raise FjordError(
            "the option subscriber needs the option server: a directory is only read, and a mark "
            "is written"
        )
    return found


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in options.items()}


def known_options(
    options: Mapping[str, str], names: Sequence[str], more: Collection[str] = ()
) -> dict[str, str]:
    """Returns options by their names in lower case, and refuses unknown ones."""
    given = _lowered(options)
    unknown = given.keys() - {name.lower() for name in names} - set(more)
    if unknown:
        raise FjordError(
            f"unknown option {', '.join(sorted(unknown))}; the options are {', '.join(names)}"
        )
    return given


def parse_columns(text: str) -> tuple[str, ...]:
    """Returns the columns that an option names; none if it is empty.

    Raises:
        FjordError: if one is duplicated.
    """
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if names.count(name) > 1:
            raise FjordError(f"the column {name!r} is given twice; name it once")
    return names


def check_columns(names: Collection[str], declared: Collection[str] = ()) -> None:
    """Checks that a table has some columns.

    Raises:
        FjordError: if it lacks one.
    """
    known = (*schema.COLUMNS, *declared)
    for name in names:
        if name not in known:
            raise FjordError(
                f"the column {name!r} does not exist; columns are some of {', '.join(known)}"
            )


def check_schema(
    wanted: StructType, known: Mapping[str, str], *, where: str = "", advice: str = ""
) -> None:
    """Checks that a source has the columns of `.schema(...)`.

    Raises:
        FjordError: if one of them does not exist, or not with this type.
    """
    for one in wanted.fields:
        type_ = one.dataType.simpleString()
        if known.get(one.name) != type_ or not one.nullable:
            null = "" if one.nullable else " NOT NULL"
            ddl = ", ".join(f"`{name}` {stored}" for name, stored in known.items())
            raise FjordError(
                f"there is no column `{one.name}` {type_}{null}{where}; "
                f"a schema is some of: {ddl}{advice}"
            )


def place_of(options: Mapping[str, str]) -> tuple[Location, str]:
    """Returns the location and the name of a table; nothing else is checked.

    Raises:
        FjordError: if the options do not give a location.
    """
    given = _lowered(options)
    return _location(given), given.get("table", commands.DEFAULT_TABLE)


def _refuse_useless(given: Mapping[str, str], *, is_stream: bool) -> None:
    where, useless = ("stream", _BATCH_ONLY) if is_stream else ("batch", _STREAM_ONLY)
    rule = f"of no use for a {where}"
    if given.get("view", "").lower() == "latest":
        if is_stream:
            raise FjordError(
                "view=latest is for a batch: a stream returns every change, from which the latest "
                "value follows; omit the option view"
            )
        useless, rule = (*useless, *_LOG_ONLY), "of no use with view=latest"
    found = [name for name in useless if name.lower() in given]
    if found:
        raise FjordError(f"the option {', '.join(found)} is {rule}; leave it out")


def _location(given: Mapping[str, str]) -> Location:
    path, server = given.get("path", ""), given.get("server", "")
    if bool(path) == bool(server):
        raise FjordError(
            "give either the option path (a data directory, also as load(path)) "
            "or the option server (a daemon, fjord://host:port)"
        )
    return Location(path=os.path.abspath(path) if path else "", server=server)


def _place(given: Mapping[str, str], side: str, default: Position) -> Position:
    """Returns where a read begins or ends; only one option may give it."""
    readers: dict[str, Callable[[str, str], Position]] = {
        f"{side}Offsets": _offsets,
        f"{side}Timestamp": lambda name, text: Position(at=_moment(name, text)),
        f"{side}Subscriber": lambda name, text: Position(subscriber=text),
        f"{side}Seq": lambda name, text: Position(seq=number_option(given, name, 0)),
    }
    names = [name for name in readers if name.lower() in given]
    if len(names) > 1:
        raise FjordError(f"the options {' and '.join(names)} exclude each other; give one")
    return readers[names[0]](names[0], given[names[0].lower()]) if names else default


def _offsets(name: str, text: str) -> Position:
    word = text.strip().lower()
    if word == "latest" or (word == "earliest" and name.startswith("starting")):
        return Position(word=word)
    if not _is_number(word, 1):
        words = "earliest, latest" if name.startswith("starting") else "latest"
        raise FjordError(f"the option {name} is {words} or a seq from 1 on, not {text!r}")
    return Position(seq=int(word))


def _moment(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise FjordError(
            f"the option {name} is a date such as 2026-01-31T12:00:00Z, not {text!r}"
        ) from error
    if found.tzinfo is None:
        raise FjordError(
            f"the option {name} has no time zone in {text!r}; write Z for UTC, or an offset such "
            "as 2026-01-31T12:00:00+01:00"
        )
    return found


def _check_order(found: SourceOptions) -> None:
    start, end = found.start, found.end
    if 0 < end.seq < start.seq:
        raise FjordError(
            f"endingSeq {end.seq} is smaller than startingSeq {start.seq}; "
            "a read goes from startingSeq up to, but not including, endingSeq"
        )
    if start.at is not None and end.at is not None and end.at < start.at:
        raise FjordError("endingTimestamp is before startingTimestamp, so there are no rows")
    if found.rows_max and found.rows_min > found.rows_max:
        raise FjordError("minRowsPerTrigger is larger than maxRowsPerTrigger")


def _delay(text: str) -> float:
    found = re.fullmatch(r"([0-9]+)\s*(ms|s|m|h|d)", text.strip())
    if found is None:
        raise FjordError(f"the option maxTriggerDelay is a time such as 30s or 15m, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def _ops(text: str) -> frozenset[str]:
    names = frozenset(name.strip().upper() for name in text.split(",") if name.strip())
    if unknown := names - OPS:
        raise FjordError(
            f"there are no ops {', '.join(sorted(unknown))}; there are {', '.join(sorted(OPS))}"
        )
    return names


def word_option(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    found = given.get(name.lower(), words[0]).lower()
    if found not in words:
        raise FjordError(f"the option {name} is {' or '.join(words)}, not {found!r}")
    return found


def number_option(
    given: Mapping[str, str],
    name: str,
    default: Default,
    *,
    least: int = 1,
    largest: int = 2**63 - 1,
) -> int | Default:
    text = given.get(name.lower())
    if text is None:
        return default
    if not _is_number(text, least, largest):
        raise FjordError(f"the option {name} is a number from {least} to {largest}, not {text!r}")
    return int(text)


def _is_number(text: str, lowest: int, largest: int = 2**63 - 1) -> bool:
    return text.isascii() and text.isdigit() and lowest <= int(text) <= largest


# -- the options of the sink: text from a user in, a checked record out ---------------------------


# Values of the option kind.
KINDS: Final = (Kind.STREAM, Kind.JOBS, Kind.KV)
SINK_NAMES: Final = ("server", "table", "kind", "ttl", "txnId", "txnVersion")
# Spark's own options, which it passes too.
_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname"))
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    server: str  # a daemon's address
    table: str = commands.DEFAULT_TABLE
    kind: str = ""  # of the table, if it is not there yet
    ttl_us: int = 0  # of values; 0 = they stay
    txn_id: str = ""  # who writes, whatever Spark calls it
    txn_version: int | None = None  # the number of a batch write that has a `txn_id`
    checkpoint: str = ""  # where Spark keeps what it knows of a streaming query


def parse_sink(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing or invalid.
    """
    given = _lowered(options)
    if "path" in given:
        raise FjordError(
            f"a sink writes through a daemon, not to the directory {given['path']}: a directory "
            "has one writer, and Spark has many tasks. Start `fjord serve --data` on it, and give "
            "the option server"
        )
    known_options(options, SINK_NAMES, _OF_SPARK)
    if not given.get("server"):
        raise FjordError("give the option server: a daemon, fjord://host:port")
    return SinkOptions(
        server=given["server"],
        table=given.get("table", commands.DEFAULT_TABLE),
        kind=_kind(given),
        ttl_us=_ttl_us(given),
        txn_id=_txn_id(given),
        txn_version=_txn_version(given, is_stream=is_stream),
        checkpoint=given.get("checkpointlocation", ""),
    )


def _kind(given: Mapping[str, str]) -> str:
    kind = given.get("kind", "").lower()
    if kind and kind not in KINDS:
        raise FjordError(f"the option kind is {', '.join(KINDS)}, not {kind!r}")
    return kind


def _ttl_us(given: Mapping[str, str]) -> int:
    text = given.get("ttl")
    if text is None:
        return 0
    try:
        found = float(text) * _SECOND_US
    except ValueError:
        found = math.nan
    if not 1 <= found <= limits.EXPIRY_AHEAD_US_MAX:
        longest = limits.EXPIRY_AHEAD_US_MAX // _SECOND_US
        raise FjordError(f"the option ttl is a number of seconds, up to {longest}, not {text!r}")
    return round(found)


def _txn_id(given: Mapping[str, str]) -> str:
    name = given.get("txnid")
    if name is None:
        return ""
    if not 1 <= len(name.encode()) <= limits.WRITER_BYTES_MAX:
        raise FjordError(f"the option txnId has 1 to {limits.WRITER_BYTES_MAX} bytes, not {name!r}")
    if name.startswith(commands.WRITER_ONCE):
        raise FjordError(
            f"the option txnId does not begin with {commands.WRITER_ONCE!r}, as the names "
            f"of writes without one do, which are soon forgotten; not {name!r}"
        )
    return name


def _txn_version(given: Mapping[str, str], *, is_stream: bool) -> int | None:
    text = given.get("txnversion")
    if text is None:
        if given.get("txnid") and not is_stream:
            raise FjordError(
                "give the option txnVersion, too: the number of this write, larger than those "
                "before it. A number that its txnId has already written is skipped"
            )
        return None
    if is_stream:
        raise FjordError("a stream numbers its batches itself; leave the option txnVersion out")
    if not given.get("txnid"):
        raise FjordError("the option txnVersion counts the writes of a txnId; give that, too")
    if not _is_number(text, 0):
        raise FjordError(f"the option txnVersion is a number from 0 on, not {text!r}")
    return int(text)
