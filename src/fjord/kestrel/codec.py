"""The bytes of a Kestrel journal: ops into bytes in two dialects, and bytes into ops from any.

    journal  = op*
    op       = opcode u8, fields, all little-endian
    ADD                   0  size i32, expiry i32 (seconds), data          size = 4 + data
    REMOVE                1
    ADDX                  2  size i32, added i64, expiry i64, data         size = 16 + data
    REMOVE_TENTATIVE      3
    SAVE_XID              4  xid i32
    UNREMOVE              5  xid i32
    CONFIRM_REMOVE        6  xid i32
    ADD_XID               7  xid i32, size i32, added i64, expiry i64, data
    CONTINUE              8  xid i32, size i32, added i64, expiry i64, data
    STATE_DUMP            8  xid i32, count i32
    REMOVE_TENTATIVE_XID  9  xid i32

There is no checksum and no mark between ops, so an op is found only behind the one before it: at
the first bytes that are no op, the rest of the file cannot be read.

`Decoder` takes bytes and gives ops; it does no I/O.  The two meanings of 8 are told apart by what
is open at that point, so it asks for that: whoever reads applies each op before the next one is
decoded, which is how the iterator works by itself.  Memory is bounded by what is fed at a time and
by the largest op: sizes are checked before anything waits for their bytes.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from fjord import limits
from fjord.kestrel.ops import Item, Op, Opcode

# Kestrel's memcache clients stop at some MiB; more than this is damage that looks like a size.
ITEM_BYTES_MAX: Final = 64 * limits.MIB
# When an item can have been added, if an 8 is to be a CONTINUE: the years 2000 to 2100.
ADD_MS_MIN: Final = 946_684_800_000
ADD_MS_MAX: Final = 4_102_444_800_000

_NUMBER: Final = struct.Struct("<i")
_XID: Final = struct.Struct("<Bi")
_ADD: Final = struct.Struct("<Bii")
_ADDX: Final = struct.Struct("<Biqq")
_ITEM: Final = struct.Struct("<iqq")  # an ADDX behind its opcode
_ADD_XID: Final = struct.Struct("<Biiqq")
_DUMP: Final = struct.Struct("<Bii")
_MOMENT: Final = struct.Struct("<q")
_SIZE_AND_TIME: Final = struct.Struct("<iq")
# Found at every place: the add time, of which the upper bytes are known, then the expiry.
_LOOKS_LIKE_ITEM: Final = re.compile(
    rb"(?=(?:\x02.{4}|[\x07\x08].{8}).{5}[\x00-\x03]\x00\x00.{8})", re.DOTALL
)
_TIMES_BYTES: Final = 16  # add time and expiry

# Makes a named tuple without the function of Python that its class has for it: twice as fast.
_new: Final = tuple.__new__


class Dialect(enum.StrEnum):
    """Which ops are written.  All of them are read, from any file."""

    DOC = "kestrel-doc"  # those of Kestrel's document on the format
    V24 = "kestrel-2.4"  # those that Kestrel 2.1 to 2.4 write


WRITTEN: Final[dict[Dialect, frozenset[Opcode]]] = {
    Dialect.DOC: frozenset(Opcode) - {Opcode.CONTINUE, Opcode.REMOVE_TENTATIVE_XID},
    Dialect.V24: frozenset(
        {
            Opcode.ADDX,
            Opcode.REMOVE,
            Opcode.REMOVE_TENTATIVE_XID,
            Opcode.CONFIRM_REMOVE,
            Opcode.UNREMOVE,
            Opcode.CONTINUE,
        }
    ),
}


# -- writing --------------------------------------------------------------------------------------


def encode(op: Op, dialect: Dialect) -> bytes:
    """Returns the bytes of an op.

    Raises:
        ValueError: if the dialect has no such op, or a field does not fit its bytes.
    """
    if op.opcode not in WRITTEN[dialect]:
        raise ValueError(f"{dialect} has no {op.opcode.name}")
    try:
        return _WRITERS[op.opcode](op)
    except struct.error as error:
        raise ValueError(f"a {op.opcode.name} cannot hold that: {error}") from error


def addx(data: bytes | memoryview, add_ms: int, expiry_ms: int) -> bytes:
    """Returns the bytes of an ADDX, which all dialects have; raises what `encode` does."""
    try:
        return b"".join((_ADDX.pack(2, len(data) + _TIMES_BYTES, add_ms, expiry_ms), data))
    except struct.error as error:
        raise ValueError(f"an ADDX cannot hold that: {error}") from error


def _encode_bare(op: Op) -> bytes:
    return bytes((op.opcode,))


def _encode_xid(op: Op) -> bytes:
    return _XID.pack(op.opcode, op.xid)


def _encode_dump(op: Op) -> bytes:
    if op.open_count < 0:
        raise ValueError(f"{op.open_count} open items cannot follow")
    return _DUMP.pack(op.opcode.number, op.xid, op.open_count)


def _encode_add(op: Op) -> bytes:
    item = _item_of(op)
    # Rounded up: what expires soon must not become what never does.
    expiry = -(-item.expiry_ms // 1000)
    return b"".join((_ADD.pack(op.opcode.number, item.size + 4, expiry), item.data))


def _encode_addx(op: Op) -> bytes:
    item = _item_of(op)
    return addx(item.data, item.add_ms, item.expiry_ms)


def _encode_named(op: Op) -> bytes:
    item = _item_of(op)
    size = item.size + 16
    head = _ADD_XID.pack(op.opcode.number, op.xid, size, item.add_ms, item.expiry_ms)
    return b"".join((head, item.data))


def _item_of(op: Op) -> Item:
    if op.item is None:
        raise ValueError(f"a {op.opcode.name} needs an item")
    return op.item


_WRITERS: Final[Mapping[Opcode, Callable[[Op], bytes]]] = {
    Opcode.ADD: _encode_add,
    Opcode.REMOVE: _encode_bare,
    Opcode.ADDX: _encode_addx,
    Opcode.REMOVE_TENTATIVE: _encode_bare,
    Opcode.SAVE_XID: _encode_xid,
    Opcode.UNREMOVE: _encode_xid,
    Opcode.CONFIRM_REMOVE: _encode_xid,
    Opcode.ADD_XID: _encode_named,
    Opcode.CONTINUE: _encode_named,
    Opcode.REMOVE_TENTATIVE_XID: _encode_xid,
    Opcode.STATE_DUMP: _encode_dump,
}


# -- reading --------------------------------------------------------------------------------------


# An op, where it begins in its file, and how many bytes it has.  A plain tuple, as there are many.
Placed = tuple[Op, int, int]


class Broken(NamedTuple):
    """Why no more ops can be read, and from which byte on."""

    offset: int  # where the op begins that cannot be read; all before it is whole
    reason: str
    is_torn: bool  # the bytes just stop within an op, as they do when a writer dies


class _ShortError(Exception):
    """The op needs more bytes than there are."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need  # from the first byte of the op on


