"""What a daemon has for its cold blocks, and what it does without the libraries for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fjord.clock import SystemClock
from fjord.commands import CreateTable, Done, SealNow
from fjord.server import sealer
from fjord.server.committer import Committer
from fjord.server.counters import Counters
from fjord.server.sealer import Sealer
from tests.unit.engine.test_embedded_streams import append
from tests.unit.engine.world import open_at
from tests.unit.server.asking import Asker


class Waiter(Asker):
    """A client that says when it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answered = asyncio.Event()

    def flush(self) -> None:
        self.is_answered.set()


def test_where_blocks_are_is_said_once(tmp_path: Path) -> None:
    elsewhere = "memory://elsewhere"
    for given in (elsewhere, "", ""):
        engine = open_at(tmp_path)
        attached = sealer.attach(engine, given)
        assert attached is not None
        assert attached.shelf.location == elsewhere
        engine.close()


def test_a_round_of_a_real_engine_ends_with_blocks_that_it_knows(tmp_path: Path) -> None:
    """The loop is a real one; blocks are kept in memory, so that no child is needed."""
    engine = open_at(tmp_path)
    attached = sealer.attach(engine, "memory://cold-blocks")
    assert attached is not None
    failures: list[Exception] = []

    async def seal() -> None:
        loop = asyncio.get_running_loop()
        committer = Committer(
            engine, loop, SystemClock(), Counters(), on_failure=failures.append, cold=attached.cold
        )
        one = Sealer(engine, attached, committer, loop, SystemClock())
        one.start()
        client = Waiter()
        one.seal(client, None, SealNow())
        await client.is_answered.wait()
        assert isinstance(client.replies[0], Done), client.replies
        assert one.rounds.stats()["seal_failures"] == 0
        one.stop()
        await committer.drain()
        committer.close()

    settings = b'{"block_rows":1}'
    engine.run([CreateTable(name="t", kind=3, settings=settings), append(b"a", b"b")])
    engine.sync()
    asyncio.run(asyncio.wait_for(seal(), 30))
    assert failures == []
    assert [block.rows for block in engine.sealing.blocks("t")] == [2]
    attached.cold.close()
    engine.abandon()
