"""What an engine is made of, and what it is good for."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fjord import disk as disks
from fjord.clock import Clock
from fjord.engine.layout import Layout
from fjord.index import Index, Indexes
from fjord.journal.reader import Journal
from fjord.journal.writer import Writer


class Status(enum.Enum):
    """What an engine is good for; it only ever moves down this list."""

    OPEN = "open"
    FAILED = "failed"  # the disk broke a promise: nothing is acknowledged any more
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What recovery hands to the engine."""

    disk: disks.Disk
    clock: Clock
    layout: Layout
    lock: disks.Lock
    journal: Journal
    writer: Writer
    indexes: Indexes
    index: Index
    last_lease_us: int
    segment_bytes: int
