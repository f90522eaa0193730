"""Streams of a directory, through the engine: what clients and tables make of each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fjord
from fjord import limits
from fjord.errors import Code


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path / "data") as database:
        yield database


def values_of(batch: fjord.MessageBatch) -> list[object]:
    return [message.value for message in batch]


def test_messages_are_read_in_order_at_ones_own_pace(db: fjord.Database) -> None:
    events = db.stream("events", mode="log")
    first = events.append(b"a", key="k")
    last = events.append_many(["b", None, 5, 0.5, True], keys=["k"] * 5)
    assert last == first + 5
    fast, slow = (events.subscriber(name) for name in ("fast", "slow"))
    batch = fast.read()
    assert values_of(batch) == [b"a", "b", None, 5, 0.5, True]
    assert batch.seqs == list(range(first, last + 1))
    assert batch.end_of_snapshot
    fast.ack(batch)
    assert (fast.lag, slow.lag) == (0, 6)
    assert [values_of(one) for one in slow.batches(4)] == [[b"a", "b", None, 5], [0.5, True]]
    assert [one.name for one in events.subscribers()] == ["fast", "slow"]


def test_a_subscriber_goes_on_where_its_mark_is(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b", b"c"])
    subscriber = events.subscriber("s")
    subscriber.ack(subscriber.read(1))
    assert subscriber.peek() == subscriber.peek()
    subscriber.read()
    again = events.subscriber("s", start="end")
    assert again.position == subscriber.position
    assert values_of(again.read()) == [b"b", b"c"]
    subscriber.rewind()
    assert values_of(subscriber.read()) == [b"b", b"c"]


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


def test_a_large_batch_is_split(db: fjord.Database) -> None:
    events = db.stream("events")
    many = limits.BATCH_ROWS_MAX + 5
    events.append_many([b"%d" % number for number in range(many)])
    found = [one for batch in events.reader().batches(60_000) for one in batch.values]
    assert found == [b"%d" % number for number in range(many)]


def test_a_reader_that_waits_is_told_at_once(db: fjord.Database) -> None:
    events = db.create_stream("events")
    reader = events.reader(start="end")
    thread = threading.Thread(target=events.append, args=(b"a",))
    thread.start()
    assert values_of(reader.read(wait=60)) == [b"a"]
    thread.join()


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


def test_a_message_that_was_not_worked_on_comes_again(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b"])
    subscriber = events.subscriber("s")
    with pytest.raises(OSError, match="no route"), subscriber.taking():
        raise OSError("no route")
    found = []
    for _ in range(3):
        with subscriber.taking() as message:
            found.append(message and message.value)
    assert found == [b"a", b"b", None]
    assert subscriber.lag == 0


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


def test_what_somebody_has_sought_is_read_from_there(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b"])
    one, other = (events.subscriber("s") for _ in range(2))
    batch = one.read()
    other.seek("end")
    other.seek("beginning")
    with pytest.raises(fjord.StaleError):
        one.ack(batch)
    again = one.read()
    assert values_of(again) == [b"a", b"b"]
    one.ack(again)
    assert other.lag == 0


def test_a_subscriber_that_is_gone_is_gone(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append(b"a")
    subscriber = events.subscriber("s")
    subscriber.sleep()
    assert [one.is_asleep for one in events.subscribers()] == [True]
    assert values_of(subscriber.read()) == [b"a"]
    assert [one.is_asleep for one in events.subscribers()] == [False]
    subscriber.delete()
    uses: list[Callable[[], object]] = [
        subscriber.read,
        subscriber.peek,
        subscriber.pop,
        lambda: subscriber.ack(1),
        lambda: subscriber.lag,
        subscriber.rewind,
    ]
    for use in uses:
        with pytest.raises(fjord.NotFoundError, match="subscriber s"):
            use()
    assert events.subscribers() == []


def test_a_subscriber_that_is_made_again_is_another_one(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append(b"a")
    subscriber = events.subscriber("s")
    batch = subscriber.read()
    events.subscriber("s").delete()
    again = events.subscriber("s")
    with pytest.raises(fjord.StaleError):
        subscriber.ack(batch)
    assert again.lag == 1
    assert values_of(again.read()) == values_of(subscriber.read()) == [b"a"]


# -- the latest of each key -----------------------------------------------------------------------


def test_the_latest_of_each_key_is_a_map(db: fjord.Database) -> None:
    profiles = db.stream("profiles", mode="latest")
    profiles.append_many(["Berlin", "Oslo", "Bergen"], keys=["7", "8", "7"])
    assert dict(profiles.items()) == {"7": "Bergen", "8": "Oslo"}
    assert (profiles["7"], profiles.get("9"), "8" in profiles) == ("Bergen", None, True)
    mirror = profiles.subscriber("mirror")
    assert [(one.key, one.value) for one in mirror.read()] == [("8", "Oslo"), ("7", "Bergen")]
    assert profiles.delete("8")
    assert not profiles.delete("8")
    assert profiles.delete_many(["8", "7", "9"]) == ["8", "9"]
    assert [(one.key, one.value, one.is_tombstone) for one in mirror.read()] == [
        ("8", None, True),
        ("7", None, True),
    ]
    assert list(profiles.keys()) == []


def test_the_latest_are_iterated_and_deleted_like_a_dict(db: fjord.Database) -> None:
    profiles = db.stream("profiles", mode="latest")
    profiles.append_many(["Bergen", "Oslo"], keys=["7", "8"])
    assert (list(profiles), list(profiles.values())) == (["7", "8"], ["Bergen", "Oslo"])
    del profiles["7"]
    with pytest.raises(KeyError):
        del profiles["7"]
    assert dict(profiles) == {"8": "Oslo"}


def test_a_log_has_no_keys_to_go_through(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append(b"a", key="k")

    def delete() -> None:
        del events["k"]

    uses: list[Callable[[], object]] = [
        lambda: list(events),
        lambda: list(events.values()),
        lambda: list(events.items()),
        lambda: events["k"],
        lambda: "k" in events,
        delete,
    ]
    for use in uses:
        with pytest.raises(fjord.RefusedError, match="mode latest") as error:
            use()
        assert error.value.code is Code.WRONG_KIND


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


def test_a_pass_in_small_pieces_has_each_key_once(db: fjord.Database) -> None:
    profiles = db.create_stream("profiles", mode="latest")
    keys = [f"{number:02}" for number in range(20)]
    profiles.append_many(list(range(20)), keys=keys)
    subscriber = profiles.subscriber("s")
    seen = [subscriber.read(7)]
    profiles.append_many([0] * 20, keys=keys)
    while not seen[-1].end_of_snapshot:
        seen.append(subscriber.read(7))
    assert [one.value for batch in seen for one in batch] == list(range(20))
    assert values_of(subscriber.read()) == [0] * 20


# -- one moment -----------------------------------------------------------------------------------


def test_a_snapshot_stays_as_it_is(db: fjord.Database) -> None:
    settings, profiles = db.kv("settings"), db.create_stream("profiles", mode="latest")
    events = db.stream("events")
    settings.set("k", 1)
    profiles.append("Oslo", key="7")
    events.append_many([b"a", b"b"])
    with db.snapshot(lifetime=60) as snap:
        settings.set("k", 2)
        profiles.append("Rome", key="7")
        profiles.delete("7")
        events.append(b"c")
        assert snap.kv("settings").get("k") == 1
        assert list(snap.kv("settings").items()) == [("k", 1)]
        assert snap.stream("profiles")["7"] == "Oslo"
        assert dict(snap.stream("profiles").items()) == {"7": "Oslo"}
        assert [one for batch in snap.stream("events").batches(1) for one in batch.values] == [
            b"a",
            b"b",
        ]
        kept = snap.kv("settings")
    with pytest.raises(fjord.RefusedError) as error:
        kept.get("k")
    assert error.value.code is Code.SNAPSHOT_GONE


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


# -- history --------------------------------------------------------------------------------------


def test_cold_messages_are_read_as_hot_ones(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b"], keys=["k", ""])
    before = list(events.read())
    subscriber = events.subscriber("s")
    db.seal()
    (block,) = events.blocks()
    assert (block.rows, block.location != "") == (2, True)
    events.append(b"c")
    assert [*events.read(2)] == before
    assert subscriber.lag == 3
    assert [one.value for batch in subscriber.batches() for one in batch] == [b"a", b"b", b"c"]


def test_history_is_scanned_as_arrow(db: fjord.Database) -> None:
    events = db.stream("events")
    events.append_many([b"a", b"b", b"c"], keys=["k:1", "l:1", "k:2"])
    (table,) = db.scan_arrow("events", columns=["key", "op"], key_prefix="k:")
    assert table.to_pylist() == [{"key": key, "op": "APPEND"} for key in (b"k:1", b"k:2")]
    (piece,) = db.scan("events", ops=["STREAM_APPEND"])
    assert len(piece.ops) == 1
    assert events.read().to_arrow()["value"].to_pylist() == [b"a", b"b", b"c"]
