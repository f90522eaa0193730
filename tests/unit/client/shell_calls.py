"""Calls of a key/value table: what each sends, and what it makes of the answer.

The blocking shell is tested with them; it is made from the one for asyncio (`scripts/shells`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fjord import commands, limits
from fjord.client.entries import Entry
from fjord.client.kv import KvCalls
from fjord.client.pages import Span
from fjord.clock import Stamps
from fjord.columns import Strings, repeat
from fjord.commands import Change, Command, Entries, Modify, Nop, Page, Range, Reply, Set
from fjord.testing import SimClock
from fjord.values import Type
from tests.unit.client.scripted import NOW_US, TOKEN, entries

NOW: Final = datetime.fromtimestamp(NOW_US // 1_000_000, tz=UTC)
HOUR: Final = timedelta(hours=1)
HOUR_US: Final = 3_600_000_000
FIVE: Final = b"\5" + bytes(7)
MISSING: Final = (Entries.MISSING, b"")
K: Final = Strings.of([b"k"])


def on(name: str, /, *keys: bytes, **fields: Any) -> Any:
    """Returns a command of this name on table t, with keys where it has some."""
    return getattr(commands, name)(
        table="t", **({"keys": Strings.of(keys)} if keys else {}), **fields
    )


def make_calls() -> KvCalls:
    return KvCalls("t", Stamps(SimClock(NOW_US)))


def set_of(key: bytes = b"k", **changes: Any) -> Set:
    return Set(
        table="t",
        keys=Strings.of([key]),
        types=b"\3",
        values=Strings.of([FIVE]),
        timestamps_us=repeat(NOW_US, 1),
        **changes,
    )


def modify(change: Change, operand: bytes, type_: int = Type.INTEGER) -> Modify:
    return Modify(
        table="t", key=b"k", change=change, operand=operand, operand_type=type_, timestamp_us=NOW_US
    )


def page(*keys: bytes, next_key: bytes = b"") -> Page:
    found = entries(*[(3, FIVE)] * len(keys))
    return Page(keys=Strings.of(list(keys)), entries=found, next_key=next_key)


def range_of(**changes: Any) -> Range:
    return Range(**{"table": "t", "count": limits.PAGE_ENTRIES_MAX, **changes})


ENTRY: Final = Entry(
    value=5,
    type=Type.INTEGER,
    written_at=NOW,
    created_at=NOW,
    accessed_at=None,
    expires_at=None,
    ttl=None,
    locked=False,
    worked_on=False,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of a shell."""

    name: str
    call: Callable[[Any], Any]
    sent: list[Command]
    replies: list[Reply]
    result: object = None


