"""One end of a connection: requests get numbers, replies find their requests by them."""

from __future__ import annotations

import pytest

from fjord import commands, limits
from fjord.columns import Strings, repeat
from fjord.commands import Flag, Nop
from fjord.errors import Code, LocalProtocolError, RemoteProtocolError
from fjord.wire import Link, RequestDecoder, encode_change
from fjord.wire.fields import BODY_LENGTH, MAGIC_REPLY, REPLY, VERSION
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
    for _ in range(0xFFFF + 10):
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


def test_a_peer_that_is_no_fjord_server_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="not a Fjord server"):
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
