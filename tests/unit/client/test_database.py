"""A database: tables over anything that executes commands."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import pytest

from fjord import commands
from fjord.client.blocking.database import Database
from fjord.client.declared_tables import TableInfo
from fjord.client.listening import Listening
from fjord.clock import SystemClock
from fjord.columns import Strings
from fjord.errors import Code, NotFoundError
from tests.unit.client.scripted import TOKEN
from tests.unit.tables.world import World


class Pieces:
    """An executor that answers scans, a few seqs at a time, and everything else from memory."""

    def __init__(self, last_seq: int = 0, step: int = 1) -> None:
        self._world = World()
        self._last_seq = last_seq
        self._step = step
        self.asked: list[tuple[int, int]] = []
        self.listened: list[commands.Listen | commands.ListenJobs] = []
        self.closed = 0

    def execute(self, command: commands.Command, /) -> commands.Reply:
        if not isinstance(command, commands.Scan):
            self._world.now_us = SystemClock().wall_us()
            return self._world.run(command)
        if command.table != "t":
            return commands.Refusal(code=Code.NOT_FOUND, text="there is no table")
        self.asked.append((command.start_seq, command.end_seq))
        end_seq = command.end_seq or self._last_seq + 1
        next_seq = min(command.start_seq + self._step, end_seq)
        self._last_seq += 10  # others write meanwhile
        return scanned(range(command.start_seq, next_seq), next_seq, end_seq)

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        self.listened.append(command)
        return Silent()

    def close(self) -> None:
        self.closed += 1


class Silent:
    """Nothing ever changes here."""

    def __iter__(self) -> Iterator[commands.Changed]:
        return iter(())

    def wait(self, timeout: float | None) -> commands.Changed | None:
        return None

    def close(self) -> None: ...


class Scripted:
    """An executor that gives these replies."""

    def __init__(self, *replies: commands.Reply) -> None:
        self._replies = iter(replies)
        self.asked: list[commands.Command] = []

    def execute(self, command: commands.Command, /) -> commands.Reply:
        self.asked.append(command)
        return next(self._replies)

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        return Silent()

    def close(self) -> None: ...


def scanned(found: Sequence[int], next_seq: int, end_seq: int) -> commands.Scanned:
    return commands.Scanned(
        first_seqs=array("Q", found),
        walls_us=array("Q", [0] * len(found)),
        last_seqs=array("Q", found),
        ops=Strings.of([b"op"] * len(found)),
        next_seq=next_seq,
        end_seq=end_seq,
    )


def test_leaving_a_database_closes_it() -> None:
    executor = Pieces()
    with Database(executor) as database:
        assert executor.closed == 0
        database.kv().set("a", 1)
    assert executor.closed == 1


# -- transactions ---------------------------------------------------------------------------------


def test_an_exception_inside_a_transaction_leaves_nothing_behind() -> None:
    executor = Scripted()
    with pytest.raises(KeyError), Database(executor).transaction() as tx:
        tx.kv().set("a", 1)
        raise KeyError
    assert executor.asked == []


# -- the node -------------------------------------------------------------------------------------


def tables(*names: bytes) -> commands.TableList:
    count = len(names)
    return commands.TableList(
        names=Strings.of(list(names)),
        ids=list(range(count)),
        kinds=b"\1" * count,
        settings=Strings.of([b""] * count),
    )


def test_tables_are_listed_looked_up_and_dropped() -> None:
    missing = commands.Refusal(code=Code.NOT_FOUND, text="there is no table c")
    executor = Scripted(tables(b"a", b"b"), tables(b"a"), missing, TOKEN)
    database = Database(executor)
    assert [table.name for table in database.tables()] == ["a", "b"]
    assert database.table("a") == TableInfo(name="a", kind="kv", id=0)
    with pytest.raises(NotFoundError):
        database.table("c")
    database.drop("a")
    assert executor.asked == [
        commands.ListTables(),
        commands.ListTables(name="a"),
        commands.ListTables(name="c"),
        commands.DropTable(name="a"),
    ]


def test_stats_and_ping() -> None:
    executor = Scripted(commands.Numbers(names=Strings.of([b"tables"]), values=[3]), TOKEN)
    database = Database(executor)
    assert database.stats() == {"tables": 3}
    assert 0 <= database.ping() < 20
    assert executor.asked == [commands.Stats(), commands.Nop()]


def test_listening_goes_to_the_executor() -> None:
    executor = Pieces()
    with Database(executor).kv("t").listen("k") as changes:
        assert changes.wait(0) is None
    assert executor.listened == [commands.Listen(table="t", keys=Strings.of([b"k"]))]
