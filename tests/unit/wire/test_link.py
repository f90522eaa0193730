"""One end of a connection: requests get numbers, replies find their requests by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.columns import Strings, repeat
from fjord.commands import (
    Changed,
    Command,
    Delete,
    Done,
    Entries,
    Flag,
    Get,
    Listen,
    ListenJobs,
    Nop,
    Refusal,
    Reply,
    Set,
)
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import Link, RequestDecoder, encode_change, encode_fatal
from fjord.wire.fields import BODY_LENGTH, MAGIC_REPLY, REPLY, VERSION
from tests.unit.client.scripted import entries, reply_to

NOW_US = 1_700_000_000_000_000
TOKEN = Done(master=b"m" * 16, seq=5)
GET = Get(table="t", keys=Strings.of([b"k"]))
LISTEN = Listen(table="t", keys=Strings.of([b"k"]))
FOUND = entries((1, b"v"))
DELETE = Delete(table="t", keys=Strings.of([b"k"]), timestamp_us=NOW_US)


def set_of(value: bytes, rows: int = 1) -> Set:
    return Set(
        table="t",
        keys=Strings.of([b"%d" % row for row in range(rows)]),
        types=bytes([1]) * rows,
        values=Strings.of([value] * rows),
        timestamps_us=repeat(NOW_US, rows),
    )


def answer(identifier: int, reply: Reply = TOKEN, command: type[Command] = Set) -> bytes:
    return reply_to(command, identifier, reply)


def received(link: Link, data: bytes) -> list[tuple[int, Reply | Changed]]:
    found = link.receive(data)
    every = []
    while found is not None:
        every.append(found)
        found = link.receive()
    return every


@pytest.mark.req("FJ-39")
def test_a_message_carries_the_identifier_that_send_returns() -> None:
    link = Link()
    for command in (Nop(), GET, DELETE, set_of(b"v"), LISTEN):
        identifier, message = link.send(command)
        decoder = RequestDecoder()
        decoder.feed(message)
        request = decoder.next()
        assert request is not None
        assert request.identifier == identifier
        assert request.number == 0


def test_a_message_carries_the_number_of_its_call() -> None:
    decoder = RequestDecoder()
    decoder.feed(Link().send(DELETE, 2**64 - 1)[1])
    request = decoder.next()
    assert request is not None
    assert (request.command, request.number) == (DELETE, 2**64 - 1)


def test_requests_in_flight_have_different_identifiers_and_never_0() -> None:
    link = Link()
    found = [link.send(Nop())[0] for _ in range(limits.IN_FLIGHT_MAX)]
    assert len(set(found)) == limits.IN_FLIGHT_MAX
    assert 0 not in found


@pytest.mark.req("FJ-39")
def test_replies_in_any_order_find_their_requests() -> None:
    link = Link()
    samples: list[tuple[Command, Reply]] = [
        (set_of(b"v"), TOKEN),
        (GET, FOUND),
        (DELETE, Refusal(code=Code.BUSY, text="later")),
        (Nop(), Done(master=b"", seq=0)),
    ]
    sent = [(link.send(command)[0], type(command), reply) for command, reply in samples]
    for identifier, command, reply in reversed(sent):
        ((number, found),) = received(link, answer(identifier, reply, command))
        assert number == identifier
        assert type(found) is type(reply)
        if isinstance(found, Entries):
            assert found.values == FOUND.values
        else:
            assert found == reply


def test_several_replies_in_one_piece_and_one_in_several() -> None:
    link = Link()
    first, second, third = (link.send(DELETE)[0] for _ in range(3))
    data = answer(first) + answer(second) + answer(third)
    assert received(link, data[:-1]) == [(first, TOKEN), (second, TOKEN)]
    assert received(link, data[-1:]) == [(third, TOKEN)]


def test_requests_in_flight_are_bounded_until_replies_come() -> None:
    link = Link()
    for _ in range(limits.IN_FLIGHT_MAX):
        last, _ = link.send(Nop())
    with pytest.raises(LocalProtocolError, match="in flight") as caught:
        link.send(Nop())
    assert caught.value.code is Code.BUSY
    received(link, answer(last, TOKEN, Nop))
    identifier, _ = link.send(Nop())
    assert 1 <= identifier <= 0xFFFF


def test_identifiers_come_round_and_leave_out_what_is_in_flight() -> None:
    link = Link()
    slow, _ = link.send(DELETE)
    seen = set()
    for _ in range(2 * 0xFFFF + 10):
        identifier, _ = link.send(Nop())
        assert identifier != slow
        seen.add(identifier)
        received(link, answer(identifier, TOKEN, Nop))
    assert seen == set(range(1, 0x10000)) - {slow}
    assert received(link, answer(slow)) == [(slow, TOKEN)]


@pytest.mark.parametrize("identifier", [0, 2, 0xFFFF])
def test_a_reply_to_no_request_is_an_error(identifier: int) -> None:
    link = Link()
    assert link.send(DELETE)[0] == 1
    with pytest.raises(RemoteProtocolError, match="a reply to no request"):
        received(link, answer(identifier))


def test_a_second_reply_to_one_request_is_an_error() -> None:
    link = Link()
    identifier, _ = link.send(DELETE)
    received(link, answer(identifier))
    with pytest.raises(RemoteProtocolError):
        received(link, answer(identifier))


def test_the_last_words_of_a_server_are_passed_on() -> None:
    link = Link()
    link.send(DELETE)
    words = encode_fatal(RemoteProtocolError(Code.READ_TIMEOUT, "too slow"), now_us=NOW_US)
    with pytest.raises(RemoteProtocolError, match="READ_TIMEOUT: too slow") as caught:
        received(link, words)
    assert caught.value.code is Code.READ_TIMEOUT


def test_a_peer_that_is_no_fjord_server_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="no Fjord server"):
        received(Link(), b"HTTP/1.1 400 Bad Request\r\n")


def test_a_broken_reply_is_an_error() -> None:
    link = Link()
    identifier, _ = link.send(GET)
    head = REPLY.pack(MAGIC_REPLY, VERSION, identifier, Flag.BODY, NOW_US)
    with pytest.raises(RemoteProtocolError, match="broken reply"):
        received(link, head + b"\0" + BODY_LENGTH.pack(4) + b"none")


def test_a_message_that_is_too_large_is_refused_and_not_in_flight() -> None:
    link = Link()
    with pytest.raises(LocalProtocolError, match="split the batch") as caught:
        link.send(set_of(bytes(limits.VALUE_BYTES_MAX), 13))
    assert caught.value.code is Code.TOO_LARGE
    for _ in range(limits.IN_FLIGHT_MAX):
        link.send(Nop())


@pytest.mark.parametrize(
    "command",
    [
        replace(set_of(b"v"), expires_at_us=-1),
        replace(set_of(b"v"), expires_at_us=2**64),
        replace(GET, table="n" * 70_000),
        replace(GET, table="\ud800"),
    ],
    ids=["expiry-before-1970", "expiry-beyond-64-bits", "endless-name", "name-not-utf8"],
)
def test_what_the_protocol_cannot_carry_is_refused_as_such(command: Command) -> None:
    with pytest.raises(LocalProtocolError):
        Link().send(command)


def test_a_batch_of_nothing_can_be_sent() -> None:
    """The server refuses it, as the embedded engine does."""
    empty = Strings.of([])
    nothing = Set(table="t", keys=empty, types=b"", values=empty, timestamps_us=repeat(NOW_US, 0))
    for command in (Get(table="t", keys=empty), nothing):
        decoder = RequestDecoder()
        decoder.feed(Link().send(command)[1])
        request = decoder.next()
        assert request is not None
        assert not isinstance(request.command, Refusal)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=60))
def test_whatever_the_order_every_reply_finds_its_request(choices: list[int]) -> None:
    """A step answers the n-th request in flight, or sends another one if there is none."""
    link = Link()
    waiting: list[int] = []
    for choice in choices:
        if choice < len(waiting):
            identifier = waiting.pop(choice)
            assert received(link, answer(identifier)) == [(identifier, TOKEN)]
        else:
            waiting.append(link.send(DELETE)[0])
    assert len(set(waiting)) == len(waiting)


# -- changes --------------------------------------------------------------------------------------


def change(value: bytes) -> Changed:
    return Changed("t", b"k", 1, value, NOW_US, 0)


@pytest.mark.req("FJ-44")
@pytest.mark.parametrize("first", ["reply", "change"])
def test_changes_come_beside_replies(first: str) -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    asked, _ = link.send(GET)
    replies = [
        answer(listening, TOKEN, Listen),
        answer(asked, FOUND, Get),
    ]
    changes = [encode_change(listening, change(b"1")), encode_change(listening, change(b"2"))]
    order = [replies[0], changes[0], replies[1], changes[1]]
    if first == "change":
        order = [changes[0], replies[1], changes[1], replies[0]]
    found = [event for _, event in received(link, b"".join(order))]
    assert [event for event in found if isinstance(event, Changed)] == [change(b"1"), change(b"2")]
    assert len(found) == 4


def test_a_change_is_whole_whatever_the_pieces() -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    received(link, answer(listening, TOKEN, Listen))
    gone = Changed("t", b"k", Entries.MISSING, b"", NOW_US, 0)
    data = encode_change(listening, change(b"value")) + encode_change(listening, gone)
    found = [
        event for place in range(len(data)) for event in received(link, data[place : place + 1])
    ]
    assert found == [(listening, change(b"value")), (listening, gone)]


def test_a_change_belongs_to_the_table_that_was_listened_to() -> None:
    link = Link()
    first, _ = link.send(LISTEN)
    second, _ = link.send(Listen(table="other", keys=Strings.of([b"k"])))
    data = encode_change(second, change(b"v")) + encode_change(first, change(b"v"))
    tables = [event.table for _, event in received(link, data) if isinstance(event, Changed)]
    assert tables == ["other", "t"]


def test_a_change_that_nobody_listens_to_is_an_error() -> None:
    link = Link()
    identifier, _ = link.send(GET)
    with pytest.raises(RemoteProtocolError, match="nobody listens"):
        received(link, encode_change(identifier, change(b"v")))


def test_the_number_of_a_listener_is_not_given_out_again() -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    received(link, answer(listening, TOKEN, Listen))
    for _ in range(0xFFFF + 10):
        identifier, _ = link.send(Nop())
        assert identifier != listening
        received(link, answer(identifier, TOKEN, Nop))


def test_moments_of_a_jobs_table_come_as_changes() -> None:
    link = Link()
    listening, _ = link.send(ListenJobs(table="pages"))
    received(link, answer(listening, TOKEN, ListenJobs))
    moment = Changed("pages", b"", 2, b"due", NOW_US, 0)
    assert received(link, encode_change(listening, moment)) == [(listening, moment)]
