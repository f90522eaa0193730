"""A database: tables over anything that executes commands."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from fjord.client.database import Database, scan_call
from fjord.clock import SystemClock
from fjord.columns import Strings
from fjord.commands import Command, Refusal, Reply, Scan, Scanned
from fjord.errors import Code, NotFoundError
from tests.unit.tables.world import World


class Pieces:
    """An executor that answers scans, a few seqs at a time, and everything else from memory."""

    def __init__(self, last_seq: int = 0, step: int = 1) -> None:
        self._world = World()
        self._last_seq = last_seq
        self._step = step
        self.asked: list[tuple[int, int]] = []
        self.closed = 0

    def execute(self, command: Command, /) -> Reply:
        if not isinstance(command, Scan):
            self._world.now_us = SystemClock().wall_us()
            return self._world.run(command)
        if command.table != "t":
            return Refusal(code=Code.NOT_FOUND, text="there is no table")
        self.asked.append((command.start_seq, command.end_seq))
        end_seq = command.end_seq or self._last_seq + 1
        next_seq = min(command.start_seq + self._step, end_seq)
        self._last_seq += 10  # others write meanwhile
        return scanned(range(command.start_seq, next_seq), next_seq, end_seq)

    def close(self) -> None:
        self.closed += 1


def scanned(found: Sequence[int], next_seq: int, end_seq: int) -> Scanned:
    return Scanned(
        first_seqs=array("Q", found),
        walls_us=array("Q", [0] * len(found)),
        last_seqs=array("Q", found),
        ops=Strings.of([b"op"] * len(found)),
        next_seq=next_seq,
        end_seq=end_seq,
    )


def test_tables_of_a_database_keep_apart() -> None:
    database = Database(Pieces())
    database.kv("one").set("a", 1)
    database.kv().set("a", 2)
    assert database.kv("one").get("a") == 1
    assert database.kv("default").get("a") == 2


def test_later_writes_of_one_database_win_whichever_table_object_made_them() -> None:
    database = Database(Pieces())
    for number in range(10):
        database.kv("t").set("a", number)
    assert database.kv("t").get("a") == 9


def test_a_scan_ends_where_the_journal_ended_when_it_began() -> None:
    executor = Pieces(last_seq=7, step=3)
    found = [seq for piece in Database(executor).scan("t") for seq in piece.first_seqs]
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert executor.asked == [(1, 0), (4, 8), (7, 8)]


def test_a_scan_goes_from_and_to_the_seqs_that_were_asked_for() -> None:
    executor = Pieces(last_seq=100, step=2)
    pieces = list(Database(executor).scan("t", 5, 9))
    assert [list(piece.first_seqs) for piece in pieces] == [[5, 6], [7, 8]]


def test_a_scan_of_nothing_is_one_empty_piece() -> None:
    (piece,) = Database(Pieces(last_seq=0)).scan("t")
    assert list(piece.first_seqs) == []


def test_a_scan_of_a_missing_table_is_refused() -> None:
    with pytest.raises(NotFoundError):
        next(Database(Pieces()).scan("none"))


def test_a_scan_call_asks_for_a_piece() -> None:
    call = scan_call("t", 5, 9)
    assert call.command == Scan(table="t", start_seq=5, end_seq=9)
    piece = scanned([5], 6, 9)
    assert call.result(piece) is piece


def test_leaving_a_database_closes_it() -> None:
    executor = Pieces()
    with Database(executor) as database:
        assert executor.closed == 0
        database.kv().set("a", 1)
    assert executor.closed == 1
