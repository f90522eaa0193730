"""Walking through jobs: which pages are asked for, and when it ends."""

from __future__ import annotations

import pytest

from fjord.client.jobs.records import JobWalk
from fjord.commands import JobPage
from fjord.errors import RemoteProtocolError
from fjord.jobs import State
from tests.unit.client.job_samples import page_of, peek_of


def keys(page: JobPage) -> list[bytes]:
    return page.keys.rows()


def dead_walk(limit: int | None = None) -> JobWalk[bytes]:
    return JobWalk("t", State.DEAD, keys, limit=limit)


def step(walk: JobWalk[bytes], page: JobPage) -> list[bytes]:
    call = walk.next_call()
    assert call is not None
    return call.result(page)


def test_no_more_is_asked_for_than_is_wanted() -> None:
    walk = JobWalk("t", State.WAITING, keys, limit=3, domain="d")
    call = walk.next_call()
    assert call is not None
    assert call.command == peek_of(State.WAITING, count=3, domain=b"d")
    call.result(page_of(b"a", b"b", next_start=b"2"))
    call = walk.next_call()
    assert call is not None
    assert call.command == peek_of(State.WAITING, count=1, domain=b"d", start=b"2")
    call.result(page_of(b"c", next_start=b"3"))
    assert walk.next_call() is None


def test_a_page_is_never_larger_than_a_page_may_be() -> None:
    call = dead_walk(limit=5_000).next_call()
    assert call is not None
    assert call.command == peek_of(State.DEAD)


def test_a_page_that_comes_again_is_the_peers_mistake() -> None:
    walk = dead_walk()
    step(walk, page_of(b"a", next_start=b"2"))
    with pytest.raises(RemoteProtocolError, match="the same page again"):
        step(walk, page_of(b"a", next_start=b"2"))
