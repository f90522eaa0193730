"""What somebody has to look at in a spool: the rules of Snap's watchdog, and what was set aside.

A file that is erased and still open counts for nothing: nothing of it waits.
"""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

RULES: Final = ("files", "aside", "unchanged", "owner", "writable", "size")
FILES_MAX: Final = 2
WAITING_BYTES_MAX: Final = 12 * 1000 * 1000
UNCHANGED_US_MAX: Final = 24 * 3600 * 1_000_000
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the rules look at, of one file."""

    name: str
    waiting_bytes: int  # not yet sent
    owner: int  # user id
    mode: int
    modified_us: int
    set_aside: int = 0  # records that are never sent, as far as that was counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the rules look at, of the directory of a spool."""

    path: str
    owner: int  # user id: whose the files should be
    mode: int


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody has to look at."""

    severity: int  # 1 to 100
    rule: str  # one of RULES
    name: str  # of the file; empty = the spool
    text: str


def find(watched: Iterable[Watched], place: Place, now_us: int) -> list[Alert]:
    """Returns all alerts, the most severe first.

    Both the forwarder and who looks from outside tell them: no text may ask whether it runs.

    Args:
        watched: the files of a spool.
        place: its directory.
        now_us: wall time.
    """
    seen = list(watched)
    found = [alert for file in seen for alert in _of_file(file, place, now_us)]
    waiting = sorted(file.name for file in seen if file.waiting_bytes)
    if len(waiting) > FILES_MAX:
        text = f"{len(waiting)} files wait ({_some(waiting)}): what is written is not sent, or late"
        found.append(Alert(90, "files", "", text))
    if place.mode & stat.S_IWOTH:
        text = f"everybody can write to the directory; `chmod o-w {shlex.quote(place.path)}`"
        found.append(Alert(60, "writable", "", text))
    return sorted(found, key=lambda alert: (-alert.severity, alert.name))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _of_file(file: Watched, place: Place, now_us: int) -> Iterator[Alert]:
    name, owner = file.name, place.owner
    if file.set_aside:
        see = f"`fjord spool dump {shlex.quote(place.path)} --aside`"
        yield Alert(80, "aside", name, f"{name}: has records that were set aside; see {see}")
    if file.waiting_bytes and file.modified_us + UNCHANGED_US_MAX < now_us:
        yield Alert(76, "unchanged", name, f"{name}: waits, and was not touched for 24 hours")
    if file.owner != owner:
        text = f"{name}: belongs to user {file.owner}, and the spool to {owner}"
        yield Alert(73, "owner", name, text)
    if stat.S_ISREG(file.mode) and file.mode & stat.S_IWOTH:  # of a link it says nothing
        yield Alert(60, "writable", name, f"{name}: everybody can write to it; chmod o-w")
    if file.waiting_bytes > WAITING_BYTES_MAX:
        size = file.waiting_bytes / 1_000_000
        yield Alert(60, "size", name, f"{name}: {size:,.0f} MB wait; is the daemon fast enough?")
