"""Generations of jobs tables: ranges of rows, counted, merged and moved, declared anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import commands, jobs, limits
from fjord.commands import CreateTable, DropTable, Refusal
from fjord.declared import schema
from fjord.errors import Code, RefusedError
from fjord.jobs import Drained, Period, State
from fjord.kinds import Kind
from fjord.ops import Opcode
from fjord.tables import catalog, generations, staging
from fjord.tables.generations import Turn
from fjord.tables.state import Generation, Table
from tests.unit.tables.job_world import DAY, HOUR, TABLE, JobWorld, New, push_command
from tests.unit.tables.world import NOW_US, code_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MOMENTS = st.integers(0, (datetime(2200, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND)


def moment(us: int) -> datetime:
    return EPOCH + us * MICROSECOND


@pytest.fixture
def world() -> JobWorld:
    return JobWorld(period=Period.HOUR)


def declare(world: JobWorld, **settings: Any) -> commands.Reply:
    """Declares the table anew."""
    encoded = jobs.Settings(**settings).encode()
    return world.run(CreateTable(name=TABLE, kind=Kind.JOBS.number, settings=encoded, changes=True))


def listed(world: JobWorld) -> list[tuple[int, int]]:
    """Returns number and jobs of each generation, as they are told and counted."""
    reply = world.run(commands.CountJobs(table=TABLE, generations=True))
    assert isinstance(reply, commands.Numbers)
    told = dict(zip(reply.names.rows(), reply.values, strict=True))
    known = world.generations.get(world.tables[TABLE].id, ())
    found = [(one.number, world.counts.of(-one.id).waiting) for one in known]
    assert found == [(number, told[b"generation.%d.jobs" % number]) for number, _ in found]
    return found


def turn(world: JobWorld, seconds: float = 0) -> None:
    world.jump(seconds)
    before = 0
    while before != world.next_seq:
        before = world.next_seq
        world.run(Turn())


# -- time -----------------------------------------------------------------------------------------


@given(now_us=MOMENTS)
def test_hours_and_days_are_those_of_the_clock(now_us: int) -> None:
    for period, length_us in ((Period.HOUR, HOUR), (Period.DAY, DAY)):
        assert generations.began_us(period, now_us) == now_us - now_us % length_us
        assert generations.ends_us(period, now_us) == now_us - now_us % length_us + length_us


@given(now_us=MOMENTS)
def test_months_are_those_of_the_calendar(now_us: int) -> None:
    began = moment(generations.began_us(Period.MONTH, now_us))
    ends = moment(generations.ends_us(Period.MONTH, now_us))
    now = moment(now_us)
    assert began == datetime(now.year, now.month, 1, tzinfo=UTC)
    assert ends == datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)


@given(began_us=MOMENTS, now_us=MOMENTS, period=st.sampled_from(Period))
def test_a_period_is_over_in_the_next_and_far_behind(
    began_us: int, now_us: int, period: Period
) -> None:
    if period is Period.NONE:
        return
    is_over = generations.is_over(period, began_us, now_us)
    is_later = now_us >= generations.ends_us(period, began_us)
    # A whole period lies between both.
    is_far_behind = generations.ends_us(period, now_us) < generations.began_us(period, began_us)
    assert is_over == (is_later or is_far_behind)
    assert not (is_later and is_far_behind)


# -- counting -------------------------------------------------------------------------------------


@given(
    firsts=st.lists(st.integers(1, 1000), min_size=1, max_size=20, unique=True),
    rows=st.lists(st.integers(1, 1200), max_size=50),
)
def test_each_row_counts_once_where_it_belongs(firsts: list[int], rows: list[int]) -> None:
    known = [Generation(100 + at, at + 1, 0, row, 1) for at, row in enumerate(sorted(firsts))]
    expected: dict[int, int] = {}
    for row in rows:
        before = [one for one in known if one.first_row <= row]
        id_ = (before[-1] if before else known[0]).id
        expected[id_] = expected.get(id_, 0) + 1
    assert generations.count_by_id(known, rows) == expected


@pytest.mark.req("SJ-18")
def test_jobs_are_counted_in_their_generation_whatever_becomes_of_them(world: JobWorld) -> None:
    world.push(b"a", b"b", b"c", b"d")
    turn(world, 3600)
    world.push(b"e")
    assert listed(world) == [(1, 4), (2, 1)]
    taken = world.next(2)
    assert listed(world) == [(1, 4), (2, 1)]
    world.done(taken[0])
    world.fail(taken[1])
    world.bury(b"c")
    assert listed(world) == [(1, 3), (2, 1)]
    dead = world.peek(State.DEAD)
    world.discard(dead[0].row)
    world.cancel(b"b", b"d")
    assert listed(world) == [(1, 0), (2, 1)]
    world.check()


# -- decision 21 ----------------------------------------------------------------------------------


@pytest.mark.req("SJ-18")
def test_a_key_that_waits_in_an_old_generation_is_merged_and_moves(world: JobWorld) -> None:
    world.push(New(b"k", b"old", priority=10, stamp_us=NOW_US - 5))
    turn(world, 3600)
    (old,) = world.find(b"k")
    world.push(New(b"k", b"new", priority=50))
    (new,) = world.find(b"k")
    assert listed(world) == [(1, 0), (2, 1)]
    assert (new.value, new.priority, new.inserted_us) == (b"new", 10, old.inserted_us)
    assert new.row > old.row
    turn(world)
    assert listed(world) == [(2, 1)]
    assert world.totals() == (1, 0, 0)
    world.push(New(b"k", b"newest"))
    assert world.waiting(b"k").row == new.row
    world.check()


# -- declared anew --------------------------------------------------------------------------------

OLD = (("a", "string", False),)
NEW = (("a", "string", False), ("b", "int32", False))


@pytest.mark.req("SJ-04")
def test_other_columns_begin_a_generation_and_the_old_one_keeps_its_own() -> None:
    world = JobWorld(period=Period.DAY, columns=OLD)
    assert isinstance(declare(world, period=Period.DAY, columns=NEW), commands.Done)
    one, two = world.generations[world.tables[TABLE].id]
    first = schema.first_number(world.tables[TABLE].id)
    assert (one.schema, two.schema) == (first, first + 1)
    settings = jobs.decode_settings(world.tables[TABLE].settings)
    assert (settings.schema, settings.columns) == (first + 1, NEW)
    assert settings.earlier == ((first, OLD),)
    # The same again is the same, with or without the flag.
    seq = world.next_seq
    assert isinstance(declare(world, period=Period.DAY, columns=NEW), commands.Done)
    encoded = jobs.Settings(period=Period.DAY, columns=NEW).encode()
    assert isinstance(world.create(encoded), commands.Done)
    assert world.next_seq == seq
    assert listed(world.replayed()) == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"period": Period.DAY}, "has no period"),
        ({"period": Period.DAY}, {"lease_us": 1_000_000}, "but not removed"),
        ({"period": Period.DAY}, {"period": Period.DAY, "merge": False}, "merge of table"),
        (
            {"period": Period.DAY},
            {"period": Period.DAY, "fairness": jobs.Fairness.DOMAIN},
            "fairness of table",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused(
    before: dict[str, Any], after: dict[str, Any], text: str
) -> None:
    world = JobWorld(**{"lease_us": 2_000_000, **before})
    trees = world.trees()
    reply = declare(world, **after)
    assert isinstance(reply, Refusal)
    assert reply.code is Code.EXISTS
    assert text in reply.text
    assert world.trees() == trees


def test_the_number_of_generations_is_bounded(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GENERATIONS_MAX", 3)
    for hour in range(5):
        world.push(b"%d" % hour)
        turn(world, 3600)
    assert listed(world) == [(1, 1), (2, 1), (3, 3)]
    assert code_of(declare(world, period=Period.DAY)) is Code.QUOTA
    world.cancel(b"0")
    turn(world)
    assert [number for number, _ in listed(world)] == [2, 3, 4]


def test_so_many_columns_that_settings_are_too_long_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = JobWorld(period=Period.DAY, columns=OLD)
    encoded = jobs.Settings(period=Period.DAY, columns=NEW).encode()
    monkeypatch.setattr(limits, "SETTINGS_BYTES_MAX", len(encoded) + 10)
    assert code_of(declare(world, period=Period.DAY, columns=NEW)) is Code.TOO_LARGE


@pytest.mark.req("SJ-04")
def test_rows_that_were_staged_with_old_columns_are_not_stuck() -> None:
    world = JobWorld(period=Period.DAY, columns=OLD)
    number = schema.first_number(world.tables[TABLE].id)
    row = number.to_bytes(2, "little") + b"\0" + (1).to_bytes(4, "little") + b"x"
    stale = push_command([New(b"k", row, type=6)], world.now_us)
    staged = world.run(commands.Stage(rows=stale))
    assert isinstance(staged, commands.Done), staged
    declare(world, period=Period.DAY, columns=NEW)
    assert code_of(world.run(stale)) is Code.STALE_SCHEMA
    assert code_of(world.run(commands.Stage(rows=stale))) is Code.STALE_SCHEMA
    commit = commands.CommitStages(table=TABLE, writer="w", batch=1, stages=[staged.seq])
    reply = world.run(commit)
    assert isinstance(reply, commands.Committed)
    assert reply.left == 1
    reply = world.run(staging.RunStage(table=world.tables[TABLE].id, name=b"w"))
    assert isinstance(reply, commands.Committed), reply
    assert (reply.left, world.waiting(b"k").value) == (0, row)
    assert listed(world) == [(1, 0), (2, 1)]


@pytest.mark.req("SJ-04")
def test_a_client_gives_no_numbers_to_schemas() -> None:
    """So none has a number after which there is no other, and none is said to be another's."""
    world = JobWorld(period=Period.DAY, columns=OLD, schema=schema.NUMBER_MAX)
    first = schema.first_number(world.tables[TABLE].id)
    assert jobs.decode_settings(world.tables[TABLE].settings).schema == first
    lie = {"schema": 7, "earlier": ((first, NEW),)}
    assert isinstance(declare(world, period=Period.DAY, columns=NEW, **lie), commands.Done)
    settings = jobs.decode_settings(world.tables[TABLE].settings)
    assert (settings.schema, settings.earlier) == (first + 1, ((first, OLD),))


