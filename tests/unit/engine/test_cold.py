"""Commands that lead into cold blocks: what is asked, what is run again, what is answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Refusal
from fjord.engine.cold import Errand, LazyCold
from fjord.errors import Code, CorruptionError, FjordError
from fjord.streams import Start
from tests.unit.tables.world import code_of

WHERE = commands.InBlock(table=7, first=1, last=100, name="t-7/one", after=40, until=500, crc=5)
DONE = commands.Done(master=bytes(16), seq=1)
READ = commands.Read(table="t", after=40, subscriber="s")


def messages(after: int, rows: int, until: int = 500) -> commands.Messages:
    return commands.Messages(
        first_seqs=[],
        walls_us=[],
        ops=Strings.of([]),
        after=after,
        until=until,
        ended=after == until,
        rows=rows,
    )


class Blocks:
    """A cold reader that answers as the test says, and remembers what it was asked."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[object, ...]] = []
        self.rested: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.is_closed = False

    def _answer(self, *asked: object) -> object:
        self.asked.append(asked)
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def read(self, where: commands.InBlock, command: commands.Read) -> commands.Messages:
        found = self._answer(where, command)
        assert isinstance(found, commands.Messages)
        return found

    def locate(self, where: commands.InBlock, wall_us: int) -> int:
        found = self._answer(where, wall_us)
        assert isinstance(found, int)
        return found

    def count_after(self, where: commands.InBlock, after: int) -> int:
        found = self._answer(where, after)
        assert isinstance(found, int)
        return found

    def rest(self, table: str, subscriber: str) -> None:
        self.rested.append((table, subscriber))

    def forget(self, table: str) -> None:
        self.forgotten.append(table)

    def stats(self) -> dict[str, int]:
        return {"cold_bytes": 5}

    def close(self) -> None:
        self.is_closed = True


def follow(
    command: commands.Command, cold: Blocks | None, *replies: commands.Reply
) -> tuple[commands.Reply, list[commands.Command]]:
    """Returns what is answered, and what was run, if the engine answers like this."""
    errand, ran = Errand(command), []
    rest = list(replies)
    while True:
        ran.append(errand.command)
        answer = errand.take(rest.pop(0))
        if answer is None:
            answer = errand.look(None if cold is None else LazyCold(lambda: cold))
        if answer is not None:
            assert not rest
            return answer, ran


def test_a_block_with_nothing_to_read_is_passed_over() -> None:
    found = messages(500, 3)
    answer, ran = follow(READ, Blocks(messages(100, 0)), WHERE, found)
    assert answer == found
    assert ran == [READ, dataclasses.replace(READ, after=100)]


@pytest.mark.parametrize("kind", [commands.Subscribe, commands.Seek])
def test_a_moment_becomes_a_seq(kind: Callable[..., commands.Command]) -> None:
    command = kind(table="t", name="s", start=Start.TIME, at=1_700_000)
    position = commands.Position(seq=41, epoch=0, asleep=False, created=True)
    cold = Blocks(41)
    answer, ran = follow(command, cold, WHERE, position)
    assert answer == position
    assert ran == [command, kind(table="t", name="s", start=Start.SEQ, at=42)]
    assert cold.asked == [(WHERE, 1_700_000)]


def test_a_lag_counts_in_blocks_and_behind_them() -> None:
    command = commands.Lag(table="t", name="s")
    numbers = commands.Numbers(names=Strings.of([b"messages", b"seqs"]), values=[1000, 4000])
    answer, ran = follow(command, Blocks(17), WHERE, numbers)
    assert ran == [command, commands.Lag(table="t", name="s", after=100)]
    assert isinstance(answer, commands.Numbers)
    assert answer.names == numbers.names
    assert list(answer.values) == [1017, 4060]


def large(size: int) -> commands.Messages:
    return dataclasses.replace(messages(60, 20), ops=Strings.of([bytes(size)]))


