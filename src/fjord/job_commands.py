"""Commands of jobs tables, and their replies; part of `commands`, and used from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fjord.columns import Strings

# What a listener of a jobs table is told.
ARRIVED: Final = b"arrived"  # jobs were pushed, or wait again
DUE: Final = b"due"  # the process date of at least one job was reached


@dataclass(slots=True, kw_only=True)
class Push:
    """Adds jobs, or merges them with those that wait under the same keys; all of them or none."""

    table: str
    keys: Strings  # where the table does not merge, a key may be empty
    domains: Strings  # empty = that of the URI in the key
    types: bytes  # one type byte a job
    values: Strings
    priorities: bytes
    process_at_us: Sequence[int]  # 0 = now
    expires_at_us: Sequence[int]  # 0 = never
    timestamps_us: Sequence[int]  # insertion dates, the client's
    relative: bool = False  # True: `process_at_us` are delays from now on


@dataclass(slots=True, kw_only=True)
class Next:
    """Takes the next jobs that are due, most important first.  Never part of a batch."""

    table: str
    count: int = 1  # at most so many; 0 = the server's maximum
    domain: bytes = b""  # of this domain only; empty = of all
    lease_us: int = 0  # how long they may be worked on; 0 = the table's setting
    wait_us: int = 0  # how long to wait for the first one
    done: bool = False  # True: they are done at once


@dataclass(slots=True, kw_only=True)
class Finish:
    """Says that jobs are done."""

    table: str
    xids: Sequence[int]
    strict: bool = False  # True: refuse all if any of them is stale, and so a batch with it


@dataclass(slots=True, kw_only=True)
class Extend:
    """Lets leases last longer, from now on: a heartbeat."""

    table: str
    xids: Sequence[int]
    lease_us: int = 0  # 0 = as long as each was taken for


@dataclass(slots=True, kw_only=True)
class Fail:
    """Gives jobs back: they wait again, or are dead when that happened too often."""

    table: str
    xids: Sequence[int]
    delay_us: int = 0  # wait at least so long, from now on
    counts: bool = True  # False: this is nobody's failure, and is not counted
    buries: bool = False  # True: to the dead letters at once
    reason: bytes = b""  # UTF-8; for the dead letters


@dataclass(slots=True, kw_only=True)
class Cancel:
    """Takes waiting jobs away, by key."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class Reschedule:
    """Changes waiting jobs, by key; a process date of now kicks them."""

    table: str
    keys: Strings
    priority: int | None = None  # None = as it is
    process_at_us: int | None = None  # None = as it is, 0 = now
    relative: bool = False  # True: `process_at_us` is a delay from now on


@dataclass(slots=True, kw_only=True)
class Bury:
    """Sends waiting jobs to the dead letters, by key."""

    table: str
    keys: Strings
    reason: bytes = b""


@dataclass(slots=True, kw_only=True)
class Revive:
    """Lets dead jobs wait again, as if they had never failed."""

    table: str
    rows: Sequence[int]
    delay_us: int = 0


@dataclass(slots=True, kw_only=True)
class Discard:
    """Throws dead jobs away."""

    table: str
    rows: Sequence[int]


@dataclass(slots=True, kw_only=True)
class Peek:
    """Shows jobs of one state and takes none: a bounded page at a time.

    Waiting ones come by domain hash if the table has fairness, then by priority and date; taken
    ones as they were taken, dead ones as they were pushed.
    """

    table: str
    state: int = 1  # jobs.State
    start: bytes = b""  # `next_start` of the page before
    count: int = 0  # at most so many; 0 = the server's maximum
    domain: bytes = b""  # of this domain only; waiting jobs of a table with fairness


@dataclass(slots=True, kw_only=True)
class Find:
    """Shows waiting jobs by key; those that do not wait are left out."""

    table: str
    keys: Strings


@dataclass(slots=True, kw_only=True)
class CountJobs:
    """Asks how many jobs wait, are taken and are dead, and when the next one is due.

    Answered with Numbers: waiting, taken, dead, next_at_us (0: none waits or is taken); with
    `generations` also generation.N.began_us, .first_row, .schema and .jobs of each generation N.
    """

    table: str
    domain: bytes = b""  # next_at_us of this domain; the others are of the whole table
    generations: bool = False


@dataclass(slots=True, kw_only=True)
class ListenJobs:
    """Asks to be told when jobs of a table arrive, and when their process dates are reached."""

    table: str


# -- replies --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Taken:
    """Jobs that were handed out, perhaps none: then when to ask again.

    Job i has the xid `first_xid + i`.
    """

    # The columns of numbers, in the order in which they are laid out.
    NUMBERS = ("rows", "process_at_us", "inserted_us", "updated_us", "expires_at_us")

    first_xid: int  # 0: there are none, or they are done already
    until_us: int  # wall time at which their leases are over, if the clock is not set meanwhile
    next_at_us: int  # with no jobs: the next process date or end of a lease, 0 = none; else 0
    rows: Sequence[int]
    process_at_us: Sequence[int]
    inserted_us: Sequence[int]
    updated_us: Sequence[int]
    expires_at_us: Sequence[int]  # 0 = never
    priorities: bytes
    timeouts: bytes
    types: bytes
    keys: Strings
    domains: Strings  # as given; empty = that of the key
    values: Strings


@dataclass(slots=True, kw_only=True)
class JobPage:
    """Jobs that are only looked at."""

    NUMBERS = (
        "rows",
        "xids",
        "process_at_us",
        "inserted_us",
        "updated_us",
        "expires_at_us",
        "moments_us",
    )

    rows: Sequence[int]
    xids: Sequence[int]  # 0 if it is not taken
    process_at_us: Sequence[int]
    inserted_us: Sequence[int]
    updated_us: Sequence[int]
    expires_at_us: Sequence[int]
    moments_us: Sequence[int]  # taken: when its lease is over; dead: since when; else 0
    priorities: bytes
    timeouts: bytes
    types: bytes
    keys: Strings
    domains: Strings
    values: Strings
    reasons: Strings  # of the dead
    next_start: bytes  # where the next page begins; empty: there is no more


@dataclass(slots=True, kw_only=True)
class Acted:
    """It is done for all but some: the token, and who was not there any more."""

    master: bytes
    seq: int
    missing: Sequence[int]  # positions in the command: stale xids, keys or rows that are not there
    # Of REVIVE: positions of jobs that are gone instead: expired, or newer ones wait.
    dropped: Sequence[int] = ()
