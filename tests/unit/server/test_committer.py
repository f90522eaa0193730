"""Group commit on a real engine: who is answered, when, and with how many syncs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fjord import limits, wire
from fjord.columns import Strings
from fjord.commands import Command, Done, Entries, Get, Nop, Refusal, Reply, Scan
from fjord.engine import Engine
from fjord.errors import Code, DurabilityError
from fjord.testing import SimClock
from tests.unit.engine.world import TABLE, set_command
from tests.unit.server.asking import Asker
from tests.unit.server.job_world import World, job_world

NOW_US = SimClock().wall_us()
SCAN = Scan(table=TABLE, start_seq=1, end_seq=0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with job_world(tmp_path, monkeypatch) as one:
        one.syncs = 0
        yield one


def set_one(number: int) -> Command:
    return set_command({b"key-%d" % number: b"value"}, timestamp_us=NOW_US + number)


def settle(world: World, count: int, *clients: Asker) -> None:
    """Runs everything until all of these have so many replies."""
    world.loop.until(lambda: {len(client.sent) for client in clients} == {count})


def test_what_comes_together_shares_one_sync(world: World) -> None:
    clients = [Asker(world.engine) for _ in range(100)]
    for number, client in enumerate(clients):
        world.committer.submit(client, None, set_one(number))
    settle(world, 1, *clients)
    assert {type(client.replies[0]) for client in clients} == {Done}
    assert world.syncs == 1


def test_what_comes_during_a_sync_is_the_next_group(world: World) -> None:
    client, before = Asker(world.engine), world.ran.total()
    for number in range(3):
        world.committer.submit(client, None, set_one(number))
    world.loop.until(lambda: world.ran.total() > before)  # a thread syncs it
    for number in range(3, 50):
        world.committer.submit(client, None, set_one(number))
    settle(world, 50, client)
    assert world.syncs == 2


def test_a_call_of_the_daemon_ends_once_what_it_wrote_is_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of upkeep is due in the same turn; its sync must not stand for that of the call."""
    committer, engine, big = world.committer, world.engine, b"x" * limits.INLINE_SYNC_BYTES_MAX
    ended, ran, threads = list[bool](), list[Reply](), list[str]()

    def noted() -> int:
        threads.append(threading.current_thread().name)
        return Engine.sync(engine)

    monkeypatch.setattr(engine, "sync", noted)
    monkeypatch.setattr(committer._upkeep, "step", lambda: engine.run([set_one(7)]))
    wrote = set_command({b"big": big}, timestamp_us=NOW_US)
    committer.call(
        lambda: ran.extend(engine.run([wrote])),
        lambda: ended.append(engine.durable_seq == engine.applied_seq),
    )
    committer._tend()  # the timer of upkeep rings before the group runs
    world.loop.until(lambda: bool(ended))
    assert ended == [True]
    assert threads == ["fjord-sync"]  # one sync, on the thread for it: never two at a time


def test_reads_of_what_is_durable_need_no_sync(world: World) -> None:
    replies = world.do(Get(table=TABLE, keys=Strings.of([b"key"])), Nop())
    assert [type(reply) for reply in replies] == [Entries, Done]
    assert world.syncs == 0


def test_nothing_is_run_for_a_peer_that_does_not_take_its_replies(world: World) -> None:
    slow, quick = Asker(world.engine), Asker(world.engine)
    slow.is_stalled = True
    for number in range(3):
        world.committer.submit(slow, None, set_one(number))
        world.committer.submit(quick, None, set_one(10 + number))
    settle(world, 3, quick)
    assert slow.replies == []
    slow.is_stalled = False
    world.committer.release()
    settle(world, 3, slow)
    seqs = [reply.seq for reply in slow.replies if isinstance(reply, Done)]
    assert len(seqs) == 3
    assert seqs == sorted(seqs)


def test_nothing_more_is_run_for_a_peer_that_is_gone(world: World) -> None:
    gone, before = Asker(world.engine), world.engine.applied_seq
    gone.is_stalled = True
    for number in range(3):
        world.committer.submit(gone, number, set_one(number))
    world.committer.scan(gone, 3, SCAN)
    gone.is_open = False
    world.committer.release()
    world.loop.until(lambda: len(gone.forgotten) == 4)
    assert (gone.replies, sorted(gone.forgotten)) == ([], [0, 1, 2, 3])
    assert world.engine.applied_seq == before


@pytest.mark.parametrize("count", [1, 5])  # one is synced inline, several by the thread
def test_a_failed_sync_answers_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def fail() -> int:
        raise DurabilityError

    monkeypatch.setattr(world.engine, "sync", fail)
    client = Asker(world.engine)
    for number in range(count):
        world.committer.submit(client, None, set_one(number))
    world.loop.until(lambda: bool(world.failures))
    assert isinstance(world.failures.pop(), DurabilityError)
    assert client.replies == []


