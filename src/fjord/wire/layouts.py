"""What the bodies of functions above 16 hold, as data: for whoever shows them to people.

The codec is written out by hand, since it is hot; these tables say the same, and a test holds the
two together: whatever the codec takes, a walk along these tables reaches the end of.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fjord.commands import (
    Acted,
    BlockList,
    Committed,
    Done,
    Entries,
    JobPage,
    Messages,
    Numbers,
    Opened,
    Page,
    Position,
    Reply,
    Scanned,
    ScannedArrow,
    Spanned,
    Subscribers,
    TableList,
    Taken,
    Welcome,
)
from fjord.wire.functions import Flag, Function

Kind = Literal[
    "u32",
    "u64",
    "seq",  # a u64, of which the largest one is none
    "time",  # a u64 of microseconds since 1970
    "zeros",  # four bytes
    "rows",  # a u32: how many rows the columns behind it have
    "uuid",  # 16 bytes
    "size",  # a u32: the size of the `sized` step
    "sized",  # that many bytes, padded to a multiple of 8
    "sized column",  # that many u64, where columns differ in length
    "u8 column",
    "u64 column",
    "time column",
    "strings",
    "ops",  # strings, each of them an op of the journal
]


class Step(NamedTuple):
    """One field or one column."""

    kind: Kind
    name: str
    flag: int = 0  # only with this flag
    unless: int = 0  # only without this flag

    def is_in(self, flags: int) -> bool:
        """Says whether a message with these flags has it."""
        return not flags & self.unless and (not self.flag or bool(flags & self.flag))


_KEYS: Final = (Step("strings", "key"),)
_NAME: Final = (Step("strings", "name"),)
_XIDS: Final = (Step("u64 column", "xid"),)
_ROW: Final = (Step("u64 column", "row"),)
_REASON: Final = (
    Step("size", "size of the reason"),
    Step("zeros", "reserved"),
    Step("sized", "reason"),
)

# Behind the head of a request's body.
REQUEST_BODIES: Final[dict[Function, tuple[Step, ...]]] = {
    Function.HELLO: (Step("uuid", "client"),),
    Function.USE: (),
    Function.TABLES: (),
    Function.CREATE_TABLE: (Step("strings", "settings"),),
    Function.DROP_TABLE: (),
    Function.STATS: (),
    Function.SET_MANY: (
        Step("u64", "ttl", Flag.TTL),
        Step("time column", "date", Flag.TIMEOUT),
        Step("u8 column", "type"),
        Step("strings", "key"),
        Step("strings", "value"),
        Step("rows", "further keys", Flag.COUNT),
        Step("zeros", "reserved", Flag.COUNT),
        Step("strings", "further key", Flag.COUNT),
    ),
    Function.GET_MANY: _KEYS,
    Function.DELETE_MANY: (Step("time column", "date", Flag.TIMEOUT), *_KEYS),
    Function.TOUCH_MANY: (Step("time", "worked on until"), Step("strings", "key")),
    Function.MODIFY: (
        Step("u8 column", "type"),
        Step("strings", "key"),
        Step("strings", "operand"),
    ),
    Function.RENAME_KEY: (Step("strings", "key"), Step("strings", "new key")),
    Function.LOCK_MANY: _KEYS,
    Function.UNLOCK_MANY: _KEYS,
    Function.RANGE: (Step("strings", "start"), Step("strings", "stop"), Step("strings", "regex")),
    Function.LISTEN_MANY: _KEYS,
    Function.UNLISTEN: (),
    Function.PUSH_MANY: (
        Step("time column", "date", Flag.TIMEOUT),
        Step("time column", "process at", unless=Flag.TTL),
        Step("u64 column", "delay", Flag.TTL),
        Step("time column", "expires at"),
        Step("u8 column", "priority"),
        Step("u8 column", "type"),
        Step("strings", "key"),
        Step("strings", "domain"),
        Step("strings", "value"),
    ),
    Function.NEXT_MANY: (Step("u64", "lease"), Step("u64", "wait"), Step("strings", "domain")),
    Function.FINISH: _XIDS,
    Function.EXTEND: _XIDS,
    Function.FAIL: (*_REASON, *_XIDS),
    Function.CANCEL: _KEYS,
    Function.RESCHEDULE: (Step("u32", "priority"), Step("zeros", "reserved"), *_KEYS),
    Function.BURY: (*_REASON, *_KEYS),
    Function.REVIVE: _ROW,
    Function.DISCARD: _ROW,
    Function.PEEK: (
        Step("u32", "state"),
        Step("zeros", "reserved"),
        Step("strings", "start"),
        Step("strings", "domain"),
    ),
    Function.FIND: _KEYS,
    Function.COUNT_JOBS: (Step("strings", "domain"),),
    Function.LISTEN_JOBS: (),
    Function.SCAN: (
        Step("u64", "end seq"),
        Step("u32", "largest size"),
        Step("zeros", "reserved"),
        Step("strings", "opcodes", Flag.COUNT),
        Step("strings", "key prefix", Flag.COUNT),
        Step("rows", "columns", Flag.COUNT),
        Step("zeros", "reserved", Flag.COUNT),
        Step("strings", "column", Flag.COUNT),
    ),
    Function.APPEND: (
        Step("time column", "date", Flag.TIMEOUT),
        Step("u8 column", "type"),
        Step("strings", "key"),
        Step("strings", "value"),
    ),
    Function.ERASE: _KEYS,
    Function.READ: (
        Step("u64", "until"),
        Step("u64", "count"),
        Step("u64", "largest size"),
        Step("u64", "wait"),
        Step("strings", "subscriber"),
    ),
    Function.SUBSCRIBE: (Step("u32", "start"), Step("zeros", "reserved"), *_NAME),
    Function.ACKNOWLEDGE: (Step("u64", "epoch"), Step("seq", "expected"), *_NAME),
    Function.SEEK: (Step("u32", "start"), Step("zeros", "reserved"), *_NAME),
    Function.REST: _NAME,
    Function.UNSUBSCRIBE: _NAME,
    Function.SUBSCRIBERS: (Step("strings", "first name"),),
    Function.LAG: _NAME,
    Function.OPEN_SNAPSHOT: (),
    Function.CLOSE_SNAPSHOT: (),
    Function.BLOCKS: (Step("u64", "count"),),
    Function.SEAL: (),
    Function.SPAN: (
        Step("u64", "until"),
        Step("u64", "most rows"),
        Step("u64", "largest size"),
        Step("time", "before"),
        Step("uuid", "epoch"),
    ),
    Function.COMMIT: (
        Step("size", "size of the writer's name"),
        Step("zeros", "reserved"),
        Step("sized", "writer"),
        Step("u64 column", "stage"),
    ),
    Function.WRITER: (Step("strings", "writer"),),
    Function.REPLACE_BLOCKS: (
        Step("u64", "rows of the block"),
        Step("u64", "size"),
        Step("time", "earliest"),
        Step("time", "latest"),
        Step("u64", "crc"),
        *_NAME,
    ),
    Function.ADVANCE: (Step("seq", "expected"), Step("strings", "writer")),
}

# What the argument in a request's head is; 0 where it is not named.
ARGUMENTS: Final[dict[Function, str]] = {
    Function.BATCH: "number",
    Function.CREATE_TABLE: "kind",
    Function.SET_MANY: "expires at",
    Function.TOUCH_MANY: "expires at",
    Function.MODIFY: "change",
    Function.RANGE: "count",
    Function.UNLISTEN: "identifier",
    Function.NEXT_MANY: "count",
    Function.EXTEND: "lease",
    Function.FAIL: "delay",
    Function.RESCHEDULE: "date or delay",
    Function.REVIVE: "delay",
    Function.PEEK: "count",
    Function.SCAN: "start seq",
    Function.READ: "after",
    Function.SUBSCRIBE: "at",
    Function.ACKNOWLEDGE: "seq",
    Function.SEEK: "at",
    Function.REST: "asleep",
    Function.SUBSCRIBERS: "count",
    Function.LAG: "after",
    Function.OPEN_SNAPSHOT: "lifetime",
    Function.CLOSE_SNAPSHOT: "snapshot",
    Function.AS_OF: "snapshot",
    Function.BLOCKS: "after",
    Function.SPAN: "after",
    Function.COMMIT: "batch",
    Function.ADVANCE: "batch",
}

_ENTRY_COLUMNS: Final = (
    Step("u8 column", "type"),
    Step("u8 column", "state"),
    Step("time column", "timestamp"),
    Step("time column", "expires at"),
    Step("time column", "created"),
    Step("time column", "accessed"),
    Step("u64 column", "ttl"),
    Step("strings", "value"),
)
_ROWS: Final = (Step("rows", "rows"), Step("zeros", "reserved"))
_JOB_DATES: Final = (
    Step("time column", "process at"),
    Step("time column", "inserted"),
    Step("time column", "updated"),
    Step("time column", "expires at"),
)
_JOB_COLUMNS: Final = (
    Step("u8 column", "priority"),
    Step("u8 column", "timeouts"),
    Step("u8 column", "type"),
    Step("strings", "key"),
    Step("strings", "domain"),
    Step("strings", "value"),
)

REPLY_BODIES: Final[dict[type[Reply], tuple[Step, ...]]] = {
    Done: (Step("uuid", "master"), Step("u64", "seq")),
    Entries: (*_ROWS, *_ENTRY_COLUMNS),
    Page: (
        Step("rows", "rows"),
        Step("size", "size of the next key"),
        Step("sized", "next key"),
        Step("strings", "key"),
        *_ENTRY_COLUMNS,
    ),
    Taken: (
        Step("u64", "first xid"),
        Step("time", "until"),
        Step("time", "next at"),
        *_ROWS,
        *_ROW,
        *_JOB_DATES,
        *_JOB_COLUMNS,
    ),
    JobPage: (
        Step("rows", "rows"),
        Step("size", "size of the next start"),
        Step("sized", "next start"),
        *_ROW,
        *_XIDS,
        *_JOB_DATES,
        Step("time column", "moment"),
        *_JOB_COLUMNS,
        Step("strings", "reason"),
    ),
    Acted: (
        Step("uuid", "master"),
        Step("u64", "seq"),
        Step("rows", "rows that are missing"),
        Step("size", "rows that were dropped"),
        Step("u64 column", "missing"),
        Step("sized column", "dropped"),
    ),
    TableList: (
        *_ROWS,
        Step("u64 column", "id"),
        Step("u8 column", "kind"),
        Step("strings", "name"),
        Step("strings", "settings"),
    ),
    Numbers: (*_ROWS, Step("u64 column", "number"), Step("strings", "name")),
    Welcome: (Step("uuid", "client"), Step("uuid", "master"), Step("strings", "version")),
    Scanned: (
        Step("u64", "next seq"),
        Step("u64", "end seq"),
        Step("rows", "rows"),
        Step("u32", "form"),
        Step("u64 column", "first seq"),
        Step("time column", "wall time"),
        Step("u64 column", "last seq of the commit"),
        Step("ops", "op"),
    ),
    ScannedArrow: (
        Step("u64", "next seq"),
        Step("u64", "end seq"),
        Step("size", "size of the stream"),
        Step("u32", "form"),
        Step("sized", "stream"),
    ),
    Messages: (
        Step("u64", "after"),
        Step("u64", "until"),
        Step("u32", "messages"),
        Step("u32", "ended"),
        *_ROWS,
        Step("u64 column", "first seq"),
        Step("time column", "wall time"),
        Step("ops", "op"),
    ),
    Position: (
        Step("u64", "seq"),
        Step("u64", "epoch"),
        Step("u32", "asleep"),
        Step("u32", "created"),
    ),
    Subscribers: (
        Step("rows", "rows"),
        Step("size", "size of the next name"),
        Step("sized", "next name"),
        Step("u64 column", "seq"),
        Step("u64 column", "epoch"),
        Step("time column", "moved"),
        Step("u8 column", "asleep"),
        Step("strings", "name"),
    ),
    Spanned: (
        Step("u64", "seq"),
        Step("u64", "rows of the batch"),
        Step("u64", "size"),
        Step("time", "wall time"),
        Step("u64", "examined"),
        Step("u64", "durable seq"),
        Step("u64", "first seq of the journal"),
        Step("uuid", "epoch"),
        Step("u32", "more"),
        Step("zeros", "reserved"),
    ),
    Committed: (
        Step("seq", "batch"),
        Step("u32", "new"),
        Step("u32", "stages left"),
        Step("u64", "rows written"),
        Step("u64", "seq"),
    ),
    Opened: (Step("u64", "snapshot"), Step("time", "moment"), Step("time", "until")),
    BlockList: (
        Step("u64", "next after"),
        Step("rows", "rows"),
        Step("size", "size of the location"),
        Step("sized", "location"),
        Step("u64 column", "first seq"),
        Step("u64 column", "last seq"),
        Step("u64 column", "rows of the block"),
        Step("u64 column", "size"),
        Step("time column", "earliest"),
        Step("time column", "latest"),
        Step("u64 column", "crc"),
        Step("strings", "name"),
    ),
}
