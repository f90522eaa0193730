"""Small writes of neighbours, decided as one: the same state as one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fjord.columns import Strings
from fjord.commands import (
    Acted,
    Append,
    Command,
    CreateTable,
    Done,
    Finish,
    Messages,
    Next,
    Numbered,
    Read,
    Reply,
    Set,
    Taken,
)
from fjord.engine import Engine, ReadOnlyEngine, execution
from fjord.errors import Code
from fjord.kinds import Kind
from fjord.ops import Opcode
from fjord.testing import SimClock
from fjord.values import Value
from tests.unit.engine.test_jobs import push
from tests.unit.engine.world import open_at, settings
from tests.unit.tables.world import World, code_of, set_command

Items = list[tuple[bytes, Value]]


def test_what_is_refused_alone_is_not_hidden_among_neighbours() -> None:
    """A batch of nothing adds nothing to a run, and would be answered as if it were good."""
    assert execution._merge_key(set_command([])) is None


# Each command writes keys that no other one of the run writes.
runs = st.lists(
    st.tuples(st.lists(st.integers(0, 99), min_size=1, max_size=3), st.integers(-5, 5)),
    min_size=1,
    max_size=6,
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(before=runs, run=runs)
def test_a_merged_run_comes_to_the_same_values_as_one_after_the_other(
    before: list[tuple[list[int], int]], run: list[tuple[list[int], int]]
) -> None:
    commands = _commands(run)
    merged = execution._merged(commands)
    assert merged is not None
    together, apart = World(), World()
    for world in (together, apart):
        for command in _commands(before):
            world.run(command)
    last = [apart.run(command) for command in commands][-1]
    reply = together.run(merged)
    assert reply == last
    assert isinstance(reply, Done)
    keys = [key for command in commands for key in command.keys]
    assert together.get(*keys) == apart.get(*keys)
    assert together.trees()[1] == apart.trees()[1]


def _commands(run: list[tuple[list[int], int]]) -> list[Set]:
    made: list[Set] = []
    for number, (values, at) in enumerate(run):
        items: Items = [(b"%d-%d" % (number, row), value) for row, value in enumerate(values)]
        made.append(set_command(items, at=at))
    return made


# -- what is decided together in an engine --------------------------------------------------------

CLIENT = b"c" * 16


def numbered(*found: Command, first: int = 1) -> list[Numbered]:
    return [
        Numbered(command=command, client=CLIENT, number=number)
        for number, command in enumerate(found, first)
    ]


def run_some(engine: Engine, wanted: Sequence[Command]) -> list[Reply]:
    """Runs commands, which have to fit one frame."""
    replies = engine.run_some(wanted)
    assert len(replies) == len(wanted)
    return replies


def ops_since(engine: Engine, seq: int) -> list[list[tuple[Opcode, int]]]:
    """Returns opcode and rows of all ops behind a seq, frame by frame."""
    engine.sync()
    found = engine.journal.frames(seq + 1, durable_seq=engine.durable_seq)
    return [[(op.opcode, op.rows) for op, _ in located.ops()] for located in found]


@pytest.fixture
def engine(tmp_path: Path, clock: SimClock) -> Iterator[Engine]:
    with contextlib.closing(open_at(tmp_path, clock)) as one:
        for name, kind, settings_ in (
            ("jobs", Kind.JOBS, b""),
            ("log", Kind.STREAM, b""),
            ("latest", Kind.STREAM, b'{"mode":"latest"}'),
        ):
            (reply,) = one.run([CreateTable(name=name, kind=kind.number, settings=settings_)])
            assert isinstance(reply, Done), reply
        yield one


def append_of(*values: bytes, table: str = "log") -> Append:
    found = Strings.of(values)
    return Append(table=table, types=b"\1" * len(values), keys=found, values=found)


def waiting(engine: Engine) -> int:
    return engine.job_counts()["jobs"].waiting


def test_numbered_pushes_are_one_op_and_their_answers_another(
    engine: Engine, clock: SimClock
) -> None:
    before = engine.applied_seq
    wanted = numbered(*[push(clock, b"k%d" % row) for row in range(64)])
    replies = run_some(engine, wanted)
    assert all(isinstance(reply, Done) for reply in replies)
    assert ops_since(engine, before) == [[(Opcode.JOB_ADD, 64), (Opcode.ANSWERED, 64)]]
    assert waiting(engine) == 64
    after = engine.applied_seq
    assert run_some(engine, wanted) == replies  # each answer was kept
    assert engine.applied_seq == after


def test_one_that_is_refused_refuses_nobody_else(engine: Engine, clock: SimClock) -> None:
    keys = [b"a", b"b", b"", b"c"]
    wanted = numbered(*[push(clock, key) for key in keys])
    replies = run_some(engine, wanted)
    assert [isinstance(reply, Done) for reply in replies] == [True, True, False, True]
    refusal = replies[2]
    assert code_of(refusal) is Code.EMPTY_KEY
    assert waiting(engine) == 3
    assert run_some(engine, wanted) == replies
    assert waiting(engine) == 3


@pytest.mark.parametrize("is_numbered", [False, True])
def test_each_append_gets_the_seq_of_its_own_last_message(
    engine: Engine, is_numbered: bool
) -> None:
    before = engine.applied_seq
    found = [append_of(b"a"), append_of(b"b", b"c", b"d"), append_of(b"e", b"f")]
    wanted = numbered(*found) if is_numbered else found
    replies = run_some(engine, wanted)
    (ops,) = ops_since(engine, before)
    assert ops == [(Opcode.STREAM_APPEND, 6), (Opcode.ANSWERED, 3)][: 1 + is_numbered]
    seqs = [reply.seq for reply in replies if isinstance(reply, Done)]
    assert seqs == [before + 1, before + 4, before + 6]
    if is_numbered:
        assert run_some(engine, wanted) == replies
        assert ops_since(engine, engine.applied_seq) == []


def test_each_finish_gets_what_it_misses_itself(engine: Engine, clock: SimClock) -> None:
    run_some(engine, [push(clock, b"k%d" % row) for row in range(4)])
    (taken,) = engine.run([Next(table="jobs", count=4)])
    assert isinstance(taken, Taken)
    first = taken.first_xid
    wanted = numbered(
        Finish(table="jobs", xids=[first]),
        Finish(table="jobs", xids=[999, first + 1, first + 2]),
        Finish(table="jobs", xids=[first + 3, 998, first]),
    )
    for _ in range(2):  # the second time each is told what was kept
        found = [reply for reply in run_some(engine, wanted) if isinstance(reply, Acted)]
        assert [list(reply.missing) for reply in found] == [[], [0], [1, 2]]
    assert engine.job_counts()["jobs"].taken == 0


@pytest.mark.req("FJ-35")
def test_a_retry_among_its_neighbours_is_applied_once(engine: Engine) -> None:
    first, second, third = numbered(append_of(b"a"), append_of(b"b"), append_of(b"c"))
    before = engine.applied_seq
    replies = run_some(engine, [first, second, second, third])
    assert replies[1] == replies[2]
    (read,) = engine.run([Read(table="log", after=0)])
    assert isinstance(read, Messages)
    assert read.rows == 3
    assert [op for (op, _) in ops_since(engine, before)[0]].count(Opcode.STREAM_APPEND) == 3
    mixed = run_some(engine, [second, *numbered(append_of(b"d"), first=4)])  # one is known
    assert mixed[0] == replies[1]
    (read,) = engine.run([Read(table="log", after=0)])
    assert isinstance(read, Messages)
    assert read.rows == 4


@pytest.mark.parametrize("table", ["log", "latest"])
def test_a_reader_of_a_directory_reads_without_a_word(
    engine: Engine, tmp_path: Path, clock: SimClock, table: str
) -> None:
    run_some(engine, [append_of(b"a", b"b", table=table)])
    engine.close()
    sizes = {path: path.stat().st_size for path in (tmp_path / "journal").iterdir()}
    with contextlib.closing(ReadOnlyEngine(str(tmp_path), settings(clock))) as reader:
        (reply,) = reader.run([Read(table=table, after=0, count=1)])
    assert isinstance(reply, Messages)
    assert reply.rows == 1
    assert {path: path.stat().st_size for path in (tmp_path / "journal").iterdir()} == sizes
