"""The page of a report on jobs: data in, one text of HTML out, which needs nothing but a browser.

First the problems, then the figures, the plots and the tables.  There are no scripts and no fonts,
and nothing is fetched; colours follow the reader's choice of light or dark.  All text from outside
goes through `escape`: keys are written by strangers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib import resources
from itertools import groupby
from typing import Any, Final

Rows = Sequence[Mapping[str, Any]]

#: The counts of a table's jobs.
COUNTS: Final = (
    *("jobs", "done", "waiting", "due", "taken", "dead", "expired", "expired_unread"),
    *("dropped", "attempts", "timed_out", "late"),
)
#: Buckets of a histogram for each power of ten.
BUCKETS_PER_DECADE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """What a report on jobs has found; rows are those of the frames in `lifecycle`."""

    tables: Rows  # one for each table
    percentiles: Rows  # of everything, of each table and priority, and of the largest domains
    breaches: Rows  # the worst
    breach_count: int
    failures: Rows  # the keys that failed most
    failure_count: int
    periods: Rows  # every one from the first to the last, over all tables
    period_seconds: int
    histogram: Rows
    op_count: int
    first_at: datetime | None
    last_at: datetime | None
    until: datetime
    limit_seconds: float | None  # if it is the same for all tables
    is_limited: bool  # somebody said how long things may take

    @property
    def names(self) -> str:
        return ", ".join(table["table"] for table in self.tables)

    def total(self, name: str) -> int:
        return sum(int(table[name]) for table in self.tables)

    def overall(self, measure: str) -> Mapping[str, Any]:
        """Returns count and percentiles of a measure over everything."""
        overall = (row for row in self.percentiles if row["level"] == "all")
        nothing = {"count": 0, **dict.fromkeys(_PERCENTILES)}
        return next((row for row in overall if row["measure"] == measure), nothing)


def render(found: JobFigures) -> str:
    """Returns the page."""
    title = f"Jobs: {found.names}"
    parts = [
        f"<header><h1>{escape(title)}</h1><p>{_subtitle(found)}</p></header>",
        _verdict(found),
        _cards(found),
        _plots(found),
        _percentiles(found),
        _tables(found),
        _breaches(found),
        _failures(found),
        f"<footer><p>{_FOOTER}</p></footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _subtitle(found: JobFigures) -> str:
    if found.first_at is None or found.last_at is None:
        return f"No history before {moment(found.until)} UTC."
    return (
        f"{moment(found.first_at)} to {moment(found.last_at)} UTC, "
        f"{number(found.op_count)} changes; as of {moment(found.until)} UTC"
    )


# -- at a glance ----------------------------------------------------------------------------------


def _verdict(found: JobFigures) -> str:
    """Returns the problems; red first."""
    worries = [
        ("red", "#breaches", found.breach_count, "longer than allowed"),
        ("red", "#tables", found.total("dead"), "dead"),
        ("red", "#tables", found.total("expired_unread"), "expired unread"),
        ("amber", "#tables", found.total("late"), _LATE),
        ("amber", "#failures", found.total("failed_twice"), "failed at least twice"),
    ]
    chips = [
        f'<li><a class="chip {colour}" href="{where}"><b>{number(count)}</b> {what}</a></li>'
        for colour, where, count, what in worries
        if count
    ]
    if not chips:
        allowed = "" if found.is_limited else " No limit was given, so nothing can be too slow."
        text = f"No job is dead, late, expired unread or failed twice.{allowed}"
        chips = [f'<li><span class="chip green"><b>All well.</b> {text}</span></li>']
    return f'<ul class="chips">{"".join(chips)}</ul>'


def _cards(found: JobFigures) -> str:
    done, merged, taken = (found.total(name) for name in ("done", "merged", "taken"))
    attempts, due = (number(found.total(name)) for name in ("attempts", "due"))
    not_gone = number(found.total("waiting") + taken)
    at_first = _share(found.total("done_at_first"), done)
    saved = _share(merged, merged + found.total("jobs"))
    cards = [("done", number(done), _rate(found))]
    for measure in _MEASURES:
        row = found.overall(measure)
        cards.append((f"{measure}, median", duration(row["p50"]), f"p99 {duration(row['p99'])}"))
    cards += [
        ("done at the first attempt", at_first, f"{attempts} attempts in all"),
        ("pushes saved", number(merged), f"{saved} of pushes were merged"),
        ("open", not_gone, f"{due} due, {number(taken)} taken"),
    ]
    shown = (
        f"<div><span>{escape(name)}</span><b>{escape(figure)}</b><small>{escape(more)}</small></div>"
        for name, figure, more in cards
    )
    return f'<section class="cards">{"".join(shown)}</section>'


def _rate(found: JobFigures) -> str:
    if found.first_at is None or found.last_at is None:
        return ""
    seconds = (found.last_at - found.first_at).total_seconds()
    done = found.total("done")
    if seconds < 1 or not done:
        return ""
    per_second = done / seconds
    if per_second >= 1:
        return f"{number(per_second)} a second"
    return f"{per_second * 3600:,.3g} an hour"


def _share(part: int, whole: int) -> str:
    return "\u2013" if not whole else f"{100 * part / whole:.3g} %"


# -- plots ----------------------------------------------------------------------------------------


def _plots(found: JobFigures) -> str:
    if not found.periods:
        return ""
    of_all = f", all {len(found.tables)} tables together" if len(found.tables) > 1 else ""
    seconds = found.period_seconds
    every = f"{duration(seconds)}{of_all}"
    sections = [
        _plot(
            f"Throughput, every {every}",
            {"blue": "pushed", "green": "done", "red": "failed, timed out or dead"},
            throughput(found.periods, seconds),
        ),
        _plot(
            f"Waits, every {every}",
            {"blue": "median", "amber": "p99"},
            waits(found.periods, seconds, found.limit_seconds),
        ),
        _plot(f"How many take how long{of_all}", _SPREAD, spread(found.histogram)),
    ]
    return "\n".join(sections)


def _plot(title: str, legend: Mapping[str, str], plot: str) -> str:
    """Returns a plot with its legend, which has a name for each colour."""
    names = (
        f'<span><i class="{colour}"></i>{escape(name)}</span>' for colour, name in legend.items()
    )
    return (
        f'<section><h2>{escape(title)}</h2><p class="legend">{"".join(names)}</p>'
        f"<figure>{plot}</figure></section>"
    )


# -- tables ---------------------------------------------------------------------------------------


def _percentiles(found: JobFigures) -> str:
    parts = []
    for level, title, names in (
        ("table", "By table", ("table",)),
        ("priority", "By priority", ("table", "priority")),
        ("domain", "By domain, the largest", ("table", "domain")),
    ):
        rows = [row for row in found.percentiles if row["level"] == level]
        if rows:
            cells = [[*(_name(row[one]) for one in names), *_measured(row)] for row in rows]
            heads = (*names, "", "count", "p50", "p90", "p99", "p99.9", "max")
            parts.append(f"<h3>{title}</h3>{_table(heads, cells, words=len(names) + 1)}")
    if not parts:
        return ""
    return f'<section id="percentiles"><h2>Percentiles</h2>{"".join(parts)}</section>'


def _measured(row: Mapping[str, Any]) -> list[str]:
    return [row["measure"], number(row["count"]), *(duration(row[name]) for name in _PERCENTILES)]


def _tables(found: JobFigures) -> str:
    names = (*COUNTS, "merged")
    cells = [
        [
            table["table"],
            *(number(table[name]) for name in names),
            duration(table["oldest_due"]) if table["due"] else "\u2013",
        ]
        for table in found.tables
    ]
    heads = (_HEADS.get(name, name) for name in names)
    shown = _table(("table", *heads, "oldest due waits"), cells, words=1)
    return f'<section id="tables"><h2>Tables</h2>{shown}</section>'


def _breaches(found: JobFigures) -> str:
    if not found.is_limited:
        return ""
    cells = [
        [
            *(row["table"], _name(row["key"]), _KINDS[row["kind"]], moment(row["at"])),
            *(duration(row[name]) for name in ("seconds", "limit_seconds")),
        ]
        for row in found.breaches
    ]
    table = _table(("table", "key", "what", "when", "took", "allowed"), cells, words=4)
    return _list("breaches", "Longer than allowed", table, len(cells), found.breach_count)


def _failures(found: JobFigures) -> str:
    heads = ("table", "key", "last", "jobs", "failures", "timeouts", "dead", "done")
    cells = [
        [
            *(row["table"], _name(row["key"]), moment(row["last_at"])),
            *(number(row[name]) for name in heads[3:]),
        ]
        for row in found.failures
    ]
    table, title = _table(heads, cells, words=3), "Keys that failed at least twice"
    return _list("failures", title, table, len(cells), found.failure_count)


def _list(name: str, title: str, table: str, shown: int, count: int) -> str:
    more = f"<p>The first {shown} are shown; all are in the table {name}.</p>"
    return (
        f'<section id="{name}"><h2>{title}: {number(count)}</h2>'
        f"{table if shown else '<p>None.</p>'}{more if count > shown else ''}</section>"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """Returns a table whose first columns are words; all others are figures."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{'' if place < words else ' class=figure'}>{escape(text)}</{tag}>"
            for place, text in enumerate(texts)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def _name(found: object) -> str:
    """Returns a key, a domain or a priority as short text."""
    if found is None:
        return "\u2013"
    if isinstance(found, bytes | bytearray):
        found = bytes(found).decode("utf-8", "backslashreplace")
    text = "".join(one if one.isprintable() else "\ufffd" for one in str(found))
    return text if len(text) <= _NAME_CHARACTERS else f"{text[: _NAME_CHARACTERS - 1]}\u2026"


