"""The page of a report on jobs: data in, one text of HTML out, which needs nothing but a browser.

First what wants a look, then the figures, then the plots, then the tables.  There are no scripts
and no fonts, and nothing is fetched; colours follow the reader's choice of light or dark.  All text
from outside goes through `escape`: keys are written by strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Final

from fjord.spark.pipelines import plots
from fjord.spark.pipelines.plots import duration, number

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a report on jobs has found; rows are those of the frames in `job_frames`."""

    tables: Rows  # one for each table
    percentiles: Rows  # of everything, of each table and priority, and of the largest domains
    breaches: Rows  # the worst
    breach_count: int
    failures: Rows  # the keys that failed most
    failure_count: int
    periods: Rows  # every one from the first to the last, over all tables
    period_seconds: int
    histogram: Rows
    buckets_per_decade: int
    op_count: int
    first_at: datetime | None
    last_at: datetime | None
    until: datetime
    limit_seconds: float | None  # if it is the same for all tables
    is_limited: bool  # somebody said how long things may take

    def total(self, name: str) -> int:
        return sum(int(table[name]) for table in self.tables)

    def overall(self, measure: str) -> Mapping[str, Any]:
        """Returns count and percentiles of a measure over everything."""
        for row in self.percentiles:
            if row["level"] == "all" and row["measure"] == measure:
                return row
        return {"count": 0, "p50": None, "p90": None, "p99": None, "p999": None, "max": None}


def render(found: Found) -> str:
    """Returns the page."""
    title = f"Jobs: {', '.join(table['table'] for table in found.tables)}"
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


def _subtitle(found: Found) -> str:
    if found.first_at is None or found.last_at is None:
        return f"No history before {plots.moment(found.until)} UTC."
    return (
        f"{plots.moment(found.first_at)} to {plots.moment(found.last_at)} UTC, "
        f"{number(found.op_count)} changes; as of {plots.moment(found.until)} UTC"
    )


# -- at a glance ----------------------------------------------------------------------------------


