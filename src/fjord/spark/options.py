"""The options of the source: text from a user in, a checked record out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import fjord
from fjord import commands
from fjord.errors import FjordError

# Spark hands options over with their names in lower case; these are the names to show.
NAMES: Final = ("path", "server", "table", "startingSeq", "endingSeq", "partitions")

# A partition is one task of Spark.  A task costs about 0.1 s, so much fewer rows do not pay.
SEQS_PER_PARTITION: Final = 500_000
# More tasks than most machines have cores only cost.
DEFAULT_PARTITIONS_MAX: Final = 32
# A user may ask for more, up to where planning itself becomes slow.
PARTITIONS_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the data is: exactly one of the two is not empty."""

    path: str = ""  # a data directory, absolute
    server: str = ""  # a daemon's address

    @classmethod
    def of_path(cls, path: str) -> Location:
        """Returns a data directory as a location."""
        return cls(path=os.path.abspath(path))

    @property
    def options(self) -> dict[str, str]:
        """The options by which `spark.read.format("fjord")` finds it."""
        return {"server": self.server} if self.server else {"path": self.path}

    def open(self) -> fjord.Database:
        """Opens it for reading.

        Raises:
            FjordError: if it is not there.
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
class Options:
    """What a user wants to read."""

    location: Location
    table: str = commands.DEFAULT_TABLE
    starting_seq: int = 1
    ending_seq: int = 0  # exclusive; 0 = everything that is durable when the read is planned
    partitions: int = 0  # 0 = as many as `partition_count` finds right


def parse(options: Mapping[str, str]) -> Options:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing or wrong.
    """
    given = {name.lower(): text for name, text in options.items()}
    unknown = given.keys() - {name.lower() for name in NAMES}
    if unknown:
        raise FjordError(
            f"unknown option {', '.join(sorted(unknown))}; the options are {', '.join(NAMES)}"
        )
    starting_seq = _number(given, "startingSeq", default=1)
    ending_seq = _number(given, "endingSeq", default=0)
    if 0 < ending_seq < starting_seq:
        raise FjordError(
            f"endingSeq {ending_seq} is smaller than startingSeq {starting_seq}; "
            "rows from startingSeq up to before endingSeq are read"
        )
    return Options(
        location=_location(given),
        table=given.get("table", commands.DEFAULT_TABLE),
        starting_seq=starting_seq,
        ending_seq=ending_seq,
        partitions=_number(given, "partitions", default=0, largest=PARTITIONS_MAX),
    )


def partition_count(wanted: int, seqs: int) -> int:
    """Returns into how many partitions to cut a range of `seqs` seqs; at least one."""
    if wanted:
        return max(1, min(wanted, seqs))
    return max(1, min(-(-seqs // SEQS_PER_PARTITION), DEFAULT_PARTITIONS_MAX))


def _location(given: Mapping[str, str]) -> Location:
    path, server = given.get("path", ""), given.get("server", "")
    if bool(path) == bool(server):
        raise FjordError(
            "give either the option path (a data directory, also as load(path)) "
            "or the option server (a daemon, fjord://host:port)"
        )
    return Location(path=os.path.abspath(path) if path else "", server=server)


def _number(given: Mapping[str, str], name: str, *, default: int, largest: int = 2**63 - 1) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= largest:
        raise FjordError(f"the option {name} is a number from 1 to {largest}, not {text!r}")
    return int(text)
