"""Streams of a directory, through the engine: what clients and tables make of each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path / "data") as database:
        yield database


def values_of(batch: fjord.MessageBatch) -> list[object]:
    return [message.value for message in batch]


@pytest.mark.req("JQ-08")
@pytest.mark.parametrize("read", [0, 2], ids=["nothing", "two"])
def test_a_peek_gives_what_a_pop_would_take_and_moves_nothing(
    db: fjord.Database, read: int
) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b", b"c"])
    subscriber = events.subscriber("s")
    for expected in (b"a", b"b", b"c"):
        if read:
            subscriber.read(read)
        before = subscriber.position, subscriber.lag, db.stats()["applied_seq"]
        peeked = subscriber.peek()
        assert peeked is not None
        assert peeked.value == expected
        assert subscriber.peek() == events.subscriber("s").peek() == peeked
        assert (subscriber.position, subscriber.lag, db.stats()["applied_seq"]) == before
        assert subscriber.pop() == peeked
    assert subscriber.peek() is subscriber.pop() is None


@pytest.mark.req("JQ-08")
def test_a_peek_leaves_reads_where_they_are_and_knows_what_others_have_popped(
    db: fjord.Database,
) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b", b"c"])
    subscriber = events.subscriber("s")
    batch = subscriber.read(2)
    assert subscriber.peek() == batch.messages[0] == events.subscriber("s").pop()
    assert subscriber.peek() == batch.messages[1]
    assert values_of(subscriber.read()) == [b"c"]
    subscriber.sleep()
    assert subscriber.peek() == batch.messages[1]
    assert [one.is_asleep for one in events.subscribers()] == [True]
    subscriber.ack(batch)
    assert subscriber.lag == 1


# -- popping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["log", "latest"])
@pytest.mark.parametrize("how", ["pop", "taking"])
def test_a_pop_acknowledges_nothing_that_was_only_read(
    db: fjord.Database, mode: str, how: str
) -> None:
    events = db.create_stream("events", mode=mode)
    events.append_many([b"a", b"b", b"c"], keys=["1", "2", "3"])
    subscriber = events.subscriber("s")
    batch = subscriber.read(2)
    if how == "pop":
        popped = subscriber.pop()
    else:
        with subscriber.taking() as popped:
            pass
    assert popped == batch.messages[0]
    assert subscriber.lag == 2
    assert values_of(events.subscriber("s").read()) == [b"b", b"c"]
    assert values_of(subscriber.read()) == [b"b", b"c"]
    subscriber.ack(batch)
    assert subscriber.lag == 1
    last = subscriber.pop()
    assert last is not None
    assert last.value == b"c"
    assert subscriber.pop() is None


def test_a_message_that_a_block_holds_is_not_given_out_a_second_time(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b", b"c"])
    subscriber = events.subscriber("s")
    with subscriber.taking() as message:
        with pytest.raises(RuntimeError, match="leave that block first"):
            subscriber.pop()
        with pytest.raises(RuntimeError, match="leave that block"), subscriber.taking():
            pass
        assert subscriber.peek() == message
        assert subscriber.lag == 3
    with pytest.raises(RuntimeError, match="leave that block"), subscriber.taking():
        subscriber.pop()
    assert [one.value for _ in range(3) if (one := subscriber.pop())] == [b"b", b"c"]
    with subscriber.taking() as message:
        assert message is subscriber.pop() is None, "it holds nothing"


# -- one moment -----------------------------------------------------------------------------------


def test_what_follows_from_messages_is_written_with_their_acknowledgement(
    db: fjord.Database,
) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b"])
    one, other = (events.subscriber("s") for _ in range(2))
    batches = [reader.read() for reader in (one, other)]
    with db.transaction() as tx:
        tx.stream("out").append_many(batches[0].values)
        tx.kv("counts").set("out", len(batches[0]))
        tx.ack(one, batches[0])
    assert one.lag == 0
    with pytest.raises(fjord.StaleError), db.transaction() as tx:
        tx.stream("out").append_many(batches[1].values)
        tx.ack(other, batches[1])
    assert len(other.read()) == 0
    assert values_of(db.stream("out").read()) == [b"a", b"b"]
