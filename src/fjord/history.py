"""What leaves the journal for cold blocks: plans of what to write, and what was written.

The engine fixes a range of seqs first (op HISTORY), so that writing it again after a crash makes
the same blocks under the same names; then blocks are written, elsewhere, and last the engine is
told of them (op BLOCK).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, gt
from typing import Final, NamedTuple, TypeVar

from fjord.ops import Opcode

Item = TypeVar("Item")

_DATA_SUFFIX: Final = ".parquet"
# Spark, and others that read a folder as a table, skip names that begin like this.
_METADATA_PREFIX: Final = "_"
_METADATA_SUFFIX: Final = ".json"
# Ops whose rows are history; moved rows, and ops of readers and blocks, are not.
HISTORIC: Final = frozenset(opcode for opcode in Opcode if opcode.is_sealed)


class SealedRange(NamedTuple):
    """A range of one table's history to be written to blocks."""

    table: int  # its id
    name: str
    kind: int  # Kind.number
    first: int  # seqs, both included
    last: int
    tag: int  # makes the names of these blocks unique
    block_rows: int  # maximum rows of a block, unless one commit has more
    previous: str = ""  # name of the block before the range


class SealPlan(NamedTuple):
    """Ranges to be written in one walk over the journal."""

    shard: bytes  # UUID of the journal
    ranges: Sequence[SealedRange]


class Block(NamedTuple):
    """A written block: rows of one table, in the order of their seqs."""

    table: int
    first: int  # the seqs that it covers, both included; there may be fewer rows
    last: int
    rows: int
    bytes: int  # of its file
    min_us: int  # wall times of its rows
    max_us: int
    crc: int  # CRC32C of its file
    name: str  # path of its file, without its suffix, below the location of all blocks


def block_name(where: SealedRange, first: int, last: int) -> str:
    """Returns the name of a block of a range; the same again if it is written again."""
    return f"{where.name}-{where.table}/{first:020d}-{last:020d}-{where.tag:016x}"


def data_path(name: str) -> str:
    """Returns where the rows of a block are, below the location of all blocks."""
    return name + _DATA_SUFFIX


def metadata_path(name: str) -> str:
    """Returns where the metadata of a block is, below the location of all blocks."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/{_METADATA_PREFIX}{base}{_METADATA_SUFFIX}"


def described_block(path: str) -> str:
    """Returns the name of the block whose metadata a file is; empty if it is another file."""
    folder, _, file = path.rpartition("/")
    base = file.removeprefix(_METADATA_PREFIX).removesuffix(_METADATA_SUFFIX)
    name = f"{folder}/{base}"
    return name if metadata_path(name) == path else ""


def bounded(
    items: Iterable[Item], sizes: Callable[[Item], Sequence[int]], most: Sequence[int]
) -> Iterator[list[Item]]:
    """Yields items in lists that have at most so much of each of their sizes, or one item."""
    part: list[Item] = []
    total: Sequence[int] = ()
    for one in items:
        added = sizes(one)
        total = list(map(add, total, added)) if part else added
        if part and any(map(gt, total, most)):
            yield part
            part, total = [], added
        part.append(one)
    if part:
        yield part
