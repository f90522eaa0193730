"""Every kind of bad message about jobs: refused with its code, and nothing comes of it.

After each of them the jobs of the table are what they were, and other connections are served.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fjord
from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Next
from fjord.wire import Function
from tests.acceptance.daemon import Daemon
from tests.acceptance.raw import BOOLEAN, STRING, TIMEOUT, Raw, head, key, nop, now_us
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


BATCH, CANCEL = commands.Batch.row.number, commands.Cancel.row.number


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
    return sent(commands.Push(keys=Strings.of(keys), **given | columns))


def strings(*rows: bytes) -> Strings:
    return Strings.of(rows)


REFUSED: dict[str, list[bytes]] = {
    "BAD_BATCH": [
        push(),
        push(*[b"k"] * len(MANY)),
        sent(commands.Finish(table=TABLE, xids=[])),
        sent(commands.Cancel(table=TABLE, keys=strings())),
        sent(commands.Revive(table=TABLE, rows=MANY)),
    ],
    "EMPTY_KEY": [
        push(b""),
        push(b"canary", b""),
        sent(commands.Cancel(table=TABLE, keys=strings(b"canary", b""))),
    ],
    "KEY_TOO_LONG": [
        push(LONG_KEY),
        sent(commands.Cancel(table=TABLE, keys=strings(b"canary", LONG_KEY))),
    ],
    "BAD_DOMAIN": [
        push(b"k", domains=strings(LONG_DOMAIN)),
        sent(Next(table=TABLE, domain=b"d")),
        sent(Next(table=TABLE, domain=LONG_DOMAIN)),
        head(Function.NEXT) + key(b"d"),
    ],
    "BAD_TYPE": [
        push(b"k", types=b"\x06"),
        push(b"k", types=b"\x00"),
        push(b"canary", b"k", types=b"\x02\x06"),
    ],
    "BAD_VALUE": [
        push(b"k", types=bytes([BOOLEAN]), values=strings(b"\x02")),
        push(b"k", values=strings(b"\xff")),
        sent(commands.Fail(table=TABLE, xids=XIDS, reason=LONG_REASON)),
        sent(commands.Fail(table=TABLE, xids=XIDS, reason=b"\xff")),
        sent(commands.Peek(table=TABLE, state=0)),
        head(Function.DONE) + key(b"abc"),
    ],
    "VALUE_TOO_LARGE": [push(b"k", values=strings(bytes(limits.VALUE_BYTES_MAX + 1)))],
    "BAD_TIMESTAMP": [push(b"k", timestamps_us=[0]), push(b"k", timestamps_us=[now_us() + DAY_US])],
    "BAD_TIMEOUT": [
        push(b"k", expires_at_us=[now_us() - DAY_US]),
        push(b"k", process_at_us=[now_us() + DAY_US], expires_at_us=[now_us() + DAY_US // 2]),
        push(b"k", process_at_us=[now_us() + 367 * DAY_US]),
        push(b"k", process_at_us=[367 * DAY_US], relative=True),
        sent(Next(table=TABLE, lease_us=999)),
        sent(Next(table=TABLE, lease_us=31 * DAY_US)),
        sent(Next(table=TABLE, wait_us=3601 * SECOND_US)),
        sent(commands.Extend(table=TABLE, xids=XIDS, lease_us=31 * DAY_US)),
        sent(
            commands.Reschedule(
                table=TABLE, keys=strings(b"canary"), process_at_us=now_us() + 367 * DAY_US
            )
        ),
        head(Function.TOUCH, TIMEOUT)
        + struct.pack(">Q", now_us() - DAY_US)
        + key(struct.pack(">Q", 1) + b"canary"),
    ],
    "WRONG_KIND": [push(b"k", table="settings"), sent(Next(table="settings"))],
    "BAD_COUNT": [
        sent(Next(table=TABLE, count=10001)),
        sent(commands.Peek(table=TABLE, count=1001)),
    ],
    "BAD_CURSOR": [sent(commands.Peek(table=TABLE, start=bytes(1000)))],
    "BAD_SETTINGS": [
        sent(commands.CreateTable(name="made", kind=SETTINGS, settings=b'{"mrege":true}')),
        sent(commands.CreateTable(name="made", kind=SETTINGS, settings=b'{"lease_us":0}')),
        sent(commands.CreateTable(name="made", kind=SETTINGS, settings=b"[" * 4000)),
    ],
    "EXISTS": [sent(commands.CreateTable(name=TABLE, kind=SETTINGS, settings=b'{"merge":false}'))],
    "STALE_XID": [head(Function.DONE) + key(struct.pack(">Q", 2**63) + b"canary")],
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_refused_keeps_its_connection_and_changes_nothing(bad: Raw, code: str) -> None:
    assert bad.code(sent(commands.Use(table=TABLE))) == ""
    assert [bad.code(message) for message in REFUSED[code]] == [code] * len(REFUSED[code])
    assert bad.code(nop()) == ""


def test_xids_that_nobody_has_change_nothing(bad: Raw) -> None:
    """They are no error: the answer says that they are missing."""
    for command in (
        commands.Finish(table=TABLE, xids=[0, 1, 2**64 - 1]),
        commands.Extend(table=TABLE, xids=[0, 1, 2**64 - 1]),
        commands.Fail(table=TABLE, xids=[0, 1, 2**64 - 1], buries=True),
        commands.Finish(table="none", xids=[1]),
        commands.Revive(table=TABLE, rows=[0, 2**64 - 1]),
        commands.Discard(table=TABLE, rows=[0, 2**64 - 1]),
        commands.Cancel(table=TABLE, keys=strings(b"none", b"taken", b"dead")),
        commands.Bury(table=TABLE, keys=strings(b"taken")),
        commands.Reschedule(table=TABLE, keys=strings(b"taken"), priority=0),
    ):
        assert bad.code(sent(command)) == ""
