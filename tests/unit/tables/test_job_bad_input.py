"""Bad input: each is refused with its code, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.errors import Code
from fjord.jobs import Fairness, State
from fjord.kinds import Kind
from tests.unit.tables.job_world import DAY, HOUR, SECOND, TABLE, JobWorld, New, push_command
from tests.unit.tables.world import NOW_US, code_of

MIB = 1024 * 1024
BAD_NAMES = ["", "a.b", "..", "a/b", "~~", "-a", "a" * 129, "\u00e9", "a\nb", "a\0"]


def world_with_everything() -> JobWorld:
    """Returns a world with one job in each state."""
    world = JobWorld()
    world.push(b"waits", b"taken", b"dead", b"later")
    world.bury(b"waits", b"later", b"dead")
    world.revive(*[one.row for one in world.peek(State.DEAD) if one.key != b"dead"])
    world.reschedule(b"later", process_at_us=NOW_US + HOUR)
    world.reschedule(b"taken", priority=0)
    world.next(lease_us=HOUR)
    assert world.totals() == (2, 1, 1)
    return world


def check_refused(command: object, code: Code, world: JobWorld | None = None) -> Refusal:
    """Asserts that a command is refused with this code, and that nothing comes of it."""
    world = world or world_with_everything()
    before, seq, names = world.trees(), world.next_seq, dict(world.tables)
    reply = world.run(command)
    assert code_of(reply) is code, reply
    assert (world.trees(), world.next_seq, dict(world.tables)) == (before, seq, names)
    assert isinstance(reply, Refusal)
    assert reply.text
    return reply


def push(*rows: New, **fields: Any) -> commands.Push:
    return replace(push_command(rows or [New(b"a")], NOW_US), **fields)


# -- PUSH -----------------------------------------------------------------------------------------

ROWS: dict[Code, list[New]] = {
    Code.EMPTY_KEY: [New(b"")],
    Code.KEY_TOO_LONG: [New(b"k" * 1025)],
    Code.BAD_DOMAIN: [New(b"a", domain=b"d" * 256)],
    Code.BAD_TYPE: [New(b"a", type=6), New(b"a", type=255), New(b"a", b"x", type=0)],
    Code.BAD_VALUE: [
        New(b"a", b"\xff", type=2),
        New(b"a", b"x" * 7, type=3),
        New(b"a", b"x" * 9, type=4),
        New(b"a", b"\2", type=5),
    ],
    Code.VALUE_TOO_LARGE: [New(b"a", bytes(limits.VALUE_BYTES_MAX + 1))],
    Code.BAD_TIMESTAMP: [
        New(b"a", stamp_us=NOW_US // 1_000_000),  # seconds
        New(b"a", stamp_us=NOW_US // 1000),  # milliseconds
        New(b"a", stamp_us=NOW_US + 60 * SECOND + 1),
        New(b"a", stamp_us=2**64 - 1),
    ],
    Code.BAD_TIMEOUT: [
        New(b"a", expires_at_us=NOW_US - 1),
        New(b"a", expires_at_us=1),
        New(b"a", process_at_us=NOW_US + 2 * SECOND, expires_at_us=NOW_US + SECOND),
        New(b"a", process_at_us=NOW_US + 366 * DAY + 1),
        New(b"a", process_at_us=2**64 - 1),
        New(b"a", expires_at_us=NOW_US + 366 * DAY + 1),
        New(b"a", expires_at_us=2**64 - 1),
    ],
}
DELAYS = [
    New(b"a", process_at_us=2 * SECOND, expires_at_us=NOW_US + SECOND),
    New(b"a", process_at_us=366 * DAY + 1),
    New(b"a", process_at_us=2**64 - 1),
]
TWO = Strings.of([b"a", b"b"])
COLUMNS: list[dict[str, Any]] = [
    {"keys": TWO},
    {"types": b"\1\1"},
    {"values": TWO},
    {"domains": TWO},
    {"domains": Strings.of([])},
    {"priorities": b"\1\2"},
    {"priorities": b""},
    {"process_at_us": [0, 0]},
    {"expires_at_us": [0, 0]},
    {"expires_at_us": []},
    {"timestamps_us": [NOW_US] * 2},
]
PUSHES = [
    *((push(New(b"good"), row), code) for code, rows in ROWS.items() for row in rows),
    *((push(row, relative=True), Code.BAD_TIMEOUT) for row in DELAYS),
    *((push(**columns), Code.BAD_BATCH) for columns in COLUMNS),
    (push(timestamps_us=[0]), Code.BAD_TIMESTAMP),
    (push(*[New(b"%d" % at, bytes(MIB)) for at in range(9)]), Code.TOO_LARGE),
    (push_command([New(b"a")] * (limits.BATCH_ROWS_MAX + 1), NOW_US), Code.BAD_BATCH),
]


@pytest.mark.parametrize(("command", "code"), PUSHES, ids=[str(code) for _, code in PUSHES])
def test_a_bad_push_is_refused_as_a_whole(command: commands.Push, code: Code) -> None:
    check_refused(command, code)


def commands_on(table: str) -> list[commands.Command]:
    """Returns one of each that is about jobs."""
    keyed = (commands.Cancel, commands.Reschedule, commands.Bury, commands.Find)
    return [
        push(table=table),
        *(kind(table=table) for kind in (commands.Next, commands.Peek, commands.CountJobs)),
        *(
            kind(table=table, xids=[1])
            for kind in (commands.Finish, commands.Extend, commands.Fail)
        ),
        *(kind(table=table, keys=Strings.of([b"a"])) for kind in keyed),
        *(kind(table=table, rows=[1]) for kind in (commands.Revive, commands.Discard)),
    ]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_table_with_a_bad_name_is_refused(name: str) -> None:
    for command in commands_on(name):
        check_refused(command, Code.BAD_NAME)


def test_a_table_of_another_kind_is_refused() -> None:
    world = world_with_everything()
    world.run(commands.CreateTable(name="kv", kind=Kind.KV.number))
    create = commands.CreateTable(name="kv", kind=Kind.JOBS.number)
    for command in (*commands_on("kv"), create):
        check_refused(command, Code.WRONG_KIND, world)


def test_too_many_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_everything()
    monkeypatch.setattr(limits, "TABLES_MAX", 1)
    check_refused(push(table="another"), Code.QUOTA, world)


def test_too_many_domains_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = JobWorld(fairness=Fairness.DOMAIN)
    monkeypatch.setattr(limits, "LANES_MAX", 3)
    world.push(*[New(b"%d" % at, domain=b"%d" % at) for at in range(3)])
    world.next()
    world.push(New(b"more", domain=b"more"))
    check_refused(push(New(b"last", domain=b"last")), Code.QUOTA, world)


# -- NEXT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("merge", [True, False])
def test_too_many_taken_jobs_are_refused_where_keys_merge(
    monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    world = JobWorld(merge=merge)
    monkeypatch.setattr(limits, "TAKEN_MAX", 2)
    world.push(b"1", b"2", b"3", b"4")
    taken = world.next(2)
    if not merge:
        assert world.keys() == [b"3"]
        return
    check_refused(next_(), Code.QUOTA, world)
    assert world.keys(done=True) == [b"3"]
    world.done(taken[0])
    assert world.keys() == [b"4"]


def next_(**fields: Any) -> commands.Next:
    return commands.Next(table=TABLE, **fields)


NEXTS = {
    "too many": (next_(count=limits.NEXT_COUNT_MAX + 1), Code.BAD_COUNT),
    "as many as fit 32 bits": (next_(count=2**32 - 1), Code.BAD_COUNT),
    "a lease too short": (next_(lease_us=limits.LEASE_US_MIN - 1), Code.BAD_TIMEOUT),
    "a lease too long": (next_(lease_us=limits.LEASE_US_MAX + 1), Code.BAD_TIMEOUT),
    "the longest number for a lease": (next_(lease_us=2**64 - 1), Code.BAD_TIMEOUT),
    "a wait too long": (next_(wait_us=limits.WAIT_US_MAX + 1), Code.BAD_TIMEOUT),
    "a domain too long": (next_(domain=b"d" * 256), Code.BAD_DOMAIN),
}


@pytest.mark.parametrize("what", NEXTS)
def test_a_bad_next_is_refused(what: str) -> None:
    command, code = NEXTS[what]
    check_refused(command, code)


def test_a_domain_is_refused_where_the_table_has_none_and_the_text_names_the_setting() -> None:
    """Decision 18."""
    for command in (
        next_(domain=b"example.com"),
        commands.Peek(table=TABLE, domain=b"example.com"),
        commands.CountJobs(table=TABLE, domain=b"example.com"),
    ):
        assert "fairness" in check_refused(command, Code.BAD_DOMAIN).text


# -- what workers say -----------------------------------------------------------------------------

XIDS: dict[str, Callable[..., Any]] = {
    "finish": commands.Finish,
    "extend": commands.Extend,
    "fail": commands.Fail,
}


@pytest.mark.parametrize("verb", XIDS)
def test_a_batch_of_xids_has_at_least_one_and_not_too_many(verb: str) -> None:
    check_refused(XIDS[verb](table=TABLE, xids=[]), Code.BAD_BATCH)
    too_many = [1] * (limits.BATCH_ROWS_MAX + 1)
    check_refused(XIDS[verb](table=TABLE, xids=too_many), Code.BAD_BATCH)


@pytest.mark.parametrize("lease_us", [1, limits.LEASE_US_MIN - 1, limits.LEASE_US_MAX + 1])
def test_a_lease_out_of_bounds_cannot_be_asked_for_later_either(lease_us: int) -> None:
    world = world_with_everything()
    (taken,) = world.peek(State.TAKEN)
    command = commands.Extend(table=TABLE, xids=[taken.xid], lease_us=lease_us)
    check_refused(command, Code.BAD_TIMEOUT, world)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"delay_us": 366 * DAY + 1}, Code.BAD_TIMEOUT),
        ({"delay_us": 2**64 - 1}, Code.BAD_TIMEOUT),
        ({"reason": b"x" * (limits.REASON_BYTES_MAX + 1)}, Code.BAD_VALUE),
        ({"reason": b"\xff"}, Code.BAD_VALUE),
    ],
)
def test_a_failure_with_a_bad_delay_or_reason_is_refused(
    fields: dict[str, Any], code: Code
) -> None:
    world = world_with_everything()
    (taken,) = world.peek(State.TAKEN)
    check_refused(commands.Fail(table=TABLE, xids=[taken.xid], **fields), code, world)


# -- by hand --------------------------------------------------------------------------------------

KEYS: dict[str, Callable[..., Any]] = {
    "cancel": commands.Cancel,
    "reschedule": commands.Reschedule,
    "bury": commands.Bury,
    "find": commands.Find,
}


@pytest.mark.parametrize("verb", KEYS)
@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ([], Code.BAD_BATCH),
        ([b"a"] * (limits.BATCH_ROWS_MAX + 1), Code.BAD_BATCH),
        ([b"waits", b""], Code.EMPTY_KEY),
        ([b"waits", b"k" * 1025], Code.KEY_TOO_LONG),
    ],
    ids=["none", "too many", "empty", "too long"],
)
def test_bad_keys_are_refused(verb: str, keys: list[bytes], code: Code) -> None:
    check_refused(KEYS[verb](table=TABLE, keys=Strings.of(keys)), code)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"process_at_us": NOW_US + 366 * DAY + 1}, Code.BAD_TIMEOUT),
        ({"process_at_us": 366 * DAY + 1, "relative": True}, Code.BAD_TIMEOUT),
        ({"process_at_us": 2**64 - 1}, Code.BAD_TIMEOUT),
        ({"priority": 256}, Code.BAD_VALUE),
    ],
)
def test_a_job_cannot_be_rescheduled_to_anything(fields: dict[str, Any], code: Code) -> None:
    keys = Strings.of([b"waits"])
    check_refused(commands.Reschedule(table=TABLE, keys=keys, **fields), code)


@pytest.mark.parametrize("reason", [b"\xff", b"x" * (limits.REASON_BYTES_MAX + 1)])
def test_a_bad_reason_is_refused(reason: bytes) -> None:
    command = commands.Bury(table=TABLE, keys=Strings.of([b"waits"]), reason=reason)
    check_refused(command, Code.BAD_VALUE)


@pytest.mark.parametrize("kind", [commands.Revive, commands.Discard])
def test_a_batch_of_rows_has_at_least_one_and_not_too_many(kind: Callable[..., Any]) -> None:
    check_refused(kind(table=TABLE, rows=[]), Code.BAD_BATCH)
    too_many = [1] * (limits.BATCH_ROWS_MAX + 1)
    check_refused(kind(table=TABLE, rows=too_many), Code.BAD_BATCH)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"count": limits.PAGE_ENTRIES_MAX + 1}, Code.BAD_COUNT),
        ({"state": 0}, Code.BAD_VALUE),
        ({"state": 4}, Code.BAD_VALUE),
        ({"domain": b"d" * 256}, Code.BAD_DOMAIN),
        ({"start": b"x" * 5000}, Code.BAD_CURSOR),
    ],
)
def test_a_page_that_cannot_be_is_refused(fields: dict[str, Any], code: Code) -> None:
    check_refused(commands.Peek(table=TABLE, **fields), code)


@pytest.mark.parametrize("start", [b"\0", b"\xff" * 30, b"x" * 7, b"\xff" * 480])
@pytest.mark.parametrize("state", list(State))
def test_a_page_from_anywhere_shows_nothing_of_other_tables(start: bytes, state: State) -> None:
    world = world_with_everything()
    for table in ("before", "z"):
        world.push(b"secret", table=table)
    reply = world.run(commands.Peek(table=TABLE, state=state, start=start))
    assert isinstance(reply, commands.JobPage | Refusal)
    if isinstance(reply, commands.JobPage):
        assert b"secret" not in reply.keys.rows()


# -- edges that are allowed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        New(b"k" * 1024),
        New(b"a", domain=b"d" * 255),
        New(b"a", bytes(limits.VALUE_BYTES_MAX)),
        New(b"a", priority=0),
        New(b"a", priority=255),
        New(b"a", stamp_us=limits.TIMESTAMP_US_MIN),
        New(b"a", stamp_us=NOW_US + 60 * SECOND),
        New(b"a", process_at_us=NOW_US + 366 * DAY),
        New(b"a", expires_at_us=NOW_US + 366 * DAY),
        New(b"a", expires_at_us=NOW_US + SECOND),
    ],
    ids=lambda row: f"{row.key[:1]!r} {row[2:6]}",
)
def test_what_is_just_within_the_bounds_is_taken(row: New) -> None:
    world = JobWorld()
    assert code_of(world.push(row)) is None
    assert world.totals() == (1, 0, 0)
    world.check()
