"""Building pushes: columns of every kind, and what is refused before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fjord.client.jobs.push import PushColumns, push_columns, push_rows
from fjord.client.schemas import NoSchemas
from fjord.columns import Strings
from fjord.commands import Push
from fjord.jobs import decode_settings
from tests.unit.client.job_samples import MINUTE, MINUTE_US, NOW, make_calls, push_of
from tests.unit.client.scripted import NOW_US

PLAIN = NoSchemas("t", decode_settings)


def pushed(**columns: Any) -> Push:
    found = push_columns("t", columns, NOW_US, PLAIN)  # type: ignore[arg-type]
    assert found is not None
    return found


def rows(*given: Any) -> Push:
    found = push_rows("t", given, NOW_US, PLAIN)
    assert found is not None
    return found


# -- one ------------------------------------------------------------------------------------------


def one_job(options: Any) -> Push:
    command = make_calls().push("k", b"v", **options).command
    assert isinstance(command, Push)
    return command


@pytest.mark.parametrize("priority", [-1, 256, 1.5, "5", None, True, False])
def test_a_priority_is_one_byte(priority: Any) -> None:
    refusals: list[Callable[[], object]] = [
        lambda: one_job({"priority": priority}),
        lambda: pushed(keys=["k"], priority=priority),
        lambda: pushed(keys=["k", "l"], priority=[5, priority]),
        lambda: rows({"key": "k", "priority": priority}),
    ]
    for refused in refusals:
        with pytest.raises(ValueError, match="from 0 to 255"):
            refused()


def test_a_job_has_a_delay_or_a_date() -> None:
    both: Any = {"delay": 5, "process_at": NOW}
    refusals: list[Callable[[], object]] = [
        lambda: one_job(both),
        lambda: pushed(keys=["k"], **both),
        lambda: rows({"key": "k", **both}),
    ]
    for refused in refusals:
        with pytest.raises(ValueError, match="either delay or process_at"):
            refused()


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["keys", "values"])
def test_a_single_one_is_not_taken_for_many(name: str) -> None:
    for single in ("abc", b"abc", 5):
        with pytest.raises(TypeError, match=f"{name} must be a list"):
            pushed(**{"keys": ["a"] * 3, name: single})


def test_jobs_may_have_no_values_or_no_keys() -> None:
    assert pushed(keys=["a", "b"]) == push_of(
        b"a", b"b", types=b"\0\0", values=Strings.of([b"", b""])
    )
    assert pushed(values=[b"v", b"v"]) == push_of(b"", b"")
    for nothing in ({}, {"priority": 5}):
        with pytest.raises(TypeError, match="list of dicts, or the columns"):
            pushed(**nothing)
    with pytest.raises(TypeError, match="push_many has no priorities; there are"):
        pushed(keys=["a"], priorities=1)


@pytest.mark.parametrize(
    "column",
    [
        *({"values": [b"v"]}, {"priority": [1, 2, 3]}, {"delay": [1]}, {"process_at": [NOW]}),
        *({"expires_at": [NOW] * 3}, {"domain": ["d"]}),
        {"process_at": [NOW, None], "delay": [None]},
    ],
    ids=str,
)
def test_columns_have_one_row_a_job(column: PushColumns) -> None:
    with pytest.raises(ValueError, match="for 2 jobs"):
        pushed(keys=["a", "b"], **column)


# -- dates ----------------------------------------------------------------------------------------


def test_delays_go_by_the_servers_clock_unless_a_job_has_a_date() -> None:
    delays = rows({"key": "a", "delay": 60}, {"key": "b"})
    assert delays.relative
    assert list(delays.process_at_us) == [MINUTE_US, 0]
    mixed = rows({"key": "a", "delay": 60}, {"key": "b"}, {"key": "c", "process_at": NOW + MINUTE})
    assert not mixed.relative
    assert list(mixed.process_at_us) == [NOW_US + MINUTE_US, 0, NOW_US + MINUTE_US]
    none = rows({"key": "a", "delay": 60, "process_at": None})
    assert none.relative
    assert list(none.process_at_us) == [MINUTE_US]


def test_dates_without_delays_are_the_users() -> None:
    found = pushed(keys=["a", "b"], process_at=[NOW + timedelta(microseconds=7), None])
    assert (found.relative, list(found.process_at_us)) == (False, [NOW_US + 7, 0])


# -- dicts ----------------------------------------------------------------------------------------


def test_dicts_come_from_any_iterable_but_are_dicts() -> None:
    found = push_rows("t", ({"key": str(number)} for number in range(3)), NOW_US, PLAIN)
    assert found is not None
    assert found.keys.rows() == [b"0", b"1", b"2"]
    singles: list[Any] = [{"key": "a", "value": b"v"}, "abc", 5]
    for single in singles:
        with pytest.raises(TypeError, match="push_many takes is a list of dicts, not"):
            push_rows("t", single, NOW_US, PLAIN)
    wrong: Any = [{"key": "a"}, "a"]
    with pytest.raises(TypeError, match=r"each job of push_many is a dict such as .*, not str"):
        push_rows("t", wrong, NOW_US, PLAIN)
