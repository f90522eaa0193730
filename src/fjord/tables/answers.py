"""Answers of numbered batches as bytes, for as long as their client may ask again.

    answer   = version u8 (1), count u32, kind u8 * count, master 16, first seq u64, body*
    body     = DONE | length u32, (ENTRIES | REFUSAL | ACTED | POSITION)       as the kind says
    DONE     = seq, counted from the first one, u32
    ENTRIES  = rows u32, then the columns of `commands.Entries`, numbers before strings
    REFUSAL  = length of the code u8, code, text
    ACTED    = master 16, seq u64, size u32, MISSING of that size, DROPPED
    POSITION = seq u64, epoch u64, asleep u8, created u8
    MISSING  = a bit for each position that was missing, the lowest first; DROPPED likewise

Most answers are many times "it is done", and such a one takes five bytes.  These bytes go into
journal and index, so a change of them needs a new version, and the old one stays readable.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from fjord import columns
from fjord.columns import Strings
from fjord.commands import Acted, Done, Entries, Position, Refusal, Replies, Reply
from fjord.errors import Code

_VERSION: Final = 1
_DONE, _ENTRIES, _REFUSAL, _ACTED, _POSITION = range(5)
_HEAD = struct.Struct("<BI")
_FIRST = struct.Struct("<16sQ")
_U32 = struct.Struct("<I")
_PLACE = struct.Struct("<QQ??")


def encode(replies: Sequence[Reply]) -> bytes | None:
    """Returns the bytes of an answer; None if it holds a reply that cannot be kept."""
    kinds = [_KIND.get(type(reply)) for reply in replies]
    if None in kinds:
        return None
    done = [reply for reply in replies if isinstance(reply, Done)]
    master = done[0].master if done else b""
    first_seq = min((reply.seq for reply in done), default=0)
    parts = [
        _HEAD.pack(_VERSION, len(replies)),
        bytes(kind for kind in kinds if kind is not None),
        _FIRST.pack(master, first_seq),
    ]
    for reply in replies:
        if isinstance(reply, Done):
            assert reply.master == master
            parts.append(_U32.pack(reply.seq - first_seq))
        else:
            body = _ENCODERS[type(reply)](reply)
            parts += (_U32.pack(len(body)), body)
    return b"".join(parts)


def decode(data: bytes) -> Replies:
    """Reads an answer.

    Raises:
        ValueError: if this version does not know how.
    """
    version, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"a kept answer has version {version}; use the version that wrote it")
    position = _HEAD.size + count
    kinds = data[_HEAD.size : position]
    master, first_seq = _FIRST.unpack_from(data, position)
    position += _FIRST.size
    replies: list[Reply] = []
    for kind in kinds:
        (number,) = _U32.unpack_from(data, position)
        position += _U32.size
        if kind == _DONE:
            replies.append(Done(master=master, seq=first_seq + number))
        else:
            replies.append(_DECODERS[kind](data[position : position + number]))
            position += number
    return Replies(replies=replies)


def _entries(entries: Entries) -> bytes:
    parts = [
        _U32.pack(len(entries.types)),
        columns.encode_u8(entries.types),
        columns.encode_u8(entries.states),
        *(columns.encode_u64(getattr(entries, name)) for name in Entries.NUMBERS),
        entries.values.encode(),
    ]
    return b"".join(parts)


def _read_entries(data: bytes) -> Entries:
    view, (rows,) = memoryview(data), _U32.unpack_from(data)
    types, position = columns.decode_numbers(view, _U32.size, rows, "B")
    states, position = columns.decode_numbers(view, position, rows, "B")
    numbers = {}
    for name in Entries.NUMBERS:
        found, position = columns.decode_numbers(view, position, rows, "Q")
        numbers[name] = array("Q", found)
    values, _ = columns.decode_strings(view, position, rows)
    return Entries(
        types=bytes(types), values=Strings.of(values.rows()), states=bytes(states), **numbers
    )


def _acted(reply: Acted) -> bytes:
    missing = _bits(reply.missing)
    head = _FIRST.pack(reply.master, reply.seq) + _U32.pack(len(missing))
    return head + missing + _bits(reply.dropped)


def _read_acted(data: bytes) -> Acted:
    master, seq = _FIRST.unpack_from(data)
    (size,) = _U32.unpack_from(data, _FIRST.size)
    start = _FIRST.size + _U32.size
    end = start + size
    missing, dropped = _positions(data[start:end]), _positions(data[end:])
    return Acted(master=master, seq=seq, missing=missing, dropped=dropped)


def _bits(positions: Sequence[int]) -> bytes:
    bits = bytearray(max(positions, default=-8) // 8 + 1)
    for position in positions:
        bits[position // 8] |= 1 << position % 8
    return bytes(bits)


def _positions(bits: bytes) -> list[int]:
    return [at for at in range(8 * len(bits)) if bits[at // 8] & 1 << at % 8]


def _position(reply: Position) -> bytes:
    return _PLACE.pack(reply.seq, reply.epoch, reply.asleep, reply.created)


def _read_position(data: bytes) -> Position:
    seq, epoch, asleep, created = _PLACE.unpack(data)
    return Position(seq=seq, epoch=epoch, asleep=asleep, created=created)


def _refusal(reply: Refusal) -> bytes:
    code = reply.code.encode()
    return bytes([len(code)]) + code + reply.text.encode()


def _read_refusal(data: bytes) -> Refusal:
    end = 1 + data[0]
    return Refusal(code=Code(data[1:end].decode()), text=data[end:].decode())


_KIND: Final[dict[type, int]] = {
    Done: _DONE,
    Entries: _ENTRIES,
    Refusal: _REFUSAL,
    Acted: _ACTED,
    Position: _POSITION,
}
_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    Entries: _entries,
    Refusal: _refusal,
    Acted: _acted,
    Position: _position,
}
_DECODERS: Final[dict[int, Callable[[bytes], Reply]]] = {
    _ENTRIES: _read_entries,
    _REFUSAL: _read_refusal,
    _ACTED: _read_acted,
    _POSITION: _read_position,
}
