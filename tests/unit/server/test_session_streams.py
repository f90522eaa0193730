"""Sessions whose clients read streams, from bytes to bytes."""

from __future__ import annotations

import pytest

from fjord.columns import Strings
from fjord.commands import Batch, Command, Get, Messages, Read, Refusal, Reply, SealNow, Unsubscribe
from fjord.errors import Code
from fjord.wire import RawReply, ReplyDecoder, encode_request, read_reply
from tests.unit.engine.test_cold import messages
from tests.unit.server.peer import Peer

WAITS = Read(table="events", after=0, wait_us=60_000_000)
NOTHING = messages(500, 0)


@pytest.fixture
def peer() -> Peer:
    return Peer()


def send(peer: Peer, command: Command, identifier: int = 1) -> None:
    peer.send(*encode_request(command, identifier))


def answered(peer: Peer) -> list[int]:
    """Returns whose READ was answered with nothing."""
    for _, reply in received(peer):
        assert isinstance(reply, Messages)
        assert (reply.rows, reply.after, reply.ended) == (0, 500, True)
    return [identifier for identifier, _ in received(peer)]


def received(peer: Peer, command: Command = WAITS) -> list[tuple[int, Reply]]:
    """Returns identifiers and replies to a kind of command."""
    decoder = ReplyDecoder()
    decoder.feed(peer.wire.sent)
    found: list[tuple[int, Reply]] = []
    while (raw := decoder.next()) is not None:
        assert isinstance(raw, RawReply)
        found.append((raw.identifier, read_reply(type(command).row, raw)))
    return found


def park(peer: Peer, *identifiers: int) -> None:
    for identifier in identifiers:
        send(peer, WAITS, identifier)
    peer.world.answer_all(NOTHING)
    assert peer.world.shared.counters.parked_waits == len(identifiers)


def test_a_peer_that_sends_no_more_is_answered_and_closed(peer: Peer) -> None:
    park(peer, 1)
    send(peer, WAITS, 2)
    peer.session.eof_received()
    assert answered(peer) == [1]
    assert peer.wire.is_open
    peer.world.answer_all(NOTHING)
    assert answered(peer) == [1, 2]
    assert not peer.wire.is_open


def test_batches_are_heard_of_by_who_reads_blocks_only_if_somebody_parts(peer: Peer) -> None:
    get = Get(table="t", keys=Strings.of([b"key"]))
    send(peer, Batch(commands=[get, get]), 1)
    send(peer, Batch(commands=[get, Unsubscribe(table="t", name="s")]), 2)
    assert [wait is not None for *_, wait in peer.world.submitted] == [False, True]


def test_a_server_that_does_not_seal_says_so(peer: Peer) -> None:
    send(peer, SealNow())
    ((_, reply),) = received(peer, SealNow())
    assert isinstance(reply, Refusal)
    assert reply.code is Code.FAILED
