"""Streams on an engine: one story for each promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import commands, limits
from fjord.errors import Code
from fjord.streams import Mode, Start
from fjord.tables.state import Tree
from tests.unit.engine.stream_shell import Shell, append, batch, entries_of, rows_of, seqs_of


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


# -- passes ---------------------------------------------------------------------------------------


@pytest.mark.req("KY-15")
def test_a_cold_key_waits_for_one_pass_however_hot_the_others_are(shell: Shell) -> None:
    shell.create("latest", mode=Mode.LATEST)
    shell.append("latest", *[(f"key{number}", "1") for number in range(10)])
    after, until, found = 0, 0, []
    for number in range(20):
        shell.append("latest", ("hot", str(number)), ("key9", f"again{number}"))
        reply = shell.read("latest", after, until, 1)
        found += rows_of(reply)
        after, until = reply.after, reply.until
        if reply.ended:
            break
    # The first append of the loop was there when the pass began; the later ones were not.
    expected = [*[(f"key{number}", "1") for number in range(9)], ("hot", "0"), ("key9", "again0")]
    assert found == expected
    assert shell.read_all("latest", after) == [("hot", "10"), ("key9", "again10")]


@pytest.mark.req("KY-17")
def test_a_pass_never_ends_inside_a_transaction(shell: Shell) -> None:
    shell.create("latest", mode=Mode.LATEST)
    shell.append("log", ("a", "1"))
    found = [append("log", ("t", "1"), ("t", "2")), append("latest", ("t", "1"))]
    reply = shell.run(batch([*found, append("log", ("t", "3"))]))
    assert isinstance(reply, commands.Replies)
    log, latest, last = (one.seq for one in reply.replies if isinstance(one, commands.Done))
    assert log < latest < last
    piece = shell.read("log", count=2)
    assert rows_of(piece) == [("a", "1"), ("t", "1")]
    assert not piece.ended
    assert piece.until >= last
    assert shell.read_all("log", piece.after) == [("t", "2"), ("t", "3")]


# -- subscribers ----------------------------------------------------------------------------------


@pytest.mark.req("KY-14", "KY-16")
def test_a_mark_moves_by_acknowledgements_alone(shell: Shell) -> None:
    """Nothing moves by reading.  An acknowledgement goes anywhere, and only forward."""
    shell.append("log", ("a", "1"), ("b", "2"), ("c", "3"))
    mark = shell.subscribe("log", "s")
    for _ in range(2):
        piece = shell.read("log", mark.seq, count=2)
        assert rows_of(piece) == [("a", "1"), ("b", "2")]
    assert shell.lag("log", "s") == 3
    middle = commands.Acknowledge(table="log", name="s", seq=seqs_of(piece)[0], epoch=mark.epoch)
    assert isinstance(shell.run(middle), commands.Position)
    assert shell.lag("log", "s") == 2
    shell.restart()
    again = shell.subscribe("log", "s", Start.END)
    assert (again.seq, again.created) == (middle.seq, False)
    back = commands.Acknowledge(table="log", name="s", seq=0, epoch=again.epoch)
    reply = shell.run(back)
    assert isinstance(reply, commands.Position)
    assert reply.seq == middle.seq


# -- snapshots ------------------------------------------------------------------------------------


@pytest.mark.req("KY-09")
def test_a_snapshot_keeps_only_what_is_replaced(shell: Shell) -> None:
    shell.create("latest", mode=Mode.LATEST)
    for value in ("older", "old"):
        shell.append("latest", *[(f"key{number}", value) for number in range(20)])
    snapshot = shell.snapshot()
    assert shell.count(Tree.VERSIONS) == 0
    for number in range(5):
        shell.append("latest", ("key3", str(number)))
    assert shell.count(Tree.VERSIONS) == 2  # the entry, and its place in the order
    page, read = shell.as_of(
        snapshot, commands.Range(table="latest"), commands.Read(table="latest", after=0)
    )
    assert entries_of(page) == {f"key{number}": "old" for number in range(20)}
    assert isinstance(read, commands.Messages)
    assert rows_of(read) == [(f"key{number}", "old") for number in range(20)]
    shell.run(commands.CloseSnapshot(snapshot=snapshot))
    shell.tend()
    assert shell.count(Tree.VERSIONS) == 0


# -- what else can be asked -----------------------------------------------------------------------


SECOND = 1_000_000


def test_snapshots_are_bounded_in_number_and_time(shell: Shell) -> None:
    too_long = commands.OpenSnapshot(lifetime_us=limits.SNAPSHOT_US_MAX + 1)
    assert shell.refused(too_long) is Code.BAD_TIMEOUT
    opened = [shell.snapshot() for _ in range(limits.SNAPSHOTS_MAX)]
    assert len(set(opened)) == limits.SNAPSHOTS_MAX
    assert shell.refused(commands.OpenSnapshot()) is Code.QUOTA
    shell.clock.advance(limits.SNAPSHOT_US_MAX / SECOND + 1)
    shell.tend()
    gone = commands.AsOf(snapshot=opened[0], commands=[])
    assert shell.refused(gone) is Code.SNAPSHOT_GONE
    assert shell.snapshot() > opened[-1]
