"""What a daemon has for its cold blocks: who reads them, who writes them, and when.

They need libraries that are large, or may not be there: without them a daemon works, but what is
closed stays in the journal.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from fjord.blocks.child import NodeBlocks, missing_libraries
from fjord.clock import Clock
from fjord.engine import Engine
from fjord.engine.cold import LazyCold
from fjord.engine.rounds import Rounds
from fjord.server import logs, sealer, warming
from fjord.server.committer import Committer
from fjord.server.sealer import Sealer
from fjord.server.turns import Turns


class ColdBlocks(NamedTuple):
    """Blocks at a location."""

    shelf: NodeBlocks
    cold: LazyCold


def attach(engine: Engine, location: str = "") -> ColdBlocks | None:
    """Lets an engine have cold blocks; None where that is not possible, which is logged.

    Without a location they are where they were before, or in the data directory.
    """
    missing = missing_libraries()
    if missing:
        logs.note(logging.WARNING, "there are no cold blocks", missing=", ".join(missing))
        return None
    shelf = NodeBlocks(engine.attach_blocks(location))
    return ColdBlocks(shelf, LazyCold(shelf.make_cold))


def make_sealer(
    engine: Engine,
    blocks: ColdBlocks,
    committer: Committer,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
) -> tuple[Sealer, Rounds]:
    """Returns who seals; it has not begun."""
    turns = Turns(loop, committer.submit)
    rounds = Rounds(engine, blocks.shelf, turns, clock)
    parts = sealer.Parts(
        rounds=rounds,
        turns=turns,
        beside=committer.sealing,
        loop=loop,
        clock=clock,
        warming=warming.Parts(
            source=engine,
            turn=turns,
            cold=blocks.cold,
            missing=blocks.shelf.missing,
            clock=clock,
        ),
    )
    return Sealer(parts), rounds
