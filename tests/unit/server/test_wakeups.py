"""Wake-ups of the daemon: what is told, when, how often, and what becomes of errors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fjord.columns import Strings
from fjord.commands import Delete, Fail
from fjord.engine import Engine
from fjord.server.counters import Counters
from fjord.server.wakeups import REST_US, SHARE, Sender, Wakeups
from fjord.testing import SimClock
from fjord.wire import wakeups
from fjord.wire.wakeups import Wakeup, What
from tests.unit.engine.job_records import TABLE
from tests.unit.engine.shore import append_command
from tests.unit.engine.world import open_at, set_command
from tests.unit.server.job_world import SECOND_US, World, xids
from tests.unit.server.sim_loop import SimLoop

REST = REST_US / SECOND_US
ARRIVED, DUE, CHANGED = (TABLE, What.ARRIVED), (TABLE, What.DUE), What.CHANGED


class Recorder(Sender):
    """Sends nothing, and keeps it; whatever is told must be durable."""

    def __init__(self, engine: Engine | None = None) -> None:
        super().__init__((), 1, Counters())
        self._engine = engine
        self.sent: list[tuple[str, What]] = []
        self.on_send: Callable[[], None] = lambda: None

    def send(self, table: str, what: What) -> None:
        if self._engine is not None:
            assert self._engine.durable_seq == self._engine.applied_seq
        self.sent.append((table, what))
        self.on_send()

    def take(self) -> list[tuple[str, What]]:
        sent, self.sent = self.sent, []
        return sent


# -- how often ------------------------------------------------------------------------------------


class Pace:
    """Wake-ups in virtual time, without an engine."""

    def __init__(self) -> None:
        self.loop = SimLoop(SimClock())
        self.sender = Recorder()
        self.wakeups = Wakeups(self.sender, self.loop.as_loop, self.loop.clock)

    def tell(self, *tables: str) -> list[str]:
        for table in tables:
            self.wakeups.note(table, CHANGED)
        self.wakeups.tell()
        return [table for table, _ in self.sender.take()]

    def pass_time(self, seconds: float) -> list[str]:
        self.loop.pass_time(seconds)
        return [table for table, _ in self.sender.take()]


@pytest.fixture
def pace() -> Pace:
    return Pace()


def test_a_table_rests_after_each_and_what_came_meanwhile_is_sent_once(pace: Pace) -> None:
    assert pace.tell("a", "b") == ["a", "b"]
    assert [pace.tell("a") for _ in range(5)] == [[]] * 5
    assert pace.pass_time(REST - 0.001) == []
    assert pace.pass_time(0.001) == ["a"]
    assert pace.tell("a") == []
    assert pace.pass_time(REST) == ["a"]


def test_nothing_is_known_of_tables_that_have_rested(pace: Pace) -> None:
    pace.tell("a", "b")
    pace.pass_time(REST)
    assert pace.wakeups._resting == pace.wakeups._held == {}
    assert pace.loop.waits() == []  # and nothing rings
    assert pace.tell("a") == ["a"]


@pytest.mark.parametrize("took_us", [10, 600, 5_000])
def test_sending_takes_a_share_of_the_time_and_no_table_is_forgotten(
    pace: Pace, took_us: int
) -> None:
    clock = pace.loop.clock
    pace.sender.on_send = lambda: clock.advance(took_us / SECOND_US)
    names = [f"t{number}" for number in range(1000)]
    begun_us = clock.monotonic_us()
    sent = pace.tell(*names)
    while len(sent) < len(names):
        sent += pace.pass_time(REST)
        spent_us, passed_us = len(sent) * took_us, clock.monotonic_us() - begun_us
        assert SHARE * (spent_us - took_us) <= passed_us + REST_US
    assert sorted(sent) == sorted(names)
    assert pace.pass_time(1) == []
    assert pace.wakeups._resting == {}


# -- what is told ---------------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_at(tmp_path, SimClock())
    yield engine
    engine.abandon()


@pytest.fixture
def sender(engine: Engine) -> Recorder:
    return Recorder(engine)


@pytest.fixture
def world(engine: Engine, sender: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    assert isinstance(engine.clock, SimClock)
    world = World(engine, engine.clock, monkeypatch, sender)
    yield world
    world.committer.close()
    assert world.failures == []


@pytest.mark.req("SJ-29")
def test_jobs_that_are_due_are_told_of_at_once_and_others_at_their_date(
    world: World, sender: Recorder
) -> None:
    world.push(b"now")
    assert sender.take() == [ARRIVED]
    world.push(b"later", delay=5)
    world.loop.pass_time(4.999)
    assert sender.take() == []
    world.loop.pass_time(0.001)
    assert sender.take() == [DUE]
    world.loop.pass_time(3600)
    assert sender.take() == []


def test_jobs_that_are_given_back_or_time_out_are_told_of(world: World, sender: Recorder) -> None:
    world.push(b"key")
    worker = world.client()
    world.next(worker, wait=0, lease=10)
    world.settle(worker)
    world.loop.pass_time(1)
    sender.take()
    world.do(Fail(table=TABLE, xids=xids(worker.replies[0])))
    assert sender.take() == [ARRIVED]
    world.next(world.client(), wait=0, lease=10)
    world.loop.pass_time(9)
    assert sender.take() == []
    world.loop.pass_time(2)
    world.loop.until(lambda: bool(sender.sent))
    assert sender.take() == [ARRIVED]


def test_jobs_and_dates_from_before_the_start_are_told_of(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.push(b"key", delay=5)
    world.committer.close()
    later = Recorder(engine)
    again = World(engine, world.clock, monkeypatch, later)  # as after a restart
    again.loop.pass_time(5)
    assert later.sent == [ARRIVED, DUE]
    again.committer.close()


def test_messages_and_values_are_told_of(world: World, sender: Recorder) -> None:
    stamp_us = world.clock.wall_us()
    world.do(append_command("events", [(b"key", b"value")]))
    assert sender.take() == [("events", CHANGED)]
    world.do(set_command({b"key": b"value"}, timestamp_us=stamp_us, table="plain"))
    assert sender.take() == [("plain", CHANGED)]
    world.loop.pass_time(1)
    world.do(Delete(table="plain", keys=Strings.of([b"key"]), timestamp_us=stamp_us + 1))
    assert sender.take() == [("plain", CHANGED)]


# -- sending --------------------------------------------------------------------------------------


def heard(opened: socket.socket) -> Wakeup | None:
    opened.settimeout(10)
    return wakeups.decode(opened.recv(600))


def bound(host: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, 0))
    return opened


def test_each_address_gets_the_same_datagram() -> None:
    counters = Counters()
    with bound("127.0.0.1") as one, bound(wakeups.EVERYBODY) as other:
        sender = Sender([one.getsockname(), other.getsockname()], 7, counters)
        for number, what in enumerate((What.ARRIVED, What.DUE), start=1):
            sender.send("t", what)
            assert heard(one) == heard(other) == Wakeup(what, "t", 7, number)
        sender.close()
    assert (counters.wakeups, counters.wakeups_lost) == (4, 0)


def test_what_cannot_be_sent_is_counted_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    with bound("127.0.0.1") as one:
        sender = Sender([("127.0.0.1", 0), one.getsockname()], 7, counters)
        sender.send("t", What.DUE)
        assert heard(one) is not None
        sender.close()
    assert (counters.wakeups, counters.wakeups_lost) == (1, 1)
    (record,) = caplog.records
    assert record.getMessage() == "a wake-up could not be sent"