def test_reads_of_a_snapshot_end_where_an_answer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 1000)
    command = commands.AsOf(snapshot=500, commands=[READ] * 4)
    blocks = Blocks(*[large(300)] * 4)
    answer, _ = follow(command, blocks, commands.Replies(replies=[WHERE, WHERE, large(401), WHERE]))
    assert code_of(answer) is Code.TOO_LARGE
    assert len(blocks.asked) == 2  # the last one is not even read
    fits = commands.Replies(replies=[WHERE, WHERE, large(100), WHERE])
    answer, _ = follow(command, Blocks(*[large(300)] * 3), fits)
    assert answer == commands.Replies(replies=[large(300), large(300), large(100), large(300)])


def test_a_damaged_block_is_refused_by_its_name() -> None:
    damage = CorruptionError("blocks/t-7/one.parquet", 0, "its checksum is wrong")
    answer, _ = follow(READ, Blocks(damage), WHERE)
    assert isinstance(answer, commands.Refusal)
    assert answer.code is Code.CORRUPT
    assert "t-7/one.parquet" in answer.text


def test_a_block_that_has_just_gone_is_not_named_again() -> None:
    found = messages(500, 3)
    answer, ran = follow(READ, Blocks(FileNotFoundError()), WHERE, found)
    assert (answer, ran) == (found, [READ, READ])


def test_a_block_that_is_lost_is_refused_by_its_name() -> None:
    lost = FileNotFoundError()
    answer, ran = follow(READ, Blocks(lost, lost), WHERE, WHERE)
    assert isinstance(answer, commands.Refusal)
    assert (answer.code, len(ran)) == (Code.FAILED, 2)
    assert "t-7/one" in answer.text


@pytest.mark.parametrize("error", [OSError("no network"), FjordError("cold blocks need pyarrow")])
def test_a_location_that_cannot_be_reached_is_a_refusal(error: Exception) -> None:
    answer, _ = follow(READ, Blocks(error), WHERE)
    assert isinstance(answer, commands.Refusal)
    assert answer.code is Code.FAILED
    assert str(error) in answer.text


# -- a reader that is made late -------------------------------------------------------------------


def test_a_library_that_is_missing_is_named() -> None:
    def make() -> Blocks:
        raise ModuleNotFoundError("no module", name="pyarrow")

    with pytest.raises(FjordError, match="cold blocks need pyarrow: pip install"):
        LazyCold(make).made()


def test_nothing_is_kept_for_a_subscriber_that_has_left_the_blocks() -> None:
    blocks = Blocks(messages(60, 20))
    cold = LazyCold(lambda: blocks)
    cold.note(READ, messages(500, 3))
    assert blocks.rested == []  # there is no reader yet
    cold.made()
    cold.note(dataclasses.replace(READ, subscriber=""), messages(500, 3))
    assert blocks.rested == []
    cold.note(dataclasses.replace(READ, after=100), messages(500, 3))
    assert blocks.rested == [("t", "s")]
    cold.note(READ, commands.Refusal(code=Code.NOT_FOUND, text=""))  # it is gone
    assert blocks.rested == [("t", "s"), ("t", "s")]


def made(blocks: Blocks) -> LazyCold:
    """Returns a reader that has read."""
    cold = LazyCold(lambda: blocks)
    cold.made()
    return cold


SEEK = commands.Seek(table="t", name="c", start=Start.BEGINNING, at=0)
AWAKE = commands.Rest(table="t", name="awake", asleep=False)
ASLEEP = commands.Rest(table="t", name="a", asleep=True)
GONE = commands.Unsubscribe(table="t", name="b")
GET = commands.Get(table="t", keys=Strings.of([b"key"]))


def test_what_is_inside_of_a_batch_counts_too() -> None:
    blocks = Blocks(41)
    cold = made(blocks)
    batch = commands.Batch(commands=[GET, AWAKE, GONE, SEEK, commands.DropTable(name="u"), ASLEEP])
    cold.note(batch, commands.Refusal(code=Code.NOT_FOUND, text=""))
    assert (blocks.rested, blocks.forgotten) == ([], [])
    cold.note(batch, commands.Replies(replies=[DONE] * 6))
    assert blocks.rested == [("t", "b"), ("t", "c"), ("t", "a")]
    assert blocks.forgotten == ["u"]


def test_without_a_reader_blocks_are_refused() -> None:
    answer, _ = follow(READ, None, WHERE)
    assert isinstance(answer, Refusal)
    assert answer.code is Code.FAILED
