"""A forwarder and a real daemon: each record counts once, wherever it and its batches are cut."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
from fjord.client.async_connection import AsyncConnection
from fjord.columns import Strings
from fjord.commands import Advance, Append, AskWriter, Batch, Committed, Done, Refusal, Replies
from fjord.errors import Code
from tests.acceptance.cutting import CuttingProxy, Way
from tests.acceptance.daemon import Daemon
from tests.acceptance.shell import process

LOG: Final = "forwarded"
SPOOL: Final = "host-7/spool-0001"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as one:
        yield one


class Forwarder:
    """Sends the numbers from 0 on as messages, and remembers nothing but where it was."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.at = -1
        self.refused = 0

    async def learn(self) -> None:
        reply = await self._connection.execute(AskWriter(table="", writer=SPOOL))
        assert isinstance(reply, Committed)
        self.at = reply.batch

    async def send(self, count: int) -> None:
        begin = max(0, self.at)
        values = Strings.of([b"%d" % number for number in range(begin, begin + count)])
        keys = Strings.of([b""] * count)
        append = Append(table=LOG, types=b"\1" * count, keys=keys, values=values)
        advance = Advance(writer=SPOOL, expected=self.at, batch=begin + count)
        reply = await self._connection.execute(Batch(commands=[append, advance]))
        if isinstance(reply, Refusal):
            assert reply.code is Code.STALE_NUMBER, reply
            self.refused += 1
            await self.learn()
        else:
            assert isinstance(reply, Replies)
            assert {type(one) for one in reply.replies} == {Done}
            self.at = begin + count


def messages(url: str) -> list[object]:
    with fjord.connect(url) as db:
        found: list[object] = []
        batch = db.stream(LOG).read()
        while len(batch):
            found += [message.value for message in batch]
            batch = db.stream(LOG).read(after=batch)
        return found


def numbers(count: int) -> list[object]:
    return [b"%d" % number for number in range(count)]


async def opened(url: str) -> AsyncConnection:
    connection = AsyncConnection(url, timeout=20)
    await connection.open()
    return connection


def test_batches_that_are_cut_anywhere_are_applied_once(daemon: Daemon) -> None:
    async def main() -> Forwarder:
        connection = await opened(proxy.url)
        forwarder = Forwarder(connection)
        sizes = itertools.cycle([1, 3, 2, 5])
        for place in range(0, 320, 4):
            proxy.arm(Way.REQUEST if place % 8 else Way.REPLY, place)
            await forwarder.send(next(sizes))
        await forwarder.learn()
        connection.close()
        return forwarder

    with CuttingProxy(daemon.port) as proxy:
        found = asyncio.run(main())
        assert proxy.cuts > 20
    assert found.refused > 5  # what was sent again had been applied
    assert messages(daemon.url) == numbers(found.at)


def test_a_daemon_that_is_killed_still_knows_where_writers_are(daemon: Daemon) -> None:
    async def before() -> None:
        connection = await opened(daemon.url)
        forwarder = Forwarder(connection)
        await forwarder.send(3)
        await forwarder.send(4)
        connection.close()

    async def after() -> None:
        connection = await opened(daemon.url)
        forwarder = Forwarder(connection)  # which knows nothing
        await forwarder.send(5)
        assert (forwarder.refused, forwarder.at) == (1, 7)
        await forwarder.send(5)
        forget = Advance(writer=SPOOL, expected=12, batch=0)
        assert isinstance(await connection.execute(forget), Done)
        again = await connection.execute(forget)
        assert isinstance(again, Refusal)
        assert again.text == f"writer {SPOOL} is finished, not at 12"
        await forwarder.learn()
        assert forwarder.at == 2**63 - 1
        connection.close()

    asyncio.run(before())
    daemon.kill()
    daemon.start()
    asyncio.run(after())
    assert messages(daemon.url) == numbers(12)
    daemon.stop()
    dumped = process("journal", "dump", "--data", str(daemon.path)).stdout
    rows = [line.split("\t") for line in dumped.splitlines() if "\tWRITER" in line]
    assert [row[2:4] for row in rows] == [["WRITER", "-"]] * 4
    assert f"name={SPOOL}" in rows[0]
