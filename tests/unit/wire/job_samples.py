"""Commands and replies of jobs tables: one of every sort, and more where the layout branches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from fjord import commands
from fjord.columns import Strings, repeat
from fjord.commands.layout import TIMES, U64S
from tests.unit.wire.streams import MASTER, NOW_US

LARGEST = 2**64 - 1
KEYS = Strings.of([b"a", b"", b"http://x.com/" + b"c" * 300])


def push(
    table: str, keys: Sequence[bytes], *, timestamp_us: int = NOW_US, **options: Any
) -> commands.Push:
    """Jobs that differ in everything, and whose columns do."""
    count = len(keys)
    given: dict[str, Any] = {
        "domains": Strings.of([b"d" * (row % 7) for row in range(count)]),
        "types": bytes(row % 6 for row in range(count)),
        "values": Strings.of([b"v" * (2 * row % 99) for row in range(count)]),
        "priorities": bytes((255 - row) % 256 for row in range(count)),
        "process_at_us": array("Q", range(1_000, 1_000 + count)),
        "expires_at_us": array("Q", range(2_000, 2_000 + count)),
        "timestamps_us": repeat(timestamp_us, count),
    }
    return commands.Push(table=table, keys=Strings.of(keys), **given | options)


def taken(keys: Sequence[bytes], **options: Any) -> commands.Taken:
    """Jobs that differ in everything; with `first_xid` and the like as given."""
    given = {"first_xid": 7 if keys else 0, "until_us": NOW_US if keys else 0, "next_at_us": 0}
    return commands.Taken(
        keys=Strings.of(keys), **given | _columns(commands.Taken, len(keys)) | options
    )


def seed_taken(
    key: bytes, type_: int, value: bytes, *, first_xid: int = 0, until_us: int = 0
) -> commands.Taken:
    """A job as it comes in the seed's layout, which has no room for the rest."""
    none = dict.fromkeys(numbers_of(commands.Taken), (0,))
    return taken(
        [key],
        first_xid=first_xid,
        until_us=until_us,
        priorities=b"\0",
        timeouts=b"\0",
        types=bytes([type_]),
        domains=Strings.of([b""]),
        values=Strings.of([value]),
        **none,
    )


def job_page(keys: Sequence[bytes], next_start: bytes = b"") -> commands.JobPage:
    reasons = Strings.of([b"r" * (3 * row % 99) for row in range(len(keys))])
    return commands.JobPage(
        keys=Strings.of(keys),
        reasons=reasons,
        next_start=next_start,
        **_columns(commands.JobPage, len(keys)),
    )


def numbers_of(type_: type[commands.Reply]) -> list[str]:
    """The columns of 64-bit numbers that a reply has, in their order."""
    return [one.name for one in type_.row.fields if one.kind in (U64S, TIMES)]


def _columns(type_: type[commands.Taken | commands.JobPage], count: int) -> dict[str, Any]:
    names = numbers_of(type_)
    dates = {
        name: array("Q", range(1_000 * at, 1_000 * at + count))
        for at, name in enumerate(names, start=1)
    }
    return {
        **dates,
        "priorities": bytes((255 - row) % 256 for row in range(count)),
        "timeouts": bytes((row + 1) % 256 for row in range(count)),
        "types": bytes(row % 6 for row in range(count)),
        "domains": Strings.of([b"d" * (row % 7) for row in range(count)]),
        "values": Strings.of([b"v" * (2 * row % 99) for row in range(count)]),
    }


