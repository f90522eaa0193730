"""A database: tables over anything that executes commands."""

from __future__ import annotations

import pytest

from fjord import commands
from fjord.client.blocking.database import Database
from fjord.client.declared_tables import TableInfo
from fjord.client.listening import Listening
from fjord.columns import Strings
from fjord.errors import Code, NotFoundError
from tests.unit.client.scripted import TOKEN
from tests.unit.client.stream_samples import POSITION
from tests.unit.client.test_database_streams import Blocking, blocking


class Silent:
    """Nothing ever changes here."""

    def wait(self, timeout: float | None) -> commands.Changed | None:
        return None

    def close(self) -> None: ...


class Noting(Blocking):
    """Notes what is listened to, and that it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[object] = []

    def listen(self, command: commands.Listen | commands.ListenJobs, /) -> Listening:
        self.notes.append(command)
        return Silent()

    def close(self) -> None:
        self.notes.append("closed")


def test_listening_goes_to_the_executor_and_leaving_a_database_closes_it() -> None:
    executor = Noting()
    with Database(executor) as database, database.kv("t").listen("k") as changes:
        assert changes.wait(0) is None
        database.jobs("t").listen().close()
    listened = [commands.Listen(table="t", keys=Strings.of([b"k"])), commands.ListenJobs(table="t")]
    assert executor.notes == [listened[0], listened[1], "closed"]


def test_everything_says_what_and_where_it_is() -> None:
    database = Database(Blocking(POSITION), name="fjord://host:1")
    subscriber = database.stream("t").subscriber("s")
    found = [database, database.kv("t"), database.jobs("t"), database.stream("t"), subscriber]
    words = ["Database", "Kv 't'", "Jobs 't'", "Stream 't'"]
    assert [*map(repr, found)] == [
        *(f"<{word} at fjord://host:1>" for word in words),
        "<Subscriber 's' of 't'>",
    ]
    assert repr(Database(Blocking())) == "<Database>"


def test_an_exception_inside_a_transaction_leaves_nothing_behind() -> None:
    database, asked = blocking()
    with pytest.raises(KeyError), database.transaction() as tx:
        tx.kv().set("a", 1)
        raise KeyError
    assert asked == []


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
    database, asked = blocking(tables(b"a", b"b"), tables(b"a"), missing, TOKEN)
    assert [table.name for table in database.tables()] == ["a", "b"]
    assert database.table("a") == TableInfo(name="a", kind="kv", id=0)
    with pytest.raises(NotFoundError):
        database.table("c")
    database.drop("a")
    looks = [commands.ListTables(name=name) for name in ("", "a", "c")]
    assert asked == [*looks, commands.DropTable(name="a")]


def test_stats_and_ping() -> None:
    database, asked = blocking(commands.Numbers(names=Strings.of([b"tables"]), values=[3]), TOKEN)
    assert database.stats() == {"tables": 3}
    assert 0 <= database.ping() < 20
    assert asked == [commands.Stats(), commands.Nop()]
