"""A session from bytes to commands, from replies to bytes, and up to each of its bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Lock, Nop, Page, Range
from fjord.errors import Code
from fjord.server.bounds import Bounds
from tests.unit.client.scripted import entries
from tests.unit.server.peer import Peer, World
from tests.unit.wire import seed_client

BAD_BATCH = bytes.fromhex("464a00010020000100000000000000000000") + b"\0\0\0\1x"


@pytest.fixture
def peer() -> Peer:
    return Peer()


def nop(identifier: int) -> bytes:
    return seed_client.encode_request(Nop(), identifier)


def test_requests_are_submitted_in_order_and_answered(peer: Peer) -> None:
    peer.send(nop(1), nop(2), nop(3)[:5])
    assert len(peer.commands) == 2
    peer.world.answer_all()
    assert list(peer.replies()) == [1, 2]
    peer.send(nop(3)[5:])
    peer.world.answer_all()
    assert list(peer.replies()) == [1, 2, 3]


def test_a_page_that_goes_on_ends_with_a_cursor_of_the_server(peer: Peer) -> None:
    asked = Range(table="default", count=1, start=b"a", stop=b"z")
    peer.send(seed_client.encode_request(asked, 1))
    peer.world.answer_all(Page(keys=Strings.of([]), entries=entries(), next_key=b"k"))
    cursors = peer.world.shared.cursors
    assert cursors.encode(replace(asked, with_data=True), b"k") in peer.wire.sent


def test_no_more_than_the_bound_is_under_way_and_nothing_is_lost(peer: Peer) -> None:
    count = 3 * limits.IN_FLIGHT_MAX
    peer.send(*map(nop, range(1, count + 1)))
    assert len(peer.commands) == limits.IN_FLIGHT_MAX
    assert not peer.wire.is_read
    while peer.commands:
        assert len(peer.commands) <= limits.IN_FLIGHT_MAX
        peer.world.answer_all()
    assert list(peer.replies()) == list(range(1, count + 1))
    assert peer.wire.is_read


def test_a_peer_that_does_not_take_its_replies_is_not_read_from(peer: Peer) -> None:
    peer.session.pause_writing()
    peer.send(nop(1), nop(2))
    assert peer.commands == []
    assert not peer.wire.is_read
    peer.session.resume_writing()
    assert len(peer.commands) == 2
    assert not peer.session.is_stalled
    assert peer.world.released == 1
    assert peer.wire.is_read


def test_what_was_refused_before_a_fatal_error_is_still_said(peer: Peer) -> None:
    peer.send(nop(7), BAD_BATCH, b"nonsense")
    assert not peer.wire.is_closing()  # one request is still under way
    peer.world.answer_all()
    sent = peer.wire.sent
    assert sent.index(b"BAD_BATCH") < sent.index(b"BAD_MAGIC")
    assert sent.count(b"JR\0\1") == 3
    assert not peer.wire.is_open
    assert peer.world.shared.counters.closed == {Code.BAD_MAGIC: 1}


# -- deadlines ------------------------------------------------------------------------------------


def test_a_message_that_is_not_finished_in_time_ends_the_session(peer: Peer) -> None:
    peer.send(nop(1)[:5])
    peer.world.pass_time(limits.MESSAGE_SECONDS_MAX - 1)
    assert peer.wire.is_open
    peer.world.pass_time(2)
    assert b"READ_TIMEOUT" in peer.wire.sent
    assert not peer.wire.is_open


def test_a_peer_that_asks_nothing_for_long_is_told_to_come_again(peer: Peer) -> None:
    peer.send(nop(1))
    peer.world.answer_all()
    peer.world.pass_time(limits.IDLE_SECONDS_MAX - 1)
    assert peer.wire.is_open
    peer.send(nop(2))
    peer.world.answer_all()
    peer.world.pass_time(limits.IDLE_SECONDS_MAX - 1)
    assert peer.wire.is_open
    peer.world.pass_time(3)
    assert b"IDLE_TIMEOUT" in peer.wire.sent
    assert not peer.wire.is_open


def test_a_peer_that_takes_nothing_is_cut_off_with_what_waits_for_it(peer: Peer) -> None:
    peer.send(nop(1))
    peer.wire.untaken = limits.OUTPUT_BYTES_MAX + 1
    peer.session.pause_writing()
    for _ in range(30):  # slow, but it takes something
        peer.wire.untaken -= 1
        peer.world.pass_time(1)
    assert not peer.wire.is_closing()
    peer.world.pass_time(limits.MESSAGE_SECONDS_MAX + 1)
    assert b"SLOW_CONSUMER" in peer.wire.sent
    assert not peer.wire.is_open
    assert peer.world.released == 1  # what is under way is run, and answered to nobody
    peer.world.answer_all()
    peer.world.pass_time(limits.MESSAGE_SECONDS_MAX + 1)
    assert peer.wire.is_aborted


# -- memory ---------------------------------------------------------------------------------------


def test_requests_beyond_the_memory_of_all_sessions_are_answered_busy() -> None:
    world = World(Bounds(memory_bytes=10 * limits.REQUEST_KEPT_BYTES))
    peers = [Peer(world) for _ in range(4)]
    for peer in peers:
        peer.send(nop(1), nop(2), nop(3))
    assert len(world.submitted) == 9
    assert world.refused == [Code.BUSY] * 3
    assert peers[3].wire.sent.count(b"BUSY") == 3
    assert peers[3].wire.is_open
    world.answer_all()
    peers[3].send(nop(4))
    assert len(world.submitted) == 1
    world.answer_all()
    assert world.shared.memory.used_bytes == 0


def test_output_that_is_not_taken_counts_until_it_is() -> None:
    world = World(Bounds(memory_bytes=limits.MIB))
    slow, quick = Peer(world), Peer(world)
    slow.wire.untaken = 2 * limits.MIB
    slow.send(nop(1))
    world.answer_all()
    quick.send(nop(1))
    assert b"BUSY" in quick.wire.sent
    slow.wire.untaken = 0  # nobody says so, but a look shows it
    world.clock.advance(1)
    quick.send(nop(2))
    assert len(world.submitted) == 1


def test_half_a_message_that_is_too_much_for_the_memory_ends_its_session() -> None:
    world = World(Bounds(memory_bytes=limits.MIB))
    peer, other = Peer(world), Peer(world)
    head = bytes.fromhex("464a00010020000100000000000000000000")
    peer.send(head + (2 * limits.MIB).to_bytes(4, "big"), bytes(limits.MIB))
    assert b"BUSY" in peer.wire.sent
    assert not peer.wire.is_open
    peer.session.connection_lost(None)
    other.send(nop(1))
    assert len(world.submitted) == 1


def test_more_connections_than_the_bound_are_told_to_come_later() -> None:
    world = World(Bounds(connections=1))
    first, second = Peer(world), Peer(world)
    assert b"BUSY" in second.wire.sent
    assert not second.wire.is_open
    first.send(nop(1))
    assert len(world.submitted) == 1
    first.session.connection_lost(None)
    assert Peer(world).wire.is_open


# -- the end --------------------------------------------------------------------------------------


def test_a_client_leaves_when_the_last_of_its_requests_is_answered(peer: Peer) -> None:
    """A lock that is asked for and not run yet would else be held for ever."""
    lock = Lock(table="default", keys=Strings.of([b"key"]))
    peer.send(seed_client.encode_request(lock, 1), nop(2), nop(3)[:5])
    peer.session.connection_lost(None)
    assert peer.world.source.left == []
    peer.world.answer_all()
    assert peer.world.source.left == [peer.session.client]


def test_a_client_leaves_when_the_last_of_its_requests_is_forgotten(peer: Peer) -> None:
    peer.send(nop(1), nop(2))
    peer.session.connection_lost(None)
    assert peer.session.is_stalled
    for _, request, *_ in peer.world.submitted:
        assert peer.world.source.left == []
        peer.session.forget(request)
    assert peer.world.source.left == [peer.session.client]
    assert peer.world.shared.memory.used_bytes == 0


def test_a_stop_waits_for_what_is_under_way(peer: Peer) -> None:
    async def wait() -> None:
        gone = asyncio.ensure_future(peer.world.shared.sessions.wait_gone())
        await asyncio.wait([gone], timeout=0)
        assert not gone.done()
        peer.session.connection_lost(None)
        await gone

    peer.send(nop(1))
    peer.session.stop()
    peer.send(nop(2))
    assert not peer.wire.is_closing()
    assert len(peer.commands) == 1
    peer.world.answer_all()
    assert not peer.wire.is_open
    asyncio.run(wait())
