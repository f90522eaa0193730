"""APPEND, ERASE and READ: what comes in comes out, in order, up to the end of a snapshot."""

from __future__ import annotations

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import InBlock, Messages
from fjord.errors import Code
from fjord.tables.state import Tree
from tests.unit.tables.stream_world import StreamWorld, said
from tests.unit.tables.world import code_of


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


def test_of_a_key_that_comes_twice_in_a_batch_the_last_message_counts(world: StreamWorld) -> None:
    world.put("latest", (b"a", b"0"))
    last = world.put("latest", (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3"))
    assert said(world.read("latest")) == [(last - 2, b"b", b"1"), (last, b"a", b"3")]
    world.check()
    assert world.replayed().trees() == world.trees()


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
        (_append("no name"), Code.BAD_NAME),
        (_append("jobs"), Code.WRONG_KIND),
        (commands.Erase(table="log", keys=Strings.of([b"k"])), Code.WRONG_KIND),
        (commands.Erase(table="missing", keys=Strings.of([b"k"])), Code.NOT_FOUND),
        (commands.Erase(table="latest", keys=Strings.of([])), Code.BAD_BATCH),
        (commands.Read(table="missing", after=0), Code.NOT_FOUND),
        (commands.Read(table="jobs", after=0), Code.WRONG_KIND),
        (commands.Read(table="log", after=1000), Code.BAD_RANGE),
    ],
)
def test_what_cannot_be_meant_is_refused(
    world: StreamWorld, command: commands.Command, code: Code
) -> None:
    world.run(commands.CreateTable(name="jobs", kind=2))
    before = world.trees()
    assert code_of(world.run(command)) is code
    assert world.trees() == before


@pytest.mark.parametrize(
    ("types", "values"),
    [
        (b"\2\2", [b"plain", b"text"]),
        (b"\2\2", ["grün".encode(), b""]),
        (b"\1\2", [b"\xff", "grün".encode()]),
        (b"\3\5", [bytes(8), b"\1"]),
    ],
)
def test_values_of_every_type_are_kept(
    world: StreamWorld, types: bytes, values: list[bytes]
) -> None:
    keys = Strings.of([b"", b""])
    command = commands.Append(table="log", types=types, keys=keys, values=Strings.of(values))
    assert code_of(world.run(command)) is None
    assert [value for _, _, value in said(world.read("log"))] == values
