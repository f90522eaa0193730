"""The three ways in which writers and readers may depend on each other (KY-03), on one daemon.

Strict: a writer waits for each answer, and what is answered is seen by everybody from then on.
Causal: a writer sends on without waiting, and its messages stay in their order.
Eventual: writers know nothing of each other; every message arrives once, in any order.
"""

from __future__ import annotations

import asyncio

import pytest

import fjord
import fjord.aio
from tests.acceptance.daemon import Daemon

pytestmark = pytest.mark.req("KY-03")

COUNT = 200


def test_strict_what_is_answered_is_seen_by_everybody(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as writer, fjord.connect(daemon.url) as reader:
        subscriber = reader.stream("strict").subscriber("other", start="beginning")
        for number in range(COUNT):
            seq = writer.stream("strict").append(number)
            assert [message.seq for message in subscriber.read(10)] == [seq]


def test_causal_what_one_writer_sends_stays_in_order(daemon: Daemon) -> None:
    async def write() -> list[int]:
        async with await fjord.aio.connect(daemon.url) as db:
            stream = db.stream("causal")
            return await asyncio.gather(*(stream.append(number) for number in range(COUNT)))

    seqs = asyncio.run(write())
    assert seqs == sorted(seqs)
    with fjord.connect(daemon.url) as db:
        found = db.stream("causal").subscriber("s", start="beginning").read(2 * COUNT)
        assert [message.value for message in found] == list(range(COUNT))


def test_eventual_writers_that_know_nothing_of_each_other_lose_nothing(daemon: Daemon) -> None:
    async def write(writer: int) -> None:
        async with await fjord.aio.connect(daemon.url) as db:
            stream = db.stream("eventual")
            for number in range(COUNT // 10):
                await stream.append(writer * COUNT + number)

    async def write_all() -> None:
        await asyncio.gather(*(write(writer) for writer in range(10)))

    asyncio.run(write_all())
    with fjord.connect(daemon.url) as db:
        found = db.stream("eventual").subscriber("s", start="beginning").read(2 * COUNT)
        values = [message.value for message in found]
        expected = [writer * COUNT + at for writer in range(10) for at in range(COUNT // 10)]
        assert sorted(values, key=str) == sorted(expected, key=str)
