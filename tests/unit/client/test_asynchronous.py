"""A database for asyncio: it does what the blocking one does."""

from __future__ import annotations

import fjord
import fjord.aio
from tests.unit.client.scripted import TOKEN, Scripted, say
from tests.unit.client.test_async_connection import run


def test_listening_has_a_connection_of_its_own() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db, db.kv("t").listen("k") as changes:
            assert await changes.wait(0.01) is None

    with Scripted(lambda number, command: say(TOKEN)) as server:
        run(main())
    assert [number for number, _ in server.asked] == [2]
