"""Every kind of bad message about jobs: refused with its code, and nothing comes of it.

After each of them the jobs of the table are what they were, and other connections are served.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fjord
from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    FUNCTIONS,
    Batch,
    Bury,
    Cancel,
    Command,
    CountJobs,
    CreateTable,
    Discard,
    Extend,
    Fail,
    Find,
    Finish,
    ListenJobs,
    Next,
    Peek,
    Push,
    Reschedule,
    Revive,
    Use,
)
from fjord.wire import Function
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import (
    BOOLEAN,
    DATA,
    KEY_16,
    PERSIST,
    STRING,
    TIMEOUT,
    Raw,
    body,
    head,
    key,
    nop,
    now_us,
)
from tests.unit.wire.seed_client import SeedReply
from tests.unit.wire.streams import sent

TABLE = "jobs"
SETTINGS = 2  # the kind of a jobs table
SECOND_US = 1_000_000
DAY_US = 24 * 3600 * SECOND_US
MANY = [1] * (limits.BATCH_ROWS_MAX + 1)
LONG_KEY = b"k" * (limits.JOB_KEY_BYTES_MAX + 1)
LONG_DOMAIN = b"d" * (limits.DOMAIN_BYTES_MAX + 1)
LONG_REASON = b"r" * (limits.REASON_BYTES_MAX + 1)
XIDS = [7]


@dataclass(frozen=True, slots=True)
class World:
    """A daemon with a job of each state, and who looks after them."""

    daemon: Daemon
    db: fjord.Database

    def state(self) -> object:
        """Returns all that a bad message might have changed."""
        jobs = self.db.jobs(TABLE)
        # The end of a lease is told by the wall clock, and differs by a little each time.
        leases = [
            (job.xid, job.timeouts, job.lease_until - datetime.now(UTC) > timedelta(hours=12))
            for job in jobs.taken()
            if job.lease_until is not None
        ]
        return jobs.count(), jobs.get("canary"), leases, list(jobs.dead())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("bad") / "data"
    with Daemon(path) as daemon, fjord.connect(daemon.url) as db:
        db.kv("settings").set("key", "value")
        jobs = db.jobs(TABLE)
        jobs.push_many(keys=["dead", "taken"])
        dead, _ = jobs.next(count=2, lease=DAY_US / SECOND_US)
        dead.fail(bury=True, reason="by hand")
        jobs.push("canary", b"alive", delay=3600)
        yield World(daemon, db)


@pytest.fixture
def bad(world: World) -> Iterator[Raw]:
    """The connection that sends something bad; afterwards all is well for everybody else."""
    before = world.state()
    with Raw(world.daemon.port) as other, Raw(world.daemon.port) as one:
        yield one
        assert world.state() == before
        assert other.code(nop()) == ""
    served = world.db.jobs("served")
    served.push("job")
    (job,) = served.next()
    job.done()


BATCH, CANCEL = Batch.row.number, Cancel.row.number


def push(*keys: bytes, **columns: Any) -> bytes:
    """A push that is good, but for the columns that are given."""
    count = len(keys)
    given: dict[str, Any] = {
        "table": TABLE,
        "domains": Strings.of([b""] * count),
        "types": bytes([STRING]) * count,
        "values": Strings.of([b"dead"] * count),
        "priorities": bytes(count),
        "process_at_us": [0] * count,
        "expires_at_us": [0] * count,
        "timestamps_us": [now_us()] * count,
    }
    return sent(Push(keys=Strings.of(keys), **given | columns))


def strings(*rows: bytes) -> Strings:
    return Strings.of(rows)


def inside(function: int, data: bytes) -> bytes:
    """A batch of one command, which the client would not send."""
    padded = data + bytes(-len(data) % 8)
    inner = struct.pack(">HHIQ", function, 0, len(data), now_us()) + padded
    good = sent(Batch(commands=[Cancel(table=TABLE, keys=strings(b"none"))]))
    start = good.index(struct.pack(">H", CANCEL), 22)
    return body(BATCH, good[22:start] + inner)


def test_the_messages_below_would_be_good_but_for_one_thing(world: World) -> None:
    """Else a row might be refused for another reason than the one it is about."""
    with Raw(world.daemon.port) as raw:
        assert raw.code(sent(CreateTable(name="good", kind=SETTINGS))) == ""
        later = now_us() + DAY_US
        good: list[bytes] = [
            push(b"k", b"l", table="good"),
            push(b"m", table="good", process_at_us=[later], expires_at_us=[later + 1]),
            push(b"n", table="good", process_at_us=[DAY_US], relative=True),
            *map(sent, everything("good")),
            inside(CANCEL, body_data(Cancel(table="good", keys=strings(b"k")))),
        ]
        assert [raw.code(message) for message in good] == [""] * len(good)


def everything(table: str) -> list[Command]:
    """One good command of each function."""
    return [
        Next(table=table, count=1, lease_us=SECOND_US),
        Finish(table=table, xids=XIDS),
        Extend(table=table, xids=XIDS, lease_us=SECOND_US),
        Fail(table=table, xids=XIDS, delay_us=SECOND_US, reason=b"r"),
        Cancel(table=table, keys=strings(b"k")),
        Reschedule(table=table, keys=strings(b"l"), priority=3, process_at_us=now_us() + DAY_US),
        Bury(table=table, keys=strings(b"k"), reason=b"r"),
        Revive(table=table, rows=[1], delay_us=SECOND_US),
        Discard(table=table, rows=[1]),
        Peek(table=table, count=1),
        Find(table=table, keys=strings(b"l")),
        CountJobs(table=table),
        ListenJobs(table=table),
    ]


def body_data(command: Command) -> bytes:
    return sent(command)[22:]


REFUSED: dict[str, tuple[bytes, str]] = {
    # PUSH_MANY
    "a push of nothing": (push(), "BAD_BATCH"),
    "a push without a key": (push(b""), "EMPTY_KEY"),
    "a push of a long key": (push(LONG_KEY), "KEY_TOO_LONG"),
    "a push of a long domain": (push(b"k", domains=strings(LONG_DOMAIN)), "BAD_DOMAIN"),
    "a push of type 6": (push(b"k", types=b"\6"), "BAD_TYPE"),
    "a push of a void with data": (push(b"k", types=b"\0"), "BAD_TYPE"),
    "a push of boolean 2": (
        push(b"k", types=bytes([BOOLEAN]), values=strings(b"\2")),
        "BAD_VALUE",
    ),
    "a push of no UTF-8": (push(b"k", values=strings(b"\xff")), "BAD_VALUE"),
    "a push of a large value": (
        push(b"k", values=strings(bytes(limits.VALUE_BYTES_MAX + 1))),
        "VALUE_TOO_LARGE",
    ),
    "a push without a date": (push(b"k", timestamps_us=[0]), "BAD_TIMESTAMP"),
    "a push of tomorrow": (push(b"k", timestamps_us=[now_us() + DAY_US]), "BAD_TIMESTAMP"),
    "a push in milliseconds": (push(b"k", timestamps_us=[now_us() // 1000]), "BAD_TIMESTAMP"),
    "a push of 2^64-1": (push(b"k", timestamps_us=[2**64 - 1]), "BAD_TIMESTAMP"),
    "an expiry in the past": (push(b"k", expires_at_us=[now_us() - DAY_US]), "BAD_TIMEOUT"),
    "an expiry before the date": (
        push(b"k", process_at_us=[now_us() + DAY_US], expires_at_us=[now_us() + DAY_US // 2]),
        "BAD_TIMEOUT",
    ),
    "a date far ahead": (push(b"k", process_at_us=[now_us() + 367 * DAY_US]), "BAD_TIMEOUT"),
    "a date of 2^64-1": (push(b"k", process_at_us=[2**64 - 1]), "BAD_TIMEOUT"),
    "a delay far ahead": (
        push(b"k", process_at_us=[367 * DAY_US], relative=True),
        "BAD_TIMEOUT",
    ),
    "a delay of 2^64-1": (push(b"k", process_at_us=[2**64 - 1], relative=True), "BAD_TIMEOUT"),
    "a good job and a bad one": (push(b"canary", b""), "EMPTY_KEY"),
    "a good job and one of type 6": (push(b"canary", b"k", types=b"\2\6"), "BAD_TYPE"),
    "too many jobs": (push(*[b"k"] * len(MANY)), "BAD_BATCH"),
    "a push to another kind of table": (push(b"k", table="settings"), "WRONG_KIND"),
    # NEXT_MANY
    "a count of 10,001": (sent(Next(table=TABLE, count=10_001)), "BAD_COUNT"),
    "a lease of 999 us": (sent(Next(table=TABLE, lease_us=999)), "BAD_TIMEOUT"),
    "a lease of 31 days": (sent(Next(table=TABLE, lease_us=31 * DAY_US)), "BAD_TIMEOUT"),
    "a wait of more than an hour": (
        sent(Next(table=TABLE, wait_us=3601 * SECOND_US)),
        "BAD_TIMEOUT",
    ),
    "a domain without fairness": (sent(Next(table=TABLE, domain=b"d")), "BAD_DOMAIN"),
    "a long domain": (sent(Next(table=TABLE, domain=LONG_DOMAIN)), "BAD_DOMAIN"),
    "next of another kind": (sent(Next(table="settings")), "WRONG_KIND"),
    "next inside of a batch": (
        inside(Next.row.number, body_data(Next(table=TABLE))),
        "BAD_BATCH",
    ),
    "listening inside of a batch": (
        inside(ListenJobs.row.number, body_data(ListenJobs(table=TABLE))),
        "BAD_BATCH",
    ),
    # FINISH, EXTEND, FAIL
    "nothing to finish": (sent(Finish(table=TABLE, xids=[])), "BAD_BATCH"),
    "too much to finish": (sent(Finish(table=TABLE, xids=MANY)), "BAD_BATCH"),
    "finish of another kind": (sent(Finish(table="settings", xids=XIDS)), "WRONG_KIND"),
    "nothing to extend": (sent(Extend(table=TABLE, xids=[])), "BAD_BATCH"),
    "too much to extend": (sent(Extend(table=TABLE, xids=MANY)), "BAD_BATCH"),
    "extending for 999 us": (sent(Extend(table=TABLE, xids=XIDS, lease_us=999)), "BAD_TIMEOUT"),
    "extending for 31 days": (
        sent(Extend(table=TABLE, xids=XIDS, lease_us=31 * DAY_US)),
        "BAD_TIMEOUT",
    ),
    "extending another kind": (sent(Extend(table="settings", xids=XIDS)), "WRONG_KIND"),
    "nothing to fail": (sent(Fail(table=TABLE, xids=[])), "BAD_BATCH"),
    "too much to fail": (sent(Fail(table=TABLE, xids=MANY)), "BAD_BATCH"),
    "failing for 367 days": (
        sent(Fail(table=TABLE, xids=XIDS, delay_us=367 * DAY_US)),
        "BAD_TIMEOUT",
    ),
    "failing for a long reason": (
        sent(Fail(table=TABLE, xids=XIDS, reason=LONG_REASON)),
        "BAD_VALUE",
    ),
    "failing for no UTF-8": (sent(Fail(table=TABLE, xids=XIDS, reason=b"\xff")), "BAD_VALUE"),
    "failing another kind": (sent(Fail(table="settings", xids=XIDS)), "WRONG_KIND"),
    # by key
    "nothing to cancel": (sent(Cancel(table=TABLE, keys=strings())), "BAD_BATCH"),
    "cancelling no key": (sent(Cancel(table=TABLE, keys=strings(b"canary", b""))), "EMPTY_KEY"),
    "cancelling a long key": (
        sent(Cancel(table=TABLE, keys=strings(b"canary", LONG_KEY))),
        "KEY_TOO_LONG",
    ),
    "cancelling another kind": (sent(Cancel(table="settings", keys=strings(b"key"))), "WRONG_KIND"),
    "nothing to reschedule": (
        sent(Reschedule(table=TABLE, keys=strings(), priority=1)),
        "BAD_BATCH",
    ),
    "rescheduling far ahead": (
        sent(
            Reschedule(table=TABLE, keys=strings(b"canary"), process_at_us=now_us() + 367 * DAY_US)
        ),
        "BAD_TIMEOUT",
    ),
    "rescheduling by 367 days": (
        sent(
            Reschedule(
                table=TABLE, keys=strings(b"canary"), process_at_us=367 * DAY_US, relative=True
            )
        ),
        "BAD_TIMEOUT",
    ),
    "rescheduling a long key": (
        sent(Reschedule(table=TABLE, keys=strings(b"canary", LONG_KEY), priority=1)),
        "KEY_TOO_LONG",
    ),
    "rescheduling another kind": (
        sent(Reschedule(table="settings", keys=strings(b"key"), priority=1)),
        "WRONG_KIND",
    ),
    "nothing to bury": (sent(Bury(table=TABLE, keys=strings())), "BAD_BATCH"),
    "burying for a long reason": (
        sent(Bury(table=TABLE, keys=strings(b"canary"), reason=LONG_REASON)),
        "BAD_VALUE",
    ),
    "burying another kind": (sent(Bury(table="settings", keys=strings(b"key"))), "WRONG_KIND"),
    "nothing to find": (sent(Find(table=TABLE, keys=strings())), "BAD_BATCH"),
    "finding a long key": (sent(Find(table=TABLE, keys=strings(LONG_KEY))), "KEY_TOO_LONG"),
    "finding in another kind": (sent(Find(table="settings", keys=strings(b"key"))), "WRONG_KIND"),
    # by row
    "nothing to revive": (sent(Revive(table=TABLE, rows=[])), "BAD_BATCH"),
    "too much to revive": (sent(Revive(table=TABLE, rows=MANY)), "BAD_BATCH"),
    "reviving for 367 days": (
        sent(Revive(table=TABLE, rows=[1], delay_us=367 * DAY_US)),
        "BAD_TIMEOUT",
    ),
    "reviving another kind": (sent(Revive(table="settings", rows=[1])), "WRONG_KIND"),
    "nothing to discard": (sent(Discard(table=TABLE, rows=[])), "BAD_BATCH"),
    "discarding another kind": (sent(Discard(table="settings", rows=[1])), "WRONG_KIND"),
    # looking
    "a page of 1,001": (sent(Peek(table=TABLE, count=1_001)), "BAD_COUNT"),
    "a page of no state": (sent(Peek(table=TABLE, state=0)), "BAD_VALUE"),
    "a page of state 4": (sent(Peek(table=TABLE, state=4)), "BAD_VALUE"),
    "a page that begins nowhere": (sent(Peek(table=TABLE, start=bytes(1_000))), "BAD_CURSOR"),
    "a page of a domain without fairness": (sent(Peek(table=TABLE, domain=b"d")), "BAD_DOMAIN"),
    "a page of another kind": (sent(Peek(table="settings")), "WRONG_KIND"),
    "counting a domain without fairness": (
        sent(CountJobs(table=TABLE, domain=b"d")),
        "BAD_DOMAIN",
    ),
    "counting another kind": (sent(CountJobs(table="settings")), "WRONG_KIND"),
    # declarations
    "settings that are no JSON": (
        sent(CreateTable(name="made", kind=SETTINGS, settings=b"{")),
        "BAD_SETTINGS",
    ),
    "settings that nobody knows": (
        sent(CreateTable(name="made", kind=SETTINGS, settings=b'{"mrege":true}')),
        "BAD_SETTINGS",
    ),
    "settings that cannot be meant": (
        sent(CreateTable(name="made", kind=SETTINGS, settings=b'{"lease_us":0}')),
        "BAD_SETTINGS",
    ),
    "settings of a million lists": (
        sent(CreateTable(name="made", kind=SETTINGS, settings=b"[" * 4_000)),
        "BAD_SETTINGS",
    ),
    "other settings": (
        sent(CreateTable(name=TABLE, kind=SETTINGS, settings=b'{"merge":false}')),
        "EXISTS",
    ),
    # the functions of the seed, on the table that was chosen
    "DONE without an xid": (head(Function.DONE) + key(b"abc"), "BAD_VALUE"),
    "DONE of an xid that was never given": (
        head(Function.DONE) + key(struct.pack(">Q", 2**63) + b"canary"),
        "STALE_XID",
    ),
    "TOUCH of an xid that was never given": (
        head(Function.TOUCH) + key(struct.pack(">Q", 1) + b"canary"),
        "STALE_XID",
    ),
    "TOUCH until yesterday": (
        head(Function.TOUCH, TIMEOUT)
        + struct.pack(">Q", now_us() - DAY_US)
        + key(struct.pack(">Q", 1) + b"canary"),
        "BAD_TIMEOUT",
    ),
    "NEXT until yesterday": (
        head(Function.NEXT, TIMEOUT) + struct.pack(">Q", now_us() - DAY_US) + key(b""),
        "BAD_TIMEOUT",
    ),
    "NEXT of a domain without fairness": (head(Function.NEXT) + key(b"d"), "BAD_DOMAIN"),
    "NEXT of a long domain": (
        head(Function.NEXT, KEY_16) + struct.pack(">H", 256) + bytes(256),
        "BAD_DOMAIN",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_keeps_its_connection_and_changes_nothing(bad: Raw, what: str) -> None:
    message, code = REFUSED[what]
    assert bad.code(sent(Use(table=TABLE))) == ""
    assert bad.code(message) == code
    assert bad.code(nop()) == ""


BODIES = [number for number in FUNCTIONS if 48 <= number < 64]


@pytest.mark.parametrize("function", BODIES, ids=lambda number: FUNCTIONS[number].name)
@pytest.mark.parametrize(
    "data", [b"", bytes(7), bytes(100), bytes(range(200)), b"\xff" * 64], ids=len
)
def test_a_body_of_noise_is_refused(bad: Raw, function: Function, data: bytes) -> None:
    assert bad.code(body(function, data)) in ("BAD_BATCH", "BAD_NAME")
    assert bad.code(nop()) == ""


@pytest.mark.parametrize("command", everything(TABLE), ids=lambda command: type(command).__name__)
def test_a_body_that_is_cut_or_too_long_is_refused(bad: Raw, command: Command) -> None:
    message = sent(command)
    function = struct.unpack_from(">H", message, 4)[0]
    flags = struct.unpack_from(">H", message, 8)[0]
    data = message[22:]
    for size in range(0, len(data), 3):
        assert bad.code(body(function, data[:size], flags)) == "BAD_BATCH"
    assert bad.code(body(function, data + bytes(8), flags)) == "BAD_BATCH"


@pytest.mark.parametrize("function", BODIES, ids=lambda number: FUNCTIONS[number].name)
def test_a_flag_without_meaning_is_answered_once_and_closed(bad: Raw, function: Function) -> None:
    bad.send(body(function, bytes(8), PERSIST))
    reply = bad.next()
    assert isinstance(reply, SeedReply)
    assert reply.error.startswith(b"BAD_FLAGS: ")
    assert bad.next() is None


@pytest.mark.parametrize("function", [Function.NEXT, Function.DONE, Function.TOUCH])
def test_a_flag_that_one_job_does_not_know_is_closed(bad: Raw, function: Function) -> None:
    bad.send(head(function, DATA) + key(b"k"))
    reply = bad.next()
    assert isinstance(reply, SeedReply)
    assert reply.error.startswith(b"BAD_FLAGS: ")
    assert bad.next() is None


NAMES = ["", "x" * 129, "..", "a/b", "nul\0", "a\nb", "-x", "\u0430bc"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_is_none_is_refused(bad: Raw, name: str) -> None:
    asked: Sequence[Command] = [*everything(name), CreateTable(name=name, kind=SETTINGS)]
    codes = [bad.code(sent(command)) for command in asked]
    assert codes == ["BAD_NAME"] * len(asked)
    assert bad.code(push(b"k", table=name)) == "BAD_NAME"


def test_xids_that_nobody_has_change_nothing(bad: Raw) -> None:
    """They are no error: the answer says that they are missing."""
    for command in (
        Finish(table=TABLE, xids=[0, 1, 2**64 - 1]),
        Extend(table=TABLE, xids=[0, 1, 2**64 - 1]),
        Fail(table=TABLE, xids=[0, 1, 2**64 - 1], buries=True),
        Finish(table="none", xids=[1]),
        Revive(table=TABLE, rows=[0, 2**64 - 1]),
        Discard(table=TABLE, rows=[0, 2**64 - 1]),
        Cancel(table=TABLE, keys=strings(b"none", b"taken", b"dead")),
        Bury(table=TABLE, keys=strings(b"taken")),
        Reschedule(table=TABLE, keys=strings(b"taken"), priority=0),
    ):
        assert bad.code(sent(command)) == ""


def test_a_message_cut_at_any_byte_changes_nothing(world: World, bad: Raw) -> None:
    (taken,) = world.db.jobs(TABLE).taken()
    (dead,) = world.db.jobs(TABLE).dead()
    messages = [
        push(b"canary"),
        sent(Cancel(table=TABLE, keys=strings(b"canary"))),
        sent(Reschedule(table=TABLE, keys=strings(b"canary"), process_at_us=0)),
        sent(Finish(table=TABLE, xids=[taken.xid])),
        sent(Fail(table=TABLE, xids=[taken.xid])),
        sent(Discard(table=TABLE, rows=[dead.row])),
    ]
    for message in messages:
        for size in range(len(message)):
            with Raw(world.daemon.port) as raw:
                raw.send(message[:size])
                raw.finish()
                assert raw.next() is None
    assert bad.code(nop()) == ""


def test_errors_say_nothing_of_files_and_echo_no_payload(bad: Raw, world: World) -> None:
    for message, _ in REFUSED.values():
        error = bad.ask(message).error
        assert str(world.daemon.path).encode() not in error
        assert b"dead" not in error
        assert len(error) < 300
    assert "Traceback" not in world.daemon.log()
