"""The bytes of a Kestrel journal: ops into bytes in two dialects, and bytes into ops from any.

    journal  = op*
    op       = opcode u8, fields, all little-endian
    ADD                   0  size i32, expiry u32 (seconds), data          size = 4 + data
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

`Decoder` takes bytes and gives ops; it does no I/O.  The two meanings of 8 are told apart by their
bytes alone.  So whoever begins in the middle of a journal, or behind damage, reads the same as who
has read all of it and knows what is open.  Memory is bounded by what is fed at a time and by the
largest op: sizes are checked before anything waits for their bytes.

An object for each op takes longer than all else.  So there are two ways to take ops: one by one,
as `Op`, and in a `OpBatch`, which says where they stand.  Both find them in the same two steps: a
scan that goes over the frequent ops as long as they are whole and right, and `_read`, which reads
any op, and is the only one that says why bytes are none.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from fjord import limits

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

    data: bytes | memoryview  # a view only while the op is read
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


# Kestrel's memcache clients stop at some MiB; more than this is damage that looks like a size.
ITEM_BYTES_MAX: Final = 64 * limits.MIB
# When an item can have been added, if an 8 is to be a CONTINUE: the years 2000 to 2100.
ADD_MS_MIN: Final = 946_684_800_000
ADD_MS_MAX: Final = 4_102_444_800_000

_NUMBER: Final = struct.Struct("<i")
_XID: Final = struct.Struct("<Bi")
_ADD: Final = struct.Struct("<BiI")
_ADDX: Final = struct.Struct("<Biqq")
_TIMES: Final = struct.Struct("<5xqq")  # of an ADDX: when it was added, and when it expires
_ADD_XID: Final = struct.Struct("<Biiqq")
_DUMP: Final = struct.Struct("<Bii")
_SIZE_AND_TIME: Final = struct.Struct("<iq")
# Found at every place: the add time, of which the upper bytes are known, then the expiry.
_LOOKS_LIKE_ITEM: Final = re.compile(
    rb"(?=(?:\x02.{4}|[\x07\x08].{8}).{5}[\x00-\x03]\x00\x00.{8})", re.DOTALL
)
_TIMES_BYTES: Final = 16  # add time and expiry

ADDX_BYTES: Final = _ADDX.size  # of an ADDX beside its data
unpack_xid: Final = struct.Struct("<xi").unpack_from  # from where an op begins that has one
# No op of a batch begins after so many bytes, so that it stays in the cache of a processor.
_BATCH_BYTES: Final = 64 * limits.KIB
_ALONE_BYTES: Final = 1 * limits.KIB  # the same, of ops that are read one by one
_RUN_OF_REMOVES: Final = re.compile(rb"\x01+")

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
        return _encode(op)
    except struct.error as error:
        raise ValueError(f"a {op.opcode.name} cannot hold that: {error}") from error


def encode_addx(data: bytes | memoryview, add_ms: int, expiry_ms: int) -> bytes:
    """Returns the bytes of an ADDX, which all dialects have; raises what `encode` does."""
    try:
        return b"".join((_ADDX.pack(2, len(data) + _TIMES_BYTES, add_ms, expiry_ms), data))
    except struct.error as error:
        raise ValueError(f"an ADDX cannot hold that: {error}") from error


def split_addx(data: bytes) -> tuple[bytes, int, int]:
    """Returns what `encode_addx` was given: data, add time and expiry."""
    add_ms, expiry_ms = _TIMES.unpack_from(data)
    return data[ADDX_BYTES:], add_ms, expiry_ms


def _encode(op: Op) -> bytes:
    opcode, xid, item, open_count = op
    if opcode in _XIDS:
        return _XID.pack(opcode, xid)
    if opcode in _BARE:
        return bytes((opcode,))
    number = opcode.number
    if opcode is Opcode.STATE_DUMP:
        if open_count < 0:
            raise ValueError(f"{open_count} open items cannot follow")
        return _DUMP.pack(number, xid, open_count)
    if item is None:
        raise ValueError(f"a {opcode.name} needs an item")
    size = item.size + _TIMES_BYTES
    if opcode is Opcode.ADD:
        # Rounded up: what expires soon must not become what never does.
        head = _ADD.pack(number, item.size + 4, -(-item.expiry_ms // 1000))
    elif opcode is Opcode.ADDX:
        head = _ADDX.pack(number, size, item.add_ms, item.expiry_ms)
    else:
        head = _ADD_XID.pack(number, xid, size, item.add_ms, item.expiry_ms)
    return b"".join((head, item.data))


# -- reading --------------------------------------------------------------------------------------


# An op, where it begins in its file, and how many bytes it has.  A plain tuple, as there are many.
Placed = tuple[Op, int, int]


class Broken(NamedTuple):
    """Why no more ops can be read, and from which byte on."""

    offset: int  # where the op begins that cannot be read; all before it is whole
    reason: str
    is_torn: bool  # the bytes just stop within an op, as they do when a writer dies


class OpBatch(NamedTuple):
    """Ops in a row, without an object for each.

    Between two borders stands one op, the number of which is the byte at the first border; or a run
    of REMOVEs, which have a byte each.  They are ADDX and ops without data; if others are among
    them, all are objects.
    """

    data: bytes  # what the borders are places of
    base: int  # where in its file the data begins
    borders: list[int]
    op_count: int
    alone: list[Op]  # all of them, if they were read one by one

    def part(self, start: int, end: int) -> OpBatch:
        """Returns what stands between two borders that follow one another."""
        return self._replace(borders=[start, end])

    def ops(self) -> Iterator[Placed]:
        """Yields the ops one by one; data of items are views."""
        if self.alone:
            for op, (start, end) in zip(self.alone, pairwise(self.borders), strict=True):
                yield op, self.base + start, end - start
            return
        data, base, view, new = self.data, self.base, memoryview(self.data), _new
        times, opcode_addx, head_bytes = _TIMES.unpack_from, Opcode.ADDX, ADDX_BYTES
        for start, end in pairwise(self.borders):
            number = data[start]
            if number == 2:
                add_ms, expiry_ms = times(data, start)
                item = new(Item, (view[start + head_bytes : end], add_ms, expiry_ms, 0))
                op = new(Op, (opcode_addx, 0, item, 0))
            elif number in _XIDS:
                (xid,) = unpack_xid(data, start)
                op = new(Op, (_BY_NUMBER[number], xid, None, 0))
            else:
                op = _BARE[number]
                while end - start > 1:
                    yield op, base + start, 1
                    start += 1
            yield op, base + start, end - start


class _ShortError(Exception):
    """The op needs more bytes than there are."""

    def __init__(self, need: int, have: int) -> None:
        super().__init__(f"an op of {need} bytes or more ends after {have}")
        self.need = need


class _BadError(Exception):
    """These bytes are no op, whatever follows."""


class Decoder:
    """Turns the bytes of one file into ops: `feed` bytes, take all `ops`, and `end` at the end.

    Data of items are views of what was fed, valid for as long as they are kept, and keep all that
    was fed with them in memory: `bytes(item.data)` copies.
    """

    def __init__(
        self, *, now_ms: int = 0, item_bytes_max: int = ITEM_BYTES_MAX, offset: int = 0
    ) -> None:
        """Begins.

        Args:
            now_ms: what ADD gets as its add time, which it does not have in a file.
            item_bytes_max: larger items are damage.
            offset: where in the file the first byte stands.
        """
        self.broken: Broken | None = None
        self.op_count = 0  # of the ops that were given
        self._now_ms = now_ms
        self._item_bytes_max = item_bytes_max
        self._offset = offset  # of the next op
        self._data = b""
        self._view = memoryview(self._data)
        self._base = offset  # where in the file the view begins
        self._parts: list[bytes | memoryview] = []  # fed, and not in the view yet
        self._part_bytes = 0
        self._need = 1  # how many bytes the next op has at least
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
        while (batch := self._next_batch()) is not None:
            for placed in batch.ops():
                self._offset = placed[1] + placed[2]
                yield placed

    def batches(self) -> Iterator[OpBatch]:
        """Yields the same ops many at a time."""
        while (batch := self._next_batch()) is not None:
            self._offset = batch.base + batch.borders[-1]
            yield batch

    def _next_batch(self) -> OpBatch | None:
        """Returns the next ops, None if none is whole yet."""
        if not self._fill() or self.broken is not None:
            return None
        at = self._offset - self._base
        borders, count = _scan(self._data, at, self._item_bytes_max + _TIMES_BYTES)
        if count:
            self.op_count += count
            return OpBatch(self._data, self._base, borders, count, [])
        alone: list[Op] = []
        try:
            end = min(at + _ALONE_BYTES, len(self._data))
            while at < end:
                op, at = self._read(at)
                alone.append(op)
                borders.append(at)
        except (_ShortError, _BadError) as error:
            if not alone:  # else it is reported when it is the next one
                self._stop(error)
        self.op_count += len(alone)
        return OpBatch(self._data, self._base, borders, len(alone), alone) if alone else None

    def _read(self, at: int) -> tuple[Op, int]:
        """Returns any op, and where it ends."""
        view = self._view
        number = view[at]
        if number >= len(_BY_NUMBER):
            raise _BadError(f"{number} is no opcode")
        if number in _BARE:
            return _BARE[number], at + 1
        opcode = _BY_NUMBER[number]
        if number in _XIDS:
            self._expect(at, _XID.size)
            (xid,) = unpack_xid(view, at)
            return Op(opcode, xid), at + _XID.size
        if opcode is Opcode.ADD:
            end = self._item_end(at, 1, 4)
            _, _, expiry = _ADD.unpack_from(view, at)
            return Op(opcode, 0, Item(view[at + _ADD.size : end], self._now_ms, expiry * 1000)), end
        if opcode is Opcode.ADDX:
            end = self._item_end(at, 1, _TIMES_BYTES)
            add_ms, expiry_ms = _TIMES.unpack_from(view, at)
            return Op(opcode, 0, Item(view[at + ADDX_BYTES : end], add_ms, expiry_ms)), end
        if opcode is Opcode.CONTINUE and (dump := self._read_dump(at)) is not None:
            return dump, at + _DUMP.size
        end = self._item_end(at, 5, _TIMES_BYTES)
        _, xid, _, add_ms, expiry_ms = _ADD_XID.unpack_from(view, at)
        named = xid if opcode is Opcode.ADD_XID else 0
        return Op(opcode, xid, Item(view[at + _ADD_XID.size : end], add_ms, expiry_ms, named)), end

    def _read_dump(self, at: int) -> Op | None:
        """Returns the STATE_DUMP that an 8 is, None if it is a CONTINUE.

        It is a CONTINUE if it is large enough to hold an item and has an add time.  The bytes of
        an ADD_XID, which follow a STATE_DUMP, give no such time.  Whether what it names is open
        does not matter: that may be lost by damage, or in a file that is not read.
        """
        self._expect(at, _DUMP.size)
        _, xid, count = _DUMP.unpack_from(self._view, at)
        if count < 0:
            raise _BadError(f"it says that {count} open items follow, or that many bytes")
        if count >= _TIMES_BYTES:
            self._expect(at, _SIZE_AND_TIME.size + 5)
            _, add_ms = _SIZE_AND_TIME.unpack_from(self._view, at + 5)
            if ADD_MS_MIN <= add_ms < ADD_MS_MAX:
                return None
        end = at + _DUMP.size
        if count and end == len(self._view) and not self._is_ended:
            raise _ShortError(_DUMP.size + 1, _DUMP.size)
        # It may be the last op of a file.
        if count == 0 or end == len(self._view) or self._view[end] == Opcode.ADD_XID:
            return Op(Opcode.STATE_DUMP, xid, None, count)
        raise _BadError("an 8 is followed by neither an item nor open items")

    def _stop(self, error: _ShortError | _BadError) -> None:
        """Notes why there is no op here, or not yet."""
        if isinstance(error, _ShortError):
            self._need = error.need
        if self._is_ended or isinstance(error, _BadError):
            self.broken = Broken(self._offset, str(error), isinstance(error, _ShortError))

    def _fill(self) -> bool:
        """Puts what was fed into the view, once it is enough; says whether to look at it."""
        at = self._offset - self._base
        have = len(self._view) - at
        if self._part_bytes and have < self._need:
            if have + self._part_bytes < self._need and not self._is_ended:
                return False
            whole = [self._view[at:], *self._parts] if have else self._parts
            self._data = b"".join(whole)  # a piece that comes alone is not copied
            self._view = memoryview(self._data)
            self._base = self._offset
            self._parts, self._part_bytes, self._need = [], 0, 1
            return True
        return have >= self._need or (self._is_ended and have > 0)

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
        if (have := len(self._view) - at) < length:
            raise _ShortError(length, have)


def _scan(data: bytes, at: int, size_max: int) -> tuple[list[int], int]:
    """Returns the borders of the frequent ops from a place on, and how many ops they are.

    Stops before an op of another kind, and before one that is short or bad: those are for `_read`.
    """
    borders, more = [at], 0
    append, unpack, xids = borders.append, _NUMBER.unpack_from, _XIDS
    end, xid_bytes = len(data), _XID.size
    # An op that begins here has all bytes that it needs to say how long it is.
    last = min(end - ADDX_BYTES, at + _BATCH_BYTES)
    while at <= last:
        number = data[at]
        if number == 2:
            (size,) = unpack(data, at + 1)
            at += xid_bytes + size
            if not _TIMES_BYTES <= size <= size_max or at > end:
                break
        elif number in xids:
            at += xid_bytes
        elif number == 1:
            at += 1
            if data[at] == 1 and (run := _RUN_OF_REMOVES.match(data, at)) is not None:
                more += run.end() - at
                at = run.end()
        elif number == 3:
            at += 1
        else:
            break
        append(at)
    return borders, len(borders) - 1 + more


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


_BARE: Final = {one.number: Op(one) for one in (Opcode.REMOVE, Opcode.REMOVE_TENTATIVE)}
_XIDS: Final = frozenset({4, 5, 6, 9})
_BY_NUMBER: Final = tuple(one for one in Opcode if one is not Opcode.STATE_DUMP)
