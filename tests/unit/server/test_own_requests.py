"""What a session does by itself: HELLO, STATS, numbered batches, listening."""

from __future__ import annotations

import pytest

import fjord
from fjord import commands, limits
from fjord.columns import Strings
from fjord.errors import Code
from fjord.server import committer
from fjord.wire import RawChange, RawReply, ReplyDecoder, encode_request, read_reply
from tests.unit.server.peer import DONE, Peer
from tests.unit.wire import seed_client

CLIENT = bytes(range(16))
WRITE = commands.Delete(table="default", keys=Strings.of([b"key"]), timestamp_us=1)
PARTING = commands.Unsubscribe(table="events", name="reader")  # those hear of it who read blocks
PART_WITH = commands.Batch(commands=[WRITE, PARTING])


@pytest.fixture
def peer() -> Peer:
    return Peer()


def ask(
    peer: Peer,
    command: commands.Command,
    identifier: int = 1,
    reply: commands.Reply = DONE,
    number: int = 0,
) -> commands.Reply:
    """Sends a command, lets it run, and returns what the client reads."""
    before = len(peer.wire.sent)
    peer.send(*encode_request(command, identifier, number))
    peer.world.answer_all(reply)
    decoder = ReplyDecoder()
    decoder.feed(peer.wire.sent[before:])
    raw = decoder.next()
    assert isinstance(raw, RawReply)
    assert raw.identifier == identifier
    return read_reply(type(command).row, raw)


def listen(*keys: bytes) -> commands.Listen:
    return commands.Listen(table="default", keys=Strings.of(keys))


def changed(key: bytes, value: bytes = b"v") -> commands.Changed:
    return commands.Changed("default", key, 1, value, 5, 0)


def tell(peer: Peer, *changes: commands.Changed) -> None:
    peer.world.tell(changes)


def told(peer: Peer, start: int) -> list[tuple[int, bytes]]:
    """Returns identifier and key of all changes that were sent behind `start`."""
    decoder = ReplyDecoder()
    decoder.feed(peer.wire.sent[start:])
    found = []
    while (message := decoder.next()) is not None:
        assert isinstance(message, RawChange)
        found.append((message.identifier, message.key))
    return found


def test_hello_is_answered_with_who_answers(peer: Peer) -> None:
    reply = ask(peer, commands.Hello(client=CLIENT), reply=commands.Done(master=b"m" * 16, seq=7))
    assert reply == commands.Welcome(client=CLIENT, master=b"m" * 16, version=fjord.__version__)


@pytest.mark.parametrize("command", [WRITE, PARTING, commands.Batch(commands=[WRITE]), PART_WITH])
def test_what_has_a_number_gets_the_name_that_hello_said(
    peer: Peer, command: commands.Command
) -> None:
    ask(peer, commands.Hello(client=CLIENT))
    peer.send(*encode_request(command, 1, 3))
    assert peer.commands == [commands.Numbered(command=command, client=CLIENT, number=3)]


@pytest.mark.parametrize("command", [WRITE, PARTING, commands.Batch(commands=[WRITE])])
def test_a_number_without_hello_is_refused(peer: Peer, command: commands.Command) -> None:
    reply = ask(peer, command, number=1)
    assert isinstance(reply, commands.Refusal)
    assert reply.code is Code.BAD_BATCH
    peer.send(*encode_request(command, 2))  # without a number it needs no name
    assert peer.commands == [command]


@pytest.mark.parametrize("revision", [0, commands.REVISION - 1, commands.REVISION + 1])
def test_a_client_of_another_revision_is_refused(peer: Peer, revision: int) -> None:
    reply = ask(peer, commands.Hello(client=CLIENT, revision=revision))
    assert isinstance(reply, commands.Refusal)
    assert reply.code is Code.BAD_VERSION
    assert f"revision {commands.REVISION}" in reply.text


def test_scans_go_their_own_way(peer: Peer) -> None:
    peer.send(*encode_request(commands.Scan(table="default", start_seq=1, end_seq=0), 1))
    peer.send(*encode_request(commands.Span(table="other", after=5), 2))
    assert peer.commands == []
    assert [scan.table for scan in peer.world.scans] == ["default", "other"]


# -- listening ------------------------------------------------------------------------------------


