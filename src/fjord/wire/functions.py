"""Function numbers, flags and headers of FJ version 1."""

from __future__ import annotations

import enum
import struct
from typing import Final

MAGIC_REQUEST: Final = b"FJ"
MAGIC_REPLY: Final = b"JR"
VERSION: Final = 1

# magic, version, function, identifier, flags, timestamp
REQUEST = struct.Struct(">2sHHHHQ")
# magic, version, identifier, flags, timestamp
REPLY = struct.Struct(">2sHHHQ")
# Behind the header of functions above 16, and of replies with Flag.BODY: the body's length.
BODY_LENGTH = struct.Struct(">I")

# Functions up to here have no body; docs/protocol.md says why they are called so.
LAST_SEED_FUNCTION: Final = 16


class Function(enum.IntEnum):
    """What a request asks for."""

    NOP = 0
    QUIT = 1
    SET = 2
    GET = 3
    DELETE = 4
    ADD = 5
    NOT = 6
    TRUNCATE = 7
    LOCK = 8
    UNLOCK = 9
    RENAME = 10
    NEXT = 11
    DONE = 12
    TOUCH = 13
    PING = 14
    LISTEN = 15
    CHANGE = 16  # sent by servers only
    HELLO = 17
    USE = 18  # the table of the seed functions from now on
    BATCH = 19
    TABLES = 20
    CREATE_TABLE = 21
    DROP_TABLE = 22
    STATS = 23
    SET_MANY = 32
    GET_MANY = 33
    DELETE_MANY = 34
    TOUCH_MANY = 35
    MODIFY = 36
    RENAME_KEY = 37
    LOCK_MANY = 38
    UNLOCK_MANY = 39
    RANGE = 40
    LISTEN_MANY = 41
    UNLISTEN = 42
    PUSH_MANY = 48
    NEXT_MANY = 49
    FINISH = 50
    EXTEND = 51
    FAIL = 52
    CANCEL = 53
    RESCHEDULE = 54
    BURY = 55
    REVIVE = 56
    DISCARD = 57
    PEEK = 58
    FIND = 59
    COUNT_JOBS = 60
    LISTEN_JOBS = 61
    SCAN = 64
    APPEND = 65
    ERASE = 66
    READ = 67
    SUBSCRIBE = 68
    ACKNOWLEDGE = 69
    SEEK = 70
    REST = 71
    UNSUBSCRIBE = 72
    SUBSCRIBERS = 73
    LAG = 74
    OPEN_SNAPSHOT = 75
    CLOSE_SNAPSHOT = 76
    AS_OF = 77
    BLOCKS = 78
    SEAL = 79
    SPAN = 80
    STAGE = 81
    COMMIT = 82
    WRITER = 83
    REPLACE_BLOCKS = 84
    ADVANCE = 85


class Flag:
    """The bits of the flags field; plain integers, since every message is tested for them."""

    KEY_16: Final = 1 << 0  # key and error sizes have 16 bits, not 8
    VALUE_8: Final = 1 << 1  # the value size has 8 bits
    VALUE_16: Final = 1 << 2  # ... 16 bits; both: 32 bits; neither: no value
    TIMEOUT: Final = 1 << 3  # a timeout follows the timestamp
    UPDATE_TIMEOUT: Final = 1 << 4  # the timeout is an expiry: let it live at least until then
    OVERWRITE: Final = 1 << 5  # replace what is there; in replies: the value is locked
    WORKED_ON: Final = 1 << 6  # leave out what is worked on; in replies: it is worked on
    QUERY_RANGE: Final = 1 << 7  # two keys
    QUERY_REGEX: Final = 1 << 8  # the key is an expression; both: the key is a cursor
    PERSIST: Final = 1 << 9
    DATA: Final = 1 << 10
    LISTEN: Final = 1 << 11  # tell me when this value changes
    PERSIST_SYNONYM: Final = 1 << 12  # accepted on SET, never sent
    COUNT: Final = 1 << 13  # a count follows
    TTL: Final = 1 << 14  # how long a touch lets it live: a u64 behind the timeout
    BODY: Final = 1 << 15  # in replies: a u32 length and a body follow the error


FLAG_NAMES: Final[dict[int, str]] = {
    bit: name for name, bit in vars(Flag).items() if not name.startswith("_")
}
VALUE_BITS: Final = Flag.VALUE_8 | Flag.VALUE_16
QUERY_BITS: Final = Flag.QUERY_RANGE | Flag.QUERY_REGEX
QUERY_CURSOR: Final = QUERY_BITS  # both bits: a former GET is continued
# What two bits that are one number of two are called when both of them are set.
_BOTH_NAMES: Final = {VALUE_BITS: "VALUE_32", QUERY_BITS: "QUERY_CURSOR"}
_SIZE_FLAGS: Final = Flag.KEY_16 | VALUE_BITS