_NAME_CHARACTERS: Final = 100
_MEASURES: Final = ("wait", "run", "total")
_PERCENTILES: Final = ("p50", "p90", "p99", "p999", "max")
_HEADS: Final = {"expired_unread": "unread", "timed_out": "timed out", "merged": "pushes saved"}
_LATE: Final = "late: the lease expired and the job was taken again"
_KINDS: Final = {"wait": "waited", "total": "took in all", "waiting": "still waits"}
_SPREAD: Final = {
    "pale": "waits (bars)",
    "blue": "share that waited at most this long",
    "amber": "ran",
    "green": "took in all",
}
_FOOTER: Final = (
    "Wait: from the process date, or from when the job began to wait if that was later, until it "
    "was taken. Run: until its lease ended. Total: from when it could first be taken until it was "
    "done, with all retries. Times are to four digits, and dates are UTC."
)
_STYLE: Final = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


# -------------------------------------------------------------------------------------------------
#
# Plots as SVG: text for a page of HTML, without scripts and without anything from elsewhere.
#
# Colours come from classes whose meaning is in the style of the page, so that one plot is right
# in light and in dark.  Every mark has a title, which browsers show under the pointer.
# The caller bounds the contents of a plot: a period or a bucket for each mark.


WIDTH: Final = 1000
HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 34, 12, 28
_END: Final = WIDTH - _RIGHT
_INNER_WIDTH: Final = _END - _LEFT
_INNER_HEIGHT: Final = HEIGHT - _TOP - _BOTTOM
_BAR_WIDTH_MAX: Final = 40
_LABELS: Final = 8  # along the axis of time, so far apart
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LABEL_SECONDS: Final = (
    *(1, 5, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY),
)

