"""Plots as SVG: text for a page of HTML, without scripts and without anything from elsewhere.

Colours come from classes whose meaning is in the style of the page, so that one plot is right in
light and in dark.  Every mark has a title, which browsers show to whoever points at it.  What goes
into a plot is bounded by whoever makes it: a period or a bucket for each mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from typing import Any, Final

WIDTH: Final = 1000
HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 34, 12, 28
_INNER_WIDTH: Final = WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT: Final = HEIGHT - _TOP - _BOTTOM
_BAR_WIDTH_MAX: Final = 40
_LABELS: Final = 8  # along the axis of time, so far apart
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LABEL_SECONDS: Final = (
    *(1, 5, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY),
)

Place = Callable[[float], float]


def throughput(periods: Sequence[Mapping[str, Any]], seconds: int) -> str:
    """Returns bars: what was pushed, done and failed in each period, which all are given."""
    names = {"pushed": "blue", "done": "green", "failed": "red"}
    top = nice_top(max((period[name] for period in periods for name in names), default=0))
    height = _upwards(0, top)
    step = _INNER_WIDTH / max(len(periods), 1)
    width = min(step * 0.8 / len(names), _BAR_WIDTH_MAX)
    marks = []
    for place, period in enumerate(periods):
        for nth, (name, colour) in enumerate(names.items()):
            if not period[name]:
                continue
            x = _LEFT + step * (place + 0.5) + width * (nth - len(names) / 2)
            y = height(period[name])
            title = f"{moment(period['at'])}: {number(period[name])} {name}"
            marks.append(_rect(x, y, width, _TOP + _INNER_HEIGHT - y, colour, title))
    ticks = [(top * part / 4, number(round(top * part / 4))) for part in range(5)]
    axes = [*_rows(ticks, height), *_times(periods, seconds, step)]
    return _svg("Jobs pushed, done and failed over time", axes, marks)


def waits(
    periods: Sequence[Mapping[str, Any]], seconds: int, limit_seconds: float | None = None
) -> str:
    """Returns lines: median and 99th percentile of waits in each period, on a log scale."""
    known = [period for period in periods if period["wait_p99"] is not None]
    found = [period[name] for period in known for name in ("wait_p50", "wait_p99")]
    low, high = _decades([*found, *([limit_seconds] if limit_seconds else [])])
    height = _upwards(low, high)
    step = _INNER_WIDTH / max(len(periods), 1)
    marks = []
    for name, colour in (("wait_p99", "amber"), ("wait_p50", "blue")):
        # A line across periods in which nothing was taken would show waits that nobody had.
        parts = groupby(enumerate(periods), key=lambda one: one[1][name] is not None)
        for part in (list(part) for is_known, part in parts if is_known):
            points = [
                (_LEFT + step * (place + 0.5), height(_log(period[name]))) for place, period in part
            ]
            marks.append(_line(points, colour))
            marks += [
                _dot(x, y, colour, f"{moment(period['at'])}: {name[-3:]} {duration(period[name])}")
                for (x, y), (_, period) in zip(points, part, strict=True)
            ]
    if limit_seconds:
        marks.append(_limit(height(_log(limit_seconds)), limit_seconds))
    axes = [*_rows(_decade_ticks(low, high), height), *_times(periods, seconds, step)]
    return _svg("Waits over time: median and 99th percentile", axes, marks)


def spread(buckets: Sequence[Mapping[str, Any]], per_decade: int) -> str:
    """Returns bars of how many jobs waited how long, and lines of shares that took at most that."""
    counts = {
        measure: {one["bucket"]: one["count"] for one in buckets if one["measure"] == measure}
        for measure in ("wait", "run", "total")
    }
    first = min((one["bucket"] for one in buckets), default=0)
    last = max((one["bucket"] for one in buckets), default=0)
    first, last = first - first % per_decade, last + per_decade - last % per_decade
    step = _INNER_WIDTH / (last - first)
    share = _upwards(0, 1)
    most = max(counts["wait"].values(), default=1)
    marks = []
    for bucket, count in sorted(counts["wait"].items()):
        y = share(count / most)
        low, high = (10 ** ((bucket + more) / per_decade) / 1e6 for more in (0, 1))
        title = f"{number(count)} waited {duration(low)} to {duration(high)}"
        x = _LEFT + step * (bucket - first)
        marks.append(_rect(x + 1, y, step - 2, _TOP + _INNER_HEIGHT - y, "pale", title))
    for measure, colour in (("total", "green"), ("run", "amber"), ("wait", "blue")):
        points = _shares(counts[measure], first, last)
        marks.append(_line([(_LEFT + step * place, share(part)) for place, part in points], colour))
    axes = _rows([(part / 4, f"{part * 25} %") for part in range(5)], share)
    for bucket in range(first, last + 1, per_decade):
        x = _LEFT + step * (bucket - first)
        axes += _label(x, duration(10 ** (bucket / per_decade) / 1e6), is_line=True)
    return _svg("How long jobs wait, run and take in all", axes, marks)


def _shares(counts: Mapping[int, int], first: int, last: int) -> list[tuple[int, float]]:
    """Returns at the end of each bucket the share of all that is not longer."""
    total, so_far, found = sum(counts.values()), 0, []
    if not total:
        return []
    for bucket in range(first, last):
        found.append((bucket - first, so_far / total))
        so_far += counts.get(bucket, 0)
    return [*found, (last - first, so_far / total)]


# -- numbers in words -----------------------------------------------------------------------------


def number(count: float) -> str:
    """Returns a number as people write it."""
    return f"{count:,.0f}".replace(",", "\u202f")


def duration(seconds: float | None) -> str:
    """Returns a time in the unit that fits it, with three digits."""
    if seconds is None:
        return "\u2013"
    if seconds == 0:
        return "0"
    for unit, size, until in _UNITS:
        if seconds < until:
            return f"{_digits(seconds / size)} {unit}"
    return f"{number(seconds / 86_400)} d"


_UNITS: Final = (
    ("\u00b5s", 1e-6, 0.9995e-3),
    ("ms", 1e-3, 0.9995),
    ("s", 1.0, 119.5),
    ("min", 60.0, 7170.0),
    ("h", 3600.0, 172_000.0),
    ("d", 86_400.0, 86_400_000.0),
)


def _digits(value: float) -> str:
    text = f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def nice_top(most: float) -> float:
    """Returns the first round number, of which a quarter is one too, that is not smaller."""
    if most <= 40:
        return max(4, math.ceil(most / 4) * 4)
    size = math.pow(10, math.floor(math.log10(most)))
    return next(size * one for one in _ROUND if size * one >= most)


_ROUND: Final = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)


# -- scales and axes ------------------------------------------------------------------------------


def _upwards(low: float, high: float) -> Place:
    """Returns where on the page a number between the two is."""
    return lambda one: _TOP + _INNER_HEIGHT * (1 - (one - low) / (high - low or 1))


def _log(seconds: float) -> float:
    """Nothing is shorter than the microsecond that clocks here can tell."""
    return math.log10(max(seconds, 1e-6))


def _decades(found: Iterable[float]) -> tuple[int, int]:
    logs = [_log(one) for one in found] or [0.0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _decade_ticks(low: int, high: int) -> list[tuple[float, str]]:
    return [(power, duration(10**power)) for power in range(low, high + 1)]


def _rows(ticks: Iterable[tuple[float, str]], height: Place) -> list[str]:
    """Returns lines across with their labels at the left."""
    parts = []
    for at, label in ticks:
        y = height(at)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="left" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(label)}</text>')
    return parts


def _times(periods: Sequence[Mapping[str, Any]], seconds: int, step: float) -> list[str]:
    """Returns labels of some periods, at the bottom."""
    is_one_day = len({period["at"].date() for period in periods}) <= 1
    clock = "%H:%M:%S" if seconds < 60 else "%H:%M"
    form = clock if is_one_day else f"%d %b {clock}"
    if seconds >= _DAY:
        form = "%d %b" if seconds == _DAY else "%Y-%m-%d"
    every = _label_seconds(len(periods), seconds)
    parts = []
    for place, period in enumerate(periods):
        if int(period["at"].timestamp()) % every == 0:
            parts += _label(_LEFT + step * (place + 0.5), f"{period['at']:{form}}")
    return parts


def _label_seconds(count: int, seconds: int) -> int:
    """Returns how far apart labels are: round times, and not too many of them."""
    for every in _LABEL_SECONDS:
        if every % seconds == 0 and count * seconds <= every * _LABELS:
            return every
    return seconds * math.ceil(count / _LABELS)


def _label(x: float, text: str, *, is_line: bool = False) -> list[str]:
    bottom = _TOP + _INNER_HEIGHT
    line = [f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'] if is_line else []
    return [*line, f'<text class="below" x="{x:.1f}" y="{bottom + 18}">{escape(text)}</text>']


# -- marks ----------------------------------------------------------------------------------------


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" '
        f'height="{max(height, 0.5):.1f}"><title>{escape(title)}</title></rect>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="line {colour}" d="M{path}"/>' if len(points) > 1 else ""


def _dot(x: float, y: float, colour: str, title: str) -> str:
    return (
        f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{escape(title)}</title></circle>"
    )


def _limit(y: float, seconds: float) -> str:
    text = f"allowed: {duration(seconds)}"
    return (
        f'<path class="limit" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"><title>{text}</title></path>'
        f'<text class="limit" x="{WIDTH - _RIGHT}" y="{y - 5:.1f}">{text}</text>'
    )


def _svg(title: str, axes: Iterable[str], marks: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(axes)}{''.join(marks)}</svg>"
    )
