"""A session between a transport that only records and a committer that only collects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fjord import limits
from fjord.columns import Strings
from fjord.commands import Command, Done, Get, Nop
from fjord.server.committer import Origin
from fjord.server.session import Session, Sessions
from fjord.testing import SimClock
from fjord.wire import seed

DONE = Done(master=bytes(16), seq=1)


class Wire(asyncio.Transport):
    """Remembers what a session does to its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_open = True
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.is_open
        self.sent += bytes(data)

    def close(self) -> None:
        self.is_open = False

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == limits.OUTPUT_BYTES_MAX


class Peer:
    """A session with both of its sides in hand."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.wire = Wire()
        self.submitted: list[tuple[Origin, Command]] = []
        self.sessions = Sessions()
        self.released = 0
        self.session = Session(self, self.clock, self.sessions)
        self.session.connection_made(self.wire)

    def submit(self, origin: Origin, command: Command) -> None:
        self.submitted.append((origin, command))

    def release(self) -> None:
        self.released += 1

    def send(self, *messages: bytes) -> None:
        self.session.data_received(b"".join(messages))

    def answer_all(self) -> None:
        group, self.submitted[:] = list(self.submitted), []
        for origin, _ in group:
            origin.answer(DONE)
        for origin, _ in group:
            origin.flush()

    def replies(self) -> Iterator[int]:
        """Yields the identifiers of the replies, all of them without an error or a value."""
        for start in range(0, len(self.wire.sent), 17):
            yield int.from_bytes(self.wire.sent[start + 4 : start + 6], "big")


@pytest.fixture
def peer() -> Peer:
    return Peer()


def nop(identifier: int) -> bytes:
    return seed.encode_request(Nop(), identifier)


def get(identifier: int) -> bytes:
    return seed.encode_request(Get(table="default", keys=Strings.of([b"key"])), identifier)


def test_requests_are_submitted_in_order_and_answered(peer: Peer) -> None:
    peer.send(nop(1), nop(2), nop(3)[:5])
    assert len(peer.submitted) == 2
    peer.answer_all()
    assert list(peer.replies()) == [1, 2]
    peer.send(nop(3)[5:])
    peer.answer_all()
    assert list(peer.replies()) == [1, 2, 3]


def test_no_more_than_the_bound_is_under_way_and_nothing_is_lost(peer: Peer) -> None:
    count = 3 * limits.IN_FLIGHT_MAX
    peer.send(*map(nop, range(1, count + 1)))
    assert len(peer.submitted) == limits.IN_FLIGHT_MAX
    assert not peer.wire.is_read
    while peer.submitted:
        assert len(peer.submitted) <= limits.IN_FLIGHT_MAX
        peer.answer_all()
    assert list(peer.replies()) == list(range(1, count + 1))
    assert peer.wire.is_read


def test_a_peer_that_does_not_take_its_replies_is_not_read_from(peer: Peer) -> None:
    peer.session.pause_writing()
    peer.send(nop(1), nop(2))
    assert peer.submitted == []
    assert not peer.wire.is_read
    peer.session.resume_writing()
    assert len(peer.submitted) == 2
    assert not peer.submitted[0][0].is_stalled()
    assert peer.released == 1
    assert peer.wire.is_read


def test_thousands_of_refused_requests_are_answered_one_by_one(peer: Peer) -> None:
    bad = bytes.fromhex("464a00010020000100000000000000000000") + b"\0\0\0\1x"
    peer.send(bad * 5000)
    assert peer.wire.sent.count(b"BAD_BATCH") == 5000
    assert peer.wire.is_open


def test_what_was_refused_before_a_fatal_error_is_still_said(peer: Peer) -> None:
    bad = bytes.fromhex("464a00010020000100000000000000000000") + b"\0\0\0\1x"
    peer.send(nop(7), bad, b"nonsense")
    assert peer.wire.is_open  # one request is still under way
    peer.answer_all()
    sent = peer.wire.sent
    assert sent.index(b"BAD_BATCH") < sent.index(b"BAD_MAGIC")
    assert sent.count(b"JR\0\1") == 3
    assert not peer.wire.is_open


def test_a_message_that_is_not_finished_in_time_ends_the_session(peer: Peer) -> None:
    peer.send(nop(1)[:5])
    peer.clock.advance(limits.MESSAGE_SECONDS_MAX - 1)
    peer.session.check_deadline(peer.clock.monotonic_us())
    assert peer.wire.is_open
    peer.clock.advance(2)
    peer.session.check_deadline(peer.clock.monotonic_us())
    assert b"READ_TIMEOUT" in peer.wire.sent
    assert not peer.wire.is_open


def test_a_busy_peer_whose_messages_are_always_cut_somewhere_is_left_alone(peer: Peer) -> None:
    peer.clock.advance(1)
    rest = b""
    for identifier in range(1, 100):
        message = nop(identifier)
        peer.send(rest, message[:9])
        rest = message[9:]
        peer.clock.advance(1)
        peer.session.check_deadline(peer.clock.monotonic_us())
        peer.answer_all()
    assert peer.wire.is_open


def test_an_idle_peer_is_left_alone(peer: Peer) -> None:
    peer.send(nop(1))
    peer.clock.advance(1000)
    peer.session.check_deadline(peer.clock.monotonic_us())
    assert peer.wire.is_open


def test_a_reply_to_a_peer_that_is_gone_goes_nowhere(peer: Peer) -> None:
    peer.send(get(1))
    peer.session.connection_lost(None)
    assert len(peer.sessions) == 0
    peer.answer_all()
    assert peer.wire.sent == b""


def test_a_stop_waits_for_what_is_under_way(peer: Peer) -> None:
    async def wait() -> None:
        gone = asyncio.ensure_future(peer.sessions.wait_gone())
        await asyncio.wait([gone], timeout=0)
        assert not gone.done()
        peer.session.connection_lost(None)
        await gone

    peer.send(nop(1))
    peer.session.stop()
    peer.send(nop(2))
    assert not peer.wire.is_closing()
    assert len(peer.submitted) == 1
    peer.answer_all()
    assert not peer.wire.is_open
    asyncio.run(wait())


def test_more_connections_than_the_bound_are_told_to_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 0)
    peer = Peer()
    assert b"BUSY" in peer.wire.sent
    assert not peer.wire.is_open