def test_a_scan_that_breaks_is_refused_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(command: Scan) -> Reply:
        raise OSError("no file to open")

    monkeypatch.setattr(world.engine, "scan", broken)
    client = Asker(world.engine)
    world.committer.scan(client, None, SCAN)
    settle(world, 1, client)
    (reply,) = client.replies
    assert isinstance(reply, Refusal)
    assert reply.code is Code.FAILED


def test_what_comes_after_a_command_is_done_before_the_next_one(world: World) -> None:
    client, seen = Asker(world.engine), []

    def after(reply: Reply) -> Reply:
        seen.append(world.engine.applied_seq)
        return Refusal(code=Code.QUOTA, text="instead")

    world.committer.submit(client, None, set_one(1))
    world.committer.submit(client, None, Nop(), after)
    world.committer.submit(client, None, set_one(2))
    settle(world, 3, client)
    first, instead, second = client.replies
    assert isinstance(instead, Refusal)
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert seen == [first.seq]
    assert second.seq > first.seq


def test_listeners_are_told_when_it_is_durable_and_only_of_what_came_later(world: World) -> None:
    ear = Asker(world.engine, 2)

    def listen(reply: Reply) -> Reply:
        world.listeners.add(ear, 7, TABLE, [b"key-1"])
        return reply

    world.do(set_one(1))
    world.committer.submit(ear, None, Nop(), listen)
    settle(world, 1, ear)
    assert ear.pushed == []
    later = set_command({b"key-1": b"later", b"other": b""}, timestamp_us=NOW_US + 9)
    world.do(later, set_one(2))
    decoder = wire.ReplyDecoder()
    (message,) = ear.pushed
    decoder.feed(message)
    change = decoder.next()
    assert isinstance(change, wire.RawChange)
    assert (change.identifier, change.key, change.value) == (7, b"key-1", b"later")
    assert world.counters.changes == 1


@pytest.mark.req("FJ-33")
def test_what_expires_is_removed_and_told_without_being_asked_for(world: World) -> None:
    ear = Asker(world.engine, 2)
    world.listeners.add(ear, 7, TABLE, [b"key"])
    now_us = world.clock.wall_us()
    short = set_command({b"key": b"value"}, timestamp_us=now_us)
    world.do(replace(short, expires_at_us=now_us + 50_000))
    assert len(ear.pushed) == 1
    before = world.engine.applied_seq
    world.loop.pass_time(1)
    world.loop.until(lambda: len(ear.pushed) == 2)
    assert world.engine.applied_seq > before
    assert world.counters.upkeep.count >= 1


def test_upkeep_that_breaks_stops_the_node(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise DurabilityError

    monkeypatch.setattr(world.engine, "upkeep", broken)
    monkeypatch.setattr(world.engine, "upkeep_due_us", lambda: NOW_US)
    world.do(set_one(1))
    world.loop.pass_time(5)
    assert isinstance(world.failures[0], DurabilityError)
    world.failures.clear()


def test_requests_are_served_while_upkeep_has_no_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, answered = Asker(world.engine), []

    def upkeep() -> bool:
        answered.append(len(client.sent))
        if len(answered) == 10:
            world.committer.submit(client, None, set_one(2))
        return len(answered) < 500

    monkeypatch.setattr(world.engine, "upkeep", upkeep)
    monkeypatch.setattr(world.engine, "upkeep_due_us", lambda: NOW_US)
    world.do(set_one(1))
    world.loop.pass_time(5)
    assert (len(answered) >= 500, answered[9], answered[30]) == (True, 0, 1)


def test_a_disk_that_is_full_and_then_is_not_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    space = world.engine.space
    space.refuse()
    monkeypatch.setattr(space, "look", lambda: None)
    with caplog.at_level("INFO"):
        for _ in range(3):
            world.committer.note_refusal(Code.DISK_FULL)
            world.do(Nop())
        space.is_full = False
        for _ in range(3):
            world.do(Nop())
    said = [record.message for record in caplog.records if "disk" in record.message]
    assert said == ["the disk is full: writes are refused", "the disk has room again"]
    assert world.counters.refusals == {Code.DISK_FULL: 3}


def test_a_slow_sync_is_worth_a_line(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sync, before_us = world.engine.sync, world.counters.syncs.sum_us

    def slow() -> int:
        world.clock.advance(1.5)
        return sync()

    monkeypatch.setattr(world.engine, "sync", slow)
    with caplog.at_level("INFO"):
        world.do(set_one(1))
    assert [record.message for record in caplog.records] == ["a sync was slow"]
    assert world.counters.syncs.sum_us - before_us == 1_500_000


def test_whoever_asks_for_little_is_in_the_next_group(world: World) -> None:
    share = limits.GROUP_COMMANDS_MAX
    many = [Asker(world.engine, number) for number in range(1, 4)]
    few = Asker(world.engine, 4)
    for client in many:
        for _ in range(share):
            world.committer.submit(client, None, Nop())
    world.committer.submit(few, None, Nop())
    settle(world, 1, few)
    assert max(len(client.replies) for client in many) < share / 2
    settle(world, share, *many)
