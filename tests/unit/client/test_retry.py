"""What is sent again, how, and when."""

from __future__ import annotations

from itertools import islice

import pytest

from fjord import commands, limits
from fjord.client import calls
from fjord.client.calls import Client, Deadline, InFlight, Locks
from fjord.columns import Strings, repeat
from fjord.commands import (
    Batch,
    Command,
    Delete,
    Get,
    Lock,
    Modify,
    Next,
    Read,
    Rename,
    Retry,
    Set,
    Touch,
    Unlock,
)
from fjord.errors import Code, FjordError, RemoteProtocolError
from fjord.testing import SimClock
from tests.unit.client.job_samples import push_of, taken_of
from tests.unit.client.scripted import BUSY, NOW_US, TOKEN
from tests.unit.client.stream_samples import append_of

KEYS = Strings.of([b"k"])
ADD = Modify(table="t", key=b"k", change=commands.Change.ADD, timestamp_us=NOW_US)
IDENTITY = b"0123456789abcdef"
REPLACE = commands.ReplaceBlocks(
    table="t", names=["a", "b"], name="c", rows=1, size=1, min_us=1, max_us=1, crc=1
)
ADVANCE = commands.Advance(writer="w", expected=5, batch=7)
NEXT = Next(table="t", count=5, wait_us=30_000_000)
READ = Read(table="t", after=5, wait_us=30_000_000)


def set_of(*, overwrite: bool) -> Set:
    return Set(
        table="t",
        keys=KEYS,
        types=b"\1",
        values=KEYS,
        timestamps_us=repeat(NOW_US, 1),
        overwrite=overwrite,
    )


def truncate(size: int) -> Modify:
    return Modify(
        table="t",
        key=b"k",
        change=commands.Change.TRUNCATE,
        operand=size.to_bytes(8, "little", signed=True),
        timestamp_us=NOW_US,
    )


SAMPLES: list[tuple[Command, Retry]] = [
    (commands.Nop(), Retry.AS_IS),
    (set_of(overwrite=True), Retry.AS_IS),
    (set_of(overwrite=False), Retry.NUMBERED),
    (Get(table="t", keys=KEYS), Retry.AS_IS),
    (Touch(table="t", keys=KEYS, extend=True), Retry.AS_IS),
    (Touch(table="t", keys=KEYS, worked_until_us=NOW_US), Retry.NEVER),
    (Delete(table="t", keys=KEYS, timestamp_us=NOW_US), Retry.AS_IS),
    (ADD, Retry.NUMBERED),
    (truncate(1000), Retry.NUMBERED),
    (truncate(-1), Retry.NUMBERED),
    (truncate(limits.ANSWER_KEPT_BYTES_MAX), Retry.NEVER),
    (Rename(table="t", key=b"k", to=b"l", timestamp_us=NOW_US), Retry.NUMBERED),
    (Lock(table="t", keys=KEYS), Retry.NEVER),
    (Unlock(table="t", keys=KEYS), Retry.NEVER),
    (commands.Range(table="t"), Retry.AS_IS),
    (commands.Listen(table="t", keys=KEYS), Retry.NEVER),
    (commands.Unlisten(identifier=1), Retry.NEVER),
    (push_of(b"k"), Retry.NUMBERED),
    (NEXT, Retry.AS_IS),
    (commands.Finish(table="t", xids=[1]), Retry.NUMBERED),
    (commands.Extend(table="t", xids=[1]), Retry.NUMBERED),
    (commands.Fail(table="t", xids=[1]), Retry.NUMBERED),
    (commands.Cancel(table="t", keys=KEYS), Retry.NUMBERED),
    (commands.Reschedule(table="t", keys=KEYS), Retry.NUMBERED),
    (commands.Bury(table="t", keys=KEYS), Retry.NUMBERED),
    (commands.Revive(table="t", rows=[1]), Retry.NUMBERED),
    (commands.Discard(table="t", rows=[1]), Retry.NUMBERED),
    (commands.Peek(table="t"), Retry.AS_IS),
    (commands.Find(table="t", keys=KEYS), Retry.AS_IS),
    (commands.CountJobs(table="t"), Retry.AS_IS),
    (commands.ListenJobs(table="t"), Retry.NEVER),
    (append_of(b"v"), Retry.NUMBERED),
    (commands.Erase(table="t", keys=KEYS), Retry.NUMBERED),
    (READ, Retry.AS_IS),
    (commands.Subscribe(table="t", name="s", start=1), Retry.AS_IS),
    (commands.Acknowledge(table="t", name="s", seq=5, epoch=0), Retry.AS_IS),
    (commands.Acknowledge(table="t", name="s", seq=5, epoch=0, expected=0), Retry.NUMBERED),
    (commands.Seek(table="t", name="s", start=1), Retry.AS_IS),
    (commands.Rest(table="t", name="s", asleep=True), Retry.AS_IS),
    (commands.Unsubscribe(table="t", name="s"), Retry.NUMBERED),
    (commands.ListSubscribers(table="t"), Retry.AS_IS),
    (commands.Lag(table="t", name="s"), Retry.AS_IS),
    (commands.OpenSnapshot(), Retry.AS_IS),
    (commands.CloseSnapshot(snapshot=5), Retry.AS_IS),
    (commands.AsOf(snapshot=5, commands=[READ]), Retry.AS_IS),
    (commands.ListBlocks(table="t"), Retry.AS_IS),
    (commands.SealNow(), Retry.AS_IS),
    (commands.Span(table="t", after=0), Retry.AS_IS),
    (commands.Stage(rows=append_of(b"v")), Retry.AS_IS),
    (commands.CommitStages(table="t", writer="w", batch=0, stages=[5]), Retry.AS_IS),
    (commands.AskWriter(table="t", writer="w"), Retry.AS_IS),
    (ADVANCE, Retry.AS_IS),
    (REPLACE, Retry.AS_IS),
    (commands.CreateTable(name="t", kind=1), Retry.NUMBERED),
    (commands.DropTable(name="t"), Retry.NUMBERED),
    (commands.ListTables(), Retry.AS_IS),
    (commands.Stats(), Retry.AS_IS),
    (commands.Hello(client=IDENTITY), Retry.NEVER),
    (Batch(commands=[ADD]), Retry.NUMBERED),
    (Batch(commands=[ADD, ADVANCE]), Retry.AS_IS),
    (Batch(commands=[Lock(table="t", keys=KEYS), ADVANCE]), Retry.NUMBERED),
    (commands.Scan(table="t", start_seq=1, end_seq=0), Retry.AS_IS),
]


