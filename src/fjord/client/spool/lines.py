"""Lines of a spool file: how they are made, and how they are found again.  Pure.

    line = status length crc text "\\n"

A line begins with `@` or `!`, which are part of no text, and ends with a newline.  So whatever has
happened to one, the next one is found.  What lies between whole lines is cut into pieces, each
of which ends where a line may begin, or where something was erased:

    blank     spaces, newlines and zeros      erased
    aside     begins with `!`                 set aside before
    torn      the beginning of a line         its writer died, or was told of an error
    damaged   anything else
"""

from __future__ import annotations

import enum
import re
import struct
from binascii import Error, a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final
from zlib import crc32

from fjord import limits

WAITING: Final = b"@"
ASIDE: Final = b"!"
BLANK: Final = b" \n\0"  # what was erased
HEAD_BYTES: Final = 17  # of a line: status, length, crc
# The largest line: that of a message of the wire, in base64.
LINE_BYTES_MAX: Final = 4 * limits.MESSAGE_BYTES_MAX // 3 + 64

_NUMBERS: Final = struct.Struct(">II")  # the length and the checksum
_LINE = re.compile(rb"@([0-9a-f]{8})([0-9a-f]{8})([A-Za-z0-9+/]*={0,2}\n)")
_BLANK = re.compile(rb"[ \n\0]*")
_PIECE = re.compile(rb"[^ \n\0][^@! \n\0]*")
_BEGUN = re.compile(rb"@(?:[0-9a-f]{0,15}|[0-9a-f]{16}[A-Za-z0-9+/]*={0,2})")


class Fate(enum.Enum):
    """What is wrong with a piece."""

    ASIDE = "set aside"
    TORN = "torn"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file that is no line that can be sent."""

    start: int  # offsets in the file
    end: int
    fate: Fate


@dataclass(slots=True)
class Lines:
    """What was found in a stretch of a file; line n goes from `starts[n]` to `ends[n]`."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    stop: int = 0  # all before this offset was looked at


def line_of(record: bytes) -> bytes:
    text = b2a_base64(record)
    return WAITING + hexlify(_NUMBERS.pack(len(text) - 1, crc32(text))) + text


def parse(data: bytes, offset: int, *, is_closed: bool = False) -> Lines:
    """Returns the lines in a stretch of a file.

    Args:
        data: the stretch; it begins where another one stopped.
        offset: where it begins in the file.
        is_closed: nothing follows, and nobody writes any more; else the last piece is left for
            later, when there is more of it.
    """
    whole = _parse_whole(data, offset)
    if whole is not None and (whole.stop == offset + len(data) or not is_closed):
        return whole
    found = Lines(stop=offset)
    starts, ends, records = found.starts, found.ends, found.records
    last = 0
    for match in _LINE.finditer(data):
        start, end = match.span()
        if start != last:
            found.pieces.extend(_pieces(data, last, start, offset))
        last = end
        length, crc, text = match.groups()
        record = _decode(text) if int(crc, 16) == crc32(text) else None
        if record is None or int(length, 16) != len(text) - 1:
            found.pieces.append(Piece(offset + start, offset + end, Fate.DAMAGED))
            continue
        starts.append(offset + start)
        ends.append(offset + end)
        records.append(record)
    for piece in _pieces(data, last, len(data), offset):
        if piece.end == offset + len(data) and not is_closed:
            found.stop = piece.start
            return found
        found.pieces.append(piece)
    found.stop = offset + len(data)
    return found


def _parse_whole(data: bytes, offset: int) -> Lines | None:
    """Returns the lines of a stretch that has nothing but good ones up to its last newline.

    Returns None for any other.  This is what a forwarder nearly always meets, and no step of
    Python is made for each line.
    """
    found = _LINE.findall(data)
    if not found:
        return None
    lengths, sums, texts = zip(*found, strict=True)
    sizes = [HEAD_BYTES + len(text) for text in texts]
    ends = list(accumulate(sizes, initial=offset))
    if ends[-1] != offset + data.rfind(b"\n") + 1 or _numbers(sums) != tuple(map(crc32, texts)):
        return None
    if _numbers(lengths) != tuple([size - HEAD_BYTES - 1 for size in sizes]):
        return None
    try:
        records = list(map(a2b_base64, texts))
    except Error:
        return None
    return Lines(ends[:-1], ends[1:], records, [], ends[-1])


def _numbers(digits: tuple[bytes, ...]) -> tuple[int, ...]:
    """Returns numbers that are written with eight digits each."""
    return struct.unpack(f">{len(digits)}I", unhexlify(b"".join(digits)))


def _decode(text: bytes) -> bytes | None:
    try:
        return a2b_base64(text)
    except Error:
        return None


def _pieces(data: bytes, start: int, end: int, offset: int) -> Iterator[Piece]:
    while (start := _skip(data, start, end)) < end:
        match = _PIECE.match(data, start, end)
        assert match is not None
        piece = match[0]
        if piece.startswith(ASIDE):
            fate = Fate.ASIDE
        else:
            fate = Fate.TORN if _is_torn(piece) else Fate.DAMAGED
        yield Piece(offset + start, offset + match.end(), fate)
        start = match.end()


def _skip(data: bytes, start: int, end: int) -> int:
    match = _BLANK.match(data, start, end)
    return match.end() if match else start


def _is_torn(piece: bytes) -> bool:
    """Says whether a piece is the beginning of a line, and not all of it."""
    if not _BEGUN.fullmatch(piece):
        return False
    return len(piece) < HEAD_BYTES or len(piece) - HEAD_BYTES <= int(piece[1:9], 16)
