"""A database for asyncio: it does what the blocking one does."""

from __future__ import annotations

import fjord
import fjord.aio
from fjord.commands import Changed, ListenJobs
from tests.unit.client.scripted import TOKEN, Scripted, say
from tests.unit.client.test_async_connection import run


def test_listening_has_a_connection_of_its_own() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db, db.kv("t").listen("k") as changes:
            assert await changes.wait(0.01) is None

    with Scripted(lambda number, command: say(TOKEN)) as server:
        run(main())
    assert [number for number, _ in server.asked] == [2]


def test_moments_of_jobs_come_over_a_connection_of_their_own() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db, db.jobs("t").listen() as moments:
            found = await moments.wait(20)
            assert found is not None
            assert found.kind == "due"

    moment = Changed("t", b"", 2, b"due", 1_700_000_000_000_000, 0)
    with Scripted(lambda number, command: say(TOKEN, moment)) as server:
        run(main())
    assert server.asked == [(2, ListenJobs(table="t"))]
