"""What every part knows of jobs: named priorities, a table's settings, the domain of a key."""

from __future__ import annotations

import enum
import functools
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from fjord import limits

SECOND_US: Final = 1_000_000
# From here up a job is slow: it is never handed out together with others, and only while none of
# the others is due (SJ-09, decision 29).
SLOW_FROM: Final = 200
PRIORITY_MAX: Final = 255

# The end of a scheme, perhaps a user, then the host: of the first URI anywhere in a key.
_HOST = re.compile(rb"(?<=[A-Za-z0-9+.\-])://(?:[^/?#\s]*@)?(\[[^\]/?#\s]*\]|[^/?#:\s]*)")


class Priority(enum.IntEnum):
    """Priorities with a name; any number from 0 to 255 is one, and the smallest is the first."""

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
    """Where a job is; one that is done is gone."""

    WAITING = 1  # W: for its process date, or for a worker
    TAKEN = 2  # P: a worker has it, until its lease is over
    DEAD = 3  # it failed too often, or was buried; waits for a person


class How(enum.IntEnum):
    """Why a job changed its state; the numbers are those of ops."""

    DONE = 1  # its work is done, or it was taken with `done`
    TIMEOUT = 2  # its lease was over
    FAIL = 3  # its worker said so
    GIVEN_BACK = 4  # the same, without counting
    CANCEL = 5  # somebody took it away by its key
    RESCHEDULE = 6  # somebody changed its date or its priority
    EXPIRE = 7  # its expiry came
    REVIVE = 8  # it came back from the dead
    DISCARD = 9  # a dead one was thrown away
    SUPERSEDED = 10  # a newer job with its key waits
    PURGE = 11  # its table was dropped


class Fairness(enum.StrEnum):
    """In which order jobs of several domains are handed out."""

    NONE = "none"  # one order over the whole table
    DOMAIN = "domain"  # one after the other from each domain that has something ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a jobs table works; fixed when the table is made."""

    merge: bool = True  # a job whose key waits already is merged with it; else keys need not differ
    fairness: Fairness = Fairness.NONE
    lease_us: int = 3600 * SECOND_US  # how long a worker may take, unless it says otherwise
    timeouts_max: int = 5  # a job that fails or times out more often is dead
    debounce_us: int = 3600 * SECOND_US  # no merge moves a date beyond insertion date + this
    history: bool = True  # what leaves the journal goes to cold blocks, where there are some

    def encode(self) -> bytes:
        """Returns the bytes that a table is declared with: what is not as usual, by name."""
        usual = asdict(Settings())
        found = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps(found, sort_keys=True, separators=(",", ":")).encode() if found else b""


@functools.lru_cache(maxsize=1024)
def decode_settings(data: bytes) -> Settings:
    """Reads settings.

    Raises:
        ValueError: if they are none; the text says why.
    """
    try:
        found: Any = json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"settings are a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("settings are a JSON object")
    names = [field.name for field in fields(Settings)]
    for name in found:
        if name not in names:
            raise ValueError(f"there is no setting {name[:40]!r}; there are {', '.join(names)}")
    settings = Settings(**found)
    _check(settings)
    return settings if not found else Settings(**found | {"fairness": Fairness(settings.fairness)})


def _check(settings: Settings) -> None:
    if not isinstance(settings.merge, bool):
        raise ValueError("merge is true or false")
    if not isinstance(settings.history, bool):
        raise ValueError("history is true or false")
    if settings.fairness not in list(Fairness):
        raise ValueError("fairness is none or domain")
    _check_number("lease_us", settings.lease_us, limits.LEASE_US_MIN, limits.LEASE_US_MAX)
    _check_number("timeouts_max", settings.timeouts_max, 0, limits.TIMEOUTS_MAX)
    _check_number("debounce_us", settings.debounce_us, 0, limits.PROCESS_AHEAD_US_MAX)


def _check_number(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}")


def domain_of(key: bytes) -> bytes:
    """Returns the host of the first URI in a key, in small letters; nothing if there is none."""
    found = _HOST.search(key)
    return found[1].lower()[: limits.DOMAIN_BYTES_MAX] if found else b""
