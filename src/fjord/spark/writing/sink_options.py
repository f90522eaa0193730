"""The options of the sink: text from a user in, a checked record out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fjord import commands, limits
from fjord.errors import FjordError
from fjord.spark.writing import mapping

# Spark hands options over with their names in lower case; these are the names to show.
NAMES: Final = ("server", "table", "kind", "ttl", "txnId", "txnVersion")
# Those of Spark itself, which it hands over, too.
_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname"))
_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where and how a user wants to write."""

    server: str  # a daemon's address
    table: str = commands.DEFAULT_TABLE
    kind: str = ""  # of the table, if it is not there yet
    ttl_us: int = 0  # of values; 0 = they stay
    txn_id: str = ""  # who writes, whatever Spark calls it
    txn_version: int | None = None  # the number of a batch write that has a `txn_id`
    checkpoint: str = ""  # where Spark keeps what it knows of a streaming query


def parse(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing or wrong.
    """
    given = {name.lower(): text for name, text in options.items()}
    if "path" in given:
        raise FjordError(
            f"a sink writes through a daemon, not to the directory {given['path']}: a directory "
            "has one writer, and Spark has many tasks. Start `fjord serve --data` on it, and give "
            "the option server"
        )
    unknown = given.keys() - {name.lower() for name in NAMES} - _OF_SPARK
    if unknown:
        raise FjordError(
            f"unknown option {', '.join(sorted(unknown))}; the options are {', '.join(NAMES)}"
        )
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
    if kind and kind not in mapping.KINDS:
        raise FjordError(f"the option kind is {', '.join(mapping.KINDS)}, not {kind!r}")
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
                "before it. A write of a txnId whose number was there already is left out"
            )
        return None
    if is_stream:
        raise FjordError("a stream numbers its batches itself; leave the option txnVersion out")
    if not given.get("txnid"):
        raise FjordError("the option txnVersion counts the writes of a txnId; give that, too")
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise FjordError(f"the option txnVersion is a number from 0 on, not {text!r}")
    return int(text)
