"""Plots: numbers in words, round axes, and marks where they belong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from fjord.spark.pipelines import page

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


def period(minute: int, **figures: Any) -> dict[str, Any]:
    empty = {"pushed": 0, "done": 0, "failed": 0, "wait_p50": None, "wait_p99": None}
    return {"at": NOW + timedelta(minutes=minute), **empty, **figures}


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


def parts(svg: str, tag: str) -> list[dict[str, str]]:
    return [one.attrib for one in tree(svg).iter(tag)]


def labels(svg: str) -> list[str]:
    return [one.text or "" for one in tree(svg).iter("text")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\u2013"),
        (0, "0"),
        (0.0000012, "1.2 \u00b5s"),
        (0.001, "1 ms"),
        (0.0123456, "12.3 ms"),
        (0.9999, "1 s"),
        (1, "1 s"),
        (60, "60 s"),
        (110.4, "110 s"),
        (150, "2.5 min"),
        (7200, "2 h"),
        (200_000, "2.31 d"),
        (1e8, "1\u202f157 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert page.duration(seconds) == text


@pytest.mark.parametrize(
    ("most", "top"),
    [(0, 4), (4, 4), (5, 8), (37, 40), (41, 60), (100, 100), (101, 120), (70_000, 80_000)],
)
def test_axes_end_with_round_numbers(most: int, top: int) -> None:
    assert page.nice_top(most) == top
    assert top % 4 == 0


def test_bars_are_as_high_as_their_numbers() -> None:
    svg = page.throughput([period(0, pushed=8, done=4), period(1), period(2, failed=2)], 60)
    bars = parts(svg, "rect")
    assert [bar["class"] for bar in bars] == ["blue", "green", "red"]
    heights = [float(bar["height"]) for bar in bars]
    assert heights == [heights[0], heights[0] / 2, heights[0] / 4]
    assert [float(bar["y"]) + float(bar["height"]) for bar in bars] == [222.0] * 3
    assert labels(svg) == ["0", "2", "4", "6", "8", "09:00", "09:01", "09:02"]
    assert "2026-11-16 09:02:00: 2 failed" in svg


def test_waits_are_lines_on_a_log_scale_with_the_limit() -> None:
    periods = [
        period(0, wait_p50=0.01, wait_p99=1.0),
        period(1),
        period(2, wait_p50=0.1, wait_p99=10),
    ]
    svg = page.waits(periods, 60, limit_seconds=1)
    heights = [float(dot["cy"]) for dot in parts(svg, "circle")]
    p99, p50 = heights[:2], heights[2:]
    # A decade is a third of 210.
    assert [round(p99[0] - p99[1]), round(p50[0] - p50[1]), round(p50[0] - p99[0])] == [70, 70, 140]
    assert labels(svg)[:4] == ["10 ms", "100 ms", "1 s", "10 s"]
    assert "allowed: 1 s" in labels(svg)
    assert "allowed" not in page.waits(periods, 60)
