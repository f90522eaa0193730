"""Requests that wait: between peers that only remember, and a committer that only collects."""

from __future__ import annotations

import pytest

from fjord import limits
from fjord.commands import Command, Next, Refusal, Reply
from fjord.engine.news import NO_NEWS, Arrival
from fjord.errors import Code
from tests.unit.engine.job_records import TABLE, taken
from tests.unit.server.asking import Asker, Waiting

SECOND_US = 1_000_000
REFUSED = Refusal(code=Code.BAD_TIMEOUT, text="too long")


class World(Waiting):
    """A committer that answers with whatever the test has ready."""

    def __init__(self) -> None:
        super().__init__(threads=0)

    def next(self, peer: Asker, request: int = 1, *, seconds: float = 60, count: int = 1) -> None:
        command = Next(table=TABLE, count=count, wait_us=round(seconds * SECOND_US))
        self.waiting.begin(peer, request, command)

    def run(self, *replies: Reply, arrivals: dict[str, Arrival] | None = None) -> list[Command]:
        """Runs a group as the committer does: the first get these replies, all others nothing."""
        group, self.submitted = self.submitted, []
        given = [*replies, *[taken()] * (len(group) - len(replies))]
        ran = []
        for (origin, request, command, _, wait), reply in zip(group, given, strict=True):
            if wait is not None and origin.is_stalled:
                if not origin.is_open:
                    self.waiting.forget(wait)
                    continue
                if self.waiting.set_aside(wait):
                    continue
            if wait is None:
                origin.answer(request, reply)
            else:
                self.waiting.settle(wait, reply)
            ran.append(command)
        for origin, *_ in group:
            origin.flush()
        self.waiting.news.append(NO_NEWS._replace(arrivals=arrivals or {}))
        self.waiting.go_on()
        return ran

    def end(self, peer: Asker) -> None:
        """Lets a peer send no more."""
        peer.is_ending = True
        self.waiting.end(peer)

    def come_back(self, reply: Reply) -> None:
        """Lets the one command that was submitted come back, from whoever is gone since."""
        ((*_, wait),) = self.submitted
        self.submitted.clear()
        assert wait is not None
        self.waiting.settle(wait, reply)

    def park(self, *peers: Asker, seconds: float = 60, next_in: float = 0) -> None:
        """Lets peers wait, one behind the other."""
        next_at_us = self.clock.wall_us() + round(next_in * SECOND_US) if next_in else 0
        for peer in peers:
            self.next(peer, seconds=seconds)
            self.run(taken(next_at_us=next_at_us))

    def arrive(self, rows: int) -> None:
        """Says that jobs came which are due."""
        arrivals = {TABLE: Arrival(rows, self.clock.wall_us())}
        self.waiting.news.append(NO_NEWS._replace(arrivals=arrivals))
        self.waiting.go_on()

    @property
    def woken(self) -> list[str]:
        """The names of those who run again."""
        return [origin.name for origin, *_ in self.submitted if isinstance(origin, Asker)]


@pytest.fixture
def world() -> World:
    return World()


def peers(names: str) -> list[Asker]:
    return [Asker(name=name) for name in names]


# -- what is answered at once ---------------------------------------------------------------------


@pytest.mark.parametrize("reply", [taken(7, first_xid=5), REFUSED], ids=["jobs", "refused"])
@pytest.mark.parametrize("seconds", [0, 60])
def test_what_is_there_is_answered_at_once(world: World, reply: Reply, seconds: float) -> None:
    peer = Asker()
    world.next(peer, 9, seconds=seconds)
    world.run(reply)
    assert peer.answers == [(9, reply)]
    assert peer.sent == [reply]
    assert world.counters.parked_waits == 0


# -- waiting --------------------------------------------------------------------------------------


def test_jobs_wake_as_many_as_they_are_and_the_first_ones(world: World) -> None:
    a, b, c, d = peers("abcd")
    world.park(a, b, c, d)
    world.arrive(2)
    assert world.woken == ["a", "b"]
    world.run(taken(1, first_xid=1), taken(2, first_xid=2))
    assert world.woken == ["c"]  # there may be more, so one looks
    world.run()
    assert world.woken == []
    world.arrive(1)
    assert world.woken == ["c"]  # it is the first again
    assert [len(one.sent) for one in (a, b, c, d)] == [1, 1, 0, 0]


# -- dates and deadlines --------------------------------------------------------------------------


@pytest.mark.req("FJ-12")
def test_a_date_is_waited_for_with_one_timer_and_no_look_before(world: World) -> None:
    world.park(*peers("abc"), next_in=25)
    assert world.loop.waits() == [25]
    world.loop.pass_time(24.999)
    assert world.submitted == []
    world.loop.pass_time(0.001)
    assert world.woken == ["a"]
    assert world.loop.rings == 1


