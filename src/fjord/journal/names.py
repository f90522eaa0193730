"""File names of the journal; nothing else builds or parses them."""

from __future__ import annotations

import os
import re

_SEGMENT = re.compile(r"(\d{10})\.seg\Z")
# A file under this suffix is being made; it counts for nothing until it is renamed.
UNFINISHED = ".new"
# A packed segment under this suffix is to be overwritten; a start goes on with that.
UNWIPED = ".old"


def segment_path(directory: str, segment: int) -> str:
    return os.path.join(directory, f"{segment:010d}.seg")


def segment_number(name: str) -> int | None:
    """Returns the number of the segment that a file name stands for, None for other files."""
    found = _SEGMENT.match(name)
    return int(found[1]) if found else None


def spare_path(directory: str) -> str:
    """Returns the name of the file that becomes the next segment."""
    return os.path.join(directory, "spare")
