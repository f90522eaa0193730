"""Streams: modes, positions where a reader begins, settings of tables."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fjord import limits, settings
from fjord.declared.schema import Schema
from fjord.settings import TableSettings

SECOND_US: Final = 1_000_000


class Mode(enum.StrEnum):
    """What a stream keeps."""

    LOG = "log"  # every message
    LATEST = "latest"  # the newest message of each key


class Start(enum.IntEnum):
    """Where a subscriber begins; the numbers are those of the wire."""

    BEGINNING = 1  # at the first message
    END = 2  # after the last message
    SEQ = 3  # at the first message from a seq on
    TIME = 4  # at the first message from a time on


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(TableSettings):
    """Settings of a stream; fixed when it is created."""

    mode: Mode = Mode.LOG
    history: bool = True  # messages that leave the journal go to cold blocks; always so for a log
    block_rows: int = 1_000_000  # a block is written when there are this many messages; its maximum
    block_age_us: int = 24 * 3600 * SECOND_US  # or when the oldest message is this old
    retention_us: int = 0  # blocks with only older messages are removed; 0 = kept for ever
    retention_bytes: int = 0  # the oldest blocks are removed while all are larger; 0 = kept

    @property
    def earlier_declared(self) -> Sequence[Schema]:
        return ()  # a stream has one


@functools.lru_cache(maxsize=1024)
def decode_settings(data: bytes) -> Settings:
    """Reads settings.

    Raises:
        ValueError: if they are invalid; the text says why.
    """
    given = settings.read(data, Settings)
    found = settings.with_columns(Settings(**{**given, **settings.words(given, mode=Mode)}))
    settings.check_switch("history", found.history)
    if found.mode is Mode.LOG and not found.history:
        raise ValueError("a stream of mode log has history; use retention to keep less of it")
    check = settings.check_number
    check("block_rows", found.block_rows, 1, limits.BLOCK_ROWS_MAX)
    check("block_age_us", found.block_age_us, 1, limits.BLOCK_AGE_US_MAX)
    check("retention_us", found.retention_us, 0, limits.RETENTION_US_MAX)
    check("retention_bytes", found.retention_bytes, 0, 2**63 - 1)
    return found
