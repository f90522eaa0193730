"""docs/protocol.md: its examples and its tables are what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fjord import limits
from fjord.commands import Batch, Changed, Done, Entries, Page, Range, Replies, Reply
from fjord.errors import Code
from fjord.tables.clients import batch_problem
from fjord.wire import (
    Flag,
    Function,
    Request,
    batch,
    encode_answer,
    encode_change,
    encode_reply,
    encode_request,
    seed,
)
from fjord.wire.explain import explain
from fjord.wire.functions import FLAG_NAMES, FLAGS
from fjord.wire.layouts import REPLY_BODIES, REQUEST_BODIES, Step
from tests.unit.wire.samples import INNER
from tests.unit.wire.streams import (
    CURSORS,
    MASTER,
    NOW_US,
    delete_many,
    entries,
    page,
    request_bytes,
    set_many,
    set_one,
)

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
QUERY = Range(table="default", start=b"a", stop=b"m", count=2)
ANSWER = page(
    [b"apple", b"bee"],
    entries((2, b"x", NOW_US, 0), (3, b"\5" + bytes(7), NOW_US, 0)),
    b"cat",
)
CURSOR = CURSORS.encode(QUERY, b"cat")
TWO = Batch(
    commands=[
        set_many("settings", [(b"a", 3, b"\1" + bytes(7))]),
        delete_many("other", [b"b"]),
    ],
    number=1,
)
DONE = Replies(replies=[Done(master=MASTER, seq=41), Done(master=MASTER, seq=42)])
EXAMPLES = [
    seed.encode_request(
        set_one(b"k", 2, b"v", expires_at_us=NOW_US + 3_600_000_000, ttl_us=60_000_000), 0x1234
    ),
    seed.encode_request(QUERY, 8, NOW_US),
    encode_answer(
        Request(Function.GET, 8, 0x0480, QUERY, 24), ANSWER, now_us=NOW_US, cursors=CURSORS
    ),
    request_bytes(3, bytes([len(CURSOR)]) + CURSOR, identifier=9, flags=0x0580),
    encode_request(TWO, 10)[1],
    encode_reply(Function.BATCH, 10, 0, DONE, now_us=NOW_US),
    encode_change(15, Changed("default", b"k", 2, b"w", NOW_US, 0)),
    encode_change(15, Changed("default", b"k", Entries.MISSING, b"", NOW_US + 1, 0)),
]


def blocks() -> list[list[tuple[bytes, str]]]:
    """The examples: of each line the bytes, and what the page says of them."""
    found = re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)
    return [
        [(bytes.fromhex(line[:24]), line[25:]) for line in block.splitlines()] for block in found
    ]


def test_the_examples_are_what_the_code_sends() -> None:
    assert [b"".join(data for data, _ in block) for block in blocks()] == EXAMPLES


def test_the_examples_are_explained_as_the_command_line_does() -> None:
    for block, data in zip(blocks(), EXAMPLES, strict=True):
        function = Function.BATCH if data is EXAMPLES[5] else None
        shown = [text for _, text in block if text]
        assert shown == [f"{line.field}: {line.meaning}" for line in explain(data, function)]


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = TEXT.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_function_has_its_number() -> None:
    shown = {(int(row[0]), row[1].strip("`")) for row in rows_of("### Functions")}
    assert shown == {(int(function), function.name) for function in Function}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z_]+)`", text))


def test_every_code_has_a_row() -> None:
    shown = [name for row in rows_of("## Errors") for name in names_in(row[0])]
    assert sorted(shown) == sorted(Code.__members__)


def flags_in(text: str) -> int:
    bits = {name: bit for bit, name in FLAG_NAMES.items()}
    bits |= {"VALUE": Flag.VALUE_8 | Flag.VALUE_16, "QUERY": Flag.QUERY_RANGE | Flag.QUERY_REGEX}
    return sum(bits[word] for word in re.findall(r"[A-Z][A-Z_0-9]+", text))


@pytest.mark.parametrize("function", [one for one in Function if one > 16])
def test_functions_above_16_have_their_flags_and_a_reply(function: Function) -> None:
    (held,) = [row for row in rows_of("### What each function holds") if function.name in row[0]]
    assert flags_in(held[1]) == FLAGS[function]
    (answered,) = [
        row for row in rows_of("### What each function answers") if f"`{function.name}`" in row[0]
    ]
    assert answered[1]


@pytest.mark.parametrize("function", [one for one in Function if one <= 16])
def test_functions_up_to_16_have_their_flags(function: Function) -> None:
    found = re.findall(rf"^[A-Z, ]*\b{function.name}\b.*?flags: (.*)$", TEXT, re.MULTILINE)
    known = 0
    for line in found:
        known |= flags_in(re.sub(r"QUERY \d.*|none", "", line))
    if function is Function.GET:
        known |= Flag.QUERY_RANGE | Flag.QUERY_REGEX
    assert found
    assert known == FLAGS[function]


def shown_steps(steps: tuple[Step, ...]) -> list[str]:
    suffixes = {"u8 column": "u8", "u64 column": "u64", "time column": "u64", "strings": "strings"}
    return [f"{step.name} {suffixes[step.kind]}" for step in steps if step.kind in suffixes]


def test_the_columns_of_bodies_are_named_in_order() -> None:
    cells = {row[0]: row[5] for row in rows_of("### What each function holds")}
    for function, steps in REQUEST_BODIES.items():
        (text,) = [text for names, text in cells.items() if f"`{function.name}`" in names]
        positions = [text.find(one) for one in shown_steps(steps)]
        assert -1 not in positions
        assert positions == sorted(positions)


@pytest.mark.parametrize("type_", [one for one in REPLY_BODIES if one is not Done])
def test_the_columns_of_replies_are_named_in_order(type_: type[Reply]) -> None:
    section = TEXT.split("| body | fields, then columns |", 1)[1].split("\n\n", 1)[0]
    steps = shown_steps(REPLY_BODIES[type_])
    if type_ is Page:
        steps = steps[:1]  # the others are those of entries
    assert any(", ".join(steps) in line for line in section.splitlines())


def test_functions_that_a_batch_may_hold_are_those_of_the_code() -> None:
    section = TEXT.split("### `BATCH`\n", 1)[1]
    (text,) = re.findall(r"^\| 0 \| u16 \| function \| (.*) \|$", section, re.MULTILINE)
    numbers: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        numbers |= set(range(int(first), int(last or first) + 1))
    assert numbers == {int(function) for function in batch.INSIDE}


def test_functions_that_a_numbered_batch_may_hold_are_those_of_the_code() -> None:
    (text,) = re.findall(r"A numbered batch holds (.*?), and nothing else", TEXT, re.DOTALL)
    taken = set()
    for command in INNER:
        numbered = Batch(commands=[command], client=b"c" * 16, number=1)
        if batch_problem(numbered) is None:
            taken.add(encode_request(command, 1)[0].name)
    assert names_in(text) == taken


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
    assert f"`count`, {limits.PAGE_ENTRIES_MAX:,} and 1 MiB" in TEXT


def test_the_word_seed_is_explained_where_it_is_first_used() -> None:
    before, found, _ = TEXT.partition("called the *seed functions*, after the document")
    assert found
    assert "seed" not in before
