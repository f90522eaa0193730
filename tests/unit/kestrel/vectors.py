"""Ops of Kestrel with their bytes, as Kestrel itself writes them."""

from __future__ import annotations

from collections import deque

from fjord.kestrel import codec
from fjord.kestrel.codec import Broken, Decoder, Dialect, Item, Op, Opcode, Placed
from fjord.kestrel.items import Items

ADD_MS = 1_000_000_000_000


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


def state_dump(xid: int, open_count: int) -> Op:
    return Op(Opcode.STATE_DUMP, xid, open_count=open_count)


def item(data: bytes, *, expiry_ms: int = 0) -> Op:
    return addx(data, add_ms=ADD_MS, expiry_ms=expiry_ms)


def named(xid: int, data: bytes) -> Op:
    return add_xid(xid, data, add_ms=ADD_MS)


def going_on(xid: int, data: bytes) -> Op:
    return proceed(xid, data, add_ms=ADD_MS)


KITTY = "021b0000000010a5d4e8000000000000000000000068656c6c6f206b69747479"
# name: op, dialect that writes it, bytes, and what must follow for it to be what it is.
VECTORS: dict[str, tuple[Op, Dialect, str]] = {
    "ADD": (add(b"x"), Dialect.DOC, "00050000000000000078"),
    "ADDX": (item(b"hello kitty"), Dialect.V24, KITTY),
    "REMOVE": (codec.remove(), Dialect.V24, "01"),
    "REMOVE_TENTATIVE": (codec.remove_tentative(), Dialect.DOC, "03"),
    "REMOVE_TENTATIVE_XID": (codec.remove_tentative(1), Dialect.V24, "0901000000"),
    "UNREMOVE": (codec.unremove(1), Dialect.V24, "0501000000"),
    "CONFIRM_REMOVE": (codec.confirm_remove(2), Dialect.V24, "0602000000"),
    "SAVE_XID": (codec.save_xid(7), Dialect.DOC, "0407000000"),
    "ADD_XID": (
        named(7, b"A"),
        Dialect.DOC,
        "0707000000110000000010a5d4e8000000000000000000000041",
    ),
    "CONTINUE": (
        going_on(1, b"two"),
        Dialect.V24,
        "0801000000130000000010a5d4e8000000000000000000000074776f",
    ),
    "STATE_DUMP": (state_dump(7, 1), Dialect.DOC, "080700000001000000"),
}


def decode(data: bytes, *, step: int = 0, **options: int) -> tuple[list[Placed], Broken | None]:
    """Returns all ops of some bytes, fed so many at a time, and how they end."""
    one = Decoder(**options)
    found: list[Placed] = []
    for at in range(0, len(data), step or len(data) or 1):
        one.feed(data[at : at + (step or len(data))])
        found += map(copied, one.ops())
    one.end()
    found += map(copied, one.ops())
    return found, one.broken


def copied(placed: Placed) -> Placed:
    """Returns the same with data that is compared as bytes, and shown so when it differs."""
    op, offset, length = placed
    if op.item is not None:
        op = op._replace(item=op.item._replace(data=bytes(op.item.data)))
    return op, offset, length


def encoded(*made: Op) -> bytes:
    """Returns ops in whichever dialect has them."""
    return b"".join(
        codec.encode(op, next(one for one in Dialect if op.opcode in codec.WRITTEN[one]))
        for op in made
    )


def added(data: bytes, xid: int = 0) -> Item:
    return Item(data, ADD_MS, 0, xid)


class Replayed(Items):
    """A queue as of some op, all of it in memory."""

    @property
    def queue(self) -> deque[Item]:
        """The items that wait, if the journal ends here."""
        self.end_apply()
        return deque(one.item()._replace(xid=one.xid) for one in self.entries())

    @property
    def queue_bytes(self) -> int:
        self.end_apply()
        return self.memory_bytes
