"""Commands and replies: their defaults, and the names of tables."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import errors, limits
from fjord.commands import FUNCTIONS, KINDS, REVISION, Refusal, name_problem

RECORDS = [row.record for row in (*FUNCTIONS.values(), *KINDS.values())]


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_small_and_built_by_keyword(record: type) -> None:
    fields = dataclasses.fields(record)
    assert all(field.kw_only for field in fields)
    assert record.__doc__
    assert "__dict__" not in dir(record)


def test_what_is_not_given_is_nothing_but_for_these() -> None:
    found = {
        f"{row.name} {one.name}": one.default
        for row in FUNCTIONS.values()
        for one in dataclasses.fields(row.record)
        if one.default is not dataclasses.MISSING and one.default
    }
    assert found == {
        "SET_MANY overwrite": True,
        "SET_MANY persist": True,
        "MODIFY operand_type": 3,
        **{f"{name} with_data": True for name in ("GET_MANY", "TOUCH_MANY", "RANGE")},
        "NEXT_MANY count": 1,
        "FAIL counts": True,
        "PEEK state": 1,
        "ACKNOWLEDGE expected": -1,
        "LAG after": -1,
        "HELLO revision": REVISION,
        "SCAN bytes_max": limits.SCAN_BYTES_MAX,
    }


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *((errors.Code.NOT_FOUND, errors.NotFoundError), (errors.Code.EXISTS, errors.ExistsError)),
        *((errors.Code.LOCKED, errors.LockedError), (errors.Code.STALE_XID, errors.StaleError)),
        *((errors.Code.DISK_FULL, errors.DiskFullError), (errors.Code.QUOTA, errors.RefusedError)),
    ],
)
def test_a_refusal_turns_into_its_error(
    code: errors.Code, error: type[errors.RefusedError]
) -> None:
    raised = Refusal(code=code, text="why").error()
    assert type(raised) is error
    assert (raised.code, raised.text) == (code, "why")


@pytest.mark.parametrize(
    "name",
    [
        *("", "-a", ".", "..", "a.b", "a/b", "/etc/x", "~~", "x.pack", "x.123", "a b", "%2e%2e"),
        *("a\0", "a\n", "a\nb", "\na", "\u202ename", "\ufffd"),
        "n\u0430me",  # a Cyrillic a
        "\u0661",  # a digit, but no ASCII one
        *("x" * (limits.NAME_BYTES_MAX + 1), "x" * 100_000),
    ],
)
def test_bad_names_are_refused(name: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert problem.code is errors.Code.BAD_NAME
    assert "1 to 128" in problem.text
    assert len(problem.text) < 256


@given(st.text(max_size=140))
def test_a_name_is_good_exactly_if_every_character_is(name: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    good = 1 <= len(name) <= 128 and set(name) <= allowed and name[0] != "-"
    assert (name_problem(name) is None) is good