class _BadError(Exception):
    """These bytes are no op, whatever follows."""


class Decoder:
    """Turns the bytes of one file into ops: `feed` bytes, take all `ops`, and `end` at the end.

    Data of items are views of what was fed, valid for as long as they are kept, and keep all that
    was fed with them in memory: `bytes(item.data)` copies.
    """

    def __init__(
        self,
        *,
        is_open: Callable[[int], bool],
        now_ms: int = 0,
        item_bytes_max: int = ITEM_BYTES_MAX,
        offset: int = 0,
    ) -> None:
        """Begins.

        Args:
            is_open: says whether an xid is that of an open item, after all ops given so far.
            now_ms: what ADD gets as its add time, which it does not have in a file.
            item_bytes_max: larger items are damage.
            offset: where in the file the first byte stands.
        """
        self.broken: Broken | None = None
        self._is_open = is_open
        self._now_ms = now_ms
        self._item_bytes_max = item_bytes_max
        self._offset = offset  # of the next op
        self._view = memoryview(b"")
        self._at = 0  # where in the view the next op begins
        self._parts: list[bytes | memoryview] = []  # fed, and not in the view yet
        self._part_bytes = 0
        self._need = 1  # so many bytes the next op has at least
        self._is_ended = False

    @property
    def wanted_end(self) -> int:
        """Up to where the next op goes at least, as far as its bytes so far say.

        If the file is shorter, the op is torn, and there is no need to feed what is left of it.
        """
        return self._offset + self._need

    def feed(self, data: bytes | memoryview) -> None:
        """Takes more bytes, which are not copied and must not change."""
        if data:
            self._parts.append(data)
            self._part_bytes += len(data)

    def end(self) -> None:
        """Says that no more bytes come; when `ops` has given what is left, `broken` is final."""
        self._is_ended = True

    def ops(self) -> Iterator[Placed]:
        """Yields the ops that are whole so far; stops for good where `broken` says."""
        while self._fill() and self.broken is None:
            yield from self._simple_ops()
            placed = self._next()
            if placed is None:
                return
            yield placed

    def _simple_ops(self) -> Iterator[Placed]:
        """Yields ADDX and ops without data up to the first other one: the most frequent ones.

        Does what `_next` does for any op, without a call for each.  Stops before what is short or
        bad, which is for `_next` to say.
        """
        view, at, new = self._view, self._at, _new
        base = self._offset - at  # where in the file the view begins
        size_max, end = self._item_bytes_max + _TIMES_BYTES, len(view)
        last = end - _ADDX.size  # an ADDX that begins later is not whole
        unpack, opcode_addx = _ITEM.unpack_from, Opcode.ADDX
        head_bytes, xid_bytes = _ADDX.size, _XID.size
        while at <= last:
            start, opcode = at, view[at]
            if opcode == 2:
                size, add_ms, expiry_ms = unpack(view, at + 1)
                at += xid_bytes + size
                if not _TIMES_BYTES <= size <= size_max or at > end:
                    return
                item = new(Item, (view[start + head_bytes : at], add_ms, expiry_ms, 0))
                op = new(Op, (opcode_addx, 0, item, 0))
            elif opcode in _BARE:
                at += 1
                op = _BARE[opcode]
            elif opcode in _XIDS:
                at += xid_bytes
                (xid,) = _NUMBER.unpack_from(view, start + 1)
                op = new(Op, (_BY_NUMBER[opcode], xid, None, 0))
            else:
                return
            self._at = at
            self._offset = base + at
            yield op, base + start, at - start

    def _next(self) -> Placed | None:
        """Returns the next op, None if it is not whole so far, or is none."""
        at = self._at
        if at == len(self._view):
            return None
        try:
            opcode = self._view[at]
            read = _READERS[opcode] if opcode < len(_READERS) else _read_unknown
            op, end = read(self, at)
        except _ShortError as short:
            self._need = short.need
            if self._is_ended:
                have = len(self._view) - at
                self._break(f"an op of {short.need} bytes or more ends after {have}", is_torn=True)
            return None
        except _BadError as bad:
            self._break(str(bad), is_torn=False)
            return None
        offset, length = self._offset, end - at
        self._at, self._offset = end, offset + length
        return op, offset, length

    def _fill(self) -> bool:
        """Puts what was fed into the view, once it is enough; says whether to look at it."""
        have = len(self._view) - self._at
        if self._part_bytes and have < self._need:
            if have + self._part_bytes < self._need and not self._is_ended:
                return False
            whole = [self._view[self._at :], *self._parts] if have else self._parts
            self._view = memoryview(whole[0] if len(whole) == 1 else b"".join(whole))
            self._parts, self._part_bytes, self._at, self._need = [], 0, 0, 1
            return True
        return have >= self._need or (self._is_ended and have > 0)

    def _break(self, reason: str, *, is_torn: bool) -> None:
        self.broken = Broken(self._offset, reason, is_torn)

    def _read_bare(self, at: int) -> tuple[Op, int]:
        return _BARE[self._view[at]], at + 1

    def _read_xid(self, at: int) -> tuple[Op, int]:
        if len(self._view) - at < _XID.size:
            raise _ShortError(_XID.size)
        opcode, xid = _XID.unpack_from(self._view, at)
        return _new(Op, (_BY_NUMBER[opcode], xid, None, 0)), at + _XID.size

    def _read_add(self, at: int) -> tuple[Op, int]:
        end = self._item_end(at, 1, 4)
        _, _, expiry = _ADD.unpack_from(self._view, at)
        item = Item(self._view[at + _ADD.size : end], self._now_ms, expiry * 1000)
        return Op(Opcode.ADD, 0, item), end

    def _read_addx(self, at: int) -> tuple[Op, int]:
        """Says why an ADDX is none, or not whole; `_simple_ops` has read all others."""
        self._item_end(at, 1, _TIMES_BYTES)
        raise AssertionError("an ADDX was passed over")

    def _read_add_xid(self, at: int) -> tuple[Op, int]:
        end = self._item_end(at, 5, _TIMES_BYTES)
        _, xid, _, add_ms, expiry_ms = _ADD_XID.unpack_from(self._view, at)
        item = Item(self._view[at + _ADD_XID.size : end], add_ms, expiry_ms, xid)
        return Op(Opcode.ADD_XID, xid, item), end

    def _read_eight(self, at: int) -> tuple[Op, int]:
        """Reads a CONTINUE or a STATE_DUMP.

        It is a CONTINUE if it names an open item, is large enough to hold one and has an add time.
        The bytes of an ADD_XID, which follow a STATE_DUMP, give no such time.  If nothing is open
        under its xid, since it was damaged or is in a file that is not read, it is a CONTINUE only
        if it cannot be the other.
        """
        self._expect(at, _DUMP.size)
        _, xid, count = _DUMP.unpack_from(self._view, at)
        if count < 0:
            raise _BadError(f"it says that {count} open items follow, or that many bytes")
        if count >= 16 and self._is_open(xid) and self._has_add_time(at):
            return self._read_continue(at)
        end = at + _DUMP.size
        if count == 0 or self._is_last(end) or self._view[end] == Opcode.ADD_XID:
            return Op(Opcode.STATE_DUMP, xid, None, count), end
        if count >= 16 and self._has_add_time(at):
            return self._read_continue(at)
        raise _BadError("an 8 is followed by neither an item nor open items")

    def _read_continue(self, at: int) -> tuple[Op, int]:
        end = self._item_end(at, 5, _TIMES_BYTES)
        _, xid, _, add_ms, expiry_ms = _ADD_XID.unpack_from(self._view, at)
        item = Item(self._view[at + _ADD_XID.size : end], add_ms, expiry_ms)
        return Op(Opcode.CONTINUE, xid, item), end

    def _has_add_time(self, at: int) -> bool:
        self._expect(at, _DUMP.size + _MOMENT.size)
        (add_ms,) = _MOMENT.unpack_from(self._view, at + _DUMP.size)
        return bool(ADD_MS_MIN <= add_ms < ADD_MS_MAX)

    def _is_last(self, end: int) -> bool:
        """Says whether the file ends here; a STATE_DUMP may be the last op of one."""
        if end < len(self._view):
            return False
        if not self._is_ended:
            raise _ShortError(_DUMP.size + 1)
        return True

    def _item_end(self, at: int, size_at: int, field_bytes: int) -> int:
        """Returns where an item ends, once it is whole; its size is checked before that."""
        self._expect(at, size_at + _NUMBER.size)
        (size,) = _NUMBER.unpack_from(self._view, at + size_at)
        if size < field_bytes:
            raise _BadError(f"the size {size} is less than the {field_bytes} that it must be")
        if size - field_bytes > self._item_bytes_max:
            raise _BadError(f"the size {size} is more than an item may have")
        length: int = size_at + _NUMBER.size + size
        self._expect(at, length)
        return at + length

    def _expect(self, at: int, length: int) -> None:
        if len(self._view) - at < length:
            raise _ShortError(length)


