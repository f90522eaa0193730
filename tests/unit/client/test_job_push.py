"""Building pushes: columns of every kind, and what is refused before it is sent."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fjord.client.jobs.push import PushColumns, push_columns, push_rows
from fjord.client.schemas import NoSchemas
from fjord.columns import Strings
from fjord.commands import Push
from fjord.errors import Code, LocalProtocolError
from fjord.jobs import Priority, decode_settings
from fjord.values import Type
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


def test_one_job_is_as_it_is_among_many() -> None:
    one = one_job({"priority": 5, "process_at": NOW + MINUTE})
    assert one == pushed(keys=["k"], values=[b"v"], priority=5, process_at=NOW + MINUTE)
    assert one.process_at_us == (NOW_US + MINUTE_US,)
    assert not one.relative


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


@pytest.mark.parametrize(("priority", "found"), [(0, b"\0"), (Priority.SLOW, b"\xc8")])
def test_named_priorities_are_numbers(priority: int, found: bytes) -> None:
    assert one_job({"priority": priority}).priorities == found
    assert pushed(keys=["k"], priority=priority).priorities == found


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


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"process_at": 123}, "process_at is a datetime with a time zone"),
        ({"expires_at": "tomorrow"}, "expires_at is a datetime with a time zone"),
        ({"delay": "5"}, "delay is a number of seconds"),
    ],
    ids=str,
)
def test_what_is_of_another_type_is_named(option: Any, text: str) -> None:
    refusals: list[Callable[[], object]] = [
        lambda: one_job(option),
        lambda: pushed(keys=["k"], **option),
        lambda: pushed(keys=["k"], **{name: [value] for name, value in option.items()}),
        lambda: rows({"key": "k", **option}),
    ]
    for refused in refusals:
        with pytest.raises(TypeError, match=text):
            refused()


def test_a_domain_is_not_called_a_key() -> None:
    wrong: Any = {"domain": 5}
    with pytest.raises(LocalProtocolError, match="a domain is str or bytes, not int"):
        one_job(wrong)
    with pytest.raises(LocalProtocolError, match="a domain is str or bytes, not int"):
        rows({"key": "k", **wrong})
    with pytest.raises(TypeError, match="domain is str or bytes, or a list of one each, not int"):
        pushed(keys=["k"], **wrong)


def test_unknown_options_are_named() -> None:
    unknown: Any = {"prioritty": 5}
    refusals: list[Callable[[], object]] = [
        lambda: one_job(unknown),
        lambda: pushed(keys=["k"], **unknown),
        lambda: rows({"key": "k"}, {"key": "l", **unknown}),
    ]
    for refused in refusals:
        with pytest.raises(TypeError, match="has no prioritty; there are"):
            refused()


# -- columns --------------------------------------------------------------------------------------


def test_keys_are_text_bytes_or_both() -> None:
    for keys in (["a", "é"], [b"a", "é".encode()], ["a", "é".encode()]):
        assert pushed(keys=keys).keys.rows() == [b"a", b"\xc3\xa9"]
    escaped = b"\xff".decode(errors="surrogateescape")
    assert pushed(keys=["a", escaped]).keys.rows() == [b"a", b"\xff"]


def test_a_key_that_is_none_is_refused() -> None:
    wrong: Any = [5]
    with pytest.raises(LocalProtocolError) as caught:
        pushed(keys=wrong)
    assert caught.value.code is Code.BAD_TYPE


@pytest.mark.parametrize("name", ["keys", "values"])
def test_a_single_one_is_not_taken_for_many(name: str) -> None:
    for single in ("abc", b"abc", 5):
        with pytest.raises(TypeError, match=f"{name} must be a list"):
            pushed(**{"keys": ["a"] * 3, name: single})


def test_values_have_their_types() -> None:
    found = pushed(keys=["a"] * 4, values=[b"v", "v", None, 5])
    assert found.types == bytes([Type.BUFFER, Type.STRING, Type.VOID, Type.INTEGER])
    assert found.values.rows() == [b"v", b"v", b"", b"\5" + bytes(7)]


def test_jobs_may_have_no_values_or_no_keys() -> None:
    assert pushed(keys=["a", "b"]) == push_of(
        b"a", b"b", types=b"\0\0", values=Strings.of([b"", b""])
    )
    assert pushed(values=[b"v", b"v"]) == push_of(b"", b"")
    for nothing in ({}, {"priority": 5}):
        with pytest.raises(TypeError, match="list of dicts, or the columns"):
            pushed(**nothing)


def test_each_option_is_one_for_all_or_one_each() -> None:
    one = pushed(keys=["a", "b"], priority=7, delay=MINUTE, expires_at=NOW, domain="d")
    each = pushed(
        keys=["a", "b"],
        priority=[7, 7],
        delay=[60, MINUTE],
        expires_at=[NOW, NOW],
        domain=["d", b"d"],
    )
    assert one.priorities == each.priorities == b"\7\7"
    assert list(one.process_at_us) == list(each.process_at_us) == [MINUTE_US] * 2
    assert list(one.expires_at_us) == list(each.expires_at_us) == [NOW_US] * 2
    assert one.domains == each.domains == Strings.of([b"d", b"d"])
    assert one.relative
    assert each.relative


def test_what_one_job_lacks_is_as_usual() -> None:
    found = pushed(keys=["a", "b"], delay=[None, 60], expires_at=[None, NOW], domain=[None, "d"])
    assert list(found.process_at_us) == [0, MINUTE_US]
    assert list(found.expires_at_us) == [0, NOW_US]
    assert found.domains.rows() == [b"", b"d"]


def test_priorities_come_from_any_column_of_numbers() -> None:
    for column in ([1, 2], (1, 2), array("Q", [1, 2]), bytes([1, 2])):
        assert pushed(keys=["a", "b"], priority=column).priorities == b"\1\2"
    with pytest.raises(TypeError, match="push_many has no priorities; there are"):
        pushed(keys=["a"], priorities=1)


@pytest.mark.parametrize(
    "column",
    [
        {"values": [b"v"]},
        {"priority": [1, 2, 3]},
        {"delay": [1]},
        {"process_at": [NOW]},
        {"expires_at": [NOW] * 3},
        {"domain": ["d"]},
        {"process_at": [NOW, None], "delay": [None]},
    ],
    ids=str,
)
def test_columns_have_one_row_a_job(column: PushColumns) -> None:
    with pytest.raises(ValueError, match="for 2 jobs"):
        pushed(keys=["a", "b"], **column)


def test_nothing_is_no_command() -> None:
    assert push_columns("t", {"keys": [], "values": []}, NOW_US, PLAIN) is None
    assert push_columns("t", {"values": []}, NOW_US, PLAIN) is None
    assert push_rows("t", [], NOW_US, PLAIN) is None
    with pytest.raises(ValueError, match="values: 1 for 0 jobs"):
        push_columns("t", {"keys": [], "values": [b"v"]}, NOW_US, PLAIN)


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


def test_one_delay_for_all_does_not_go_with_a_date() -> None:
    with pytest.raises(ValueError, match="either"):
        pushed(keys=["a", "b"], delay=5, process_at=[NOW, None])
    found = pushed(keys=["a", "b"], delay=5, process_at=[None, None])
    assert (found.relative, list(found.process_at_us)) == (True, [5_000_000] * 2)


def test_dates_without_delays_are_the_users() -> None:
    found = pushed(keys=["a", "b"], process_at=[NOW + timedelta(microseconds=7), None])
    assert (found.relative, list(found.process_at_us)) == (False, [NOW_US + 7, 0])


# -- dicts ----------------------------------------------------------------------------------------


def test_dicts_and_columns_are_the_same() -> None:
    given = [
        {"key": "a", "value": b"1", "priority": 1, "domain": "d"},
        {"key": b"b", "value": "2", "expires_at": NOW},
        {},
    ]
    assert rows(*given) == pushed(
        keys=["a", b"b", ""],
        values=[b"1", "2", None],
        priority=[1, Priority.DEFAULT, Priority.DEFAULT],
        domain=["d", None, None],
        expires_at=[None, NOW, None],
    )


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


# -- speed ----------------------------------------------------------------------------------------


def test_many_jobs_are_columns_and_no_objects() -> None:
    count = 10_000
    found = pushed(keys=[f"k{row}" for row in range(count)], values=[b"v"] * count, priority=3)
    assert found.priorities == b"\3" * count
    assert isinstance(found.process_at_us, array)
    assert isinstance(found.timestamps_us, array)
    assert (len(found.domains), found.domains.data) == (count, b"")
    assert found.domains[count - 1] == b""
    assert found.domains.rows() == [b""] * count
