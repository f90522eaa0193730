"""What is typed on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from fjord import jobs
from fjord.cli import arguments
from fjord.errors import UsageError


@pytest.mark.req("SJ-08")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("255", 255),
        ("now", 0),
        ("important", 10),
        ("new-page", 20),
        ("NEW_PAGE", 20),
        ("reset", 50),
        ("updates", 180),
        ("slow", 200),
        ("review", 230),
        ("time-allows", 255),
        ("default", 100),
    ],
)
def test_a_priority_is_a_number_or_a_name(text: str, number: int) -> None:
    assert arguments.priority(text) == number


@pytest.mark.parametrize("text", ["", "256", "-1", "soon", "1.5", "\u0663", " 1"])
def test_what_is_no_priority_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(UsageError, match="time-allows 255"):
        arguments.priority(text)


def test_every_priority_is_named() -> None:
    for one in jobs.Priority:
        assert arguments.priority(one.name) == one.value
        assert f" {one.value}" in arguments.PRIORITIES


@pytest.mark.parametrize(
    ("text", "found"), [("0", 0.0), ("0.5", 0.5), ("1e3", 1000.0), ("3600", 3600.0)]
)
def test_seconds_are_a_number(text: str, found: float) -> None:
    assert arguments.seconds(high=3600)(text) == found


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "x", "", "3601"])
def test_seconds_without_end_or_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        arguments.seconds(high=3600)(text)


def test_seconds_have_a_least() -> None:
    assert arguments.seconds(arguments.SOME)("0.001") == 0.001
    with pytest.raises(typer.BadParameter, match=r"finite number of seconds, 0\.001 or more"):
        arguments.seconds(arguments.SOME)("0.0001")


@pytest.mark.parametrize(
    ("low", "high", "text", "said"),
    [
        (0.0, 31_622_400, "-1", "0 to 31622400 seconds, which is 366 days"),
        (arguments.SOME, 2_592_000, "inf", "0.001 to 2592000 seconds, which is 30 days"),
        (0.0, 3600.0, "3601", "0 to 3600 seconds"),
    ],
)
def test_seconds_out_of_range_are_told_the_range(
    low: float, high: float, text: str, said: str
) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        arguments.seconds(low, high)(text)
    assert str(caught.value) == f"{text} is not within {said}"


def test_a_date_has_a_zone() -> None:
    assert arguments.moment("") is None
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31 12:00Z"):
        assert arguments.moment(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31"])
def test_a_date_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"{text} has no time zone"):
        arguments.moment(text)


@pytest.mark.parametrize("text", ["soon", "1969-12-31T00:00:00Z", "0001-01-01", "2026-13-01"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        arguments.moment(text)


def test_one_date_is_enough() -> None:
    assert arguments.one_date(None, "") == {"delay": None, "process_at": None}
    assert arguments.one_date(0.0, "") == {"delay": 0.0, "process_at": None}
    with pytest.raises(UsageError, match="exclude each other"):
        arguments.one_date(0.0, "2026-01-31T12:00:00Z")


def test_a_place_in_a_stream_is_a_word_a_seq_or_a_date() -> None:
    places = [arguments.start(text) for text in ("beginning", "end", "0", "4711")]
    assert places == ["beginning", "end", 0, 4711]
    assert arguments.start("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "2026-01-31T12:00:00"])
def test_what_is_no_place_says_what_is_one(text: str) -> None:
    with pytest.raises(UsageError, match="beginning, end"):
        arguments.start(text)
