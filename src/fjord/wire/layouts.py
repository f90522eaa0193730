"""What the bodies of functions above 16 hold, as data: for whoever shows them to people.

The codec is written out by hand, since it is hot; these tables say the same, and a test holds the
two together: whatever the codec takes, a walk along these tables reaches the end of.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fjord.commands import Done, Entries, Numbers, Page, Reply, Scanned, TableList, Welcome
from fjord.wire.functions import Flag, Function

Kind = Literal[
    "u32",
    "u64",
    "time",  # a u64 of microseconds since 1970
    "zeros",  # four bytes
    "rows",  # a u32: how many rows the columns behind it have
    "uuid",  # 16 bytes
    "size",  # a u32: the size of the `sized` step
    "sized",  # that many bytes, padded to a multiple of 8
    "u8 column",
    "u64 column",
    "time column",
    "strings",
]


class Step(NamedTuple):
    """One field or one column."""

    kind: Kind
    name: str
    flag: int = 0  # only with this flag


_KEYS: Final = (Step("strings", "key"),)

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
        Step("u8 column", "type"),
        Step("strings", "key"),
        Step("strings", "value"),
        Step("rows", "further keys", Flag.COUNT),
        Step("zeros", "reserved", Flag.COUNT),
        Step("strings", "further key", Flag.COUNT),
    ),
    Function.GET_MANY: _KEYS,
    Function.DELETE_MANY: _KEYS,
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
    Function.SCAN: (
        Step("u64", "end seq"),
        Step("u32", "largest size"),
        Step("zeros", "reserved"),
    ),
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
    Function.SCAN: "start seq",
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
        *_ROWS,
        Step("u64 column", "first seq"),
        Step("time column", "wall time"),
        Step("u64 column", "last seq of the commit"),
        Step("strings", "op"),
    ),
}
