"""Commands and replies of streams, snapshots and blocks: one of every sort, and some more."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from fjord import commands
from fjord.columns import Strings
from fjord.streams import Start
from tests.unit.wire.streams import NOW_US

LARGEST = 2**64 - 1
KEYS = Strings.of([b"user:7", b"", b"k" * 300])


def append(table: str, values: Sequence[bytes], **options: Any) -> commands.Append:
    """Messages that differ in everything."""
    count = len(values)
    given: dict[str, Any] = {
        "types": bytes(row % 6 for row in range(count)),
        "keys": Strings.of([b"k" * (row % 5) for row in range(count)]),
    }
    return commands.Append(table=table, values=Strings.of(values), **given | options)


# Those that a batch may hold.
INNER_STREAMS: list[commands.Command] = [
    append("t", [b"v"]),
    append("12345678", [b""]),
    append("a-name", [b"v", b"", b"x" * 300]),
    append("t", [b"%d" % row for row in range(70)]),
    append("t", []),
    append("t", [b"v"], timestamps_us=array("Q", [NOW_US])),
    append("a-name", [b"v", b"", b"x" * 300], timestamps_us=array("Q", [NOW_US, 0, LARGEST])),
    append("t", [], timestamps_us=array("Q")),
    commands.Erase(table="t", keys=Strings.of([b"k"])),
    commands.Erase(table="longer_name", keys=KEYS),
    commands.Subscribe(table="t", name="billing", start=Start.BEGINNING),
    commands.Subscribe(table="t", name="n" * 128, start=Start.TIME, at=NOW_US),
    commands.Acknowledge(table="t", name="billing", seq=7, epoch=0),
    commands.Acknowledge(table="t", name="b", seq=LARGEST, epoch=LARGEST, expected=0),
    commands.Acknowledge(table="t", name="b", seq=7, epoch=1, expected=LARGEST - 1),
    commands.Seek(table="t", name="billing", start=Start.END),
    commands.Seek(table="longer_name", name="b", start=Start.SEQ, at=LARGEST),
    commands.Rest(table="t", name="billing", asleep=True),
    commands.Rest(table="t", name="billing", asleep=False),
    commands.Unsubscribe(table="t", name="billing"),
    commands.ListSubscribers(table="t"),
    commands.ListSubscribers(table="t", start="billing", count=LARGEST),
    commands.CreateTable(name="t", kind=3, settings=b'{"mode":"latest"}'),
]

READS: list[commands.Command] = [
    commands.Read(table="t", after=0),
    commands.Read(
        table="longer_name",
        after=LARGEST,
        until=LARGEST - 1,
        count=LARGEST - 2,
        bytes_max=LARGEST - 3,
        subscriber="billing",
    ),
]
AS_OF: list[commands.AsOf] = [
    commands.AsOf(snapshot=5, commands=[commands.Get(table="t", keys=Strings.of([b"k"]))]),
    commands.AsOf(
        snapshot=LARGEST,
        commands=[commands.Get(table="t", keys=KEYS), commands.Range(table="t"), *READS],
    ),
]

# Those that it may not.
OUTER_STREAMS: list[commands.Command] = [
    *READS,
    commands.Read(table="t", after=7, wait_us=30_000_000),
    commands.Lag(table="t", name="billing"),
    commands.Lag(table="t", name="billing", after=0),
    commands.Lag(table="t", name="billing", after=LARGEST - 1),
    commands.OpenSnapshot(),
    commands.OpenSnapshot(lifetime_us=LARGEST),
    commands.CloseSnapshot(snapshot=LARGEST),
    *AS_OF,
    commands.ListBlocks(table="t"),
    commands.ListBlocks(table="longer_name", after=LARGEST, count=LARGEST),
    commands.SealNow(),
    commands.SealNow(table="t"),
    commands.Scan(table="t", start_seq=1, end_seq=0, arrow=True),
    commands.Scan(table="t", start_seq=1, end_seq=0, opcodes=b"\x30\x31"),
    commands.Scan(table="t", start_seq=1, end_seq=0, key_prefix=b"user:"),
    commands.Scan(
        table="longer_name",
        start_seq=7,
        end_seq=9,
        opcodes=b"\x30",
        key_prefix=b"\0\xff",
        arrow=True,
        columns=["seq", "value", ""],
    ),
]


def messages(ops: Sequence[bytes], **options: Any) -> commands.Messages:
    count = len(ops)
    given: dict[str, Any] = {"after": 7, "until": 9, "ended": False, "rows": count}
    return commands.Messages(
        first_seqs=array("Q", range(1, 1 + count)),
        walls_us=array("Q", range(NOW_US, NOW_US + count)),
        ops=Strings.of(ops),
        **given | options,
    )


def subscribers(names: Sequence[bytes], next_name: str = "") -> commands.Subscribers:
    count = len(names)
    return commands.Subscribers(
        names=Strings.of(names),
        seqs=array("Q", range(1_000, 1_000 + count)),
        epochs=array("Q", range(2_000, 2_000 + count)),
        moved_us=array("Q", range(3_000, 3_000 + count)),
        asleep=bytes(row % 2 for row in range(count)),
        next_name=next_name,
    )


def blocks(names: Sequence[bytes], location: str = "", next_after: int = 0) -> commands.BlockList:
    count = len(names)
    starts = range(1_000, 1_000 * (1 + len(commands.BlockList.NUMBERS)), 1_000)
    numbers: dict[str, Any] = {
        name: array("Q", range(start, start + count))
        for name, start in zip(commands.BlockList.NUMBERS, starts, strict=True)
    }
    return commands.BlockList(
        location=location, names=Strings.of(names), next_after=next_after, **numbers
    )


MESSAGES = [
    messages([]),
    messages([], after=LARGEST, until=LARGEST, ended=True),
    messages([b"an op of 16 bytes"]),
    messages([b"o" * 24, b"", b"p" * 300], ended=True, rows=100_000),
]
POSITIONS = [
    commands.Position(seq=0, epoch=0, asleep=False, created=True),
    commands.Position(seq=LARGEST, epoch=LARGEST, asleep=True, created=False),
]
SUBSCRIBERS = [
    subscribers([]),
    subscribers([b"billing"], "next"),
    subscribers([b"a", b"b" * 128, b""], "n" * 33),
]
BLOCKS = [
    blocks([]),
    blocks([b"a-block"], "file:///cold/é"),
    blocks([b"a", b"b" * 300], "s3://bucket/" + "x" * 300, LARGEST),
]
OPENED = commands.Opened(snapshot=5, wall_us=NOW_US, until_us=LARGEST)
ARROW = [
    commands.ScannedArrow(stream=b"", next_seq=1, end_seq=1),
    commands.ScannedArrow(stream=b"an Arrow stream", next_seq=7, end_seq=LARGEST),
]

STREAM_REPLIES: list[commands.Reply] = [
    *MESSAGES,
    *POSITIONS,
    *SUBSCRIBERS,
    OPENED,
    *BLOCKS,
    *ARROW,
]
