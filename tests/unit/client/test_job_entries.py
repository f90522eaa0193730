"""Jobs as users see them: taken ones made on demand, and those that are only looked at."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta

import pytest

from fjord.client.job_entries import (
    JobBatch,
    Moment,
    TakenJob,
    read_dead,
    read_jobs,
    read_moment,
)
from fjord.columns import Strings
from fjord.commands import Changed, Taken
from fjord.errors import RemoteProtocolError
from fjord.jobs import How, State
from tests.unit.client.job_samples import (
    MINUTE,
    NOW,
    URI,
    Dead,
    dead_of,
    dead_page,
    info_of,
    page_of,
    taken_batch,
    taken_of,
)
from tests.unit.client.scripted import NOW_US


def batch_of(taken: Taken) -> JobBatch[TakenJob]:
    return JobBatch("t", taken, TakenJob, NOW_US)


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


def test_no_object_is_made_before_it_is_looked_at() -> None:
    made: list[int] = []

    def make(batch: JobBatch[TakenJob], place: int) -> TakenJob:
        made.append(place)
        return TakenJob(batch, place)

    batch = JobBatch("t", taken_of(*[b"k"] * 1000), make, NOW_US)
    assert len(batch) == 1000
    assert batch.xids[-1] == 1069
    assert made == []
    assert batch[5].row == 15
    assert made == [5]


def test_an_empty_batch_says_when_to_ask_again() -> None:
    batch = batch_of(taken_of(next_at_us=NOW_US))
    assert not batch
    assert list(batch) == []
    assert batch.next_at == NOW
    assert batch.xids == range(0)
    assert repr(batch) == f"<JobBatch of 0, next at {NOW}>"


def test_jobs_that_are_done_have_no_lease() -> None:
    batch = batch_of(replace(taken_of(b"k", b"l", first_xid=0), until_us=0))
    assert [job.xid for job in batch] == [0, 0]
    assert batch[0].lease_until is None
    assert batch.xids == range(0)


def test_a_lease_is_as_long_as_it_was() -> None:
    (job,) = taken_batch(b"k")
    assert job.lease_us == 60_000_000
    job.extend_until(NOW_US + 5)
    assert job.lease_until == NOW + timedelta(microseconds=5)


def test_a_value_of_an_unknown_type_is_the_peers_mistake() -> None:
    (job,) = batch_of(replace(taken_of(b"k"), types=b"\x63"))
    with pytest.raises(RemoteProtocolError, match="type 99"):
        job.value  # noqa: B018 - it is read when it is looked at


def test_jobs_that_are_looked_at() -> None:
    assert read_jobs(page_of(b"k"), State.WAITING) == [info_of("k")]
    assert read_jobs(page_of(b"k", state=State.TAKEN), State.TAKEN) == [info_of("k", State.TAKEN)]
    assert read_dead(page_of(b"k", b"l", state=State.DEAD)) == [dead_of("k"), dead_of("l", 11)]
    assert pickle.loads(pickle.dumps(dead_of("k"))) == dead_of("k")


def test_a_reason_that_is_no_text_is_shown_all_the_same() -> None:
    (job,) = read_dead(dead_page(Dead(URI.encode(), reason=b"\xff!")))
    assert (job.reason, job.domain) == ("\ufffd!", "example.com")


def test_a_moment_is_an_arrival_or_a_date() -> None:
    assert read_moment(Changed("t", b"", 2, b"arrived", NOW_US, 0)) == Moment("arrived", NOW)
    assert read_moment(Changed("t", b"", 2, b"due", NOW_US, 0)).kind == "due"
    with pytest.raises(RemoteProtocolError, match="gone"):
        read_moment(Changed("t", b"", 2, b"gone", NOW_US, 0))


def test_an_outcome_settles_a_job() -> None:
    (job,) = taken_batch(b"k")
    job.outcome = How.FAIL
    assert job.is_settled