# Those that a batch may hold.
INNER_JOBS: list[commands.Command] = [
    push("t", [b"k"]),
    push("12345678", [b""], relative=True, timestamp_us=0),
    push("t", [b"k"], process_at_us=[LARGEST], expires_at_us=[LARGEST], timestamp_us=LARGEST),
    push("a-name", [b"k", b"", b"http://x.com/" + b"y" * 300]),
    push("t", [b"k%d" % row for row in range(9)], relative=True),
    push("t", [], timestamp_us=0),
    commands.Finish(table="t", xids=(7,)),
    commands.Finish(table="t", xids=(7, 8), strict=True),
    commands.Finish(table="longer_name", xids=array("Q", [0, 1, LARGEST])),
    commands.Finish(table="t", xids=()),
    commands.Extend(table="t", xids=(7,)),
    commands.Extend(table="t", xids=(7, 9), lease_us=LARGEST),
    commands.Fail(table="t", xids=(7,)),
    commands.Fail(
        table="t", xids=(7, 8, LARGEST), delay_us=LARGEST, counts=False, reason=b"it broke"
    ),
    commands.Fail(table="t", xids=(7,), buries=True, reason=b"r" * 1_000),
    commands.Cancel(table="t", keys=Strings.of([b"k"])),
    commands.Cancel(table="t", keys=KEYS),
    commands.Reschedule(table="t", keys=KEYS),
    commands.Reschedule(table="t", keys=KEYS, priority=0),
    commands.Reschedule(table="t", keys=KEYS, priority=255, process_at_us=LARGEST),
    commands.Reschedule(table="t", keys=KEYS, process_at_us=0),
    commands.Reschedule(table="t", keys=KEYS, process_at_us=5, relative=True),
    commands.Bury(table="t", keys=KEYS),
    commands.Bury(table="t", keys=Strings.of([b"k"]), reason=b"by hand"),
    commands.Revive(table="t", rows=(5,)),
    commands.Revive(table="t", rows=(5, LARGEST), delay_us=LARGEST),
    commands.Discard(table="t", rows=(5, 6, 7)),
    commands.Peek(table="t"),
    commands.Peek(table="t", state=3, start=b"\0\xff" * 20, count=LARGEST, domain=b"x.com"),
    commands.Find(table="t", keys=KEYS),
    commands.CountJobs(table="t"),
    commands.CountJobs(table="t", domain=b"x.com"),
    commands.CountJobs(table="t", generations=True),
]

# Those that it may not.
OUTER_JOBS: list[commands.Command] = [
    commands.Next(table="t"),
    commands.Next(
        table="t",
        count=LARGEST,
        domain=b"x.com" * 51,
        lease_us=LARGEST,
        wait_us=LARGEST - 1,
        done=True,
    ),
    commands.ListenJobs(table="longer_name"),
]

NOTHING = taken([])
LATER = taken([], next_at_us=NOW_US + 5)
ONE_JOB = taken([b"http://x.com/a"], domains=Strings.of([b"x"]), values=Strings.of([b"text"]))
SOME_JOBS = taken([b"a", b"", b"c" * 300])
DONE_JOBS = taken([b"a", b"b"], first_xid=0, until_us=0)
JOB_PAGES = [
    job_page([]),
    job_page([], b"next"),
    job_page([b"k"]),
    job_page([b"a", b"b" * 300, b""], b"n" * 33),
]
ACTED = commands.Acted(master=MASTER, seq=5, missing=())
ACTED_ON_SOME = commands.Acted(master=MASTER, seq=LARGEST, missing=array("Q", [0, 2, 99_999]))
REVIVED_SOME = commands.Acted(
    master=MASTER, seq=6, missing=array("Q", [1]), dropped=array("Q", [0, 4, 99_999])
)
MISSING_ONE = commands.Acted(master=MASTER, seq=5, missing=(0,))
COUNTS = commands.Numbers(
    names=Strings.of([b"waiting", b"taken", b"dead", b"next_at_us"]),
    values=array("Q", [4, 0, 1, NOW_US]),
)

JOB_REPLIES: list[commands.Reply] = [
    *(NOTHING, LATER, ONE_JOB, SOME_JOBS, DONE_JOBS),
    *(ACTED, ACTED_ON_SOME, REVIVED_SOME, MISSING_ONE),
    *JOB_PAGES,
    COUNTS,
]
