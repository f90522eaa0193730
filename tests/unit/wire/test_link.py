"""One end of a connection: requests get numbers, replies find their requests by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import commands, limits
from fjord.columns import Strings, repeat
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import Link, RequestDecoder, encode_change
from tests.unit.client.scripted import entries, reply_to

NOW_US = 1_700_000_000_000_000
TOKEN = commands.Done(master=b"m" * 16, seq=5)
GET = commands.Get(table="t", keys=Strings.of([b"k"]))
LISTEN = commands.Listen(table="t", keys=Strings.of([b"k"]))
FOUND = entries((1, b"v"))
DELETE = commands.Delete(table="t", keys=Strings.of([b"k"]), timestamp_us=NOW_US)


def set_of(value: bytes, rows: int = 1) -> commands.Set:
    return commands.Set(
        table="t",
        keys=Strings.of([b"%d" % row for row in range(rows)]),
        types=bytes([1]) * rows,
        values=Strings.of([value] * rows),
        timestamps_us=repeat(NOW_US, rows),
    )


def answer(
    identifier: int, reply: commands.Reply = TOKEN, command: type[commands.Command] = commands.Set
) -> bytes:
    return reply_to(command, identifier, reply)


def received(link: Link, data: bytes) -> list[tuple[int, commands.Reply | commands.Changed]]:
    found = link.receive(data)
    every = []
    while found is not None:
        every.append(found)
        found = link.receive()
    return every


@pytest.mark.req("FJ-39")
def test_a_message_carries_the_identifier_that_send_returns() -> None:
    link = Link()
    for command in (commands.Nop(), GET, DELETE, set_of(b"v"), LISTEN):
        identifier, message = link.send(command)
        decoder = RequestDecoder()
        decoder.feed(message)
        request = decoder.next()
        assert request is not None
        assert request.identifier == identifier
        assert request.number == 0


@pytest.mark.req("FJ-39")
def test_replies_in_any_order_find_their_requests() -> None:
    link = Link()
    samples: list[tuple[commands.Command, commands.Reply]] = [
        (set_of(b"v"), TOKEN),
        (GET, FOUND),
        (DELETE, commands.Refusal(code=Code.BUSY, text="later")),
        (commands.Nop(), commands.Done(master=b"", seq=0)),
    ]
    sent = [(link.send(command)[0], type(command), reply) for command, reply in samples]
    for identifier, command, reply in reversed(sent):
        ((number, found),) = received(link, answer(identifier, reply, command))
        assert number == identifier
        assert type(found) is type(reply)
        if isinstance(found, commands.Entries):
            assert found.values == FOUND.values
        else:
            assert found == reply


def test_requests_in_flight_are_bounded_until_replies_come() -> None:
    link = Link()
    for _ in range(limits.IN_FLIGHT_MAX):
        last, _ = link.send(commands.Nop())
    with pytest.raises(LocalProtocolError, match="in flight") as caught:
        link.send(commands.Nop())
    assert caught.value.code is Code.BUSY
    received(link, answer(last, TOKEN, commands.Nop))
    identifier, _ = link.send(commands.Nop())
    assert 1 <= identifier <= 0xFFFF


def test_identifiers_come_round_and_leave_out_what_is_in_flight() -> None:
    link = Link()
    slow, _ = link.send(DELETE)
    seen = set()
    for _ in range(2 * 0xFFFF + 10):
        identifier, _ = link.send(commands.Nop())
        assert identifier != slow
        seen.add(identifier)
        received(link, answer(identifier, TOKEN, commands.Nop))
    assert seen == set(range(1, 0x10000)) - {slow}
    assert received(link, answer(slow)) == [(slow, TOKEN)]


@pytest.mark.parametrize("identifier", [0, 2, 0xFFFF])
def test_a_reply_to_no_request_is_an_error(identifier: int) -> None:
    link = Link()
    assert link.send(DELETE)[0] == 1
    with pytest.raises(RemoteProtocolError, match="a reply to no request"):
        received(link, answer(identifier))


def test_a_message_that_is_too_large_is_refused_and_not_in_flight() -> None:
    link = Link()
    with pytest.raises(LocalProtocolError, match="smaller batches") as caught:
        link.send(set_of(bytes(limits.VALUE_BYTES_MAX), 13))
    assert caught.value.code is Code.TOO_LARGE
    for _ in range(limits.IN_FLIGHT_MAX):
        link.send(commands.Nop())


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
def test_what_the_protocol_cannot_carry_is_refused_as_such(command: commands.Command) -> None:
    with pytest.raises(LocalProtocolError):
        Link().send(command)


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


def change(value: bytes) -> commands.Changed:
    return commands.Changed("t", b"k", 1, value, NOW_US, 0)


@pytest.mark.req("FJ-44")
@pytest.mark.parametrize("first", ["reply", "change"])
def test_changes_come_beside_replies(first: str) -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    asked, _ = link.send(GET)
    replies = [answer(listening, TOKEN, commands.Listen), answer(asked, FOUND, commands.Get)]
    changes = [encode_change(listening, change(b"1")), encode_change(listening, change(b"2"))]
    order = [replies[0], changes[0], replies[1], changes[1]]
    if first == "change":
        order = [changes[0], replies[1], changes[1], replies[0]]
    found = [event for _, event in received(link, b"".join(order))]
    assert [event for event in found if isinstance(event, commands.Changed)] == [
        change(b"1"),
        change(b"2"),
    ]
    assert len(found) == 4


def test_a_change_is_whole_whatever_the_pieces() -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    received(link, answer(listening, TOKEN, commands.Listen))
    gone = commands.Changed("t", b"k", commands.Entries.MISSING, b"", NOW_US, 0)
    data = encode_change(listening, change(b"value")) + encode_change(listening, gone)
    found = [
        event for place in range(len(data)) for event in received(link, data[place : place + 1])
    ]
    assert found == [(listening, change(b"value")), (listening, gone)]


def test_a_change_belongs_to_the_table_that_was_listened_to() -> None:
    link = Link()
    first, _ = link.send(LISTEN)
    second, _ = link.send(commands.Listen(table="other", keys=Strings.of([b"k"])))
    data = encode_change(second, change(b"v")) + encode_change(first, change(b"v"))
    tables = [
        event.table for _, event in received(link, data) if isinstance(event, commands.Changed)
    ]
    assert tables == ["other", "t"]


def test_a_change_that_nobody_listens_to_is_an_error() -> None:
    link = Link()
    identifier, _ = link.send(GET)
    with pytest.raises(RemoteProtocolError, match="nobody listens"):
        received(link, encode_change(identifier, change(b"v")))


def test_the_number_of_a_listener_is_not_given_out_again() -> None:
    link = Link()
    listening, _ = link.send(LISTEN)
    received(link, answer(listening, TOKEN, commands.Listen))
    for _ in range(0xFFFF + 10):
        identifier, _ = link.send(commands.Nop())
        assert identifier != listening
        received(link, answer(identifier, TOKEN, commands.Nop))
