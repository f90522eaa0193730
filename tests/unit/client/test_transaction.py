"""Transactions: gathered writes, one call."""

from __future__ import annotations

from typing import Any

import pytest

from fjord import limits
from fjord.client.blocking.subscribers import Subscriber
from fjord.client.messages import MessageBatch, ReadBy
from fjord.client.transaction import Transaction
from fjord.clock import Stamps
from fjord.commands import (
    Append,
    Batch,
    Bury,
    Cancel,
    Delete,
    Done,
    Erase,
    Extend,
    Fail,
    Finish,
    ListSubscribers,
    Modify,
    Nop,
    Push,
    Refusal,
    Rename,
    Replies,
    Reschedule,
    Set,
)
from fjord.errors import Code, ExistsError, LocalProtocolError, RemoteProtocolError
from fjord.jobs import How
from fjord.testing import SimClock
from tests.unit.client.job_samples import ACTED, acted, taken_batch
from tests.unit.client.runners import runner
from tests.unit.client.scripted import NOW_US, TOKEN, entries
from tests.unit.client.shell_calls import FIVE, Recorder
from tests.unit.client.stream_samples import ack_of, messages, position, read_of, subscriber_calls


@pytest.fixture
def transaction() -> Transaction:
    return Transaction(Stamps(SimClock(NOW_US)))


def test_all_writes_are_one_batch_in_order(transaction: Transaction) -> None:
    kv = transaction.kv("t")
    kv.set("a", 1, overwrite=False)
    kv.set_many({"b": 2})
    kv.delete("c")
    kv.delete_many(["d"], purge=True)
    kv.add("e", 1)
    kv.flip("f")
    kv.truncate("g", 1)
    kv.rename("h", "i")
    kv["j"] = 5
    del kv["k"]
    transaction.kv("other").set("a", 1)
    batch = transaction.call().command
    assert isinstance(batch, Batch)
    kinds = [Set, Set, Delete, Delete, Modify, Modify, Modify, Rename, Set, Delete, Set]
    assert [type(command) for command in batch.commands] == kinds
    last = batch.commands[-1]
    assert isinstance(last, Set)
    assert last.table == "other"


def test_each_write_has_its_result(transaction: Transaction) -> None:
    kv = transaction.kv()
    kv.set("a", 1)
    kv.add("a", 4)
    replies = Replies(replies=[TOKEN, entries((3, FIVE))])
    assert transaction.call().result(replies) == [None, 5]


def test_a_refusal_is_that_of_the_whole(transaction: Transaction) -> None:
    transaction.kv().set("a", 1, overwrite=False)
    with pytest.raises(ExistsError):
        transaction.call().result(Refusal(code=Code.EXISTS, text="a is there"))


def test_nothing_is_sent_for_nothing(transaction: Transaction) -> None:
    transaction.kv().set_many({})
    transaction.kv().delete_many([])
    call = transaction.call()
    assert call.command == Nop()
    assert call.result(Done(master=b"", seq=0)) == []


def test_a_transaction_is_bounded(transaction: Transaction) -> None:
    kv = transaction.kv()
    for _ in range(limits.BATCH_COMMANDS_MAX):
        kv.delete("a")
    with pytest.raises(LocalProtocolError, match="at most"):
        kv.delete("a")


def test_other_replies_than_were_asked_for_are_the_peers_mistake(transaction: Transaction) -> None:
    with pytest.raises(RemoteProtocolError, match="kind Replies"):
        transaction.call().result(Replies(replies=[]))
    transaction.kv().set("a", 1)
    for wrong in (TOKEN, Replies(replies=[]), Replies(replies=[TOKEN, TOKEN])):
        with pytest.raises(RemoteProtocolError):
            transaction.call().result(wrong)
    with pytest.raises(RemoteProtocolError, match="kind Entries"):
        transaction.call().result(Replies(replies=[entries((3, FIVE))]))


@pytest.mark.parametrize("name", ["get", "get_many", "entry", "take", "range", "lock", "listen"])
def test_reading_is_refused_with_a_sentence(transaction: Transaction, name: str) -> None:
    with pytest.raises(AttributeError, match="only writes: read, lock and listen outside"):
        getattr(transaction.kv(), name)
    assert not hasattr(transaction.kv(), name)


def test_reading_like_a_dict_is_refused_with_the_same_sentence(transaction: Transaction) -> None:
    kv: Any = transaction.kv()
    with pytest.raises(TypeError, match="only writes"):
        kv["a"]
    with pytest.raises(TypeError, match="only writes"):
        assert "a" in kv
    with pytest.raises(AttributeError, match="a transaction has no gte"):
        kv.gte("a")


def test_a_transaction_says_how_much_it_holds(transaction: Transaction) -> None:
    transaction.kv().set("a", 1)
    assert repr(transaction) == "<Transaction of 1 writes>"
    named = Transaction(Stamps(SimClock(NOW_US)), name="fjord://host:1")
    assert repr(named) == "<Transaction of 0 writes at fjord://host:1>"


