"""Records: one write each, as bytes.  Pure.

Records of one row have fixed fields at their beginning, so that a front end makes one in a
microsecond.  All else is a command as it goes over the wire.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from fjord.commands import FUNCTIONS, Append, Command, Delete, Push, Refusal, Set, codec
from fjord.errors import Code

Write = Push | Append | Set | Delete  # what a record of many rows may hold

# kind, type, priority, sizes of table, key and domain, timestamp, due, expires.
HEAD: Final = struct.Struct("<BBBBHHQQQ")
_TABLE_SIZE_AT: Final = 3
_STAMP: Final = struct.Struct("<8xQ")


class Kind(enum.IntEnum):
    """What a record holds."""

    PUSH = 1  # a job
    APPEND = 2  # a message
    SET = 3  # a value; `due` is its TTL
    DELETE = 4  # of a key
    COMMAND = 5  # many rows, all or none


def of_command(command: Command, stamp_us: int) -> bytes:
    """Returns the record of a command with many rows: its function and flags, and its body."""
    row, flags, timestamp_us, body = codec.encode(command)
    head = HEAD.pack(Kind.COMMAND, 0, 0, 0, row.number, flags, stamp_us, timestamp_us, 0)
    return b"".join((head, *body))


def to_command(record: bytes) -> Write | Refusal:
    """Returns the command of such a record; a refusal if it is none that a spool holds.

    Raises:
        ValueError, struct.error: if it is none.
    """
    _, _, _, _, number, flags, _, timestamp_us, _ = HEAD.unpack_from(record)
    row = FUNCTIONS.get(number)
    if row is None or not issubclass(row.record, Write):
        return Refusal(code=Code.UNKNOWN_FUNCTION, text=f"a record of function {number}")
    found = codec.decode(row, flags, timestamp_us, memoryview(record)[HEAD.size :])
    assert isinstance(found, Write | Refusal)
    return found


def target_of(record: bytes) -> tuple[type, str]:
    """Returns what a record asks for, as the type of a command, and of which table."""
    if record[0] == Kind.COMMAND:
        command = to_command(record)
        return type(command), getattr(command, "table", "")
    table = record[HEAD.size : HEAD.size + record[_TABLE_SIZE_AT]]
    return _TYPES[record[0]], table.decode(errors="replace")


def stamp_of(record: bytes) -> int:
    """Returns when a record was written; 0 if it is too short to say so."""
    if len(record) < HEAD.size:
        return 0
    stamp_us: int
    (stamp_us,) = _STAMP.unpack_from(record)
    return stamp_us


_TYPES: Final[dict[int, type]] = {
    Kind.PUSH: Push,
    Kind.APPEND: Append,
    Kind.SET: Set,
    Kind.DELETE: Delete,
}
