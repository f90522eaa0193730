"""Commands of jobs tables, and their replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fjord.columns import Strings
from fjord.commands.layout import *
from fjord.commands.session import Done, Numbers

# Events of a jobs table.
ARRIVED: Final = b"arrived"  # jobs were pushed, or wait again
DUE: Final = b"due"  # the process date of at least one job was reached


# -- replies --------------------------------------------------------------------------------------


@reply(12, "taken")
class Taken(Reply):
    """Jobs that were handed out; if there are none, when to ask again.

    Job i has the xid `first_xid + i`.
    """

    first_xid: int = field(U64)  # 0: there are none, or they are done already
    until_us: int = field(TIME)  # wall time when their leases are over, if the clock is not set
    next_at_us: int = field(TIME)  # no jobs: the next process date or end of a lease, 0 = none
    rows: Sequence[int] = field(U64S, shown="row")
    process_at_us: Sequence[int] = field(TIMES)
    inserted_us: Sequence[int] = field(TIMES)
    updated_us: Sequence[int] = field(TIMES)
    expires_at_us: Sequence[int] = field(TIMES)  # 0 = never
    priorities: bytes = field(U8S, shown="priority")
    timeouts: bytes = field(U8S)
    types: bytes = field(U8S, shown="type")
    keys: Strings = field(STRINGS, shown="key")
    domains: Strings = field(STRINGS, shown="domain")  # as given; empty = that of the key
    values: Strings = field(STRINGS, shown="value")


@reply(6, "jobs")
class JobPage(Reply):
    """Jobs that are not taken."""

    next_start: bytes = field(BLOB)  # where the next page begins; empty: there is no more
    rows: Sequence[int] = field(U64S, shown="row")
    xids: Sequence[int] = field(U64S, shown="xid")  # 0 if it is not taken
    process_at_us: Sequence[int] = field(TIMES)
    inserted_us: Sequence[int] = field(TIMES)
    updated_us: Sequence[int] = field(TIMES)
    expires_at_us: Sequence[int] = field(TIMES)
    # Of a taken one: when its lease is over; of a dead one: since when it is; else 0.
    moments_us: Sequence[int] = field(TIMES, shown="moment")
    priorities: bytes = field(U8S, shown="priority")
    timeouts: bytes = field(U8S)
    types: bytes = field(U8S, shown="type")
    keys: Strings = field(STRINGS, shown="key")
    domains: Strings = field(STRINGS, shown="domain")
    values: Strings = field(STRINGS, shown="value")
    reasons: Strings = field(STRINGS, shown="reason")  # of the dead


@reply(7, "acted")
class Acted(Reply):
    """Done for all except some: the token, and the missing ones."""

    master: bytes = field(UUID)
    seq: int = field(U64)
    # Positions in the command: stale xids, keys or rows that are not there.
    missing: Sequence[int] = field(U64S, counted=True)
    # Of REVIVE: positions of jobs that are gone instead: expired, or newer ones wait.
    dropped: Sequence[int] = field(U64S, counted=True, default=())


# -- adding and taking ----------------------------------------------------------------------------


@command(
    48, "PUSH_MANY", answer=Done, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, merge=Merge()
)
class Push(Command):
    """Adds jobs, or merges them with waiting jobs of the same keys; all or none."""

    table: str = field(NAME)
    relative: bool = field(Flag.TTL, default=False)  # `process_at_us` are delays from now on
    timestamps_us: Sequence[int] = field(DATES)  # insertion dates, the client's
    process_at_us: Sequence[int] = field(TIMES)  # 0 = now
    expires_at_us: Sequence[int] = field(TIMES)  # 0 = never
    priorities: bytes = field(U8S, shown="priority")
    types: bytes = field(U8S, shown="type")
    keys: Strings = field(STRINGS, shown="key")  # may be empty where the table does not merge
    domains: Strings = field(STRINGS, shown="domain")  # empty = that of the URI in the key
    values: Strings = field(STRINGS, shown="value")


@command(49, "NEXT_MANY", answer=Taken, frees=True)
class Next(Command):
    """Takes the next due jobs, most important first.

    Retried unchanged: jobs of a lost reply come back when their leases expire.
    """

    table: str = field(NAME)
    count: int = field(U64, argument=True, default=1)  # at most so many; 0 = the server's maximum
    done: bool = field(Flag.OVERWRITE, default=False)  # they are done at once
    lease_us: int = field(U64, default=0)  # how long they may be worked on; 0 = the table's setting
    wait_us: int = field(U64, default=0)  # how long to wait for the first one
    domain: bytes = field(BLOB, default=b"")  # of this domain only; empty = of all


# -- jobs that are taken: by xid ------------------------------------------------------------------


def _split_acted(acted: Acted, found: Sequence[Finish]) -> list[Acted]:
    missing = set(acted.missing)
    replies = []
    first = 0
    for one in found:
        mine = [at for at in range(len(one.xids)) if first + at in missing] if missing else ()
        replies.append(Acted(master=acted.master, seq=acted.seq, missing=mine))
        first += len(one.xids)
    return replies


@command(
    50,
    "FINISH",
    answer=Acted,
    retry=Retry.NUMBERED,
    in_batch=InBatch.NUMBERED,
    frees=True,
    merge=Merge(is_possible=lambda finish: not finish.strict, unique="xids", split=_split_acted),
)
class Finish(Command):
    """Marks jobs as done."""

    table: str = field(NAME)
    # Refuse all if any of them is stale, and so a batch with it.
    strict: bool = field(BOOL, argument=True, default=False)
    xids: Sequence[int] = field(U64S, shown="xid")


@command(51, "EXTEND", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Extend(Command):
    """Renews leases from now on: a heartbeat."""

    table: str = field(NAME)
    lease_us: int = field(U64, argument=True, default=0)  # 0 = as long as each was taken for
    xids: Sequence[int] = field(U64S, shown="xid")


@command(52, "FAIL", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Fail(Command):
    """Gives jobs back: they wait again or, after too many failures, are dead."""

    table: str = field(NAME)
    delay_us: int = field(U64, argument=True, default=0)  # wait at least so long, from now on
    counts: bool = field(Flag.COUNT, default=True)  # False: nobody's failure, and not counted
    buries: bool = field(Flag.OVERWRITE, default=False)  # to the dead letters at once
    reason: bytes = field(BLOB, default=b"")  # UTF-8; for the dead letters
    xids: Sequence[int] = field(U64S, shown="xid")


# -- jobs that wait: by key -----------------------------------------------------------------------


@command(53, "CANCEL", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, frees=True)
class Cancel(Command):
    """Removes waiting jobs, by key."""

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(54, "RESCHEDULE", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Reschedule(Command):
    """Changes waiting jobs, by key; a process date of now kicks them."""

    table: str = field(NAME)
    # None = as it is, 0 = now.
    process_at_us: int | None = field(
        TIME, argument=True, when=Flag.UPDATE_TIMEOUT, default=None, shown="date or delay"
    )
    relative: bool = field(Flag.TTL, default=False)  # `process_at_us` is a delay from now on
    priority: int | None = field(U32, when=Flag.OVERWRITE, default=None)  # None = as it is
    keys: Strings = field(STRINGS, shown="key")


@command(55, "BURY", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Bury(Command):
    """Sends waiting jobs to the dead letters, by key."""

    table: str = field(NAME)
    reason: bytes = field(BLOB, default=b"")
    keys: Strings = field(STRINGS, shown="key")


# -- dead jobs: by row ----------------------------------------------------------------------------


@command(56, "REVIVE", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED)
class Revive(Command):
    """Lets dead jobs wait again, as if they had never failed."""

    table: str = field(NAME)
    delay_us: int = field(U64, argument=True, default=0)
    rows: Sequence[int] = field(U64S, shown="row")


@command(57, "DISCARD", answer=Acted, retry=Retry.NUMBERED, in_batch=InBatch.NUMBERED, frees=True)
class Discard(Command):
    """Deletes dead jobs."""

    table: str = field(NAME)
    rows: Sequence[int] = field(U64S, shown="row")


# -- reading --------------------------------------------------------------------------------------


@command(58, "PEEK", answer=JobPage, in_batch=InBatch.PLAIN, reads=True, leases=True)
class Peek(Command):
    """Returns jobs of one state without taking them, a bounded page at a time.

    Waiting ones come by domain hash if the table has fairness, then by priority and date; taken
    ones as they were taken, dead ones as they were pushed.
    """

    table: str = field(NAME)
    count: int = field(U64, argument=True, default=0)  # at most so many; 0 = the server's maximum
    state: int = field(U32, default=1)  # jobs.State
    start: bytes = field(BLOB, default=b"")  # `next_start` of the page before
    domain: bytes = field(BLOB, default=b"")  # waiting jobs of a table with fairness


@command(59, "FIND", answer=JobPage, in_batch=InBatch.PLAIN, reads=True)
class Find(Command):
    """Returns waiting jobs by key; missing ones are left out."""

    table: str = field(NAME)
    keys: Strings = field(STRINGS, shown="key")


@command(60, "COUNT_JOBS", answer=Numbers, in_batch=InBatch.PLAIN, reads=True, leases=True)
class CountJobs(Command):
    """Counts waiting, taken and dead jobs, and says when the next one is due.

    Answered with Numbers: waiting, taken, dead, next_at_us (0: none waits or is taken); with
    `generations` also generation.N.began_us, .first_row, .schema and .jobs of each generation N.
    """

    table: str = field(NAME)
    generations: bool = field(BOOL, argument=True, default=False)
    domain: bytes = field(BLOB, default=b"")  # next_at_us of this one; the rest is of the table


@command(61, "LISTEN_JOBS", answer=Done, retry=Retry.NEVER, listens=True)
class ListenJobs(Command):
    """Reports when jobs of a table arrive, and when their process dates are reached."""

    table: str = field(NAME)
