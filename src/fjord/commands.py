"""Commands and replies: what may be asked of Fjord, and what it answers.

These records are the one language between all shells and the engine: a client builds a command,
`wire` carries it, `tables` decides it.  Every command is a batch; one entry is a batch of one.
Nobody changes a record once it is made; they are not frozen only because freezing makes them
twice as slow to make, and one is made for every request.  Those of jobs tables are in
`job_commands`, those of streams, snapshots and blocks in `stream_commands`, those of history and
of staged rows in `history_commands` and `staging_commands`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fjord import limits
from fjord.columns import Strings
from fjord.errors import Code, RefusedError
from fjord.history_commands import ReplaceBlocks, Span, Spanned
from fjord.job_commands import (
    Acted,
    Bury,
    Cancel,
    CountJobs,
    Discard,
    Extend,
    Fail,
    Find,
    Finish,
    JobPage,
    ListenJobs,
    Next,
    Peek,
    Push,
    Reschedule,
    Revive,
    Taken,
)
from fjord.staging_commands import Advance, AskWriter, CommitStages, Committed, Stage
from fjord.stream_commands import (
    Acknowledge,
    Append,
    AsOf,
    BlockList,
    CloseSnapshot,
    Erase,
    InBlock,
    Lag,
    ListBlocks,
    ListSubscribers,
    Messages,
    Opened,
    OpenSnapshot,
    Position,
    Read,
    Rest,
    SealNow,
    Seek,
    Subscribe,
    Subscribers,
    Unsubscribe,
)

# A connection that has chosen no table speaks to this one.
DEFAULT_TABLE: Final = "default"

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{limits.NAME_BYTES_MAX - 1}}}\Z")


@dataclass(slots=True, kw_only=True)
class Nop:
    """Does nothing, and is answered after the writes and reads before it."""


# -- key/value tables -----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Set:
    """Gives values to keys; all of them or none."""

    table: str
    keys: Strings
    types: bytes  # one type byte a key
    values: Strings
    timestamps_us: Sequence[int]  # the client's, one a key; the largest one wins
    expires_at_us: int = 0  # 0 = never, or now + ttl_us
    ttl_us: int = 0  # how long a touch lets it live; 0 = a touch does nothing
    overwrite: bool = True  # False: refuse if any of the keys is there
    persist: bool = True  # False: memory only, gone with the process
    also: Strings | None = None  # the value's further keys from now on, with one key only


@dataclass(slots=True, kw_only=True)
class Get:
    """Asks for the values of keys."""

    table: str
    keys: Strings
    with_data: bool = True  # False: a probe, types and dates only
    skip_worked: bool = False  # values that are worked on are left out


@dataclass(slots=True, kw_only=True)
class Touch:
    """Asks for the values of keys, and marks them: they live longer, or are worked on."""

    table: str
    keys: Strings
    extend: bool = False  # let them live longer: to `expires_at_us`, or by their own TTL
    expires_at_us: int = 0  # with `extend`: at least until then; 0 = by their TTL alone
    worked_until_us: int = 0  # worked on until then; values worked on already are left out
    with_data: bool = True


@dataclass(slots=True, kw_only=True)
class Delete:
    """Takes the values of keys away; a missing key is no error."""

    table: str
    keys: Strings
    timestamp_us: int  # for nothing where each key has its own
    timestamps_us: Sequence[int] | None = None  # one a key; None = `timestamp_us` for all
    purge: bool = False  # True: without a tombstone, removed everywhere


class Change(enum.IntEnum):
    """How `Modify` changes a value; the numbers are those of the functions."""

    ADD = 5  # adds the operand, an integer or a float
    NOT = 6  # flips a boolean
    TRUNCATE = 7  # keeps the first bytes, as many as the operand says


@dataclass(slots=True, kw_only=True)
class Modify:
    """Changes the value of a key where it is, and answers with the new one."""

    table: str
    key: bytes
    change: Change
    operand: bytes = b""  # 8 bytes: of a number of type `operand_type`, or a size (an integer)
    operand_type: int = 3  # INTEGER
    timestamp_us: int


@dataclass(slots=True, kw_only=True)
class Rename:
    """Gives a value another key; all else of it stays."""

    table: str
    key: bytes
    to: bytes
    timestamp_us: int
    overwrite: bool = False  # False: refuse if `to` has a value


@dataclass(slots=True, kw_only=True)
class Lock:
    """Nobody else may write these keys until they are unlocked, or the client is gone."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Unlock:
    """Gives keys free that this client has locked."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Range:
    """Asks for entries in the order of their keys, a bounded page at a time."""

    table: str
    start: bytes = b""  # the first key that counts
    stop: bytes = b""  # the first key that no longer counts; empty = to the end
    count: int = 0  # at most so many entries; 0 = the server's maximum
    regex: bytes = b""  # RE2: only keys in which it is found
    with_data: bool = True
    skip_worked: bool = False


@dataclass(slots=True, kw_only=True)
class Listen:
    """Asks to be told of every change of these keys from now on."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Unlisten:
    """Asks to be told no more."""

    identifier: int  # of the LISTEN request