SAMPLES: Final = [
    Sample("set", lambda kv: kv.set("k", 5), [set_of()], [TOKEN]),
    Sample(
        "set with options",
        lambda kv: kv.set(
            b"k", 5, ttl=60, expires_at=NOW + HOUR, overwrite=False, persist=False, also=["l"]
        ),
        [
            set_of(
                ttl_us=60_000_000,
                expires_at_us=NOW_US + HOUR_US,
                overwrite=False,
                persist=False,
                also=Strings.of([b"l"]),
            )
        ],
        [TOKEN],
    ),
    Sample(
        "set_many",
        lambda kv: kv.set_many({"k": 5}, ttl=HOUR, overwrite=False),
        [set_of(ttl_us=HOUR_US, overwrite=False)],
        [TOKEN],
    ),
    Sample("delete", lambda kv: kv.delete("k"), [on("Delete", b"k", timestamp_us=NOW_US)], [TOKEN]),
    Sample(
        "delete_many",
        lambda kv: kv.delete_many(["k"], purge=True),
        [on("Delete", b"k", timestamp_us=NOW_US, purge=True)],
        [TOKEN],
    ),
    Sample("add", lambda kv: kv.add("k", 5), [modify(Change.ADD, FIVE)], [entries((3, FIVE))], 5),
    Sample("flip", lambda kv: kv.flip("k"), [modify(Change.NOT, b"")], [entries((5, b"\1"))], True),
    Sample(
        "rename",
        lambda kv: kv.rename("k", "l", overwrite=True),
        [on("Rename", key=b"k", to=b"l", timestamp_us=NOW_US, overwrite=True)],
        [TOKEN],
    ),
    Sample("get", lambda kv: kv.get("k"), [on("Get", b"k")], [entries((3, FIVE))], 5),
    Sample(
        "get of what is missing",
        lambda kv: kv.get("k", "default", skip_worked=True),
        [on("Get", b"k", skip_worked=True)],
        [entries(MISSING)],
        "default",
    ),
    Sample(
        "get_many",
        lambda kv: kv.get_many(["k", b"l"]),
        [on("Get", b"k", b"l")],
        [entries(MISSING, (3, FIVE))],
        {b"l": 5},
    ),
    Sample("entry", lambda kv: kv.entry("k"), [on("Get", b"k")], [entries((3, FIVE))], ENTRY),
    Sample("no entry", lambda kv: kv.entry("k"), [on("Get", b"k")], [entries(MISSING)]),
    Sample(
        "exists",
        lambda kv: kv.exists("k"),
        [on("Get", b"k", with_data=False)],
        [entries((3, b""))],
        True,
    ),
    Sample(
        "touch", lambda kv: kv.touch("k"), [on("Touch", b"k", extend=True)], [entries((3, FIVE))], 5
    ),
    Sample(
        "touch for a time",
        lambda kv: kv.touch("k", ttl=3600, expires_at=NOW + HOUR / 2),
        [on("Touch", b"k", extend=True, expires_at_us=NOW_US + HOUR_US)],
        [entries(MISSING)],
    ),
    Sample(
        "take",
        lambda kv: kv.take("k", seconds=3600),
        [on("Touch", b"k", worked_until_us=NOW_US + HOUR_US)],
        [entries((3, FIVE))],
        5,
    ),
    Sample(
        "take of a void",
        lambda kv: kv.take("k", "default", seconds=3600),
        [on("Touch", b"k", worked_until_us=NOW_US + HOUR_US)],
        [entries((0, b""))],
    ),
    Sample(
        "take_many",
        lambda kv: kv.take_many(["k"]),
        [on("Touch", b"k", worked_until_us=NOW_US + 60_000_000)],
        [entries(MISSING)],
        {},
    ),
    Sample(
        "range over pages",
        lambda kv: kv.range("a", "m"),
        [range_of(start=b"a", stop=b"m"), range_of(start=b"c", stop=b"m")],
        [page(b"a", b"b", next_key=b"c"), page(b"d")],
        [("a", 5), ("b", 5), ("d", 5)],
    ),
    Sample(
        "match",
        lambda kv: kv.match(rb"^a", limit=2, skip_worked=True),
        [
            range_of(regex=b"^a", count=2, skip_worked=True),
            range_of(regex=b"^a", start=b"b", count=1, skip_worked=True),
        ],
        [page(b"a", next_key=b"b"), page(b"c", next_key=b"d")],
        [(b"a", 5), (b"c", 5)],
    ),
    Sample(
        "keys",
        lambda kv: kv.keys("a"),
        [range_of(start=b"a", stop=b"b", with_data=False)],
        [page(b"a", b"a1")],
        ["a", "a1"],
    ),
    Sample(
        "entries",
        lambda kv: kv.entries(Span(prefix=b"a", start=b"a5")),
        [range_of(start=b"a5", stop=b"b")],
        [page(b"a7")],
        [(b"a7", ENTRY)],
    ),
    Sample("lock", lambda kv: kv.lock("k", "l"), [on("Lock", b"k", b"l")], [TOKEN]),
    Sample("get_many of nothing", lambda kv: kv.get_many([]), [Nop()], [TOKEN], {}),
    Sample("take_many of nothing", lambda kv: kv.take_many([]), [Nop()], [TOKEN], {}),
    Sample(
        "truncate",
        lambda kv: kv.truncate("k", 5),
        [modify(Change.TRUNCATE, FIVE)],
        [entries((2, b"short"))],
        "short",
    ),
    Sample("unlock", lambda kv: kv.unlock("k"), [on("Unlock", b"k")], [TOKEN]),
]


class Recorder:
    """Takes commands, and gives the replies of a sample."""

    def __init__(self, replies: list[Reply]) -> None:
        self.sent: list[Command] = []
        self._replies = iter(replies)

    def answer(self, command: Command) -> Reply:
        self.sent.append(command)
        return next(self._replies)


def listen_of(*keys: bytes) -> commands.Listen:
    return commands.Listen(table="t", keys=Strings.of(list(keys)))