def test_behind_the_last_number_of_a_schema_is_one_that_is_free() -> None:
    last = schema.NUMBER_MAX
    old = jobs.Settings(period=Period.DAY, columns=NEW, schema=last, earlier=((1, OLD),))
    table = Table(id=1, name=TABLE, kind=Kind.JOBS, settings=old.encode())
    changed = generations.changed(table, jobs.Settings(period=Period.DAY, columns=OLD), ())
    assert isinstance(changed, Table)
    settings = jobs.decode_settings(changed.settings)
    assert (settings.schema, settings.earlier) == (2, ((1, OLD), (last, NEW)))


@pytest.mark.req("SJ-04")
def test_a_table_that_is_made_anew_does_not_take_rows_of_the_old_one() -> None:
    """Nor has it rows that one who knows the old columns takes for such."""
    world = JobWorld(columns=OLD)
    number = schema.first_number(world.tables[TABLE].id)
    row = number.to_bytes(2, "little") + b"\0" + (1).to_bytes(4, "little") + b"x"
    push = push_command([New(b"k", row, type=6)], world.now_us)
    assert isinstance(world.run(push), commands.Done)
    world.run(DropTable(name=TABLE))
    world.create(jobs.Settings(columns=(("other", "binary", False),)).encode())
    assert code_of(world.run(push)) is Code.STALE_SCHEMA


