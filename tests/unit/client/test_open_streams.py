"""Streams of a directory, through the engine: what clients and tables make of each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
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


def test_readers_begin_anywhere(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append(b"a")
    moment = datetime.now(UTC)
    seq = events.append_many([b"b", b"c"])
    starts: list[tuple[str | int | datetime, list[object]]] = [
        ("beginning", [b"a", b"b", b"c"]),
        (moment, [b"b", b"c"]),
        (seq, [b"c"]),
        ("end", []),
    ]
    for number, (start, found) in enumerate(starts):
        assert values_of(events.reader(start=start).read()) == found
        subscriber = events.subscriber(f"s{number}")
        subscriber.seek(start)
        assert values_of(subscriber.read()) == found
        assert values_of(events.subscriber(f"new{number}", start=start).read()) == found
    names = [one.name for one in events.subscribers()]
    assert names == ["new0", "new1", "new2", "new3", "s0", "s1", "s2", "s3"]


# -- popping --------------------------------------------------------------------------------------


def test_each_message_is_popped_once(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"%d" % number for number in range(40)])
    popped: list[list[bytes]] = [[], []]

    def take(place: int) -> None:
        subscriber = events.subscriber("workers")
        while (message := subscriber.pop()) is not None:
            assert isinstance(message.value, bytes)
            popped[place].append(message.value)

    threads = [threading.Thread(target=take, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(popped[0] + popped[1]) == sorted(b"%d" % number for number in range(40))


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


# -- the latest of each key -----------------------------------------------------------------------


def test_a_peek_in_the_midst_of_a_pass_stays_in_it(db: fjord.Database) -> None:
    profiles = db.create_stream("profiles", mode="latest")
    keys = [f"{number:02}" for number in range(20)]
    profiles.append_many(list(range(20)), keys=keys)
    subscriber = profiles.subscriber("s")
    seen = [subscriber.read(7)]
    profiles.append_many([0] * 20, keys=keys)
    peeked = subscriber.peek()
    assert peeked is not None
    assert peeked.value == 0
    assert peeked == seen[0].messages[0], "not the one that has replaced it since"
    while not seen[-1].end_of_snapshot:
        seen.append(subscriber.read(7))
    assert [one.value for batch in seen for one in batch] == list(range(20))
    assert db.stats()["snapshots"] == 0


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
