"""The interfaces and records of decide and apply; the engine provides the implementations."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from fjord import kinds, layouts, limits, streams
from fjord.commands import Command, Reply
from fjord.layouts import Items
from fjord.ops import Op
from fjord.tables.jobs.lanes import Lanes


class Tree(enum.IntEnum):
    """The trees of the index."""

    META = 0  # applied seq, takeover table, begin of the journal, live bytes, dropped tables
    TABLES = 1  # table id -> kind, name, settings
    KV = 2  # table id | key -> entry
    KV_MARKS = 3  # table id | key -> row, last access, expiry, worked-on deadline
    KV_EXPIRY = 4  # expiry | table id | key -> row
    CLIENTS = 5  # client | number -> answer; client | largest number -> last number, date
    JOBS_READY = 6  # table id | place -> row, see `jobs.layout`
    JOBS_KEYS = 7  # table id | hash | probe -> place; of waiting jobs
    JOBS_TAKEN = 8  # table id | xid -> lease, place, row
    JOBS_LEASES = 9  # deadline | table id | first xid -> count; looked up in JOBS_TAKEN when due
    JOBS_EXPIRY = 10  # expiry | table id | row -> place; of waiting jobs
    JOBS_DEAD = 11  # table id | row -> date and reason, place, row
    STREAM_OPS = 12  # table id | last seq of an append -> its pointer, see `streams.layout`
    STREAM_SEQS = 13  # table id | seq -> key, of streams that keep the latest; entries are in KV
    SUBSCRIBERS = 14  # table id | name -> mark, epoch
    SNAPSHOTS = 15  # deadline | snapshot -> its moment
    VERSIONS = 16  # snapshot | tree | key of that tree -> the replaced entry
    HISTORY = 17  # table id -> how far it is sealed
    BLOCKS = 18  # table id | last seq -> block
    STAGES = 19  # table id | seq -> an op that is not committed yet, see `staging`
    WRITERS = 20  # table id | name -> last batch
    REPLACED = 21  # table id | last seq | name -> block that was replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as declared by its CREATE_TABLE op."""

    id: int
    name: str
    kind: kinds.Kind
    settings: bytes = b""
    prefix: bytes = field(init=False)  # the first bytes of all index keys of the table
    is_latest: bool = field(init=False)  # a stream that keeps the latest message of each key
    is_log: bool = field(init=False)  # a stream that keeps every message

    def __post_init__(self) -> None:
        is_stream = self.kind is kinds.Kind.STREAM
        mode = streams.decode_settings(self.settings).mode if is_stream else None
        object.__setattr__(self, "prefix", layouts.prefix_of(self.id))
        object.__setattr__(self, "is_latest", mode is streams.Mode.LATEST)
        object.__setattr__(self, "is_log", is_stream and not self.is_latest)


class Pointer(NamedTuple):
    """The position of a payload in the journal."""

    segment: int
    offset: int
    size: int
    crc: int
    # The row that holds it, if known: a restored or repaired journal may have it elsewhere.
    seq: int = 0


# A pointer, or a plain tuple of the same form where there are many.
AnyPointer = Pointer | tuple[int, int, int, int, int]


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
    """Returns what an entry in memory counts toward the quota."""
    return limits.VOLATILE_ENTRY_BYTES + len(key) + len(value.value)


class Writes(Protocol):
    """The write interface of apply."""

    def put_many(self, tree: int, items: Sequence[tuple[bytes, bytes]]) -> None: ...

    def delete_many(self, tree: int, keys: Iterable[bytes]) -> None: ...

    def account(
        self, seq: int, added: int, previous: Sequence[int] = (), freed: Sequence[int] = ()
    ) -> None:
        """Counts `added` live bytes for rows from `seq` on, and fewer for earlier rows."""

    def tally_rows(self, table: int, rows: Sequence[int], change: int) -> None:
        """Counts the jobs of these rows as added (1) or gone (-1)."""

    def tally(
        self, table: int, before: int, after: int, held: Sequence[int] = (), *, holds: int = 0
    ) -> None:
        """Counts jobs that changed their state (jobs.State; 0 = none).

        Args:
            table: its id.
            before: their previous state.
            after: their new state.
            held: the seqs that held them so far.
            holds: how many of them this op holds from now on: all, or none.
        """


