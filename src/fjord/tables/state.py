"""What decide and apply need of the world; the engine provides it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fjord import limits
from fjord.commands import Reply
from fjord.ops import Op


class Tree(enum.IntEnum):
    """The trees of the index."""

    META = 0  # applied seq, takeover table, begin of the journal, live bytes, dropped tables
    TABLES = 1  # table id -> kind, name, settings
    KV = 2  # table id | key -> entry
    KV_MARKS = 3  # table id | key -> row, last access, expiry, worked-on deadline
    KV_EXPIRY = 4  # expiry | table id | key -> row
    CLIENTS = 5  # client | number -> answer; client | largest number -> last number, date


class Kind(enum.IntEnum):
    """What a table is; stored in CREATE_TABLE ops."""

    KV = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as its CREATE_TABLE op declared it."""

    id: int
    name: str
    kind: Kind
    settings: bytes = b""
    prefix: bytes = field(init=False)  # the first bytes of all index keys of the table

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.id.to_bytes(4, "big"))


class Pointer(NamedTuple):
    """Where a payload rests in the journal."""

    segment: int
    offset: int
    size: int
    crc: int


class VolatileValue(NamedTuple):
    """A value with persist=0: in memory only, never in the journal."""

    type: int
    value: bytes
    timestamp_us: int
    expires_at_us: int
    ttl_us: int = 0
    created_us: int = 0
    accessed_us: int = 0
    worked_until_us: int = 0  # lease time


def volatile_bytes(key: bytes, value: VolatileValue) -> int:
    """Returns what an entry in memory counts for its quota."""
    return limits.VOLATILE_ENTRY_BYTES + len(key) + len(value.value)


class Writes(Protocol):
    """All that apply may do."""

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None: ...

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None: ...

    def account(
        self, seq: int, added: int, previous: Sequence[int] = (), freed: Sequence[int] = ()
    ) -> None:
        """Takes note that rows from `seq` on hold `added` live bytes, and earlier ones fewer."""
        ...


class State(Protocol):
    """All that decide may look at: the state after every op that was applied so far."""

    @property
    def master(self) -> bytes: ...

    @property
    def next_seq(self) -> int: ...

    @property
    def tables(self) -> Mapping[str, Table]: ...

    @property
    def client(self) -> int:
        """Who asks: a number that lives as long as its connection."""
        ...

    @property
    def lease_us(self) -> int:
        """Lease time now."""
        ...

    @property
    def locks(self) -> Mapping[bytes, int]:
        """Who has locked what: index key -> client."""
        ...

    @property
    def volatile(self) -> Mapping[bytes, VolatileValue]:
        """Values with persist=0, by index key.  A key is here or in the index, not in both."""
        ...

    @property
    def volatile_bytes(self) -> int: ...

    def volatile_between(self, start: bytes, stop: bytes | None, limit: int) -> list[bytes]:
        """Returns up to `limit` keys of `volatile` in order from `start` to before `stop`."""
        ...

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(
        self, tree: int, start: bytes, stop: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Returns up to `limit` items in key order from `start` to before `stop`."""
        ...

    def payloads(self, pointers: Sequence[Pointer]) -> list[bytes]: ...


class Decision(NamedTuple):
    """What a command comes to: the ops to apply, in order, and the reply."""

    reply: Reply
    ops: Sequence[Op] = ()
    # Changes of values that never enter the journal; None removes one.
    volatile: Mapping[bytes, VolatileValue | None] = MappingProxyType({})
    # Changes of locks: index key -> client; None unlocks.
    locks: Mapping[bytes, int | None] = MappingProxyType({})
