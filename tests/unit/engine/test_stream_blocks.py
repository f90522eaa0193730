"""Streams whose history is in cold blocks, on an engine: nobody who reads sees a difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import commands
from fjord.commands import DropTable, Position
from fjord.streams import Start
from fjord.tables.state import Tree
from tests.unit.engine.stream_shell import Shell

SECOND = 1_000_000


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


@pytest.mark.req("JQ-01", "JQ-02")
def test_history_is_endless(shell: Shell) -> None:
    shell.create("log", block_rows=50)
    rows = [("k", str(number)) for number in range(400)]
    moments = []
    for start in range(0, 400, 20):
        shell.append("log", *rows[start : start + 20])
        moments.append(shell.clock.wall_us())
    shell.seal()
    shell.tend()
    assert shell.count(Tree.STREAM_OPS) == 0
    shell.append("log", ("k", "hot"))
    assert shell.read_all("log") == [*rows, ("k", "hot")]
    for part in (0, 7, 19):
        mark = shell.subscribe("log", f"from{part}", Start.TIME, moments[part])
        assert shell.read_all("log", mark.seq) == [*rows[20 * part :], ("k", "hot")]
        assert shell.lag("log", f"from{part}") == 401 - 20 * part


def test_what_is_forgotten_in_part_counts_in_full(shell: Shell) -> None:
    """Index entries of what is in blocks go bit by bit; meanwhile nobody sees a difference."""
    shell.create("log", block_rows=100_000)
    count, moments = 1500, []
    for number in range(count):
        shell.append("log", ("", str(number)))
        moments.append(shell.clock.wall_us())
    shell.subscribe("log", "s")
    shell.seal()
    seen: set[int] = set()
    while shell.engine.upkeep():
        shell.engine.sync()
        left = shell.count(Tree.STREAM_OPS)
        if left in seen:
            continue
        seen.add(left)
        assert shell.lag("log", "s") == count
        for number in (0, 500, count - 1 - left, min(count - 1, count - left), count - 1):
            command = commands.Seek(
                table="log", name="s", start=Start.TIME, at=moments[max(0, number)]
            )
            mark = shell.run(command)
            assert isinstance(mark, Position)
            assert len(shell.read_all("log", mark.seq)) == count - max(0, number)
        shell.run(commands.Seek(table="log", name="s", start=Start.BEGINNING))
    assert 0 in seen
    assert len(seen) > 1


def test_blocks_adjoin_where_nothing_was_sealed_in_between(shell: Shell) -> None:
    """Whoever reads blocks in order can tell that none is missing."""
    shell.append("log", ("a", "1"))
    (first,) = shell.seal()
    shell.append("other", ("a", "1"))
    shell.restart()
    shell.seal()  # that of the log has no rows, so it makes no block
    assert [block.name for block in shell.engine.sealing.blocks("log")] == [first.name]
    shell.append("log", ("a", "2"))
    (second,) = shell.seal("log")
    assert second.first == first.last + 1
    assert second.rows == 1
    shell.tend()
    assert shell.read_all("log") == [("a", "1"), ("a", "2")]


def test_a_stream_that_is_dropped_while_blocks_are_written_leaves_none(shell: Shell) -> None:
    shell.append("log", ("a", "1"))
    shell.append("other", ("a", "1"))
    plan = shell.engine.sealing.plan_seal(now=True)
    assert plan is not None
    shell.engine.sync()
    shell.run(DropTable(name="log"))
    shell.tend()
    shell.engine.sealing.finish_seal(plan, shell.shore.write(shell.engine, plan))
    shell.tend()
    shell.shore.retire(shell.engine)
    kept = [block.name for block in shell.engine.sealing.blocks("other")]
    assert shell.shore.store.names() == kept
    assert shell.read_all("other") == [("a", "1")]


def test_sealing_is_due_by_rows_and_by_age(shell: Shell) -> None:
    shell.create("log", block_rows=10, block_age_us=60 * SECOND)
    shell.seal()
    assert shell.engine.sealing.due_us() is None
    shell.append("log", ("", "1"))
    due_us = shell.engine.sealing.due_us()
    assert due_us is not None
    assert 0 < due_us - shell.clock.wall_us() <= 60 * SECOND
    assert shell.engine.sealing.plan_seal() is None
    shell.append("log", *[("", "1")] * 10)
    due_us = shell.engine.sealing.due_us()
    assert due_us is not None
    assert due_us <= shell.clock.wall_us()
    assert shell.engine.sealing.plan_seal() is not None
