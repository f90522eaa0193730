"""Waiting for messages, on a real engine in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord.commands import CreateTable, Done, Messages, Read, Reply
from tests.unit.engine.test_embedded_streams import append
from tests.unit.server.job_world import SECOND_US, Client, World, job_world

STREAM = 3


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with job_world(tmp_path, monkeypatch) as one:
        (reply,) = one.do(CreateTable(name="t", kind=STREAM))
        assert isinstance(reply, Done)
        yield one


def read(world: World, client: Client, *, wait: float = 60, after: int = 0) -> None:
    command = Read(table="t", after=after, wait_us=round(wait * SECOND_US))
    world.committer.waits.begin(client, None, command)


def readers(world: World, count: int) -> list[Client]:
    """Returns clients that wait."""
    clients = [world.client() for _ in range(count)]
    for client in clients:
        read(world, client)
    world.loop.until(lambda: world.counters.parked_waits == count)
    return clients


def rows(reply: Reply) -> int:
    assert isinstance(reply, Messages), reply
    return reply.rows


@pytest.mark.req("JQ-09")
def test_an_append_is_seen_by_all_who_wait_once_it_is_durable(world: World) -> None:
    clients = readers(world, 5)
    syncs = world.syncs
    world.do(append(b"a", b"b"))
    world.settle(*clients)
    assert [rows(client.replies[0]) for client in clients] == [2] * 5
    assert world.syncs == syncs + 1  # for the append; reading needs none
    assert world.ran[Read] == 10


def test_nobody_who_waits_costs_anything_meanwhile(world: World) -> None:
    readers(world, 100)
    world.loop.pass_time(2)  # whatever the table's beginning brought about
    ran, rings = world.ran[Read], world.loop.rings
    world.loop.pass_time(57)
    assert (world.ran[Read], world.loop.rings) == (ran, rings)
