"""Sessions whose clients wait for jobs or listen to them, from bytes to bytes."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import ARRIVED, DUE, Command, Listen, ListenJobs, Next, Reply
from fjord.engine.news import Arrival
from fjord.errors import Code
from fjord.values import Type
from fjord.wire import RawChange, RawReply, ReplyDecoder, encode_request, read_reply
from tests.unit.engine.job_records import TABLE, taken
from tests.unit.server.peer import Peer

SECOND_US = 1_000_000
WAITS = Next(table=TABLE, wait_us=limits.WAIT_US_MAX)


@pytest.fixture
def peer() -> Peer:
    return Peer()


def send(peer: Peer, command: Command, identifier: int = 1) -> None:
    peer.send(*encode_request(command, identifier))


def park(peer: Peer, *identifiers: int) -> None:
    """Lets a peer wait for jobs."""
    for identifier in identifiers:
        send(peer, WAITS, identifier)
    peer.world.answer_all(taken())
    assert peer.world.shared.counters.parked_waits >= len(identifiers)


def arrive(peer: Peer, rows: int = 1) -> None:
    """Says that jobs came, as the committer does when everything is durable."""
    peer.world.arrive({TABLE: Arrival(rows, peer.world.clock.wall_us())})


def received(peer: Peer, start: int = 0) -> list[tuple[int, Reply]]:
    """Returns identifiers and replies, all of them to NEXT."""
    decoder = ReplyDecoder()
    decoder.feed(peer.wire.sent[start:])
    found = []
    while (message := decoder.next()) is not None:
        assert isinstance(message, RawReply)
        found.append((message.identifier, read_reply(Next.row, message)))
    return found


def is_idle(peer: Peer) -> bool:
    """Says that nothing is kept of what a peer has asked for."""
    shared = peer.world.shared
    return shared.memory.used_bytes == 0 and shared.counters.parked_waits == 0


# -- waiting --------------------------------------------------------------------------------------


def test_waits_are_requests_under_way_and_bounded_like_them(peer: Peer) -> None:
    park(peer, *range(1, limits.IN_FLIGHT_MAX + 1))
    send(peer, WAITS, 999)
    assert peer.commands == []
    arrive(peer)
    peer.world.answer_all(taken(7, first_xid=3))
    assert len(peer.commands) == 2  # the one that had no room, and one that looks for more
    peer.world.answer_all(taken())
    assert not peer.wire.is_read  # there is no room again
    assert peer.world.shared.counters.parked_waits == limits.IN_FLIGHT_MAX


def test_a_connection_that_is_lost_leaves_nothing_behind(peer: Peer) -> None:
    park(peer, 1, 2)
    arrive(peer)  # one of them is under way
    peer.session.connection_lost(None)
    assert peer.world.source.left == []
    ((origin, *_, wait),) = peer.world.submitted
    peer.world.submitted.clear()
    assert origin.is_stalled
    assert not origin.is_open
    assert wait is not None
    peer.world.waits.forget(wait)
    assert peer.world.source.left == [peer.session.client]
    assert is_idle(peer)
    peer.world.loop.pass_time(limits.WAIT_US_MAX / 1e6)
    assert peer.world.submitted == []


def test_a_peer_that_sends_no_more_is_answered_and_closed(peer: Peer) -> None:
    park(peer, 1, 2)
    peer.session.eof_received()
    assert [identifier for identifier, _ in received(peer)] == [1, 2]
    assert not peer.wire.is_open
    assert is_idle(peer)


# -- listening ------------------------------------------------------------------------------------


def told(peer: Peer, start: int) -> list[RawChange]:
    decoder = ReplyDecoder()
    decoder.feed(peer.wire.sent[start:])
    found = []
    while (message := decoder.next()) is not None:
        assert isinstance(message, RawChange)
        found.append(message)
    return found


def listen(peer: Peer, identifier: int = 9, table: str = TABLE) -> int:
    """Begins to listen; returns how much was sent by then."""
    send(peer, ListenJobs(table=table), identifier)
    peer.world.answer_all()
    return len(peer.wire.sent)


@pytest.mark.req("SJ-29")
def test_a_client_is_told_of_arrivals_and_of_dates(peer: Peer) -> None:
    world = peer.world
    date_us = world.clock.wall_us() + 5 * SECOND_US
    world.source.dates_us[TABLE] = [date_us]
    start = listen(peer)
    arrive(peer)
    world.loop.pass_time(4.999)
    (arrived,) = told(peer, start)
    assert (arrived.identifier, arrived.key, arrived.value) == (9, b"", ARRIVED)
    assert arrived.type == Type.STRING
    world.loop.pass_time(0.001)
    _, due = told(peer, start)
    assert (due.identifier, due.value, due.timestamp_us) == (9, DUE, date_us)
    assert world.source.watched.keys == set()  # no key of a value


def test_a_jobs_table_counts_as_one_key(peer: Peer) -> None:
    keys = [b"%d" % number for number in range(limits.LISTENED_KEYS_MAX)]
    send(peer, Listen(table="default", keys=Strings.of(keys[:-1])), 1)
    peer.world.answer_all()
    peer.world.loop.run()  # others had their turn after so much
    listen(peer, 2)
    assert peer.world.listeners.keys == limits.LISTENED_KEYS_MAX
    assert b"QUOTA" not in peer.wire.sent
    listen(peer, 3, "another")
    assert b"QUOTA" in peer.wire.sent
    assert peer.world.refused == [Code.QUOTA]
