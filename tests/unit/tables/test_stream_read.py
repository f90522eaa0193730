"""APPEND, ERASE and READ: what comes in comes out, in order, up to the end of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Done, Entries, InBlock, Messages, Stage
from fjord.errors import Code
from fjord.ops import Opcode
from fjord.streams import Start
from fjord.tables.state import Tree
from tests.unit.engine.shore import append_command
from tests.unit.tables.stream_world import StreamWorld, said
from tests.unit.tables.world import NOW_US, code_of


@pytest.fixture
def world() -> StreamWorld:
    return StreamWorld.with_tables()


# -- logs -----------------------------------------------------------------------------------------


@pytest.mark.req("JQ-01", "KY-04")
def test_a_log_keeps_every_message_in_one_order(world: StreamWorld) -> None:
    world.put("log", (b"k", b"1"), (b"k", b"2"))
    last = world.append("log", b"3")
    found = world.read("log")
    assert said(found) == [(last - 2, b"k", b"1"), (last - 1, b"k", b"2"), (last, b"", b"3")]
    assert (found.after, found.until, found.ended) == (last, last, True)
    world.check()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 100])
def test_pieces_of_any_size_are_the_whole(world: StreamWorld, count: int) -> None:
    world.append("log", b"1", b"2", b"3")
    world.put("latest", (b"between", b"x"))
    world.append("log", b"4")
    last = world.append("log", b"5", b"6")
    values: list[bytes | None] = []
    after = until = 0
    while True:
        found = world.read("log", after, until, count)
        assert found.rows <= count
        values += [value for _, _, value in said(found)]
        after, until = found.after, found.until
        if found.ended:
            break
    assert values == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert after == until == last


@pytest.mark.parametrize("bytes_max", [1, 3000, 5000, 7000, 20_000])
def test_a_small_append_does_not_overtake_one_that_was_cut(
    world: StreamWorld, bytes_max: int
) -> None:
    world.append("log", b"1" * 3000, b"2" * 3000, b"3" * 3000)
    world.append("log", b"4")
    last = world.append("log", b"5")
    found, after = [], 0
    while after < last:
        reply = world.run(commands.Read(table="log", after=after, bytes_max=bytes_max))
        assert isinstance(reply, Messages)
        found += [value[:1] for _, _, value in said(reply) if value]
        after = reply.after
    assert found == [b"1", b"2", b"3", b"4", b"5"]


def test_what_is_in_a_block_is_looked_up_there_once_it_is_forgotten(world: StreamWorld) -> None:
    last = world.append("log", b"1", b"2")
    world.append("log", b"3")
    world.seal("log", last)
    assert isinstance(world.run(commands.Read(table="log", after=0)), Messages)
    world.sweep()
    reply = world.run(commands.Read(table="log", after=0))
    assert isinstance(reply, InBlock)
    assert (reply.first, reply.last, reply.after, reply.until) == (1, last, 0, world.next_seq - 1)
    assert [value for _, _, value in said(world.read("log", last))] == [b"3"]
    world.check()
    assert world.replayed().trees() == world.trees()


# -- the latest -----------------------------------------------------------------------------------


@pytest.mark.req("KY-05", "KY-06", "KY-07", "KY-08")
def test_a_new_message_takes_the_place_of_the_old_one(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"))
    last = world.put("latest", (b"a", b"2"))
    assert said(world.read("latest")) == [(last - 1, b"b", b"1"), (last, b"a", b"2")]
    assert world.size_of(Tree.STREAM_SEQS) == 2
    world.check()


def test_what_is_erased_leaves_a_tombstone_for_readers(world: StreamWorld) -> None:
    first = world.put("latest", (b"a", b"1"), (b"b", b"1"))
    assert world.erase("latest", b"a", b"missing", b"a") == [1, 2]
    assert said(world.read("latest", first)) == [(first + 1, b"a", None)]
    assert world.erase("latest", b"a") == [0]
    (gone, there) = world.get(b"a", b"b", table="latest")
    assert isinstance(gone, commands.Refusal)
    assert there == b"1"
    world.put("latest", (b"a", b"2"))
    assert [key for _, key, _ in said(world.read("latest"))] == [b"b", b"a"]
    world.check()


@pytest.mark.req("KY-10", "KY-15")
def test_a_pass_in_pieces_sees_what_was_there_when_it_began(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    first = world.read("latest", count=1)
    assert not first.ended
    world.put("latest", (b"b", b"2"), (b"d", b"2"))
    world.erase("latest", b"c")
    rest = world.read("latest", first.after, first.until)
    found = [(key, value) for _, key, value in said(rest)]
    assert found == [(b"b", b"1"), (b"c", b"1")]
    assert rest.ended
    again = world.read("latest", rest.after)
    assert [(key, value) for _, key, value in said(again)] == [
        (b"b", b"2"),
        (b"d", b"2"),
        (b"c", None),
    ]
    assert not world.snapshots
    world.sweep()
    assert world.size_of(Tree.VERSIONS) == 0
    world.check()


def test_a_pass_whose_snapshot_is_over_goes_on_with_another_one(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"1"), (b"b", b"1"))
    first = world.read("latest", count=1)
    world.run(commands.CloseSnapshot(snapshot=first.until))
    world.put("latest", (b"a", b"2"))
    rest = world.read("latest", first.after, first.until)
    assert [(key, value) for _, key, value in said(rest)] == [(b"b", b"1"), (b"a", b"2")]
    assert rest.until > first.until


# -- what cannot be -------------------------------------------------------------------------------


def _append(table: str, **changes: object) -> commands.Append:
    columns = {"types": b"\1", "keys": Strings.of([b"k"]), "values": Strings.of([b"v"])}
    return commands.Append(table=table, **columns | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (_append("log", types=b""), Code.BAD_BATCH),
        (_append("log", types=b"\1\1"), Code.BAD_BATCH),
        (_append("log", types=b"\6"), Code.BAD_TYPE),
        (_append("log", types=b"\2", values=Strings.of([b"\xff"])), Code.BAD_VALUE),
        (_append("log", types=b"\3"), Code.BAD_VALUE),
        (_append("log", types=b"\0"), Code.BAD_TYPE),
        (
            _append("log", values=Strings.of([bytes(limits.VALUE_BYTES_MAX + 1)])),
            Code.VALUE_TOO_LARGE,
        ),
        (_append("log", keys=Strings.of([b"k" * 481])), Code.KEY_TOO_LONG),
        (_append("latest", keys=Strings.of([b""])), Code.EMPTY_KEY),
        (_append("not a valid file name"), Code.BAD_NAME),
        (_append("jobs"), Code.WRONG_KIND),
        (commands.Erase(table="log", keys=Strings.of([b"k"])), Code.WRONG_KIND),
        (commands.Erase(table="missing", keys=Strings.of([b"k"])), Code.NOT_FOUND),
        (commands.Erase(table="latest", keys=Strings.of([])), Code.BAD_BATCH),
        (commands.Read(table="missing", after=0), Code.NOT_FOUND),
        (commands.Read(table="jobs", after=0), Code.WRONG_KIND),
        (commands.Read(table="log", after=1000), Code.BAD_RANGE),
        (commands.Get(table="log", keys=Strings.of([b"a"])), Code.WRONG_KIND),
        (commands.Lock(table="latest", keys=Strings.of([b"a"])), Code.WRONG_KIND),
    ],
)
def test_what_cannot_be_meant_is_refused(
    world: StreamWorld, command: commands.Command, code: Code
) -> None:
    world.run(commands.CreateTable(name="jobs", kind=2))
    before = world.trees()
    assert code_of(world.run(command)) is code
    assert world.trees() == before


# -- APPEND with dates ----------------------------------------------------------------------------

SECOND = 1_000_000
Row = tuple[bytes, bytes, int]  # key, value, seconds after the beginning


def dated(*rows: Row, table: str = "latest") -> commands.Append:
    command = append_command(table, [(key, value) for key, value, _ in rows])
    return replace(command, timestamps_us=[NOW_US + seconds * SECOND for *_, seconds in rows])


def put(world: StreamWorld, *rows: Row) -> int:
    reply = world.run(dated(*rows))
    assert isinstance(reply, Done), reply
    return reply.seq


def found(world: StreamWorld) -> dict[bytes, bytes | None]:
    return {key: value for _, key, value in said(world.read("latest"))}


def dates(world: StreamWorld, *keys: bytes) -> list[int]:
    """Returns the dates of keys, in seconds after the beginning."""
    reply = world.run(commands.Get(table="latest", keys=Strings.of(list(keys))))
    assert isinstance(reply, Entries)
    return [(stamp - NOW_US) // SECOND for stamp in reply.timestamps_us]


def verify(world: StreamWorld) -> None:
    """Asserts that all holds, and that the journal tells the same again."""
    world.check()
    again = StreamWorld(world.journal[: world.begin], world.first_seq)
    again.now_us = world.now_us
    for op, _ in world.placed():
        again.apply(op)
    assert again.trees() == world.trees()


# -- which one wins -------------------------------------------------------------------------------


def test_a_late_message_does_not_replace_a_newer_one(world: StreamWorld) -> None:
    put(world, (b"a", b"new", -10))
    before = world.trees()
    seq = put(world, (b"a", b"late", -20))
    assert seq == world.next_seq - 1
    assert world.trees() == before
    assert found(world) == {b"a": b"new"}
    put(world, (b"a", b"newer", -5))
    assert (found(world), dates(world, b"a")) == ({b"a": b"newer"}, [-5])
    verify(world)


def test_those_that_lose_are_in_no_op_and_get_no_seq(world: StreamWorld) -> None:
    put(world, (b"b", b"new", -1))
    seq = put(world, (b"a", b"1", -9), (b"b", b"late", -9), (b"c", b"1", -9))
    (*_, op) = world.ops()
    assert (op.opcode, op.rows) == (Opcode.STREAM_PUT_AT, 2)
    assert op.column("key") == Strings.of([b"a", b"c"])
    assert seq == world.next_seq - 1
    assert said(world.read("latest"))[1:] == [(seq - 1, b"a", b"1"), (seq, b"c", b"1")]
    verify(world)


def test_in_one_command_the_same_rule_holds_from_row_to_row(world: StreamWorld) -> None:
    put(world, (b"a", b"1", -8), (b"a", b"late", -9), (b"b", b"1", -7), (b"a", b"2", -8))
    assert found(world) == {b"b": b"1", b"a": b"2"}
    assert world.ops()[-1].column("value") == Strings.of([b"1", b"1", b"2"])
    put(world, (b"a", b"late", -9), (b"a", b"3", -5), (b"a", b"4", -6))
    assert found(world) == {b"b": b"1", b"a": b"3"}
    assert world.size_of(Tree.STREAM_SEQS) == world.size_of(Tree.KV) == 2
    verify(world)


# -- what is not about the date -------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "skipped"), [(-2000, 0), (-500, 0), (50, 1), (100, 1)])
def test_a_reader_that_begins_at_a_moment_misses_nothing_for_a_late_date(
    world: StreamWorld, seconds: int, skipped: int
) -> None:
    for key, date in ((b"a", -1000), (b"b", -2000), (b"c", -1500)):
        put(world, (key, b"1", date))
        world.now_us += 100 * SECOND
    mark = world.subscribe("latest", "s", Start.TIME, NOW_US + seconds * SECOND)
    assert [key for _, key, _ in said(world.read("latest", mark.seq))] == [b"a", b"b", b"c"][
        skipped:
    ]


def test_packing_keeps_the_date(world: StreamWorld) -> None:
    put(world, (b"a", b"1", -10), (b"b", b"2", -20))
    world.put("latest", (b"c", b"3"))
    world.pack(len(world.ops()))
    (*_, op) = world.ops()
    assert op.opcode is Opcode.STREAM_MOVE
    assert list(op.column("buried_us")) == [NOW_US - 10 * SECOND, NOW_US - 20 * SECOND, 0]
    put(world, (b"a", b"late", -11), (b"b", b"newer", -19), (b"c", b"late", -1))
    assert found(world) == {b"a": b"1", b"c": b"3", b"b": b"newer"}
    world.pack(len(world.ops()))
    put(world, (b"a", b"late", -11), (b"b", b"late", -20))
    assert found(world) == {b"a": b"1", b"c": b"3", b"b": b"newer"}
    verify(world)


# -- what cannot be -------------------------------------------------------------------------------


AHEAD_US = limits.TIMESTAMP_AHEAD_US_MAX


@pytest.mark.parametrize("table", ["log", "latest", "unknown"])
@pytest.mark.parametrize(
    ("stamps", "code"),
    [
        ([NOW_US, NOW_US + AHEAD_US], None),
        ([limits.TIMESTAMP_US_MIN, NOW_US], None),
        ([NOW_US, NOW_US + AHEAD_US + 1], Code.BAD_TIMESTAMP),
        ([limits.TIMESTAMP_US_MIN - 1, NOW_US], Code.BAD_TIMESTAMP),
        ([0, 0], Code.BAD_TIMESTAMP),
        ([NOW_US], Code.BAD_BATCH),
        ([], Code.BAD_BATCH),
        ([NOW_US] * 3, Code.BAD_BATCH),
    ],
)
def test_dates_that_cannot_be_meant_are_refused_in_every_mode(
    world: StreamWorld, table: str, stamps: Sequence[int], code: Code | None
) -> None:
    command = dated((b"a", b"1", 0), (b"b", b"1", 0), table=table)
    command.timestamps_us = stamps
    before = world.trees()
    assert code_of(world.run(command)) is code
    assert (world.trees() == before) is (code is not None)


# -- all of it ------------------------------------------------------------------------------------


rows_of = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(-4, 4)), min_size=1, max_size=5
)
steps_of = st.lists(
    st.one_of(
        st.tuples(st.just("dated"), rows_of),
        st.tuples(st.sampled_from(["plain", "erase", "pack"]), rows_of),
    ),
    max_size=12,
)


@given(steps_of)
def test_whatever_comes_in_whatever_order_the_newest_date_holds(
    steps: list[tuple[str, list[tuple[bytes, int]]]],
) -> None:
    world = StreamWorld.with_tables()
    model: dict[bytes, tuple[int, bytes | None]] = {}
    for number, (verb, rows) in enumerate(steps):
        value = b"%d" % number
        if verb == "dated":
            put(world, *((key, value, date) for key, date in rows))
            for key, date in rows:
                if date >= model.get(key, (date,))[0]:
                    model[key] = (date, value)
        elif verb == "plain":
            world.put("latest", *((key, value) for key, _ in rows))
            model |= {key: (0, value) for key, _ in rows}
        elif verb == "erase":
            there = {key for key, _ in rows if model.get(key, (0, None))[1] is not None}
            world.erase("latest", *(key for key, _ in rows))
            model |= dict.fromkeys(there, (0, None))
        else:
            world.pack(len(world.ops()) // 2)
        assert found(world) == {key: value for key, (_, value) in model.items()}
        verify(world)


@pytest.mark.parametrize("table", ["log", "latest"])
def test_what_is_staged_has_no_dates(world: StreamWorld, table: str) -> None:
    command = dated((b"a", b"1", -1), table=table)
    assert code_of(world.run(Stage(rows=command))) is Code.BAD_BATCH


@pytest.mark.req("KY-11")
def test_the_end_of_a_snapshot_is_told_with_its_last_message(world: StreamWorld) -> None:
    world.append("log", b"1", b"2")
    assert not world.read("log", count=1).ended
    assert world.read("log", count=2).ended
