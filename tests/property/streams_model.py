"""Streams, maps, subscribers and snapshots as one plain list of what was written.

Whatever the engine answers follows from that list: what a table has at a seq is the fold of all
that was written up to it, and what a reader is given are the messages of the list.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from fjord import limits, streams
from fjord.streams import Mode, Start
from tests.unit.engine.shore import Message

HOUR_US = 3600 * 1_000_000
LOG, AGED, LATEST, BARE, KV = "log", "aged", "latest", "bare", "kv"
STREAMS = {
    LOG: streams.Settings(block_rows=7),
    AGED: streams.Settings(block_rows=3, retention_us=HOUR_US),
    LATEST: streams.Settings(mode=Mode.LATEST, block_rows=4),
    BARE: streams.Settings(mode=Mode.LATEST, history=False),
}
LOGS = [LOG, AGED]
MAPS = [LATEST, BARE, KV]


@dataclass(slots=True)
class Mark:
    """A subscriber."""

    seq: int
    epoch: int = 0
    asleep: bool = False


@dataclass
class Model:
    """All tables, all subscribers, all open snapshots."""

    tables: dict[str, list[Message]] = field(
        default_factory=lambda: {name: [] for name in [*STREAMS, KV]}
    )
    gone: dict[str, int] = field(default_factory=dict)  # logs need not have these seqs any more
    marks: dict[tuple[str, str], Mark] = field(default_factory=dict)
    snapshots: dict[int, int] = field(default_factory=dict)  # -> deadline, in lease time

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def write(self, table: str, messages: list[Message]) -> None:
        found = self.tables[table]
        assert [*found, *messages] == sorted([*found, *messages], key=lambda one: one.seq)
        found += messages

    @property
    def last_seq(self) -> int:
        """Returns the seq of the newest thing that was written."""
        return max((found[-1].seq for found in self.tables.values() if found), default=0)

    def newest(self, table: str, until: int) -> dict[bytes, Message]:
        """Returns the newest message of each key at a seq, tombstones too."""
        return {one.key: one for one in self.tables[table] if one.seq <= until}

    def entries(self, table: str, until: int) -> list[Message]:
        """Returns what a map has at a seq, by key."""
        found = sorted(self.newest(table, until).items())
        return [one for _, one in found if not one.is_tombstone]

    def messages(self, table: str, after: int, until: int, end: int) -> list[Message]:
        """Returns what a reader that is at `after` gets up to `end`, of the snapshot `until`."""
        if table in LOGS:
            found = self.tables[table]
        else:
            found = sorted(self.newest(table, until).values(), key=lambda one: one.seq)
        return [one for one in found if after < one.seq <= min(until, end)]

    def ahead(self, table: str, after: int) -> list[Message]:
        return self.messages(table, after, self.last_seq, self.last_seq)

    def from_start(self, table: str, start: Start, at: int) -> list[Message]:
        """Returns the messages that are ahead of a subscriber that begins so."""
        every = self.ahead(table, 0)
        if start is Start.BEGINNING:
            return every
        if start is Start.END:
            return []
        if start is Start.SEQ:
            return [one for one in every if one.seq >= at]
        return [one for one in every if one.wall_us >= at]

    def needed(self, table: str, found: list[Message], now_us: int) -> list[Message]:
        """Returns messages without those that may be gone: old tombstones, and by retention."""
        gone, old_us = self.gone.get(table, 0), now_us - limits.TOMBSTONE_US
        return [
            one
            for one in found
            if one.seq > gone and not (one.is_tombstone and one.wall_us <= old_us)
        ]


def is_over(deadline_us: int, lease_us: int) -> bool:
    return deadline_us <= lease_us


def deadline_us(lease_us: int, lifetime_us: int = 0) -> int:
    """Returns when a snapshot ends that is opened now."""
    return lease_us + (lifetime_us or limits.SNAPSHOT_US_MAX)