Scale = Callable[[float], float]


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
    marks: list[str] = []
    dots: list[str] = []  # above all lines
    for name, colour in (("wait_p99", "amber"), ("wait_p50", "blue")):
        # A line across periods in which nothing was taken would show waits that did not happen.
        parts = groupby(enumerate(periods), key=lambda one: one[1][name] is not None)
        for part in (list(part) for is_known, part in parts if is_known):
            points = []
            for place, period in part:
                x, y = _LEFT + step * (place + 0.5), height(_log(period[name]))
                title = f"{moment(period['at'])}: {name[-3:]} {duration(period[name])}"
                points.append((x, y))
                dots.append(
                    f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                    f"<title>{escape(title)}</title></circle>"
                )
            marks.append(_line(points, colour))
    if limit_seconds:
        y, text = height(_log(limit_seconds)), f"allowed: {duration(limit_seconds)}"
        marks += [
            f'<path class="limit" d="M{_LEFT} {y:.1f}H{_END}"><title>{text}</title></path>',
            f'<text class="limit" x="{_END}" y="{y - 5:.1f}">{text}</text>',
        ]
    ticks = [(power, duration(10**power)) for power in range(low, high + 1)]
    axes = [*_rows(ticks, height), *_times(periods, seconds, step)]
    return _svg("Waits over time: median and 99th percentile", axes, [*marks, *dots])


