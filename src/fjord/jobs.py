"""Jobs: named priorities, states, settings of tables, the domain of a key."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fjord import limits, settings
from fjord.declared import schema
from fjord.declared.schema import Schema
from fjord.settings import TableSettings, Triples

SECOND_US: Final = 1_000_000
# From here up a job is slow: it is never handed out together with others, and only if none of
# the others is due (SJ-09, decision 29).
SLOW_FROM: Final = 200
PRIORITY_MAX: Final = 255
# Settings that all generations share, since they decide where jobs are in the index.
FIXED: Final = ("merge", "fairness")

_SCHEME: Final = rb"[A-Za-z0-9+.\-]"
_END: Final = rb"/?#\s\v"  # what ends a host; RE2 does not count \v as a space
# The end of a scheme, perhaps a user, then the host: of the first URI anywhere in a key.
HOST: Final = rb"%b://(?:[^%b]*@)?(?P<host>\[[^\]%b]*\]|[^:%b]*)" % (_SCHEME, _END, _END, _END)
# The same for most keys, which begin with a plain URI; RE2 finds it six times as fast.
PLAIN_HOST: Final = rb"^%b+://(?P<host>[^:@\[%b]*)(?::[0-9]*)?(?:[/?#]|$)" % (_SCHEME, _END)
_HOST: Final = re.compile(HOST)


class Priority(enum.IntEnum):
    """Named priorities; any number from 0 to 255 is valid, and the smallest comes first."""

    NOW = 0
    IMPORTANT = 10
    NEW_PAGE = 20
    RESET = 50
    DEFAULT = 100
    UPDATES = 180
    SLOW = 200
    REVIEW = 230
    TIME_ALLOWS = 255


class State(enum.IntEnum):
    """The state of a job; a finished job is gone."""

    WAITING = 1  # W: for its process date, or for a worker
    TAKEN = 2  # P: a worker holds it until its lease expires
    DEAD = 3  # it failed too often, or was buried


class How(enum.IntEnum):
    """Why a job changed its state; the numbers are stored in ops."""

    DONE = 1  # its work is done, or it was taken with `done`
    TIMEOUT = 2  # its lease expired
    FAIL = 3  # its worker failed
    GIVEN_BACK = 4  # the same, without counting
    CANCEL = 5  # it was cancelled by key
    RESCHEDULE = 6  # its date or priority was changed
    EXPIRE = 7  # it expired
    REVIVE = 8  # it was revived
    DISCARD = 9  # it was dead, and discarded
    SUPERSEDED = 10  # a newer job with its key waits, or was taken
    PURGE = 11  # its table was dropped


class Fairness(enum.StrEnum):
    """The order of jobs of several domains."""

    NONE = "none"  # one order over the whole table
    DOMAIN = "domain"  # domains with due jobs take turns


class Period(enum.StrEnum):
    """How long a generation of a table lasts."""

    NONE = ""  # there is only one
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Drained(enum.StrEnum):
    """What happens to a generation without jobs."""

    DELETE = "delete"  # its space is returned to the disk, and its history removed
    TRUNCATE = "truncate"  # its space goes back to the disk
    RESET = "reset"  # its space is used again when there is need


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(TableSettings):
    """Settings of a jobs table; fixed when it is created."""

    merge: bool = True  # a job whose key waits already is merged with it; else keys need not differ
    fairness: Fairness = Fairness.NONE
    lease_us: int = 3600 * SECOND_US  # default length of a lease
    timeouts_max: int = 5  # a job that fails or times out more often is dead
    debounce_us: int = 3600 * SECOND_US  # no merge moves a date beyond insertion date + this
    history: bool = True  # history goes to cold blocks before it leaves the journal
    earlier: tuple[tuple[int, Triples], ...] = ()  # schemas that earlier generations began with
    period: Period = Period.NONE  # a new generation begins each hour, day or month
    drained: Drained = Drained.DELETE  # what happens to a generation without jobs
    secure: bool = False  # removed data is overwritten first

    @property
    def earlier_declared(self) -> Sequence[Schema]:
        """The schemas that rows of earlier generations may have."""
        return [schema.of(columns, (), number) for number, columns in self.earlier]


@functools.lru_cache(maxsize=1024)
def decode_settings(data: bytes) -> Settings:
    """Reads settings.

    Raises:
        ValueError: if they are invalid; the text says why.
    """
    given = settings.read(data, Settings)
    words = settings.words(given, fairness=Fairness, period=Period, drained=Drained)
    earlier = settings.earlier_schemas(given.get("earlier", ()))
    found = settings.with_columns(Settings(**{**given, **words, "earlier": earlier}))
    settings.check_switch("secure", found.secure)
    settings.check_switch("merge", found.merge)
    settings.check_switch("history", found.history)
    check = settings.check_number
    check("lease_us", found.lease_us, limits.LEASE_US_MIN, limits.LEASE_US_MAX)
    check("timeouts_max", found.timeouts_max, 0, limits.TIMEOUTS_MAX)
    check("debounce_us", found.debounce_us, 0, limits.PROCESS_AHEAD_US_MAX)
    return found


def unexpired(dates: Sequence[int], expiries: Sequence[int], now_us: int) -> list[int]:
    """Returns the places of the jobs that have not expired, by their process dates and expiries."""
    pairs = enumerate(zip(dates, expiries, strict=True))
    return [at for at, (date_us, end_us) in pairs if not end_us or end_us > max(date_us, now_us)]


def domain_of(key: bytes) -> bytes:
    """Returns the host of the first URI in a key, in lower case; empty if there is none."""
    found = _HOST.search(key)
    return found[1].lower()[: limits.DOMAIN_BYTES_MAX] if found else b""
