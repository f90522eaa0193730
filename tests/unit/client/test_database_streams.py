"""Streams, snapshots and scans of a database, blocking and for asyncio, over prepared answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fjord import commands
from fjord.client.blocking.database import Database
from fjord.client.database import AsyncDatabase
from fjord.client.listening import Listening
from fjord.commands import Scan
from fjord.errors import Code, StaleError, UnavailableError
from fjord.ops import Opcode
from tests.unit.client import stream_samples as samples
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE
from tests.unit.client.snapshot_samples import GET, OPENED, as_of, replies
from tests.unit.client.test_scan_calls import piece, stream_of


class Prepared:
    """An executor, and a connection, that gives these replies, or raises them."""

    name = "fjord://host:1"
    address = ("host", 1)

    def __init__(self, *found: commands.Reply | Exception) -> None:
        self._found = iter(found)
        self.asked: list[commands.Command] = []

    def answer(self, command: commands.Command) -> commands.Reply:
        self.asked.append(command)
        reply = next(self._found)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        raise AssertionError(command)

    def close(self) -> None: ...


class Blocking(Prepared):
    def execute(self, command: commands.Command, /) -> commands.Reply:
        return self.answer(command)


class Awaited(Prepared):
    async def execute(self, command: commands.Command) -> commands.Reply:
        return self.answer(command)


def blocking(
    *found: commands.Reply | Exception, is_remote: bool = False
) -> tuple[Database, list[commands.Command]]:
    executor = Blocking(*found)
    return Database(executor, name="data", is_remote=is_remote), executor.asked


def awaited(*found: commands.Reply | Exception) -> tuple[AsyncDatabase, list[commands.Command]]:
    connection: Any = Awaited(*found)
    return AsyncDatabase(connection, name="fjord://host:1", is_remote=True), connection.asked


async def listed(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]


# -- streams --------------------------------------------------------------------------------------


def test_blocks_are_replaced_by_one() -> None:
    new = samples.block_info("c")
    wanted = commands.ReplaceBlocks(
        table="t",
        names=["a", "b"],
        name=new.name,
        rows=new.rows,
        size=new.bytes,
        min_us=round(new.min_at.timestamp() * 1_000_000),
        max_us=round(new.max_at.timestamp() * 1_000_000),
        crc=new.crc,
    )
    db, asked = blocking(TOKEN)
    db.replace_blocks("t", ("a", "b"), new)
    assert asked == [wanted]
    with pytest.raises(TypeError, match="a list of names"):
        db.replace_blocks("t", "ab", new)


def test_blocks_are_listed_and_written() -> None:
    db, asked = blocking(samples.block_list(b"a"), TOKEN, TOKEN)
    assert db.blocks("t") == [samples.block_info("a")]
    db.seal("t")
    db.seal()
    assert asked == [samples.BLOCKS, commands.SealNow(table="t"), commands.SealNow()]
    other, asked_too = awaited(samples.block_list(b"a"), TOKEN)
    assert asyncio.run(other.blocks("t")) == [samples.block_info("a")]
    asyncio.run(other.seal("t"))
    assert asked_too == asked[:2]
    assert isinstance(asked[0], commands.ListBlocks)


# -- transactions ---------------------------------------------------------------------------------

STALE = commands.Refusal(code=Code.STALE_EPOCH, text="command 1 of the batch: moved")
LOOKS = commands.ListSubscribers(table="t", start="s", count=1)


@pytest.mark.parametrize("failure", [STALE, UnavailableError("gone")])
def test_a_subscriber_of_a_failed_transaction_reads_from_its_mark(
    failure: commands.Reply | Exception,
) -> None:
    answers = (
        samples.POSITION,
        samples.messages(b"a"),
        failure,
        samples.subscribers((b"s", 5, 2, False)),
        samples.messages(b"a"),
    )
    db, asked = blocking(*answers)
    subscriber = db.stream("t").subscriber("s")
    with pytest.raises((StaleError, UnavailableError)), db.transaction() as tx:
        tx.ack(subscriber, subscriber.read())
    assert len(subscriber.read()) == 1
    assert asked[3:] == [LOOKS, samples.read_of(5)]


# -- snapshots ------------------------------------------------------------------------------------

READS = replies(entries((3, FIVE)))
CLOSE = commands.CloseSnapshot(snapshot=40)


def test_a_snapshot_is_open_for_the_length_of_a_block() -> None:
    db, asked = blocking(OPENED, *READS, TOKEN)
    with db.snapshot(lifetime=60) as snap:
        assert snap.kv("t").get("k") == 5
    assert asked == [commands.OpenSnapshot(lifetime_us=60_000_000), *as_of(GET), CLOSE]
    assert repr(snap) == "<Snapshot of seq 40 at data>"


@pytest.mark.parametrize(
    ("error", "closes"), [(KeyError("k"), True), (UnavailableError("gone"), False)]
)
def test_a_block_that_raises_closes_its_snapshot_if_that_can_be(
    error: Exception, closes: bool
) -> None:
    async def main() -> None:
        async with other.snapshot():
            raise error

    db, asked = blocking(OPENED, TOKEN)
    with pytest.raises(type(error)), db.snapshot():
        raise error
    other, asked_too = awaited(OPENED, TOKEN)
    with pytest.raises(type(error)):
        asyncio.run(main())
    assert asked == asked_too == [commands.OpenSnapshot(), *[CLOSE] * closes]


def test_a_scan_may_leave_something_out() -> None:
    db, asked = blocking(piece(b"a"))
    (found,) = db.scan("t", 5, ops=[Opcode.STREAM_APPEND], key_prefix="k")
    assert found == piece(b"a")
    opcodes = bytes([Opcode.STREAM_APPEND])
    assert asked == [Scan(table="t", start_seq=5, end_seq=0, opcodes=opcodes, key_prefix=b"k")]


# -- scans ----------------------------------------------------------------------------------------


def scans_remote() -> tuple[list[Any], list[commands.Command]]:
    db, asked = blocking(*ARROWS, is_remote=True)
    return list(db.scan_arrow("t", 5, columns=["value"])), asked


def scans_awaited() -> tuple[list[Any], list[commands.Command]]:
    db, asked = awaited(*ARROWS)
    return asyncio.run(listed(db.scan_arrow("t", 5, columns=["value"]))), asked


ARROWS = [
    commands.ScannedArrow(stream=stream_of(piece(b"a"), columns=["value"]), next_seq=7, end_seq=9),
    commands.ScannedArrow(stream=stream_of(piece(), columns=["value"]), next_seq=9, end_seq=9),
]


@pytest.mark.parametrize("scan", [scans_remote, scans_awaited])
def test_a_server_is_asked_for_arrow(
    scan: Callable[[], tuple[list[Any], list[commands.Command]]],
) -> None:
    (table,), asked = scan()
    assert table.to_pylist() == [{"value": b"a"}]
    assert asked == [
        commands.Scan(table="t", start_seq=5, end_seq=0, arrow=True, columns=("value",)),
        commands.Scan(table="t", start_seq=7, end_seq=9, arrow=True, columns=("value",)),
    ]


def test_a_directory_is_asked_for_ops() -> None:
    db, asked = blocking(piece(b"a", b"b", next_seq=7, end_seq=9), piece())
    (table,) = db.scan_arrow("t", 5, columns=["seq"], key_prefix="k")
    assert table.to_pylist() == [{"seq": 5}, {"seq": 6}]
    assert asked == [
        Scan(table="t", start_seq=5, end_seq=0, key_prefix=b"k"),
        Scan(table="t", start_seq=7, end_seq=9, key_prefix=b"k"),
    ]
