"""Reading out of small blocks: three of three parts each, of ten messages."""

from __future__ import annotations

from fjord.blocks.reader import BlockReader
from fjord.blocks.store import Store
from fjord.commands import Messages
from fjord.history import Block
from tests.unit.blocks import sealed

PART_ROWS = 10


def three_blocks(store: Store) -> list[Block]:
    """Returns blocks that have such parts, if the bound for them is set."""
    journal = sealed.journal_of([30, 30, 30])
    return journal.seal(store, journal.range(block_rows=30))


def settle(cold: BlockReader) -> None:
    """Waits until all that was to be loaded ahead is there."""
    cold._background.submit(int).result()


def stats(cold: BlockReader) -> tuple[int, int, int]:
    """Returns parts in memory, loads, and how many of them were ahead of need."""
    found = cold.stats()
    return found["cold_parts"], found["cold_loads"], found["cold_prefetches"]


def read_from(
    cold: BlockReader, blocks: list[Block], after: int, *, count: int = 5, subscriber: str = "s"
) -> Messages:
    block = next(block for block in blocks if block.last > after)
    place = sealed.where(block, after=after, until=blocks[-1].last)
    return cold.read(place, sealed.read(count=count, subscriber=subscriber))


def sizes(store: Store, blocks: list[Block]) -> tuple[int, int]:
    """Returns what a part is expected to take in memory, and what it takes."""
    cold = BlockReader(store)
    read_from(cold, blocks, 0, count=1)
    expected = cold.open(blocks[0].name).parts[0].bytes
    taken = cold.stats()["cold_bytes"]
    cold.close()
    return expected, taken