@pytest.mark.req("SJ-04")
def test_columns_are_remembered_as_long_as_a_generation_has_them() -> None:
    world = JobWorld(period=Period.DAY, columns=OLD)
    id_ = world.tables[TABLE].id
    first = schema.first_number(id_)
    oldest = world.generations[id_][:1]
    table = world.tables[TABLE]
    for columns in (NEW, OLD) * generations.EARLIER_MAX:
        settings = jobs.Settings(period=Period.DAY, columns=columns)
        changed = generations.changed(table, settings, oldest)
        assert isinstance(changed, Table)
        table = changed
    earlier = [number for number, _ in jobs.decode_settings(table.settings).earlier]
    assert len(earlier) == generations.EARLIER_MAX
    assert earlier[:2] == [first, first + generations.EARLIER_MAX + 1]
    needed = [oldest[0]._replace(schema=number) for number in (*earlier, earlier[-1] + 1)]
    with pytest.raises(RefusedError) as refused:
        generations.changed(table, jobs.Settings(period=Period.DAY, columns=NEW), needed)
    assert refused.value.code is Code.QUOTA


# -- ids ------------------------------------------------------------------------------------------


def test_a_dropped_table_takes_its_generations_along(world: JobWorld) -> None:
    world.push(b"k")
    turn(world, 3600)
    table_id = world.tables[TABLE].id
    world.run(DropTable(name=TABLE))
    assert world.generations[table_id] == ()
    assert not world.scan(0, *generations.key_range(), 100)
    seq = 0
    while seq != world.next_seq:
        seq = world.next_seq
        world.run(catalog.Sweep(limit=100))
    world.create(jobs.Settings(period=Period.HOUR).encode())
    assert world.tables[TABLE].id > table_id
    assert listed(world) == [(1, 0)]
    assert world.replayed().trees() == world.trees()


def test_no_id_of_a_table_is_given_twice(world: JobWorld) -> None:
    """Not even if a generation had a larger one when the table was forgotten."""
    world.create(b"", table="other")
    other = world.tables["other"].id
    world.push(b"k")
    turn(world, 3600)
    assert world.generations[world.tables[TABLE].id][-1].id > other
    for name in ("other", TABLE):
        world.run(DropTable(name=name))
        for _ in range(5):
            world.run(catalog.Sweep(limit=100))
    for number in range(5):
        world.create(b"", table=f"t{number}")
    assert min(table.id for table in world.tables.values()) > other


