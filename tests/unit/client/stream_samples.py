"""Calls of a stream and of a subscriber: what each sends, and what it makes of the answer.

The blocking shells are tested with them; they are made from those for asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fjord import commands, limits, ops
from fjord.client.history import BlockInfo
from fjord.client.kv import KvCalls
from fjord.client.messages import Message, MessageBatch
from fjord.client.streams import StreamCalls
from fjord.client.subscribers import SubscriberCalls, SubscriberInfo
from fjord.clock import Stamps
from fjord.columns import Strings
from fjord.ops import Op, Opcode
from fjord.streams import Start
from fjord.testing import SimClock
from tests.unit.client.scripted import NOW_US, TOKEN, entries
from tests.unit.client.shell_calls import ENTRY, FIVE, Sample, on, page, range_of

NOW: Final = datetime.fromtimestamp(NOW_US // 1_000_000, tz=UTC)
CREATED: Final = commands.CreateTable(name="t", kind=3, settings=b'{"mode":"latest"}')
POSITION: Final = commands.Position(seq=5, epoch=2, asleep=False, created=False)


def stream_calls() -> StreamCalls:
    return StreamCalls("t")


def entry_calls() -> KvCalls:
    return KvCalls("t", Stamps(SimClock(NOW_US)))


def subscriber_calls(**changes: Any) -> SubscriberCalls:
    return SubscriberCalls("t", "s", position(**changes))


def position(seq: int = 5, epoch: int = 2, *, asleep: bool = False) -> commands.Position:
    return commands.Position(seq=seq, epoch=epoch, asleep=asleep, created=False)


# -- what is sent ---------------------------------------------------------------------------------


def append_of(
    *values: bytes, keys: Sequence[bytes] | None = None, types: bytes = b""
) -> commands.Append:
    count = len(values)
    return commands.Append(
        table="t",
        types=types or b"\1" * count,
        keys=Strings.of(list(keys or [b""] * count)),
        values=Strings.of(list(values)),
    )


def erase_of(*keys: bytes) -> commands.Erase:
    return commands.Erase(table="t", keys=Strings.of(list(keys)))


def read_of(after: int = 5, **changes: Any) -> commands.Read:
    return commands.Read(
        **{"table": "t", "after": after, "count": 1000, "subscriber": "s", **changes}
    )


def ack_of(seq: int, epoch: int = 2, expected: int = -1) -> commands.Acknowledge:
    return commands.Acknowledge(table="t", name="s", seq=seq, epoch=epoch, expected=expected)


# -- what is answered -----------------------------------------------------------------------------


def encoded(*found: Op) -> Strings:
    return Strings.of([ops.encode(op)[0] for op in found])


def appended(*values: bytes, key: bytes = b"k") -> Op:
    count = len(values)
    columns = (b"\1" * count, Strings.of([key] * count), Strings.of(list(values)))
    return Op(Opcode.STREAM_APPEND, 7, count, columns)


def moved(*rows: tuple[int, int, bytes, bytes], at_us: Sequence[int] | None = None) -> Op:
    """Returns the op that brings messages: seq, type, key, value."""
    columns = (
        [row[0] for row in rows],
        at_us or [NOW_US] * len(rows),
        [0] * len(rows),
        [0] * len(rows),
        bytes([row[1] for row in rows]),
        Strings.of([row[2] for row in rows]),
        Strings.of([row[3] for row in rows]),
    )
    return Op(Opcode.STREAM_MOVE, 7, len(rows), columns)


def messages(
    *values: bytes, first: int = 6, after: int = 0, until: int = 0, ended: bool = True
) -> commands.Messages:
    """Returns an answer with messages that were appended together, under the key k."""
    count = len(values)
    last = after or first + count - 1
    return commands.Messages(
        first_seqs=[first] if count else [],
        walls_us=[NOW_US] if count else [],
        ops=encoded(appended(*values)) if count else Strings.of([]),
        after=last,
        until=until or last,
        ended=ended,
        rows=count,
    )


def message(seq: int, value: object, key: str = "k", **changes: Any) -> Message:
    return Message(seq, key, value, NOW, **changes)


def acted(*missing: int) -> commands.Acted:
    return commands.Acted(master=b"m" * 16, seq=5, missing=missing)


def subscribers(*rows: tuple[bytes, int, int, bool], next_name: str = "") -> commands.Subscribers:
    """Returns a page of subscribers: name, mark, epoch, whether it sleeps."""
    return commands.Subscribers(
        names=Strings.of([row[0] for row in rows]),
        seqs=[row[1] for row in rows],
        epochs=[row[2] for row in rows],
        moved_us=[NOW_US] * len(rows),
        asleep=bytes([row[3] for row in rows]),
        next_name=next_name,
    )


def block_list(*names: bytes, next_after: int = 0) -> commands.BlockList:
    count = len(names)
    return commands.BlockList(
        location="file:///blocks",
        firsts=[1] * count,
        lasts=[9] * count,
        rows=[5] * count,
        sizes=[777] * count,
        min_us=[NOW_US] * count,
        max_us=[NOW_US + 1_000_000] * count,
        crcs=[3] * count,
        names=Strings.of(list(names)),
        next_after=next_after,
    )


def numbers(**found: int) -> commands.Numbers:
    return commands.Numbers(
        names=Strings.of([name.encode() for name in found]), values=[*found.values()]
    )


def shown(found: Any) -> Any:
    """Returns a batch as what is in it."""
    if isinstance(found, MessageBatch):
        return list(found.messages), found.last_seq, found.end_of_snapshot
    return found


def block_info(name: str) -> BlockInfo:
    return BlockInfo(name, "file:///blocks", 1, 9, 5, 777, NOW, NOW + timedelta(seconds=1), 3)


LAST: Final = numbers(tables=1, applied_seq=5)
LISTED: Final = [SubscriberInfo("a", 5, 2, NOW, False), SubscriberInfo("b", 7, 0, NOW, True)]
TWO: Final = messages(b"a", b"b", first=1)
BLOCKS: Final = commands.ListBlocks(table="t", count=limits.BLOCKS_LISTED_MAX)

STREAM_SAMPLES: Final = [
    Sample("append", lambda t: t.append(b"v"), [append_of(b"v")], [TOKEN], 5),
    Sample(
        "append_many",
        lambda t: t.append_many([b"v", b"w"], keys=["k", b"l"]),
        [append_of(b"v", b"w", keys=[b"k", b"l"])],
        [TOKEN],
        5,
    ),
    Sample("append_many of nothing", lambda t: t.append_many([]), [], [], 0),
    Sample("delete", lambda t: t.delete("k"), [erase_of(b"k")], [acted()], True),
    Sample(
        "delete_many",
        lambda t: t.delete_many(["k", "l", "m"]),
        [erase_of(b"k", b"l", b"m")],
        [acted(2, 0)],
        ["k", "m"],
    ),
    Sample(
        "read",
        lambda t: t.read(),
        [read_of(0, subscriber="")],
        [TWO],
        ([message(1, b"a"), message(2, b"b")], 2, True),
    ),
    Sample("get", lambda t: t.get("k"), [on("Get", b"k")], [entries((3, FIVE))], 5),
    Sample(
        "items",
        lambda t: t.items(),
        [range_of(), range_of(start=b"l")],
        [page(b"k", next_key=b"l"), page(b"l")],
        [("k", 5), ("l", 5)],
    ),
    Sample("entry", lambda t: t.entry("k"), [on("Get", b"k")], [entries((3, FIVE))], ENTRY),
    Sample("values", lambda t: t.values(), [range_of()], [page(b"k", b"l")], [5, 5]),
    Sample(
        "subscribers",
        lambda t: t.subscribers(),
        [on("ListSubscribers"), on("ListSubscribers", start="b")],
        [subscribers((b"a", 5, 2, False), next_name="b"), subscribers((b"b", 7, 0, True))],
        LISTED,
    ),
    Sample(
        "blocks",
        lambda t: t.blocks(),
        [BLOCKS, on("ListBlocks", after=9, count=limits.BLOCKS_LISTED_MAX)],
        [block_list(b"t-7/a", next_after=9), block_list(b"t-7/b")],
        [block_info("t-7/a"), block_info("t-7/b")],
    ),
]

WHERE: Final = on("ListSubscribers", start="s", count=1)
DONE: Final = commands.Done(master=b"m" * 16, seq=9)
SUBSCRIBER_SAMPLES: Final = [
    Sample(
        "read",
        lambda s: s.read(),
        [read_of()],
        [messages(b"a", b"b")],
        ([message(6, b"a"), message(7, b"b")], 7, True),
    ),
    Sample(
        "read with options",
        lambda s: s.read(10, wait=2),
        [read_of(count=10, wait_us=2_000_000)],
        [messages(after=5)],
        ([], 5, True),
    ),
    Sample(
        "read over a gap",
        lambda s: s.read(),
        [read_of(), read_of(8, until=20)],
        [messages(after=8, until=20, ended=False), messages(b"a", first=10, after=20)],
        ([message(10, b"a")], 20, True),
    ),
    Sample(
        "peek",
        lambda s: s.peek(),
        [WHERE, read_of(count=1, once=True)],
        [subscribers((b"s", 5, 2, False)), messages(b"a")],
        message(6, b"a"),
    ),
    Sample(
        "peek at nothing",
        lambda s: s.peek(),
        [WHERE, read_of(count=1, once=True)],
        [subscribers((b"s", 5, 2, False)), messages(after=5)],
    ),
    Sample(
        "pop",
        lambda s: s.pop(wait=3),
        [read_of(count=1, once=True, wait_us=3_000_000), ack_of(6, expected=5)],
        [messages(b"a"), position(6)],
        message(6, b"a"),
    ),
    Sample("pop of nothing", lambda s: s.pop(), [read_of(count=1, once=True)], [messages(after=5)]),
    Sample("ack of a seq", lambda s: s.ack(9), [ack_of(9)], [position(9)]),
    Sample("ack of a message", lambda s: s.ack(message(8, b"")), [ack_of(8)], [position(8)]),
    Sample(
        "seek to the end",
        lambda s: s.seek("end"),
        [on("Seek", name="s", start=Start.END)],
        [position(50, 3)],
    ),
    Sample(
        "seek to a seq",
        lambda s: s.seek(7),
        [on("Seek", name="s", start=Start.SEQ, at=7)],
        [position(6, 3)],
    ),
    Sample(
        "seek to a moment",
        lambda s: s.seek(NOW),
        [on("Seek", name="s", start=Start.TIME, at=NOW_US)],
        [position(6, 3)],
    ),
    Sample("rewind", lambda s: s.rewind(), [WHERE], [subscribers((b"s", 3, 4, False))]),
    Sample(
        "position",
        lambda s: s.position,
        [WHERE],
        [subscribers((b"s", 3, 4, False), next_name="t")],
        3,
    ),
    Sample("lag", lambda s: s.lag, [on("Lag", name="s")], [numbers(seqs=9, messages=4)], 4),
    Sample("sleep", lambda s: s.sleep(), [on("Rest", name="s", asleep=True)], [POSITION]),
    Sample("wake", lambda s: s.wake(), [on("Rest", name="s", asleep=False)], [POSITION]),
    Sample("close", lambda s: s.close(), [on("Rest", name="s", asleep=True)], [POSITION]),
    Sample("delete", lambda s: s.delete(), [on("Unsubscribe", name="s")], [DONE]),
]
