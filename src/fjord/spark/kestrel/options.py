"""The options of the source `kestrel`: text from a user in, a checked record out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fjord.errors import FjordError

# Spark hands options over with their names in lower case; these are the names to show.
NAMES: Final = ("path", "mode", "queue", "columns", "batchRows", "damaged", "aliveFor", "crc")
MODES: Final = ("state", "ops")

#: The columns of each mode, and their types in the words of Spark.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "state": {
        "queue": "string",
        "position": "bigint",
        "xid": "int",
        "added": "timestamp",
        "dated": "timestamp",
        "expires": "timestamp",
        "data": "binary",
    },
    "ops": {
        "queue": "string",
        "file": "string",
        "position": "bigint",
        "offset": "bigint",
        "op": "string",
        "xid": "int",
        "added": "timestamp",
        "expires": "timestamp",
        "size": "bigint",
        "data": "binary",
    },
}

# More rows a batch do not pay, see docs/spark.md; large items end a batch before.
BATCH_ROWS: Final = 10_000
BATCH_ROWS_MAX: Final = 1_000_000
_ALIVE_SECONDS_MAX: Final = 366 * 24 * 3600
_CRC_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user wants to read."""

    directory: str  # absolute
    mode: str = "state"
    queue: str = ""  # empty: all
    columns: tuple[str, ...] = ()  # empty: all
    batch_rows: int = BATCH_ROWS
    fails_on_damage: bool = True
    alive_seconds: int | None = None  # items live longer than this; None = expired ones, too
    crc: int | None = None  # that the files have to have


def parse(options: Mapping[str, str]) -> Options:
    """Returns the checked options.

    Raises:
        FjordError: if one is unknown, missing, wrong, or of no use here.
    """
    given = {name.lower(): text for name, text in options.items()}
    if unknown := given.keys() - {name.lower() for name in NAMES}:
        raise FjordError(
            f"unknown option {', '.join(sorted(unknown))}; the options are {', '.join(NAMES)}"
        )
    if not given.get("path"):
        raise FjordError("give the option path: a directory of queues, also as load(path)")
    mode = _word(given, "mode", MODES)
    _refuse_useless(given, mode)
    return Options(
        directory=os.path.abspath(given["path"]),
        mode=mode,
        queue=given.get("queue", ""),
        columns=_columns(given.get("columns", ""), mode),
        batch_rows=_number(given, "batchRows", 1, BATCH_ROWS_MAX) or BATCH_ROWS,
        fails_on_damage=_word(given, "damaged", ("fail", "skip")) == "fail",
        alive_seconds=_number(given, "aliveFor", 0, _ALIVE_SECONDS_MAX),
        crc=_number(given, "crc", 0, _CRC_MAX),
    )


def ddl(parsed: Options) -> str:
    """Returns the schema that options ask for."""
    types = COLUMNS[parsed.mode]
    return ", ".join(f"`{name}` {types[name]}" for name in parsed.columns or types)


def _refuse_useless(given: Mapping[str, str], mode: str) -> None:
    if mode == "ops":
        for name in ("aliveFor", "crc"):
            if name.lower() in given:
                raise FjordError(f"the option {name} is of no use with mode=ops; leave it out")
    if "crc" in given and not given.get("queue"):
        raise FjordError("the option crc is that of one queue; give the option queue, too")


def _columns(text: str, mode: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if name not in COLUMNS[mode] or names.count(name) > 1:
            problem = "is there twice" if names.count(name) > 1 else "does not exist"
            raise FjordError(
                f"the option columns: {name!r} {problem}; "
                f"columns of mode={mode} are some of {', '.join(COLUMNS[mode])}"
            )
    return names


def _word(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    found = given.get(name.lower(), words[0]).lower()
    if found not in words:
        raise FjordError(f"the option {name} is {' or '.join(words)}, not {found!r}")
    return found


def _number(given: Mapping[str, str], name: str, least: int, largest: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= largest:
        raise FjordError(f"the option {name} is a number from {least} to {largest}, not {text!r}")
    return int(text)
