"""What users see of the generations of a jobs table with a period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fjord.client.calls import Call, expect
from fjord.client.entries import date
from fjord.commands import CountJobs, Numbers, Reply
from fjord.errors import Code, RemoteProtocolError

_PREFIX = b"generation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One of the tables that a table with a period has been."""

    number: int  # 1 for the first
    began_at: datetime
    first_row: int  # its jobs are those from here on, up to that of the next one
    schema: int  # the number of the columns that it began with
    jobs: int  # that wait, are taken or are dead
    is_current: bool  # what is pushed goes here; the others only drain


def generations(table: str) -> Call[list[Generation]]:
    """Returns the call that asks for the generations of a table, the oldest first."""
    return Call(CountJobs(table=table, generations=True), _read)


def _read(reply: Reply) -> list[Generation]:
    found = expect(reply, Numbers)
    listed: dict[int, dict[str, int]] = {}
    for name, value in zip(found.names.rows(), found.values, strict=True):
        if name.startswith(_PREFIX):
            number, _, what = name[len(_PREFIX) :].decode(errors="replace").partition(".")
            if not number.isdecimal():
                raise RemoteProtocolError(Code.BAD_BATCH, f"a generation {number[:40]!r}")
            listed.setdefault(int(number), {})[what] = value
    last = max(listed, default=0)
    return [_generation(number, listed[number], last) for number in sorted(listed)]


def _generation(number: int, numbers: Mapping[str, int], last: int) -> Generation:
    try:
        return Generation(
            number=number,
            began_at=date(numbers["began_us"]),
            first_row=numbers["first_row"],
            schema=numbers["schema"],
            jobs=numbers["jobs"],
            is_current=number == last,
        )
    except KeyError as error:
        text = f"numbers of a generation without {error.args[0]}"
        raise RemoteProtocolError(Code.BAD_BATCH, text) from None