def test_changes_of_a_key_are_told_from_the_reply_on(peer: Peer) -> None:
    peer.send(*encode_request(listen(b"a", b"b"), 9))
    tell(peer, changed(b"a"))
    assert peer.wire.sent == b""  # it has not had its turn
    peer.world.answer_all()
    start = len(peer.wire.sent)
    tell(peer, changed(b"b"), changed(b"c"), changed(b"a"))
    assert told(peer, start) == [(9, b"b"), (9, b"a")]
    assert peer.world.source.watched.keys == {("default", b"a"), ("default", b"b")}


def test_unlisten_ends_what_one_request_began(peer: Peer) -> None:
    ask(peer, listen(b"a"), 1)
    ask(peer, listen(b"a", b"b"), 2)
    assert ask(peer, commands.Unlisten(identifier=2), 3) == DONE
    start = len(peer.wire.sent)
    tell(peer, changed(b"a"), changed(b"b"))
    assert told(peer, start) == [(1, b"a")]
    reply = ask(peer, commands.Unlisten(identifier=2), 4)
    assert isinstance(reply, commands.Refusal)
    assert reply.code is Code.NOT_FOUND


def test_nothing_is_told_behind_the_reply_to_unlisten(peer: Peer) -> None:
    ask(peer, listen(b"a"), 1)
    waiting = peer.world.listeners.match([changed(b"a")])
    ask(peer, commands.Unlisten(identifier=1), 2)
    start = len(peer.wire.sent)
    committer.tell(waiting)
    assert told(peer, start) == []


@pytest.mark.req("FJ-44")
def test_a_set_or_a_get_may_begin_to_listen(peer: Peer) -> None:
    command = commands.Set(
        table="default",
        keys=Strings.of([b"a"]),
        types=b"\1",
        values=Strings.of([b"v"]),
        timestamps_us=[1],
    )
    peer.send(seed_client.encode_request(command, 1, listens=True))
    get = commands.Get(table="default", keys=Strings.of([b"b"]))
    peer.send(seed_client.encode_request(get, 2, listens=True))
    assert [type(command) for command in peer.commands] == [commands.Set, commands.Get]
    peer.world.answer_all()
    start = len(peer.wire.sent)
    tell(peer, changed(b"a"), changed(b"b"))
    assert told(peer, start) == [(1, b"a"), (2, b"b")]


def test_a_connection_listens_to_a_bounded_number_of_keys(peer: Peer) -> None:
    keys = [b"%d" % number for number in range(limits.LISTENED_KEYS_MAX)]
    assert ask(peer, listen(*keys[:-1]), 1) == DONE
    peer.world.loop.run()  # others had their turn after so much
    assert ask(peer, listen(keys[0]), 1) == DONE  # the same request has it already
    two = ask(peer, listen(b"x", b"y"), 2)
    assert isinstance(two, commands.Refusal)
    assert two.code is Code.QUOTA
    assert ask(peer, listen(b"x"), 3) == DONE
    get = commands.Get(table="default", keys=Strings.of([b"y"]))
    peer.send(seed_client.encode_request(get, 4, listens=True))
    assert b"QUOTA" in peer.wire.sent
    ask(peer, commands.Unlisten(identifier=3), 5)
    assert ask(peer, listen(b"y"), 6) == DONE


def test_a_listener_is_not_idle(peer: Peer) -> None:
    ask(peer, listen(b"a"), 1)
    peer.world.pass_time(3 * limits.IDLE_SECONDS_MAX)
    assert peer.wire.is_open


def test_a_listener_that_falls_behind_is_closed(peer: Peer) -> None:
    ask(peer, listen(b"a"), 1)
    peer.session.pause_writing()
    large = changed(b"a", bytes(limits.VALUE_BYTES_MAX))
    for _ in range(limits.OUTPUT_BYTES_MAX // limits.VALUE_BYTES_MAX):
        assert peer.wire.is_open
        tell(peer, large)
    assert b"SLOW_CONSUMER" in peer.wire.sent
    assert not peer.wire.is_open
    assert peer.world.source.watched.keys == set()


def test_a_connection_that_is_lost_listens_no_more(peer: Peer) -> None:
    ask(peer, listen(b"a"), 1)
    peer.send(*encode_request(listen(b"b"), 2))
    peer.session.connection_lost(None)
    peer.world.answer_all()
    assert peer.world.source.watched.keys == set()
    assert peer.world.listeners.keys == 0
