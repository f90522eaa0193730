"""What every part knows of streams: their modes, where a reader begins, a table's settings."""

from __future__ import annotations

import enum
import functools
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from fjord import limits

SECOND_US: Final = 1_000_000


class Mode(enum.StrEnum):
    """What a stream keeps."""

    LOG = "log"  # every message
    LATEST = "latest"  # the newest message of each key


class Start(enum.IntEnum):
    """Where a subscriber begins to read; the numbers are those of the wire."""

    BEGINNING = 1  # at the first message that there is
    END = 2  # behind the last one
    SEQ = 3  # at the first message from a seq on
    TIME = 4  # at the first message from a moment on


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a stream works; fixed when the table is made."""

    mode: Mode = Mode.LOG
    history: bool = True  # what leaves the journal goes to cold blocks; a log always has them
    block_rows: int = 1_000_000  # a block is written when there is so much, and has no more
    block_age_us: int = 24 * 3600 * SECOND_US  # or when the oldest message has waited so long
    retention_us: int = 0  # blocks whose messages are all older go; 0 = they stay for ever
    retention_bytes: int = 0  # the oldest blocks go when all have more bytes; 0 = they stay

    def encode(self) -> bytes:
        """Returns the bytes that a table is declared with: what is not as usual, by name."""
        usual = asdict(Settings())
        found = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps(found, sort_keys=True, separators=(",", ":")).encode() if found else b""


@functools.lru_cache(maxsize=1024)
def decode_settings(data: bytes) -> Settings:
    """Reads settings.

    Raises:
        ValueError: if they are none; the text says why.
    """
    try:
        found: Any = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"settings are a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("settings are a JSON object")
    names = [field.name for field in fields(Settings)]
    for name in found:
        if name not in names:
            raise ValueError(f"there is no setting {name[:40]!r}; there are {', '.join(names)}")
    if found.get("mode", Mode.LOG) not in list(Mode):
        raise ValueError("mode is log or latest")
    settings = Settings(**found | {"mode": Mode(found.get("mode", Mode.LOG))})
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    if not isinstance(settings.history, bool):
        raise ValueError("history is true or false")
    if settings.mode is Mode.LOG and not settings.history:
        raise ValueError("a stream of mode log has history; use retention to keep less of it")
    _check_number("block_rows", settings.block_rows, 1, limits.BLOCK_ROWS_MAX)
    _check_number("block_age_us", settings.block_age_us, 1, limits.BLOCK_AGE_US_MAX)
    _check_number("retention_us", settings.retention_us, 0, limits.RETENTION_US_MAX)
    _check_number("retention_bytes", settings.retention_bytes, 0, 2**63 - 1)


def _check_number(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}")
