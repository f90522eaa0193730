"""Blocks and what is wanted of them, for tests of this folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fjord.blocks import schema
from fjord.blocks.store import Store
from fjord.client.history import BlockInfo
from fjord.history import Block
from fjord.spark.options import Location, SourceOptions
from tests.unit.blocks import sealed

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def block(first: int, last: int, rows: int, **more: Any) -> BlockInfo:
    name = f"events-1/{first:020d}-{last:020d}-{'a' * 16}"
    return BlockInfo(name, "/blocks", first, last, rows, rows * 10, MOMENT, MOMENT, 0, **more)


def info(store: Store, found: Block) -> BlockInfo:
    """Returns what a node says of a block."""
    return BlockInfo(
        name=found.name,
        location=store.location,
        first=found.first,
        last=found.last,
        rows=found.rows,
        bytes=found.bytes,
        min_at=datetime.fromtimestamp(found.min_us / 1e6, tz=UTC),
        max_at=datetime.fromtimestamp(found.max_us / 1e6, tz=UTC),
        crc=found.crc,
    )


def wanted(**more: Any) -> SourceOptions:
    given: dict[str, Any] = {
        "location": Location(path="/data"),
        "table": "events",
        "columns": tuple(schema.COLUMNS),
        "has_history": True,
    }
    return SourceOptions(**{**given, **more})


def one_block(path: Path, sizes: list[int]) -> BlockInfo:
    """Writes commits of so many rows, each a second after the one before, to one block."""
    store = Store(str(path))
    (found,) = sealed.journal_of(sizes).seal(store)
    return info(store, found)
