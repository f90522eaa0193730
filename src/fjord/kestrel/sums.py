"""Checksums of a queue's files, in a small file beside them: Kestrel's format has none.

    fjord-sums 1
    904 32 6fea3b87
    current 33 f64565fa 2049:1311 1000000000
    crc 258250d2

A line is a number, a size and a CRC-32C: so many bytes at the front of `cars.904` have that CRC.
`current` is `cars`, and its line also says which file that was, and in which second it was written
to last.  The last line is the CRC-32C of all lines before it.  A file that is not exactly so counts
for nothing, and neither does one while there is a `.pack`: then a writer died while it replaced
files.

The file is called `cars~~sums`.  Kestrel takes that for something temporary and removes it when it
opens the queue, so there are no sums of what a Kestrel 2 has written to.  Kestrel 1 and Starling
leave it, but they replace `cars` alone: a `cars` that is another file than the one that was summed
is not held to its sum, unless size and time say that it is a copy.

The law for a writer: the sum of a file is durable before the file gets its name, and no sum is
left of a name when another file gets it.  What is only appended to keeps its sum.

Files go from the oldest on, and their sums go before them, or there is a `.pack`.  So one that a
sum tells of, and that is not there though an older one is, is *missing*.  A writer that died while
it rotated leaves the sum of a number that no file has yet: then `cars` has those bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import google_crc32c

from fjord import disk as disks
from fjord import limits
from fjord.kestrel import names

CURRENT: Final = -1  # the number of the file that has none
# A line has less than 80 bytes, so that is more than 13,000 files.  Of more, there are no sums.
BYTES_MAX: Final = 1 * limits.MIB
_CHUNK_BYTES: Final = 1 * limits.MIB

# To change the format: count the version up, and go on reading this one.
_HEAD: Final = "fjord-sums 1\n"
_LINE: Final = re.compile(
    r"(current|0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) ([0-9a-f]{8})"
    r"(?: ([!-~]{1,40})(?: ([1-9][0-9]{0,18}))?)?",
    re.ASCII,
)

add_to_crc: Final[Callable[[int, bytes], int]] = google_crc32c.extend


class Sum(NamedTuple):
    """What the front of a file was."""

    size: int  # so many bytes
    crc: int  # have this CRC-32C
    identity: str = ""  # of the current file: which one it is
    written_s: int = 0  # and when it was written to last, 0 = not known


def counts(known: Sum, size: int, identity: str, written_s: int) -> bool:
    """Says whether a file has to be what its sum says: see above."""
    if not known.identity or identity == known.identity:
        return True
    return size == known.size and known.written_s in (0, written_s)


def missing(known: Mapping[int, Sum], there: Collection[int]) -> list[int]:
    """Returns the files that are told of and are not there, though an older one is: see above."""
    oldest = min((number for number in there if number != CURRENT), default=None)
    if oldest is None:
        return []
    lost = (number for number in known if number not in there)
    return [number for number in lost if number == CURRENT or number > oldest]


def crc_of(file: disks.File, size: int) -> int:
    """Returns the CRC of the front of a file."""
    at = crc = 0
    while data := file.read(at, min(_CHUNK_BYTES, size - at)):
        crc = add_to_crc(crc, data)
        at += len(data)
    return crc


def encode(known: Mapping[int, Sum]) -> bytes:
    """Returns the bytes of a file of sums."""
    lines = [_HEAD]
    for number in sorted(known, key=lambda one: (one == CURRENT, one)):
        name = "current" if number == CURRENT else str(number)
        size, crc, identity, written_s = known[number]
        lines.append(f"{name} {size} {crc:08x} {identity} {written_s or ''}".rstrip() + "\n")
    data = "".join(lines).encode("ascii")
    return data + f"crc {add_to_crc(0, data):08x}\n".encode("ascii")


def decode(data: bytes) -> dict[int, Sum]:
    """Reads a file of sums; there are none if a byte of it is wrong."""
    known: dict[int, Sum] = {}
    if not data.startswith(_HEAD.encode("ascii")):
        return known
    for line in data[len(_HEAD) :].decode("ascii", "replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is not None:
            name, size, crc, identity, written_s = found.groups()
            number = CURRENT if name == "current" else int(name)
            known[number] = Sum(int(size), int(crc, 16), identity or "", int(written_s or 0))
    # What was left out, or is there twice, is missing here.
    return known if encode(known) == data else {}


def read(disk: disks.Disk, folder: str, queue: str) -> dict[int, Sum]:
    """Returns the sums of a queue's files by their numbers; none if they cannot be read."""
    try:
        with contextlib.closing(disk.open(os.path.join(folder, names.sums(queue)))) as file:
            data = file.read(0, BYTES_MAX + 1)
    except OSError:
        return {}
    return decode(data) if len(data) <= BYTES_MAX else {}


def put(disk: disks.Disk, folder: str, queue: str, known: Mapping[int, Sum]) -> bool:
    """Replaces the sums of a queue durably; False if there are none now, for want of space.

    Raises:
        OSError: if old sums may be left.
    """
    path = os.path.join(folder, names.sums(queue))
    data = encode(known)
    if known and len(data) <= BYTES_MAX:
        try:
            disks.replace_whole(disk, path, data)
        except OSError:
            pass  # a queue does without them, but not with old ones
        else:
            return True
    for name in names.sums(queue), names.sums_made(queue):
        if disk.exists(os.path.join(folder, name)):
            disk.remove(os.path.join(folder, name))
    disk.sync_directory(folder)
    return not known