class Generation(NamedTuple):
    """A generation of a table with a period, see `generations`."""

    id: int
    number: int  # 1 for the first
    began_us: int
    first_row: int
    schema: int  # with which it began


class JobCounts(NamedTuple):
    """How many jobs a table has."""

    waiting: int = 0
    taken: int = 0
    dead: int = 0


class Moment(NamedTuple):
    """When a snapshot was opened, and when it is closed automatically."""

    deadline_us: int  # lease time
    wall_us: int
    largest: int = 0  # largest table id at that time
    is_pass: bool = False  # opened for a reader, and closed when it reaches its end


class View(Protocol):
    """The read interface of decide: the state after all ops applied so far."""

    @property
    def master(self) -> bytes: ...

    @property
    def next_seq(self) -> int: ...

    @property
    def tables(self) -> Mapping[str, Table]: ...

    @property
    def client(self) -> int:
        """The number of the client; it lives as long as its connection."""

    @property
    def lease_us(self) -> int:
        """Lease time now."""

    @property
    def locks(self) -> Mapping[bytes, int]:
        """The locks: index key -> client."""

    @property
    def volatile(self) -> Mapping[bytes, VolatileValue]:
        """Values with persist=0, by index key.  A key is here or in the index, not in both."""

    @property
    def volatile_bytes(self) -> int: ...

    def volatile_between(self, start: bytes, stop: bytes | None, limit: int) -> list[bytes]:
        """Returns up to `limit` keys of `volatile` in order from `start` to before `stop`."""

    def get_many(self, tree: int, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, tree: int, start: bytes, stop: bytes | None, limit: int) -> Items:
        """Returns up to `limit` items in key order from `start` to before `stop`."""

    def payloads(self, pointers: Sequence[AnyPointer]) -> list[bytes]: ...

    @property
    def lanes(self) -> Lanes: ...

    @property
    def snapshots(self) -> Mapping[int, Moment]:
        """The snapshots that are open, the oldest first."""

    @property
    def as_of(self) -> int:
        """The snapshot of this state, 0 = the current state."""

    @property
    def location(self) -> str:
        """Where cold blocks are; empty if there is no location."""

    def job_counts(self, table: int) -> JobCounts: ...

    def linked_keys(self, table: int) -> Mapping[bytes, Sequence[bytes]]:
        """Returns the further keys of values of a kv table by the key that each leads to.

        Some may lead elsewhere by now, or nowhere.  The first call after a start reads all keys of
        the table.
        """

    def taken_keys(self, table: int) -> Mapping[bytes, int]:
        """Returns the xids of taken jobs by the hashes of their keys, for tables that merge.

        Of several jobs of a key it is the newest one.  A job may be gone meanwhile.
        """

    @property
    def generations(self) -> Mapping[int, Sequence[Generation]]:
        """The generations of tables with a period, by table; the current one is the last."""

    def size_of(self, tree: int) -> int:
        """Returns the number of items of a tree, without changes of the current batch."""


class Decision(NamedTuple):
    """The result of deciding a command: the ops to apply, in order, and the reply."""

    reply: Reply
    ops: Sequence[Op] = ()
    # Changes of values that never enter the journal; None removes a value.
    volatile: Mapping[bytes, VolatileValue | None] = MappingProxyType({})
    # Changes of locks: index key -> client; None unlocks.
    locks: Mapping[bytes, int | None] = MappingProxyType({})


Decide = TypeVar("Decide", bound=Callable[..., Decision])


def decides(command: type[Command]) -> Callable[[Decide], Decide]:
    """Registers a function as the one that decides a command."""

    def register(decide: Decide) -> Decide:
        command.row.decide = decide
        return decide

    return register
