"""A database for asyncio: it does what the blocking one does."""

from __future__ import annotations

import inspect
from array import array

import pytest

import fjord
import fjord.aio
from fjord.client.blocking.database import Database
from fjord.columns import Strings
from fjord.commands import (
    Batch,
    Changed,
    Command,
    DropTable,
    Finish,
    ListenJobs,
    ListTables,
    Next,
    Numbers,
    Reply,
    Scan,
    Scanned,
    Stats,
    TableList,
)
from fjord.errors import RemoteProtocolError
from tests.unit.client.job_samples import CREATED, acted, taken_of
from tests.unit.client.scripted import TOKEN, Answer, Scripted, say, usual
from tests.unit.client.test_async_connection import run


def script(number: int, command: Command) -> Answer:
    return say(answer_to(command))


def answer_to(command: Command) -> Reply:
    if isinstance(command, ListTables):
        names = [b"a", b"b"] if not command.name else [b"a"]
        count = len(names)
        return TableList(
            names=Strings.of(names),
            ids=[1] * count,
            kinds=b"\1" * count,
            settings=Strings.of([b""] * count),
        )
    if isinstance(command, Stats):
        return Numbers(names=Strings.of([b"tables"]), values=[2])
    if isinstance(command, Scan):
        return piece(command.start_seq)
    if isinstance(command, Next):
        return taken_of(b"k")
    if isinstance(command, Finish):
        return acted(0)
    return usual(command)


def piece(seq: int) -> Scanned:
    numbers = array("Q", [seq])
    return Scanned(
        first_seqs=numbers,
        walls_us=numbers,
        last_seqs=numbers,
        ops=Strings.of([b"op"]),
        next_seq=seq + 1,
        end_seq=4,
    )


def test_both_databases_have_the_same_methods_with_the_same_parameters() -> None:
    names = [name for name in vars(Database) if not name.startswith("_")]
    other = fjord.aio.AsyncDatabase
    assert [name for name in vars(other) if not name.startswith("_")] == names
    for name in names:
        blocking = inspect.signature(getattr(Database, name)).parameters
        assert inspect.signature(getattr(other, name)).parameters == blocking


def test_a_database_over_a_connection() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db:
            await db.kv("t").set("k", 5)
            assert await db.kv("t").get("k") == 5
            assert [table.name for table in await db.tables()] == ["a", "b"]
            assert (await db.table("a")).name == "a"
            await db.drop("a")
            assert await db.stats() == {"tables": 2}
            assert 0 <= await db.ping() < 20
            scanned = [part async for part in db.scan("t")]
            assert [part.first_seqs[0] for part in scanned] == [1, 2, 3]

    with Scripted(script) as server:
        run(main())
    assert DropTable(name="a") in server.commands


def test_a_transaction_is_sent_whole_at_its_end() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db:
            async with db.transaction() as tx:
                tx.kv("settings").set("a", 1)
                tx.kv("other").add("b", 2)
                assert server.asked == []
            assert tx.results == [None, 7]
            with pytest.raises(KeyError):
                async with db.transaction() as tx:
                    tx.kv().set("a", 1)
                    raise KeyError

    with Scripted(script) as server:
        run(main())
    (batch,) = server.commands
    assert isinstance(batch, Batch)
    assert len(batch.commands) == 2


def test_listening_has_a_connection_of_its_own() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db, db.kv("t").listen("k") as changes:
            assert await changes.wait(0.01) is None

    with Scripted(lambda number, command: say(TOKEN)) as server:
        run(main())
    assert [number for number, _ in server.asked] == [2]


def test_a_database_and_what_it_gives_say_where_it_is() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db:
            assert repr(db) == f"<AsyncDatabase at {server.url}>"
            assert repr(db.kv("t")) == f"<AsyncKv 't' at {server.url}>"
            async with db.transaction() as tx:
                assert repr(tx) == f"<Transaction of 0 writes at {server.url}>"

    with Scripted(script) as server:
        run(main())
        with fjord.connect(server.url) as db:
            assert repr(db) == f"<Database at {server.url}>"


def test_a_token_where_a_value_is_due_is_the_peers_mistake() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db:
            with pytest.raises(RemoteProtocolError, match="kind Done, not Entries"):
                await db.kv().add("k", 1)

    with Scripted(lambda number, command: say(TOKEN)) as server:
        run(main())
        with (
            fjord.connect(server.url) as db,
            pytest.raises(RemoteProtocolError, match="kind Done, not Entries"),
        ):
            db.kv().add("k", 1)


def test_jobs_over_a_connection() -> None:
    async def main() -> None:
        async with await fjord.aio.connect(server.url) as db:
            pages = await db.create_jobs("t", lease=60)
            await pages.push("http://example.com/a", b"v", delay=5)
            result = await pages.next(10, lease=60, wait=5)
            assert [(job.key, job.value, job.xid) for job in result] == [("k", b"v", 70)]
            assert [job.key for job in await pages.done_many(result)] == ["k"]
            (job,) = await db.jobs("t", lease=60).next()
            with pytest.raises(fjord.StaleError):
                await job.done()

    with Scripted(script) as server:
        run(main())
    assert server.commands.count(CREATED) == 2


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
