"""One command and one reply of every sort, and more where the layout branches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from fjord import commands
from fjord.columns import Strings
from fjord.errors import Code
from tests.unit.wire import streams
from tests.unit.wire.history_samples import HISTORY, HISTORY_REPLIES
from tests.unit.wire.job_samples import INNER_JOBS, JOB_REPLIES, OUTER_JOBS
from tests.unit.wire.staging_samples import INNER_WRITERS, STAGES, STAGING, STAGING_REPLIES
from tests.unit.wire.stream_samples import INNER_STREAMS, OUTER_STREAMS, STREAM_REPLIES

ONE = Strings.of([b"k"])
SOME = Strings.of([b"a", b"", b"ccc", b"x" * 300])
EIGHT = (5).to_bytes(8, "little")


def modify(
    change: commands.Change, operand: bytes = EIGHT, type_: int = 3, **options: Any
) -> commands.Modify:
    given: dict[str, Any] = {"table": "t", "key": b"k", "timestamp_us": streams.NOW_US} | options
    return commands.Modify(change=change, operand=operand, operand_type=type_, **given)


def rename(key: bytes, to: bytes, **options: Any) -> commands.Rename:
    given: dict[str, Any] = {"table": "t", "timestamp_us": streams.NOW_US} | options
    return commands.Rename(key=key, to=to, **given)


# Those that a batch may hold.
INNER: list[commands.Command] = [
    streams.set_many("t", [(b"k", 1, b"v")]),
    streams.set_many("a-name", [(b"k", 1, b""), (b"key", 2, b"text"), (b"\0\xff", 5, b"\1")]),
    streams.set_many(
        "t", [(b"k", 3, bytes(8))] * 9, expires_at_us=streams.NOW_US + 1, overwrite=False
    ),
    streams.set_many("12345678", [(b"k", 0, b"")], persist=False),
    streams.set_many("t", [(b"k", 2, b"v")] * 2, ttl_us=60_000_000),
    streams.set_many("t", [(b"k", 2, b"v")], also=Strings.of([])),
    streams.set_many("t", [(b"k", 2, b"v")], also=Strings.of([b"k2", b"", b"k3"]), ttl_us=1),
    streams.get_many("t", [b"k"]),
    streams.get_many("longer_name", [b"a", b"", b"a", b"x" * 300]),
    streams.get_many("t", [b"k"], with_data=False),
    streams.get_many("t", [b"k", b"l"], skip_worked=True),
    streams.delete_many("t", [b"k"]),
    streams.delete_many("t", [b"a", b"bb", b"ccc"], timestamp_us=2**64 - 1, purge=True),
    streams.delete_many(
        "t", [b"a", b"bb"], timestamp_us=0, timestamps_us=(streams.NOW_US, 2**64 - 1)
    ),
    commands.Touch(table="t", keys=ONE, extend=True),
    commands.Touch(
        table="t", keys=SOME, extend=True, expires_at_us=streams.NOW_US, worked_until_us=2**64 - 1
    ),
    commands.Touch(table="t", keys=ONE, worked_until_us=streams.NOW_US, with_data=False),
    modify(commands.Change.ADD),
    modify(commands.Change.ADD, type_=4, key=b"a long key" * 9),
    modify(commands.Change.NOT, b""),
    modify(commands.Change.TRUNCATE, table="other"),
    rename(b"k", b"l"),
    rename(b"", b"x" * 300, overwrite=True),
    commands.Lock(table="t", keys=ONE),
    commands.Unlock(table="t", keys=SOME),
    commands.Range(table="t"),
    commands.Range(table="t", start=b"a", stop=b"m", count=2**64 - 1, regex=b"^a"),
    commands.Range(table="t", count=7, with_data=False, skip_worked=True),
    commands.CreateTable(name="t", kind=1),
    commands.CreateTable(name="t", kind=255, settings=b"a=1"),
    commands.CreateTable(name="t", kind=2, settings=b"{}", changes=True),
    commands.DropTable(name="t"),
    commands.ListTables(),
    commands.ListTables(name="t"),
    *INNER_JOBS,
    *INNER_STREAMS,
    *INNER_WRITERS,
    commands.CloseSnapshot(snapshot=77),
]

BATCHES: list[commands.Batch] = [
    commands.Batch(commands=[INNER[0]]),
    commands.Batch(commands=[commands.Nop(), *INNER]),
]

# Those of all functions above 16.
COMMANDS: list[commands.Command] = [
    *INNER,
    *BATCHES,
    *OUTER_JOBS,
    *OUTER_STREAMS,
    commands.Listen(table="t", keys=SOME),
    commands.Unlisten(identifier=0xFFFF),
    commands.Stats(),
    commands.Hello(client=b""),
    commands.Use(table="t"),
    commands.Hello(client=streams.MASTER),
    commands.Scan(table="t", start_seq=1, end_seq=0),
    commands.Scan(table="longer_name", start_seq=2**64 - 1, end_seq=2**64 - 1, bytes_max=2**32 - 1),
    *HISTORY,
    *STAGES,
    *STAGING,
]


def names_of(commands_: Sequence[commands.Command]) -> list[str]:
    return [f"{type(one).__name__}-{number}" for number, one in enumerate(commands_)]


TOKEN = commands.Done(master=b"m" * 16, seq=5)
SHORT = commands.Refusal(code=Code.NOT_FOUND, text="the key does not exist")
LONG = commands.Refusal(code=Code.BUSY, text="x" * 300)
MISSING = streams.entries((commands.Entries.MISSING, b"", 0, 0))
TWO = streams.entries((2, b"v", 5, 0), (commands.Entries.MISSING, b"", 0, 0), state=3, more=100)
ONE_ENTRY = streams.entries((3, EIGHT, 5, 9), state=commands.Entries.LOCKED, more=2**63)
PAGES = [
    streams.page([], streams.entries()),
    streams.page([], streams.entries(), b"next"),
    streams.page([b"k"], ONE_ENTRY),
    streams.page([b"a", b"b" * 300], TWO, b"n" * 480),
]
TABLES = [
    commands.TableList(names=Strings.of([]), ids=(), kinds=b"", settings=Strings.of([])),
    commands.TableList(
        names=Strings.of([b"a", b"default"]),
        ids=array("Q", [1, 2**32 - 1]),
        kinds=b"\1\2",
        settings=Strings.of([b"", b"x=1"]),
    ),
]

# Replies of every kind.
REPLIES: list[commands.Reply] = [
    SHORT,
    LONG,
    TOKEN,
    commands.Done(master=streams.MASTER, seq=2**64 - 1),
    commands.Welcome(client=b"c" * 16, master=streams.MASTER, version="1.2"),
    commands.Replies(replies=[]),
    commands.Replies(replies=[TOKEN, MISSING, TWO, *PAGES, *TABLES, SHORT, LONG]),
    commands.Replies(replies=[SHORT, *JOB_REPLIES]),
    commands.Replies(replies=[*STREAM_REPLIES, LONG]),
    *TABLES,
    commands.Numbers(names=Strings.of([]), values=()),
    commands.Numbers(names=Strings.of([b"a", b"bc", b""]), values=array("Q", [0, 1, 2**64 - 1])),
    MISSING,
    TWO,
    ONE_ENTRY,
    streams.entries(),
    streams.entries((1, b"", 1, 2), (255, b"", 0, 0), (3, bytes(8), 3, 2**64 - 1)),
    *PAGES,
    *JOB_REPLIES,
    *STREAM_REPLIES,
    *HISTORY_REPLIES,
    *STAGING_REPLIES,
    streams.scanned([], next_seq=1, end_seq=1),
    streams.scanned([b"op" * 8, b"o" * 24], next_seq=3, end_seq=2**64 - 1),
]
