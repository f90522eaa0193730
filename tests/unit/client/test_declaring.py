"""Declaring tables: only the settings that are given are compared."""

from __future__ import annotations

from typing import Any

import pytest

from fjord.client.declared_tables import ExpectedTable
from fjord.client.jobs.calls import JobCalls
from fjord.client.streams import StreamCalls
from fjord.clock import Stamps
from fjord.columns import Strings
from fjord.commands import Command, ListTables, Refusal, Reply, TableList
from fjord.errors import Code, ExistsError, NotFoundError, RefusedError
from fjord.testing import SimClock
from tests.unit.client.runners import runner
from tests.unit.client.scripted import NOW_US
from tests.unit.client.shell_calls import Recorder

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
    assert f"table t exists with other settings: {text}" in str(error.value)


def test_other_refusals_stay_what_they_are() -> None:
    with pytest.raises(RefusedError, match="of another kind"):
        declare(stream(mode="log"), Refusal(code=Code.WRONG_KIND, text="of another kind"))
    with pytest.raises(NotFoundError):
        declare(stream(mode="log"), EXISTS, Refusal(code=Code.NOT_FOUND, text="dropped"))
