"""Calls of a jobs table: what each sends, and what it makes of the answer.

The blocking shell is tested with them; it is made from the one for asyncio (`scripts/shells`).
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from fjord import commands, limits
from fjord.client.jobs.calls import JobCalls
from fjord.client.jobs.records import DeadJob, Discarded, JobBatch, JobInfo, Redriven, TakenJob
from fjord.client.schemas import Schemas
from fjord.clock import Stamps
from fjord.columns import Strings, repeat
from fjord.jobs import State, decode_settings
from fjord.testing import SimClock
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.shell_calls import Sample, on

NOW: Final = datetime.fromtimestamp(NOW_US // 1_000_000, tz=UTC)
SECOND_US: Final = 1_000_000
MINUTE: Final = timedelta(minutes=1)
MINUTE_US: Final = 60 * SECOND_US
URI: Final = "http://example.com/a"
ACTED: Final = commands.Acted(master=b"m" * 16, seq=5, missing=())
SCHEMAS = Schemas("t", decode_settings)  # that were not asked for


def make_calls() -> JobCalls:
    return JobCalls("t", Stamps(SimClock(NOW_US)))


def acted(*missing: int, dropped: Sequence[int] = ()) -> commands.Acted:
    return commands.Acted(master=b"m" * 16, seq=5, missing=missing, dropped=dropped)


def push_of(*keys: bytes, **changes: Any) -> commands.Push:
    """Returns the push of jobs with the value b"v"."""
    return commands.Push(table="t", **columns_of(*keys) | changes)


def columns_of(*keys: bytes) -> dict[str, Any]:
    count = len(keys)
    return {
        "keys": Strings.of(keys),
        "domains": Strings.of([b""] * count),
        "types": b"\1" * count,
        "values": Strings.of([b"v"] * count),
        "priorities": b"\x64" * count,
        "process_at_us": repeat(0, count),
        "expires_at_us": repeat(0, count),
        "timestamps_us": repeat(NOW_US, count),
        "relative": True,
    }


def taken_of(
    *keys: bytes, first_xid: int = 70, next_at_us: int = 0, timeouts: int = 0
) -> commands.Taken:
    """Returns jobs that were handed out for a minute, with the value b"v"."""
    count = len(keys)
    return commands.Taken(
        first_xid=first_xid if count else 0,
        until_us=NOW_US + MINUTE_US if count else 0,
        next_at_us=next_at_us,
        rows=range(10, 10 + count),
        process_at_us=repeat(NOW_US - 3, count),
        inserted_us=repeat(NOW_US - 5, count),
        updated_us=repeat(NOW_US - 4, count),
        expires_at_us=repeat(0, count),
        priorities=b"\x64" * count,
        timeouts=bytes((timeouts,)) * count,
        types=b"\1" * count,
        keys=Strings.of(keys),
        domains=Strings.of([b""] * count),
        values=Strings.of([b"v"] * count),
    )


class Dead(NamedTuple):
    """A dead job."""

    key: bytes
    reason: bytes = b"why"
    domain: bytes = b""
    died_us: int = NOW_US


def page_of(
    *keys: bytes, state: State = State.WAITING, first_row: int = 10, next_start: bytes = b""
) -> commands.JobPage:
    """Returns a page of jobs with the value b"v"."""
    dead = dead_page(*map(Dead, keys), first_row=first_row, next_start=next_start)
    if state is State.DEAD:
        return dead
    count = len(keys)
    is_taken = state is State.TAKEN
    dead.xids = range(70, 70 + count) if is_taken else repeat(0, count)
    dead.moments_us = repeat(NOW_US + MINUTE_US if is_taken else 0, count)
    dead.reasons = Strings.of([b""] * count)
    return dead


def dead_page(*rows: Dead, first_row: int = 10, next_start: bytes = b"") -> commands.JobPage:
    count = len(rows)
    return commands.JobPage(
        rows=range(first_row, first_row + count),
        xids=repeat(0, count),
        process_at_us=repeat(NOW_US - 3, count),
        inserted_us=repeat(NOW_US - 5, count),
        updated_us=repeat(NOW_US - 4, count),
        expires_at_us=repeat(0, count),
        moments_us=[row.died_us for row in rows],
        priorities=b"\x64" * count,
        timeouts=b"\2" * count,
        types=b"\1" * count,
        keys=Strings.of([row.key for row in rows]),
        domains=Strings.of([row.domain for row in rows]),
        values=Strings.of([b"v"] * count),
        reasons=Strings.of([row.reason for row in rows]),
        next_start=next_start,
    )


def info_of(key: str, state: State = State.WAITING, row: int = 10) -> JobInfo:
    return JobInfo(**_info(key, state, row))


def dead_of(key: str, row: int = 10) -> DeadJob:
    return DeadJob(**_info(key, State.DEAD, row), reason="why", died_at=NOW)


def _info(key: str, state: State, row: int) -> dict[str, Any]:
    is_taken = state is State.TAKEN
    return {
        "key": key,
        "value": b"v",
        "priority": 100,
        "domain": "",
        "state": state,
        "timeouts": 2,
        "process_at": NOW - timedelta(microseconds=3),
        "inserted_at": NOW - timedelta(microseconds=5),
        "updated_at": NOW - timedelta(microseconds=4),
        "expires_at": None,
        "row": row,
        "xid": 60 + row if is_taken else 0,
        "lease_until": NOW + MINUTE if is_taken else None,
    }


def numbers_of(
    waiting: int = 5, taken: int = 2, dead: int = 1, next_at_us: int = 0
) -> commands.Numbers:
    names = (b"waiting", b"taken", b"dead", b"next_at_us")
    return commands.Numbers(names=Strings.of(names), values=(waiting, taken, dead, next_at_us))


def peek_of(state: State, **changes: Any) -> commands.Peek:
    usual: dict[str, Any] = {"table": "t", "state": state, "count": limits.PAGE_ENTRIES_MAX}
    return commands.Peek(**usual | changes)


def shown(result: object) -> object:
    """Returns jobs that were taken as what can be compared."""
    if isinstance(result, JobBatch):
        return [(job.key, job.xid) for job in result], result.next_at
    return result


def keys_of(*keys: bytes) -> Strings:
    return Strings.of(keys)


PUSHING: Final = [
    Sample("push", lambda t: t.push("k", b"v"), [push_of(b"k")], [TOKEN]),
    Sample(
        "push with options",
        lambda t: t.push("k", b"v", priority=5, delay=1.5, domain="d", expires_at=NOW),
        [
            push_of(
                b"k",
                priorities=b"\5",
                process_at_us=(1_500_000,),
                domains=keys_of(b"d"),
                expires_at_us=(NOW_US,),
            )
        ],
        [TOKEN],
    ),
    Sample(
        "push_many of dicts",
        lambda t: t.push_many([{"key": "k", "value": b"v"}, {"key": b"l", "value": b"v"}]),
        [push_of(b"k", b"l")],
        [TOKEN],
    ),
    Sample(
        "push_many of columns",
        lambda t: t.push_many(keys=["k", "l"], values=[b"v", b"v"], priority=7, delay=2),
        [push_of(b"k", b"l", priorities=b"\7\7", process_at_us=repeat(2_000_000, 2))],
        [TOKEN],
    ),
    Sample(
        "_push_columns", lambda t: t._push_columns(**columns_of(b"k")), [push_of(b"k")], [TOKEN]
    ),
    Sample("push_many of no keys", lambda t: t.push_many(keys=[]), [commands.Nop()], [TOKEN]),
]

TAKING: Final = [
    Sample(
        "next", lambda t: t.next(), [on("Next", count=1)], [taken_of(b"k")], ([("k", 70)], None)
    ),
    Sample(
        "next with options",
        lambda t: t.next(3, domain="d", lease=60, wait=MINUTE, done=True),
        [on("Next", count=3, domain=b"d", lease_us=MINUTE_US, wait_us=MINUTE_US, done=True)],
        [taken_of(b"k", b"l", first_xid=0)],
        ([("k", 0), ("l", 0)], None),
    ),
    Sample(
        "next of nothing that is due",
        lambda t: t.next(),
        [on("Next", count=1)],
        [taken_of(next_at_us=NOW_US)],
        ([], NOW),
    ),
    Sample(
        "done_many of xids",
        lambda t: t.done_many([70, 71, 72]),
        [on("Finish", xids=[70, 71, 72])],
        [acted(0, 2)],
        [70, 72],
    ),
    Sample(
        "touch_many for as long as before",
        lambda t: t.touch_many([70]),
        [on("Extend", xids=[70])],
        [acted(0)],
        [70],
    ),
    Sample(
        "fail_many with options",
        lambda t: t.fail_many([70], delay=60, reason="é", count=False, bury=True),
        [on("Fail", xids=[70], delay_us=MINUTE_US, reason=b"\xc3\xa9", counts=False, buries=True)],
        [ACTED],
        [],
    ),
]

BY_KEY: Final = [
    Sample("get", lambda t: t.get("k"), [on("Find", b"k")], [page_of(b"k")], info_of("k")),
    Sample("cancel", lambda t: t.cancel("k"), [on("Cancel", b"k")], [ACTED], True),
    Sample(
        "cancel_many",
        lambda t: t.cancel_many(["k", b"l", "m"]),
        [on("Cancel", b"k", b"l", b"m")],
        [acted(1)],
        ["k", "m"],
    ),
    Sample(
        "reschedule by a delay",
        lambda t: t.reschedule("k", delay=60),
        [on("Reschedule", b"k", process_at_us=MINUTE_US, relative=True)],
        [ACTED],
        True,
    ),
    Sample(
        "reschedule to a date",
        lambda t: t.reschedule("k", priority=0, process_at=NOW),
        [on("Reschedule", b"k", priority=0, process_at_us=NOW_US)],
        [acted(0)],
        False,
    ),
    Sample("kick", lambda t: t.kick("k"), [on("Reschedule", b"k", process_at_us=0)], [ACTED], True),
    Sample("bury", lambda t: t.bury("k", "why"), [on("Bury", b"k", reason=b"why")], [ACTED], True),
]

COUNT, COUNT_ALL = on("CountJobs"), on("CountJobs", generations=True)
LOOKING: Final = [
    Sample("done_many of nothing", lambda t: t.done_many([]), [commands.Nop()], [TOKEN], []),
    Sample("cancel_many of nothing", lambda t: t.cancel_many([]), [commands.Nop()], [TOKEN], []),
    Sample(
        "taken",
        lambda t: t.taken(),
        [peek_of(State.TAKEN, count=10)],
        [page_of(b"k", state=State.TAKEN)],
        [info_of("k", State.TAKEN)],
    ),
    Sample("generations", lambda t: t.generations(), [COUNT_ALL], [numbers_of()], []),
    Sample(
        "next_at",
        lambda t: t.next_at("d"),
        [on("CountJobs", domain=b"d")],
        [numbers_of(next_at_us=NOW_US)],
        NOW,
    ),
    Sample(
        "peek over pages",
        lambda t: t.peek(3, domain="d"),
        [
            peek_of(State.WAITING, count=3, domain=b"d"),
            peek_of(State.WAITING, count=2, domain=b"d", start=b"2"),
        ],
        [page_of(b"k", next_start=b"2"), page_of(b"l", b"m", next_start=b"3")],
        [info_of("k"), info_of("l"), info_of("m", row=11)],
    ),
    Sample(
        "dead over pages",
        lambda t: t.dead(),
        [peek_of(State.DEAD), peek_of(State.DEAD, start=b"2")],
        [page_of(b"k", state=State.DEAD, next_start=b"2"), page_of(b"l", state=State.DEAD)],
        [dead_of("k"), dead_of("l")],
    ),
    Sample(
        "pages",
        lambda t: t.pages(State.TAKEN),
        [peek_of(State.TAKEN), peek_of(State.TAKEN, start=b"2")],
        [page_of(b"k", next_start=b"2"), page_of(b"l")],
        [page_of(b"k", next_start=b"2"), page_of(b"l")],
    ),
    Sample(
        "dead with a filter",
        lambda t: t.dead(key="l", limit=1),
        [peek_of(State.DEAD)],
        [page_of(b"k", b"l", b"l", state=State.DEAD, next_start=b"2")],
        [dead_of("l", row=11)],
    ),
    Sample(
        "redrive",
        lambda t: t.redrive(delay=60),
        [peek_of(State.DEAD), on("Revive", rows=[10, 11], delay_us=MINUTE_US)],
        [page_of(b"k", b"l", state=State.DEAD), acted(1)],
        Redriven(matched=2, revived=1, dropped=0, rows=array("Q", [10, 11])),
    ),
    Sample(
        "redrive of rows",
        lambda t: t.redrive(rows=[7, 9, 7]),
        [on("Revive", rows=[7, 9])],
        [acted(dropped=[0])],
        Redriven(matched=2, revived=1, dropped=1, rows=array("Q", [7, 9])),
    ),
    Sample(
        "discard",
        lambda t: t.discard(key_prefix="l"),
        [peek_of(State.DEAD), on("Discard", rows=[11])],
        [page_of(b"k", b"l", state=State.DEAD), ACTED],
        Discarded(matched=1, discarded=1, rows=array("Q", [11])),
    ),
]

SAMPLES: Final = [*PUSHING, *TAKING, *BY_KEY, *LOOKING]

CREATED: Final = commands.CreateTable(name="t", kind=2, settings=b'{"lease_us":60000000}')


class Backend:
    """Hands out prepared batches, and says `stop` when there are no more."""

    def __init__(self, *batches: commands.Taken, stale: Sequence[int] = ()) -> None:
        self._batches = deque(batches)
        self._stale = stale
        self.stop = threading.Event()
        self.sent: list[commands.Command] = []  # NEXT left out
        self.asked: list[commands.Next] = []

    def answer(self, command: commands.Command) -> commands.Reply:
        if isinstance(command, commands.Next):
            self.asked.append(command)
            if self._batches:
                return self._batches.popleft()
            self.stop.set()
            return taken_of()
        self.sent.append(command)
        if isinstance(command, commands.Finish | commands.Fail | commands.Extend):
            return acted(*[place for place, xid in enumerate(command.xids) if xid in self._stale])
        return TOKEN


def taken_batch(*keys: bytes) -> JobBatch[TakenJob]:
    return JobBatch("t", taken_of(*keys), TakenJob, NOW_US, schemas=SCHEMAS)
