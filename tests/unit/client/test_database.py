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
from fjord.commands import (
    Batch,
    Changed,
    Command,
    DropTable,
    ListTables,
    Nop,
    Numbers,
    Refusal,
    Replies,
    Reply,
    Scan,
    Scanned,
    Stats,
    TableList,
)
from fjord.errors import Code, ExistsError, NotFoundError
from tests.unit.client.job_samples import CREATED, push_of
from tests.unit.client.scripted import TOKEN, entries
from tests.unit.client.shell_calls import FIVE
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

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        self.listened.append(command)
        return Silent()

    def close(self) -> None:
        self.closed += 1


class Silent:
    """Nothing ever changes here."""

    def __iter__(self) -> Iterator[Changed]:
        return iter(())

    def wait(self, timeout: float | None) -> Changed | None:
        return None

    def close(self) -> None: ...


class Scripted:
    """An executor that gives these replies."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = iter(replies)
        self.asked: list[Command] = []

    def execute(self, command: Command, /) -> Reply:
        self.asked.append(command)
        return next(self._replies)

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        return Silent()

    def close(self) -> None: ...


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


def test_leaving_a_database_closes_it() -> None:
    executor = Pieces()
    with Database(executor) as database:
        assert executor.closed == 0
        database.kv().set("a", 1)
    assert executor.closed == 1


# -- transactions ---------------------------------------------------------------------------------


def test_a_transaction_is_sent_whole_at_its_end() -> None:
    executor = Scripted(Replies(replies=[TOKEN, entries((3, FIVE))]))
    with Database(executor).transaction() as tx:
        tx.kv("settings").set("a", 1)
        tx.kv("other").add("b", 4)
        assert executor.asked == []
    (batch,) = executor.asked
    assert isinstance(batch, Batch)
    assert len(batch.commands) == 2
    assert tx.results == [None, 5]


def test_an_exception_inside_a_transaction_leaves_nothing_behind() -> None:
    executor = Scripted()
    with pytest.raises(KeyError), Database(executor).transaction() as tx:
        tx.kv().set("a", 1)
        raise KeyError
    assert executor.asked == []


def test_a_transaction_that_is_refused_raises_why() -> None:
    executor = Scripted(Refusal(code=Code.EXISTS, text="a is there"))
    with pytest.raises(ExistsError), Database(executor).transaction() as tx:
        tx.kv().set("a", 1, overwrite=False)
    assert tx.results == ()


# -- the node -------------------------------------------------------------------------------------


def tables(*names: bytes) -> TableList:
    count = len(names)
    return TableList(
        names=Strings.of(list(names)),
        ids=list(range(count)),
        kinds=b"\1" * count,
        settings=Strings.of([b""] * count),
    )


def test_tables_are_listed_looked_up_and_dropped() -> None:
    missing = Refusal(code=Code.NOT_FOUND, text="there is no table c")
    executor = Scripted(tables(b"a", b"b"), tables(b"a"), missing, TOKEN)
    database = Database(executor)
    assert [table.name for table in database.tables()] == ["a", "b"]
    assert database.table("a") == TableInfo(name="a", kind="kv", id=0)
    with pytest.raises(NotFoundError):
        database.table("c")
    database.drop("a")
    assert executor.asked == [
        ListTables(),
        ListTables(name="a"),
        ListTables(name="c"),
        DropTable(name="a"),
    ]


def test_stats_and_ping() -> None:
    executor = Scripted(Numbers(names=Strings.of([b"tables"]), values=[3]), TOKEN)
    database = Database(executor)
    assert database.stats() == {"tables": 3}
    assert 0 <= database.ping() < 20
    assert executor.asked == [Stats(), Nop()]


def test_listening_goes_to_the_executor() -> None:
    executor = Pieces()
    with Database(executor).kv("t").listen("k") as changes:
        assert changes.wait(0) is None
    assert executor.listened == [commands.Listen(table="t", keys=Strings.of([b"k"]))]


def test_a_database_and_what_it_gives_say_where_it_is() -> None:
    database = Database(Pieces(), name="fjord://host:1")
    assert repr(database) == "<Database at fjord://host:1>"
    assert repr(database.kv("t")) == "<Kv 't' at fjord://host:1>"
    with database.transaction() as tx:
        assert repr(tx) == "<Transaction of 0 writes at fjord://host:1>"
    assert repr(Database(Pieces())) == "<Database>"


# -- jobs -----------------------------------------------------------------------------------------


def test_settings_of_a_jobs_table_are_declared_at_once_or_with_the_first_job() -> None:
    executor = Scripted(TOKEN, TOKEN, TOKEN, TOKEN)
    database = Database(executor)
    database.create_jobs("t", lease=60).push("k")
    assert executor.asked[0] == CREATED
    assert [type(one) for one in executor.asked] == [type(CREATED), commands.Push]
    jobs = database.jobs("t", lease=60)
    assert len(executor.asked) == 2
    jobs.push("k")
    assert executor.asked[2] == CREATED
    assert [type(one) for one in executor.asked[2:]] == [type(CREATED), commands.Push]


def test_a_jobs_table_with_other_settings_is_there_already() -> None:
    executor = Scripted(Refusal(code=Code.EXISTS, text="it has other settings"))
    with pytest.raises(ExistsError):
        Database(executor).create_jobs("t", lease=60)
    with pytest.raises(ValueError, match="fairness"):
        Database(executor).jobs("t", fairness="round")


def test_later_pushes_of_one_database_have_later_dates() -> None:
    executor = Scripted(TOKEN, TOKEN)
    database = Database(executor)
    for _ in range(2):
        database.jobs("t").push("k", b"v")
    first, second = executor.asked
    assert isinstance(first, commands.Push)
    assert isinstance(second, commands.Push)
    assert first.timestamps_us[0] < second.timestamps_us[0]
    assert push_of(b"k", timestamps_us=first.timestamps_us) == first


def test_listening_to_jobs_goes_to_the_executor() -> None:
    executor = Pieces()
    database = Database(executor, name="fjord://host:1")
    assert repr(database.jobs("t")) == "<Jobs 't' at fjord://host:1>"
    with database.jobs("t").listen() as moments:
        assert moments.wait(0) is None
    assert executor.listened == [commands.ListenJobs(table="t")]