@pytest.mark.parametrize(("command", "expected"), SAMPLES)
def test_what_may_be_sent_again(command: Command, expected: Retry) -> None:
    request = InFlight(Client(IDENTITY), command)
    assert request.command is command
    assert request.can_repeat == (expected is not Retry.NEVER)
    assert request.number == (expected is Retry.NUMBERED)


def test_every_command_has_a_rule() -> None:
    """But for USE, which no client sends: it is for the functions of one key."""
    known = {row.record for row in commands.FUNCTIONS.values()} - {commands.Use}
    assert {type(command) for command, _ in SAMPLES} == known


@pytest.mark.parametrize(("command", "expected"), SAMPLES)
def test_whatever_is_numbered_has_room_for_a_number(command: Command, expected: Retry) -> None:
    if expected is Retry.NUMBERED:
        assert type(command).row.flags & commands.Flag.NUMBER


def test_each_call_has_a_number_of_its_own() -> None:
    client = Client(IDENTITY)
    found = [ADD, set_of(overwrite=True), set_of(overwrite=False), Batch(commands=[ADD, ADD])]
    assert [InFlight(client, command).number for command in found] == [1, 0, 2, 3]


def test_after_a_busy_server_a_call_gets_a_new_number_unless_it_may_have_been_applied() -> None:
    client = Client(IDENTITY)
    request = InFlight(client, ADD)
    request.was_busy()
    assert request.number == 2
    request.is_unsure = True
    request.was_busy()
    assert request.number == 2
    other = InFlight(client, set_of(overwrite=True))
    other.was_busy()
    assert other.number == 0


def test_a_batch_that_says_where_its_writer_is_never_gets_a_number() -> None:
    client = Client(IDENTITY)
    request = InFlight(client, Batch(commands=[ADD, ADVANCE]))
    assert request.number == 0
    request.was_busy()
    assert request.number == 0


def test_pauses_double_up_to_a_bound() -> None:
    found = list(islice(calls.pauses(), 8))
    assert found[:3] == [0.05, 0.1, 0.2]
    assert found[-1] == limits.RECONNECT_SECONDS_MAX
    assert max(found) == limits.RECONNECT_SECONDS_MAX


def test_only_the_second_try_comes_at_once() -> None:
    request = InFlight(Client(IDENTITY), ADD)
    assert [request.pause_seconds(at_once=True) for _ in range(3)] == [0.0, 0.05, 0.1]
    assert InFlight(Client(IDENTITY), ADD).pause_seconds() == 0.05