# The flags that each function understands; any other one is refused by name.
FLAGS: Final[dict[int, int]] = {
    Function.NOP: 0,
    Function.QUIT: 0,
    Function.SET: _SIZE_FLAGS
    | Flag.TIMEOUT
    | Flag.TTL
    | Flag.OVERWRITE
    | Flag.PERSIST
    | Flag.PERSIST_SYNONYM
    | Flag.LISTEN,
    Function.GET: Flag.KEY_16
    | Flag.TIMEOUT
    | Flag.UPDATE_TIMEOUT
    | Flag.WORKED_ON
    | QUERY_BITS
    | Flag.DATA
    | Flag.LISTEN
    | Flag.COUNT,
    Function.DELETE: Flag.KEY_16 | Flag.OVERWRITE,
    Function.ADD: _SIZE_FLAGS,
    Function.NOT: Flag.KEY_16,
    Function.TRUNCATE: _SIZE_FLAGS,
    Function.LOCK: Flag.KEY_16,
    Function.UNLOCK: Flag.KEY_16,
    Function.RENAME: Flag.KEY_16 | Flag.OVERWRITE,
    Function.NEXT: Flag.KEY_16 | Flag.TIMEOUT | Flag.OVERWRITE,
    Function.DONE: Flag.KEY_16,
    Function.TOUCH: Flag.KEY_16 | Flag.TIMEOUT,
    Function.PING: 0,
    Function.LISTEN: Flag.KEY_16,
    Function.CHANGE: _SIZE_FLAGS | Flag.TIMEOUT,
    Function.HELLO: 0,
    Function.USE: 0,
    Function.BATCH: 0,
    Function.TABLES: 0,
    Function.CREATE_TABLE: Flag.OVERWRITE,
    Function.DROP_TABLE: 0,
    Function.STATS: 0,
    Function.SET_MANY: Flag.TIMEOUT | Flag.OVERWRITE | Flag.PERSIST | Flag.TTL | Flag.COUNT,
    Function.GET_MANY: Flag.DATA | Flag.WORKED_ON,
    Function.DELETE_MANY: Flag.TIMEOUT | Flag.OVERWRITE,
    Function.TOUCH_MANY: Flag.DATA | Flag.UPDATE_TIMEOUT,
    Function.MODIFY: 0,
    Function.RENAME_KEY: Flag.OVERWRITE,
    Function.LOCK_MANY: 0,
    Function.UNLOCK_MANY: 0,
    Function.RANGE: Flag.DATA | Flag.WORKED_ON,
    Function.LISTEN_MANY: 0,
    Function.UNLISTEN: 0,
    Function.PUSH_MANY: Flag.TIMEOUT | Flag.TTL,
    Function.NEXT_MANY: Flag.OVERWRITE,
    Function.FINISH: 0,
    Function.EXTEND: 0,
    Function.FAIL: Flag.OVERWRITE | Flag.COUNT,
    Function.CANCEL: 0,
    Function.RESCHEDULE: Flag.UPDATE_TIMEOUT | Flag.OVERWRITE | Flag.TTL,
    Function.BURY: 0,
    Function.REVIVE: 0,
    Function.DISCARD: 0,
    Function.PEEK: 0,
    Function.FIND: 0,
    Function.COUNT_JOBS: 0,
    Function.LISTEN_JOBS: 0,
    Function.SCAN: Flag.DATA | Flag.COUNT,
    Function.APPEND: Flag.TIMEOUT,
    Function.ERASE: 0,
    Function.READ: Flag.DATA,
    Function.SUBSCRIBE: 0,
    Function.ACKNOWLEDGE: 0,
    Function.SEEK: 0,
    Function.REST: 0,
    Function.UNSUBSCRIBE: 0,
    Function.SUBSCRIBERS: 0,
    Function.LAG: 0,
    Function.OPEN_SNAPSHOT: 0,
    Function.CLOSE_SNAPSHOT: 0,
    Function.AS_OF: 0,
    Function.BLOCKS: 0,
    Function.SEAL: 0,
    Function.SPAN: 0,
    Function.STAGE: 0,
    Function.COMMIT: 0,
    Function.WRITER: 0,
    Function.REPLACE_BLOCKS: 0,
    Function.ADVANCE: 0,
}
# The flags that a reply may have.
REPLY_FLAGS: Final = (
    _SIZE_FLAGS
    | Flag.TIMEOUT
    | Flag.OVERWRITE
    | Flag.WORKED_ON
    | QUERY_BITS
    | Flag.COUNT
    | Flag.BODY
)

FUNCTIONS: Final[dict[int, Function]] = {int(function): function for function in Function}


def unknown_flag(function: Function, flags: int) -> str:
    """Returns what is wrong with the flags of a request, nothing if all is well."""
    wrong = flags & ~FLAGS[function]
    return refused_flag(wrong, function.name) if wrong else ""


def refused_flag(wrong: int, by: str) -> str:
    """Returns a sentence on the first one of some flags that `by` does not know."""
    bits, name = _named(wrong)[0]
    first = bits.bit_length() - bits.bit_count()
    if bits.bit_count() == 1:
        return f"bit {first} ({name}) is not known to {by}"
    return f"bits {first}-{first + 1} ({name}) are not known to {by}"


def flag_names(flags: int) -> list[str]:
    """Returns what flags are called, from bit 0 on; two bits that are one number have one name."""
    return [name for _, name in _named(flags)]


def _named(flags: int) -> list[tuple[int, str]]:
    """Returns bits, and what they are called."""
    names = {both & flags: name for both, name in _BOTH_NAMES.items() if flags & both == both}
    singles = flags & ~sum(names)
    names |= {bit: name for bit, name in FLAG_NAMES.items() if singles & bit}
    return sorted(names.items())
