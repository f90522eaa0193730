"""The page: well-formed, self-contained, escaped, and with what matters in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from fjord.spark.pipelines import page
from fjord.spark.pipelines.page import JobFigures

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
EVIL = b'<script>alert("1")</script>&\xff'
NONE = dict.fromkeys(
    (
        *("jobs", "merged", "done", "waiting", "due", "taken", "dead", "expired", "dropped"),
        *("expired_unread", "failed_twice", "done_at_first", "attempts", "timed_out", "late"),
    ),
    0,
)


class Checker(HTMLParser):
    """Reads a page and ensures that what is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.links += [text for name, text in attrs if name in ("src", "href") and text]
        self.ids.add(given.get("id") or "")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check(text: str) -> Checker:
    found = Checker()
    found.feed(text)
    found.close()
    assert found.open == []
    assert {one for one in found.links if not one.startswith("#")} == set()
    assert {one[1:] for one in found.links} <= found.ids
    assert "script" not in found.tags
    assert not re.search(r"@import|url\(", text)
    return found


def percentile(level: str, measure: str, **more: Any) -> Mapping[str, Any]:
    figures = {"count": 5, "p50": 0.0123, "p90": 1.5, "p99": 61.0, "p999": 9000.0, "max": 9000.0}
    where = {"table": None, "domain": None, "priority": None}
    return {"level": level, "measure": measure, **where, **figures, **more}


def period(minute: int, pushed: int, done: int, failed: int, *waits: float | None) -> Any:
    names = ("at", "pushed", "done", "failed", "wait_p50", "wait_p99")
    at = NOW + timedelta(minutes=minute)
    return dict(zip(names, (at, pushed, done, failed, *waits), strict=True))


def found_of(**more: Any) -> JobFigures:
    periods = [
        period(0, 5, 3, 0, 0.5, 2.0),
        period(1, 0, 0, 0, None, None),
        period(2, 1, 2, 1, 0.0, 40.0),
    ]
    given: dict[str, Any] = {
        "tables": [{"table": "pages", **NONE, "jobs": 9, "done": 5, "oldest_due": 0.0}],
        "percentiles": [percentile("all", "wait"), percentile("table", "wait", table="pages")],
        "breaches": [],
        "breach_count": 0,
        "failures": [],
        "failure_count": 0,
        "periods": periods,
        "period_seconds": 60,
        "histogram": [{"measure": "wait", "bucket": 30, "count": 5}],
        "op_count": 1234,
        "first_at": NOW,
        "last_at": NOW + timedelta(minutes=2),
        "until": NOW + timedelta(minutes=3),
        "limit_seconds": None,
        "is_limited": False,
    }
    return JobFigures(**{**given, **more})


def test_what_is_wrong_comes_first_and_is_escaped() -> None:
    breach: dict[str, Any] = {"table": "<b>", "row": 1, "key": EVIL, "domain": None}
    breach |= {"priority": 1, "at": NOW, "kind": "wait", "seconds": 70.0, "limit_seconds": 60.0}
    failure: dict[str, Any] = {"table": "pages", "key": b"x" * 500, "domain": None, "last_at": NOW}
    failure |= {"jobs": 1, "failures": 2, "timeouts": 1, "dead": 1, "done": 0}
    counts = {**NONE, "dead": 2, "late": 3, "expired_unread": 1, "failed_twice": 1, "due": 1}
    text = page.render(
        found_of(
            tables=[{"table": "<b>", **counts, "oldest_due": 3600.0}],
            percentiles=[
                percentile("domain", "wait", table="<b>", domain='"><script>'),
                percentile("priority", "run", table="<b>", priority=100),
            ],
            breaches=[breach],
            breach_count=21,
            failures=[failure],
            failure_count=1,
            limit_seconds=60.0,
            is_limited=True,
        )
    )
    seen = check(text)
    order = [seen.text.index(one) for one in ("21 longer", "2 dead", "3 late", "Throughput")]
    assert order == sorted(order)
    assert '<script>alert("1")</script>&\\xff' in seen.text
    assert "allowed: 60 s" in seen.text
    assert "The first 1 are shown; all are in the table breaches." in seen.text
    assert "x" * 99 + "\u2026" in seen.text
    assert "x" * 100 not in seen.text
    assert "60 min" in seen.text  # the oldest that is due