def find_item(data: bytes, start: int = 0) -> int | None:
    """Returns where bytes from `start` on look like a whole ADDX, ADD_XID or CONTINUE.

    There is nothing in a journal that says where an op begins, so this is a guess: a good one, as
    the add time must be of this century.  It tells damage from a torn tail.
    """
    for found in _LOOKS_LIKE_ITEM.finditer(data, start):
        at = found.start()
        size_at = 1 if data[at] == Opcode.ADDX else 5
        size, add_ms = _SIZE_AND_TIME.unpack_from(data, at + size_at)
        end = at + size_at + _NUMBER.size + size
        if size >= _TIMES_BYTES and ADD_MS_MIN <= add_ms < ADD_MS_MAX and end <= len(data):
            return at
    return None


def _read_unknown(decoder: Decoder, at: int) -> tuple[Op, int]:
    raise _BadError(f"{decoder._view[at]} is no opcode")


_BARE: Final = {one.number: Op(one) for one in (Opcode.REMOVE, Opcode.REMOVE_TENTATIVE)}
_XIDS: Final = frozenset({4, 5, 6, 9})
_BY_NUMBER: Final = tuple(one for one in Opcode if one is not Opcode.STATE_DUMP)
# By number.
_READERS: Final[tuple[Callable[[Decoder, int], tuple[Op, int]], ...]] = (
    Decoder._read_add,
    Decoder._read_bare,
    Decoder._read_addx,
    Decoder._read_bare,
    Decoder._read_xid,
    Decoder._read_xid,
    Decoder._read_xid,
    Decoder._read_add_xid,
    Decoder._read_eight,
    Decoder._read_xid,
)