def test_generations_that_were_lost_to_damage_begin_again(world: JobWorld) -> None:
    world.push(b"k")
    world.run(Turn())
    world.generations = {}
    turn(world)
    (one,) = world.generations[world.tables[TABLE].id]
    assert (one.number, one.schema) == (1, 1)
    world.recount()
    assert listed(world) == [(1, 1)]


def test_settings_say_what_a_period_is() -> None:
    world = JobWorld()
    for wrong in (b'{"period":"week"}', b'{"drained":"keep"}', b'{"secure":1}', b'{"period":1}'):
        assert code_of(world.create(wrong)) is Code.BAD_SETTINGS
    assert jobs.decode_settings(b'{"period":"hour"}') == jobs.Settings(period=Period.HOUR)


# -- when generations begin and end ---------------------------------------------------------------

YEAR = 366 * DAY


def numbers(world: JobWorld) -> list[int]:
    return [one.number for one in world.generations[world.tables[TABLE].id]]


def turn_once(world: JobWorld) -> list[Opcode]:
    """Turns once; returns the ops."""
    before = len(world.ops())
    assert isinstance(world.run(Turn()), commands.Done)
    return [op.opcode for op in world.ops()[before:]]


def due_us(world: JobWorld) -> int | None:
    periods = generations.periods(world.tables)
    return generations.due_us(periods, world.generations, world.job_counts, world.now_us)


@pytest.mark.req("SJ-18")
def test_a_generation_begins_with_the_next_period_if_the_last_one_was_used(world: JobWorld) -> None:
    assert due_us(world) is None
    world.now_us += HOUR
    assert turn_once(world) == []
    world.now_us -= HOUR
    world.push(b"k")
    end_us = NOW_US - NOW_US % HOUR + HOUR
    assert due_us(world) == end_us
    world.now_us = end_us - 1
    assert turn_once(world) == []
    world.now_us = end_us
    assert due_us(world) == 0
    assert turn_once(world) == [Opcode.GENERATION]
    assert turn_once(world) == []
    assert due_us(world) is None
    assert numbers(world) == [1, 2]


def test_a_clock_that_was_set_back_a_little_is_waited_for(world: JobWorld) -> None:
    world.push(b"k")
    world.now_us -= HOUR
    assert turn_once(world) == []
    assert due_us(world) == NOW_US - NOW_US % HOUR + HOUR
    world.now_us = NOW_US
    assert turn_once(world) == []


def test_a_clock_that_was_a_year_ahead_is_not_waited_for(world: JobWorld) -> None:
    world.now_us += YEAR
    world.push(b"a")
    assert turn_once(world) == [Opcode.GENERATION]
    world.push(b"b")
    world.now_us = NOW_US
    assert due_us(world) == 0
    assert turn_once(world) == [Opcode.GENERATION]
    assert turn_once(world) == []
    world.push(b"c")
    assert due_us(world) == NOW_US - NOW_US % HOUR + HOUR


@pytest.mark.req("SJ-18", "SJ-19", "SJ-20")
@pytest.mark.parametrize(
    ("drained", "gives_back", "drops_history"),
    [(Drained.DELETE, True, True), (Drained.TRUNCATE, True, False), (Drained.RESET, False, False)],
)
def test_what_is_left_of_a_generation(
    drained: Drained, *, gives_back: bool, drops_history: bool
) -> None:
    world = JobWorld(period=Period.HOUR, drained=drained)
    table = world.tables[TABLE]
    world.push(b"k")
    world.now_us += HOUR
    turn_once(world)
    (_, new) = world.generations[table.id]
    assert generations.given_back_seq(world.tables, world.generations) == 0
    assert generations.history_begins(table, world.generations[table.id]) == 0
    world.cancel(b"k")
    turn_once(world)
    first_row = new.first_row
    assert generations.given_back_seq(world.tables, world.generations) == first_row * gives_back
    found = generations.history_begins(table, world.generations[table.id])
    assert found == first_row * drops_history
    assert generations.history_begins(table, ()) == 0


def test_jobs_move_in_the_order_in_which_their_pushes_are_accepted(world: JobWorld) -> None:
    world.push(b"a", b"b")
    turn(world, 3600)
    world.push(New(b"b", stamp_us=NOW_US - 1), b"a", b"b")  # the first is too old to count
    assert world.waiting(b"a").row < world.waiting(b"b").row
    world.check()
