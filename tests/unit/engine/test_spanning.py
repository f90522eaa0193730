"""SPAN: batches of a table's history end where commits end, and say whose history it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Refusal, Span, Spanned
from fjord.engine import scan
from fjord.engine.scan import NO_EPOCH, epoch_of
from fjord.errors import Code
from fjord.streams import Mode
from tests.unit.engine.stream_shell import Shell, set_value


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path / "data")
    yield opened
    opened.close()


def span(shell: Shell, table: str = "log", after: int = 0, **options: Any) -> Spanned:
    reply = shell.engine.scan(Span(table=table, after=after, **options))
    assert isinstance(reply, Spanned), reply
    return reply


def refused(shell: Shell, table: str = "log", after: int = 0, **options: Any) -> Refusal:
    reply = shell.engine.scan(Span(table=table, after=after, **options))
    assert isinstance(reply, Refusal), reply
    return reply


def fill(shell: Shell, *counts: int, table: str = "log") -> list[int]:
    """Commits so many messages each, with others in between; returns where each commit ends."""
    ends = []
    for count in counts:
        ends.append(shell.append(table, *[("k", "v")] * count))
        shell.append("other", ("k", "v"))
    return ends


# -- where a batch ends ---------------------------------------------------------------------------


def test_a_batch_has_all_that_is_durable_unless_something_bounds_it(shell: Shell) -> None:
    ends = fill(shell, 3, 2, 4)
    found = span(shell)
    assert (found.seq, found.rows, found.is_more) == (ends[-1], 9, False)
    assert found.durable_seq == found.examined == shell.engine.durable_seq
    assert found.first_seq == 1
    assert found.wall_us == shell.clock.wall_us() - 1000  # the last commit is that of the other


def test_commits_are_taken_whole_while_they_fit_and_the_first_in_any_case(shell: Shell) -> None:
    ends = fill(shell, 3, 2, 4)
    expected = {1: (0, 3), 3: (0, 3), 4: (0, 3), 5: (1, 5), 8: (1, 5), 9: (2, 9), 99: (2, 9)}
    for rows_max, (last, count) in expected.items():
        found = span(shell, rows_max=rows_max)
        assert (found.seq, found.rows, found.is_more) == (ends[last], count, False)
    one = span(shell, rows_max=1).size
    for bytes_max, last in ((1, 0), (one, 0), (2 * one - 1, 0), (10 * one, 2)):
        assert span(shell, bytes_max=bytes_max).seq == ends[last]


def test_a_batch_ends_at_a_seq_rounded_down_to_the_end_of_a_commit(shell: Shell) -> None:
    ends = fill(shell, 3, 2, 4)
    for until, seq, count in (
        (ends[0] - 1, 0, 0),
        (ends[0], ends[0], 3),
        (ends[1] - 1, ends[0], 3),
        (ends[2] + 100, ends[2], 9),
    ):
        found = span(shell, until=until)
        assert (found.seq, found.rows) == (seq, count)


def test_one_call_looks_at_a_bounded_part(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = fill(shell, 3, 2, 4)
    monkeypatch.setattr(limits, "SCAN_EXAMINED_BYTES_MAX", 1)
    after, found = 0, []
    while True:
        one = span(shell, after=after)
        found.append((one.rows, one.seq))
        if not one.is_more:
            break
        assert one.examined > after
        after = one.examined
    assert sum(count for count, _ in found) == 9
    assert [seq for count, seq in found if count] == ends
    assert after < one.examined == shell.engine.durable_seq


def test_rows_of_history_count_and_nothing_else(shell: Shell) -> None:
    shell.create("latest", mode=Mode.LATEST)
    shell.append("latest", ("a", "1"))
    end = shell.append("latest", ("a", "2"), ("b", "1"))
    shell.subscribe("latest", "reader")
    assert (span(shell, "latest").seq, span(shell, "latest").rows) == (end, 3)
    shell.run(set_value("k", "v", shell.clock.wall_us()))
    key = Strings.of([b"k"])
    shell.run(commands.Touch(table="kv", keys=key, worked_until_us=shell.clock.wall_us() + 10**6))
    touched = shell.engine.durable_seq
    found = span(shell, "kv")
    assert (found.rows, found.seq) == (1, touched - 1)


# -- what is refused ------------------------------------------------------------------------------


def test_what_is_not_there_is_refused(shell: Shell) -> None:
    assert refused(shell, "unknown").code is Code.NOT_FOUND
    assert refused(shell, "not a valid file name").code is Code.BAD_NAME
    fill(shell, 1)
    durable_seq = shell.engine.durable_seq
    assert span(shell, after=durable_seq).rows == 0
    beyond = refused(shell, after=durable_seq + 1)
    assert beyond.code is Code.BAD_RANGE
    assert f"the last one is {durable_seq}" in beyond.text


def packed(shell: Shell) -> int:
    """Seals everything, and packs; returns the seq with which the journal begins."""
    shell.seal()
    shell.tend()
    shell.pack()
    return shell.engine.stats()["first_seq"]


def test_what_left_the_journal_is_refused_with_the_missing_range(shell: Shell) -> None:
    (end,) = fill(shell, 5)
    shell.run(set_value("k", "v", shell.clock.wall_us()))
    shell.create("idle")
    first_seq = packed(shell)
    last = shell.engine.sealing.blocks("log")[-1].last
    assert end <= last < first_seq
    for after in (0, 1, last - 1):
        problem = refused(shell, after=after)
        assert problem.code is Code.BAD_RANGE
        assert f"from seq {after + 1} to {last} are in cold blocks" in problem.text
    gone = refused(shell, "kv", after=1)
    assert gone.code is Code.BAD_RANGE
    assert f"from seq 2 to {first_seq - 1} are gone" in gone.text
    assert span(shell, "kv").rows == 1  # from the beginning of what is left: it was said again
    assert span(shell, "idle", after=1).seq == 1  # it never had a row, so none is missing


def test_who_has_read_all_blocks_misses_nothing(shell: Shell) -> None:
    """However far the journal has gone on without the table."""
    fill(shell, 5)
    packed(shell)
    last = shell.engine.sealing.blocks("log")[-1].last
    for _ in range(2):
        shell.append("other", ("k", "v"))
        first_seq = packed(shell)
    assert last + 1 < first_seq
    for _ in range(2):
        assert span(shell, after=last).seq == last
        shell.restart()
    end = shell.append("log", ("k", "v"))
    assert (span(shell, after=last).seq, span(shell, after=last).rows) == (end, 1)


def test_a_segment_that_goes_meanwhile_is_no_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (end,) = fill(shell, 3)
    frames = shell.engine.journal.frames
    tries = []

    def going(start_seq: int, *, durable_seq: int) -> Any:
        tries.append(start_seq)
        if len(tries) < 3:
            raise FileNotFoundError
        return frames(start_seq, durable_seq=durable_seq)

    monkeypatch.setattr(shell.engine.journal, "frames", going)
    assert span(shell).seq == end
    assert len(tries) == 3
    tries.clear()
    monkeypatch.setattr(scan, "_TRIES", 2)
    with pytest.raises(FileNotFoundError):
        shell.engine.scan(Span(table="log", after=0))


# -- epochs ---------------------------------------------------------------------------------------


def test_a_seq_belongs_to_the_last_takeover_below_it() -> None:
    takeovers = [(b"a" * 16, 0), (b"b" * 16, 40), (b"c" * 16, 75)]
    found = {seq: epoch_of(takeovers, seq)[:1] for seq in (1, 40, 41, 75, 76, 1000)}
    assert found == {1: b"a", 40: b"a", 41: b"b", 75: b"b", 76: b"c", 1000: b"c"}
    assert epoch_of(takeovers, 0) == NO_EPOCH


def test_a_journal_that_was_put_back_is_told_from_the_one_that_was_read(tmp_path: Path) -> None:
    """Whether or not the seqs that were read have been given out again."""
    shell = Shell(tmp_path / "data")
    (kept,) = fill(shell, 2)
    shell.engine.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shell.engine.abandon()
    shell.restart()
    fill(shell, 2, 2)
    read = span(shell)
    shell.close()
    copy = Shell(tmp_path / "copy")
    assert span(copy, after=kept, epoch=span(copy, until=kept).epoch).rows == 0
    assert read.seq > copy.engine.durable_seq
    assert refused(copy, after=read.seq, epoch=read.epoch).code is Code.FORKED
    fill(copy, 9)
    assert read.seq < copy.engine.durable_seq
    assert refused(copy, after=read.seq, epoch=read.epoch).code is Code.FORKED
    copy.close()


def test_a_batch_ends_before_a_moment(shell: Shell) -> None:
    first, second = fill(shell, 3, 2)
    walls = [span(shell, until=seq).wall_us for seq in (first, second)]
    assert walls[0] < walls[1]
    assert span(shell, before_us=walls[1]).seq == first
    assert span(shell, before_us=walls[1] + 1).seq == second
    assert span(shell, before_us=1).rows == 0


def test_what_retention_took_away_is_missed_too(shell: Shell) -> None:
    shell.create("log", retention_us=1_000_000)
    fill(shell, 5)
    last = shell.seal("log")[-1].last
    packed(shell)
    shell.clock.advance(10)
    assert len(shell.shore.retire(shell.engine)) == 1
    problem = refused(shell, after=last - 1)
    assert problem.code is Code.BAD_RANGE
    assert f"from seq {last} to {last} are in cold blocks" in problem.text
    assert "removed by retention" in problem.text
    assert span(shell, after=0).rows == 0  # the beginning is that of what is left
