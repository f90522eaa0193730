"""Commands and replies of jobs tables in short words."""

from __future__ import annotations

from fjord.columns import Strings
from fjord.commands import Push, Taken
from fjord.jobs import Priority

TABLE = "pages"


def push(
    *keys: bytes,
    now_us: int,
    delay_us: int = 0,
    priority: int = Priority.DEFAULT,
    domain: bytes = b"",
    table: str = TABLE,
) -> Push:
    count = len(keys)
    return Push(
        table=table,
        keys=Strings.of(keys),
        domains=Strings.of([domain] * count),
        types=b"\1" * count,
        values=Strings.of([b"value of " + key for key in keys]),
        priorities=bytes([priority]) * count,
        process_at_us=[delay_us] * count,
        expires_at_us=[0] * count,
        timestamps_us=[now_us] * count,
        relative=True,
    )


def taken(*rows: int, first_xid: int = 0, next_at_us: int = 0) -> Taken:
    """Returns a reply with jobs of which only the rows matter."""
    count = len(rows)
    some = Strings.of([b""] * count)
    return Taken(
        first_xid=first_xid,
        until_us=0,
        next_at_us=next_at_us,
        rows=rows,
        process_at_us=[0] * count,
        inserted_us=[0] * count,
        updated_us=[0] * count,
        expires_at_us=[0] * count,
        priorities=bytes(count),
        timeouts=bytes(count),
        types=bytes(count),
        keys=some,
        domains=some,
        values=some,
    )
