"""Layouts of packed records: named fields, from which structs and positions follow.

    place  = lane, priority, process date, row          big-endian: it sorts
    image  = place, rest, domain, key                   what the index and ops hold of a job
    taken  = lease, image
    dead   = death, reason, image

docs/journal-format.md says what the fields of a job mean.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final


class Fields:
    """Consecutive fields without gaps, each with its code of `struct`."""

    def __init__(self, **codes: str) -> None:
        self.codes = codes
        sizes = [struct.calcsize(f"<{code}") for code in codes.values()]
        ends = accumulate(sizes)
        self._spans = {
            name: slice(end - size, end) for name, size, end in zip(codes, sizes, ends, strict=True)
        }
        self.size = sum(sizes)

    def __add__(self, other: Fields) -> Fields:
        return Fields(**self.codes, **other.codes)

    def span(self, first: str, last: str = "") -> slice:
        """Returns the position of a field, or of all from one to another."""
        return slice(self._spans[first].start, self._spans[last or first].stop)

    def packed(self, order: str = "<") -> struct.Struct:
        return self.picked(*self.codes, order=order)

    def picked(self, *wanted: str | tuple[str, ...], order: str = "<") -> struct.Struct:
        """Returns a struct that reads some of the fields, in their order.

        A tuple, of one field or of all from one to another, is read as bytes.
        """
        format_, at = order, 0
        for one in wanted:
            where = self.span(one) if isinstance(one, str) else self.span(*one)
            code = self.codes[one] if isinstance(one, str) else f"{where.stop - where.start}s"
            format_ += "x" * (where.start - at) + code
            at = where.stop
        return struct.Struct(format_)


POINTER: Final = Fields(segment="I", offset="I", size="I", crc="I")

JOB_PLACE: Final = Fields(lane="Q", priority="B", process_at_us="Q", row="Q")
JOB_REST: Final = (
    Fields(inserted_us="Q", updated_us="Q", expires_at_us="Q", held="Q")
    + Fields(hash="16s", probe="B", timeouts="B", type="B", domain_bytes="B")
    + POINTER
)
JOB_IMAGE: Final = JOB_PLACE + JOB_REST
JOB_LEASE: Final = Fields(deadline_us="Q", lease_us="Q", started_us="Q", is_alone="B")
JOB_TAKEN: Final = JOB_LEASE + JOB_IMAGE
JOB_DEATH: Final = Fields(died_us="Q", how="B", reason_bytes="H")

# The id of a table, the prefix of its index keys.
PREFIX: Final = struct.Struct(">I")
PREFIX_BYTES: Final = PREFIX.size
prefix_of: Final[Callable[[int], bytes]] = PREFIX.pack


Items = list[tuple[bytes, bytes]]  # keys of the index with their data
# How an index is scanned: tree, first key, key after the last one, number of items.
Scan = Callable[[int, bytes, bytes | None, int], Items]


def pages(scan: Scan, tree: int, start: bytes, stop: bytes | None, size: int) -> Iterator[Items]:
    """Yields all items from `start` to before `stop`, in pages of this size."""
    while items := scan(tree, start, stop, size):
        yield items
        if len(items) < size:
            return
        start = items[-1][0] + b"\0"


def firsts(scan: Scan, tree: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the first item of each table that has items in a tree."""
    start: bytes | None = b""
    while start is not None and (items := scan(tree, start, None, 1)):
        yield items[0]
        start = end_of(items[0][0][:PREFIX_BYTES])


def table_of(index_key: bytes) -> int:
    return int.from_bytes(index_key[:PREFIX_BYTES], "big")


def end_of(prefix: bytes) -> bytes | None:
    """Returns the first index key after all keys with a prefix; None if there is none."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big") if number < 1 << 8 * len(prefix) else None
