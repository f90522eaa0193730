"""What somebody has to look at in a spool: the rules of Snap's watchdog, and what was set aside.

A file that is erased and still open counts for nothing: nothing of it waits.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

RULES: Final = ("files", "aside", "unchanged", "owner", "writable", "size")
FILES_MAX: Final = 2
WAITING_BYTES_MAX: Final = 12 * 1000 * 1000
UNCHANGED_US_MAX: Final = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the rules look at, of one file."""

    name: str
    waiting_bytes: int  # not yet sent
    owner: int  # user id
    mode: int
    modified_us: int
    set_aside: int = 0  # records that are never sent, as far as that was counted


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody has to look at."""

    severity: int  # 1 to 100
    rule: str  # one of RULES
    name: str  # of the file; empty = the spool
    text: str


def find(watched: Iterable[Watched], owner: int, now_us: int) -> list[Alert]:
    """Returns all alerts, the most severe first.

    Args:
        watched: the files of a spool.
        owner: whose they should be: who has the directory.
        now_us: wall time.
    """
    seen = list(watched)
    found = [alert for file in seen for alert in _of_file(file, owner, now_us)]
    waiting = sorted(file.name for file in seen if file.waiting_bytes)
    if len(waiting) > FILES_MAX:
        text = f"{len(waiting)} files wait ({', '.join(waiting)}); does `fjord forward` run?"
        found.append(Alert(90, "files", "", text))
    return sorted(found, key=lambda alert: (-alert.severity, alert.name))


def _of_file(file: Watched, owner: int, now_us: int) -> Iterator[Alert]:
    name = file.name
    if file.set_aside:
        text = f"{name}: has records that were set aside; see `fjord spool dump --aside`"
        yield Alert(80, "aside", name, text)
    if file.waiting_bytes and file.modified_us + UNCHANGED_US_MAX < now_us:
        yield Alert(76, "unchanged", name, f"{name}: waits, and was not touched for 24 hours")
    if file.owner != owner:
        text = f"{name}: belongs to user {file.owner}, and the spool to {owner}"
        yield Alert(73, "owner", name, text)
    if file.mode & stat.S_IWOTH:
        yield Alert(60, "writable", name, f"{name}: everybody can write to it; chmod o-w")
    if file.waiting_bytes > WAITING_BYTES_MAX:
        size = file.waiting_bytes / 1_000_000
        yield Alert(60, "size", name, f"{name}: {size:,.0f} MB wait; is the daemon fast enough?")