# -- tables, sessions, history --------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class CreateTable:
    """Makes a table; one that is there, and is the same, is no error."""

    name: str
    kind: int  # tables.state.Kind
    settings: bytes = b""
    changes: bool = False  # one that is there, with a period, gets these with a new generation


@dataclass(slots=True, kw_only=True)
class DropTable:
    """Takes a table away with all that is in it."""

    name: str


@dataclass(slots=True, kw_only=True)
class ListTables:
    """Asks which tables there are."""

    name: str = ""  # only this one


@dataclass(slots=True, kw_only=True)
class Stats:
    """Asks for the numbers by which a node is watched."""


@dataclass(slots=True, kw_only=True)
class Hello:
    """Says who the client is, so that it can number its batches."""

    client: bytes  # 16 bytes that no other client has


@dataclass(slots=True, kw_only=True)
class Batch:
    """Runs commands as one: all of them or none, visible at one moment."""

    commands: Sequence[Command]
    client: bytes = b""  # with a number: whose
    number: int = 0  # the client's, ascending from 1; a retry with it is applied once


@dataclass(slots=True, kw_only=True)
class Scan:
    """Asks for the ops of a table, in order, from `start_seq` up to before `end_seq`."""

    table: str
    start_seq: int
    end_seq: int  # 0 = everything that is durable now
    bytes_max: int = limits.SCAN_BYTES_MAX
    opcodes: bytes = b""  # only ops of these kinds; empty = of all
    key_prefix: bytes = b""  # only what is about keys that begin so; see ScannedArrow
    arrow: bool = False  # True: answered with ScannedArrow
    columns: Sequence[str] = ()  # only these columns, of ScannedArrow; empty = all


Command = (
    Nop
    | Set
    | Get
    | Touch
    | Delete
    | Modify
    | Rename
    | Lock
    | Unlock
    | Range
    | Listen
    | Unlisten
    | Push
    | Next
    | Finish
    | Extend
    | Fail
    | Cancel
    | Reschedule
    | Bury
    | Revive
    | Discard
    | Peek
    | Find
    | CountJobs
    | ListenJobs
    | Append
    | Erase
    | Read
    | Subscribe
    | Acknowledge
    | Seek
    | Rest
    | Unsubscribe
    | ListSubscribers
    | Lag
    | OpenSnapshot
    | CloseSnapshot
    | AsOf
    | ListBlocks
    | SealNow
    | Span
    | ReplaceBlocks
    | Stage
    | CommitStages
    | AskWriter
    | Advance
    | CreateTable
    | DropTable
    | ListTables
    | Stats
    | Hello
    | Batch
    | Scan
)


# -- replies --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Done:
    """It is done, and as durable as was asked: the token (master, seq) names the moment."""

    master: bytes  # UUID of the writer that gave out `seq`
    seq: int  # everything up to here includes this command's effect


