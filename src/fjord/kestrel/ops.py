"""The ops of a Kestrel journal, as records.

A journal is ops in order, from an empty queue on; `replay` makes the queue of them, `codec` the
bytes.  An item waits in the queue, or is *open*: reserved by somebody under an xid, and neither
confirmed nor given back.

The number 8 has two meanings, which `codec` tells apart: CONTINUE is what Kestrel writes from
1.3 on, STATE_DUMP what its document on the format says.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

XID_MIN: Final = -(2**31)
XID_MAX: Final = 2**31 - 1


class Opcode(enum.IntEnum):
    """What an op does.  The low byte is the number in a file."""

    ADD = 0  # an item at the end; its expiry in seconds, and no add time
    REMOVE = 1  # the item at the head is gone
    ADDX = 2  # an item at the end
    REMOVE_TENTATIVE = 3  # the item at the head becomes open, under the next xid
    SAVE_XID = 4  # the last xid in use
    UNREMOVE = 5  # an open item goes back to the head
    CONFIRM_REMOVE = 6  # an open item is gone
    ADD_XID = 7  # an item at the end that brings its xid along
    CONTINUE = 8  # an open item is gone and another one is at the end, both or neither
    REMOVE_TENTATIVE_XID = 9  # the item at the head becomes open, under this xid
    STATE_DUMP = 0x108  # the last xid in use, and how many open items follow as ADD_XID

    @property
    def number(self) -> int:
        """The byte that stands for it in a file."""
        return self & 0xFF


class Item(NamedTuple):
    """What a queue holds."""

    data: bytes | memoryview  # a view only as long as the op is looked at
    add_ms: int = 0  # when it was added, since 1970
    expiry_ms: int = 0  # when it expires, since 1970; 0 = never
    xid: int = 0  # the xid that it brought along, 0 = none

    @property
    def size(self) -> int:
        return len(self.data)


class Op(NamedTuple):
    """One op.  Fields that its opcode does not have are 0 or None."""

    opcode: Opcode
    xid: int = 0
    item: Item | None = None
    open_count: int = 0  # of STATE_DUMP: how many open items follow


def add(data: bytes, *, expiry_ms: int = 0, add_ms: int = 0) -> Op:
    """Returns what Starling wrote; a file has its expiry in seconds and has not its add time."""
    return Op(Opcode.ADD, item=Item(data, add_ms, expiry_ms))


def addx(data: bytes, *, add_ms: int, expiry_ms: int = 0) -> Op:
    return Op(Opcode.ADDX, item=Item(data, add_ms, expiry_ms))


def add_xid(xid: int, data: bytes, *, add_ms: int, expiry_ms: int = 0) -> Op:
    return Op(Opcode.ADD_XID, xid, Item(data, add_ms, expiry_ms, xid))


def proceed(xid: int, data: bytes, *, add_ms: int, expiry_ms: int = 0) -> Op:
    """Returns a CONTINUE, which is a word of Python."""
    return Op(Opcode.CONTINUE, xid, Item(data, add_ms, expiry_ms))


def remove() -> Op:
    return Op(Opcode.REMOVE)


def remove_tentative(xid: int = 0) -> Op:
    """Returns a reserve under an xid, or, without one, under the next."""
    return Op(Opcode.REMOVE_TENTATIVE_XID, xid) if xid else Op(Opcode.REMOVE_TENTATIVE)


def save_xid(xid: int) -> Op:
    return Op(Opcode.SAVE_XID, xid)


def unremove(xid: int) -> Op:
    return Op(Opcode.UNREMOVE, xid)


def confirm_remove(xid: int) -> Op:
    return Op(Opcode.CONFIRM_REMOVE, xid)


def state_dump(xid: int, open_count: int) -> Op:
    return Op(Opcode.STATE_DUMP, xid, open_count=open_count)
