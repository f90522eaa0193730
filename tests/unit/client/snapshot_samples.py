"""Reads as of a snapshot: what each sends, and what it makes of the answer."""

from __future__ import annotations

from typing import Any, Final

from fjord.columns import Strings
from fjord.commands import AsOf, Command, Get, Opened, Replies, Reply
from tests.unit.client.scripted import NOW_US, entries
from tests.unit.client.shell_calls import ENTRY, FIVE, Sample, page, range_of
from tests.unit.client.stream_samples import message, messages, read_of

OPENED: Final = Opened(snapshot=40, wall_us=NOW_US, until_us=NOW_US + 900_000_000)
GET: Final = Get(table="t", keys=Strings.of([b"k"]))


def as_of(*commands: Command) -> list[Command]:
    return [AsOf(snapshot=40, commands=[command]) for command in commands]


def replies(*found: Reply) -> list[Reply]:
    return [Replies(replies=[one]) for one in found]


def entry_samples() -> list[Sample]:
    """Returns what tables of both kinds can do."""
    return [
        Sample("get", lambda t: t.get("k"), as_of(GET), replies(entries((3, FIVE))), 5),
        Sample(
            "get_many",
            lambda t: t.get_many(["k"]),
            as_of(GET),
            replies(entries((3, FIVE))),
            {"k": 5},
        ),
        Sample(
            "items",
            lambda t: t.items(),
            as_of(range_of(), range_of(start=b"l")),
            replies(page(b"k", next_key=b"l"), page(b"l")),
            [("k", 5), ("l", 5)],
        ),
    ]


def spans() -> list[Sample]:
    """Returns what only key/value tables can do."""
    return [
        Sample("entry", lambda t: t.entry("k"), as_of(GET), replies(entries((3, FIVE))), ENTRY),
        Sample(
            "range",
            lambda t: t.range("a", "b", limit=5),
            as_of(range_of(start=b"a", stop=b"b", count=5)),
            replies(page(b"a")),
            [("a", 5)],
        ),
        Sample(
            "match",
            lambda t: t.match(b"^a", limit=5),
            as_of(range_of(regex=b"^a", count=5)),
            replies(page(b"a")),
            [(b"a", 5)],
        ),
    ]


def reading(**changes: Any) -> Any:
    return read_of(**{"after": 0, "subscriber": "", **changes})


def reads() -> list[Sample]:
    """Returns what only streams can do."""
    return [
        Sample(
            "read",
            lambda t: t.read(2, after=5),
            as_of(reading(after=5, count=2)),
            replies(messages(b"a", until=40, ended=False)),
            ([message(6, b"a")], 6, False),
        ),
        Sample(
            "batches",
            lambda t: t.batches(1),
            as_of(reading(count=1), reading(after=6, until=40, count=1)),
            replies(
                messages(b"a", until=40, ended=False), messages(b"b", first=9, after=40, until=40)
            ),
            [([message(6, b"a")], 6, False), ([message(9, b"b")], 40, True)],
        ),
    ]


SAMPLES: Final = [
    *[("kv", sample) for sample in (*entry_samples(), *spans())],
    *[("stream", sample) for sample in (*entry_samples(), *reads())],
]