@dataclass(slots=True, kw_only=True)
class Entries:
    """Values in the order of the keys asked for; a missing one has type MISSING."""

    MISSING = 0xFF
    # Bits of a state.
    LOCKED = 1
    WORKED_ON = 2
    # The columns of numbers, in the order in which they are laid out.
    NUMBERS = ("timestamps_us", "expires_at_us", "created_us", "accessed_us", "ttls_us")

    types: bytes
    values: Strings
    timestamps_us: Sequence[int]  # last modified, by the writer's clock
    expires_at_us: Sequence[int]  # 0 = never
    states: bytes  # one a key
    created_us: Sequence[int]
    accessed_us: Sequence[int]  # last marked or touched, 0 = never
    ttls_us: Sequence[int]  # 0 = none


@dataclass(slots=True, kw_only=True)
class Page:
    """Entries in the order of their keys, perhaps none; all of them are there."""

    keys: Strings
    entries: Entries
    next_key: bytes  # where the next page begins; empty: there is no more


@dataclass(slots=True, kw_only=True)
class TableList:
    """Tables by name."""

    names: Strings
    ids: Sequence[int]
    kinds: bytes
    settings: Strings


@dataclass(slots=True, kw_only=True)
class Numbers:
    """Numbers by name; which ones is said in docs/operations.md."""

    names: Strings
    values: Sequence[int]


@dataclass(slots=True, kw_only=True)
class Welcome:
    """Who answers."""

    client: bytes  # as it was said, or a new one if it was all zeros
    master: bytes  # UUID of the writer
    version: str  # of Fjord


@dataclass(slots=True, kw_only=True)
class Replies:
    """One reply to each command of a batch."""

    replies: Sequence[Reply]


@dataclass(slots=True, kw_only=True)
class Scanned:
    """Ops as they are stored, perhaps none.  Row i of an op has the seq `first_seqs[op] + i`."""

    first_seqs: Sequence[int]
    walls_us: Sequence[int]  # wall time of the commit
    last_seqs: Sequence[int]  # last seq of the commit that the op belongs to
    ops: Strings
    next_seq: int  # where to go on; equal to `end_seq` when there is no more
    end_seq: int  # the end that was asked for, or the durable end at that moment


@dataclass(slots=True, kw_only=True)
class ScannedArrow:
    """The same as rows of a table's history, in an Arrow IPC stream, perhaps without a row.

    Only rows whose keys begin with the prefix are in it.  Of `Scanned`, which has ops as they are
    stored, only those are left out in which no row has such a key.
    """

    stream: bytes
    next_seq: int
    end_seq: int


@dataclass(slots=True, kw_only=True)
class Refusal:
    """The command was refused and nothing changed."""

    code: Code
    text: str

    def error(self) -> RefusedError:
        return RefusedError.of(self.code, self.text)


Reply = (
    Done
    | Entries
    | Page
    | Taken
    | JobPage
    | Acted
    | Messages
    | InBlock
    | Position
    | Subscribers
    | Opened
    | BlockList
    | TableList
    | Numbers
    | Welcome
    | Replies
    | Scanned
    | ScannedArrow
    | Spanned
    | Committed
    | Refusal
)


def reply_bytes(reply: Reply) -> int:
    """Returns about how many bytes a reply has; one that is still in a block, at most."""
    if type(reply) is Entries:
        return len(reply.values.data)
    if type(reply) is Page:
        return len(reply.keys.data) + len(reply.entries.values.data)
    if isinstance(reply, Taken | JobPage):
        return len(reply.keys.data) + len(reply.values.data)
    if type(reply) is Messages:
        return reply.ops.offsets[-1]
    if type(reply) is InBlock:
        return limits.READ_BYTES_MAX
    if type(reply) is Replies:
        return sum(map(reply_bytes, reply.replies))
    return 0


class Changed(NamedTuple):
    """What a listener is told: a key of a table has this value now.

    Of a jobs table: the key is empty, the value the string `job_commands.ARRIVED` or `DUE`, and
    the timestamp the moment.
    """

    table: str
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int


def name_problem(name: str) -> Refusal | None:
    """Says what is wrong with a table's name, or None."""
    if _NAME.match(name):
        return None
    return Refusal(
        code=Code.BAD_NAME,
        text="a name is 1 to 128 of A-Z a-z 0-9 _ -, and does not begin with -",
    )
