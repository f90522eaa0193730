"""What is sent again, how, and when."""

from __future__ import annotations

import pytest

from fjord import commands, limits
from fjord.client import calls
from fjord.client.calls import Client, Deadline, InFlight, Locks
from fjord.columns import Strings, repeat
from fjord.errors import Code, FjordError, RemoteProtocolError
from fjord.testing import SimClock
from tests.unit.client.job_samples import taken_of
from tests.unit.client.scripted import BUSY, NOW_US, TOKEN

KEYS = Strings.of([b"k"])
ADD = commands.Modify(table="t", key=b"k", change=commands.Change.ADD, timestamp_us=NOW_US)
IDENTITY = b"0123456789abcdef"
ADVANCE = commands.Advance(writer="w", expected=5, batch=7)
NEXT = commands.Next(table="t", count=5, wait_us=30_000_000)
READ = commands.Read(table="t", after=5, wait_us=30_000_000)


def set_of(*, overwrite: bool) -> commands.Set:
    return commands.Set(
        table="t",
        keys=KEYS,
        types=b"\1",
        values=KEYS,
        timestamps_us=repeat(NOW_US, 1),
        overwrite=overwrite,
    )


def truncate(size: int) -> commands.Modify:
    return commands.Modify(
        table="t",
        key=b"k",
        change=commands.Change.TRUNCATE,
        operand=size.to_bytes(8, "little", signed=True),
        timestamp_us=NOW_US,
    )


# By the names of their functions; the rest are NEVER, or say it of each command.
AS_IS = """ADVANCE AS_OF BLOCKS CLOSE_SNAPSHOT COMMIT COUNT_JOBS FIND GET_MANY LAG NEXT_MANY NOP
OPEN_SNAPSHOT PEEK RANGE READ REPLACE_BLOCKS REST SCAN SEAL SEEK SPAN STAGE STATS SUBSCRIBE
SUBSCRIBERS TABLES USE WRITER"""
NUMBERED = """APPEND BURY CANCEL CREATE_TABLE DISCARD DROP_TABLE ERASE EXTEND FAIL FINISH PUSH_MANY
RENAME_KEY RESCHEDULE REVIVE UNSUBSCRIBE"""


def test_a_command_says_how_it_may_be_sent_again() -> None:
    found = {
        retry: sorted(row.name for row in commands.FUNCTIONS.values() if row.retry is retry)
        for retry in (commands.Retry.AS_IS, commands.Retry.NUMBERED)
    }
    assert found == {commands.Retry.AS_IS: AS_IS.split(), commands.Retry.NUMBERED: NUMBERED.split()}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (set_of(overwrite=True), commands.Retry.AS_IS),
        (set_of(overwrite=False), commands.Retry.NUMBERED),
        (commands.Touch(table="t", keys=KEYS, extend=True), commands.Retry.AS_IS),
        (commands.Touch(table="t", keys=KEYS, worked_until_us=NOW_US), commands.Retry.NEVER),
        (commands.Delete(table="t", keys=KEYS, timestamp_us=NOW_US), commands.Retry.AS_IS),
        (ADD, commands.Retry.NUMBERED),
        (truncate(1000), commands.Retry.NUMBERED),
        (truncate(-1), commands.Retry.NUMBERED),
        (truncate(limits.ANSWER_KEPT_BYTES_MAX), commands.Retry.NEVER),
        (commands.Lock(table="t", keys=KEYS), commands.Retry.NEVER),
        (commands.Acknowledge(table="t", name="s", seq=5, epoch=0), commands.Retry.AS_IS),
        (
            commands.Acknowledge(table="t", name="s", seq=5, epoch=0, expected=0),
            commands.Retry.NUMBERED,
        ),
        (commands.Batch(commands=[ADD]), commands.Retry.NUMBERED),
        (commands.Batch(commands=[ADD, ADVANCE]), commands.Retry.AS_IS),
        (
            commands.Batch(commands=[commands.Lock(table="t", keys=KEYS), ADVANCE]),
            commands.Retry.NUMBERED,
        ),
    ],
)
def test_what_may_be_sent_again(command: commands.Command, expected: commands.Retry) -> None:
    request = InFlight(Client(IDENTITY), command)
    assert request.command is command
    assert request.can_repeat == (expected is not commands.Retry.NEVER)
    assert request.number == (expected is commands.Retry.NUMBERED)
    assert not request.number or type(command).row.flags & commands.Flag.NUMBER


def test_each_call_has_a_number_of_its_own() -> None:
    client = Client(IDENTITY)
    found = [
        ADD,
        set_of(overwrite=True),
        set_of(overwrite=False),
        commands.Batch(commands=[ADD, ADD]),
    ]
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


def test_locks_are_known_until_they_are_given_free_or_lost() -> None:
    locks = Locks()
    locks.note(commands.Lock(table="t", keys=Strings.of([b"a", b"b"])), TOKEN)
    locks.note(commands.Unlock(table="other", keys=Strings.of([b"a", b"b"])), TOKEN)
    locks.note(commands.Unlock(table="t", keys=Strings.of([b"a"])), TOKEN)
    assert locks
    locks.note(commands.Unlock(table="t", keys=Strings.of([b"b"])), TOKEN)
    assert not locks
    locks.note(commands.Lock(table="t", keys=KEYS), TOKEN)
    assert locks.lose()
    assert not locks.lose()


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


# -- commands that let the server wait ------------------------------------------------------------


def test_what_is_sent_again_waits_no_longer_than_its_caller() -> None:
    request = InFlight(Client(IDENTITY), NEXT)
    request.wait_at_most(40)
    assert request.command == NEXT
    request.wait_at_most(12.5)
    assert request.command == commands.Next(table="t", count=5, wait_us=12_500_000)
    request.wait_at_most(-1)
    assert request.command == commands.Next(table="t", count=5)
    assert NEXT.wait_us == 30_000_000
    read = InFlight(Client(IDENTITY), READ)
    read.wait_at_most(1)
    assert read.command == commands.Read(table="t", after=5, wait_us=1_000_000)
    for without in (ADD, commands.SealNow(table="t")):
        other = InFlight(Client(IDENTITY), without)
        other.wait_at_most(-1)
        assert other.command is without


def test_jobs_that_nobody_waits_for_are_given_back_uncounted() -> None:
    undoing = calls.undoing(NEXT, taken_of(b"a", b"b"))
    assert undoing == commands.Fail(table="t", xids=range(70, 72), counts=False)
    assert calls.undoing(NEXT, taken_of()) is None
    assert calls.undoing(NEXT, taken_of(b"a", first_xid=0)) is None
    assert calls.undoing(NEXT, BUSY) is None
    assert calls.undoing(ADD, TOKEN) is None
