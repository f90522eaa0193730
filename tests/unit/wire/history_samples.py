"""Commands and replies about the history of a table as a whole: one of every sort."""

from __future__ import annotations

from typing import Any

from fjord.commands import Command, ReplaceBlocks, Reply, Span, Spanned
from tests.unit.wire.streams import MASTER, NOW_US

LARGEST = 2**64 - 1


def replacing(*names: str, **options: Any) -> ReplaceBlocks:
    """Blocks that are replaced."""
    given: dict[str, Any] = {"rows": 7, "size": 900, "min_us": 5, "max_us": NOW_US, "crc": 77}
    return ReplaceBlocks(table="t", names=names, name="t-7/a-c", **given | options)


def span_reply(**options: Any) -> Spanned:
    """A batch that has rows."""
    given: dict[str, Any] = {
        "seq": 9,
        "rows": 4,
        "size": 300,
        "wall_us": NOW_US,
        "examined": 12,
        "is_more": False,
        "durable_seq": 20,
        "first_seq": 1,
        "epoch": MASTER,
    }
    return Spanned(**given | options)


HISTORY: list[Command] = [
    Span(table="t", after=0),
    Span(
        table="longer_name",
        after=LARGEST,
        until=LARGEST - 1,
        rows_max=LARGEST - 2,
        bytes_max=LARGEST - 3,
        before_us=NOW_US,
        epoch=MASTER,
    ),
    replacing("t-7/a-b", "t-7/b-c"),
    replacing("t-7/" + "x" * 300, rows=LARGEST, size=LARGEST, max_us=LARGEST, crc=LARGEST),
]

HISTORY_REPLIES: list[Reply] = [
    span_reply(),
    span_reply(seq=LARGEST, rows=0, wall_us=0, is_more=True, epoch=b"", size=LARGEST),
]