def _verdict(found: Found) -> str:
    """Says what wants a look; red first."""
    worries = [
        ("red", "#breaches", found.breach_count, "longer than allowed"),
        ("red", "#tables", found.total("dead"), "dead"),
        ("red", "#tables", found.total("expired_unread"), "expired unread"),
        (
            "amber",
            "#tables",
            found.total("late"),
            "late: the lease was over and it was taken again",
        ),
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


def _cards(found: Found) -> str:
    wait, run, total = (found.overall(measure) for measure in ("wait", "run", "total"))
    pushes = found.total("merged") + found.total("jobs")
    cards = [
        ("done", number(found.total("done")), _rate(found)),
        ("wait, median", duration(wait["p50"]), f"p99 {duration(wait['p99'])}"),
        ("run, median", duration(run["p50"]), f"p99 {duration(run['p99'])}"),
        ("total, median", duration(total["p50"]), f"p99 {duration(total['p99'])}"),
        (
            "done at the first attempt",
            _share(found.total("done_at_first"), found.total("done")),
            f"{number(found.total('attempts'))} attempts in all",
        ),
        (
            "pushes saved",
            number(found.total("merged")),
            f"{_share(found.total('merged'), pushes)} of pushes were merged",
        ),
        (
            "open",
            number(found.total("waiting") + found.total("taken")),
            f"{number(found.total('due'))} due, {number(found.total('taken'))} taken",
        ),
    ]
    shown = (
        f"<div><span>{escape(name)}</span><b>{escape(figure)}</b><small>{escape(more)}</small></div>"
        for name, figure, more in cards
    )
    return f'<section class="cards">{"".join(shown)}</section>'


def _rate(found: Found) -> str:
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


def _plots(found: Found) -> str:
    if not found.periods:
        return ""
    of_all = f", all {len(found.tables)} tables together" if len(found.tables) > 1 else ""
    every = f"{duration(found.period_seconds)}{of_all}"
    seconds, limit = found.period_seconds, found.limit_seconds
    parts = [
        (
            f"Throughput, every {every}",
            (("blue", "pushed"), ("green", "done"), ("red", "failed, timed out or dead")),
            plots.throughput(found.periods, seconds),
        ),
        (
            f"Waits, every {every}",
            (("blue", "median"), ("amber", "p99")),
            plots.waits(found.periods, seconds, limit),
        ),
        (
            f"How many take how long{of_all}",
            (
                ("pale", "waits (bars)"),
                ("blue", "share that waited at most so long"),
                ("amber", "ran"),
                ("green", "took in all"),
            ),
            plots.spread(found.histogram, found.buckets_per_decade),
        ),
    ]
    return "\n".join(
        f"<section><h2>{escape(title)}</h2>{_legend(names)}<figure>{plot}</figure></section>"
        for title, names, plot in parts
    )


def _legend(names: Iterable[tuple[str, str]]) -> str:
    keys = (f'<span><i class="{colour}"></i>{escape(name)}</span>' for colour, name in names)
    return f'<p class="legend">{"".join(keys)}</p>'


# -- tables ---------------------------------------------------------------------------------------


def _percentiles(found: Found) -> str:
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
    names = ("p50", "p90", "p99", "p999", "max")
    return [row["measure"], number(row["count"]), *(duration(row[name]) for name in names)]


def _tables(found: Found) -> str:
    names = {
        "jobs": "jobs",
        "done": "done",
        "waiting": "waiting",
        "due": "due",
        "taken": "taken",
        "dead": "dead",
        "expired": "expired",
        "expired_unread": "unread",
        "dropped": "dropped",
        "attempts": "attempts",
        "timed_out": "timed out",
        "late": "late",
        "merged": "pushes saved",
    }
    cells = [
        [
            table["table"],
            *(number(table[name]) for name in names),
            duration(table["oldest_due"]) if table["due"] else "\u2013",
        ]
        for table in found.tables
    ]
    shown = _table(("table", *names.values(), "oldest due waits"), cells, words=1)
    return f'<section id="tables"><h2>Tables</h2>{shown}</section>'


def _breaches(found: Found) -> str:
    if not found.is_limited:
        return ""
    heads = ("table", "key", "what", "when", "took", "allowed")
    cells = [
        [
            row["table"],
            _name(row["key"]),
            _KINDS[row["kind"]],
            plots.moment(row["at"]),
            duration(row["seconds"]),
            duration(row["limit_seconds"]),
        ]
        for row in found.breaches
    ]
    title = f"Longer than allowed: {number(found.breach_count)}"
    return _list("breaches", title, _table(heads, cells, words=4), len(cells), found.breach_count)


def _failures(found: Found) -> str:
    heads = ("table", "key", "last", "jobs", "failures", "timeouts", "dead", "done")
    cells = [
        [
            row["table"],
            _name(row["key"]),
            plots.moment(row["last_at"]),
            *(number(row[name]) for name in heads[3:]),
        ]
        for row in found.failures
    ]
    title = f"Keys that failed at least twice: {number(found.failure_count)}"
    return _list("failures", title, _table(heads, cells, words=3), len(cells), found.failure_count)


def _list(name: str, title: str, table: str, shown: int, count: int) -> str:
    more = f"<p>The first {shown} are shown; all are in the table {name}.</p>"
    return (
        f'<section id="{name}"><h2>{escape(title)}</h2>{table if shown else "<p>None.</p>"}'
        f"{more if count > shown else ''}</section>"
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
_KINDS: Final = {"wait": "waited", "total": "took in all", "waiting": "still waits"}
_FOOTER: Final = (
    "Wait: from the process date, or from when the job began to wait if that was later, until it "
    "was taken. Run: until its lease ended. Total: from when it could first be taken until it was "
    "done, with all retries. Times are to four digits, and dates are UTC."
)
_STYLE: Final = """
:root{--paper:#fff;--card:#f5f7fa;--line:#e1e7ef;--ink:#1a2331;--muted:#5d6b7e;--blue:#2f6fdb;
--pale:#c5d9f7;--green:#138a5e;--red:#cf3b3b;--amber:#c07a00}
@media (prefers-color-scheme:dark){
:root{--paper:#0e131a;--card:#171e28;--line:#2a3544;--ink:#e5ebf3;
--muted:#94a3b8;--blue:#6ba5ff;--pale:#24436f;--green:#45c492;--red:#ff7a70;--amber:#e6b04e}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 20px 48px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:26px;margin:0;overflow-wrap:anywhere}h2{font-size:18px;margin:36px 0 6px}
h3{font-size:14px;margin:18px 0 4px;color:var(--muted)}
header p,footer p,section p{color:var(--muted);margin:4px 0}
footer{margin-top:40px;border-top:1px solid var(--line);padding-top:10px;font-size:13px}
.chips{list-style:none;display:flex;flex-wrap:wrap;gap:8px;padding:0;margin:18px 0}
.chip{display:inline-block;border:1px solid;border-radius:999px;padding:4px 13px;font-size:14px;
text-decoration:none}
.chip.red{color:var(--red)}.chip.amber{color:var(--amber)}.chip.green{color:var(--green)}
a.chip:hover{background:var(--card)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}
.cards div{background:var(--card);border-radius:10px;padding:12px 14px;display:flex;
flex-direction:column}
.cards span,.cards small{color:var(--muted);font-size:13px}
.cards b{font-size:23px;line-height:1.35;font-variant-numeric:tabular-nums}
figure{margin:6px 0 0;background:var(--card);border-radius:10px;padding:8px}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--muted);font-size:12px}
svg .left{text-anchor:end}svg .below{text-anchor:middle}
svg .grid{stroke:var(--line);fill:none}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg rect.blue,svg circle.blue{fill:var(--blue)}svg rect.green{fill:var(--green)}
svg rect.red{fill:var(--red)}svg rect.pale{fill:var(--pale)}svg circle.amber{fill:var(--amber)}
svg .line.blue{stroke:var(--blue)}svg .line.amber{stroke:var(--amber)}
svg .line.green{stroke:var(--green)}
svg path.limit{stroke:var(--red);stroke-dasharray:6 4;fill:none}
svg text.limit{fill:var(--red);text-anchor:end}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
i.blue{background:var(--blue)}i.green{background:var(--green)}i.red{background:var(--red)}
i.amber{background:var(--amber)}i.pale{background:var(--pale)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--muted);font-weight:600}
td{overflow:hidden;text-overflow:ellipsis;max-width:420px}
.figure{text-align:right}
tbody tr:hover{background:var(--card)}
@media print{body{max-width:none}.chip{border:0;padding:0 12px 0 0}}
"""
