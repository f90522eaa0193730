"""Snapshots: reads as of one moment; pure, and shared by all shells."""

from __future__ import annotations

from fjord.client.calls import Call, Result, done, expect, expect_rows
from fjord.client.entries import Seconds
from fjord.client.job_times import delay_us
from fjord.commands import (
    AsOf,
    CloseSnapshot,
    ListTables,
    Nop,
    Opened,
    OpenSnapshot,
    Replies,
    Reply,
)


def open_call(lifetime: Seconds | None) -> Call[Opened]:
    """Returns the call that opens a snapshot, for at most so many seconds.

    Raises:
        ValueError: if that is no time at all.
    """
    lifetime_us = delay_us(lifetime, "lifetime")
    if lifetime is not None and not lifetime_us:
        raise ValueError("lifetime is more than 0 seconds; leave it out for the longest there is")
    return Call(OpenSnapshot(lifetime_us=lifetime_us), lambda reply: expect(reply, Opened))


def close_call(snapshot: int) -> Call[None]:
    return Call(CloseSnapshot(snapshot=snapshot), done)


def as_of(snapshot: int, call: Call[Result]) -> Call[Result]:
    """Returns a call that reads the same, as it was when the snapshot was opened."""
    if isinstance(call.command, Nop | ListTables):
        return call  # get_many of nothing; columns, which are kept for as long as there are rows

    def read(reply: Reply) -> Result:
        found = expect(reply, Replies).replies
        expect_rows(len(found), 1)
        return call.result(found[0])

    return Call(AsOf(snapshot=snapshot, commands=[call.command]), read)
