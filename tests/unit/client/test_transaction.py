"""Transactions: gathered writes, one call."""

from __future__ import annotations

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
    Erase,
    Extend,
    Fail,
    Finish,
    Modify,
    Push,
    Rename,
    Replies,
    Reschedule,
    Set,
)
from fjord.errors import LocalProtocolError, RemoteProtocolError
from fjord.testing import SimClock
from tests.unit.client.job_samples import acted
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


def test_what_was_read_is_acknowledged_with_what_follows_from_it(transaction: Transaction) -> None:
    reader = subscriber()
    transaction.stream("out").append(b"v")
    transaction.ack(reader, MessageBatch("t", messages(b"a", after=9), ReadBy("s", 2)))
    call = transaction.call()
    assert isinstance(call.command, Batch)
    assert call.command.commands[1] == ack_of(9, expected=5)
    assert call.result(Replies(replies=[TOKEN, position(9)])) == [5, None]
    assert next(reader.calls.read(5, None)).command == read_of(9, count=5)
