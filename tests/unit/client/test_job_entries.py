"""Jobs as users see them: taken ones made on demand, and those that are only looked at."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from datetime import timedelta

import pytest

from fjord.client.jobs.records import JobBatch, Moment, TakenJob, read_moment
from fjord.columns import Strings
from fjord.commands import Changed, Taken
from fjord.errors import RemoteProtocolError
from fjord.jobs import How
from tests.unit.client.job_samples import MINUTE, NOW, SCHEMAS, URI, taken_batch, taken_of
from tests.unit.client.scripted import NOW_US


def batch_of(taken: Taken) -> JobBatch[TakenJob]:
    return JobBatch("t", taken, TakenJob, NOW_US, schemas=SCHEMAS)


def test_a_job_has_all_that_was_handed_out() -> None:
    taken = replace(
        taken_of(b"k", URI.encode(), timeouts=3),
        expires_at_us=(0, NOW_US + 1),
        priorities=b"\1\2",
        types=b"\1\3",
        values=Strings.of([b"v", b"\5" + bytes(7)]),
        domains=Strings.of([b"given", b""]),
    )
    first, second = batch_of(taken)
    assert (first.table, first.key, first.value, first.priority) == ("t", "k", b"v", 1)
    assert (second.key, second.value, second.priority) == (URI, 5, 2)
    assert (first.domain, second.domain) == ("given", "example.com")
    assert (first.xid, second.xid, first.row, second.row) == (70, 71, 10, 11)
    assert (first.timeouts, first.expires_at) == (3, None)
    assert second.expires_at == NOW + timedelta(microseconds=1)
    assert first.process_at == NOW - timedelta(microseconds=3)
    assert first.inserted_at == NOW - timedelta(microseconds=5)
    assert first.updated_at == NOW - timedelta(microseconds=4)
    assert first.lease_until == NOW + MINUTE
    assert (first.outcome, first.is_settled) == (None, False)
    assert repr(second) == f"<TakenJob '{URI}' xid 71>"


def test_a_key_that_is_no_text_can_be_given_back() -> None:
    (job,) = batch_of(taken_of(b"\xff/\xc3\xa9"))
    assert job.key == "\udcff/é"
    assert job.key.encode(errors="surrogateescape") == b"\xff/\xc3\xa9"


def test_a_batch_is_a_sequence() -> None:
    batch = taken_batch(b"a", b"b", b"c")
    assert len(batch) == 3
    assert [job.key for job in batch] == ["a", "b", "c"]
    assert [batch[place].key for place in (0, -1)] == ["a", "c"]
    assert [job.key for job in batch[1:]] == ["b", "c"]
    assert [job.key for job in reversed(batch)] == ["c", "b", "a"]
    with pytest.raises(IndexError):
        batch[3]
    assert batch.xids == range(70, 73)
    assert batch.next_at is None
    assert repr(batch) == "<JobBatch of 3>"


def test_an_empty_batch_says_when_to_ask_again() -> None:
    batch = batch_of(taken_of(next_at_us=NOW_US))
    assert not batch
    assert list(batch) == []
    assert batch.next_at == NOW
    assert batch.xids == range(0)
    assert repr(batch) == f"<JobBatch of 0, next at {NOW}>"


def test_a_batch_goes_as_soon_as_nobody_looks_at_it() -> None:
    """A worker would else hold the values of many batches until they are collected."""
    batch = taken_batch(b"a", b"b")
    assert [job.key for job in batch] == ["a", "b"]
    job = batch[1]
    gone = weakref.ref(job)
    gc.disable()
    try:
        del batch
        assert job.key == "b"
        del job
        assert gone() is None  # it held the batch, and the batch did not hold it
    finally:
        gc.enable()


def test_jobs_are_the_same_by_table_and_xid() -> None:
    first, again = taken_batch(b"a", b"b"), taken_batch(b"a", b"b")
    assert first[0] == again[0]
    assert first[0] != again[1]
    assert len({*first, *again}) == 2
    again.table = "other"
    assert first[0] != again[0]
    assert first[0] != 70
    at_once = batch_of(taken_of(b"a", b"b", first_xid=0))
    assert at_once[0] != at_once[1]


def test_leases_of_a_batch_are_longer_but_for_those_that_were_lost() -> None:
    batch = taken_batch(b"a", b"b", b"c")
    batch[1].note(7, NOW_US)
    batch.note_all(0, [2], NOW_US + 1)
    assert [job.lease_us for job in batch] == [60_000_000, 7, 60_000_000]
    microsecond = timedelta(microseconds=1)
    until = [NOW + MINUTE + microsecond, NOW + 8 * microsecond, NOW + MINUTE]
    assert [job.lease_until for job in batch] == until
    assert [job.outcome for job in batch] == [None, None, How.TIMEOUT]
    batch.note_all(9, [2], NOW_US)
    assert [job.lease_us for job in batch] == [9, 9, 60_000_000]


def test_a_value_of_an_unknown_type_is_the_peers_mistake() -> None:
    (job,) = batch_of(replace(taken_of(b"k"), types=b"\x63"))
    with pytest.raises(RemoteProtocolError, match="type 99"):
        job.value  # noqa: B018 - it is read when it is looked at


def test_a_moment_is_an_arrival_or_a_date() -> None:
    assert read_moment(Changed("t", b"", 2, b"arrived", NOW_US, 0)) == Moment("arrived", NOW)
    assert read_moment(Changed("t", b"", 2, b"due", NOW_US, 0)).kind == "due"
    with pytest.raises(RemoteProtocolError, match="gone"):
        read_moment(Changed("t", b"", 2, b"gone", NOW_US, 0))