def test_a_clock_that_is_set_is_noticed_soon(world: World) -> None:
    world.park(Asker(name="a"), seconds=3600, next_in=3000)
    world.clock.jump(3000)
    world.loop.pass_time(limits.WALL_LOOK_SECONDS_MAX)
    assert world.woken == ["a"]


def test_when_its_time_is_over_it_looks_once_more_and_is_answered(world: World) -> None:
    peer = Asker()
    world.park(peer, seconds=10)
    world.loop.pass_time(9.999)
    assert world.submitted == []
    world.loop.pass_time(0.001)
    assert world.woken == [""]
    world.run(taken(next_at_us=5))
    assert peer.sent == [taken(next_at_us=5)]  # as it is now
    assert world.counters.parked_waits == 0
    world.arrive(1)
    assert world.submitted == []


# -- peers that are gone --------------------------------------------------------------------------


def test_jobs_that_were_taken_for_somebody_who_is_gone_are_given_back(world: World) -> None:
    gone = Asker()
    world.next(gone, 4, seconds=0)
    gone.close()
    world.waiting.drop(gone)
    world.come_back(taken(7, 8, 9, first_xid=100))  # it ran before the connection closed
    assert gone.forgotten == [4]
    assert gone.answers == []
    (command,) = world.given_back
    assert (command.table, list(command.xids)) == (TABLE, [100, 101, 102])
    assert not command.counts
    assert not command.buries


def test_what_is_done_already_is_not_given_back(world: World) -> None:
    gone = Asker()
    world.next(gone, 4, seconds=0)
    gone.close()
    world.come_back(taken(7))  # taken with `done`: there is no lease
    assert (gone.forgotten, world.given_back) == ([4], [])


def test_the_jobs_of_one_that_is_gone_are_for_the_next(world: World) -> None:
    gone, there = peers("ab")
    world.park(gone, there)
    world.arrive(1)
    ((*_, wait),) = world.submitted
    world.submitted.clear()
    gone.close()
    world.waiting.drop(gone)
    assert wait is not None
    world.waiting.forget(wait)  # the committer has not run it
    assert gone.forgotten == [1]
    assert world.woken == ["b"]


def test_a_peer_that_sends_no_more_waits_no_more(world: World) -> None:
    """So it is with a worker that was killed: the rest of its connection is still open."""
    dead, there = peers("ab")
    world.park(dead, there, next_in=25)
    world.waiting.end(dead)
    assert dead.sent == [taken(next_at_us=world.clock.wall_us() + 25 * SECOND_US)]
    world.arrive(1)
    assert world.woken == ["b"]


def test_jobs_for_a_peer_that_sends_no_more_since_it_was_woken_are_given_back(world: World) -> None:
    dead = Asker()
    world.park(dead)
    world.arrive(1)
    world.waiting.end(dead)
    assert dead.answers == []
    world.run(taken(7, first_xid=100))
    assert dead.sent == [taken()]
    (command,) = world.given_back
    assert list(command.xids) == [100]


def test_what_a_peer_asked_for_before_it_sent_no_more_is_answered(world: World) -> None:
    peer = Asker()
    world.next(peer)
    world.end(peer)
    world.run(taken(7, first_xid=100))
    assert peer.sent == [taken(7, first_xid=100)]
    world.next(peer)
    world.end(peer)
    world.run()
    assert peer.sent[1:] == [taken()]


# -- peers that take no replies -------------------------------------------------------------------


def test_a_peer_that_takes_no_replies_does_not_keep_jobs_from_others(world: World) -> None:
    slow, quick = peers("ab")
    world.park(slow, quick)
    slow.is_stalled = True
    world.arrive(1)
    world.run()
    assert world.woken == ["b"]
    world.run(taken(7, first_xid=5))
    assert quick.sent == [taken(7, first_xid=5)]
    world.waiting.release()
    assert world.submitted == []  # of another peer
    slow.is_stalled = False
    world.waiting.release()
    assert world.woken == ["a"]
    world.run()
    world.arrive(1)
    world.run(taken(8, first_xid=6))
    assert slow.sent == [taken(8, first_xid=6)]


# -- the end --------------------------------------------------------------------------------------


def test_a_stop_answers_all_who_wait(world: World) -> None:
    a, b, c = peers("abc")
    world.park(a, b, next_in=25)
    world.next(c)
    world.waiting.stop()
    nothing = taken(next_at_us=world.clock.wall_us() + 25 * SECOND_US)
    assert (a.sent, b.sent) == ([nothing], [nothing])
    world.run()
    assert c.sent == [taken()]
    assert world.loop.waits() == []
    assert world.counters.parked_waits == 0