def spread(buckets: Sequence[Mapping[str, Any]]) -> str:
    """Returns bars of how many jobs waited how long, and lines of shares that took at most that."""
    counts = {
        measure: {one["bucket"]: one["count"] for one in buckets if one["measure"] == measure}
        for measure in ("wait", "run", "total")
    }
    first = min((one["bucket"] for one in buckets), default=0)
    last = max((one["bucket"] for one in buckets), default=0)
    first -= first % BUCKETS_PER_DECADE
    last += BUCKETS_PER_DECADE - last % BUCKETS_PER_DECADE
    step = _INNER_WIDTH / (last - first)
    share = _upwards(0, 1)
    most = max(counts["wait"].values(), default=1)
    marks = []
    for bucket, count in sorted(counts["wait"].items()):
        y = share(count / most)
        low, high = (10 ** ((bucket + more) / BUCKETS_PER_DECADE) / 1e6 for more in (0, 1))
        title = f"{number(count)} waited {duration(low)} to {duration(high)}"
        x = _LEFT + step * (bucket - first)
        marks.append(_rect(x + 1, y, step - 2, _TOP + _INNER_HEIGHT - y, "pale", title))
    for measure, colour in (("total", "green"), ("run", "amber"), ("wait", "blue")):
        points = _shares(counts[measure], first, last)
        marks.append(_line([(_LEFT + step * place, share(part)) for place, part in points], colour))
    axes = _rows([(part / 4, f"{part * 25} %") for part in range(5)], share)
    for bucket in range(first, last + 1, BUCKETS_PER_DECADE):
        x = _LEFT + step * (bucket - first)
        axes += _label(x, duration(10 ** (bucket / BUCKETS_PER_DECADE) / 1e6), is_line=True)
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


def _upwards(low: float, high: float) -> Scale:
    """Returns where on the page a number between the two is."""
    return lambda one: _TOP + _INNER_HEIGHT * (1 - (one - low) / (high - low or 1))


def _log(seconds: float) -> float:
    """A microsecond is the resolution of the clock, so nothing is shorter."""
    return math.log10(max(seconds, 1e-6))


def _decades(found: Iterable[float]) -> tuple[int, int]:
    logs = [_log(one) for one in found] or [0.0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _rows(ticks: Iterable[tuple[float, str]], height: Scale) -> list[str]:
    """Returns lines across with their labels at the left."""
    parts = []
    for at, label in ticks:
        y = height(at)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_END}"/>')
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


def _svg(title: str, axes: Iterable[str], marks: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(axes)}{''.join(marks)}</svg>"
    )
