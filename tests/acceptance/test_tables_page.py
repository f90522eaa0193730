"""The code of docs/tables.md runs as it stands, on a directory and on a daemon; numbers hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fjord import jobs, limits, streams
from tests.acceptance.daemon import Daemon

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "tables.md"
TEXT = PAGE.read_text()
JOBS = TEXT[TEXT.index("\n## Jobs tables\n") : TEXT.index("\n## Streams\n")]
STREAMS = TEXT[TEXT.index("\n## Streams\n") : TEXT.index("\n## Transactions\n")]
CODE = "".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
OPEN = 'fjord.open("data")'
SECOND_US = jobs.SECOND_US


def run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    assert names["kv"].get("retries") == 9
    assert names["flaky"].count() == (1, 0, 0)
    assert names["mails"].count() == (1, 0, 0)
    assert names["follower"].lag == 0
    assert names["profiles"].get("user:7") == "Paris"
    names["db"].close()


@pytest.mark.req("FJ-20", "FJ-31", "FJ-35", "FJ-44", "FJ-45", "FJ-46")
@pytest.mark.req("FJ-02", "FJ-04", "FJ-07", "FJ-28", "SJ-09", "SJ-16", "SJ-27", "JQ-02", "KY-02")
@pytest.mark.req("SJ-04", "SJ-18")
def test_on_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPEN in CODE
    monkeypatch.chdir(tmp_path)
    run(CODE)


@pytest.mark.req("FJ-20", "FJ-31", "FJ-35", "FJ-44", "FJ-45", "FJ-46")
@pytest.mark.req("FJ-02", "FJ-04", "FJ-07", "FJ-28", "SJ-09", "SJ-16", "SJ-27", "JQ-02", "KY-02")
def test_on_a_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        run(CODE.replace(OPEN, f'fjord.connect("{daemon.url}")'))


def test_every_rule_of_jobs_has_its_number() -> None:
    wanted = {f"FJ-{number:02}" for number in range(2, 17)}
    wanted |= {f"SJ-{number:02}" for number in range(1, 30)}
    wanted -= {"SJ-21"}  # of several nodes
    assert sorted(wanted - set(re.findall(r"[FS]J-\d\d", JOBS))) == []


def test_every_rule_of_streams_has_its_number() -> None:
    wanted = {f"KY-{number:02}" for number in range(1, 18)} | {"KY-30"}
    wanted |= {f"JQ-{number:02}" for number in (*range(1, 19), 41, 42, 43)}
    wanted -= {"KY-03", "KY-12", "JQ-14"}  # of several nodes
    assert sorted(wanted - set(re.findall(r"[A-Z]{2}-\d\d", STREAMS))) == []


def test_numbers_on_the_page_are_those_of_promises_and_decisions() -> None:
    promises = (DOCS / "promises.txt").read_text()
    named = sorted(set(re.findall(r"\b[A-Z]{2}-\d\d\b", TEXT)))
    assert [number for number in named if f"\n{number} " not in promises] == []
    decided = set(re.findall(r"^\| (\d+) \|", JOBS, re.MULTILINE))
    assert set(re.findall(r"decision (\d+)", TEXT)) <= decided


@pytest.mark.req("SJ-08")
def test_named_priorities_have_the_numbers_of_the_page() -> None:
    (line,) = re.findall(r"Priorities have names.*?\.\n", JOBS, re.DOTALL)
    named = re.findall(r"`(?:Priority\.)?([A-Z_]+)`\s+(\d+)", line)
    assert {name: int(number) for name, number in named} == dict(jobs.Priority.__members__)


def test_settings_are_those_of_the_page() -> None:
    rows = settings_of(section("Settings"))
    usual = {name: value.strip().strip('`"') for name, value, _ in rows}
    settings = jobs.Settings()
    assert usual == {
        "merge": str(settings.merge),
        "fairness": settings.fairness.value,
        "lease": str(settings.lease_us // SECOND_US),
        "timeouts_max": str(settings.timeouts_max),
        "debounce": str(settings.debounce_us // SECOND_US),
        "history": str(settings.history),
        "period": "none",
        "drained": settings.drained.value,
        "secure": str(settings.secure),
    }
    ranges = {name: bounds.split(" (")[0].strip() for name, _, bounds in rows}
    assert ranges["lease"] == f"{limits.LEASE_US_MIN / SECOND_US:g} to {seconds('LEASE_US_MAX')}"
    assert ranges["timeouts_max"] == f"0 to {limits.TIMEOUTS_MAX}"
    assert ranges["debounce"] == f"0 to {seconds('PROCESS_AHEAD_US_MAX')}"


def test_bounds_are_those_of_the_page() -> None:
    text = section("Bounds")
    assert f"{limits.JOB_KEY_BYTES_MAX:,} bytes; {limits.DOMAIN_BYTES_MAX} bytes; 1 MiB" in text
    assert f"{limits.BATCH_ROWS_MAX:,}; {limits.BATCH_BYTES_MAX // limits.MIB} MiB" in text
    assert f"| generations of a table | {limits.GENERATIONS_MAX} |" in text
    assert (
        f"{limits.NEXT_COUNT_MAX:,} (BAD_COUNT), and {limits.NEXT_BYTES_MAX // limits.MIB} MiB"
        in text
    )
    assert f"{limits.PROCESS_AHEAD_US_MAX // (24 * 3600 * SECOND_US)} days ahead" in text
    assert f"1 ms to {limits.LEASE_US_MAX // (24 * 3600 * SECOND_US)} days" in text
    assert limits.WAIT_US_MAX == 3600 * SECOND_US
    assert limits.REASON_BYTES_MAX == limits.KIB
    assert f"| {limits.PAGE_ENTRIES_MAX:,} and {limits.PAGE_BYTES_MAX // limits.MIB} MiB" in text
    assert f"| {limits.LANES_MAX:,} |" in text
    assert f"| taken jobs of a table, with merging | {limits.TAKEN_MAX:,}," in text


def test_settings_of_streams_are_those_of_the_page() -> None:
    rows = settings_of(section("Modes and settings", STREAMS))
    usual = {name: value.strip().strip('`"') for name, value, _ in rows}
    settings = streams.Settings()
    assert usual == {
        "mode": settings.mode.value,
        "history": str(settings.history),
        "block_rows": f"{settings.block_rows:,}",
        "block_age": f"{settings.block_age_us // SECOND_US:,}",
        "retention": "none",
        "retention_bytes": "none",
    }
    assert (settings.retention_us, settings.retention_bytes) == (0, 0)
    ranges = {name: bounds.split(" (")[0].strip() for name, _, bounds in rows}
    assert ranges["block_rows"] == f"1 to {limits.BLOCK_ROWS_MAX:,}"
    assert ranges["block_age"] == f"up to {seconds('BLOCK_AGE_US_MAX')}"
    assert ranges["retention"] == f"up to {seconds('RETENTION_US_MAX')}"


def test_bounds_of_streams_are_those_of_the_page() -> None:
    text = section("Bounds of streams", STREAMS + "\n### ")
    assert f"{limits.KV_KEY_BYTES_MAX} bytes; 1 MiB" in text
    assert f"{limits.BATCH_ROWS_MAX:,}; {limits.BATCH_BYTES_MAX // limits.MIB} MiB" in text
    assert f"{limits.READ_COUNT_MAX:,}, and {limits.READ_BYTES_MAX // limits.MIB} MiB" in text
    assert f"| {limits.SUBSCRIBERS_MAX:,} |" in text
    minutes = limits.SNAPSHOT_US_MAX // SECOND_US // 60
    assert f"{limits.SNAPSHOTS_MAX}, each {minutes} minutes" in text
    assert f"take at most {limits.COLD_BYTES_MAX // limits.MIB} MiB" in STREAMS


def section(title: str, text: str = JOBS) -> str:
    start = text.index(f"\n### {title}\n")
    return text[start : text.index("\n### ", start + 1)]


def settings_of(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*)\| ", text, re.MULTILINE)


def seconds(name: str) -> str:
    return f"{getattr(limits, name) // SECOND_US:,}"
