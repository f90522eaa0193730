"""Declaring tables: only the settings that are given are compared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord.client.database import AsyncDatabase
from fjord.client.declared_tables import ExpectedTable
from fjord.client.jobs.calls import JobCalls
from fjord.client.streams import StreamCalls
from fjord.clock import Stamps
from fjord.columns import Strings
from fjord.commands import Command, ListTables, Refusal, Reply, TableList
from fjord.errors import Code, ExistsError, NotFoundError, RefusedError
from fjord.testing import SimClock
from tests.unit.client.runners import runner
from tests.unit.client.scripted import NOW_US, TOKEN
from tests.unit.client.shell_calls import Recorder
from tests.unit.client.test_async_connection import run

EXISTS = Refusal(code=Code.EXISTS, text="with other settings")


def stream(**settings: Any) -> ExpectedTable:
    return StreamCalls("t").declare(settings)  # type: ignore[arg-type]


def jobs(**settings: Any) -> ExpectedTable:
    return JobCalls("t", Stamps(SimClock(NOW_US))).declare(settings)  # type: ignore[arg-type]


def there(declaration: ExpectedTable) -> TableList:
    """Returns the table as if it had been made by this declaration."""
    command = declaration.command
    return TableList(
        names=Strings.of([b"t"]),
        ids=[7],
        kinds=bytes([command.kind]),
        settings=Strings.of([command.settings]),
    )


def declare(declaration: ExpectedTable, *replies: Reply) -> list[Command]:
    """Declares; returns what was sent."""
    recorder = Recorder(list(replies))
    runner(recorder.answer).follow(declaration.steps())
    return recorder.sent


def test_a_table_that_is_made_is_not_asked_for() -> None:
    wanted = stream(mode="latest")
    assert declare(wanted, TOKEN) == [wanted.command]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (stream(mode="latest"), stream(mode="latest", block_rows=5, retention=60)),
        (stream(block_age=0.5), stream(mode="latest", block_age=0.5)),
        (stream(retention=None, block_rows=5), stream(block_rows=5, block_age=60)),
        (stream(history=True), stream(mode="latest")),
        (jobs(lease=60), jobs(lease=60, merge=False, fairness="domain")),
        (jobs(merge=True), jobs(timeouts_max=0)),
    ],
)
def test_what_is_not_given_may_be_anything(wanted: ExpectedTable, found: ExpectedTable) -> None:
    assert declare(wanted, EXISTS, there(found)) == [wanted.command, ListTables(name="t")]


@pytest.mark.parametrize(
    ("wanted", "found", "text"),
    [
        (stream(mode="latest"), stream(block_rows=5), "mode is log, not latest"),
        (
            stream(mode="latest", block_rows=5, block_age=0.5),
            stream(mode="latest", block_rows=6),
            "block_rows is 6, not 5; block_age is 86400, not 0.5",
        ),
        (stream(retention=None), stream(retention=60), "retention is 60, not 0"),
        (jobs(lease=60, merge=True), jobs(merge=False), "lease is 3600, not 60; merge is False,"),
        (jobs(fairness="domain"), jobs(lease=60), "fairness is none, not domain"),
        (
            jobs(columns={"a": "int8", "b": "string"}),
            jobs(columns={"a": "int16", "c": ("string", True)}, key="c"),
            "column a is int16, not int8; it has a column c; it has no column b",
        ),
        (
            stream(columns={"a": ("int8", True)}, key="a"),
            stream(columns={"a": ("int8", True)}),
            "its key is none, not a",
        ),
        (
            stream(columns={f"c{at:02}": "int8" for at in range(30)}),
            stream(),
            f"{'; '.join(f'it has no column c{at:02}' for at in range(20))}; and 10 more",
        ),
    ],
)
def test_what_differs_is_named_with_both_values(
    wanted: ExpectedTable, found: ExpectedTable, text: str
) -> None:
    with pytest.raises(ExistsError) as error:
        declare(wanted, EXISTS, there(found))
    assert f"table t is there with other settings: {text}" in str(error.value)


def test_other_refusals_stay_what_they_are() -> None:
    with pytest.raises(RefusedError, match="of another kind"):
        declare(stream(mode="log"), Refusal(code=Code.WRONG_KIND, text="of another kind"))
    with pytest.raises(NotFoundError):
        declare(stream(mode="log"), EXISTS, Refusal(code=Code.NOT_FOUND, text="dropped"))


# -- tables of a directory ------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Iterator[fjord.Database]:
    with fjord.open(tmp_path / "data") as database:
        database.create_stream("profiles", mode="latest", block_rows=5, retention=60)
        database.create_jobs("pages", lease=60, merge=False)
        yield database


def test_a_stream_is_used_by_the_settings_that_matter(db: fjord.Database) -> None:
    assert db.stream("profiles", mode="latest").append("Oslo", key="7") > 0
    assert db.stream("profiles", retention=60)["7"] == "Oslo"
    with pytest.raises(ExistsError, match="mode is latest, not log"):
        db.stream("profiles", mode="log").read()
    with pytest.raises(ExistsError):
        db.create_stream("profiles", mode="latest")


def test_jobs_are_used_by_the_settings_that_matter(db: fjord.Database) -> None:
    db.jobs("pages", lease=60).push("k")
    assert [job.key for job in db.jobs("pages", merge=False).next()] == ["k"]
    with pytest.raises(ExistsError, match="lease is 60, not 30"):
        db.jobs("pages", lease=30).push("k")
    with pytest.raises(ExistsError):
        db.create_jobs("pages", lease=60)


class _Awaited:
    """A connection to a directory."""

    name = "data"
    address = ("", 0)

    def __init__(self, db: fjord.Database) -> None:
        self._executor = db._executor

    async def execute(self, command: Command) -> Reply:
        return self._executor.execute(command)

    def close(self) -> None: ...


@asynccontextmanager
async def awaited(db: fjord.Database) -> AsyncIterator[AsyncDatabase]:
    connection: Any = _Awaited(db)
    async with AsyncDatabase(connection) as database:
        yield database


def test_the_same_holds_for_asyncio(db: fjord.Database) -> None:
    async def main() -> None:
        async with awaited(db) as other:
            assert await other.stream("profiles", mode="latest").append("Oslo", key="7") > 0
            with pytest.raises(ExistsError, match="block_rows is 5, not 6"):
                await other.stream("profiles", block_rows=6).append("Oslo", key="7")
            await other.jobs("pages", lease=60).push("k")
            with pytest.raises(ExistsError, match="merge is False, not True"):
                await other.jobs("pages", merge=True).next()
            with pytest.raises(ExistsError):
                await other.create_stream("profiles", mode="latest")

    run(main())
    assert list(db.stream("profiles")) == ["7"]
