"""Rows of the journal table as jobs, and jobs as rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from fjord import values
from fjord.cli import lines
from fjord.columns import Strings
from fjord.commands import JobPage, Push
from fjord.errors import UsageError
from fjord.sql import shape
from fjord.sql.shape import FAILED_US, Cell, Job, JournalRow, Odd, Rules
from fjord.values import Value

NOW_US: Final = 1_700_000_000_000_000
HOUR_US: Final = 3600 * 1_000_000
RULES: Final = Rules(now_us=NOW_US)


def cells(**given: Cell) -> list[Cell]:
    usual: dict[str, Cell] = {
        "domain": b"example.com",
        "priority": 5,
        "key_start_date": NOW_US - HOUR_US,
        "uri": b"http://example.com/a",
        "status": None,
    }
    return list({**usual, **given}.values())


@pytest.mark.req("FJ-17")
def test_a_row_is_a_job() -> None:
    assert RULES.job(cells()) == Job(
        key=b"http://example.com/a",
        domain=b"example.com",
        priority=5,
        process_at_us=NOW_US - HOUR_US,
        inserted_us=NOW_US - HOUR_US,
        type=0,
        data=b"",
    )


@pytest.mark.req("FJ-17")
@pytest.mark.parametrize(
    ("status", "is_now", "due_us"),
    [
        (None, False, NOW_US - HOUR_US),
        (0, False, NOW_US - HOUR_US),
        (b"0", False, NOW_US - HOUR_US),
        (NOW_US - FAILED_US - 1, False, NOW_US - HOUR_US),  # failed: it is due as it was
        (NOW_US - FAILED_US, False, NOW_US - HOUR_US),
        (NOW_US - HOUR_US, False, NOW_US + 23 * HOUR_US),
        (str(NOW_US - HOUR_US), False, NOW_US + 23 * HOUR_US),
        (NOW_US - HOUR_US, True, NOW_US - HOUR_US),
        (NOW_US + HOUR_US, False, NOW_US + 25 * HOUR_US),
    ],
)
def test_who_has_begun_is_waited_for(status: Cell, is_now: bool, due_us: int) -> None:
    job = Rules(now_us=NOW_US, is_now=is_now).job(cells(status=status))
    assert (job.process_at_us, job.inserted_us) == (due_us, NOW_US - HOUR_US)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("priority", 256, "priority is 0 to 255, not 256"),
        ("priority", -1, "priority is 0 to 255, not -1"),
        ("priority", None, "priority is NULL"),
        ("priority", b"high", "priority is no whole number"),
        ("priority", b"9" * 21, "priority is no whole number"),
        ("priority", b"--5", "priority is no whole number"),
        ("priority", "\u0663", "priority is no whole number"),
        ("priority", Odd("an expression"), "priority is an expression"),
        ("key_start_date", None, "key_start_date is NULL"),
        ("key_start_date", 0, "key_start_date 0 is no date in microseconds"),
        ("key_start_date", -5, "key_start_date -5 is no date in microseconds"),
        ("key_start_date", NOW_US // 1000, "in microseconds; is it in milliseconds?"),
        ("key_start_date", NOW_US // 1_000_000, "in microseconds; is it in seconds?"),
        ("key_start_date", NOW_US * 1000, "in microseconds; is it in nanoseconds?"),
        ("key_start_date", 2**70, "nanoseconds"),
        ("key_start_date", NOW_US + 367 * 24 * HOUR_US, "due in more than 366 days"),
        ("status", NOW_US // 1000, "status .* is it in milliseconds?"),
        ("status", b"working", "status is no whole number"),
        ("uri", b"", "uri is empty"),
        ("uri", None, "uri is NULL"),
        ("uri", 7, "uri is a number, and no text"),
        ("uri", b"u" * 1025, "uri has more than 1024 bytes"),
        ("uri", b"\xfc", "uri is not UTF-8"),
        ("uri", "\ud800", "uri is not UTF-8"),
        ("uri", Odd("too long"), "uri is too long"),
        ("domain", b"d" * 256, "domain has more than 255 bytes"),
        ("domain", None, "domain is NULL"),
    ],
)
def test_a_row_that_is_no_job_says_why(column: str, cell: Cell, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        RULES.job(cells(**{column: cell}))


def test_jobs_are_pushed_with_dates_of_their_own() -> None:
    jobs = [RULES.job(cells()), RULES.job(cells(uri=b"u", key_start_date=NOW_US, domain=b""))]
    push = Push(table="pages", **shape.columns(jobs))
    assert push.keys.rows() == [b"http://example.com/a", b"u"]
    assert push.domains.rows() == [b"example.com", b""]
    assert list(push.timestamps_us) == list(push.process_at_us) == [NOW_US - HOUR_US, NOW_US]
    assert (push.priorities, push.types, push.values.rows()) == (b"\5\5", b"\0\0", [b"", b""])
    assert (list(push.expires_at_us), push.relative) == ([0, 0], False)


# -- values ---------------------------------------------------------------------------------------

WITH_VALUES: Final = Rules(now_us=NOW_US, read_value=lines.value)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        *((None, None), (b"null", None), (b'"text"', "text"), ("5", 5), (b"true", True)),
        (b'{"base64": "/w=="}', b"\xff"),
    ],
)
def test_a_value_is_read_from_json(cell: Cell, value: Value) -> None:
    assert WITH_VALUES.columns == (*shape.COLUMNS, "value")
    job = WITH_VALUES.job([*cells(), cell])
    assert values.decode(job.type, job.data) == value


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        *((b"{", "value is not valid JSON"), (b"\xff", "value is not valid JSON")),
        *((b"[" * 100_000, "value is not valid JSON"), (b"[]", "value must be null, a string")),
        *((b"1" * (2**23 + 1), "value has more than"), (5, "value is no text")),
        (Odd("too long"), "value is no text"),
    ],
)
def test_a_value_that_is_none_says_why(cell: Cell, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        WITH_VALUES.job([*cells(), cell])


# -- jobs as rows ---------------------------------------------------------------------------------


def page(keys: list[bytes], domains: list[bytes], *, is_taken: bool = False) -> JobPage:
    count = len(keys)
    return JobPage(
        rows=range(1, count + 1),
        xids=[7] * count if is_taken else [0] * count,
        process_at_us=[NOW_US] * count,
        inserted_us=[NOW_US] * count,
        updated_us=[NOW_US] * count,
        expires_at_us=[0] * count,
        moments_us=[NOW_US + HOUR_US] * count if is_taken else [0] * count,
        priorities=b"\x64" * count,
        timeouts=bytes(count),
        types=bytes([2]) * count,
        keys=Strings.of(keys),
        domains=Strings.of(domains),
        values=Strings.of([b"v"] * count),
        reasons=Strings.of([b""] * count),
        next_start=b"",
    )


@pytest.mark.req("FJ-17")
def test_jobs_are_rows() -> None:
    found = shape.rows(page([b"http://A.example/x", b"k"], [b"", b"d"]), [0, 1])
    assert found == [
        JournalRow("a.example", 100, NOW_US, "http://A.example/x", None, None),
        JournalRow("d", 100, NOW_US, "k", None, None),
    ]
    (with_value,) = shape.rows(page([b"k"], [b"d"]), [0], has_value=True)
    assert isinstance(with_value, JournalRow)
    assert with_value.value == '"v"'


def test_values_of_a_table_with_columns_of_its_own_are_refused() -> None:
    rows = replace(page([b"k"], [b"d"]), types=bytes([6]))
    assert isinstance(shape.rows(rows, [0])[0], JournalRow)
    with pytest.raises(UsageError, match="without --with-value"):
        shape.rows(rows, [0], has_value=True)


@pytest.mark.parametrize(
    ("key", "domain", "reason"),
    [
        *((b"\xff", b"d", "not UTF-8"), (b"k", b"\xff", "not UTF-8")),
        *((b"a\0", b"d", "a zero byte"), (b"k", b"a\0", "a zero byte")),
    ],
)
def test_a_job_that_no_table_holds_is_told(key: bytes, domain: bytes, reason: str) -> None:
    first, second = shape.rows(page([key, b"k"], [domain, b"d"]), [0, 1])
    assert isinstance(first, str)
    assert reason in first
    assert first.startswith("job 1 is left out")
    assert isinstance(second, JournalRow)