# -- jobs -----------------------------------------------------------------------------------------


def test_jobs_are_pushed_and_settled_in_one_batch(transaction: Transaction) -> None:
    jobs = transaction.jobs("t")
    jobs.push("a", b"v", priority=5)
    jobs.push_many(keys=["b", "c"])
    jobs.push_many([])
    jobs.done_many([70])
    jobs.touch_many([71], lease=60)
    jobs.fail_many([72], reason="why")
    jobs.cancel("d")
    jobs.cancel_many(["e"])
    jobs.reschedule("f", priority=1)
    jobs.kick("g")
    jobs.bury("h", "why")
    transaction.kv("other").set("a", 1)
    batch = transaction.call().command
    assert isinstance(batch, Batch)
    kinds = [Push, Push, Finish, Extend, Fail, Cancel, Cancel, Reschedule, Reschedule, Bury, Set]
    assert [type(command) for command in batch.commands] == kinds


def test_jobs_know_what_became_of_them_in_a_transaction(transaction: Transaction) -> None:
    jobs = list(taken_batch(b"a", b"b"))
    transaction.jobs("t").done_many(jobs)
    transaction.jobs("t").cancel("c")
    assert transaction.call().result(Replies(replies=[acted(1), ACTED])) == [[jobs[1]], True]
    assert [job.outcome for job in jobs] == [How.DONE, How.TIMEOUT]


@pytest.mark.parametrize("name", ["done", "touch", "fail"])
def test_one_job_is_settled_as_many_are(transaction: Transaction, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no {name}: use {name}_many\(\[job\]\)"):
        getattr(transaction.jobs("t"), name)(70)


@pytest.mark.parametrize("name", ["next", "work", "run", "get", "count", "dead", "redrive"])
def test_taking_jobs_is_refused_with_a_sentence(transaction: Transaction, name: str) -> None:
    with pytest.raises(AttributeError, match="take and read jobs outside"):
        getattr(transaction.jobs("t"), name)
    with pytest.raises(AttributeError, match="a transaction has no psuh"):
        transaction.jobs("t").psuh("a")  # type: ignore[attr-defined]


# -- streams --------------------------------------------------------------------------------------


def subscriber() -> Subscriber:
    return Subscriber(runner(Recorder([]).answer), subscriber_calls())


def test_messages_are_appended_and_deleted_in_one_batch(transaction: Transaction) -> None:
    stream = transaction.stream("t")
    stream.append(b"v", key="k")
    stream.append_many([b"v"] * 3, keys=["a", "b", "c"])
    stream.append_many([])
    stream.delete("k")
    stream.delete_many(["k", "l"])
    stream.delete_many([])
    call = transaction.call()
    assert isinstance(call.command, Batch)
    kinds = [Append, Append, Erase, Erase]
    assert [type(command) for command in call.command.commands] == kinds
    replies = Replies(replies=[TOKEN, TOKEN, acted(), acted(1)])
    assert call.result(replies) == [5, 5, True, ["l"]]


def test_a_batch_is_not_split_in_a_transaction(transaction: Transaction) -> None:
    transaction.stream("t").append_many([b""] * (limits.BATCH_ROWS_MAX + 1))
    batch = transaction.call().command
    assert isinstance(batch, Batch)
    assert len(batch.commands) == 1


def test_what_was_read_is_acknowledged_with_what_follows_from_it(transaction: Transaction) -> None:
    reader = subscriber()
    transaction.stream("out").append(b"v")
    transaction.ack(reader, MessageBatch("t", messages(b"a", after=9), ReadBy("s", 2)))
    call = transaction.call()
    assert isinstance(call.command, Batch)
    assert call.command.commands[1] == ack_of(9, expected=5)
    assert call.result(Replies(replies=[TOKEN, position(9)])) == [5, None]
    assert next(reader.calls.read(5, None)).command == read_of(9, count=5)


def test_a_subscriber_of_a_failed_transaction_looks_where_its_mark_is(
    transaction: Transaction,
) -> None:
    reader = subscriber()
    transaction.ack(reader, 9)
    transaction.fail()
    command = next(reader.calls.read(5, None)).command
    assert command == ListSubscribers(table="t", start="s", count=1)


@pytest.mark.parametrize("name", ["read", "subscriber", "get", "items", "blocks"])
def test_reading_a_stream_is_refused_with_a_sentence(transaction: Transaction, name: str) -> None:
    with pytest.raises(AttributeError, match=r"only writes: .* tx.ack\(subscriber, batch\)"):
        getattr(transaction.stream("t"), name)
    with pytest.raises(AttributeError, match="a transaction has no apend"):
        transaction.stream("t").apend(b"v")  # type: ignore[attr-defined]