def test_locks_are_known_until_they_are_given_free_or_lost() -> None:
    locks = Locks()
    locks.note(Lock(table="t", keys=Strings.of([b"a", b"b"])), TOKEN)
    locks.note(Unlock(table="other", keys=Strings.of([b"a", b"b"])), TOKEN)
    locks.note(Unlock(table="t", keys=Strings.of([b"a"])), TOKEN)
    assert locks
    locks.note(Unlock(table="t", keys=Strings.of([b"b"])), TOKEN)
    assert not locks
    locks.note(Lock(table="t", keys=KEYS), TOKEN)
    assert locks.lose()
    assert not locks.lose()


def test_a_lock_that_was_refused_is_not_held() -> None:
    locks = Locks()
    locks.note(Lock(table="t", keys=KEYS), commands.Refusal(code=Code.LOCKED, text=""))
    assert not locks


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(), False),
        (BlockingIOError(), False),
        (RemoteProtocolError(Code.IDLE_TIMEOUT), False),
        (RemoteProtocolError(Code.READ_TIMEOUT), False),
        (RemoteProtocolError(Code.BUSY), False),
        (RemoteProtocolError(Code.BAD_MAGIC), True),
        (RemoteProtocolError(Code.UNKNOWN_FUNCTION), True),
        (FjordError(), True),
    ],
)
def test_some_errors_would_come_again(error: Exception, expected: bool) -> None:
    assert calls.is_final(error) is expected


def test_only_a_server_says_welcome() -> None:
    calls.check_welcome(commands.Welcome(client=IDENTITY, master=IDENTITY, version="1"))
    with pytest.raises(RemoteProtocolError, match="later") as caught:
        calls.check_welcome(BUSY)
    assert caught.value.code is Code.BUSY
    with pytest.raises(RemoteProtocolError, match="HELLO"):
        calls.check_welcome(TOKEN)


def test_a_deadline_comes_nearer() -> None:
    clock = SimClock(NOW_US)
    deadline = Deadline(clock, 1.5)
    assert deadline.left_seconds() == 1.5
    clock.advance(1.0)
    assert deadline.left == 1.5  # when the clock was last read
    assert deadline.left_seconds() == deadline.left == 0.5
    clock.advance(1.0)
    assert deadline.left_seconds() == -0.5


def test_errors_say_what_may_have_happened_and_what_to_do() -> None:
    assert "may or may not" in str(calls.broken("fjord://x", "cut"))
    assert "its locks are lost" in str(calls.broken("x", "cut", locks_lost=True))
    assert "within 1.5 s" in str(calls.too_late("fjord://x", 1.5, "cut"))
    assert "fjord serve" in str(calls.nobody("fjord://x", "cut"))
    assert "listen again" in str(calls.deaf("fjord://x", "cut"))


# -- commands that let the server wait ------------------------------------------------------------


def test_a_wait_comes_on_top_of_the_time_of_a_call() -> None:
    assert NEXT.wait_us == READ.wait_us == 30_000_000
    assert Read(table="t", after=5).wait_us == 0
    assert commands.SealNow().wait_us == 3_600_000_000
    assert Next(table="t").wait_us == 0
    assert ADD.wait_us == 0


def test_what_is_sent_again_waits_no_longer_than_its_caller() -> None:
    request = InFlight(Client(IDENTITY), NEXT)
    request.wait_at_most(40)
    assert request.command == NEXT
    request.wait_at_most(12.5)
    assert request.command == Next(table="t", count=5, wait_us=12_500_000)
    request.wait_at_most(-1)
    assert request.command == Next(table="t", count=5)
    assert NEXT.wait_us == 30_000_000
    read = InFlight(Client(IDENTITY), READ)
    read.wait_at_most(1)
    assert read.command == Read(table="t", after=5, wait_us=1_000_000)
    other = InFlight(Client(IDENTITY), ADD)
    other.wait_at_most(-1)
    assert other.command is ADD


def test_jobs_that_nobody_waits_for_are_given_back_uncounted() -> None:
    undoing = calls.undoing(NEXT, taken_of(b"a", b"b"))
    assert undoing == commands.Fail(table="t", xids=range(70, 72), counts=False)
    assert calls.undoing(NEXT, taken_of()) is None
    assert calls.undoing(NEXT, taken_of(b"a", first_xid=0)) is None
    assert calls.undoing(NEXT, BUSY) is None
    assert calls.undoing(ADD, TOKEN) is None
