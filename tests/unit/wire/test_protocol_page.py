"""docs/protocol.md: its examples and its tables are what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from fjord import commands, jobs, limits, ops, streams
from fjord.columns import Strings
from fjord.commands.codec import FLAG_NAMES
from fjord.errors import Code
from fjord.wire import Function, Request, encode_change, encode_reply, seed
from fjord.wire.explain import explain
from tests.unit.wire import seed_client
from tests.unit.wire.job_samples import taken
from tests.unit.wire.streams import (
    CURSORS,
    MASTER,
    NOW_US,
    answered,
    delete_many,
    entries,
    page,
    request_bytes,
    sent,
    set_many,
    set_one,
)

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "protocol.md").read_text()
QUERY = commands.Range(table="default", start=b"a", stop=b"m", count=2)
ANSWER = page(
    [b"apple", b"bee"], entries((2, b"x", NOW_US, 0), (3, b"\5" + bytes(7), NOW_US, 0)), b"cat"
)
CURSOR = CURSORS.encode(QUERY, b"cat")
TWO = commands.Batch(
    commands=[set_many("settings", [(b"a", 3, b"\1" + bytes(7))]), delete_many("other", [b"b"])]
)
DONE = commands.Replies(
    replies=[commands.Done(master=MASTER, seq=41), commands.Done(master=MASTER, seq=42)]
)
JOB = commands.Push(
    table="pages",
    keys=Strings.of([b"http://a.com/x"]),
    domains=Strings.of([b""]),
    types=b"\2",
    values=Strings.of([b"v"]),
    priorities=b"\x0a",
    process_at_us=[5_000_000],
    expires_at_us=[0],
    timestamps_us=[NOW_US],
    relative=True,
)
TAKEN = commands.Taken(
    first_xid=4711,
    until_us=NOW_US + 60_000_000,
    next_at_us=0,
    rows=(4700,),
    process_at_us=(NOW_US,),
    inserted_us=(NOW_US - 5_000_000,),
    updated_us=(NOW_US - 5_000_000,),
    expires_at_us=(0,),
    priorities=b"\x0a",
    timeouts=b"\0",
    types=b"\2",
    keys=Strings.of([b"http://a.com/x"]),
    domains=Strings.of([b""]),
    values=Strings.of([b"v"]),
)
LATER = taken([], next_at_us=NOW_US + 5_000_000)
TWO_MESSAGES = (b"\2\2", Strings.of([b"user:7", b""]), Strings.of([b"hello", b"world"]))
APPEND = commands.Append(
    table="events", types=TWO_MESSAGES[0], keys=TWO_MESSAGES[1], values=TWO_MESSAGES[2]
)
STORED, _ = ops.encode(ops.Op(ops.Opcode.STREAM_APPEND, 7, 2, TWO_MESSAGES))
MESSAGES = commands.Messages(
    first_seqs=(41,),
    walls_us=(NOW_US,),
    ops=Strings.of([STORED]),
    after=42,
    until=42,
    ended=True,
    rows=2,
)
EXAMPLES = [
    seed_client.encode_request(
        set_one(b"k", 2, b"v", expires_at_us=NOW_US + 3_600_000_000, ttl_us=60_000_000), 0x1234
    ),
    seed_client.encode_request(QUERY, 8, NOW_US),
    *encode_reply(
        Request(Function.GET, 8, 0x0480, QUERY, 24), ANSWER, now_us=NOW_US, cursors=CURSORS
    ),
    request_bytes(3, bytes([len(CURSOR)]) + CURSOR, identifier=9, flags=0x0580),
    sent(TWO, 10, number=1),
    answered(DONE, 19, identifier=10),
    encode_change(15, commands.Changed("default", b"k", 2, b"w", NOW_US, 0)),
    encode_change(
        15, commands.Changed("default", b"k", commands.Entries.MISSING, b"", NOW_US + 1, 0)
    ),
    sent(JOB, 16),
    sent(commands.Next(table="pages", count=10, wait_us=30_000_000), 17),
    answered(TAKEN, 49, identifier=17),
    seed_client.encode_request(commands.Next(table="pages", lease_us=60_000_000), 18, NOW_US),
    answered(TAKEN, Function.NEXT, identifier=18),
    answered(LATER, Function.NEXT, identifier=18),
    seed_client.encode_request(commands.Finish(table="pages", xids=(4711,)), 19, NOW_US),
    encode_change(20, commands.Changed("pages", b"", 2, commands.ARRIVED, NOW_US, 0)),
    sent(APPEND, 21),
    sent(commands.Read(table="events", after=40, count=1000, wait_us=5_000_000), 22),
    answered(MESSAGES, 67, identifier=22),
    sent(commands.Acknowledge(table="events", name="billing", seq=42, epoch=0), 23),
    answered(commands.Position(seq=42, epoch=0, asleep=False, created=False), 69, identifier=23),
]
# What the replies among them answer, where that makes a difference.
ANSWERED = {5: 19, 10: 49, 12: Function.NEXT, 13: Function.NEXT, 18: 67, 20: 69}


def blocks() -> list[list[tuple[bytes, str]]]:
    """The examples: of each line the bytes, and what the page says of them."""
    found = re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)
    return [
        [(bytes.fromhex(line[:24]), line[25:]) for line in block.splitlines()] for block in found
    ]


def test_the_examples_are_what_the_code_sends() -> None:
    assert [b"".join(data for data, _ in block) for block in blocks()] == EXAMPLES


def test_the_examples_are_explained_as_the_command_line_does() -> None:
    for number, (block, data) in enumerate(zip(blocks(), EXAMPLES, strict=True)):
        lines = explain(bytes(data), ANSWERED.get(number))
        assert [text for _, text in block if text] == [
            f"{line.field}: {line.meaning}" for line in lines
        ]


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = TEXT.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_function_has_its_number() -> None:
    shown = {(row[0], row[1].strip("`")) for row in rows_of("### Functions")}
    known = {(str(row.number), row.name) for row in commands.FUNCTIONS.values()}
    known |= {(str(int(function)), function.name) for function in Function}
    assert shown - {("number", "name")} == known


def test_the_tables_that_a_script_writes_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "protocol"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z_]+)`", text))


def test_every_code_has_a_row() -> None:
    shown = [name for row in rows_of("## Errors") for name in names_in(row[0])]
    assert sorted(shown) == sorted(Code.__members__)


def flags_in(text: str) -> int:
    bits = {name: bit for bit, name in FLAG_NAMES.items()}
    bits |= {
        "VALUE": commands.Flag.VALUE_8 | commands.Flag.VALUE_16,
        "QUERY": commands.Flag.QUERY_RANGE | commands.Flag.QUERY_REGEX,
    }
    return sum(bits[word] for word in re.findall(r"[A-Z][A-Z_0-9]+", text))


@pytest.mark.parametrize("number", [number for number in commands.FUNCTIONS if number > 16])
def test_functions_above_16_have_their_reply(number: int) -> None:
    row = commands.FUNCTIONS[number]
    (found,) = [
        cells for cells in rows_of("### What each function answers") if f"`{row.name}`" in cells[0]
    ]
    assert f"*{row.answer.row.name}*" in found[1]


@pytest.mark.parametrize("function", list(Function))
def test_functions_up_to_16_have_their_flags(function: Function) -> None:
    found = re.findall(rf"^[A-Z, ]*\b{function.name}\b.*?flags: (.*)$", TEXT, re.MULTILINE)
    known = 0
    for line in found:
        known |= flags_in(re.sub(r"QUERY \d.*|none", "", line))
    if function is Function.GET:
        known |= commands.Flag.QUERY_RANGE | commands.Flag.QUERY_REGEX
    assert found
    assert known == seed.ROWS[function].flags


def test_functions_that_a_batch_may_hold_are_those_of_the_code() -> None:
    section = TEXT.split("### `BATCH`\n", 1)[1]
    (text,) = re.findall(r"^\| 0 \| u16 \| function \| (.*) \|$", section, re.MULTILINE)
    numbers: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        numbers |= set(range(int(first), int(last or first) + 1))
    held = [
        row for row in commands.FUNCTIONS.values() if row.in_batch is not commands.InBatch.NEVER
    ]
    assert numbers == {row.number for row in held}


def test_functions_that_a_numbered_batch_may_hold_are_those_of_the_code() -> None:
    found = re.findall(r"batch with a \[number\].*? may hold only (.*?) \(else", TEXT, re.DOTALL)
    held = [
        row.name for row in commands.FUNCTIONS.values() if row.in_batch is commands.InBatch.NUMBERED
    ]
    assert [names_in(text) for text in found] == [set(held)]


def test_the_range_of_timestamps_is_that_of_the_code() -> None:
    assert limits.TIMESTAMP_US_MIN == 10**15
    assert limits.TIMESTAMP_AHEAD_US_MAX == 60_000_000
    (row,) = [row for row in rows_of("## Request") if row[2] == "timestamp"]
    (code,) = [row for row in rows_of("## Errors") if row[0] == "`BAD_TIMESTAMP`"]
    for text in (row[3], code[1]):
        assert "10^15, which is 2001-09-09" in text
        assert "60 s ahead" in text


def test_the_size_of_a_page_is_that_of_the_code() -> None:
    assert limits.PAGE_BYTES_MAX == limits.MIB
    assert f"maximum, which is {limits.PAGE_ENTRIES_MAX:,}" in TEXT
    assert f"`count` entries, {limits.PAGE_ENTRIES_MAX:,} entries and 1 MiB" in TEXT


DAY_US = 24 * 3600 * 1_000_000
JOBS = TEXT.split("\n### Jobs\n", 1)[1].split("\n### ", 1)[0]


def test_the_settings_of_a_jobs_table_are_those_of_the_code() -> None:
    rows = {row[0].strip("`"): row[1:] for row in rows_of("### Jobs")}
    usual = asdict(jobs.Settings())
    assert [name for name in rows if name in usual] == list(usual)
    assert (rows["merge"][1], rows["history"][1]) == ("true", "true")
    assert rows["fairness"][1] == '`"none"`'
    for name in ("lease_us", "timeouts_max", "debounce_us"):
        assert rows[name][1].split(" (")[0] == f"{usual[name]:,}"
    for name, low, high in (
        ("lease_us", limits.LEASE_US_MIN, limits.LEASE_US_MAX),
        ("timeouts_max", 0, limits.TIMEOUTS_MAX),
        ("debounce_us", 0, limits.PROCESS_AHEAD_US_MAX),
    ):
        assert f": {low:,} to {high:,}" in rows[name][0]
    for fairness in jobs.Fairness:
        assert f'`"{fairness}"`' in rows["fairness"][0]


def test_the_ranges_of_jobs_are_those_of_the_code() -> None:
    days = [limits.PROCESS_AHEAD_US_MAX // DAY_US, limits.LEASE_US_MAX // DAY_US]
    assert days == [366, 30]
    assert (limits.LEASE_US_MIN, limits.WAIT_US_MAX) == (1_000, 3_600_000_000)
    assert limits.NEXT_BYTES_MAX == 8 * limits.MIB
    for text in (
        f"1 to {limits.JOB_KEY_BYTES_MAX:,} bytes",
        f"at most {limits.DOMAIN_BYTES_MAX} bytes",
        f"1 to {limits.NEXT_COUNT_MAX:,}, of those",
        f"0 to {jobs.PRIORITY_MAX}, the smallest first. From {jobs.SLOW_FROM} up",
        f"UTF-8, at most {limits.REASON_BYTES_MAX:,} bytes",
        f"`count` jobs, {limits.PAGE_ENTRIES_MAX:,} jobs and 1 MiB",
        f"the string `{commands.ARRIVED.decode()}`",
        f"`{commands.DUE.decode()}` (a process date was reached)",
    ):
        assert text in JOBS.replace("\n", " ")
    assert f"8 to {8 + limits.JOB_KEY_BYTES_MAX:,} bytes" in TEXT


STREAMS = TEXT.split("\n### Streams\n", 1)[1].split("\n### `BATCH`", 1)[0].replace("\n", " ")


def test_the_settings_of_a_stream_are_those_of_the_code() -> None:
    rows = {row[0].strip("`"): row[1:] for row in rows_of("### Streams")}
    usual = asdict(streams.Settings())
    assert [name for name in rows if name in usual] == list(usual)
    assert (rows["mode"][1], rows["history"][1]) == ('`"log"`', "true")
    for name, low, high in (
        ("block_rows", 1, limits.BLOCK_ROWS_MAX),
        ("block_age_us", 1, limits.BLOCK_AGE_US_MAX),
        ("retention_us", 0, limits.RETENTION_US_MAX),
        ("retention_bytes", 0, 2**63 - 1),
    ):
        assert f": {low:,} to {high:,}" in rows[name][0]
        assert rows[name][1].split(" (")[0] == f"{usual[name]:,}"
    for mode in streams.Mode:
        assert f'`"{mode}"`' in rows["mode"][0]


def test_the_ranges_of_streams_are_those_of_the_code() -> None:
    assert (limits.READ_BYTES_MAX, limits.WAIT_US_MAX) == (8 * limits.MIB, 3_600_000_000)
    minutes = limits.SNAPSHOT_US_MAX // 60_000_000
    for text in (
        f"0 to {limits.KV_KEY_BYTES_MAX} bytes",
        f"`count` messages, {limits.READ_COUNT_MAX:,} messages, about `largest size` and 8 MiB",
        f"takes longer than {minutes} minutes",
        f"at most {minutes} minutes. At most {limits.SNAPSHOTS_MAX} are open",
        f"at most `count` and {limits.PAGE_ENTRIES_MAX:,}: continue with the next name",
        f"at most `count` and {limits.BLOCKS_LISTED_MAX:,}: continue with next after",
        f"a message of type {ops.TOMBSTONE} without a value",
        "seq, ts, txn, op, row, xid, key, domain, priority, process_at, expires_at, timeouts",
        "producer, type, value.",
    ):
        assert text in STREAMS


def test_every_start_has_its_number() -> None:
    named = {1: "the beginning", 2: "the end", 3: "a seq", 4: "a moment"}
    assert set(named) == set(streams.Start)
    (row,) = [row for row in rows_of("### What each function holds") if row[0] == "at, start"]
    assert ", ".join(f"{number} {name}" for number, name in named.items()) in row[2]


def test_functions_that_as_of_may_hold_are_those_of_the_code() -> None:
    (text,) = re.findall(r"\*\*`AS_OF`\.\*\* (.*?) as inner messages", TEXT)
    is_held = commands.FUNCTIONS[77].holds
    assert is_held is not None
    assert names_in(text) == {row.name for row in commands.FUNCTIONS.values() if is_held(row)}


def test_the_revision_is_that_of_the_code() -> None:
    (row,) = [row for row in rows_of("### What each function holds") if row[0] == "revision"]
    assert row[2].startswith(f"{commands.REVISION}: ")


@pytest.mark.req("FJ-28")
def test_the_three_answers_of_next_are_told_apart_as_the_page_says() -> None:
    rows = [row for row in rows_of("### `NEXT`") if row[0] in ANSWERS_OF_NEXT]
    assert [row[0] for row in rows] == list(ANSWERS_OF_NEXT)
    for row in rows:
        data = answered(ANSWERS_OF_NEXT[row[0]], Function.NEXT)
        flags = int.from_bytes(data[6:8], "big")
        has_count, has_timeout = (
            bool(flags & commands.Flag.COUNT),
            bool(flags & commands.Flag.TIMEOUT),
        )
        assert has_count is (row[1] == "COUNT is set")
        assert has_count or has_timeout is (row[1] == "TIMEOUT, and not COUNT")


ANSWERS_OF_NEXT = {
    "a job": TAKEN,
    "nothing is due, but something waits": LATER,
    "nothing waits": taken([]),
}


def test_the_word_seed_is_explained_where_it_is_first_used() -> None:
    before, found, _ = TEXT.partition("called the *seed functions*, after the document")
    assert found
    assert "seed" not in before
