"""What a start does beside serving: are the blocks there, and who will read from them?

Positions of subscribers and what is known of blocks are in the index, so that requests are served
at once.  Then the metadata files are looked for, and for subscribers that were active lately the
part of a block is loaded that they read next; a bounded number of them, the latest ones first.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fjord.clock import Clock
from fjord.commands import Command, ListSubscribers, Read, Reply, Subscribers
from fjord.engine.cold import ColdReader, Errand, is_log
from fjord.engine.rounds import Turn
from fjord.history import Block
from fjord.server import logs

# Subscribers that are looked at, and those of them that a part of a block is loaded for.
_LOOKED_AT_MAX: Final = 10_000
_LOADED_MAX: Final = 32
# Whoever has not moved for so long may not be there any more.
_RECENT_US: Final = 3600 * 1_000_000
# Names that are logged.
_NAMED_MAX: Final = 5

# When it moved, of which table, its name, its mark.
Active = tuple[int, str, str, int]


class Plans(Protocol):
    """Whoever knows of blocks."""

    def blocks(self, table: str, /) -> list[Block]: ...


class Source(Protocol):
    """Whoever knows of subscribers and blocks: the engine."""

    @property
    def tables(self) -> Mapping[str, Any]: ...

    @property
    def sealing(self) -> Plans: ...

    def run(self, wanted: Sequence[Command], /) -> list[Reply]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What it works with."""

    source: Source
    turn: Turn
    cold: ColdReader
    missing: Callable[[Sequence[Block]], list[str]]  # names of blocks that are not there
    clock: Clock


def warm_up(parts: Parts) -> None:
    """Looks for all blocks, then loads ahead; on a thread of its own."""
    source, turn = parts.source, parts.turn
    ends: dict[str, int] = {}  # where the blocks of a table end
    missing: list[str] = []
    for table in turn(lambda: list(source.tables)):
        blocks = turn(lambda table=table: _blocks(source, table))  # type: ignore[misc] # bound now
        if blocks:
            ends[table] = blocks[-1].last
            missing += parts.missing(blocks)
    if missing:
        shown = ", ".join(missing[:_NAMED_MAX])
        logs.note(logging.WARNING, "blocks are missing", count=len(missing), first=shown)
    for active in heapq.nlargest(_LOADED_MAX, _active(parts, ends)):
        _load(parts, active)


def _blocks(source: Source, table: str) -> list[Block]:
    return source.sealing.blocks(table) if table in source.tables else []


def _active(parts: Parts, ends: Mapping[str, int]) -> Iterator[Active]:
    """Yields subscribers that are awake, inside blocks, and were active lately."""
    since_us = parts.clock.wall_us() - _RECENT_US
    looked_at = 0
    for table, end in ends.items():
        for page in _pages(parts, table):
            rows = zip(page.names.rows(), page.seqs, page.moved_us, page.asleep, strict=True)
            for name, seq, moved_us, asleep in rows:
                if not asleep and seq < end and moved_us >= since_us:
                    yield moved_us, table, name.decode(), seq
            looked_at += len(page.names)
            if looked_at >= _LOOKED_AT_MAX:
                return


def _pages(parts: Parts, table: str) -> Iterator[Subscribers]:
    start = ""
    while _is_log(parts.source, table):
        page = _run(parts, ListSubscribers(table=table, start=start))
        if not isinstance(page, Subscribers):
            return  # it is not a stream, or was dropped
        yield page
        start = page.next_name
        if not start:
            return


def _is_log(source: Source, name: str) -> bool:
    table = source.tables.get(name)
    return table is not None and is_log(table)


def _load(parts: Parts, active: Active) -> None:
    """Reads the next message of a subscriber, so that what comes after it is in memory."""
    _, table, name, seq = active
    errand = Errand(Read(table=table, after=seq, count=1, subscriber=name))
    if errand.take(_run(parts, errand.command)) is None:
        errand.look(parts.cold)  # what is wrong with a block is told to who reads it


def _run(parts: Parts, command: Command) -> Reply:
    return parts.turn(lambda: parts.source.run([command])[0])
