"""The calls of a stream that no sample of the shells shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fjord.client import history
from fjord.client.calls import Steps
from fjord.client.messages import MessageBatch
from fjord.client.streams import StreamCalls
from fjord.commands import (
    CreateTable,
    ListTables,
    Nop,
    Reply,
    Stats,
    Subscribe,
    Unsubscribe,
)
from fjord.errors import Code, RemoteProtocolError, UnavailableError
from fjord.streams import Start
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.stream_samples import (
    LAST,
    NOW,
    acted,
    append_of,
    block_list,
    messages,
    position,
    read_of,
    subscribers,
)

CALLS = StreamCalls("t")


def follow(steps: Steps[Any], *replies: Reply) -> tuple[list[Any], Any]:
    """Returns what was sent, and the result."""
    sent, found = [], None
    try:
        for reply in replies:
            call = steps.send(found)
            sent.append(call.command)
            found = call.result(reply)
        steps.send(found)
    except StopIteration as end:
        return sent, end.value
    raise AssertionError("there are more steps")


def test_a_stream_is_declared_with_its_settings() -> None:
    call = CALLS.create({"mode": "latest"})
    assert call.command == CreateTable(name="t", kind=3, settings=b'{"mode":"latest"}')
    assert CALLS.create({}).command == CreateTable(name="t", kind=3)


def test_an_append_for_a_transaction_is_one_command() -> None:
    call = CALLS.append_many([b"a", b"b"], None)
    assert call.command == append_of(b"a", b"b")
    assert call.result(TOKEN) == 5
    call = CALLS.append_many([], None)
    assert call.command == Nop()
    assert call.result(TOKEN) == 0


def test_what_was_read_is_read_on() -> None:
    begun = MessageBatch("t", messages(b"a", after=9, until=20, ended=False))
    assert next(CALLS.read(10, begun)).command == read_of(9, until=20, count=10, subscriber="")
    ended = MessageBatch("t", messages(b"a", after=9))
    assert next(CALLS.read(10, ended)).command == read_of(9, count=10, subscriber="")


def test_what_was_read_is_not_asked_for_again() -> None:
    for lacks in (False, True):
        batch = SimpleNamespace(lacks_columns=lacks)
        steps = CALLS.read(10, 0)
        assert next(steps).command == read_of(0, count=10, subscriber="")
        if lacks:
            assert steps.send(batch).command == ListTables(name="t")
            with pytest.raises(UnavailableError):
                steps.throw(UnavailableError("gone"))
        else:
            with pytest.raises(StopIteration) as end:
                steps.send(batch)
            assert end.value.value is batch


@pytest.mark.parametrize("keys", ["k", b"k"])
def test_one_key_is_no_list(keys: Any) -> None:
    with pytest.raises(TypeError, match="several keys must be a list"):
        CALLS.delete_many(keys)


def test_a_row_that_was_not_asked_for_is_the_peers_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="row 1 of 1"):
        CALLS.delete("k").result(acted(1))


# -- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "after"), [("beginning", 0), (1, 0), (0, 0), (7, 6)])
def test_a_reader_begins_at_a_seq(start: Any, after: int) -> None:
    sent, cursor = follow(CALLS.reader(start))
    assert sent == []
    assert (cursor.table, cursor.after, cursor.until, cursor.subscriber) == ("t", after, 0, "")


def test_a_reader_begins_at_the_end() -> None:
    sent, cursor = follow(CALLS.reader("end"), LAST)
    assert sent == [Stats()]
    assert cursor.after == 5


def test_a_reader_begins_at_a_moment_by_a_subscriber_that_goes_again() -> None:
    (made, gone), cursor = follow(CALLS.reader(NOW), position(8), TOKEN)
    assert made == Subscribe(table="t", name=made.name, start=Start.TIME, at=NOW_US)
    assert gone == Unsubscribe(table="t", name=made.name)
    assert made.name.startswith("reader-")
    assert cursor.after == 8
    other, _ = follow(CALLS.reader(NOW), position(8), TOKEN)
    assert other[0].name != made.name


# -- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "page", "again"),
    [
        (
            CALLS.subscribers(),
            subscribers((b"a", 5, 2, False), next_name="b"),
            subscribers((b"a", 5, 2, False), next_name="b"),
        ),
        (
            history.blocks("t"),
            block_list(b"a", next_after=9),
            block_list(b"a", next_after=9),
        ),
    ],
)
def test_the_same_page_again_is_the_peers_mistake(
    steps: Steps[Any], page: Reply, again: Reply
) -> None:
    with pytest.raises(RemoteProtocolError) as error:
        follow(steps, page, again)
    assert error.value.code is Code.BAD_CURSOR
