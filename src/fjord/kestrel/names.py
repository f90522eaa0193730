"""File names of Kestrel's queues; nothing else builds or parses them.

    cars            what is written to now
    cars.904        a file that was written to before; the number is milliseconds since 1970
    cars.950.pack   takes the place of all files up to 950, itself not renamed to cars.950 yet
    cars~~961       something that is being made; counts for nothing
    cars~~sums      checksums of these files, see `sums`; Kestrel takes it for such a thing
    cars+seo        what is written to now of the queue cars+seo, which gets all that cars gets
    ~~lock          Fjord's own, for all queues, as ~~reserve and ~~corrupt are

The files of a queue are one journal: by number, 904 before 1000, and the one without a number at
the end.  All of this works on lists of names and looks at no file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TEMPORARY: Final = "~~"
PACK: Final = ".pack"
CURRENT: Final = -1  # stands for the number of the file that has none
# A file system takes 255 bytes, of which the longest ending has ".", 19 digits and ".pack".
QUEUE_BYTES_MAX: Final = 230

_SUMS: Final = re.compile(r"([^./~]+)~~sums")
# Numbers are milliseconds, as Kestrel writes them: no more than 19 digits, the first not 0.  Two
# names of one number, and thus two files in one place, cannot be.
_KNOWN: Final = re.compile(r"([^./~]+)(?:\.(0|[1-9][0-9]{0,18})(\.pack)?)?")


class Role(enum.Enum):
    """What a file is for its queue."""

    CURRENT = "current"
    ROTATED = "rotated"
    PACK = "pack"
    TEMPORARY = "temporary"
    SUMS = "sums"


_OF_A_JOURNAL: Final = (Role.CURRENT, Role.ROTATED, Role.PACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """A file name, taken apart."""

    name: str
    queue: str
    role: Role
    number: int = CURRENT


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFiles:
    """The files of one queue, by what is to be done with them."""

    live: list[str]  # to be read, in this order
    dead: list[str]  # replaced by a pack; ignored, and removed by a writer
    temporary: list[str]  # left by something that did not end; the same


def rotated(queue: str, at_ms: int) -> str:
    return f"{queue}.{at_ms}" if at_ms != CURRENT else queue


def pack(queue: str, at_ms: int) -> str:
    return f"{queue}.{at_ms}{PACK}"


def temporary(queue: str, at_ms: int) -> str:
    return f"{queue}{TEMPORARY}{at_ms}"


def sums(queue: str) -> str:
    return f"{queue}{TEMPORARY}sums"


def sums_made(queue: str) -> str:
    """Returns what `disk.replace_whole` calls the sums before they are there; it is temporary."""
    return sums(queue) + ".new"


def parse(name: str) -> FileName | None:
    """Parses a file name; None if it is not one of a queue."""
    if (found := _SUMS.fullmatch(name)) is not None:
        return FileName(name=name, queue=found[1], role=Role.SUMS)
    if TEMPORARY in name:
        queue = name.split(TEMPORARY, 1)[0].split(".", 1)[0]
        return FileName(name=name, queue=queue, role=Role.TEMPORARY) if queue else None
    found = _KNOWN.fullmatch(name)
    if found is None:
        return None
    queue, number, ending = found.groups()
    role = Role.PACK if ending else Role.ROTATED if number else Role.CURRENT
    return FileName(name=name, queue=queue, role=role, number=int(number or CURRENT))


def queue_problem(queue: str) -> str | None:
    """Says why no queue can be made with this name, None if one can.

    Files of queues with other names are read all the same, if they are there.
    """
    parent, plus, child = queue.partition("+")
    if not queue:
        return "the name of a queue is empty"
    if any(one in queue for one in "./~"):
        return f"{queue} holds one of . / ~, which files of a queue have another use for"
    if any(one < " " or one == "\x7f" for one in queue):
        return "the name of a queue holds a control character, which no protocol can carry"
    if plus and not (parent and child):
        return f"{queue} needs a name on both sides of +"
    if len(queue.encode("utf-8", "surrogateescape")) > QUEUE_BYTES_MAX:
        return f"the name of a queue has more than {QUEUE_BYTES_MAX} bytes"
    return None


def parent_of(queue: str) -> str | None:
    """Returns the queue of which this one gets all that is added; None if it is not such a one."""
    parent, plus, _ = queue.partition("+")
    return parent if plus else None


def queues_of(names: Iterable[str]) -> list[str]:
    """Returns the queues that have files in a directory, sorted.

    What is only temporary makes no queue, and neither do sums.
    """
    parsed = (parse(name) for name in names)
    return sorted({one.queue for one in parsed if one and one.role in _OF_A_JOURNAL})


def files_of(queue: str, names: Iterable[str]) -> QueueFiles:
    """Sorts the files of one queue among the names in a directory.

    The pack with the highest number replaces all files up to that number, other packs too; what
    has a higher number lives on behind it.
    """
    # A directory may have many queues, and each of them asks for its files.
    likely = (name for name in names if name.startswith(queue))
    mine = [one for one in map(parse, likely) if one and one.queue == queue]
    numbered = [one for one in mine if one.role in (Role.ROTATED, Role.PACK)]
    last_pack = max((one.number for one in numbered if one.role is Role.PACK), default=-1)
    live = [
        one
        for one in sorted(numbered, key=lambda one: one.number)
        if one.number > last_pack or (one.role is Role.PACK and one.number == last_pack)
    ]
    current = [one for one in mine if one.role is Role.CURRENT]
    return QueueFiles(
        live=[one.name for one in live + current],
        dead=sorted(one.name for one in numbered if one not in live),
        temporary=sorted(one.name for one in mine if one.role is Role.TEMPORARY),
    )
