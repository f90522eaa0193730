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

LAST_SEED_FUNCTION: Final = 16


class Function(enum.IntEnum):
    """What a request asks for."""

    NOP = 0
    QUIT = 1
    SET = 2
    GET = 3
    DELETE = 4
    SET_MANY = 32
    GET_MANY = 33
    DELETE_MANY = 34
    SCAN = 64


class Flag:
    """The bits of the flags field; plain integers, since every message is tested for them."""

    KEY_16: Final = 1 << 0  # key and error sizes have 16 bits, not 8
    VALUE_8: Final = 1 << 1  # the value size has 8 bits
    VALUE_16: Final = 1 << 2  # ... 16 bits; both: 32 bits; neither: no value
    TIMEOUT: Final = 1 << 3  # a timeout follows the timestamp
    UPDATE_TIMEOUT: Final = 1 << 4
    OVERWRITE: Final = 1 << 5
    WORKED_ON: Final = 1 << 6
    QUERY_RANGE: Final = 1 << 7
    QUERY_REGEX: Final = 1 << 8
    PERSIST: Final = 1 << 9
    DATA: Final = 1 << 10
    LISTEN: Final = 1 << 11
    PERSIST_SYNONYM: Final = 1 << 12  # accepted on SET, never sent
    COUNT: Final = 1 << 13
    TTL: Final = 1 << 14
    BODY: Final = 1 << 15  # in replies: a u32 length and a body follow the error


FLAG_NAMES: Final[dict[int, str]] = {
    bit: name for name, bit in vars(Flag).items() if not name.startswith("_")
}
VALUE_BITS: Final = Flag.VALUE_8 | Flag.VALUE_16
_SIZE_FLAGS: Final = Flag.KEY_16 | VALUE_BITS

# The flags that each function understands; any other one is refused by name.
FLAGS: Final[dict[int, int]] = {
    Function.NOP: 0,
    Function.QUIT: 0,
    Function.SET: _SIZE_FLAGS | Flag.TIMEOUT | Flag.OVERWRITE | Flag.PERSIST | Flag.PERSIST_SYNONYM,
    Function.GET: Flag.KEY_16 | Flag.DATA,
    Function.DELETE: Flag.KEY_16,
    Function.SET_MANY: Flag.OVERWRITE | Flag.PERSIST,
    Function.GET_MANY: 0,
    Function.DELETE_MANY: 0,
    Function.SCAN: 0,
}

FUNCTIONS: Final[dict[int, Function]] = {int(function): function for function in Function}
